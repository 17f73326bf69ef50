"""Hands records to producers of librdkafka, those of a log partition in order.

One group of records of a log partition is with librdkafka at a time; the next ones wait here until each record of it has its report.
A producer has one request in flight to a broker, so that a retry overtakes nothing; there are as many producers as requests may be in
flight, and a log partition keeps to its own. A group that librdkafka sends in two parts while its log partition moves may still change
its order: then the log shows a gap, nothing after it counts, and the owner loads again.
Reports come on threads of ours that poll. They are handed to the event loop, and there are never more of them than records.
"""

import asyncio
import threading
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from holdfast.kafka.librdkafka import KafkaClients
from holdfast.records.log.header import HEADER_NAME
from holdfast.runtime.errors import AppendRefused
from holdfast.runtime.kafka_log.bug_reports import BugReports
from holdfast.runtime.kafka_log.record_batches import Record
from holdfast.runtime.kafka_log.sending.accumulator import RECORD_OVERHEAD_BYTES, is_beyond_part
from holdfast.runtime.metrics import RuntimeMetrics

#: How long a thread waits for reports before it looks whether it should end.
_POLL_S: Final = 0.1
#: Records of one group; librdkafka's own bound of a batch.
_GROUP_RECORDS_MAX: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderBounds:
    """The bounds of a sender."""

    #: Bytes of one record, and of one group.
    message_bytes_max: int
    #: Producers, each with one request in flight to a broker.
    producers_max: int
    #: Records of all log partitions that wait, or have no report; beyond, each log partition may have an equal part.
    queue_records_max: int
    #: The same in bytes.
    queue_bytes_max: int


class _Report(NamedTuple):
    partition: int
    header: bytes
    size: int
    #: Its own in the log; -1: the broker did not say it, or it failed.
    offset: int
    #: None: it was acknowledged.
    problem: str | None
    #: It was given up because its time was over.
    is_timed_out: bool


class _Queue:
    """The records of one log partition on their way."""

    __slots__ = ("bytes", "first_s", "outstanding", "records", "sent_s")

    def __init__(self) -> None:
        #: Not handed over.
        self.records: list[Record] = []
        #: Handed over, without a report.
        self.outstanding = 0
        #: Bytes of both.
        self.bytes = 0
        #: When the first of `records` came, and when the group that is outstanding was handed over.
        self.first_s = self.sent_s = 0.0


class _PolledProducer:
    """A producer, and the thread that polls it."""

    def __init__(self, producer: Producer, report: Callable[[list[_Report]], None]) -> None:
        self.producer = producer
        self.reports: list[_Report] = []
        self._report = report
        self._is_closed = False
        self.thread = threading.Thread(target=self._run, name="holdfast-librdkafka-producer", daemon=True)
        self.thread.start()

    def close(self) -> None:
        """Give up what has no report, and let the thread end."""
        self._is_closed = True
        self.producer.purge(blocking=False)

    def _run(self) -> None:
        while not self._is_closed:
            self.producer.poll(_POLL_S)
            if self.reports:
                reports, self.reports = self.reports, []
                self._report(reports)


