"""A single look at a record."""

from __future__ import annotations

from holdfast.kafka.records.batches import iter_batches
from holdfast.kafka.records.partition_reader import PartitionReader
from holdfast.page.reading import _first_record
from tests.pure.page.samples import KEY, Log, batch_of, snapshot
from tests.waiting import in_patience


class Owner:
    """Fetches nothing; the test puts what comes."""

    def settle(self, reader: PartitionReader) -> None:
        """Do nothing."""

    def drop(self, reader: PartitionReader) -> None:
        """Do nothing."""


async def test_an_answer_that_ends_below_the_record_does_not_say_that_it_is_gone() -> None:
    log, reader = Log(), PartitionReader(Owner(), "orders", 0, 1)
    for _ in range(2):
        log.put(KEY, snapshot(0))
    for record in log.records:
        reader.put(tuple(iter_batches(memoryview(batch_of(record)), 0)), ())
    assert await in_patience(_first_record(reader, 1)) == log.records[1]
