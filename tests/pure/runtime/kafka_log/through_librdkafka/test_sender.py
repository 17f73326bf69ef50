"""Records on their way through producers of librdkafka, which a fake stands for."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from confluent_kafka import KafkaError

from holdfast.runtime.errors import AppendRefused
from holdfast.runtime.kafka_log.through_librdkafka.sender import LibrdkafkaSender, SenderBounds
from tests.pure.runtime.kafka_log.fetcher_world import make_metrics
from tests.pure.runtime.kafka_log.through_librdkafka.fake_clients import FakeClients
from tests.waiting import PATIENCE_S, wait_until

Failures = list[tuple[int, bytes, str]]


@pytest.fixture
def clients() -> FakeClients:
    return FakeClients()


@pytest.fixture
def failures() -> Failures:
    return []


@pytest.fixture
def appended() -> list[tuple[int, int]]:
    return []


@pytest.fixture
async def sender(
    clients: FakeClients, failures: Failures, appended: list[tuple[int, int]]
) -> AsyncIterator[LibrdkafkaSender]:
    bounds = SenderBounds(message_bytes_max=1_000, producers_max=2, queue_records_max=4, queue_bytes_max=100_000)

    def failed(partition: int, header: bytes, why: str) -> None:
        failures.append((partition, header, why))

    def took(partition: int, offset: int) -> None:
        appended.append((partition, offset))

    sender = LibrdkafkaSender(bounds, clients, {}, "topic", took, failed, lambda: 1_000, make_metrics())  # type: ignore[arg-type]
    yield sender
    await sender.close(0)


async def test_a_group_waits_until_each_record_before_has_its_report(
    sender: LibrdkafkaSender, clients: FakeClients
) -> None:
    sender.append(0, b"k", b"v", b"h0")
    sender.append(0, b"k", b"v", b"h1")
    await wait_until(lambda: clients.producers and len(clients.producers[0].taken) == 2)
    producer = clients.producers[0]
    sender.append(0, b"k", None, b"h2")
    producer.settle()
    await wait_until(lambda: sender._records == 2, "the first report is taken")
    assert [header for _, header in producer.taken] == [b"h0", b"h1"]
    producer.settle()
    await wait_until(lambda: [header for _, header in producer.taken] == [b"h0", b"h1", b"h2"], "the next group")


async def test_partitions_share_no_group_and_keep_to_their_producers(
    sender: LibrdkafkaSender, clients: FakeClients
) -> None:
    for partition in range(4):
        sender.append(partition, b"k", b"v", b"h")
    await wait_until(lambda: sum(len(each.taken) for each in clients.producers) == 4)
    assert sorted(sorted(index for index, _ in each.taken) for each in clients.producers) == [[0, 2], [1, 3]]


async def test_a_record_that_failed_is_reported_with_its_header(
    sender: LibrdkafkaSender, clients: FakeClients, failures: Failures
) -> None:
    sender.append(0, b"k", b"v", b"h0")
    await wait_until(lambda: clients.producers and clients.producers[0].waiting)
    clients.producers[0].settle(KafkaError._MSG_TIMED_OUT)
    await wait_until(lambda: failures)
    assert [(partition, header) for partition, header, _ in failures] == [(0, b"h0")]
    assert sender._metrics.appends_failed.value == 1


async def test_the_offset_of_an_acknowledged_record_is_told(
    sender: LibrdkafkaSender, clients: FakeClients, appended: list[tuple[int, int]]
) -> None:
    for header in (b"h0", b"h1", b"h2"):
        sender.append(1, b"k", b"v", header)
    await wait_until(lambda: clients.producers and len(clients.producers[0].waiting) == 3)
    clients.producers[0].settle(KafkaError._MSG_TIMED_OUT)
    clients.producers[0].settle()
    clients.producers[0].settle(offset=7)
    await wait_until(lambda: not sender._records, "all reports are taken")
    assert appended == [(1, 7)]


async def test_records_that_librdkafka_refuses_after_they_were_taken_have_failed(
    sender: LibrdkafkaSender, clients: FakeClients, failures: Failures
) -> None:
    sender.append(0, b"k", b"v", b"h0")
    await wait_until(lambda: clients.producers and clients.producers[0].waiting)
    clients.producers[0].is_full = True
    sender.append(0, b"k", b"v", b"h1")
    clients.producers[0].settle()
    await wait_until(lambda: failures)
    assert failures == [(0, b"h1", "librdkafka refused it: Local: Queue full")]
    assert sender._records == sender._bytes == 0


async def test_too_large_record_or_too_many_records_are_refused(sender: LibrdkafkaSender) -> None:
    with pytest.raises(AppendRefused) as refused:
        sender.append(0, b"k", bytes(1_000), b"h")
    assert refused.value.is_too_large
    for number in range(4):
        sender.append(0, b"k", b"v", b"h%d" % number)
    with pytest.raises(AppendRefused, match="4 records wait already, 4 of them in this partition") as refused:
        sender.append(0, b"k", b"v", b"h4")
    assert not refused.value.is_too_large
    sender.append(1, b"k", b"v", b"h")  # the queue is full of others' records


async def test_waiting_records_of_a_forgotten_partition_are_dropped(
    sender: LibrdkafkaSender, clients: FakeClients
) -> None:
    sender.append(0, b"k", b"v", b"h0")
    await wait_until(lambda: clients.producers and clients.producers[0].waiting)
    sender.append(0, b"k", b"v", b"h1")
    sender.forget(0)
    sender.append(0, b"k", b"v", b"checkpoint")
    clients.producers[0].settle()
    await wait_until(lambda: [header for _, header in clients.producers[0].taken] == [b"h0", b"checkpoint"])


async def test_renewed_credentials_make_a_producer_when_nothing_is_outstanding(
    sender: LibrdkafkaSender, clients: FakeClients
) -> None:
    sender.append(0, b"k", b"v", b"h0")
    await wait_until(lambda: clients.producers and clients.producers[0].waiting)
    clients.renewals += 1
    sender.append(0, b"k", b"v", b"h1")
    assert len(clients.producers) == 1
    clients.producers[0].settle()
    await wait_until(lambda: len(clients.producers) == 2 and clients.producers[1].taken == [(0, b"h1")])
    assert clients.producers[0].is_purged


async def test_producer_is_replaced_when_the_time_of_a_record_is_over(
    sender: LibrdkafkaSender, clients: FakeClients, failures: Failures
) -> None:
    sender.append(0, b"k", b"v", b"h0")
    sender.append(2, b"k", b"v", b"h0")
    await wait_until(lambda: clients.producers and len(clients.producers[0].waiting) == 2)
    clients.producers[0].settle(KafkaError._MSG_TIMED_OUT)
    await wait_until(lambda: failures)
    sender.append(0, b"k", b"v", b"h1")
    await wait_until(lambda: len(clients.producers) == 2 and clients.producers[1].taken == [(0, b"h1")])
    assert not clients.producers[0].is_purged, "it has a record without a report"
    sender.append(2, b"k", b"v", b"h1")
    clients.producers[0].settle()
    await wait_until(lambda: clients.producers[1].taken == [(0, b"h1"), (2, b"h1")])
    assert clients.producers[0].is_purged
    clients.producers[1].settle(KafkaError._MSG_TIMED_OUT)
    clients.producers[1].settle(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    await wait_until(lambda: len(failures) == 3)
    sender.append(1, b"k", b"v", b"h")
    sender.append(0, b"k", b"v", b"h2")
    await wait_until(lambda: len(clients.producers) == 4, "another log partition's producer, and the third of this one")


async def test_a_close_waits_for_reports_and_gives_up_in_time(sender: LibrdkafkaSender, clients: FakeClients) -> None:
    sender.append(0, b"k", b"v", b"h0")
    await wait_until(lambda: clients.producers and clients.producers[0].waiting)
    assert not await sender.close(0.01)
    assert clients.producers[0].is_purged


async def test_a_close_sends_what_waits(sender: LibrdkafkaSender, clients: FakeClients) -> None:
    sender.append(0, b"k", b"v", b"h0")
    sender._flush()
    clients.producers[0].settle()
    assert await sender.close(PATIENCE_S)
