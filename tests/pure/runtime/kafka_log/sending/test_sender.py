"""The sender against brokers that answer or do not: the contents of requests, and the close."""

import asyncio

from holdfast.kafka.protocol import requests
from holdfast.runtime.kafka_log.sending.sender import Sender
from holdfast.runtime.kafka_log.sent_batches import SentBatch, SentBatches
from tests.pure.kafka.brokers.fake_brokers import FakeBrokers
from tests.pure.runtime.kafka_log.fetcher_world import make_metrics
from tests.pure.runtime.kafka_log.sending.sender_world import (
    CONFIG,
    batches_of,
    make_sender,
    sent_of,
)
from tests.waiting import wait_until


async def test_one_request_for_all_that_a_turn_appends(sender: Sender, brokers: FakeBrokers) -> None:
    for partition in (0, 1, 2, 0):
        sender.append(partition, b"k", b"%d" % partition, b"h")
    await brokers.wait_requests(2)
    by_broker = {broker_id: batches_of(body) for broker_id, _, body in brokers.requests}
    assert by_broker == {1: {0: [b"0", b"0"], 1: [b"1"]}, 2: {2: [b"2"]}}


async def test_next_batch_lingers_while_one_is_in_flight(sender: Sender, brokers: FakeBrokers) -> None:
    brokers.withhold_answers()
    sender.append(0, b"k", b"1", b"h1")
    await brokers.wait_requests(1)
    sender.append(0, b"k", b"2", b"h2")
    sender.append(0, b"k", b"3", b"h3")
    sender.append(1, b"k", b"other", b"h1")
    await brokers.wait_requests(2)
    assert batches_of(brokers.requests[1][2]) == {1: [b"other"]}
    brokers.release_answers()
    await brokers.wait_requests(3)
    assert batches_of(brokers.requests[2][2]) == {0: [b"2", b"3"]}
    assert [(sent.record_count, sent.first_header, sent.last_header) for sent in sent_of(sender, 0)] == [
        (1, b"h1", b"h1"),
        (2, b"h2", b"h3"),
    ]


async def test_waiting_records_are_sent_before_last_batch_is_reported(
    brokers: FakeBrokers,
) -> None:
    sent_when_told: list[list[bytes]] = []

    def landed(partition: int, batch: SentBatch, base_offset: int) -> None:
        sent_when_told.append([sent.first_header for sent in sent_of(own, partition)])

    own = Sender(CONFIG, brokers, SentBatches(), landed, lambda *_: None, lambda: 1_000, make_metrics())  # type: ignore[arg-type]
    brokers.withhold_answers()
    own.append(0, b"k", b"1", b"h1")
    await brokers.wait_requests(1)
    own.append(0, b"k", b"2", b"h2")
    brokers.release_answers()
    await wait_until(lambda: len(sent_when_told) == 2)
    assert sent_when_told == [[b"h1", b"h2"], [b"h1", b"h2"]]
    await own.close(1)


async def test_nothing_is_sent_after_close() -> None:
    brokers = FakeBrokers({0: 1, 1: 1})
    sender = make_sender(brokers)
    brokers.withhold_answers()
    sender.append(0, b"k", b"1", b"h")
    await brokers.wait_requests(1)
    assert not await sender.close(0)
    sender.append(1, b"k", b"2", b"h")
    brokers.release_answers()
    await wait_until(lambda: not sender._in_flight)
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(brokers.requests) == 1


async def test_request_is_bounded_in_bytes() -> None:
    brokers = FakeBrokers(dict.fromkeys(range(3), 1))
    sender = make_sender(brokers, request_bytes_max=1)
    for partition in range(3):
        sender.append(partition, b"k", b"1", b"h")
    assert await sender.close(5)
    assert [list(batches_of(body)) for _, _, body in brokers.requests] == [[0], [1], [2]]


async def test_close_sends_what_lingers_and_waits_for_its_answer(sender: Sender, brokers: FakeBrokers) -> None:
    sender.append(0, b"k", b"1", b"h1")
    assert await sender.close(5)
    assert batches_of(brokers.requests[0][2]) == {0: [b"1"]}


async def test_close_gives_up_in_time(sender: Sender, brokers: FakeBrokers) -> None:
    brokers.withhold_answers()
    sender.append(0, b"k", b"1", b"h1")
    await brokers.wait_requests(1)
    assert not await sender.close(0.05)
    await wait_until(lambda: not sender._tasks)


def test_versions_are_those_of_the_frames() -> None:
    assert requests.PRODUCE == (0, 8)
