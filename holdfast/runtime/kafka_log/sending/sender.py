"""The sender of records: as a rule one Produce request per broker at a time, for all partitions that have records.

Records wait in `accumulator`, which keeps those of a partition in order; `pace` says when they are sent.
A batch may be appended twice if its answer is lost. The second copy has old sequences and is void for every reader.
So a batch is sent again until its time is over (`retries`). Then it may or may not be in the log, and the partition's owner is notified.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from holdfast.kafka.brokers.broker_connection import BrokerConnection
from holdfast.kafka.brokers.throttle import Throttle
from holdfast.kafka.cluster import Brokers
from holdfast.kafka.errors import ConnectionFailed
from holdfast.kafka.protocol import requests
from holdfast.kafka.protocol.denials import acl_remedy
from holdfast.kafka.protocol.error_codes import PRODUCE_RETRIABLE, name_and_number
from holdfast.runtime.kafka_log.bug_reports import BugReports
from holdfast.runtime.kafka_log.sending.accumulator import AccumulatorConfig, RecordAccumulator
from holdfast.runtime.kafka_log.sending.broker_slot import BrokerSlot, PendingBatch, ProduceRequest
from holdfast.runtime.kafka_log.sending.pace import Pace, PaceConfig
from holdfast.runtime.kafka_log.sending.retries import Retries, RetryPorts
from holdfast.runtime.kafka_log.sent_batches import SentBatch, SentBatches
from holdfast.runtime.metrics import RuntimeMetrics

_PRODUCE: Final = requests.PRODUCE[0]
_PRODUCE_VERSION: Final = requests.PRODUCE[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderConfig:
    """Bounds of the sender."""

    accumulator: AccumulatorConfig
    pace: PaceConfig
    message_timeout_ms: int
    #: Bytes of the batches in one request, unless one batch alone is larger.
    request_bytes_max: int = 16 * 1_048_576
    retry_backoff_ms: int = 50
    #: Longest time for which a broker is sent nothing because it asks for that.
    throttle_max_ms: int


class Sender:
    """The producer of one node."""

    def __init__(
        self,
        config: SenderConfig,
        brokers: Brokers,
        sent: SentBatches,
        on_acknowledged: Callable[[int, SentBatch, int], None],
        on_failed: Callable[[int, bytes, str], None],
        clock_ms: Callable[[], int],
        metrics: RuntimeMetrics,
    ) -> None:
        """Open no connection; each is opened with the first batch for its broker.

        Args:
            config: bounds.
            brokers: the leaders of partitions.
            sent: keeps each batch until it is read back.
            on_acknowledged: gets (partition, batch, base offset) when a leader has a batch below the high watermark.
            on_failed: gets (partition, first header, why) when a batch is given up; it may still be appended.
            clock_ms: the clock for the time of records.
            metrics: counters and timers.
        """
        self._config = config
        self._brokers = brokers
        self._topic = brokers.topic
        self._on_acknowledged = on_acknowledged
        self._on_failed = on_failed
        self._metrics = metrics
        self._bugs = BugReports(metrics.internal_errors)
        self._loop = asyncio.get_running_loop()
        self._now_s, self._clock_ms = self._loop.time, clock_ms
        self._sent = sent
        self.accumulator = RecordAccumulator(config.accumulator, sent, metrics)
        #: Number of requests without an answer.
        self._in_flight = 0
        #: Set when a request or task ends; None: `close` does not wait for that.
        self._progress: asyncio.Event | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._throttle: Throttle[int] = Throttle(config.throttle_max_ms, metrics.throttle_time_ms, self._loop.time)
        self.pace = Pace(config.pace, brokers, self.accumulator, self._throttle, self._send_ready)
        self._retries = Retries(
            config.retry_backoff_ms,
            config.message_timeout_ms,
            brokers,
            self._throttle,
            self._bugs,
            RetryPorts(self._run, self._send, self._end_read_back, self._give_up),
        )

    def append(self, partition: int, key: bytes, value: bytes | None, header: bytes) -> None:
        """Add one record.

        Raises:
            AppendRefused: it is too large, or too many wait.
        """
        if self.accumulator.append(partition, key, value, header):
            self.pace.flush_soon()

    def forget(self, partition: int) -> None:
        """See `RecordAccumulator.forget`."""
        self.accumulator.forget(partition)

    async def close(self, timeout_s: float) -> bool:
        """Send the waiting records and wait for all answers; returns whether all came in time."""
        self.pace.end_patience()
        self.pace.flush()
        progress = self._progress = asyncio.Event()
        try:
            async with asyncio.timeout(timeout_s):
                while self._is_at_work():
                    progress.clear()
                    await progress.wait()
        except TimeoutError:
            pass
        self.pace.close()
        self._retries.close()
        for task in self._tasks:
            task.cancel()
        return not self._is_at_work()

    def _is_at_work(self) -> bool:
        return bool(self._in_flight or self._tasks or self.accumulator.ready)

    # ---- a request -------------------------------------------------------------------------------------------------

    def _send_ready(self, broker_id: int | None, slot: BrokerSlot, partitions: list[int]) -> None:
        """Send the records of these partitions over a free connection."""
        now_s, now_ms, room, records = self._now_s(), self._clock_ms(), self._config.request_bytes_max, 0
        expires_s = now_s + self._config.message_timeout_ms / 1_000
        batches: list[PendingBatch] = []
        for partition in partitions:
            if room <= 0:
                break
            try:
                sent = self.accumulator.make_batch(partition, now_ms)
            except Exception as bug:  # only its owner fails; the records of the others are sent
                self._drop_unbuilt(partition, bug)
                continue
            if sent is not None:
                room -= len(sent.data)
                records += sent.record_count
                batches.append(PendingBatch(partition, sent, expires_s))
        if batches:
            self.pace.on_sent(slot, records, now_s)
            self._send(ProduceRequest(broker_id, slot.free.pop(), slot, batches, records))

    def _drop_unbuilt(self, partition: int, bug: Exception) -> None:
        """Drop records of which no batch can be built; their owner is notified after the others are sent."""
        header = self.accumulator.first_header(partition)
        self.accumulator.forget(partition)
        self._bugs.report(bug, f"building a batch of partition {partition} failed")
        self._loop.call_soon(self._report_failed, partition, header, f"no batch could be built: {bug!r}")

    def _send(self, request: ProduceRequest) -> None:
        """Send batches on a connection, which is free again after their answer."""
        try:
            connection = self._find_open(request)
        except Exception as bug:
            self._end_unsent(request, bug)
            return
        if connection is None:
            self._run(self._open_and_send(request))
        else:
            self._send_on(connection, request)

    def _find_open(self, request: ProduceRequest) -> BrokerConnection | None:
        return request.connection.find_open(self._brokers, request.broker_id)

    async def _open_and_send(self, request: ProduceRequest) -> None:
        try:
            if request.broker_id is None:
                raise ConnectionFailed("no broker is known to lead it")
            connection = await self._brokers.connection(request.broker_id, request.connection.purpose)
        except Exception as failure:
            self._free(request)
            self.pace.flush_ready_soon()
            why = self._bugs.explain(failure, f"connecting to broker {request.broker_id} to send to it failed")
            self._retries.retry(request.batches, why)
            return
        # A batch that was given up while the connection was opened must not be sent.
        request.batches = [batch for batch in request.batches if not batch.is_over]
        if request.batches:
            self._send_on(connection, request)
        else:
            self._free(request)
            self.pace.flush_ready_soon()

    def _send_on(self, connection: BrokerConnection, request: ProduceRequest) -> None:
        self._in_flight += 1
        request.is_in_flight = True
        try:
            body = requests.encode_produce(
                self._topic,
                self._config.message_timeout_ms,
                [(batch.partition, batch.sent.data) for batch in request.batches],
            )
            connection.send(_PRODUCE, _PRODUCE_VERSION, body, partial(self._on_answered, request, self._now_s()))
        except Exception as bug:
            if request.is_in_flight:
                self._end_unsent(request, bug)
            else:  # `send` called back with its failure, and the callback raised
                self._bugs.report(bug, f"handling an answer of broker {request.broker_id} failed")

    def _end_unsent(self, request: ProduceRequest, bug: Exception) -> None:
        """End a request that could not be sent: its owners are notified after all others, and may still find its batches in the log."""
        self._bugs.report(bug, f"sending to broker {request.broker_id} failed")
        self._free(request)
        self._loop.call_soon(self._give_up_all, request, f"it could not be sent: {bug!r}")

    def _end_flight(self, request: ProduceRequest) -> None:
        if request.is_in_flight:
            request.is_in_flight = False
            self._in_flight -= 1
        self._signal_progress()

    def _free(self, request: ProduceRequest) -> None:
        """Give back the connection of a request; a second call has no effect."""
        slot, request.slot = request.slot, None
        if slot is not None:
            slot.free.append(request.connection)
            self.pace.on_ended(slot, request.records)

    def _on_answered(self, request: ProduceRequest, began_s: float, outcome: bytes | ConnectionFailed) -> None:
        """Handle the answer to a request: free its connection, send the next records, and only then report.

        The broker works on the next request while the callers of this one are answered.
        """
        self._end_flight(request)
        answer: list[requests.Produced] = []
        failure: str | None = None
        if isinstance(outcome, ConnectionFailed):
            failure = str(outcome)
        else:
            try:
                answer = self._read_answer(request, outcome, self._now_s() - began_s)
            except Exception as unread:  # treated as no answer: a second copy is void, so it may be sent again
                failure = self._bugs.explain(unread, f"reading an answer of broker {request.broker_id} failed")
        batches = {batch.partition: batch for batch in request.batches}
        acknowledged: list[PendingBatch] = []
        for partition, error_code, base_offset, _ in answer:
            batch = batches.get(partition)
            if batch is not None and not batch.is_over and not error_code:
                batch.finish()
                batch.base_offset = base_offset
                self.accumulator.end_batch(partition)
                acknowledged.append(batch)
        self._free(request)
        self.pace.flush_after_answer()
        for batch in acknowledged:
            self._report_acknowledged(batch)
        if failure is not None:
            self._retries.retry(request.batches, failure)
        elif len(acknowledged) < len(request.batches):
            self._settle_refused({batch.partition: batch for batch in request.batches if not batch.is_over}, answer)

    def _read_answer(self, request: ProduceRequest, body: bytes, took_s: float) -> list[requests.Produced]:
        """Return the result of each batch; throttles the broker for as long as the answer says.

        Raises:
            UnreadableAnswer: the bytes do not follow the message.
        """
        answer, throttle_ms = requests.read_produced(body)
        self._metrics.batch_flush_time.record(took_s * 1_000)
        if request.slot is not None:
            request.slot.linger.on_answered(took_s)
        if request.broker_id is not None:
            throttle_ms = self._throttle.on_answer(request.broker_id, throttle_ms)
            if throttle_ms and (connection := self._find_open(request)) is not None:
                connection.wait_longer(throttle_ms)  # for requests that were already sent after it
        return answer

    def _report_acknowledged(self, batch: PendingBatch) -> None:
        try:
            self._on_acknowledged(batch.partition, batch.sent, batch.base_offset)
        except Exception as bug:  # only its owner fails; the others are still reported
            self._bugs.report_unheard(bug, batch.partition)
            self._report_failed(batch.partition, batch.sent.first_header, f"reporting where it lies failed: {bug!r}")

    def _settle_refused(self, open_batches: dict[int, PendingBatch], answer: list[requests.Produced]) -> None:
        """Give up the batches that failed for good, and send the others again."""
        again: dict[int, list[PendingBatch]] = {}
        for partition, error_code, _, message in answer:
            batch = open_batches.pop(partition, None)
            if batch is None:
                continue
            if error_code in PRODUCE_RETRIABLE:
                again.setdefault(error_code, []).append(batch)
            else:
                said = f"{name_and_number(error_code)} {message}".rstrip()
                remedy = acl_remedy(error_code, "Write", f"topic {self._topic}", self._brokers.who())
                self._give_up(batch, f"the broker answered {said}{remedy}")
        for error_code, refused in again.items():
            self._retries.retry(refused, f"the broker answered {name_and_number(error_code)}")
        if open_batches:
            self._retries.retry(open_batches.values(), "the broker's answer leaves it out")

    # ---- a batch ends ----------------------------------------------------------------------------------------------

    def _end_read_back(self, batch: PendingBatch) -> bool:
        """End a batch if the tail has read it although its answer was lost; returns whether it has."""
        if not self._sent.is_read_back(batch.partition, batch.sent):
            return False
        batch.finish()
        self._end_and_flush(batch.partition)
        return True

    def _give_up_all(self, request: ProduceRequest, why: str) -> None:
        for batch in request.batches:
            if not batch.is_over:
                self._give_up(batch, why)
        self._end_flight(request)

    def _give_up(self, batch: PendingBatch, why: str) -> None:
        batch.finish()
        self._metrics.appends_failed.value += batch.sent.record_count
        self._report_failed(batch.partition, batch.sent.first_header, why)
        # Records that are left belong to a later attempt: the owner of this one has dropped its own.
        self._end_and_flush(batch.partition)

    def _report_failed(self, partition: int, header: bytes, why: str) -> None:
        try:
            self._on_failed(partition, header, why)
        except Exception as bug:  # a failure of one owner does not stop the queues of the others
            self._bugs.report_unheard(bug, partition)

    def _end_and_flush(self, partition: int) -> None:
        self.accumulator.end_batch(partition)
        self.pace.flush_ready_soon()

    # ---- tasks -----------------------------------------------------------------------------------------------------

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work, name="holdfast-produce")
        self._tasks.add(task)
        task.add_done_callback(self._end_task)

    def _end_task(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        self._bugs.watch(task)
        self._signal_progress()

    def _signal_progress(self) -> None:
        if self._progress is not None:
            self._progress.set()
