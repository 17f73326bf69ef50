"""What each partition has to say to its log: records that gather, and the batches made of them.

Within a partition, one batch is under way at a time and the next one gathers meanwhile, so records land in order whatever is retried.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from holdfast.kafka.aiokafka_parts import make_batch_builder
from holdfast.records.header import HEADER_NAME
from holdfast.runtime.errors import AppendRefused
from holdfast.runtime.kafka_log.record_batches import BATCH_HEAD_BYTES
from holdfast.runtime.metrics import RuntimeMetrics

#: A batch's head, a record's own varints and its `hf` header: what the topic's limit has to hold beside key and value.
RECORD_OVERHEAD_BYTES = BATCH_HEAD_BYTES + 25 + 17

#: Taking the times of each batch would cost more than it tells, where batches hold a record or two.
_BATCHES_PER_TIMING = 8

Record = tuple[bytes, bytes | None, bytes]  # key, value, `hf` header


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneConfig:
    """Bounds of what gathers."""

    batch_bytes_max: int  #: the topic's `max.message.bytes`
    compression: int = 0  #: Kafka's number of a codec
    records_max: int = 100_000  #: records handed over and not yet sent, in all partitions
    bytes_max: int = 64 * 1_048_576  #: their keys and values, with what a record takes beside them


class SentBatch(NamedTuple):
    """A batch as it will be seen in the log, to be compared byte by byte."""

    body: bytes  #: everything behind the batch's head
    record_count: int
    first_header: bytes
    last_header: bytes
    gathered_s: float | None  #: when its first record was handed over, by the loop's clock; None: nobody takes its time


class _Lane:
    """One partition."""

    __slots__ = ("bytes", "gathered", "gathered_s", "is_busy", "sent")

    def __init__(self) -> None:
        self.gathered: deque[Record] = deque()  #: not yet in a batch
        self.bytes = 0  #: that they take
        self.gathered_s = 0.0  #: when the first of them came, by the loop's clock
        self.is_busy = False  #: a batch is under way
        self.sent: deque[SentBatch] = deque()  #: batches that the tail has not met


class Lanes:
    """The records of all partitions on their way into batches."""

    def __init__(self, config: LaneConfig, clock_ms: Callable[[], int], metrics: RuntimeMetrics) -> None:
        """Begin empty; `clock_ms` gives records their time."""
        self._config = config
        self._clock_ms = clock_ms
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._lanes: defaultdict[int, _Lane] = defaultdict(_Lane)
        self._records = self._bytes = 0  #: that gathered, in all partitions
        self.waiting: set[int] = set()  #: partitions with gathered records and no batch under way

    def append(self, partition: int, key: bytes, value: bytes | None, header: bytes) -> bool:
        """Take one record; returns whether it need not wait for a batch that is under way.

        Raises:
            AppendRefused: it is too large; or too many wait, and this partition has no less than its part of them.
        """
        config = self._config
        size = len(key) + (len(value) if value is not None else 0) + RECORD_OVERHEAD_BYTES
        if size > config.batch_bytes_max:
            raise AppendRefused(
                f"it takes {size} bytes, and max.message.bytes is {config.batch_bytes_max}", is_too_large=True
            )
        lane = self._lanes[partition]
        if self._records >= config.records_max or self._bytes >= config.bytes_max:
            self._refuse_beyond_part(lane)
        if not lane.gathered:
            lane.gathered_s = self._loop.time()
        lane.gathered.append((key, value, header))
        lane.bytes += size
        self._bytes += size
        self._records += 1
        if lane.is_busy:
            return False
        self.waiting.add(partition)
        return True

    def _refuse_beyond_part(self, lane: _Lane) -> None:
        """Refuse what a partition has to say beyond an equal part of a bound, so that a silent broker's partitions use up no other's.

        All of them together may so hold twice the bound, and a record more each.
        """
        config, partitions = self._config, len(self._lanes)
        records, size = len(lane.gathered), lane.bytes
        if self._records >= config.records_max and records * partitions >= config.records_max:
            text = f"{self._records} records wait to be sent already, {records} of them in this partition"
            raise AppendRefused(text, is_too_large=False)
        if self._bytes >= config.bytes_max and size * partitions >= config.bytes_max:
            text = f"records of {self._bytes} bytes wait to be sent already, {size} of them in this partition"
            raise AppendRefused(text, is_too_large=False)

    def sent(self, partition: int) -> deque[SentBatch]:
        """Return the batches of a partition that the tail has not met, oldest first; the tail removes what it meets."""
        return self._lanes[partition].sent

    def first_header(self, partition: int) -> bytes:
        """Return the header of the record that gathered first; there must be one."""
        return self._lanes[partition].gathered[0][2]

    def forget(self, partition: int) -> None:
        """Drop what was not sent yet, because its owner is gone; what is under way may still land."""
        lane = self._lanes.get(partition)
        if lane is not None:
            self._records -= len(lane.gathered)
            self._bytes -= lane.bytes
            lane.bytes = 0
            lane.gathered.clear()
            lane.sent.clear()
            self.waiting.discard(partition)

    def make_batch(self, partition: int) -> tuple[bytes, SentBatch] | None:
        """Put what gathered into a batch, as much as it holds, which is under way from now on; None: there is nothing.

        Raises:
            Exception: it cannot be built; what gathered is still there.
        """
        self.waiting.discard(partition)
        lane = self._lanes[partition]
        if lane.is_busy or not lane.gathered:
            return None
        now_ms = self._clock_ms()
        limit = self._config.batch_bytes_max
        builder = make_batch_builder(self._config.compression, limit)
        append, gathered = builder.append, lane.gathered
        count, size_sum, room = 0, 0, limit - BATCH_HEAD_BYTES
        first_header = last_header = gathered[0][2]
        for key, value, header in gathered:
            size = len(key) + (len(value) if value is not None else 0) + RECORD_OVERHEAD_BYTES
            room -= size - BATCH_HEAD_BYTES
            if room < 0 and count:
                break
            size_sum += size
            append(count, now_ms, key, value, [(HEADER_NAME, header)])
            last_header = header
            count += 1
        data = bytes(builder.build())
        for _ in range(count):
            gathered.popleft()
        self._records -= count
        self._bytes -= size_sum
        lane.bytes -= size_sum
        gathered_s = self._count(lane, count)
        sent = SentBatch(data[BATCH_HEAD_BYTES:], count, first_header, last_header, gathered_s)
        lane.sent.append(sent)
        lane.is_busy = True
        return data, sent

    def make_ready(self, partition: int) -> None:
        """Take note that the batch of a partition is under way no more, so that the next one may follow."""
        lane = self._lanes[partition]
        lane.is_busy = False
        if lane.gathered:
            self.waiting.add(partition)

    def _count(self, lane: _Lane, records: int) -> float | None:
        """Count a batch; returns when its first record came if it is one of those whose time is taken."""
        metrics = self._metrics
        gathered_s: float | None = None
        if metrics.batch_flush.value % _BATCHES_PER_TIMING == 0:
            gathered_s = lane.gathered_s
            metrics.batch_linger_time.record((self._loop.time() - gathered_s) * 1_000)
        metrics.batch_flush.value += 1
        metrics.records_appended.value += records
        return gathered_s
