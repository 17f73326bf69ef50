"""The accumulator: bounds of a batch, of waiting records, and of each partition's share of them."""

import asyncio

import pytest

from holdfast.runtime.errors import AppendRefused
from holdfast.runtime.kafka_log.sending.sender import Sender
from holdfast.runtime.kafka_log.sent_batches import SentBatches
from tests.configs import accumulator_config
from tests.pure.kafka.brokers.fake_brokers import FakeBrokers
from tests.pure.runtime.kafka_log.fetcher_world import make_metrics
from tests.pure.runtime.kafka_log.sending.sender_world import (
    CONFIG,
    batches_of,
    make_sender,
    sent_of,
)
from tests.waiting import wait_until


async def test_batches_stay_within_the_topics_limit(sender: Sender, brokers: FakeBrokers) -> None:
    for number in range(10):
        sender.append(0, b"k", bytes([number]) * 200, b"h" * 13)
    await wait_until(lambda: sum(sent.record_count for sent in sent_of(sender, 0)) == 10)
    await brokers.wait_requests(len(sent_of(sender, 0)))
    values = [value for _, _, body in brokers.requests for value in batches_of(body)[0]]
    assert values == [bytes([number]) * 200 for number in range(10)]
    assert all(len(sent.data) <= CONFIG.accumulator.batch_bytes_max for sent in sent_of(sender, 0))


@pytest.mark.parametrize("size", [CONFIG.accumulator.batch_bytes_max - 103, CONFIG.accumulator.batch_bytes_max - 102])
async def test_largest_record_that_is_taken_fits(sender: Sender, brokers: FakeBrokers, size: int) -> None:
    is_too_large = size > CONFIG.accumulator.batch_bytes_max - 103
    if is_too_large:
        with pytest.raises(AppendRefused, match=r"max\.message\.bytes is 1000") as refused:
            sender.append(0, b"", bytes(size), b"h" * 13)
        assert refused.value.is_too_large
        return
    sender.append(0, b"", bytes(size), b"h" * 13)
    await brokers.wait_requests(1)
    assert len(sent_of(sender, 0)[0].data) <= CONFIG.accumulator.batch_bytes_max


async def test_too_many_records_are_refused_until_some_were_sent(sender: Sender, brokers: FakeBrokers) -> None:
    for _ in range(CONFIG.accumulator.producer_queue_records_max):
        sender.append(0, b"k", b"v", b"h")
    with pytest.raises(AppendRefused, match="20 records wait to be sent already, 20 of them in this") as refused:
        sender.append(0, b"k", b"v", b"h")
    assert not refused.value.is_too_large
    await brokers.wait_requests(1)
    sender.append(0, b"k", b"v", b"h")


async def test_silent_broker_uses_only_its_own_share_of_the_queue() -> None:
    brokers = FakeBrokers({0: 1, 1: 1, 2: 2, 3: 2})
    sender = make_sender(brokers, accumulator=accumulator_config(producer_queue_records_max=40))
    for partition in range(4):
        sender.accumulator._queues[partition]  # it is known
    brokers.withhold_answers()
    for _ in range(2):  # one batch of each is in flight, and the rest waits
        for partition in (0, 1):
            for _ in range(20):
                sender.append(partition, b"k", b"v", b"h")
        await brokers.wait_requests(1)
        await asyncio.sleep(0)
    for partition in (0, 1):
        with pytest.raises(AppendRefused, match="40 records wait to be sent already"):
            sender.append(partition, b"k", b"v", b"h")
    for partition in (2, 3):
        for _ in range(10):
            sender.append(partition, b"k", b"v", b"h")
        with pytest.raises(AppendRefused, match="10 of them in this partition"):
            sender.append(partition, b"k", b"v", b"h")
    sender.accumulator.forget(0)
    sender.append(0, b"k", b"checkpoint", b"h")
    brokers.release_answers()
    assert await sender.close(5)


async def test_waiting_records_are_bounded_in_bytes_too() -> None:
    brokers = FakeBrokers({0: 1, 1: 1})
    sender = make_sender(brokers, accumulator=accumulator_config(producer_queue_bytes_max=2_000))
    sender.accumulator._queues[1]  # it is known
    brokers.withhold_answers()
    sender.append(0, b"k", bytes(100), b"h")
    await brokers.wait_requests(1)
    for _ in range(3):
        sender.append(0, b"", bytes(800), b"h")
    with pytest.raises(AppendRefused, match=r"records of 2709 bytes wait to be sent already, 2709 of them") as refused:
        sender.append(0, b"", b"", b"h")
    assert not refused.value.is_too_large
    sender.append(1, b"", bytes(800), b"h")
    brokers.release_answers()
    await wait_until(lambda: not sender.accumulator.ready and not sender._in_flight)
    sender.append(0, b"", bytes(800), b"h")
    assert await sender.close(5)
    assert (sender.accumulator.records, sender.accumulator._bytes) == (0, 0)


async def test_linger_of_next_batch_counts_from_arrival_of_its_records(
    brokers: FakeBrokers,
) -> None:
    sender = make_sender(brokers)
    accumulator = sender.accumulator
    accumulator.append(0, b"k", b"v", b"h")
    made = accumulator.make_batch(0, 1)
    assert made is not None
    assert made.first_record_s is not None
    assert accumulator.make_batch(0, 1) is None, "one is in flight"
    assert accumulator.append(0, b"k", b"v", b"h") is False, "it need not be sent now"
    assert 0 not in accumulator.ready
    accumulator.end_batch(0)
    assert accumulator.ready == {0}
    assert accumulator.make_batch(0, 1) is not None
    accumulator.end_batch(0)
    assert accumulator.ready == set()
    assert accumulator.make_batch(0, 1) is None, "there is nothing"
    accumulator.forget(7)
    assert await sender.close(5)


@pytest.mark.pure_build("compiled, nobody can hand over what cannot be built")
async def test_a_batch_that_cannot_be_built_fails_its_owner_alone(brokers: FakeBrokers) -> None:
    reports: list[tuple[int, bytes, str]] = []
    reported: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reported.append(context["message"]))
    sender = Sender(
        CONFIG,
        brokers,  # type: ignore[arg-type]
        SentBatches(),
        lambda *_: None,
        lambda *failed: reports.append(failed),
        lambda: 1_000,
        make_metrics(),
    )
    sender.append(0, b"k", b"good", b"h1")
    sender.append(0, b"k", bytes(20), "no bytes")  # type: ignore[arg-type]
    sender.append(1, b"k", b"other", b"h1")
    await wait_until(lambda: bool(reports))
    ((partition, header, why),) = reports
    assert (partition, header) == (0, b"h1")
    assert why.startswith("no batch could be built: ")
    assert reported == ["building a batch of partition 0 failed"]
    await brokers.wait_requests(1)
    assert [batches_of(body) for _, _, body in brokers.requests] == [{1: [b"other"]}]
    sender.append(0, b"k", b"checkpoint", b"h2")
    await brokers.wait_requests(2)
    assert batches_of(brokers.requests[1][2]) == {0: [b"checkpoint"]}
    assert await sender.close(5)
    assert (sender.accumulator.records, sender.accumulator._bytes) == (0, 0)
