"""Each deliberate bug of `mutants.txt` is caught by the scenario that is named here: it ends otherwise, or breaks what always holds."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.pure.runtime.text_scenarios import Runs, play, scenarios_of
from tests.simulated.mutants import CRASHES, Mutant, imported_again, parse

FOLDER = Path(__file__).parent
MUTANTS = parse((FOLDER / "mutants.txt").read_text())
#: Imported again for each mutant.
ANEW = ("holdfast.membership", "tests.pure.membership.world", "holdfast.backoff")
#: The file and the beginning of the title of the scenario that catches each.
CAUGHT_BY = {
    "the late answer counts": ("lost", "a late answer of an earlier generation changes nothing: heartbeat"),
    "a late answer is told apart by the number of its generation alone": (
        "lost",
        "the group was forgotten and counts from 1 again",
    ),
    "a heartbeat that JoinGroup overtook is a verdict": ("lost", "a heartbeat that JoinGroup overtook costs no place"),
    "an answer that was given up counts": ("leave", "while JoinGroup is in flight: its answer does not count"),
    "the assignment is not delivered again": ("assignment", "on_join_complete raises twice"),
    "the wish that nobody heard is cleared": ("rejoin", "while JoinGroup is in flight"),
    "the wish is cleared after the program is told": ("rejoin", "from inside on_join_complete"),
    "prepared twice": ("rebalance", "SyncGroup answered with a rebalance"),
    "lost twice": ("lost", "the place is lost before the next assignment"),
    "given up, and lost all the same": ("leave", "the place is lost meanwhile"),
    "a wish is no reason to wait": ("rejoin", "again and again from inside on_join_complete is no hot loop"),
    "a rebalance is no reason to wait": ("rebalance", "rebalances that never end are no hot loop"),
    "JoinGroup is sent twice": ("join", "a turn while JoinGroup is in flight"),
    "JoinGroup does not wait for prepare": ("join", "the first member leads"),
    "the id goes with the generation": ("lost", "ILLEGAL_GENERATION"),
    "the result of an earlier generation is handed in": ("assignment", "the generation is lost while the leader works"),
    "the session begins anew with the answer": ("lost", "a heartbeat that is answered keeps the session"),
    "no heartbeats while a callback runs": ("rebalance", "heartbeats go on while callbacks run"),
    "heartbeats while the coordinator holds a request": ("rebalance", "heartbeats go on while callbacks run"),
    "a final error is tried again": ("join", "a final error is said once"),
    "a static member gives up its place": ("leave", "a static member keeps its place"),
    "a static member that stops while it joins for the first time stays behind": (
        "leave",
        "a static member whose first JoinGroup is in flight",
    ),
    "two callbacks at a time": ("leave", "while a callback runs: it ends first"),
    "stable before the program has taken over": ("join", "the first member leads"),
    "an assignment of some members is handed in": ("assignment", "an assignment that is not one for each member"),
    "a kept assignment is worked out again": ("join", "the assignment of a static leader that came back stays"),
    "the protocol is the preferred one": ("join", "the broker's choice of protocol counts"),
    "the coordinator is not looked up again": ("lost", "coordinator that moves is looked up again"),
}


@contextmanager
def world_with(mutant: Mutant | None) -> Iterator[Runs]:
    """Give a world whose member is imported again, with a mutant or without one; the real modules come back afterwards."""
    with imported_again(mutant, ANEW):
        yield importlib.import_module(ANEW[1]).World()


def scenario_of(name: str) -> str:
    """Return the scenario that catches a mutant."""
    file, beginning = CAUGHT_BY[name]
    found = [
        body
        for title, body in scenarios_of((FOLDER / "scenarios" / f"{file}.txt").read_text())
        if title.startswith(beginning)
    ]
    assert len(found) == 1, f"{len(found)} scenarios of {file}.txt begin with {beginning!r}"
    return found[0].strip("\n")


def play_or_fail(body: str, world: Runs) -> str:
    """Play a scenario; returns how it broke off, if it did."""
    try:
        return play(body, world)
    except Exception as error:
        if type(error).__name__ in CRASHES:  # it should do something wrong, not fall over its own patch
            raise
        return repr(error)


def test_each_mutant_has_a_scenario() -> None:
    assert list(CAUGHT_BY) == list(MUTANTS)


@pytest.mark.parametrize("name", MUTANTS)
def test_the_mutant_is_caught(name: str) -> None:
    body = scenario_of(name)
    with world_with(MUTANTS[name]) as world:
        assert play_or_fail(body, world) != body


def test_the_real_member_imported_anew_is_not() -> None:
    body = scenario_of("the late answer counts")
    with world_with(None) as world:
        assert play_or_fail(body, world) == body
