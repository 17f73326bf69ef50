"""CI's share of the simulation, and proof that a life depends on its seed alone."""

from __future__ import annotations

from tests.simulated.__main__ import run_lives
from tests.simulated.coverage import missing
from tests.simulated.life import run_life

SEEDS = 500


def test_every_invariant_holds_in_every_life_and_nothing_expected_is_missing() -> None:
    lives = run_lives(range(SEEDS))
    assert lives.failures == []
    assert missing(lives.counts, SEEDS) == []


def test_a_seed_tells_the_same_story_again() -> None:
    for seed in (3, 14, 15):
        first: list[str] = []
        second: list[str] = []
        run_life(seed, first.append)
        run_life(seed, second.append)
        assert first == second
        assert len(first) > 100
