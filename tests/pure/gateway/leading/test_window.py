"""The records at hand: what is given up for want of room comes again, and nothing is skipped."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.gateway.leading.window import RecordWindow
from holdfast.kafka.records.batches import Batch
from holdfast.kafka.records.partition_reader import LogTruncated, PartitionReader

END = 60


def make_batches(first: int) -> tuple[Batch, ...]:
    """Return the batches of an answer to a fetch from an offset on: each has three offsets."""
    starts = range(first - first % 3, END, 3)
    return tuple(Batch(at, at + 2, 0, 0, -1, -1, 3, memoryview(bytes(10))) for at in starts)[:4]


class Log:
    """A log that is fetched when the test says so (`partition_reader.ReadingOwner`)."""

    def __init__(self) -> None:
        self.readers: list[PartitionReader] = []

    def open(self, offset: int, last_epoch: int) -> PartitionReader:
        self.readers.append(PartitionReader(self, bytes(16), 0, offset, last_epoch))
        return self.readers[-1]

    def fetch(self) -> None:
        """Answer all that want something."""
        for reader in self.readers:
            if not reader.is_resting and reader.position < END:
                reader.put(make_batches(reader.position), ())

    def rest(self) -> None:
        """Have all that nobody waits for give up what they have."""
        for reader in self.readers:
            if not reader.is_awaited:
                reader.rest()

    def settle(self, reader: PartitionReader) -> None:
        """Have one that somebody waits for fetched again; the test fetches."""
        if reader.is_awaited:
            reader.is_resting = False

    def drop(self, reader: PartitionReader) -> None:
        """Fetch for it no more."""
        self.readers.remove(reader)


class Wanted:
    """Whether somebody waits, and who is told."""

    is_waiting = True
    calls = 0

    def on_more(self) -> None:
        self.calls += 1


def make_window() -> tuple[RecordWindow, Log, Wanted]:
    log, wanted = Log(), Wanted()
    return RecordWindow(log.open, wanted.on_more, lambda: wanted.is_waiting), log, wanted


@given(st.lists(st.sampled_from(("fetch", "rest", "read", "again")), max_size=60))
def test_all_is_read_in_order_whenever_it_is_given_up(steps: list[str]) -> None:
    window, log, wanted = make_window()
    offset, ends = 0, [0]
    actions: dict[str, Callable[[], None]] = {"fetch": log.fetch, "rest": log.rest}
    for step in [*steps, *["read", "fetch"] * 2 * END]:
        if step in actions:
            actions[step]()
            continue
        # Sometimes records that were released are read again.
        at = ends[len(ends) // 2] if step == "again" else offset
        wanted.is_waiting = True
        found = window.read(at, 5, 1 << 20).batches
        wanted.is_waiting = False
        if found:
            assert found[0].base_offset <= at <= found[0].last_offset
            assert all(after.base_offset == before.last_offset + 1 for before, after in pairwise(found))
            if step == "read":
                offset = found[-1].last_offset + 1
                ends.append(offset)
            if offset == END:
                break
    assert offset == END


def test_one_that_nobody_waits_for_any_more_gives_up_its_records() -> None:
    window, log, wanted = make_window()
    assert not window.read(0, 5, 1 << 20).batches
    [reader] = log.readers
    assert reader.is_awaited
    wanted.is_waiting = False
    assert not reader.is_awaited, "its fetch was answered with records of others"
    log.fetch()
    assert wanted.calls == 1
    log.rest()
    assert (reader.position, reader.ahead_bytes) == (0, 0)


def test_records_taken_and_not_given_are_read_again() -> None:
    window, log, wanted = make_window()
    window.read(0, 5, 1 << 20)
    log.fetch()
    assert [each.base_offset for each in window.read(0, 5, 1 << 20).batches] == [0, 3]
    wanted.is_waiting = False
    log.rest()
    assert log.readers[0].position == 0
    wanted.is_waiting = True
    assert not window.read(6, 5, 1 << 20).batches
    log.fetch()
    assert [each.base_offset for each in window.read(6, 5, 1 << 20).batches] == [6, 9]


@pytest.mark.parametrize("is_ahead", [False, True], ids=["read again", "read ahead"])
def test_records_that_nobody_wants_are_not_read_before_those_wanted(is_ahead: bool) -> None:
    window, log, _ = make_window()
    if not is_ahead:
        # All is read ahead, then two records are released that lie far from each other.
        window.seek(45)
        window.read(45, 5, 1 << 20)
    assert not window.read(0, 3, 1 << 20).batches
    log.fetch()
    assert [each.base_offset for each in window.read(0, 3, 1 << 20).batches] == [0]
    reader = log.readers[-1]
    assert reader.position == 12
    assert not window.read(30, 3, 1 << 20).batches
    assert reader not in log.readers, "it would read the records from 12 to 29 first"
    log.fetch()
    assert [each.base_offset for each in window.read(30, 3, 1 << 20).batches] == [30]


def test_records_at_hand_are_not_read_a_second_time() -> None:
    window, log, _ = make_window()
    window.read(0, 3, 1 << 20)
    log.fetch()
    readers = [*log.readers]
    assert [each.base_offset for each in window.read(9, 3, 1 << 20).batches] == [9]
    assert not window.read(12, 3, 1 << 20).batches
    assert log.readers == readers


def test_failure_of_a_reader_is_told_though_it_lies_below() -> None:
    window, log, _ = make_window()
    window.read(0, 3, 1 << 20)
    log.readers[0].fail(LogTruncated(0, 0))
    with pytest.raises(LogTruncated):
        window.read(30, 3, 1 << 20)
