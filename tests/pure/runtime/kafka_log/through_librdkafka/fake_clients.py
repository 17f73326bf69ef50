"""Fakes in the place of librdkafka's clients: they return and acknowledge what a test says."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, TopicPartition


class Message:
    """A record of a log partition, or an error; in a report of a producer only its offset counts."""

    def __init__(self, offset: int | None, error: int | None = None, text: str = "", partition: int | None = 0) -> None:
        self._offset = offset
        self._error = None if error is None else KafkaError(error, text)
        self._partition = partition

    def partition(self) -> int | None:
        return self._partition

    def offset(self) -> int | None:
        return self._offset

    def error(self) -> KafkaError | None:
        return self._error

    def key(self) -> bytes:
        return b"k"

    def value(self) -> bytes:
        return b"v"

    def headers(self) -> list[tuple[str, bytes]]:
        return [("hf", str(self._offset).encode())]

    def leader_epoch(self) -> int:
        return 3


Delivered = Callable[[KafkaError | None, Message], None]


class FakeProducer:
    """Takes records, and reports on them when it is polled and the test has settled them."""

    def __init__(self) -> None:
        #: (partition, header) of each record, in order.
        self.taken: list[tuple[int, bytes]] = []
        self.waiting: list[Delivered] = []
        self.is_full = False
        self.is_purged = False
        self._settled: queue.Queue[tuple[Delivered, KafkaError | None, int | None]] = queue.Queue()

    def __len__(self) -> int:
        return len(self.waiting)

    def produce(self, topic: str, value: bytes | None, key: bytes, partition: int, **given: Any) -> None:
        if self.is_full:
            raise BufferError("Local: Queue full")
        ((_, header),) = given["headers"]
        self.taken.append((partition, header))
        self.waiting.append(given["on_delivery"])

    def settle(self, error: int | None = None, offset: int | None = None) -> None:
        """Acknowledge the oldest record, at an offset or without one, or let it fail."""
        self._settled.put((self.waiting.pop(0), None if error is None else KafkaError(error), offset))

    def poll(self, timeout: float) -> int:
        try:
            delivered, error, offset = self._settled.get(timeout=min(timeout, 0.01))
        except queue.Empty:
            return 0
        delivered(error, Message(offset))
        return 1

    def purge(self, blocking: bool = True) -> None:
        self.is_purged = True


class FakeConsumer:
    """Returns messages that the test gives."""

    def __init__(self) -> None:
        self.messages: queue.Queue[Message | Exception] = queue.Queue()
        self.assigned: dict[int, tuple[int, int | None]] = {}
        self.log_start = 0
        self.polls = 0
        self.closed = threading.Event()

    def incremental_assign(self, places: list[TopicPartition]) -> None:
        self.assigned |= {place.partition: (place.offset, place.leader_epoch) for place in places}

    def incremental_unassign(self, places: list[TopicPartition]) -> None:
        for place in places:
            del self.assigned[place.partition]

    def poll(self, timeout: float) -> Message | None:
        self.polls += 1
        try:
            given = self.messages.get(timeout=min(timeout, 0.005))
        except queue.Empty:
            return None
        if isinstance(given, Exception):
            raise given
        return given

    def consume(self, count: int, timeout: float) -> list[Message]:
        found: list[Message] = []
        while len(found) < count and not self.messages.empty():
            given = self.messages.get()
            assert isinstance(given, Message)
            found.append(given)
        return found

    def get_watermark_offsets(self, place: TopicPartition, cached: bool) -> tuple[int, int]:
        return self.log_start, -1

    def close(self) -> None:
        self.closed.set()


class FakeClients:
    """Makes fakes in the place of producers and consumers."""

    principal = "User:node"

    def __init__(self) -> None:
        self.renewals = 0
        self.producers: list[FakeProducer] = []
        self.consumers: list[FakeConsumer] = []
        #: Messages that the first consumer returns at once.
        self.first: list[Message] = []

    def producer(self, settings: dict[str, Any]) -> FakeProducer:
        self.producers.append(FakeProducer())
        return self.producers[-1]

    def consumer(self, name: str, settings: dict[str, Any]) -> FakeConsumer:
        consumer = FakeConsumer()
        for message in self.first if not self.consumers else ():
            consumer.messages.put(message)
        self.consumers.append(consumer)
        return consumer
