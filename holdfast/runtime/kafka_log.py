"""A real Kafka topic as the log: one producer, one reader for loads and one for tails, each reader in its own thread.

What the threads find is handed to the event loop in whole batches; a bounded number of them may be under way.
A load is read by its own consumer, so that a long one does not stand before the tails; at the end it saw, it hands over to the tail.

Source: librdkafka configuration reference.
"""

from asyncio import AbstractEventLoop
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from threading import Thread
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec  # its type stub does not re-export it

from holdfast.records.header import HEADER_NAME
from holdfast.runtime.errors import AppendRefused
from holdfast.runtime.kafka_reader import Found, KafkaReader, header_of
from holdfast.runtime.log import LogListener, ReadError

Settings = Mapping[str, str | int | float | bool]
Learn = Callable[[int, int | None, str], None]

#: What the protocol needs of every producer, whatever the user passes: order, no duplicates, acknowledged by all in sync.
PRODUCER_MUST: Settings = {
    "enable.idempotence": True,
    "acks": "all",
    "delivery.report.only.error": True,
}

#: A record batch's head, the record's own varints and its `hf` header, which the topic's limit has to hold as well.
RECORD_OVERHEAD_BYTES = 61 + 25 + 17

EARLIEST = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_TRUNCATED = KafkaError._LOG_TRUNCATION
_OUT_OF_RANGE = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaLogConfig:
    """How the log is reached, and its bounds."""

    topic: str
    client: Settings  #: librdkafka properties of every client, `bootstrap.servers` among them
    producer: Settings = field(default_factory=dict)  #: librdkafka properties of the producer alone
    message_bytes_max: int = 1_048_576  #: the topic's `max.message.bytes`; larger records are refused here
    message_timeout_ms: int = 30_000  #: after it an append has failed, though it may still land
    linger_ms: float = 0
    fetch_wait_ms: int = 100  #: how long a broker may hold an empty fetch
    batch_records_max: int = 1_000  #: records handed to the loop at a time
    batches_in_flight_max: int = 4  #: batches handed over and not yet processed, for each reader
    queued_kilobytes_max: int = 65_536  #: fetched and not yet handed over, for each reader
    producer_queue_messages_max: int = 100_000
    request_timeout_ms: int = 10_000  #: of offset look-ups and DeleteRecords


