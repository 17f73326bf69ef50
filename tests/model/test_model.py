"""The small scopes, the mutants and some random walks of the reference model; `python -m tests.model.checker` runs the long forms."""

import pytest

from tests.model.checker import BIG, BIG_OWNERS, HOLD_TOO, MUTANTS, SCOPES, bfs, big, settle_every, walk
from tests.model.moves import Model
from tests.model.world import FALLBACK, GENERATION, REPAIRED, Rules

#: (rules, scope, states of the complete search): a count that differs means that the model has changed.
COMPLETE = [
    (REPAIRED, "gap", 16),
    (REPAIRED, "restart", 271),
    (REPAIRED, "hw", 9_073),
    (REPAIRED, "fencing", 68_833),
    (REPAIRED, "moving", 17_455),
    (REPAIRED, "ahead", 29_860),
    (GENERATION, "static", 28_759),
    (GENERATION, "forgotten", 5_307),
    (FALLBACK, "fellback", 37_375),
    (FALLBACK, "fellback2", 62_849),
    (FALLBACK, "fellbackdel", 53_137),
    (FALLBACK, "wiped", 179_497),
    (FALLBACK, "told", 164_922),
    (FALLBACK, "tolddel", 218_812),
]

#: What each mutant breaks.
BREAKS = {
    "answer at append": "I3",
    "skip the epoch check": "I2",
    "load ends at the watermark seen at start": "I8",
    "equal epochs both win": "I8",
    "prune at any offset": "I7",
    "prune at any checkpoint": "I7",
    "snapshot topic before log start": "I4",
    "read without read-index": "I3",
    "job ignores the epoch rule": "I5",
    "hole 1: own checkpoint known by node id": "I8",
    "hole 2: no numbering, gap in the log": "I8",
    "hole 3: tail compares offsets only": "I1",
    "hole 4: answer without records not read-indexed": "I3",
    "hole 5: refresh under a new epoch, pipelined": "I8",
    "hole 6: prune on the snapshot topic, zombie job": "I6",
    "hole 7: the same with a deleted key": "I5",
    "hole 7b: deleted key pruned without its marker": "I5",
    "hole 8: job without its state folds onto nothing": "I6",
    "hole 9: compaction outruns a load": "I4",
    "assumption: ListOffsets from a stale leader": "I3",
    "load goes on from a log start that moved past it": "I5",
    "nodes retake from an equal generation": "I9",
    "a node does not retake from its own late checkpoint": "I9",
    "a checkpoint carries only its node's generation": "I10",
    "a group hands out Kafka's generation": "I9",
    "a higher generation in the log asks for no rebalance": "I9",
    "fell back: a log start is trusted": "I7",
    "fell back: only what counts from there is believed": "I7",
    "fell back: records below the cut count": "I7",
    "fell back: the state below the cut is kept": "I5",
    "fell back: a cut is named too early": "I6",
    "told: a log start is trusted": "I7",
    "wiped: a log start is trusted": "I7",
    "wiped: a cut is named too early": "I6",
    "wiped: nothing is written again": "I9",
}


@pytest.mark.parametrize(("rules", "scope", "states"), COMPLETE, ids=[scope for _, scope, _ in COMPLETE])
def test_the_repaired_rules_hold_in_every_state_of_a_scope(rules: Rules, scope: str, states: int) -> None:
    result = bfs(Model(rules, SCOPES[scope]), settle_every(rules, is_mutant=False))
    assert result.complete
    assert not result.broken, result.trace
    assert result.states == states


def test_every_mutant_says_what_it_breaks() -> None:
    assert MUTANTS.keys() == BREAKS.keys()


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_rule_is_caught(name: str) -> None:
    rules, scope = MUTANTS[name]
    result = bfs(Model(rules, SCOPES[scope]), settle_every(rules, is_mutant=True))
    assert result.broken.split(" ")[0] == BREAKS[name]


@pytest.mark.parametrize("name", HOLD_TOO)
def test_a_weaker_rule_holds_too(name: str) -> None:
    rules, scope = HOLD_TOO[name]
    result = bfs(Model(rules, SCOPES[scope]))
    assert result.complete
    assert not result.broken, result.trace


def test_random_walks_whose_log_start_falls_back_or_is_moved_by_others_break_nothing() -> None:
    broken = {seed: walk(big(FALLBACK), seed)[0] for seed in range(50)}
    assert not any(broken.values()), broken


@pytest.mark.parametrize("first_seed", range(0, 200, 50))
def test_random_walks_of_three_nodes_with_all_faults_break_nothing(first_seed: int) -> None:
    broken = {seed: walk(Model(REPAIRED, BIG), seed)[0] for seed in range(first_seed, first_seed + 50)}
    assert not any(broken.values()), broken


def test_random_walks_under_the_rule_of_generations_end_with_one_owner() -> None:
    broken = {seed: walk(Model(GENERATION, BIG_OWNERS), seed)[0] for seed in range(50)}
    assert not any(broken.values()), broken
