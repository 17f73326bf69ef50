"""The Writes of one share partition: one on its way, and the others after it as one."""

from __future__ import annotations

from holdfast.delivery.share_partition.values import StateWrite
from holdfast.gateway.writes import Done, Gathered, Writes, join
from holdfast.records.share.batches import ACKNOWLEDGED, AVAILABLE, StateBatch


def make_write(start: int, complete: int, *batches: tuple[int, int, int, int]) -> StateWrite:
    write = StateWrite(3, 7, "member", 5, is_of_locks=False)
    for batch in batches:
        write.add(*batch)
    write.start_offset, write.delivery_complete_count = start, complete
    return write


class Log:
    """Takes Writes, and answers when the test says so."""

    def __init__(self) -> None:
        self.sent: list[Gathered] = []
        self._done: list[Done] = []

    def send(self, write: Gathered, done: Done) -> None:
        self.sent.append(write)
        self._done.append(done)

    def answer(self, error_code: int = 0) -> None:
        self._done.pop(0)(error_code)


def test_writes_that_come_meanwhile_go_as_one_after_the_first() -> None:
    log, outcomes = Log(), list[tuple[str, int]]()
    writes = Writes(log.send)
    writes.add(make_write(10, 0, (0, 9, ACKNOWLEDGED, 1)), lambda code: outcomes.append(("a", code)))
    writes.add(make_write(0, 20, (20, 29, ACKNOWLEDGED, 1)), lambda code: outcomes.append(("b", code)))
    writes.add(make_write(10, 11, (30, 30, AVAILABLE, 2)), lambda code: outcomes.append(("c", code)))
    assert [each.batches for each in log.sent] == [(StateBatch(0, 9, ACKNOWLEDGED, 1),)]
    log.answer()
    assert outcomes == [("a", 0)]
    assert log.sent[1:] == [
        Gathered(3, 7, 10, 11, (StateBatch(20, 29, ACKNOWLEDGED, 1), StateBatch(30, 30, AVAILABLE, 2)))
    ]
    assert not writes.are_done
    log.answer(16)
    assert outcomes[1:] == [("b", 16), ("c", 16)]
    assert writes.are_done


def test_highest_start_offset_counts_and_nothing_below_it_is_complete() -> None:
    log = Log()
    writes = Writes(log.send)
    writes.add(make_write(0, 0), lambda _: None)
    writes.add(make_write(10, 0, (0, 9, ACKNOWLEDGED, 1)), lambda _: None)
    writes.add(make_write(0, 20, (20, 29, ACKNOWLEDGED, 1)), lambda _: None)
    log.answer()
    assert (log.sent[1].start_offset, log.sent[1].delivery_complete_count) == (10, 10)


def test_write_that_an_outcome_adds_goes_at_once() -> None:
    log = Log()
    writes = Writes(log.send)
    writes.add(make_write(0, 0), lambda _: writes.add(make_write(1, 0), lambda _: None))
    log.answer()
    assert [each.start_offset for each in log.sent] == [0, 1]
    log.answer()
    assert writes.are_done


def test_only_equal_neighbours_are_joined() -> None:
    a, b = StateBatch(0, 0, ACKNOWLEDGED, 1), StateBatch(1, 1, ACKNOWLEDGED, 1)
    c, d = StateBatch(3, 3, ACKNOWLEDGED, 1), StateBatch(4, 4, ACKNOWLEDGED, 2)
    assert join([a, b, c, d]) == [StateBatch(0, 1, ACKNOWLEDGED, 1), c, d]
