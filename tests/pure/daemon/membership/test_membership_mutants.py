"""Each deliberate bug of `mutants.txt` is caught by the test of `test_coordinator.py` that is named here."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest

from tests.simulated.mutants import Mutant, _Finder, parse

MUTANTS = parse((Path(__file__).parent / "mutants.txt").read_text())
ROOM = "tests.pure.daemon.membership"
#: Imported anew for each mutant.
ANEW = ("holdfast.daemon.membership", f"{ROOM}.world", f"{ROOM}.test_coordinator")
#: The test that catches each.
CAUGHT_BY = {
    "revoked twice": "eager_gives_up_everything_once_before_it_joins",
    "a failed assignment is revoked": "eager_gives_nothing_up_for_an_assignment_that_failed",
    "nothing is revoked": "eager_gives_up_everything_once_before_it_joins",
    "what stays is given up, too": "only_what_moves_is_let_go_and_is_served_until_it_is_taken",
    "what moves is given up before it is taken": "only_what_moves_is_let_go_and_is_served_until_it_is_taken",
    "what nobody takes is served for ever": "only_what_moves_is_let_go_and_is_served_until_it_is_taken",
    "work begins while the node is behind": "who_is_behind_keeps_what_it_serves_and_begins_the_rest_when_it_has_read_on",
    "an assignment that cannot be read is an empty one": "an_assignment_that_cannot_be_read_has_failed_and_is_not_an_empty_one",
    "the map of a former generation is used": "an_assignment_of_an_older_generation_changes_nothing",
    "the map of a lost session is used": "after_a_lost_session_a_group_that_begins_at_one_again_is_no_older_one",
    "a stale map is used for ever": "a_map_is_stale_from_the_first_moment_of_a_rebalance",
    "the ownership generation goes back": "a_log_with_a_higher_generation_heals_with_one_more_rebalance",
    "nobody asks for a higher generation": "a_log_with_a_higher_generation_heals_with_one_more_rebalance",
    "a higher generation seen in a rebalance is forgotten": "a_higher_generation_seen_in_a_rebalance_is_looked_at_when_it_ends",
    "an equal generation of an earlier life is taken for none": "a_higher_generation_seen_in_a_rebalance_is_looked_at_when_it_ends",
    "a node to which somebody comes keeps its place": "a_lone_member_lets_go_what_somebody_who_joins_is_to_take",
    "the rejoin loop is hot": "a_mismatch_takes_nothing_away_and_is_tried_again_after_pauses",
    "a leader that is behind divides": "a_mismatch_takes_nothing_away_and_is_tried_again_after_pauses",
    "a second node of one id is taken in": "the_second_node_of_one_id_is_refused_and_both_addresses_are_named",
    "an absent node is waited for by nobody": "what_an_absent_node_had_waits_and_the_leader_ends_the_wait",
    "one member that cannot be read stops the group": "metadata_that_cannot_be_read_costs_one_member_its_work",
    "the address before a restart stays in the map": "a_static_member_that_comes_back_at_another_address_has_the_map_made_anew",
    "a node that has left names itself for what it had": "who_has_left_names_itself_for_what_it_serves_alone",
    "a leader forgets who has left": "everybody_learns_who_had_what_moves_from_a_leader_that_knows_it",
    "a member joins with what it read of the config topic long ago": "a_join_begins_with_a_fresh_look_at_the_config_topic",
}


@contextmanager
def mutated(mutant: Mutant | None) -> Iterator[ModuleType]:
    """Give the tests, imported anew with a mutant or without one; the real modules come back afterwards."""
    importlib.import_module(ANEW[-1])
    real = {name: module for name, module in sys.modules.items() if name.startswith(ANEW)}
    finders = [] if mutant is None else [_Finder(mutant)]
    for name in real:
        del sys.modules[name]
    sys.meta_path[:0] = finders
    try:
        yield importlib.import_module(ANEW[-1])
    finally:
        for finder in finders:
            sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.startswith(ANEW)]:
            del sys.modules[name]
        sys.modules.update(real)
        for package in ANEW:
            parent, _, child = package.rpartition(".")
            setattr(sys.modules[parent], child, real[package])
    assert all(finder.is_used for finder in finders), "nothing imports what is mutated"


def run(tests: ModuleType, name: str) -> None:
    test = getattr(tests, f"test_{name}")
    fixtures = {"clock": tests.Clock(), "group": tests.Group()}
    asyncio.run(test(**{fixture: fixtures[fixture] for fixture in inspect.signature(test).parameters}))


def test_each_mutant_has_a_test() -> None:
    assert list(CAUGHT_BY) == list(MUTANTS)


@pytest.mark.parametrize("name", MUTANTS)
def test_the_mutant_is_caught(name: str) -> None:
    with mutated(MUTANTS[name]) as tests, pytest.raises((AssertionError, ValueError)):
        run(tests, CAUGHT_BY[name])


@pytest.mark.parametrize("name", dict.fromkeys(CAUGHT_BY.values()))
def test_what_catches_a_mutant_catches_nothing_in_the_real_one(name: str) -> None:
    with mutated(None) as tests:
        run(tests, name)
