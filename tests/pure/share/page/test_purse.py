"""The part of the loop's time that readers may take: it is saved, paid and waited for."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.share.page.purse import ACCOUNTS_MAX, PART, SAVED_MAX_S, Purse


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
    account = clock.purse().account("User:a")
    assert not account.is_empty
    account.pay(SAVED_MAX_S + 1)
    assert account.is_empty
    clock.now_s = 0.9 / PART
    assert account.is_empty
    clock.now_s = 1.1 / PART
    assert not account.is_empty


def test_no_more_is_saved_than_a_bound_however_long_nobody_looks() -> None:
    clock = Clock()
    account = clock.purse().account("User:a")
    clock.now_s = 1e6
    account.pay(SAVED_MAX_S + 0.1)
    assert account.is_empty


def test_a_greedy_principal_takes_nothing_from_another_one() -> None:
    clock = Clock()
    purse = clock.purse()
    greedy, modest = purse.account("User:greedy"), purse.account("User:modest")
    greedy.pay(3_600)
    assert not modest.is_empty
    modest.pay(SAVED_MAX_S / 2 + 1)
    assert modest.is_empty
    # Each has half of what comes.
    clock.now_s = 1.9 / PART
    assert modest.is_empty
    clock.now_s = 2.1 / PART
    assert (modest.is_empty, greedy.is_empty) == (False, True)


def test_principals_of_any_number_spend_no_more_than_the_part() -> None:
    clock = Clock()
    purse, spent_s = clock.purse(), 0.0
    for number in range(10_000):
        clock.now_s += 1
        account = purse.account(f"User:{number % 100}")
        if not account.is_empty:
            account.pay(0.1)
            spent_s += 0.1
    assert len(purse._left_s) <= ACCOUNTS_MAX + 1
    assert spent_s < PART * clock.now_s + 5 * SAVED_MAX_S


def test_work_for_all_readers_is_paid_before_they_get_anything() -> None:
    clock = Clock()
    purse = clock.purse()
    account = purse.account("User:a")
    account.pay(SAVED_MAX_S + 1)
    purse.pay(2)
    assert purse.is_empty
    clock.now_s = 2.5 / PART
    assert (purse.is_empty, account.is_empty) == (False, True)
    clock.now_s = 3.1 / PART
    assert not account.is_empty


async def test_each_turn_of_a_work_is_paid_and_waits_cost_nothing() -> None:
    clock = Clock()
    account = clock.purse().account("User:a")

    async def work() -> str:
        clock.work(0.1)
        await asyncio.sleep(0)
        clock.work(0.2)
        return "done"

    async def other() -> None:
        clock.work(10)

    timed = account.timed(work())
    found, _ = await asyncio.gather(_await(timed), other())
    assert found == "done"
    assert timed.paid_s == pytest.approx(0.3)
    assert not account.is_empty
    account.pay(SAVED_MAX_S - 0.2)
    assert account.is_empty


async def test_a_work_that_fails_or_is_cancelled_is_paid_and_ends_so() -> None:
    clock = Clock()
    account = clock.purse().account("User:a")
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

    failing = account.timed(fail())
    with pytest.raises(ValueError, match="it failed"):
        await failing
    assert failing.paid_s == pytest.approx(0.1)
    task = asyncio.ensure_future(_await(account.timed(go_on())))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended


async def _await(work: object) -> object:
    return await work  # type: ignore[misc]
