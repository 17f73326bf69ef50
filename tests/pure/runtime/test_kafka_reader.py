"""The reader of loads against a consumer that gives what it is told to."""

import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaError, TopicPartition

from holdfast.runtime.broker_connection import ConnectionOptions
from holdfast.runtime.kafka_log import KafkaLogConfig
from holdfast.runtime.kafka_reader import Found, KafkaReader, header_of
from holdfast.runtime.log import LogRecord

WAIT_S = 5.0


class FakeMessage(NamedTuple):
    """What the consumer gives: a record or an error."""

    at: int | None
    place: int | None
    problem: KafkaError | None = None
    header_list: Any = None

    def partition(self) -> int | None:
        return self.at

    def offset(self) -> int | None:
        return self.place

    def error(self) -> KafkaError | None:
        return self.problem

    def key(self) -> bytes:
        return b"key"

    def value(self) -> bytes:
        return b"value"

    def headers(self) -> Any:
        return self.header_list


class FakeConsumer:
    """Gives one list of messages after the other; an exception in place of a list is raised."""

    def __init__(self) -> None:
        self.batches: list[list[FakeMessage] | Exception] = []
        self.assigned: dict[int, int] = {}
        self._rest: list[FakeMessage] = []

    def poll(self, _: float) -> FakeMessage | None:
        if not self.batches:
            return None
        batch = self.batches.pop(0)
        if isinstance(batch, Exception):
            raise batch
        first, *self._rest = batch
        return first

    def consume(self, _: int, __: float) -> list[FakeMessage]:
        rest, self._rest = self._rest, []
        return rest

    def incremental_assign(self, places: list[TopicPartition]) -> None:
        self.assigned |= {place.partition: place.offset for place in places}

    def incremental_unassign(self, places: list[TopicPartition]) -> None:
        for place in places:
            del self.assigned[place.partition]

    def unassign(self) -> None:
        self.assigned.clear()

    def close(self) -> None:
        self.assigned.clear()


class Collector:
    """Takes what the reader hands over."""

    def __init__(self) -> None:
        self.found: list[Found] = []
        self._changed = threading.Condition()

    def take(self, found: Found, done: Callable[[], None]) -> None:
        with self._changed:
            self.found.append(found)
            self._changed.notify_all()
        done()

    def wait(self, count: int) -> list[Found]:
        """Wait until so many batches came and return them."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.found) >= count, WAIT_S)
        return self.found


@pytest.fixture
def consumer() -> FakeConsumer:
    return FakeConsumer()


@pytest.fixture
def collector() -> Collector:
    return Collector()


@pytest.fixture
def reader(consumer: FakeConsumer, collector: Collector) -> Iterator[KafkaReader]:
    config = KafkaLogConfig(
        topic="topic",
        connection=ConnectionOptions(bootstrap=(("127.0.0.1", 1),)),
        client={"bootstrap.servers": "127.0.0.1:1", "log_level": 0},
    )
    reader = KafkaReader(config, collector.take)
    reader._consumer = consumer  # type: ignore[assignment]
    reader.start()
    yield reader
    assert reader.close(WAIT_S)


def record(partition: int, offset: int) -> FakeMessage:
    return FakeMessage(partition, offset, None, [("hf", b"h")])


def told(partition: int, instance: int, *offsets: int) -> tuple[int, int, list[LogRecord]]:
    return partition, instance, [LogRecord(offset, b"key", b"value", b"h") for offset in offsets]


def test_load_ends_where_the_log_ended(reader: KafkaReader, consumer: FakeConsumer, collector: Collector) -> None:
    consumer.batches = [[record(0, 5), record(1, 0), record(0, 6)], [record(0, 7), record(0, 8)]]
    reader.follow(1, 2, 0, 100)
    reader.follow(0, 1, 5, 8)
    assert collector.wait(2) == [
        Found([told(0, 1, 5, 6), told(1, 2, 0)], [], []),
        Found([told(0, 1, 7, 8)], [(0, 1, 9)], []),
    ]
    assert consumer.assigned == {1: 0}


def test_load_ends_where_no_record_lies(reader: KafkaReader, consumer: FakeConsumer, collector: Collector) -> None:
    consumer.batches = [[record(0, 5), FakeMessage(0, 9, KafkaError(KafkaError._PARTITION_EOF))]]
    reader.follow(0, 1, 5, 9)
    assert collector.wait(1) == [Found([told(0, 1, 5)], [(0, 1, 9)], [])]


@pytest.mark.parametrize("offset", [5, None])
def test_error_of_a_partition_ends_its_load_alone(
    reader: KafkaReader, consumer: FakeConsumer, collector: Collector, offset: int | None
) -> None:
    error = KafkaError(KafkaError._AUTO_OFFSET_RESET)
    consumer.batches = [[FakeMessage(0, offset, error), record(1, 0)], [record(0, 6), record(1, 1)]]
    reader.follow(0, 1, 5, 9)
    reader.follow(1, 2, 0, 9)
    first, second = collector.wait(2)
    assert (first.records, first.ended) == ([told(1, 2, 0)], [])
    assert [failed[:3] for failed in first.failed] == [(0, 1, -1 if offset is None else offset)]
    assert second == Found([told(1, 2, 1)], [], [])


def test_error_of_no_partition_is_no_loads_business(
    reader: KafkaReader, consumer: FakeConsumer, collector: Collector
) -> None:
    consumer.batches = [[FakeMessage(None, None, KafkaError(KafkaError._ALL_BROKERS_DOWN)), record(0, 0)]]
    reader.follow(0, 1, 0, 9)
    assert collector.wait(1) == [Found([told(0, 1, 0)], [], [])]


def test_exception_ends_the_loads_under_way_and_the_next_ones_go_on(
    reader: KafkaReader, consumer: FakeConsumer, collector: Collector
) -> None:
    consumer.batches = [[record(0, 0)]]
    reader.follow(0, 1, 0, 9)
    collector.wait(1)
    consumer.batches = [RuntimeError("a bug")]
    (_, found) = collector.wait(2)
    assert [failed[:3] for failed in found.failed] == [(0, 1, -1)]
    assert "a bug" in found.failed[0][3].str()
    consumer.batches = [[record(0, 0)]]
    reader.follow(0, 2, 0, 9)
    assert collector.wait(3)[2] == Found([told(0, 2, 0)], [], [])


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        (None, None),
        ([], None),
        ([("x", b"1")], None),
        ([("hf", b"1")], b"1"),
        ([("hf", b"1"), ("hf", b"2")], b"2"),
        ([("hf", b"1"), ("x", b"2")], b"1"),
        ([("hf", None)], None),
    ],
)
def test_header_is_the_last_of_its_name(headers: Any, found: bytes | None) -> None:
    assert header_of(FakeMessage(0, 0, None, headers)) == found  # type: ignore[arg-type]
