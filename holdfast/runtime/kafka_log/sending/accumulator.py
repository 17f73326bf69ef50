"""The record accumulator: for each partition a queue of records, and the batches made of them.

Within a partition one batch is in flight at a time and the next records wait meanwhile, so they are appended in order whatever is retried.
"""

import asyncio
from collections import defaultdict
from dataclasses import dataclass
from typing import Final

from holdfast.runtime.errors import AppendRefused
from holdfast.runtime.kafka_log.record_batches import BATCH_HEAD_BYTES, RECORD_FIELDS_BYTES, Record, encode
from holdfast.runtime.kafka_log.sent_batches import SentBatch, SentBatches
from holdfast.runtime.metrics import RuntimeMetrics

#: What the topic's limit has to hold beside key and value of a record that is alone in its batch.
RECORD_OVERHEAD_BYTES: Final = BATCH_HEAD_BYTES + RECORD_FIELDS_BYTES

#: Taking the times of each batch would cost more than it is worth, where batches hold a record or two.
_BATCHES_PER_TIMING: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class AccumulatorConfig:
    """Bounds of what waits."""

    #: The topic's `max.message.bytes`.
    batch_bytes_max: int
    #: Kafka's number of a codec.
    state_topic_compression_codec: int
    #: Records handed over and not yet sent, in all partitions.
    producer_queue_records_max: int
    #: Their keys and values, with what a record takes beside them.
    producer_queue_bytes_max: int


class _PartitionQueue:
    """The records of one partition that are in no batch yet."""

    __slots__ = ("bytes", "first_record_s", "is_in_flight", "records")

    def __init__(self) -> None:
        self.records: list[Record] = []
        #: What they take.
        self.bytes = 0
        #: When the first of them came, by the loop's clock.
        self.first_record_s = 0.0
        #: A batch of this partition has no answer.
        self.is_in_flight = False


class RecordAccumulator:
    """The records of all partitions on their way into batches."""

    def __init__(self, config: AccumulatorConfig, sent: SentBatches, metrics: RuntimeMetrics) -> None:
        """Begin empty; `sent` keeps every batch that is made."""
        self._config = config
        self._sent = sent
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._queues: defaultdict[int, _PartitionQueue] = defaultdict(_PartitionQueue)
        #: Records that wait, in all partitions together.
        self.records = 0
        self._bytes = 0
        #: Partitions with records and no batch in flight.
        self.ready: set[int] = set()

    def append(self, partition: int, key: bytes, value: bytes | None, header: bytes) -> bool:
        """Take one record; returns whether it need not wait for a batch that is in flight.

        Raises:
            AppendRefused: it is too large; or too many wait, and this partition has no less than its part of them.
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
        """Refuse records of a partition beyond an equal part of a bound, so that a silent broker's partitions use up no other's.

        All of them together may so hold twice the bound, and a record more each.
        """
        config, partitions = self._config, len(self._queues)
        records, size = len(queue.records), queue.bytes
        records_max, bytes_max = config.producer_queue_records_max, config.producer_queue_bytes_max
        if self.records >= records_max and records * partitions >= records_max:
            text = f"{self.records} records wait to be sent already, {records} of them in this partition"
            raise AppendRefused(text, is_too_large=False)
        if self._bytes >= bytes_max and size * partitions >= bytes_max:
            text = f"records of {self._bytes} bytes wait to be sent already, {size} of them in this partition"
            raise AppendRefused(text, is_too_large=False)

    def count_records(self, partitions: list[int]) -> int:
        """Return how many records of these partitions wait."""
        records = 0
        for partition in partitions:
            records += len(self._queues[partition].records)
        return records

    def first_header(self, partition: int) -> bytes:
        """Return the header of the record that waits longest; there must be one."""
        return self._queues[partition].records[0][2]

    def forget(self, partition: int) -> None:
        """Drop what was not sent yet, because its owner is gone; what is in flight may still be appended."""
        self._sent.forget(partition)
        queue = self._queues.get(partition)
        if queue is not None:
            self.records -= len(queue.records)
            self._bytes -= queue.bytes
            queue.bytes = 0
            queue.records.clear()
            self.ready.discard(partition)

    def make_batch(self, partition: int, now_ms: int) -> SentBatch | None:
        """Put waiting records into a batch, as many as it holds, which is in flight from now on; None: there are none.

        Args:
            partition: whose records.
            now_ms: the time of the records.

        Raises:
            Exception: it cannot be built; the records are still there.
        """
        ready = self.ready
        ready.discard(partition)
        # A set keeps the room for what it held once, and all of that is walked through for the one that is left.
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
        """Take note that the batch of a partition is in flight no more, so that the next one may follow."""
        queue = self._queues[partition]
        queue.is_in_flight = False
        if queue.records:
            self.ready.add(partition)

    def _count(self, queue: _PartitionQueue, records: int) -> float | None:
        """Count a batch; returns when its first record came if it is one of those whose time is taken."""
        metrics = self._metrics
        first_record_s: float | None = None
        if metrics.batch_flush.value % _BATCHES_PER_TIMING == 0:
            first_record_s = queue.first_record_s
            metrics.batch_linger_time.record((self._loop.time() - first_record_s) * 1_000)
        metrics.batch_flush.value += 1
        metrics.records_appended.value += records
        return first_record_s
