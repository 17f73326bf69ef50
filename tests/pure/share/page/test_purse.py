"""The part of the loop's time that readers may take: it is saved, paid and waited for."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.share.page.purse import PART, SAVED_MAX_S, Purse


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0
        self.used_s = 0.0

    def purse(self) -> Purse:
        return Purse(lambda: self.now_s, lambda: self.used_s)

    def work(self, seconds: float) -> None:
        self.used_s += seconds


def test_a_debt_is_paid_by_a_small_part_of_the_time() -> None:
    clock = Clock()
    purse = clock.purse()
    assert not purse.is_empty
    purse.pay(SAVED_MAX_S + 1)
    assert purse.is_empty
    clock.now_s = 0.9 / PART
    assert purse.is_empty
    clock.now_s = 1.1 / PART
    assert not purse.is_empty


def test_no_more_is_saved_than_a_bound_however_long_nobody_looks() -> None:
    clock = Clock()
    purse = clock.purse()
    clock.now_s = 1e6
    purse.pay(SAVED_MAX_S + 0.1)
    assert purse.is_empty


async def test_each_turn_of_a_work_is_paid_and_waits_cost_nothing() -> None:
    clock = Clock()
    purse = clock.purse()

    async def work() -> str:
        clock.work(0.1)
        await asyncio.sleep(0)
        clock.work(0.2)
        return "done"

    async def other() -> None:
        clock.work(10)

    timed = purse.timed(work())
    found, _ = await asyncio.gather(_await(timed), other())
    assert found == "done"
    assert timed.paid_s == pytest.approx(0.3)
    assert not purse.is_empty
    purse.pay(SAVED_MAX_S - 0.2)
    assert purse.is_empty


async def test_a_work_that_fails_or_is_cancelled_is_paid_and_ends_so() -> None:
    clock = Clock()
    purse = clock.purse()
    ended = False

    async def fail() -> None:
        clock.work(0.1)
        raise ValueError("it failed")

    async def go_on() -> None:
        nonlocal ended
        try:
            clock.work(0.1)
            await asyncio.sleep(60)
        finally:
            ended = True

    failing = purse.timed(fail())
    with pytest.raises(ValueError, match="it failed"):
        await failing
    assert failing.paid_s == pytest.approx(0.1)
    task = asyncio.ensure_future(_await(purse.timed(go_on())))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended


async def _await(work: object) -> object:
    return await work  # type: ignore[misc]
