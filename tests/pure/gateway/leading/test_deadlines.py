"""When locks end: one timer for all of them, and each is called when its own time has come."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from holdfast.gateway.leading.deadlines import Deadlines
from tests.virtual_loop import VirtualLoop

#: In seconds it is rounded down: a clock that shows it is below the deadline.
ROUNDED_MS = 4_035.353


class Lock:
    """Something with a deadline."""

    def __init__(self, next_deadline_ms: float | None) -> None:
        self.next_deadline_ms = next_deadline_ms
        self.ticks: list[float] = []

    def tick(self, now_ms: float) -> None:
        assert self.next_deadline_ms is not None
        assert self.next_deadline_ms <= now_ms
        self.ticks.append(round(now_ms))
        self.next_deadline_ms = None


class ExactLoop(VirtualLoop):
    """A loop whose clock stands on each timer exactly, and which counts its turns."""

    turns = 0

    def time(self) -> float:
        # The virtual clock goes a microsecond beyond each timer.
        return round(super().time() - 1e-6, 9)

    def _run_once(self) -> None:
        self.turns += 1
        super()._run_once()


@pytest.fixture
def loop() -> Iterator[ExactLoop]:
    loop = ExactLoop()
    yield loop
    loop.close()


def wait(loop: ExactLoop, seconds: float) -> None:
    loop.run_until_complete(asyncio.sleep(seconds))


async def make() -> Deadlines:
    return Deadlines()


def test_each_is_called_once_in_the_order_of_deadlines(loop: ExactLoop) -> None:
    deadlines = loop.run_until_complete(make())
    late, early, never = Lock(3_000), Lock(1_000), Lock(None)
    for each in (late, early, never):
        deadlines.look_at(each)
    wait(loop, 2)
    assert (late.ticks, early.ticks, never.ticks) == ([], [1_000], [])
    wait(loop, 2)
    assert (late.ticks, early.ticks, never.ticks) == ([3_000], [1_000], [])


def test_a_deadline_that_moved_later_is_kept(loop: ExactLoop) -> None:
    deadlines = loop.run_until_complete(make())
    lock = Lock(1_000)
    deadlines.look_at(lock)
    lock.next_deadline_ms = 5_000
    deadlines.look_at(lock)
    wait(loop, 4)
    assert lock.ticks == []
    wait(loop, 2)
    assert lock.ticks == [5_000]


def test_a_deadline_that_moved_earlier_is_kept(loop: ExactLoop) -> None:
    deadlines = loop.run_until_complete(make())
    lock = Lock(5_000)
    deadlines.look_at(lock)
    lock.next_deadline_ms = 1_000
    deadlines.look_at(lock)
    wait(loop, 2)
    assert lock.ticks == [1_000]
    wait(loop, 5)
    assert lock.ticks == [1_000]


def test_one_that_is_forgotten_is_not_called(loop: ExactLoop) -> None:
    deadlines = loop.run_until_complete(make())
    forgotten, kept = Lock(1_000), Lock(1_000)
    deadlines.look_at(forgotten)
    deadlines.look_at(kept)
    deadlines.forget(forgotten)
    wait(loop, 2)
    assert (forgotten.ticks, kept.ticks) == ([], [1_000])
    deadlines.look_at(Lock(9_000))
    deadlines.close()
    wait(loop, 10)


@pytest.mark.parametrize("deadline_ms", [ROUNDED_MS, 16_150.681, 16_158.406])
def test_a_deadline_that_seconds_round_down_costs_no_turn_more(deadline_ms: float) -> None:
    def count_turns(at_ms: float) -> int:
        loop = ExactLoop()
        deadlines = loop.run_until_complete(make())
        lock = Lock(at_ms)
        deadlines.look_at(lock)
        wait(loop, 20)
        assert len(lock.ticks) == 1
        loop.close()
        return loop.turns

    assert deadline_ms / 1_000 * 1_000 < deadline_ms
    assert count_turns(deadline_ms) == count_turns(4_000)


class BrokenLock(Lock):
    """Something whose call meets a bug the first time."""

    def tick(self, now_ms: float) -> None:
        if not self.ticks:
            self.ticks.append(-1)
            raise ZeroDivisionError
        super().tick(now_ms)


def test_bug_of_one_stops_no_other_and_it_is_called_again(loop: ExactLoop) -> None:
    bugs = list[object]()
    loop.set_exception_handler(lambda _, context: bugs.append(context["exception"]))
    deadlines = loop.run_until_complete(make())
    broken, others = BrokenLock(1_000.0), [Lock(1_000.0), Lock(1_500.0)]
    for each in (broken, *others):
        deadlines.look_at(each)
    wait(loop, 1.6)
    assert [each.ticks for each in others] == [[1_000], [1_500]]
    assert [type(each) for each in bugs] == [ZeroDivisionError]
    turns = loop.turns
    wait(loop, 1.0)
    assert broken.ticks == [-1, 2_000]
    assert loop.turns - turns < 20
