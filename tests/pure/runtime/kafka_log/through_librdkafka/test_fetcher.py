"""Records on their way in through a consumer of librdkafka, which a fake stands for."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator

import pytest
from confluent_kafka import KafkaError

from holdfast.runtime.kafka_log.bug_reports import BugReports
from holdfast.runtime.kafka_log.through_librdkafka.fetcher import LibrdkafkaFetcher, RecordSource
from holdfast.runtime.log_protocol import LogRecord, ReadError
from tests.pure.runtime.kafka_log.fetcher_world import make_metrics
from tests.pure.runtime.kafka_log.through_librdkafka.fake_clients import FakeClients, FakeConsumer, Message
from tests.waiting import PATIENCE_S, block_until, wait_until


class Listener:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.positions: list[int] = []
        self.errors: list[ReadError] = []
        self.ends: list[tuple[int, int, int, int]] = []
        self.log_starts: list[int] = []
        self.lines: list[str] = []

    def records_read(self, partition: int, instance: int, records: list[LogRecord]) -> None:
        self.offsets += [record.offset for record in records]

    def position_reached(self, partition: int, instance: int, next_offset: int) -> None:
        self.positions.append(next_offset)

    def read_failed(self, partition: int, instance: int, error: ReadError) -> None:
        self.errors.append(error)

    def log_start_moved(self, partition: int, instance: int, log_start_offset: int) -> None:
        self.log_starts.append(log_start_offset)

    def ended(self, *end: int) -> None:
        self.ends.append(end)  # type: ignore[arg-type]

    def say(self, level: int, kind: str, client: str, text: str) -> None:
        self.lines.append(text)


@pytest.fixture
def clients() -> FakeClients:
    return FakeClients()


@pytest.fixture
def listener() -> Listener:
    return Listener()


@pytest.fixture
async def fetcher(clients: FakeClients, listener: Listener) -> AsyncIterator[LibrdkafkaFetcher]:
    fetcher = make_fetcher(clients, listener, PATIENCE_S)
    yield fetcher
    await fetcher.close()


def make_fetcher(clients: FakeClients, listener: Listener, patience_s: float) -> LibrdkafkaFetcher:
    return LibrdkafkaFetcher(
        "tail",
        RecordSource(clients, {}, "topic", 2, patience_s),  # type: ignore[arg-type]
        lambda: listener,  # type: ignore[arg-type,return-value]
        listener.ended,
        BugReports(make_metrics().internal_errors),
        listener.say,
    )


async def consumer_of(clients: FakeClients, number: int = 0) -> FakeConsumer:
    await wait_until(
        lambda: len(clients.consumers) > number and clients.consumers[number].assigned, "it is given a partition"
    )
    return clients.consumers[number]


async def test_records_are_reported_in_order_and_the_end_moves_the_position(
    fetcher: LibrdkafkaFetcher, clients: FakeClients, listener: Listener
) -> None:
    fetcher.follow(0, 1, 5, last_epoch=2)
    consumer = await consumer_of(clients)
    assert consumer.assigned == {0: (5, 2)}
    for message in (Message(5), Message(6), Message(7), Message(9, KafkaError._PARTITION_EOF)):
        consumer.messages.put(message)
    await wait_until(lambda: listener.positions and listener.positions[-1] == 9)
    assert listener.offsets == [5, 6, 7]


@pytest.mark.parametrize(
    ("code", "said", "text", "is_alarm"),
    [
        (KafkaError._BAD_MSG, "CRC", "the record batch at offset 6 is damaged: CRC", True),
        (KafkaError._AUTO_OFFSET_RESET, "out of range", "offset 6 is out of range", False),
        (KafkaError._AUTO_OFFSET_RESET, "log truncation", "the log was truncated below offset 6", True),
        (
            KafkaError.UNKNOWN_TOPIC_OR_PART,
            "no topic",
            "the broker answered UNKNOWN_TOPIC_OR_PART: no topic",
            False,
        ),
    ],
)
async def test_an_error_ends_the_reading_and_nothing_after_it_is_reported(
    fetcher: LibrdkafkaFetcher,
    clients: FakeClients,
    listener: Listener,
    code: int,
    said: str,
    text: str,
    is_alarm: bool,
) -> None:
    clients.first = [Message(0, code, said), Message(8), Message(9)]
    fetcher.follow(0, 1, 6)
    await wait_until(lambda: listener.errors)
    assert listener.errors == [ReadError(text, is_alarm)]
    await wait_until(lambda: not clients.consumers[0].assigned, "it is followed no more")
    assert listener.offsets == []


async def test_a_load_ends_at_its_end_with_the_leader_epoch_below(
    fetcher: LibrdkafkaFetcher, clients: FakeClients, listener: Listener
) -> None:
    fetcher.follow(0, 1, 5, end_offset=7)
    consumer = await consumer_of(clients)
    for message in (Message(5), Message(6), Message(7)):
        consumer.messages.put(message)
    await wait_until(lambda: listener.ends)
    assert listener.ends == [(0, 1, 7, 3)]
    await wait_until(lambda: not consumer.assigned)
    assert listener.offsets == [5, 6]


async def test_a_loop_that_takes_nothing_makes_the_thread_wait(
    fetcher: LibrdkafkaFetcher, clients: FakeClients, listener: Listener
) -> None:
    fetcher.follow(0, 1, 0)
    consumer = await consumer_of(clients)
    await wait_until(lambda: listener.log_starts)  # the one thing that is handed over in addition to records
    for offset in range(100):
        consumer.messages.put(Message(offset))
    # The loop stands still: two slices of two records wait for it, and the thread holds a third.
    block_until(lambda: consumer.messages.qsize() <= 94)
    polls = consumer.polls
    threading.Event().wait(0.05)
    assert (consumer.messages.qsize(), consumer.polls) == (94, polls)
    await wait_until(lambda: len(listener.offsets) == 100)
    assert listener.offsets == list(range(100))


async def test_late_records_of_a_forgotten_partition_are_dropped(
    fetcher: LibrdkafkaFetcher, clients: FakeClients, listener: Listener
) -> None:
    fetcher.follow(0, 1, 0)
    consumer = await consumer_of(clients)
    fetcher.forget(0)
    fetcher.follow(0, 2, 7)
    await wait_until(lambda: consumer.assigned.get(0, (0, None))[0] == 7)
    consumer.messages.put(Message(7))
    await wait_until(lambda: listener.offsets == [7])


async def test_renewed_credentials_make_another_consumer_that_goes_on(
    fetcher: LibrdkafkaFetcher, clients: FakeClients, listener: Listener
) -> None:
    fetcher.follow(0, 1, 0)
    consumer = await consumer_of(clients)
    consumer.messages.put(Message(0))
    await wait_until(lambda: listener.offsets == [0])
    clients.renewals += 1
    assert (await consumer_of(clients, 1)).assigned == {0: (1, 3)}
    assert consumer.closed.is_set()


@pytest.mark.parametrize("is_load", [False, True], ids=["tail", "load"])
async def test_a_consumer_that_reads_nothing_of_what_the_log_holds_is_replaced(
    fetcher: LibrdkafkaFetcher, clients: FakeClients, listener: Listener, is_load: bool
) -> None:
    fetcher.follow(0, 1, 0, end_offset=2 if is_load else None)
    consumer = await consumer_of(clients)
    if not is_load:
        fetcher.reach(0, 2)
    consumer.messages.put(Message(0))
    await wait_until(lambda: listener.offsets == [0])
    fetcher._look()  # it has gone on since
    fetcher._look()
    assert fetcher._wait_s == 2 * PATIENCE_S
    another = await consumer_of(clients, 1)
    assert another.assigned == {0: (1, 3)}
    assert consumer.closed.is_set()
    another.messages.put(Message(1))
    await wait_until(lambda: listener.offsets == [0, 1])
    fetcher._look()
    assert (len(clients.consumers), fetcher._next_look) == (2, None), "nobody looks at what has reached the end"
    assert fetcher._wait_s == PATIENCE_S


async def test_who_is_followed_anew_is_not_taken_for_stuck(
    fetcher: LibrdkafkaFetcher, clients: FakeClients, listener: Listener
) -> None:
    fetcher.follow(0, 1, 7)
    consumer = await consumer_of(clients)
    fetcher.reach(0, 8)
    fetcher.follow(0, 2, 7)
    fetcher.reach(0, 8)
    fetcher._look()
    assert fetcher._reader._replacements == 0
    fetcher._look()
    assert fetcher._reader._replacements == 1
    (await consumer_of(clients, 1)).messages.put(Message(7))
    await wait_until(lambda: listener.offsets == [7])
    assert consumer.closed.is_set()


async def test_who_reads_nothing_is_replaced_after_ever_longer_waits(clients: FakeClients, listener: Listener) -> None:
    fetcher = make_fetcher(clients, listener, patience_s=0.01)
    fetcher.follow(0, 1, 0)
    fetcher.reach(0, 1)
    await wait_until(lambda: fetcher._wait_s == 0.16, "the longest wait")
    await consumer_of(clients, 1)
    await fetcher.close()


async def test_exception_of_librdkafka_fails_partitions_and_replaces_the_client(
    fetcher: LibrdkafkaFetcher, clients: FakeClients, listener: Listener
) -> None:
    fetcher.follow(0, 1, 0)
    (await consumer_of(clients)).messages.put(RuntimeError("gone"))
    await wait_until(lambda: listener.errors)
    assert "RuntimeError('gone')" in listener.errors[0].text
    fetcher.follow(0, 2, 0)
    await consumer_of(clients, 1)


async def test_an_error_of_no_partition_is_a_line(
    fetcher: LibrdkafkaFetcher, clients: FakeClients, listener: Listener
) -> None:
    fetcher.follow(0, 1, 0)
    (await consumer_of(clients)).messages.put(Message(0, KafkaError._ALL_BROKERS_DOWN, "all down", None))
    await wait_until(lambda: listener.lines == ["all down"])
    assert listener.errors == []


async def test_a_log_start_that_moved_is_reported_once(
    fetcher: LibrdkafkaFetcher, clients: FakeClients, listener: Listener
) -> None:
    fetcher.follow(0, 1, 0)
    consumer = await consumer_of(clients)
    await wait_until(lambda: listener.log_starts == [0])
    consumer.log_start = 4
    await wait_until(lambda: listener.log_starts == [0, 4])
    assert not consumer.closed.wait(0)


async def test_a_close_ends_consumer_and_thread(fetcher: LibrdkafkaFetcher, clients: FakeClients) -> None:
    fetcher.follow(0, 1, 0)
    consumer = await consumer_of(clients)
    await fetcher.close()
    assert consumer.closed.wait(PATIENCE_S)
