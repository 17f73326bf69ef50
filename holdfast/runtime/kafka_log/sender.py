"""Hands records to the brokers: one Produce request per broker and turn, for all partitions that have something to say.

What a partition has to say gathers in `runtime.kafka_log.accumulator`, which keeps its records in order.
A batch may land twice when its answer is lost: the second copy has old sequences and is void for every reader.
So a batch is sent again until its time is up; then it is ambiguous, and the partition's owner is told.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from holdfast.kafka.connection import BrokerConnection
from holdfast.kafka.errors import ConnectionFailed
from holdfast.kafka.leaders import Brokers
from holdfast.kafka.protocol import requests as frames
from holdfast.kafka.protocol.error_codes import PRODUCE_RETRIABLE
from holdfast.kafka.throttle import Throttle
from holdfast.metrics.registry import Registry
from holdfast.runtime.kafka_log.accumulator import LaneConfig, Lanes, SentBatch
from holdfast.runtime.kafka_log.bugs import BugReports
from holdfast.runtime.kafka_log.linger import Gathering
from holdfast.runtime.metrics import RuntimeMetrics

#: In place of the id of a leader that is not known.
NO_BROKER = -1

#: In place of the number of a connection: the one for batches that are sent again, which are never kept waiting.
_AGAIN = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class AppenderConfig:
    """Bounds of the appender."""

    lanes: LaneConfig
    message_timeout_ms: int
    linger_ms: float = 0  #: how long a record waits for company; 0: for the end of this turn of the loop
    #: Bounds of how long a record waits for company while its broker has not answered; between them, as long as it usually takes.
    gather_min_ms: float = 1
    gather_max_ms: float = 100
    requests_in_flight_max: int = (
        4  #: for each broker, each on a connection of its own: a broker answers one after the other
    )
    request_bytes_max: int = 16 * 1_048_576  #: batches of one request, unless one batch alone is larger
    retry_backoff_ms: int = 50
    throttle_max_ms: int = 300_000  #: the longest that a broker is sent nothing because it says so


@dataclass(slots=True, eq=False)
class _Batch:
    partition: int
    data: bytes
    sent: SentBatch
    expires_s: float
    failure: str = ""  #: why it was not taken when it was sent last
    end: asyncio.Handle | None = None  #: gives it up when its time is over; None while it was sent once only
    is_over: bool = False  #: it landed or was given up; an answer that comes later says nothing


class _Way(NamedTuple):
    """How requests go to one broker."""

    free: list[int]  #: connections without a request, the last one used on top
    gathering: Gathering


class Appender:
    """The producer of one node."""

    def __init__(
        self,
        config: AppenderConfig,
        brokers: Brokers,
        landed: Callable[[int, SentBatch, int], None],
        failed: Callable[[int, bytes, str], None],
        clock_ms: Callable[[], int],
        metrics: RuntimeMetrics | None = None,
    ) -> None:
        """Prepare; a connection is opened with the first batch for its broker.

        Args:
            config: bounds.
            brokers: who leads what.
            landed: told (partition, batch, base offset) when a leader says where a batch lies, below the high watermark.
            failed: told (partition, first header, why) when a batch is given up; it may still land.
            clock_ms: gives records their time.
            metrics: what is counted and timed.
        """
        self._config = config
        self._brokers = brokers
        self._landed = landed
        self._failed = failed
        self._metrics = metrics or RuntimeMetrics(Registry(clock_ms))
        self._bugs = BugReports(self._metrics.internal_errors)
        self._loop = asyncio.get_running_loop()
        self.lanes = Lanes(config.lanes, clock_ms, self._metrics)
        self._is_flush_due = False
        self._is_closed = False
        self._under_way = 0  #: requests without an answer
        self._progress = asyncio.Event()  #: something that was under way ended
        self._tasks: set[asyncio.Task[None]] = set()
        self._ways: dict[int, _Way] = {}  #: to each broker that was sent something
        self._throttle = Throttle(config.throttle_max_ms, self._metrics.throttle_time_ms, self._loop.time)
        self._gathering: asyncio.Handle | None = None  #: runs when the first broker has gathered long enough
        self._gathering_end_s = 0.0
        brokers.on_change(self._flush_waiting_soon)

    def append(self, partition: int, key: bytes, value: bytes | None, header: bytes) -> None:
        """Take one record.

        Raises:
            AppendRefused: it is too large, or too many wait.
        """
        if self.lanes.append(partition, key, value, header) and not self._is_flush_due:
            self._flush_soon()

    async def close(self, timeout_s: float) -> bool:
        """Send what was gathered and wait for what is under way; returns whether all of it was answered in time."""
        self._flush()
        try:
            async with asyncio.timeout(timeout_s):
                while self._under_way or self._tasks or self.lanes.waiting:
                    self._progress.clear()
                    await self._progress.wait()
        except TimeoutError:
            pass
        self._is_closed = True
        if self._gathering is not None:
            self._gathering.cancel()
        for task in self._tasks:
            task.cancel()
        return not (self._under_way or self._tasks or self.lanes.waiting)

    def _flush_soon(self) -> None:
        self._is_flush_due = True
        if self._config.linger_ms > 0:
            self._loop.call_later(self._config.linger_ms / 1_000, self._flush)
        else:
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flush_due = False
        if self._is_closed:
            return
        by_broker: dict[int, list[int]] = {}
        leaders = self._brokers.leaders
        for partition in self.lanes.waiting:
            by_broker.setdefault(leaders.get(partition, (NO_BROKER, -1))[0], []).append(partition)
        gather_until_s: float | None = None
        for broker_id, partitions in by_broker.items():
            sendable_s = self._sendable_s(broker_id)
            if sendable_s <= self._loop.time():
                self._send_waiting(broker_id, partitions)
            elif gather_until_s is None or sendable_s < gather_until_s:
                gather_until_s = sendable_s
        if gather_until_s is not None and (self._gathering is None or gather_until_s < self._gathering_end_s):
            if self._gathering is not None:
                self._gathering.cancel()
            self._gathering = self._loop.call_at(gather_until_s, self._end_gathering)
            self._gathering_end_s = gather_until_s

    def _sendable_s(self, broker_id: int) -> float:
        """Return from when on a broker may be sent a request."""
        way = self._ways.get(broker_id)
        throttled_s = self._throttle.until_s(broker_id)
        if way is None or len(way.free) == self._config.requests_in_flight_max:
            return throttled_s
        return max(throttled_s, way.gathering.end_s)

    def _end_gathering(self) -> None:
        self._gathering = None
        self._flush()

    def _send_waiting(self, broker_id: int, partitions: list[int]) -> None:
        """Send what these partitions gathered, if the broker has a connection free; else it gathers on until one is."""
        way = self._ways.get(broker_id)
        if way is None:
            config = self._config
            gathering = Gathering(config.gather_min_ms / 1_000, config.gather_max_ms / 1_000)
            way = self._ways[broker_id] = _Way(list(range(config.requests_in_flight_max)), gathering)
        if not way.free:
            return
        expires_s = self._loop.time() + self._config.message_timeout_ms / 1_000
        batches, room = [], self._config.request_bytes_max
        for partition in partitions:
            if room <= 0:
                break
            try:
                made = self.lanes.make_batch(partition)
            except Exception as bug:  # its owner fails alone; what the others gathered is sent
                self._drop_unbuilt(partition, bug)
                continue
            if made is not None:
                data, sent = made
                room -= len(data)
                batches.append(_Batch(partition, data, sent, expires_s))
        if batches:
            way.gathering.sent(self._loop.time())
            self._send(broker_id, way.free.pop(), batches)

    def _drop_unbuilt(self, partition: int, bug: Exception) -> None:
        """Drop what a partition gathered and no batch can be built of; its owner is told when all others are sent."""
        header = self.lanes.first_header(partition)
        self.lanes.forget(partition)
        self._bugs.report(bug, f"building a batch of partition {partition} failed")
        self._loop.call_soon(self._tell_owner, partition, header, f"no batch could be built: {bug!r}")

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work, name="holdfast-produce")
        self._tasks.add(task)
        task.add_done_callback(self._end_task)

    def _end_task(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        self._bugs.watch(task)
        self._progress.set()

    def _send(self, broker_id: int, number: int, batches: list[_Batch]) -> None:
        """Send batches on one of the connections to a broker; it is free again when they are answered."""
        connection = self._brokers.open_connection(broker_id, _purpose(number))
        if connection is None:
            self._run(self._open_and_send(broker_id, number, batches))
        else:
            self._send_on(connection, broker_id, number, batches)

    async def _open_and_send(self, broker_id: int, number: int, batches: list[_Batch]) -> None:
        try:
            connection = await self._brokers.connection(broker_id, _purpose(number))
        except Exception as failure:
            self._free(broker_id, number)
            self._flush_waiting_soon()
            self._retry(batches, self._bugs.explain(failure, f"connecting to broker {broker_id} to send to it failed"))
        else:
            self._send_on(connection, broker_id, number, batches)

    def _send_on(self, connection: BrokerConnection, broker_id: int, number: int, batches: list[_Batch]) -> None:
        api, version = frames.PRODUCE
        body = frames.encode_produce(
            self._brokers.topic,
            self._config.message_timeout_ms,
            [(batch.partition, batch.data) for batch in batches],
        )
        self._under_way += 1
        connection.send(api, version, body, partial(self._answered, broker_id, number, batches, self._loop.time()))

    def _free(self, broker_id: int, number: int) -> None:
        if number != _AGAIN:
            self._ways[broker_id].free.append(number)

    def _answered(
        self, broker_id: int, number: int, batches: list[_Batch], began_s: float, outcome: bytes | ConnectionFailed
    ) -> None:
        self._under_way -= 1
        self._progress.set()
        answer: list[frames.Produced] = []
        failure: str | None = None
        throttle_ms = 0
        if isinstance(outcome, ConnectionFailed):
            failure = str(outcome)
        else:
            try:
                answer, asked_ms = frames.read_answer(frames.decode_produced, outcome)
                throttle_ms = self._throttle.told(broker_id, asked_ms)
            except Exception as unread:  # as good as no answer: a second copy is void, so it may be sent again
                failure = self._bugs.explain(unread, f"reading an answer of broker {broker_id} failed")
        if failure is None:
            took_s = self._loop.time() - began_s
            self._metrics.batch_flush_time.record(took_s * 1_000)
            if number != _AGAIN:
                self._ways[broker_id].gathering.answered(took_s)
        if throttle_ms and (connection := self._brokers.open_connection(broker_id, _purpose(number))) is not None:
            connection.wait_longer(throttle_ms)  # for what was sent behind it already
        by_partition = {batch.partition: batch for batch in batches if not batch.is_over}
        landed = [
            (by_partition.pop(partition), base_offset)
            for partition, error_code, base_offset, _ in answer
            if not error_code and partition in by_partition
        ]
        for batch, _ in landed:
            self.lanes.make_ready(batch.partition)
        self._free(broker_id, number)
        # What gathered leaves first, so that the broker is at work while those that wait for this answer are told.
        if self._config.linger_ms > 0:
            self._flush_waiting_soon()
        else:
            self._flush()
        for batch, base_offset in landed:
            _end(batch)
            try:
                self._landed(batch.partition, batch.sent, base_offset)
            except Exception as bug:  # its owner fails alone; the others of this answer are told, too
                self._bugs.report(bug, _telling_failed(batch.partition))
                self._tell_owner(batch.partition, batch.sent.first_header, f"telling where it lies failed: {bug!r}")
        if failure is not None:
            self._retry(batches, failure)
        else:
            self._settle_refused(by_partition, answer)

    def _settle_refused(self, by_partition: dict[int, _Batch], answer: list[frames.Produced]) -> None:
        """Tell which batches failed, and send again what may be."""
        again: dict[int, list[_Batch]] = {}
        for partition, error_code, _, message in answer:
            batch = by_partition.pop(partition, None)
            if batch is None:
                continue
            if error_code in PRODUCE_RETRIABLE:
                again.setdefault(error_code, []).append(batch)
            else:
                self._give_up(batch, f"the broker answered error {error_code} {message}")
        for error_code, refused in again.items():
            self._retry(refused, f"the broker answered error {error_code}")
        if by_partition:
            self._retry(by_partition.values(), "the broker's answer leaves it out")

    async def _send_again(self, batches: list[_Batch]) -> None:
        """Send batches again where they are led now, after a pause."""
        await asyncio.sleep(self._config.retry_backoff_ms / 1_000)
        try:
            await self._brokers.refresh()
        except Exception as failure:
            self._retry(batches, self._bugs.explain(failure, "asking who leads failed"))
            return
        by_broker: dict[int, list[_Batch]] = {}
        for batch in batches:
            if batch.is_over:
                continue
            by_broker.setdefault(self._brokers.leaders.get(batch.partition, (NO_BROKER, -1))[0], []).append(batch)
        for broker_id, led in by_broker.items():
            wait_s = self._throttle.wait_s(broker_id)
            if wait_s > 0:
                self._run(self._send_later(wait_s, broker_id, led))
            else:
                self._send(broker_id, _AGAIN, led)

    async def _send_later(self, wait_s: float, broker_id: int, batches: list[_Batch]) -> None:
        await asyncio.sleep(wait_s)
        left = [batch for batch in batches if not batch.is_over]
        if left:
            self._send(broker_id, _AGAIN, left)

    def _retry(self, batches: Iterable[_Batch], why: str) -> None:
        """Send batches again, until the time of each is over: then it is given up, whatever it waits for."""
        if self._is_closed:
            return
        again = [batch for batch in batches if not batch.is_over]
        for batch in again:
            batch.failure = why
            if batch.end is None:
                batch.end = self._loop.call_at(batch.expires_s, self._expire, batch)
        if again:
            self._run(self._send_again(again))

    def _expire(self, batch: _Batch) -> None:
        if not self._is_closed:
            self._give_up(batch, f"{batch.failure}; tried for {self._config.message_timeout_ms} ms")

    def _give_up(self, batch: _Batch, why: str) -> None:
        _end(batch)
        self._metrics.appends_failed.value += batch.sent.record_count
        self._tell_owner(batch.partition, batch.sent.first_header, why)
        self._go_on(batch.partition)  # its owner has dropped what was gathered; what is left is of a later attempt

    def _tell_owner(self, partition: int, header: bytes, why: str) -> None:
        try:
            self._failed(partition, header, why)
        except Exception as bug:  # whatever one owner does of it, the queues of the others go on
            self._bugs.report(bug, _telling_failed(partition))

    def _go_on(self, partition: int) -> None:
        self.lanes.make_ready(partition)
        self._flush_waiting_soon()

    def _flush_waiting_soon(self) -> None:
        if self.lanes.waiting and not self._is_flush_due:
            self._flush_soon()


def _end(batch: _Batch) -> None:
    batch.is_over = True
    if batch.end is not None:
        batch.end.cancel()


def _purpose(number: int) -> str:
    return "produce-again" if number == _AGAIN else f"produce-{number}"


def _telling_failed(partition: int) -> str:
    return f"telling partition {partition} what became of a batch failed"
