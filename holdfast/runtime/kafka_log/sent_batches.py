"""The batches that this node sent and has not read back; no other module owns these queues.

The accumulator adds a batch when it makes it; the fetchers remove it when they read it from the log.
"""

from collections import defaultdict, deque
from typing import final

from holdfast.runtime.log_protocol import LogRecord


@final
class SentBatch:
    """A batch as it should come back from the log, for a comparison byte by byte."""

    __slots__ = ("data", "first_header", "first_record_s", "last_header", "record_count")

    def __init__(
        self, data: bytes, record_count: int, first_header: bytes, last_header: bytes, first_record_s: float | None
    ) -> None:
        """Keep the whole batch."""
        self.data = data
        self.record_count = record_count
        self.first_header = first_header
        self.last_header = last_header
        #: Hand-over of its first record, by the loop's clock; None: the batch is not timed.
        self.first_record_s = first_record_s


class SentBatches:
    """The batches of all partitions, oldest first in each."""

    def __init__(self) -> None:
        self._by_partition: defaultdict[int, deque[SentBatch]] = defaultdict(deque)

    def add(self, partition: int, batch: SentBatch) -> None:
        """Add a batch that is sent now, after all others of its partition."""
        self._by_partition[partition].append(batch)

    def oldest(self, partition: int) -> SentBatch | None:
        """Return the batch that should be read back next; None: there is none."""
        waiting = self._by_partition.get(partition)
        return waiting[0] if waiting else None

    def holds(self, partition: int, batch: SentBatch) -> bool:
        """Tell whether this batch object has not been read back."""
        return any(sent is batch for sent in self._by_partition.get(partition, ()))

    def is_read_back(self, partition: int, batch: SentBatch) -> bool:
        """Tell whether this batch was read back; False also if its owner is gone, because then all its batches are forgotten."""
        return partition in self._by_partition and not self.holds(partition, batch)

    def remove(self, partition: int, batch: SentBatch) -> None:
        """Drop a batch that was read back; does nothing if it is not the oldest, because its owner gave the partition up."""
        waiting = self._by_partition.get(partition)
        if waiting and waiting[0] is batch:
            waiting.popleft()

    def remove_read(self, partition: int, records: list[LogRecord]) -> None:
        """Drop batches that were read record by record, because the broker compressed them again."""
        waiting = self._by_partition.get(partition)
        headers = {record.header for record in records} if waiting else ()
        while waiting and waiting[0].first_header in headers:
            waiting.popleft()

    def forget(self, partition: int) -> None:
        """Drop all batches of a partition, because its owner is gone; they may still be appended."""
        self._by_partition.pop(partition, None)
