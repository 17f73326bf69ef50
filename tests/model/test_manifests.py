"""Scopes, mutants and walks of manifests and restores; `python -m tests.model.checker --rules manifests` runs the long forms."""

import pytest

from tests.model.checker import bfs, big, manifest_settle_every, walk
from tests.model.manifest_rules import MANIFESTS, ManifestRules
from tests.model.manifest_scopes import ALSO_HOLDS, EARLY, MANIFEST_MUTANTS, MANIFEST_SCOPES
from tests.model.manifests import ManifestModel

#: Scope to the states of its complete search: a count that differs means that the model has changed.
COMPLETE = {
    "batches": 5_294,
    "deleted": 9_383,
    "corrupt": 15_656,
    "gap": 19_264,
    "rivals": 26_743,
    "lag": 18_875,
    "cutone": 25_555,
    "jobs": 41_844,
    "jobnull": 1_472,
    "nulls": 13_120,
    "unclean": 982,
    "othertry": 14_008,
    "lostend": 21_424,
}


@pytest.mark.parametrize("scope", COMPLETE)
def test_the_rules_hold_in_every_state_of_a_scope_and_loads_restore(scope: str) -> None:
    model = ManifestModel(MANIFESTS, MANIFEST_SCOPES[scope])
    result = bfs(model, manifest_settle_every(scope))
    assert result.complete
    assert not result.broken, result.trace
    assert result.states == COMPLETE[scope]
    assert model.restores > 0


@pytest.mark.parametrize("name", MANIFEST_MUTANTS)
def test_a_broken_rule_is_caught(name: str) -> None:
    rules, scope, breaks = MANIFEST_MUTANTS[name]
    result = bfs(ManifestModel(rules, MANIFEST_SCOPES[scope]), manifest_settle_every(scope, breaks))
    assert result.broken.split(" ")[0] == breaks


@pytest.mark.parametrize("name", ALSO_HOLDS)
def test_a_check_less_or_another_rule_holds_too(name: str) -> None:
    rules, scope = ALSO_HOLDS[name]
    result = bfs(ManifestModel(rules, MANIFEST_SCOPES[scope]), manifest_settle_every(scope))
    assert result.complete
    assert not result.broken, result.trace


@pytest.mark.parametrize("rules", [MANIFESTS, EARLY], ids=["manifests", "early"])
def test_random_walks_of_three_nodes_and_two_jobs_break_nothing(rules: ManifestRules) -> None:
    broken = {seed: walk(big(rules), seed)[0] for seed in range(15)}
    assert not any(broken.values()), broken
