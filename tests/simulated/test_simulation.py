"""CI's share of the simulation, and proof that a life depends on its seed alone."""

from __future__ import annotations

import pytest

from tests.simulated.__main__ import KINDS, run_lives, untested
from tests.simulated.checks.coverage import CLUSTER, FAILED, MEMORY, TESTED, lived, missing
from tests.simulated.cluster.life import ClusterLife
from tests.simulated.mutants import catching_lives


@pytest.mark.parametrize("kind", KINDS)
def test_every_invariant_holds_in_every_life_and_nothing_expected_is_missing(kind: str) -> None:
    lives = run_lives(kind, TESTED[kind])
    assert lives.failures == []
    assert missing(kind, lives.counts, len(TESTED[kind])) == []


def test_what_is_left_to_the_command_is_what_no_test_lives() -> None:
    for kind in KINDS:
        tested = {seed for of_kind, seed in lived() | catching_lives() if of_kind == kind}
        left = untested(kind, range(1_200))
        assert tested.isdisjoint(left)
        assert {*range(1_200)} - tested == set(left)
    assert untested(MEMORY, TESTED[MEMORY]) == []
    assert untested(CLUSTER, range(500, 504)) == [500, 501, 503]


@pytest.mark.parametrize(("kind", "seed"), FAILED)
def test_lives_that_failed_do_not_fail_again(kind: str, seed: int) -> None:
    assert run_lives(kind, [seed]).failures == []


def test_a_broker_of_a_deleted_topic_tells_nothing_of_the_one_that_has_its_name() -> None:
    """A process that starts behind the new topic meets a broker that was cut off before; no seed is known that leads there alone."""
    life = ClusterLife(195)
    life.has_disasters = True
    life.faults = ["topic recreated", "broker cut off", "crash", "leader moved", "broker frozen"]
    assert life.run()["the past known as such"]


@pytest.mark.parametrize("seed", [69, 338, 1_787])
def test_what_another_program_deleted_and_the_owner_wrote_again_is_in_the_loads_behind_it(seed: int) -> None:
    counts = ClusterLife(seed).run()
    assert counts["log made whole"]
    assert counts["served what was made whole"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_tells_the_same_story_again(kind: str) -> None:
    for seed in (3, 14, 15):
        first: list[str] = []
        second: list[str] = []
        KINDS[kind](seed, first.append)
        KINDS[kind](seed, second.append)
        assert first == second
        assert len(first) > 100
