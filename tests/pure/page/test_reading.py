"""A single look at a record."""

from __future__ import annotations

import pytest

from holdfast.kafka.records.batches import iter_batches
from holdfast.kafka.records.partition_reader import OffsetOutOfRange, PartitionReader
from holdfast.page import reading
from holdfast.page.moment_page import _unknown
from holdfast.page.reading import TimelineRead, Wanted, _first_record, _read_timeline
from tests.pure.page.samples import KEY, Log, available, batch_of, snapshot
from tests.waiting import in_patience


class Owner:
    """Fetches nothing; the test puts what comes."""

    def settle(self, reader: PartitionReader) -> None:
        """Do nothing."""

    def drop(self, reader: PartitionReader) -> None:
        """Do nothing."""


async def no_rest() -> None:
    """Go on."""


async def test_an_answer_that_ends_below_the_record_does_not_say_that_it_is_gone() -> None:
    log, reader = Log(), PartitionReader(Owner(), "orders", 0, 1)
    for _ in range(2):
        log.put(KEY, snapshot(0))
    for record in log.records:
        reader.put(tuple(iter_batches(memoryview(batch_of(record)), 0)), ())
    assert await in_patience(_first_record(reader, 1, no_rest)) == log.records[1]


async def test_others_have_their_turn_between_batches_of_one_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_SLICE_S", -1)
    log, reader, rests = Log(), PartitionReader(Owner(), "states", 0, 0), 0

    async def rest() -> None:
        nonlocal rests
        rests += 1

    for count in range(1, 11):
        log.put(KEY, snapshot(0, available(0, count)))
    read = TimelineRead(Wanted("states", bytes(16), 0, KEY, 0), None)
    for record in log.records:
        reader.put(tuple(iter_batches(memoryview(batch_of(record)), 0)), ())
    await in_patience(_read_timeline(reader, 10, read, rest))
    assert (rests, len(read.told().changes)) == (10, 10)


async def test_others_have_their_turn_before_a_record_at_the_end_of_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_SLICE_S", -1)
    log, reader, rests = Log(), PartitionReader(Owner(), "orders", 0, 9), 0

    async def rest() -> None:
        nonlocal rests
        rests += 1

    for _ in range(10):
        log.put(KEY, snapshot(0))
    reader.put(tuple(iter_batches(memoryview(batch_of(*log.records)), 0)), ())
    found = await in_patience(_first_record(reader, 9, rest))
    assert (rests, found) == (9, log.records[9])


async def test_an_empty_timeline_of_a_log_that_was_pruned_meanwhile_says_why() -> None:
    reader, read = PartitionReader(Owner(), "states", 0, 0), TimelineRead(Wanted("states", bytes(16), 0, KEY, 0), None)
    reader.fail(OffsetOutOfRange(0, 12, 13))
    await in_patience(_read_timeline(reader, 10, read, no_rest))
    assert read.told().changes == ()
    assert "The log begins at offset 12: what happened before that was pruned" in _unknown(read, read.told(), "--x")[0]