class KafkaLog:
    """The log of one node; all it finds is told to the listener on the event loop."""

    def __init__(self, config: KafkaLogConfig, loop: AbstractEventLoop) -> None:
        self._config = config
        self._loop = loop
        self._listener: LogListener | None = None
        self._is_closed = False
        self._producer = self._make_producer()
        self._admin = AdminClient(dict(config.client))
        self._tail = KafkaReader("tail", config, self._hand_over, is_load=False)
        self._load = KafkaReader("load", config, self._hand_over, is_load=True)
        self._poller = Thread(target=self._poll_producer, name="holdfast-producer", daemon=True)

    def start(self, listener: LogListener) -> None:
        """Begin to work for this listener."""
        self._listener = listener
        self._tail.start()
        self._load.start()
        self._poller.start()

    def close(self, timeout_s: float) -> bool:
        """Flush what was appended, then stop every thread; returns whether all of it was done in time."""
        left = self._producer.flush(timeout_s)
        self._is_closed = True
        ended = [self._tail.close(timeout_s), self._load.close(timeout_s)]
        if self._poller.is_alive():
            self._poller.join(timeout_s)
        return left == 0 and all(ended) and not self._poller.is_alive()

    # ---- Log -------------------------------------------------------------------------------------------------------

    def append(self, partition: int, key: bytes, value: bytes | None, header: bytes) -> None:
        """See `Log.append`."""
        size = len(key) + (len(value) if value is not None else 0) + RECORD_OVERHEAD_BYTES
        if size > self._config.message_bytes_max:
            limit = self._config.message_bytes_max
            raise AppendRefused(f"it takes {size} bytes and max.message.bytes is {limit}", is_too_large=True)
        try:
            self._producer.produce(self._config.topic, value, key, partition, headers=[(HEADER_NAME, header)])
        except BufferError as full:
            raise AppendRefused("the producer's queue is full", is_too_large=False) from full
        except KafkaException as refused:
            error: KafkaError = refused.args[0]
            if error.code() == KafkaError._FATAL:
                self._replace_producer(error)
            raise AppendRefused(error.str(), is_too_large=error.code() == KafkaError.MSG_SIZE_TOO_LARGE) from refused

    def start_reading(self, partition: int, instance: int) -> None:
        """See `Log.start_reading`."""
        self.stop_reading(partition)

        def begin(start: int | None, end: int | None, why: str) -> None:
            if self._listener is None:
                return
            if start is None or end is None:
                self._listener.read_failed(
                    partition, instance, ReadError(f"its bounds are unknown: {why}", is_alarm=False)
                )
                return
            self._listener.read_started(partition, instance, start, end)
            if start == end:
                self._end_load(partition, instance, end)
            else:
                self._load.follow(partition, instance, start, end)

        self._ask_bounds(partition, begin)

    def stop_reading(self, partition: int) -> None:
        """See `Log.stop_reading`."""
        self._tail.forget(partition)
        self._load.forget(partition)

    def ask_latest_offsets(self, round_number: int, partitions: list[int]) -> None:
        """See `Log.ask_latest_offsets`."""

        def answer(found: dict[int, tuple[int | None, str]]) -> None:
            if self._listener is not None:
                self._listener.latest_offsets(round_number, {index: offset for index, (offset, _) in found.items()})

        self._ask(dict.fromkeys(partitions, LATEST), answer)

    def delete_records(self, partition: int, before_offset: int) -> None:
        """See `Log.delete_records`."""
        target = TopicPartition(self._config.topic, partition, before_offset)
        futures = self._admin.delete_records([target], request_timeout=self._config.request_timeout_ms / 1_000)

        def learn(future: "Future[Any]") -> None:
            error = future.exception()
            log_start_offset = None if error else future.result().low_watermark
            if self._listener is not None:
                why = str(error) if error else ""
                self._call_soon(partial(self._listener.records_deleted, partition, log_start_offset, why))

        futures[target].add_done_callback(learn)

    # ---- offsets ---------------------------------------------------------------------------------------------------

    def _ask(self, specs: dict[int, OffsetSpec], answer: Callable[[dict[int, tuple[int | None, str]]], None]) -> None:
        """Ask the brokers an offset of each partition; `answer` gets (offset, why not) of each, once, on the loop."""
        targets = {TopicPartition(self._config.topic, index): spec for index, spec in specs.items()}
        futures = self._admin.list_offsets(targets, request_timeout=self._config.request_timeout_ms / 1_000)
        found: dict[int, tuple[int | None, str]] = {}

        def collect(index: int, future: "Future[Any]") -> None:
            error = future.exception()
            found[index] = (None, str(error)) if error else (future.result().offset, "")
            if len(found) == len(specs):
                self._call_soon(lambda: answer(found))

        for target, future in futures.items():
            future.add_done_callback(partial(collect, target.partition))

    def _ask_bounds(self, partition: int, answer: Callable[[int | None, int | None, str], None]) -> None:
        """Ask the log start, then the high watermark, so that the end is never below the start."""

        def ask_end(found: dict[int, tuple[int | None, str]]) -> None:
            start, why = found[partition]
            if start is None:
                answer(None, None, why)
            else:
                self._ask({partition: LATEST}, lambda last: answer(start, *last[partition]))

        self._ask({partition: EARLIEST}, ask_end)

    # ---- readers ---------------------------------------------------------------------------------------------------

    def _hand_over(self, found: Found, done: Callable[[], None]) -> None:
        """Called on a reader's thread; `done` allows it to hand over more."""
        self._call_soon(partial(self._tell, found, done))

    def _tell(self, found: Found, done: Callable[[], None]) -> None:
        try:
            if self._listener is None or self._is_closed:
                return
            for partition, instance, records in found.records:
                self._listener.records_read(partition, instance, records)
            for partition, instance, next_offset in found.ended:
                self._end_load(partition, instance, next_offset)
            for partition, instance, position, error in found.failed:
                self._tell_failed(partition, instance, position, error)
        finally:
            done()

    def _end_load(self, partition: int, instance: int, next_offset: int) -> None:
        assert self._listener is not None
        self._tail.follow(partition, instance, next_offset, next_offset)
        self._listener.caught_up(partition, instance, next_offset)

    def _tell_failed(self, partition: int, instance: int, position: int, error: KafkaError) -> None:
        assert self._listener is not None
        listener, text = self._listener, f"{error.name()}: {error.str()}"
        if error.code() not in _OUT_OF_RANGE:
            listener.read_failed(partition, instance, ReadError(text, is_alarm=error.code() == _TRUNCATED))
            return

        def judge(start: int | None, end: int | None, _: str) -> None:
            is_beyond_end = end is not None and position > end
            bounds = f"{text}; the log runs from {start} to {end}"
            listener.read_failed(partition, instance, ReadError(bounds, is_alarm=is_beyond_end))

        self._ask_bounds(partition, judge)

    # ---- producer --------------------------------------------------------------------------------------------------

    def _make_producer(self) -> Producer:
        config = self._config
        return Producer(
            {
                "linger.ms": config.linger_ms,
                "queue.buffering.max.messages": config.producer_queue_messages_max,
                "message.max.bytes": config.message_bytes_max + RECORD_OVERHEAD_BYTES,
                **config.client,
                **config.producer,
                **PRODUCER_MUST,
                "message.timeout.ms": config.message_timeout_ms,
                "on_delivery": self._delivered,
            }
        )

    def _replace_producer(self, error: KafkaError) -> None:
        """Go on with a new producer: a fatal error ends the old one, and every partition loads again."""
        self._producer = self._make_producer()
        if self._listener is not None:
            self._call_soon(partial(self._listener.producer_replaced, error.str()))

    def _poll_producer(self) -> None:
        while not self._is_closed:
            self._producer.poll(0.1)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        """Called on the producer's thread, for failures only."""
        if error is None or self._listener is None:
            return
        partition = message.partition()
        assert partition is not None
        self._call_soon(partial(self._listener.append_failed, partition, header_of(message), error.str()))

    def _call_soon(self, call: Callable[[], object]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call)
