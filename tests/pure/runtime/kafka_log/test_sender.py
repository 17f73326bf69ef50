"""The sender against brokers that answer, refuse, hang up and fall silent: what lands, in which order, and who is told."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest
import uvloop
from aiokafka.record.memory_records import MemoryRecords  # type: ignore[import-untyped]

from holdfast.kafka.errors import ConnectionFailed
from holdfast.kafka.protocol import requests as frames
from holdfast.runtime.errors import AppendRefused
from holdfast.runtime.kafka_log.accumulator import AccumulatorConfig
from holdfast.runtime.kafka_log.sender import Sender, SenderConfig
from holdfast.runtime.kafka_log.sent_batches import SentBatch, SentBatches
from tests.pure.kafka.fake_brokers import FakeBrokers, produced
from tests.pure.runtime.kafka_log.fetcher_world import make_metrics
from tests.waiting import PATIENCE_MS, wait_until

CONFIG = SenderConfig(
    accumulator=AccumulatorConfig(batch_bytes_max=1_000, records_max=20),
    message_timeout_ms=PATIENCE_MS,
    requests_in_flight_max=2,
    retry_backoff_ms=1,
)

Failures = list[tuple[int, bytes]]
Landings = list[tuple[int, bytes, int]]


def make_sender(brokers: FakeBrokers, **settings: Any) -> Sender:
    """Return a sender that tells nobody."""
    config = replace(CONFIG, **settings)
    return Sender(config, brokers, SentBatches(), lambda *_: None, lambda *_: None, lambda: 1_000, make_metrics())  # type: ignore[arg-type]


def sent_of(sender: Sender, partition: int) -> list[SentBatch]:
    """Return the batches that were not read back, oldest first."""
    return list(sender.accumulator._sent._by_partition[partition])


@pytest.fixture
def brokers() -> FakeBrokers:
    return FakeBrokers({0: 1, 1: 1, 2: 2})


@pytest.fixture
def failures() -> Failures:
    return []


@pytest.fixture
def landings() -> Landings:
    return []


@pytest.fixture
def message_timeout_ms() -> int:
    return PATIENCE_MS


@pytest.fixture
async def sender(
    brokers: FakeBrokers, landings: Landings, failures: Failures, message_timeout_ms: int
) -> AsyncIterator[Sender]:
    def landed(partition: int, batch: SentBatch, base_offset: int) -> None:
        landings.append((partition, batch.first_header, base_offset))

    def failed(partition: int, header: bytes, _: str) -> None:
        failures.append((partition, header))

    config = replace(CONFIG, message_timeout_ms=message_timeout_ms)
    sender = Sender(config, brokers, SentBatches(), landed, failed, lambda: 1_000, make_metrics())  # type: ignore[arg-type]
    yield sender
    await sender.close(1)


def batches_of(body: bytes) -> dict[int, list[bytes]]:
    """Return the values that a Produce request carries, by partition."""
    at, found = body.index(b"\x00\x05topic") + 7, {}
    count = int.from_bytes(body[at : at + 4], "big")
    at += 4
    for _ in range(count):
        partition, size = int.from_bytes(body[at : at + 4], "big"), int.from_bytes(body[at + 4 : at + 8], "big")
        batch = MemoryRecords(body[at + 8 : at + 8 + size]).next_batch()
        assert batch.validate_crc()
        found[partition] = [record.value for record in batch]
        at += 8 + size
    return found


async def test_one_request_for_all_that_a_turn_appends(sender: Sender, brokers: FakeBrokers) -> None:
    for partition in (0, 1, 2, 0):
        sender.append(partition, b"k", b"%d" % partition, b"h")
    await brokers.wait_requests(2)
    by_broker = {broker_id: batches_of(body) for broker_id, _, body in brokers.requests}
    assert by_broker == {1: {0: [b"0", b"0"], 1: [b"1"]}, 2: {2: [b"2"]}}


async def test_next_batch_gathers_while_one_is_under_way(sender: Sender, brokers: FakeBrokers) -> None:
    brokers.hold()
    sender.append(0, b"k", b"1", b"h1")
    await brokers.wait_requests(1)
    sender.append(0, b"k", b"2", b"h2")
    sender.append(0, b"k", b"3", b"h3")
    sender.append(1, b"k", b"other", b"h1")
    await brokers.wait_requests(2)
    assert batches_of(brokers.requests[1][2]) == {1: [b"other"]}
    brokers.let_go()
    await brokers.wait_requests(3)
    assert batches_of(brokers.requests[2][2]) == {0: [b"2", b"3"]}
    assert [(sent.record_count, sent.first_header, sent.last_header) for sent in sent_of(sender, 0)] == [
        (1, b"h1", b"h1"),
        (2, b"h2", b"h3"),
    ]


async def test_batches_stay_within_the_topics_limit(sender: Sender, brokers: FakeBrokers) -> None:
    for number in range(10):
        sender.append(0, b"k", bytes([number]) * 200, b"h" * 13)
    await wait_until(lambda: sum(sent.record_count for sent in sent_of(sender, 0)) == 10)
    await brokers.wait_requests(len(sent_of(sender, 0)))
    values = [value for _, _, body in brokers.requests for value in batches_of(body)[0]]
    assert values == [bytes([number]) * 200 for number in range(10)]
    assert all(len(sent.body) + 61 <= CONFIG.accumulator.batch_bytes_max for sent in sent_of(sender, 0))


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
    assert len(sent_of(sender, 0)[0].body) + 61 <= CONFIG.accumulator.batch_bytes_max


async def test_too_many_records_are_refused_until_some_were_sent(sender: Sender, brokers: FakeBrokers) -> None:
    for _ in range(CONFIG.accumulator.records_max):
        sender.append(0, b"k", b"v", b"h")
    with pytest.raises(AppendRefused, match="20 records wait to be sent already, 20 of them in this") as refused:
        sender.append(0, b"k", b"v", b"h")
    assert not refused.value.is_too_large
    await brokers.wait_requests(1)
    sender.append(0, b"k", b"v", b"h")


async def test_what_a_silent_broker_does_not_take_uses_up_nobody_elses_part_of_the_queue() -> None:
    brokers = FakeBrokers({0: 1, 1: 1, 2: 2, 3: 2})
    sender = make_sender(brokers, accumulator=AccumulatorConfig(batch_bytes_max=1_000, records_max=40))
    for partition in range(4):
        sender.accumulator._queues[partition]  # it is known
    brokers.hold()
    for _ in range(2):  # one batch of each is under way, and the rest gathers
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
    brokers.let_go()
    assert await sender.close(5)


async def test_what_waits_to_be_sent_is_bounded_in_bytes_as_well() -> None:
    brokers = FakeBrokers({0: 1, 1: 1})
    sender = make_sender(brokers, accumulator=AccumulatorConfig(batch_bytes_max=1_000, bytes_max=2_000))
    sender.accumulator._queues[1]  # it is known
    brokers.hold()
    sender.append(0, b"k", bytes(100), b"h")
    await brokers.wait_requests(1)
    for _ in range(3):
        sender.append(0, b"", bytes(800), b"h")
    with pytest.raises(AppendRefused, match=r"records of 2709 bytes wait to be sent already, 2709 of them") as refused:
        sender.append(0, b"", b"", b"h")
    assert not refused.value.is_too_large
    sender.append(1, b"", bytes(800), b"h")
    brokers.let_go()
    await wait_until(lambda: not sender.accumulator.ready and not sender._in_flight)
    sender.append(0, b"", bytes(800), b"h")
    assert await sender.close(5)
    assert (sender.accumulator._records, sender.accumulator._bytes) == (0, 0)


async def test_what_gathered_is_sent_before_it_is_told_where_the_last_batch_landed(brokers: FakeBrokers) -> None:
    sent_when_told: list[list[bytes]] = []

    def landed(partition: int, batch: SentBatch, base_offset: int) -> None:
        sent_when_told.append([sent.first_header for sent in sent_of(own, partition)])

    own = Sender(CONFIG, brokers, SentBatches(), landed, lambda *_: None, lambda: 1_000, make_metrics())  # type: ignore[arg-type]
    brokers.hold()
    own.append(0, b"k", b"1", b"h1")
    await brokers.wait_requests(1)
    own.append(0, b"k", b"2", b"h2")
    brokers.let_go()
    await wait_until(lambda: len(sent_when_told) == 2)
    assert sent_when_told == [[b"h1", b"h2"], [b"h1", b"h2"]]
    await own.close(1)


async def test_where_a_batch_landed_is_told_once_it_is_known(
    sender: Sender, brokers: FakeBrokers, landings: Landings
) -> None:
    brokers.answers.append(lambda body: produced(body, 7, 5))
    brokers.always = lambda body: produced(body, 0, 6)
    sender.append(0, b"k", b"1", b"h1")
    sender.append(0, b"k", b"2", b"h2")
    await wait_until(lambda: bool(landings))
    assert landings == [(0, b"h1", 6)]


async def test_batch_that_an_answer_leaves_out_is_sent_again(
    sender: Sender, brokers: FakeBrokers, landings: Landings
) -> None:
    def leave_out(body: bytes) -> bytes:
        return produced(body).replace(b"\x00\x05topic\x00\x00\x00\x01", b"\x00\x05topic\x00\x00\x00\x00")

    brokers.answers.append(leave_out)
    sender.append(0, b"k", b"1", b"h1")
    await wait_until(lambda: bool(landings))
    assert brokers.requests[0] == brokers.requests[1]
    assert landings == [(0, b"h1", 0)]


@pytest.mark.parametrize("error_code", [6, 7, 19, 20])
async def test_retriable_error_sends_the_same_batch_again(
    sender: Sender, brokers: FakeBrokers, failures: Failures, error_code: int
) -> None:
    brokers.answers.append(lambda body: produced(body, error_code))
    sender.append(0, b"k", b"1", b"h1")
    await brokers.wait_requests(2)
    assert brokers.requests[0][2] == brokers.requests[1][2]
    await wait_until(lambda: not sender.accumulator._queues[0].is_in_flight)
    assert failures == []


async def test_connection_that_breaks_is_tried_again_where_the_partition_is_led_now(
    sender: Sender, brokers: FakeBrokers, landings: Landings, failures: Failures
) -> None:
    def hang_up(_: bytes) -> bytes:
        brokers.leaders[0] = (2, 1)
        raise ConnectionFailed("gone")

    brokers.answers.append(hang_up)
    sender.append(0, b"k", b"1", b"h1")
    await brokers.wait_requests(2)
    assert [broker_id for broker_id, _, _ in brokers.requests] == [1, 2]
    await wait_until(lambda: not sender.accumulator._queues[0].is_in_flight)
    assert [header for _, header, _ in landings] == [b"h1"]
    assert failures == []


async def test_what_gathers_for_a_silent_broker_leaves_when_another_leads(sender: Sender, brokers: FakeBrokers) -> None:
    brokers.hold()
    sender.append(0, b"k", b"1", b"h1")
    await brokers.wait_requests(1)
    sender.append(1, b"k", b"2", b"h2")
    await brokers.wait_requests(2)
    sender.append(2, b"k", b"3", b"h3")
    brokers.leaders[2] = (1, 1)
    await asyncio.sleep(0)
    assert [broker_id for broker_id, _, _ in brokers.requests] == [1, 1]
    brokers.elected[1] = {2: (2, 2)}
    await brokers.refresh()
    await brokers.wait_requests(3)
    assert brokers.requests[2][0] == 2
    brokers.let_go()


@pytest.mark.parametrize("message_timeout_ms", [200])
async def test_batch_whose_time_is_up_is_told_as_failed(
    sender: Sender, brokers: FakeBrokers, failures: Failures
) -> None:
    brokers.always = lambda body: produced(body, 7)
    sender.append(0, b"k", b"1", b"h1")
    sender.append(0, b"k", b"2", b"h2")
    await wait_until(lambda: bool(failures))
    assert failures == [(0, b"h1")]


async def test_final_error_is_told_at_once(sender: Sender, brokers: FakeBrokers, failures: Failures) -> None:
    brokers.answers.append(lambda body: produced(body, 10))
    sender.append(0, b"k", b"1", b"h1")
    sender.append(1, b"k", b"2", b"h2")
    await wait_until(lambda: len(failures) == 2)
    assert sorted(failures) == [(0, b"h1"), (1, b"h2")]
    assert len(brokers.requests) == 1


async def test_what_a_later_attempt_gathered_outlives_the_failure_of_an_earlier_one(
    sender: Sender, brokers: FakeBrokers, failures: Failures
) -> None:
    """The node lost its partition and loads it again while its old batch hangs: the new checkpoint must go out."""
    brokers.hold()
    sender.append(0, b"k", b"old", b"epoch 1")
    await brokers.wait_requests(1)
    sender.accumulator.forget(0)
    sender.append(0, b"k", b"new checkpoint", b"epoch 2")
    brokers.answers.append(lambda body: produced(body, 10))
    brokers.let_go()
    await brokers.wait_requests(2)
    assert failures == [(0, b"epoch 1")]
    assert batches_of(brokers.requests[1][2]) == {0: [b"new checkpoint"]}


async def test_what_was_gathered_behind_a_failure_is_dropped_by_its_owner(
    sender: Sender, brokers: FakeBrokers, failures: Failures
) -> None:
    brokers.hold()
    sender.append(0, b"k", b"1", b"h1")
    await brokers.wait_requests(1)
    sender.append(0, b"k", b"2", b"h2")
    sender.accumulator.forget(0)
    brokers.let_go()
    await wait_until(lambda: not sender._tasks)
    assert len(brokers.requests) == 1
    assert list(sent_of(sender, 0)) == []


@pytest.mark.parametrize("answer", [lambda body: b"", lambda body: body[:3]], ids=["nothing", "cut short"])
async def test_answer_that_cannot_be_read_is_as_good_as_none(
    sender: Sender, brokers: FakeBrokers, failures: Failures, answer: Callable[[bytes], bytes]
) -> None:
    brokers.answers.append(answer)
    sender.append(0, b"k", b"1", b"h1")
    await brokers.wait_requests(2)
    assert brokers.requests[0] == brokers.requests[1]
    await wait_until(lambda: not sender.accumulator._queues[0].is_in_flight)
    assert failures == []


async def test_partitions_gather_while_every_connection_to_their_broker_is_busy() -> None:
    brokers = FakeBrokers(dict.fromkeys(range(4), 1))
    sender = make_sender(brokers)
    brokers.hold()
    for partition in range(2):
        sender.append(partition, b"k", b"1", b"h")
        await brokers.wait_requests(partition + 1)
    for partition in (2, 3, 2):
        sender.append(partition, b"k", b"2", b"h")
    assert len(brokers.requests) == CONFIG.requests_in_flight_max
    brokers.let_go()
    assert await sender.close(5)
    assert [batches_of(body) for _, _, body in brokers.requests[2:]] == [{2: [b"2", b"2"], 3: [b"2"]}]


async def test_while_a_broker_has_not_answered_records_gather_until_it_does() -> None:
    brokers = FakeBrokers({0: 1, 1: 1, 2: 1, 3: 2})
    sender = make_sender(brokers, adaptive_linger_min_ms=60_000, adaptive_linger_max_ms=60_000)
    brokers.hold()
    sender.append(0, b"k", b"1", b"h")
    await brokers.wait_requests(1)
    for partition in (1, 2, 3):
        sender.append(partition, b"k", b"2", b"h")
        await asyncio.sleep(0)
    await brokers.wait_requests(2)
    assert [(broker_id, list(batches_of(body))) for broker_id, _, body in brokers.requests] == [(1, [0]), (2, [3])]
    brokers.answer_one()
    await brokers.wait_requests(3)
    assert sorted(batches_of(brokers.requests[2][2])) == [1, 2]
    brokers.let_go()
    assert await sender.close(5)


async def test_a_broker_that_takes_longer_than_usual_is_sent_the_next_request_all_the_same() -> None:
    brokers = FakeBrokers({0: 1, 1: 1})
    sender = make_sender(brokers, adaptive_linger_min_ms=0, adaptive_linger_max_ms=1)
    brokers.hold()
    for partition in range(2):
        sender.append(partition, b"k", b"1", b"h")
        await brokers.wait_requests(partition + 1)
    brokers.let_go()
    assert await sender.close(5)


async def test_a_broker_waits_for_its_own_answers_only() -> None:
    brokers = FakeBrokers({0: 1, 1: 1, 2: 2, 3: 2})
    sender = make_sender(brokers, adaptive_linger_min_ms=100, adaptive_linger_max_ms=60_000)
    brokers.hold()
    sender.append(0, b"k", b"1", b"h")
    await brokers.wait_requests(1)
    for _ in range(100):
        sender._slots[1].linger.on_answered(60)
    sender.append(1, b"k", b"1", b"h")
    await asyncio.sleep(0)  # now it gathers for a minute
    sender.append(2, b"k", b"1", b"h")
    await brokers.wait_requests(2)
    sender.append(3, b"k", b"1", b"h")
    await brokers.wait_requests(3)
    assert [(broker_id, list(batches_of(body))) for broker_id, _, body in brokers.requests[1:]] == [(2, [2]), (2, [3])]
    brokers.let_go()
    assert await sender.close(5)


def test_it_gathers_for_less_than_uvloop_can_tell_apart() -> None:
    async def scenario() -> None:
        failures: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
        brokers = FakeBrokers({0: 1, 1: 1})
        sender = make_sender(brokers, adaptive_linger_min_ms=0.2, adaptive_linger_max_ms=0.2)
        brokers.hold()
        sender.append(0, b"k", b"1", b"h")
        await brokers.wait_requests(1)
        sender._slots[1].linger.on_sent(asyncio.get_running_loop().time())
        sender.append(1, b"k", b"1", b"h")
        sender._flush()  # uvloop's clock stands still in one turn, and makes no timer of so little
        sender._flush()
        await brokers.wait_requests(2)
        brokers.let_go()
        assert await sender.close(5)
        assert failures == []

    uvloop.run(scenario())


async def test_nothing_is_sent_after_close() -> None:
    brokers = FakeBrokers({0: 1, 1: 1})
    sender = make_sender(brokers)
    brokers.hold()
    sender.append(0, b"k", b"1", b"h")
    await brokers.wait_requests(1)
    assert not await sender.close(0)
    sender.append(1, b"k", b"2", b"h")
    brokers.let_go()
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


async def test_close_sends_what_was_gathered_and_waits_for_its_answer(sender: Sender, brokers: FakeBrokers) -> None:
    sender.append(0, b"k", b"1", b"h1")
    assert await sender.close(5)
    assert batches_of(brokers.requests[0][2]) == {0: [b"1"]}


async def test_close_gives_up_in_time(sender: Sender, brokers: FakeBrokers) -> None:
    brokers.hold()
    sender.append(0, b"k", b"1", b"h1")
    await brokers.wait_requests(1)
    assert not await sender.close(0.05)
    await wait_until(lambda: not sender._tasks)


def test_versions_are_those_of_the_frames() -> None:
    assert frames.PRODUCE == (0, 8)


def throttled(body: bytes, throttle_ms: int, error_code: int = 0) -> bytes:
    """Return the answer of a broker that reads nothing for a while, because of a quota."""
    return produced(body, error_code)[:-4] + throttle_ms.to_bytes(4, "big")


async def test_a_broker_that_asks_for_a_pause_is_sent_nothing_on_any_connection_until_it_is_over(
    brokers: FakeBrokers,
) -> None:
    sender = make_sender(brokers)
    brokers.answers.append(lambda body: throttled(body, 100))
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
    assert asyncio.get_running_loop().time() - began_s >= 0.1
    assert batches_of(brokers.requests[2][2]) == {0: [b"2"], 1: [b"2"]}
    assert await sender.close(5)
    assert len(brokers.requests) == 3
    assert sender._metrics.throttle_time_ms.value == 100


async def test_a_batch_that_is_sent_again_waits_until_the_pause_of_its_broker_is_over(brokers: FakeBrokers) -> None:
    sender = make_sender(brokers, message_timeout_ms=60_000)
    brokers.answers.append(lambda body: throttled(body, 100, error_code=7))
    brokers.elected[1] = {2: (1, 1)}
    began_s = asyncio.get_running_loop().time()
    sender.append(0, b"k", b"1", b"h1")
    await brokers.wait_requests(2)
    assert asyncio.get_running_loop().time() - began_s >= 0.1
    assert brokers.requests[0][2] == brokers.requests[1][2]
    assert await sender.close(5)


@pytest.mark.parametrize("message_timeout_ms", [200])
async def test_a_batch_ends_at_its_own_time_out_however_long_its_broker_asks_for_a_pause(
    sender: Sender, brokers: FakeBrokers, failures: Failures, landings: Landings
) -> None:
    brokers.answers.append(lambda body: throttled(body, 300_000, error_code=7))
    sender.append(0, b"k", b"1", b"h1")
    await wait_until(lambda: failures == [(0, b"h1")])
    assert len(brokers.requests) == 1
    assert not sender.accumulator._queues[0].is_in_flight
    assert sender._metrics.appends_failed.value == 1
    assert landings == []


@pytest.mark.parametrize("message_timeout_ms", [200])
async def test_a_batch_sent_again_ends_at_its_time_out_and_its_late_answer_says_nothing(
    sender: Sender, brokers: FakeBrokers, failures: Failures, landings: Landings
) -> None:
    def refuse_and_fall_silent(body: bytes) -> bytes:
        brokers.hold()
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
    assert sender.accumulator._queues[0].is_in_flight, "the batch of the next attempt is under way"
    brokers.let_go()
    await wait_until(lambda: bool(landings))
    assert [header for _, header, _ in landings] == [b"h2"]
    assert failures == [(0, b"h1")]


async def test_no_broker_is_left_alone_for_longer_than_the_bound(brokers: FakeBrokers) -> None:
    sender = make_sender(brokers, throttle_max_ms=5)
    brokers.answers.append(lambda body: throttled(body, 2**31 - 1))
    for value in (b"1", b"2"):
        sender.append(0, b"k", value, b"h")
        await wait_until(lambda: not sender.accumulator.ready and not sender._in_flight)
    assert len(brokers.requests) == 2
    assert await sender.close(5)


async def test_what_was_sent_before_the_broker_asked_for_a_pause_is_given_that_much_longer(
    brokers: FakeBrokers,
) -> None:
    sender = make_sender(brokers)
    brokers.answers.append(lambda body: throttled(body, 5))
    sender.append(0, b"k", b"1", b"h1")
    assert await sender.close(5)
    assert brokers.longer_ms == [(1, 5)]


@pytest.mark.parametrize("what", ["landed", "failed"])
async def test_a_bug_in_telling_one_partition_leaves_no_other_waiting(brokers: FakeBrokers, what: str) -> None:
    """All four are in one request: told first, landed, refused for good, and refused for now."""
    bugs: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: bugs.append(str(context["message"])))
    told: list[tuple[str, int]] = []

    def tell(name: str, partition: int) -> None:
        told.append((name, partition))
        if name == what and partition in (0, 2):
            raise ValueError("a bug")

    sender = Sender(
        replace(CONFIG, message_timeout_ms=60_000),
        FakeBrokers(dict.fromkeys(range(5), 1)),  # type: ignore[arg-type]
        SentBatches(),
        lambda partition, *_: tell("landed", partition),
        lambda partition, *_: tell("failed", partition),
        lambda: 1_000,
        make_metrics(),
    )
    errors = {0: 0, 1: 0, 2: 10, 3: 10, 4: 7}

    def answer(body: bytes) -> bytes:
        whole = produced(body)
        for partition, error_code in errors.items():
            whole = whole.replace(
                partition.to_bytes(4, "big") + bytes(10),
                partition.to_bytes(4, "big") + error_code.to_bytes(2, "big") + bytes(8),
                1,
            )
        return whole

    sender._brokers.answers.append(answer)  # type: ignore[attr-defined]
    for partition in errors:
        sender.append(partition, b"k", b"1", b"h")
    await wait_until(lambda: ("landed", 4) in told)
    assert not any(sender.accumulator._queues[partition].is_in_flight for partition in errors)
    if what == "landed":
        assert told == [("landed", 0), ("failed", 0), ("landed", 1), ("failed", 2), ("failed", 3), ("landed", 4)]
        assert bugs == ["reporting to partition 0 what became of a batch failed"]
    else:
        assert told == [("landed", 0), ("landed", 1), ("failed", 2), ("failed", 3), ("landed", 4)]
        assert bugs == ["reporting to partition 2 what became of a batch failed"]
    assert await sender.close(5)


@pytest.mark.parametrize("failure", ["hangs up", "refuses"])
async def test_a_batch_is_sent_again_to_whoever_is_found_to_lead_only_by_asking(
    sender: Sender, brokers: FakeBrokers, landings: Landings, failure: str
) -> None:
    def fail(body: bytes) -> bytes:
        if failure == "refuses":
            return produced(body, 6)
        raise ConnectionFailed("gone")

    brokers.answers.append(fail)
    brokers.elected[1] = {0: (2, 1)}
    sender.append(0, b"k", b"1", b"h1")
    await wait_until(lambda: bool(landings))
    assert [broker_id for broker_id, _, _ in brokers.requests] == [1, 2]
    assert brokers.refreshes == 1


async def test_a_batch_is_kept_while_nobody_says_who_leads(
    sender: Sender, brokers: FakeBrokers, landings: Landings, failures: Failures
) -> None:
    brokers.answers.append(lambda body: produced(body, 6))
    brokers.failures_left = 3
    brokers.elected[1] = {0: (2, 1)}
    sender.append(0, b"k", b"1", b"h1")
    await wait_until(lambda: bool(landings))
    assert [broker_id for broker_id, _, _ in brokers.requests] == [1, 2]
    assert failures == []


async def test_a_request_that_is_sent_again_leaves_the_other_connections_to_new_ones(
    sender: Sender, brokers: FakeBrokers
) -> None:
    """A broker that refuses one partition for long must not keep the others waiting."""
    brokers.answers.extend([lambda body: produced(body, 7)] * 4)
    sender.append(0, b"k", b"1", b"h1")
    await brokers.wait_requests(4)
    assert sorted(sender._slots[1].free) == ["produce-0", "produce-1"]


async def test_after_close_nothing_is_sent_again(brokers: FakeBrokers) -> None:
    sender = make_sender(brokers, message_timeout_ms=60_000)
    brokers.always = lambda body: produced(body, 7)
    sender.append(0, b"k", b"1", b"h1")
    await brokers.wait_requests(2)
    assert not await sender.close(0)
    await wait_until(lambda: not sender._tasks and not sender._in_flight)
    count = len(brokers.requests)
    for _ in range(20):
        await asyncio.sleep(0.001)
    assert len(brokers.requests) == count


async def test_answers_of_the_second_copy_of_a_batch_change_nothing(
    sender: Sender, brokers: FakeBrokers, landings: Landings
) -> None:
    """An answer that names a partition twice, or one that was not asked for."""

    def twice(body: bytes) -> bytes:
        whole = produced(body, 0, 5)
        entry = whole[15:-4]
        return whole[:11] + (3).to_bytes(4, "big") + entry + entry + (9).to_bytes(4, "big") + entry[4:] + whole[-4:]

    brokers.answers.append(twice)
    sender.append(0, b"k", b"1", b"h1")
    await wait_until(lambda: bool(landings))
    assert landings == [(0, b"h1", 5)]
    assert await sender.close(5)


async def test_records_that_waited_for_a_batch_are_in_the_time_of_the_next_one_only_from_when_they_came(
    brokers: FakeBrokers,
) -> None:
    sender = make_sender(brokers)
    accumulator = sender.accumulator
    accumulator.append(0, b"k", b"v", b"h")
    made = accumulator.make_batch(0)
    assert made is not None
    assert made[1].first_record_s is not None
    assert accumulator.make_batch(0) is None, "one is under way"
    assert accumulator.append(0, b"k", b"v", b"h") is False, "it need not be sent now"
    assert 0 not in accumulator.ready
    accumulator.end_batch(0)
    assert accumulator.ready == {0}
    assert accumulator.make_batch(0) is not None
    accumulator.end_batch(0)
    assert accumulator.ready == set()
    assert accumulator.make_batch(0) is None, "there is nothing"
    accumulator.forget(7)
    assert await sender.close(5)


@pytest.mark.pure_build("compiled, nobody can hand over what cannot be built")
async def test_a_batch_that_cannot_be_built_fails_its_owner_alone(brokers: FakeBrokers) -> None:
    told: list[tuple[int, bytes, str]] = []
    reported: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reported.append(context["message"]))
    sender = Sender(
        CONFIG,
        brokers,  # type: ignore[arg-type]
        SentBatches(),
        lambda *_: None,
        lambda *failed: told.append(failed),
        lambda: 1_000,
        make_metrics(),
    )
    sender.append(0, b"k", b"good", b"h1")
    sender.append(0, b"k", bytes(20), "no bytes")  # type: ignore[arg-type]
    sender.append(1, b"k", b"other", b"h1")
    await wait_until(lambda: bool(told))
    ((partition, header, why),) = told
    assert (partition, header) == (0, b"h1")
    assert why.startswith("no batch could be built: ")
    assert reported == ["building a batch of partition 0 failed"]
    await brokers.wait_requests(1)
    assert [batches_of(body) for _, _, body in brokers.requests] == [{1: [b"other"]}]
    sender.append(0, b"k", b"checkpoint", b"h2")
    await brokers.wait_requests(2)
    assert batches_of(brokers.requests[1][2]) == {0: [b"checkpoint"]}
    assert await sender.close(5)
    assert (sender.accumulator._records, sender.accumulator._bytes) == (0, 0)


async def test_a_close_waits_for_what_a_broker_that_asked_for_a_pause_is_not_sent_yet(brokers: FakeBrokers) -> None:
    sender = make_sender(brokers)
    brokers.answers.append(lambda body: throttled(body, 100))
    sender.append(0, b"k", b"1", b"h1")
    await wait_until(lambda: bool(brokers.requests) and not sender._in_flight)
    sender.append(0, b"k", b"2", b"h2")
    assert await sender.close(60)
    assert [batches_of(body) for _, _, body in brokers.requests] == [{0: [b"1"]}, {0: [b"2"]}]


async def test_nothing_is_tried_again_after_a_close_that_gave_up(brokers: FakeBrokers) -> None:
    sender = make_sender(brokers, message_timeout_ms=60_000, retry_backoff_ms=60_000)
    brokers.always = lambda body: produced(body, 7)
    sender.append(0, b"k", b"1", b"h1")
    await wait_until(lambda: bool(sender._tasks))
    assert not await sender.close(0)
    await wait_until(lambda: not sender._tasks)
    assert len(brokers.requests) == 1


async def test_records_wait_for_company_as_long_as_they_are_to_linger(brokers: FakeBrokers) -> None:
    sender = make_sender(brokers, linger_ms=60_000)
    for number in range(2):
        sender.append(0, b"k", b"%d" % number, b"h")
        for _ in range(10):
            await asyncio.sleep(0)
    assert brokers.requests == []
    assert await sender.close(5)
    assert [batches_of(body) for _, _, body in brokers.requests] == [{0: [b"0", b"1"]}]


async def test_records_that_lingered_are_sent_without_more_company(brokers: FakeBrokers) -> None:
    sender = make_sender(brokers, linger_ms=1)
    for number in range(2):
        sender.append(0, b"k", b"%d" % number, b"h")
        await brokers.wait_requests(number + 1)
        await wait_until(lambda: not sender._in_flight)
    assert await sender.close(5)
