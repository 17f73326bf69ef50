"""What a service manager is notified of, and when: exact messages for exact conditions and times."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.service.condition import Condition
from holdfast.service.notices import Bounds, Notices

STARTING: Final = Condition(
    has_started=False, is_ready=False, is_stopping=False, is_reloading=False, status="starting", progress=0, turns=0
)
READY: Final = STARTING._replace(has_started=True, is_ready=True, status="ready")
BOUNDS: Final = Bounds(start_stall_ms=45_000, stop_ms=35_000, watchdog_ms=None)


class World:
    """A program whose condition the test sets, and the time."""

    def __init__(self, bounds: Bounds = BOUNDS, condition: Condition = STARTING) -> None:
        self.notices = Notices(bounds)
        self.condition = condition
        self.now_ms = 1_000_000

    def after(self, ms: int, **changes: Any) -> list[str]:
        """Let time pass and the program change, and return the lines of the look then."""
        self.now_ms += ms
        self.condition = self.condition._replace(**changes)
        messages = self.notices.look(self.condition, self.now_ms)
        assert len(messages) <= 1
        return [line for message in messages for line in message.split("\n")]


def test_a_start_is_extended_while_it_gets_on_and_ends_with_ready_once() -> None:
    world = World()
    assert world.after(0) == ["EXTEND_TIMEOUT_USEC=30000000", "STATUS=starting"]
    assert world.after(9_999) == []
    assert world.after(1) == ["EXTEND_TIMEOUT_USEC=30000000"]
    assert world.after(5_000, status="starting: 7 of 50") == ["STATUS=starting: 7 of 50"]
    assert world.after(0, has_started=True, status="ready") == ["READY=1", "STATUS=ready"]
    assert world.after(60_000) == []


def test_a_start_without_progress_is_not_extended_for_ever() -> None:
    world = World()
    world.after(0)
    assert world.after(20_000) == ["EXTEND_TIMEOUT_USEC=25000000"], "to the end of its time, and no further"
    assert world.after(25_000) == []
    assert world.after(10_000, progress=1) == ["EXTEND_TIMEOUT_USEC=30000000"], "it got on"
    assert world.after(45_000) == []
    assert world.after(0, progress=0) == [], "going back is no progress"
    assert world.after(0, progress=1) == []


@given(st.lists(st.tuples(st.integers(0, 20_000), st.integers(0, 3))))
def test_a_start_is_extended_for_its_time_after_its_last_progress_at_most(story: list[tuple[int, int]]) -> None:
    world, most, progressed_ms = World(), -1, 0
    for ms, progress in story:
        lines = world.after(ms, progress=progress)
        if progress > most:
            most, progressed_ms = progress, world.now_ms
        for line in lines:
            if line.startswith("EXTEND"):
                assert world.now_ms + int(line.partition("=")[2]) / 1_000 <= progressed_ms + BOUNDS.start_stall_ms


def test_a_stop_is_extended_to_its_bound() -> None:
    world = World(condition=READY)
    world.after(0)
    assert world.after(1_000, is_stopping=True, status="stopping") == [
        "STOPPING=1",
        "EXTEND_TIMEOUT_USEC=30000000",
        "STATUS=stopping",
    ]
    assert world.after(10_000) == ["EXTEND_TIMEOUT_USEC=25000000"]
    assert world.after(24_999) == ["EXTEND_TIMEOUT_USEC=1000"]
    assert world.after(10_000) == []


def test_who_stops_before_it_has_started_is_never_ready() -> None:
    world = World()
    world.after(0)
    assert world.after(0, is_stopping=True, has_started=True)[0] == "STOPPING=1"
    assert world.after(1_000) == []


def test_a_reload_is_over_when_the_program_says_so() -> None:
    world = World(condition=READY)
    world.after(0)
    assert world.notices.reload_begins(77) == ["RELOADING=1\nMONOTONIC_USEC=77"]
    assert world.after(1, is_reloading=True) == []
    assert world.after(1, is_reloading=False) == ["READY=1"]
    assert world.after(1) == []


def test_a_reload_during_the_start_makes_nobody_ready() -> None:
    world = World()
    world.after(0)
    assert world.notices.reload_begins(77) == []
    assert world.after(1, is_reloading=False) == []


def test_a_reload_during_the_stop_is_none() -> None:
    world = World(condition=READY)
    world.after(0)
    world.notices.reload_begins(77)
    assert "READY=1" not in world.after(1, is_stopping=True)
    assert world.notices.reload_begins(78) == []


def test_the_watchdog_hears_of_turns_twice_in_its_time_and_of_nothing_else() -> None:
    bounds = BOUNDS._replace(watchdog_ms=4_000)
    assert bounds.look_interval_ms == 1_000
    world = World(bounds, READY)
    assert world.after(0, turns=1) == ["READY=1", "STATUS=ready", "WATCHDOG=1"]
    assert [world.after(1_000, turns=turns) for turns in (2, 3, 4, 5)] == [[], ["WATCHDOG=1"], [], ["WATCHDOG=1"]]
    assert [world.after(1_000) for _ in range(10)] == [[]] * 10, "its loop turns, and what it is there for does not"
    assert world.after(1_000, turns=6) == ["WATCHDOG=1"]


@pytest.mark.parametrize(("watchdog_ms", "interval_ms"), [(None, 1_000), (60_000, 1_000), (1_000, 250), (1, 1)])
def test_looks_come_often_enough_for_the_watchdog(watchdog_ms: int | None, interval_ms: int) -> None:
    assert BOUNDS._replace(watchdog_ms=watchdog_ms).look_interval_ms == interval_ms


def test_a_status_is_one_line_of_a_bounded_length() -> None:
    world = World(condition=READY)
    world.after(0)
    assert world.after(0, status="two\nlines\tREADY=1\n") == ["STATUS=two lines READY=1"]
    [line] = world.after(0, status="x" * 1_000)
    assert line == f"STATUS={'x' * 299}…"
    assert world.after(0, status="x" * 2_000) == [], "it looks as before"
