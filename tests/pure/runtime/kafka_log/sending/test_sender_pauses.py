"""Brokers that throttle because of a quota: the wait of batches and requests."""

import asyncio

import pytest

from holdfast.runtime.kafka_log.sending.sender import Sender
from tests.pure.kafka.brokers.fake_brokers import FakeBrokers, FakeConnection, produced
from tests.pure.runtime.kafka_log.sending.sender_world import (
    Failures,
    Landings,
    batches_of,
    make_sender,
    throttled,
)
from tests.waiting import wait_until


async def test_throttled_broker_is_sent_nothing_on_any_connection(
    brokers: FakeBrokers,
) -> None:
    sender = make_sender(brokers)
    brokers.answers.append(lambda body: throttled(body, 1_000))
    began_s = asyncio.get_running_loop().time()
    sender.append(0, b"k", b"1", b"h1")
    await brokers.wait_requests(1)
    await wait_until(lambda: not sender.accumulator._queues[0].is_in_flight)
    sender.append(0, b"k", b"2", b"h2")
    sender.append(1, b"k", b"2", b"h2")
    sender.append(2, b"k", b"other broker", b"h2")
    await brokers.wait_requests(2)
    assert brokers.requests[1][0] == 2
    await brokers.wait_requests(3)
    assert asyncio.get_running_loop().time() - began_s >= 1
    assert batches_of(brokers.requests[2][2]) == {0: [b"2"], 1: [b"2"]}
    assert await sender.close(5)
    assert len(brokers.requests) == 3
    assert sender._metrics.throttle_time_ms.value == 1_000


async def test_retry_waits_until_throttle_of_its_broker_is_over(brokers: FakeBrokers) -> None:
    sender = make_sender(brokers, message_timeout_ms=60_000)
    brokers.answers.append(lambda body: throttled(body, 100, error_code=7))
    brokers.elected[1] = {2: (1, 1)}
    began_s = asyncio.get_running_loop().time()
    sender.append(0, b"k", b"1", b"h1")
    await brokers.wait_requests(2)
    assert asyncio.get_running_loop().time() - began_s >= 0.1
    assert brokers.requests[0][2] == brokers.requests[1][2]
    assert await sender.close(5)


@pytest.mark.virtual_time
@pytest.mark.parametrize("message_timeout_ms", [200])
async def test_batch_ends_at_its_timeout_during_a_longer_throttle(
    sender: Sender, brokers: FakeBrokers, failures: Failures, landings: Landings
) -> None:
    brokers.answers.append(lambda body: throttled(body, 300_000, error_code=7))
    sender.append(0, b"k", b"1", b"h1")
    await wait_until(lambda: failures == [(0, b"h1")])
    assert len(brokers.requests) == 1
    assert not sender.accumulator._queues[0].is_in_flight
    assert sender._metrics.appends_failed.value == 1
    assert landings == []


@pytest.mark.virtual_time
@pytest.mark.parametrize("message_timeout_ms", [200])
async def test_batch_given_up_during_throttle_is_not_sent_after_it(
    sender: Sender, brokers: FakeBrokers, failures: Failures
) -> None:
    brokers.answers.append(lambda body: throttled(body, 400, error_code=7))
    sender.append(0, b"k", b"1", b"h1")
    await wait_until(lambda: failures == [(0, b"h1")])
    assert sender._tasks, "the pause goes on"
    await wait_until(lambda: not sender._tasks)
    assert len(brokers.requests) == 1


async def test_throttle_in_answer_to_retry_holds_for_new_batches(
    brokers: FakeBrokers,
) -> None:
    sender = make_sender(brokers, message_timeout_ms=60_000)
    brokers.answers += [lambda body: produced(body, 7), lambda body: throttled(body, 300)]
    sender.append(0, b"k", b"1", b"h1")
    await brokers.wait_requests(2)
    await wait_until(lambda: not sender.accumulator._queues[0].is_in_flight)
    began_s = asyncio.get_running_loop().time()
    sender.append(1, b"k", b"2", b"h2")
    await brokers.wait_requests(3)
    assert asyncio.get_running_loop().time() - began_s >= 0.2
    assert sender._metrics.throttle_time_ms.value == 300
    assert await sender.close(5)


