"""The Writes of one share partition: one on its way, and the others after it as one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from holdfast.delivery.share_partition.values import StateWrite, WriteValues
from holdfast.gateway.leading.writes import Done, Writes
from holdfast.records.share.batches import ACKNOWLEDGED, AVAILABLE, StateBatch


def make_write(*batches: tuple[int, int, int, int]) -> StateWrite:
    write = StateWrite(3, 7, "member", 5, is_of_locks=False)
    for batch in batches:
        write.add(*batch)
    return write


class Log:
    """Takes Writes, and answers when the test says so."""

    def __init__(self) -> None:
        self.sent: list[tuple[StateBatch, ...]] = []
        self._done: list[Done] = []
        #: Writes that were joined and have no outcome.
        self.under_way = 0

    def join(self, writes: Sequence[StateWrite]) -> WriteValues:
        assert not self.under_way, "a Write is made when none is under way"
        self.under_way = len(writes)
        return WriteValues(3, 7, 0, 0, tuple(batch for write in writes for batch in write.batches))

    def send(self, write: WriteValues, done: Done) -> None:
        self.sent.append(write.state_batches)
        self._done.append(done)

    def answer(self, error_code: int = 0) -> None:
        self._done.pop(0)(error_code)


def test_writes_that_come_meanwhile_go_as_one_after_the_first() -> None:
    log, outcomes = Log(), list[tuple[str, int]]()
    writes = Writes(log.join, log.send)

    def add(name: str, *batches: tuple[int, int, int, int]) -> None:
        def done(code: int) -> None:
            log.under_way -= 1
            outcomes.append((name, code))

        writes.add(make_write(*batches), done)

    add("a", (0, 9, ACKNOWLEDGED, 1))
    add("b", (20, 29, ACKNOWLEDGED, 1))
    add("c", (30, 30, AVAILABLE, 2))
    assert log.sent == [(StateBatch(0, 9, ACKNOWLEDGED, 1),)]
    log.answer()
    assert outcomes == [("a", 0)]
    assert log.sent[1:] == [(StateBatch(20, 29, ACKNOWLEDGED, 1), StateBatch(30, 30, AVAILABLE, 2))]
    assert not writes.are_done
    log.answer(16)
    assert outcomes[1:] == [("b", 16), ("c", 16)]
    assert writes.are_done


def test_write_that_an_outcome_adds_goes_when_all_outcomes_are_told() -> None:
    log = Log()
    writes = Writes(log.join, log.send)

    def end() -> None:
        log.under_way -= 1

    def add_another(_: int) -> None:
        end()
        writes.add(make_write((5, 5, ACKNOWLEDGED, 1)), lambda _: end())

    writes.add(make_write(), lambda _: end())
    writes.add(make_write(), add_another)
    writes.add(make_write(), lambda _: end())
    log.answer()
    log.answer()
    assert log.sent == [(), (), (StateBatch(5, 5, ACKNOWLEDGED, 1),)]
    log.answer()
    assert writes.are_done


async def test_bug_of_one_outcome_keeps_no_other_and_no_later_write() -> None:
    log, told, bugs = Log(), list[int](), list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: bugs.append(context["exception"]))
    writes = Writes(log.join, log.send)

    def fail(error_code: int) -> None:
        log.under_way = 0
        raise ZeroDivisionError

    writes.add(make_write((0, 0, ACKNOWLEDGED, 1)), fail)
    writes.add(make_write((1, 1, ACKNOWLEDGED, 1)), told.append)
    log.answer()
    log.answer()
    assert (told, writes.are_done, [type(bug) for bug in bugs]) == ([0], True, [ZeroDivisionError])