class LibrdkafkaSender:
    """The producer of one node."""

    def __init__(
        self,
        bounds: SenderBounds,
        clients: KafkaClients,
        properties: dict[str, Any],
        topic: str,
        on_appended: Callable[[int, int], None],
        on_failed: Callable[[int, bytes, str], None],
        clock_ms: Callable[[], int],
        metrics: RuntimeMetrics,
    ) -> None:
        """Create a sender; a producer is made with the first record that needs it.

        Args:
            bounds: of what it takes.
            clients: makes producers.
            properties: of a producer.
            topic: its name.
            on_appended: gets (partition, offset) of the last of some records that were acknowledged.
            on_failed: gets (partition, header, why) when a record is given up; it may still be appended.
            clock_ms: gives records their time.
            metrics: what is counted and timed.
        """
        self._bounds = bounds
        self._clients = clients
        self._properties = properties
        self._topic = topic
        self._on_appended = on_appended
        self._on_failed = on_failed
        self._clock_ms = clock_ms
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._bugs = BugReports(metrics.internal_errors)
        self._queues: defaultdict[int, _Queue] = defaultdict(_Queue)
        #: Records and bytes of all queues.
        self._records = self._bytes = 0
        self._is_flush_due = False
        #: Log partitions with records that may be handed over.
        self._ready: set[int] = set()
        #: By slot and by how often it had been replaced.
        self._producers: dict[tuple[int, int], _PolledProducer] = {}
        #: By slot: how often its producer was given up, because records of it had no report in their time. librdkafka may fail to
        #: connect again to a broker that was gone, for as long as the producer lives.
        self._given_up: Counter[int] = Counter()
        #: Something that waited ended; None: nobody waits for that.
        self._progress: asyncio.Event | None = None

    def append(self, partition: int, key: bytes, value: bytes | None, header: bytes) -> None:
        """Take one record.

        Raises:
            AppendRefused: it is too large, or too many wait.
        """
        bounds, size = self._bounds, _size_of(key, value)
        if size > bounds.message_bytes_max:
            raise AppendRefused(
                f"it takes {size} bytes, and max.message.bytes is {bounds.message_bytes_max}", is_too_large=True
            )
        queue = self._queues[partition]
        if self._records >= bounds.queue_records_max or self._bytes >= bounds.queue_bytes_max:
            self._refuse_beyond_part(queue)
        if not queue.records:
            queue.first_s = self._loop.time()
        queue.records.append((key, value, header))
        queue.bytes += size
        self._records += 1
        self._bytes += size
        if not queue.outstanding:
            self._ready.add(partition)
            self._flush_soon()

    def flush_if_all_wait(self) -> None:
        """Do nothing: what was appended leaves at the end of the turn."""

    def forget(self, partition: int) -> None:
        """Drop what was not handed over, because its owner is gone; the rest may still be appended."""
        queue = self._queues.get(partition)
        if queue is not None and queue.records:
            dropped = sum(_size_of(key, value) for key, value, _ in queue.records)
            self._settle(queue, len(queue.records), dropped)
            queue.records = []
        self._ready.discard(partition)

    async def close(self, timeout_s: float) -> bool:
        """Have what waits acknowledged, then end; returns whether all of it was in time."""
        ends_s = self._loop.time() + timeout_s
        progress = self._progress = asyncio.Event()
        self._flush()
        try:
            async with asyncio.timeout(timeout_s):
                while self._records:
                    progress.clear()
                    await progress.wait()
        except TimeoutError:
            pass
        polled = list(self._producers.values())
        self._producers.clear()
        for each in polled:
            each.close()
        left_s = max(2 * _POLL_S, ends_s - self._loop.time())
        ended = [await asyncio.to_thread(_join, each.thread, left_s) for each in polled]
        return not self._records and all(ended)

    # ---- hand-over -------------------------------------------------------------------------------------------------

    def _flush_soon(self) -> None:
        if not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flush_due = False
        ready, self._ready = self._ready, set()
        for partition in ready:
            self._hand_over(partition, self._queues[partition])

    def _hand_over(self, partition: int, queue: _Queue) -> None:
        """Hand the next group of a log partition over; a record that librdkafka refuses then was taken, so it has failed."""
        records, now_ms = queue.records, self._clock_ms()
        queue.sent_s = self._loop.time()
        self._metrics.batch_linger_time.record((queue.sent_s - queue.first_s) * 1_000)
        room, count = self._bounds.message_bytes_max, 0
        try:
            polled = self._producer_of(partition)
            for key, value, header in records[:_GROUP_RECORDS_MAX]:
                size = _size_of(key, value)
                if count and size > room:
                    break
                room -= size
                polled.producer.produce(
                    self._topic,
                    value,
                    key,
                    partition,
                    on_delivery=partial(_note, polled, partition, header, size),
                    timestamp=now_ms,
                    headers=[(HEADER_NAME, header)],
                )
                count += 1
        except (BufferError, KafkaException) as refusal:
            self._drop(partition, queue, records[count:], f"librdkafka refused it: {refusal}")
            queue.records = records = records[:count]
        queue.outstanding = count
        queue.records = records[count:]
        queue.first_s = queue.sent_s
        if count:
            self._metrics.batch_flush.value += 1
            self._metrics.records_appended.value += count

    def _drop(self, partition: int, queue: _Queue, records: list[Record], why: str) -> None:
        for key, value, header in records:
            self._settle(queue, 1, _size_of(key, value))
            self._loop.call_soon(self._fail, partition, header, why)

    def _producer_of(self, partition: int) -> _PolledProducer:
        """Return the producer of a log partition; after a replacement a new one, for nothing of it is outstanding here."""
        slot = partition % self._bounds.producers_max
        place = slot, self._replacements(slot)
        polled = self._producers.get(place)
        if polled is None:
            producer = self._clients.producer(self._properties)
            polled = self._producers[place] = _PolledProducer(producer, self._hand_reports)
            self._end_former()
        return polled

    def _replacements(self, slot: int) -> int:
        return self._clients.renewals + self._given_up[slot]

    def _end_former(self) -> None:
        for place, polled in list(self._producers.items()):
            slot, replacements = place
            if replacements != self._replacements(slot) and not len(polled.producer):
                del self._producers[place]
                polled.close()

    # ---- reports ---------------------------------------------------------------------------------------------------

    def _hand_reports(self, reports: list[_Report]) -> None:
        """Hand reports to the event loop; called on the thread that polled."""
        try:
            self._loop.call_soon_threadsafe(self._on_reports, reports)
        except RuntimeError:  # the loop has ended, and nobody waits for them
            return

    def _on_reports(self, reports: list[_Report]) -> None:
        now_s = self._loop.time()
        for slot in {report.partition % self._bounds.producers_max for report in reports if report.is_timed_out}:
            self._given_up[slot] += 1
        appended: dict[int, int] = {}
        for partition, header, size, offset, problem, _ in reports:
            queue = self._queues[partition]
            queue.outstanding -= 1
            self._settle(queue, 1, size)
            if problem is not None:
                self._fail(partition, header, problem)
            elif offset >= 0:
                appended[partition] = offset
            if not queue.outstanding:
                self._metrics.batch_flush_time.record((now_s - queue.sent_s) * 1_000)
                if queue.records:
                    self._ready.add(partition)
        self._flush()
        for partition, offset in appended.items():
            self._on_appended(partition, offset)
        if len(self._producers) > len({slot for slot, _ in self._producers}):  # some were replaced
            self._end_former()
        if self._progress is not None:
            self._progress.set()

    def _settle(self, queue: _Queue, records: int, size: int) -> None:
        queue.bytes -= size
        self._records -= records
        self._bytes -= size

    def _fail(self, partition: int, header: bytes, why: str) -> None:
        self._metrics.appends_failed.value += 1
        try:
            self._on_failed(partition, header, why)
        except Exception as bug:  # the queues of the others go on
            self._bugs.report_unheard(bug, partition)

    def _refuse_beyond_part(self, queue: _Queue) -> None:
        """Refuse records of a log partition beyond an equal part of a bound, so that a silent broker's use up no other's."""
        bounds, partitions = self._bounds, len(self._queues)
        own = len(queue.records) + queue.outstanding
        if is_beyond_part(self._records, own, partitions, bounds.queue_records_max):
            text = f"{self._records} records wait already, {own} of them in this partition"
            raise AppendRefused(text, is_too_large=False)
        if is_beyond_part(self._bytes, queue.bytes, partitions, bounds.queue_bytes_max):
            text = f"records of {self._bytes} bytes wait already, {queue.bytes} of them in this partition"
            raise AppendRefused(text, is_too_large=False)


def _size_of(key: bytes, value: bytes | None) -> int:
    return len(key) + (len(value) if value is not None else 0) + RECORD_OVERHEAD_BYTES


def _note(
    polled: _PolledProducer, partition: int, header: bytes, size: int, error: KafkaError | None, message: Message
) -> None:
    """Keep what became of a record, on the thread that polls; it touches nothing else."""
    if error is None:
        offset = message.offset()
        polled.reports.append(
            _Report(partition, header, size, -1 if offset is None else offset, None, is_timed_out=False)
        )
    else:
        is_timed_out = error.code() == KafkaError._MSG_TIMED_OUT
        polled.reports.append(_Report(partition, header, size, -1, error.str(), is_timed_out))


def _join(thread: threading.Thread, timeout_s: float) -> bool:
    thread.join(timeout_s)
    return not thread.is_alive()