@pytest.mark.virtual_time
@pytest.mark.parametrize("message_timeout_ms", [200])
async def test_retry_ends_at_its_timeout_and_late_answer_is_ignored(
    sender: Sender, brokers: FakeBrokers, failures: Failures, landings: Landings
) -> None:
    def refuse_and_fall_silent(body: bytes) -> bytes:
        brokers.withhold_answers()
        return produced(body, 7)

    brokers.answers.append(refuse_and_fall_silent)
    sender.append(0, b"k", b"1", b"h1")
    await wait_until(lambda: failures == [(0, b"h1")])
    assert [batches_of(body) for _, _, body in brokers.requests] == [{0: [b"1"]}] * 2
    sender.accumulator.forget(0)  # as its owner does
    sender.append(0, b"k", b"2", b"h2")
    await brokers.wait_requests(3)
    brokers.answer_one()
    await wait_until(lambda: sender._in_flight == 1)
    assert sender.accumulator._queues[0].is_in_flight, "the batch of the next attempt is in flight"
    brokers.release_answers()
    await wait_until(lambda: bool(landings))
    assert [header for _, header, _ in landings] == [b"h2"]
    assert failures == [(0, b"h1")]


@pytest.mark.virtual_time
@pytest.mark.parametrize("message_timeout_ms", [200])
async def test_batch_given_up_while_connection_opens_is_not_sent(
    sender: Sender, brokers: FakeBrokers, failures: Failures, landings: Landings, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = asyncio.Event()

    def refuse_and_hang_up(body: bytes) -> bytes:
        monkeypatch.setattr(brokers, "open_connection", lambda *_: None)
        return produced(body, 7)

    async def open_slowly(broker_id: int, purpose: str) -> FakeConnection:
        await opened.wait()
        return FakeConnection(brokers, broker_id)

    monkeypatch.setattr(brokers, "connection", open_slowly)
    brokers.answers.append(refuse_and_hang_up)
    sender.append(0, b"k", b"1", b"h1")
    await wait_until(lambda: failures == [(0, b"h1")])
    sender.accumulator.forget(0)  # as its owner does
    sender.append(0, b"k", b"2", b"h2")
    opened.set()
    await wait_until(lambda: bool(landings))
    assert [batches_of(body) for _, _, body in brokers.requests] == [{0: [b"1"]}, {0: [b"2"]}]


async def test_no_broker_is_left_alone_for_longer_than_the_bound(brokers: FakeBrokers) -> None:
    sender = make_sender(brokers, throttle_max_ms=5)
    brokers.answers.append(lambda body: throttled(body, 2**31 - 1))
    for value in (b"1", b"2"):
        sender.append(0, b"k", value, b"h")
        await wait_until(lambda: not sender.accumulator.ready and not sender._in_flight)
    assert len(brokers.requests) == 2
    assert await sender.close(5)


async def test_requests_sent_before_throttle_get_that_much_more_time(
    brokers: FakeBrokers,
) -> None:
    sender = make_sender(brokers)
    brokers.answers.append(lambda body: throttled(body, 5))
    sender.append(0, b"k", b"1", b"h1")
    assert await sender.close(5)
    assert brokers.longer_ms == [(1, 5)]


async def test_close_waits_for_records_held_back_by_a_throttle(brokers: FakeBrokers) -> None:
    sender = make_sender(brokers)
    brokers.answers.append(lambda body: throttled(body, 100))
    sender.append(0, b"k", b"1", b"h1")
    await wait_until(lambda: bool(brokers.requests) and not sender._in_flight)
    sender.append(0, b"k", b"2", b"h2")
    assert await sender.close(60)
    assert [batches_of(body) for _, _, body in brokers.requests] == [{0: [b"1"]}, {0: [b"2"]}]
