"""CI's share of the simulation, and proof that a life depends on its seed alone."""

from __future__ import annotations

import pytest

from tests.simulated.__main__ import KINDS, run_lives
from tests.simulated.checks.coverage import CLUSTER, MEMORY, missing

SEEDS = {MEMORY: 500, CLUSTER: 60}
#: Lives beyond those that failed once.
FAILED = ((MEMORY, 637), (MEMORY, 746), (CLUSTER, 502), (CLUSTER, 529), (CLUSTER, 869))


@pytest.mark.parametrize("kind", KINDS)
def test_every_invariant_holds_in_every_life_and_nothing_expected_is_missing(kind: str) -> None:
    lives = run_lives(kind, range(SEEDS[kind]))
    assert lives.failures == []
    assert missing(kind, lives.counts, SEEDS[kind]) == []


@pytest.mark.parametrize(("kind", "seed"), FAILED)
def test_lives_that_failed_do_not_fail_again(kind: str, seed: int) -> None:
    KINDS[kind](seed)


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_tells_the_same_story_again(kind: str) -> None:
    for seed in (3, 14, 15):
        first: list[str] = []
        second: list[str] = []
        KINDS[kind](seed, first.append)
        KINDS[kind](seed, second.append)
        assert first == second
        assert len(first) > 100
