"""The record accumulator: for each partition a queue of records, and the batches made of them.

A partition has one batch in flight at a time, and the next records wait meanwhile, so retries keep the order of records.
"""

import asyncio
from collections import defaultdict
from dataclasses import dataclass
from typing import Final

from holdfast.runtime.errors import AppendRefused
from holdfast.runtime.kafka_log.record_batches import BATCH_HEAD_BYTES, RECORD_FIELDS_BYTES, Record, encode
from holdfast.runtime.kafka_log.sent_batches import SentBatch, SentBatches
from holdfast.runtime.metrics import RuntimeMetrics

#: Bytes that count against the topic's limit in addition to key and value, for a record that is alone in its batch.
RECORD_OVERHEAD_BYTES: Final = BATCH_HEAD_BYTES + RECORD_FIELDS_BYTES

#: One batch in this number is timed; to time each would cost more than it is worth, because many batches hold one or two records.
_BATCHES_PER_TIMING: Final = 8


def is_beyond_part(held: int, own: int, partitions: int, bound: int) -> bool:
    """Tell whether all partitions hold a bound together, and one of them has at least an equal part of it."""
    return held >= bound and own * partitions >= bound


@dataclass(frozen=True, slots=True, kw_only=True)
class AccumulatorConfig:
    """Bounds of the accumulator."""

    #: The topic's `max.message.bytes`.
    batch_bytes_max: int
    #: Kafka's number of the codec.
    state_topic_compression_codec: int
    #: Records handed over and not yet sent, in all partitions.
    producer_queue_records_max: int
    #: Bytes of these records, each with `RECORD_OVERHEAD_BYTES`.
    producer_queue_bytes_max: int


class _PartitionQueue:
    """The records of one partition that are in no batch yet."""

    __slots__ = ("bytes", "first_record_s", "is_in_flight", "records")

    def __init__(self) -> None:
        self.records: list[Record] = []
        #: Bytes of these records, each with `RECORD_OVERHEAD_BYTES`.
        self.bytes = 0
        #: Arrival of the first of them, by the loop's clock.
        self.first_record_s = 0.0
        #: A batch of this partition has no answer yet.
        self.is_in_flight = False


class RecordAccumulator:
    """The records of all partitions on their way into batches."""

    def __init__(self, config: AccumulatorConfig, sent: SentBatches, metrics: RuntimeMetrics) -> None:
        """Add every batch that is made to `sent`."""
        self._config = config
        self._sent = sent
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._queues: defaultdict[int, _PartitionQueue] = defaultdict(_PartitionQueue)
        #: Number of records that wait, in all partitions.
        self.records = 0
        self._bytes = 0
        #: Partitions with records and no batch in flight.
        self.ready: set[int] = set()

    def append(self, partition: int, key: bytes, value: bytes | None, header: bytes) -> bool:
        """Add one record; returns whether it can be sent without waiting for a batch in flight.

        Raises:
            AppendRefused: it is too large; or too many records wait, and this partition has at least its share of them.
        """
        config = self._config
        size = len(key) + (len(value) if value is not None else 0) + RECORD_OVERHEAD_BYTES
        if size > config.batch_bytes_max:
            raise AppendRefused(
                f"it takes {size} bytes, and max.message.bytes is {config.batch_bytes_max}", is_too_large=True
            )
        queue = self._queues[partition]
        if self.records >= config.producer_queue_records_max or self._bytes >= config.producer_queue_bytes_max:
            self._refuse_beyond_part(queue)
        if not queue.records:
            queue.first_record_s = self._loop.time()
        queue.records.append((key, value, header))
        queue.bytes += size
        self._bytes += size
        self.records += 1
        if queue.is_in_flight:
            return False
        self.ready.add(partition)
        return True

    def _refuse_beyond_part(self, queue: _PartitionQueue) -> None:
        """Refuse records of a partition above an equal share of a bound, so that partitions of a silent broker do not use up the bound.

        All partitions together may therefore hold twice the bound, plus one record each.
        """
        config, partitions = self._config, len(self._queues)
        records, size = len(queue.records), queue.bytes
        records_max, bytes_max = config.producer_queue_records_max, config.producer_queue_bytes_max
        if is_beyond_part(self.records, records, partitions, records_max):
            text = f"{self.records} records wait to be sent already, {records} of them in this partition"
            raise AppendRefused(text, is_too_large=False)
        if is_beyond_part(self._bytes, size, partitions, bytes_max):
            text = f"records of {self._bytes} bytes wait to be sent already, {size} of them in this partition"
            raise AppendRefused(text, is_too_large=False)

    def count_records(self, partitions: list[int]) -> int:
        """Return the number of records that wait in these partitions."""
        records = 0
        for partition in partitions:
            records += len(self._queues[partition].records)
        return records

    def first_header(self, partition: int) -> bytes:
        """Return the header of the oldest record; there must be one."""
        return self._queues[partition].records[0][2]

    def forget(self, partition: int) -> None:
        """Drop the records that were not sent yet, because their owner is gone; a batch in flight may still be appended."""
        self._sent.forget(partition)
        queue = self._queues.get(partition)
        if queue is not None:
            self.records -= len(queue.records)
            self._bytes -= queue.bytes
            queue.bytes = 0
            queue.records.clear()
            self.ready.discard(partition)

    def make_batch(self, partition: int, now_ms: int) -> SentBatch | None:
        """Make a batch of as many waiting records as it holds, which is in flight from now on; None: no record can be sent.

        Args:
            partition: the partition of the records.
            now_ms: the time of the records.

        Raises:
            Exception: the batch cannot be built; the records are still there.
        """
        ready = self.ready
        ready.discard(partition)
        # A set keeps its memory when elements are removed, and iteration walks through all of it.
        if not ready:
            self.ready = set()
        queue = self._queues[partition]
        if queue.is_in_flight or not queue.records:
            return None
        config, records = self._config, queue.records
        data, count, size = encode(records, now_ms, config.state_topic_compression_codec, config.batch_bytes_max)
        first_header, last_header = records[0][2], records[count - 1][2]
        if count == len(records):
            queue.records = []
        else:
            del records[:count]
        size += count * RECORD_OVERHEAD_BYTES
        self.records -= count
        self._bytes -= size
        queue.bytes -= size
        first_record_s = self._count(queue, count)
        batch = SentBatch(data, count, first_header, last_header, first_record_s)
        self._sent.add(partition, batch)
        queue.is_in_flight = True
        return batch

    def end_batch(self, partition: int) -> None:
        """Handle the end of the batch in flight of a partition; the next one may follow."""
        queue = self._queues[partition]
        queue.is_in_flight = False
        if queue.records:
            self.ready.add(partition)

    def _count(self, queue: _PartitionQueue, records: int) -> float | None:
        """Count a batch; returns the arrival of its first record if this batch is timed."""
        metrics = self._metrics
        first_record_s: float | None = None
        if metrics.batch_flush.value % _BATCHES_PER_TIMING == 0:
            first_record_s = queue.first_record_s
            metrics.batch_linger_time.record((self._loop.time() - first_record_s) * 1_000)
        metrics.batch_flush.value += 1
        metrics.records_appended.value += records
        return first_record_s
