"""What each partition has to say to its log: records that gather, and the batches made of them.

Within a partition, one batch is under way at a time and the next one gathers meanwhile, so records land in order whatever is retried.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from aiokafka.record.default_records import DefaultRecordBatchBuilder  # type: ignore[import-untyped]  # it ships no types

from holdfast.records.header import HEADER_NAME
from holdfast.runtime.errors import AppendRefused
from holdfast.runtime.metrics import RuntimeMetrics
from holdfast.runtime.record_batches import BATCH_HEAD_BYTES

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


class SentBatch(NamedTuple):
    """A batch as it will be seen in the log, to be compared byte by byte."""

    body: bytes  #: everything behind the batch's head
    record_count: int
    first_header: bytes
    last_header: bytes
    gathered_s: float | None  #: when its first record was handed over, by the loop's clock; None: nobody takes its time


class _Lane:
    """One partition."""

    __slots__ = ("gathered", "gathered_s", "is_busy", "sent")

    def __init__(self) -> None:
        self.gathered: deque[Record] = deque()  #: not yet in a batch
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
        self._records = 0
        self.waiting: set[int] = set()  #: partitions with gathered records and no batch under way

    def append(self, partition: int, key: bytes, value: bytes | None, header: bytes) -> bool:
        """Take one record; returns whether it need not wait for a batch that is under way.

        Raises:
            AppendRefused: it is too large, or too many wait.
        """
        config = self._config
        size = len(key) + (len(value) if value is not None else 0) + RECORD_OVERHEAD_BYTES
        if size > config.batch_bytes_max:
            raise AppendRefused(
                f"it takes {size} bytes, and max.message.bytes is {config.batch_bytes_max}", is_too_large=True
            )
        if self._records >= config.records_max:
            raise AppendRefused(f"{config.records_max} records wait to be sent already", is_too_large=False)
        lane = self._lanes[partition]
        if not lane.gathered:
            lane.gathered_s = self._loop.time()
        lane.gathered.append((key, value, header))
        self._records += 1
        if lane.is_busy:
            return False
        self.waiting.add(partition)
        return True

    def sent(self, partition: int) -> deque[SentBatch]:
        """Return the batches of a partition that the tail has not met, oldest first; the tail removes what it meets."""
        return self._lanes[partition].sent

    def forget(self, partition: int) -> None:
        """Drop what was not sent yet, because its owner is gone; what is under way may still land."""
        lane = self._lanes.get(partition)
        if lane is not None:
            self._records -= len(lane.gathered)
            lane.gathered.clear()
            lane.sent.clear()
            self.waiting.discard(partition)

    def make_batch(self, partition: int) -> tuple[bytes, SentBatch] | None:
        """Put what gathered into a batch, as much as it holds, which is under way from now on; None: there is nothing."""
        self.waiting.discard(partition)
        lane = self._lanes[partition]
        if lane.is_busy or not lane.gathered:
            return None
        lane.is_busy = True
        now_ms = self._clock_ms()
        limit = self._config.batch_bytes_max
        builder = DefaultRecordBatchBuilder(2, self._config.compression, 0, -1, -1, -1, limit)
        append, gathered = builder.append, lane.gathered
        count, room = 0, limit - BATCH_HEAD_BYTES
        first_header = last_header = gathered[0][2]
        while gathered:
            key, value, header = gathered[0]
            room -= len(key) + (len(value) if value is not None else 0) + RECORD_OVERHEAD_BYTES - BATCH_HEAD_BYTES
            if room < 0 and count:
                break
            append(count, now_ms, key, value, [(HEADER_NAME, header)])
            gathered.popleft()
            last_header = header
            count += 1
        self._records -= count
        gathered_s = self._count(lane, count)
        data = bytes(builder.build())
        sent = SentBatch(data[BATCH_HEAD_BYTES:], count, first_header, last_header, gathered_s)
        lane.sent.append(sent)
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
