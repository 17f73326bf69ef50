"""Timers run when due, earliest first, once, and never after cancel or replacement."""

from collections.abc import Callable

import pytest

from holdfast.runtime.timers import Timers


@pytest.fixture
def timers() -> Timers:
    return Timers()


@pytest.fixture
def rung() -> list[tuple[str, int]]:
    return []


@pytest.fixture
def ring(rung: list[tuple[str, int]]) -> Callable[[str], Callable[[int], None]]:
    return lambda name: lambda now_ms: rung.append((name, now_ms))


Ring = Callable[[str], Callable[[int], None]]
Rung = list[tuple[str, int]]


def test_earliest_first_each_once(timers: Timers, ring: Ring, rung: Rung) -> None:
    timers.schedule("late", 20, ring("late"))
    timers.schedule("early", 10, ring("early"))
    timers.schedule("later", 21, ring("later"))
    timers.tick(9)
    assert rung == []
    timers.tick(20)
    timers.tick(20)
    assert rung == [("early", 20), ("late", 20)]
    assert timers.is_scheduled("later")
    assert not timers.is_scheduled("early")


def test_replaced_timer_never_runs(timers: Timers, ring: Ring, rung: Rung) -> None:
    timers.schedule("x", 10, ring("first"))
    timers.schedule("x", 30, ring("second"))
    timers.tick(10)
    assert rung == []
    timers.tick(30)
    assert rung == [("second", 30)]


@pytest.mark.parametrize("end", [lambda timers: timers.cancel("x"), Timers.cancel_all])
def test_cancelled_timer_never_runs(timers: Timers, ring: Ring, rung: Rung, end: Callable[[Timers], None]) -> None:
    timers.schedule("x", 10, ring("x"))
    end(timers)
    timers.cancel("unknown")
    timers.tick(10)
    assert rung == []
    assert not timers.is_scheduled("x")


def test_task_may_cancel_or_replace_what_is_due_with_it(timers: Timers, ring: Ring, rung: Rung) -> None:
    def first(now_ms: int) -> None:
        rung.append(("first", now_ms))
        timers.cancel("b")
        timers.schedule("c", 50, ring("c replaced"))

    timers.schedule("a", 10, first)
    timers.schedule("b", 11, ring("b"))
    timers.schedule("c", 12, ring("c"))
    timers.tick(20)
    assert rung == [("first", 20)]
    timers.tick(50)
    assert rung == [("first", 20), ("c replaced", 50)]


def test_task_may_schedule_itself_again(timers: Timers, rung: Rung) -> None:
    def again(now_ms: int) -> None:
        rung.append(("again", now_ms))
        timers.schedule("again", now_ms + 10, again)

    timers.schedule("again", 10, again)
    for now_ms in (10, 15, 20, 40):
        timers.tick(now_ms)
    assert rung == [("again", 10), ("again", 20), ("again", 40)]
