"""The consumer of loads: reads log partitions to the end they had, in its own thread, and hands over whole batches.

Commands travel through a queue and are carried out on the thread, between batches:
so no record read for an earlier instance is ever told under a later one.
"""

from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Semaphore, Thread
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from holdfast.records.header import HEADER_NAME
from holdfast.runtime.log import LogRecord

if TYPE_CHECKING:
    from holdfast.runtime.kafka_log import KafkaLogConfig

#: How long the thread sleeps in a poll before it looks for commands.
POLL_S = 0.05

#: What the protocol needs of every consumer, whatever the user passes.
CONSUMER_MUST: dict[str, Any] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "isolation.level": "read_uncommitted",
    "allow.auto.create.topics": False,
}


class Following(NamedTuple):
    """One partition as this reader follows it."""

    instance: int
    end_offset: int  #: behind the last record to read


class Found(NamedTuple):
    """What a reader found in one turn, in this order."""

    records: list[tuple[int, int, list[LogRecord]]]  #: (partition, instance, records)
    ended: list[tuple[int, int, int]]  #: (partition, instance, next offset)
    failed: list[tuple[int, int, int, KafkaError]]  #: (partition, instance, offset that could not be read, error)


class KafkaReader:
    """Follows partitions from given offsets until their end, or until they are forgotten."""

    def __init__(self, config: "KafkaLogConfig", hand_over: Callable[[Found, Callable[[], None]], None]) -> None:
        self._config = config
        self._hand_over = hand_over
        self._consumer = Consumer(
            {
                "group.id": "holdfast-log-reader",
                "fetch.wait.max.ms": config.fetch_wait_ms,
                "queued.max.messages.kbytes": config.queued_kilobytes_max,
                "fetch.queue.backoff.ms": 10,
                **config.client,
                **CONSUMER_MUST,
                "enable.partition.eof": True,
            }
        )
        self._commands: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._following: dict[int, Following] = {}
        self._slots = Semaphore(config.batches_in_flight_max)
        self._is_closed = False
        self._thread = Thread(target=self._run, name="holdfast-load", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self, timeout_s: float) -> bool:
        """End the thread; returns whether it ended in time."""
        self._is_closed = True
        self._slots.release()
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def follow(self, partition: int, instance: int, offset: int, end_offset: int) -> None:
        """Read a partition from an offset on, under an instance."""
        self._commands.put(lambda: self._follow(partition, offset, Following(instance, end_offset)))

    def forget(self, partition: int) -> None:
        """Read a partition no more."""
        self._commands.put(lambda: self._forget(partition))

    def _follow(self, partition: int, offset: int, following: Following) -> None:
        self._forget(partition)
        self._following[partition] = following
        self._consumer.incremental_assign([TopicPartition(self._config.topic, partition, offset)])

    def _forget(self, partition: int) -> None:
        if self._following.pop(partition, None) is not None:
            self._consumer.incremental_unassign([TopicPartition(self._config.topic, partition)])

    def _run(self) -> None:
        while not self._is_closed:
            try:
                self._carry_out_commands()
                messages = self._next_messages()
                found = self._sort(messages) if messages else None
            except Exception as bug:  # it ends the loads under way, which begin again; never the thread
                found = self._give_up(bug)
            if found is not None:
                self._slots.acquire()
                self._hand_over(found, self._slots.release)
        self._consumer.close()

    def _give_up(self, bug: Exception) -> Found:
        error = KafkaError(KafkaError._FAIL, repr(bug))
        failed = [(partition, following.instance, -1, error) for partition, following in self._following.items()]
        self._following.clear()
        self._consumer.unassign()
        return Found([], [], failed)

    def _carry_out_commands(self) -> None:
        try:
            command = self._commands.get(timeout=None if self._following else POLL_S, block=not self._following)
            while True:
                command()
                command = self._commands.get_nowait()
        except Empty:
            return

    def _next_messages(self) -> list[Message]:
        if not self._following:
            return []
        first = self._consumer.poll(POLL_S)
        if first is None:
            return []
        return [first, *self._consumer.consume(self._config.batch_records_max - 1, 0)]

    def _sort(self, messages: list[Message]) -> Found:
        by_partition: dict[int, list[LogRecord]] = {}
        ends: dict[int, int] = {}
        failed: list[tuple[int, int, int, KafkaError]] = []
        following = self._following
        for message in messages:
            partition, offset = message.partition(), message.offset()
            if partition is None or partition not in following:
                continue
            error = message.error()
            if offset is None or error is not None:
                assert error is not None, "only errors come without an offset"
                offset = -1 if offset is None else offset
                if error.code() == KafkaError._PARTITION_EOF:
                    ends[partition] = offset
                else:
                    failed.append((partition, following[partition].instance, offset, error))
                continue
            record = LogRecord(offset, message.key(), message.value(), header_of(message))
            records = by_partition.get(partition)
            if records is None:
                by_partition[partition] = [record]
            else:
                records.append(record)
        read = [(partition, following[partition].instance, records) for partition, records in by_partition.items()]
        ended = self._ended(by_partition, ends)
        for partition, _, _, _ in failed:
            self._forget(partition)
        return Found(read, ended, failed)

    def _ended(self, read: dict[int, list[LogRecord]], ends: dict[int, int]) -> list[tuple[int, int, int]]:
        for partition, records in read.items():
            next_offset = records[-1].offset + 1
            if next_offset >= self._following[partition].end_offset:
                ends[partition] = next_offset
        ended = [(partition, self._following[partition].instance, offset) for partition, offset in ends.items()]
        for partition in ends:
            self._forget(partition)
        return ended


def header_of(message: Message) -> bytes | None:
    """Return the `hf` header of a message; of several the last one, as Kafka's clients do."""
    headers: Any = message.headers()
    if not headers:
        return None
    name, value = headers[-1]
    if name == HEADER_NAME:
        return cast("bytes | None", value)
    return next((value for name, value in reversed(headers) if name == HEADER_NAME), None)
