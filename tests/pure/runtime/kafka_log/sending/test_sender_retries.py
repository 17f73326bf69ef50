"""The end of a batch: it is acknowledged, sent again or given up, and its owner is told."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from holdfast.kafka.errors import ConnectionFailed
from holdfast.runtime.kafka_log.sending.sender import Sender
from holdfast.runtime.kafka_log.sent_batches import SentBatches
from tests.pure.kafka.brokers.fake_brokers import FakeBrokers, FakeConnection, produced
from tests.pure.runtime.kafka_log.fetcher_world import make_metrics
from tests.pure.runtime.kafka_log.sending.sender_world import (
    CONFIG,
    Failures,
    Landings,
    batches_of,
    make_sender,
    refused,
    sent_of,
)
from tests.waiting import wait_until


async def test_where_a_batch_was_appended_is_reported_once_it_is_known(
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


@pytest.mark.parametrize("error_codes", [{0: 6, 1: 7}, {0: 7}], ids=["for two reasons", "and one left out"])
async def test_every_batch_that_one_answer_does_not_acknowledge_is_sent_again(
    sender: Sender, brokers: FakeBrokers, landings: Landings, error_codes: dict[int, int]
) -> None:
    brokers.answers.append(lambda _: refused(error_codes))
    sender.append(0, b"k", b"1", b"h1")
    sender.append(1, b"k", b"2", b"h2")
    await wait_until(lambda: len(landings) == 2)
    assert batches_of(brokers.requests[0][2]) == {0: [b"1"], 1: [b"2"]}
    assert sorted(landings) == [(0, b"h1", 0), (1, b"h2", 0)]


async def test_batch_of_broken_connection_is_retried_at_current_leader(
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


async def test_records_for_silent_broker_are_sent_when_another_leads(sender: Sender, brokers: FakeBrokers) -> None:
    brokers.withhold_answers()
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
    brokers.release_answers()


@pytest.mark.parametrize("message_timeout_ms", [200])
async def test_batch_whose_time_is_up_is_reported_as_failed(
    sender: Sender, brokers: FakeBrokers, failures: Failures
) -> None:
    brokers.always = lambda body: produced(body, 7)
    sender.append(0, b"k", b"1", b"h1")
    sender.append(0, b"k", b"2", b"h2")
    await wait_until(lambda: bool(failures))
    assert failures == [(0, b"h1")]


@pytest.mark.virtual_time
async def test_timeout_of_batch_counts_from_first_send_not_from_failure(
    brokers: FakeBrokers,
) -> None:
    loop = asyncio.get_running_loop()
    failed_s: list[float] = []
    sender = Sender(
        replace(CONFIG, message_timeout_ms=10_000),
        brokers,  # type: ignore[arg-type]
        SentBatches(),
        lambda *_: None,
        lambda *_: failed_s.append(loop.time()),
        lambda: 1_000,
        make_metrics(),
    )
    brokers.withhold_answers()
    brokers.always = lambda body: produced(body, 7)
    began_s = loop.time()
    sender.append(0, b"k", b"1", b"h1")
    await brokers.wait_requests(1)
    loop.call_at(began_s + 6, brokers.release_answers)
    await wait_until(lambda: bool(failed_s))
    assert 10 <= failed_s[0] - began_s < 11
    await sender.close(5)


async def test_final_error_is_reported_at_once(sender: Sender, brokers: FakeBrokers, failures: Failures) -> None:
    brokers.answers.append(lambda body: produced(body, 10))
    sender.append(0, b"k", b"1", b"h1")
    sender.append(1, b"k", b"2", b"h2")
    await wait_until(lambda: len(failures) == 2)
    assert sorted(failures) == [(0, b"h1"), (1, b"h2")]
    assert len(brokers.requests) == 1


async def test_records_of_later_attempt_outlive_failure_of_earlier_one(
    sender: Sender, brokers: FakeBrokers, failures: Failures
) -> None:
    """The node lost its partition and loads it again while its old batch hangs: the new checkpoint must go out."""
    brokers.withhold_answers()
    sender.append(0, b"k", b"old", b"epoch 1")
    await brokers.wait_requests(1)
    sender.accumulator.forget(0)
    sender.append(0, b"k", b"new checkpoint", b"epoch 2")
    brokers.answers.append(lambda body: produced(body, 10))
    brokers.release_answers()
    await brokers.wait_requests(2)
    assert failures == [(0, b"epoch 1")]
    assert batches_of(brokers.requests[1][2]) == {0: [b"new checkpoint"]}


async def test_records_waiting_after_failure_are_dropped_by_owner(
    sender: Sender, brokers: FakeBrokers, failures: Failures
) -> None:
    brokers.withhold_answers()
    sender.append(0, b"k", b"1", b"h1")
    await brokers.wait_requests(1)
    sender.append(0, b"k", b"2", b"h2")
    sender.accumulator.forget(0)
    brokers.release_answers()
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


@pytest.mark.parametrize("what", ["landed", "failed"])
async def test_a_bug_in_telling_one_partition_leaves_no_other_waiting(brokers: FakeBrokers, what: str) -> None:
    """All four are in one request: reported first, landed, refused for good, and refused for now."""
    bugs: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: bugs.append(str(context["message"])))
    reports: list[tuple[str, int]] = []

    def tell(name: str, partition: int) -> None:
        reports.append((name, partition))
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
    await wait_until(lambda: ("landed", 4) in reports)
    assert not any(sender.accumulator._queues[partition].is_in_flight for partition in errors)
    if what == "landed":
        assert reports == [("landed", 0), ("failed", 0), ("landed", 1), ("failed", 2), ("failed", 3), ("landed", 4)]
        assert bugs == ["reporting the result of a batch to partition 0 failed"]
    else:
        assert reports == [("landed", 0), ("landed", 1), ("failed", 2), ("failed", 3), ("landed", 4)]
        assert bugs == ["reporting the result of a batch to partition 2 failed"]
    assert await sender.close(5)


@pytest.mark.parametrize("failure", ["hangs up", "refuses"])
async def test_batch_is_retried_at_leader_found_by_look_up(
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


async def test_batch_is_kept_while_leader_is_unknown(
    sender: Sender, brokers: FakeBrokers, landings: Landings, failures: Failures
) -> None:
    brokers.answers.append(lambda body: produced(body, 6))
    brokers.failures_left = 3
    brokers.elected[1] = {0: (2, 1)}
    sender.append(0, b"k", b"1", b"h1")
    await wait_until(lambda: bool(landings))
    assert [broker_id for broker_id, _, _ in brokers.requests] == [1, 2]
    assert failures == []


async def test_retry_leaves_other_connections_to_new_requests(sender: Sender, brokers: FakeBrokers) -> None:
    """A broker that refuses one partition for long must not keep the others waiting."""
    brokers.answers.extend([lambda body: produced(body, 7)] * 4)
    sender.append(0, b"k", b"1", b"h1")
    await brokers.wait_requests(4)
    assert sorted(each.purpose for each in sender.pace.slots[1].free) == ["produce-0", "produce-1"]


async def test_a_connection_is_opened_once_and_again_when_it_was_closed(
    sender: Sender, brokers: FakeBrokers, landings: Landings, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[FakeConnection] = []
    open_connection = brokers.open_connection

    def count(broker_id: int, purpose: str) -> FakeConnection:
        opened.append(open_connection(broker_id, purpose))
        return opened[-1]

    monkeypatch.setattr(brokers, "open_connection", count)
    for number, are_opened in ((1, 1), (2, 1), (3, 2)):
        if number == 3:
            opened[0].is_open = False
        sender.append(0, b"k", b"1", b"h1")
        await wait_until(lambda: len(landings) == number)  # noqa: B023 - waited for within the turn
        assert len(opened) == are_opened


async def test_after_close_nothing_is_sent_again(brokers: FakeBrokers) -> None:
    sender = make_sender(brokers, message_timeout_ms=60_000)
    brokers.always = lambda body: produced(body, 7)
    sender.append(0, b"k", b"1", b"h1")
    await brokers.wait_requests(2)
    assert not await sender.close(0)
    await wait_until(lambda: not sender._tasks and not sender._in_flight)
    # Nothing is left that could send: no task, no linger and no wait for a leader.
    assert asyncio.all_tasks() == {asyncio.current_task()}
    count = len(brokers.requests)
    sender.pace.flush()
    brokers.elected[1] = {0: (2, 1)}
    await brokers.refresh()
    assert not sender._tasks
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


async def test_nothing_is_tried_again_after_a_close_that_gave_up(brokers: FakeBrokers) -> None:
    sender = make_sender(brokers, message_timeout_ms=60_000, retry_backoff_ms=60_000)
    brokers.always = lambda body: produced(body, 7)
    sender.append(0, b"k", b"1", b"h1")
    await wait_until(lambda: bool(sender._tasks))
    assert not await sender.close(0)
    await wait_until(lambda: not sender._tasks)
    assert len(brokers.requests) == 1


async def test_batch_read_back_after_lost_answer_is_not_sent_again(
    sender: Sender, brokers: FakeBrokers, failures: Failures
) -> None:
    def hang_up(_: bytes) -> bytes:
        sender._sent.remove(0, sent_of(sender, 0)[0])  # the tail finds it
        raise ConnectionFailed("gone")

    brokers.answers.append(hang_up)
    sender.append(0, b"k", b"1", b"h1")
    await brokers.wait_requests(1)
    sender.append(0, b"k", b"2", b"h2")
    await brokers.wait_requests(2)
    assert batches_of(brokers.requests[1][2]) == {0: [b"2"]}
    assert failures == []
    assert sender._metrics.appends_failed.value == 0


@pytest.mark.virtual_time
async def test_batch_read_back_during_its_retry_is_no_failure(
    brokers: FakeBrokers,
) -> None:
    failures: Failures = []
    own = Sender(
        replace(CONFIG, message_timeout_ms=100),
        brokers,  # type: ignore[arg-type]
        SentBatches(),
        lambda *_: None,
        lambda partition, header, _: failures.append((partition, header)),
        lambda: 1_000,
        make_metrics(),
    )
    brokers.answers.append(lambda body: produced(body, 6))
    own.append(0, b"k", b"1", b"h1")
    await wait_until(lambda: own._in_flight == 0 and len(brokers.requests) == 1)
    brokers.withhold_answers()
    await brokers.wait_requests(2)
    own._sent.remove(0, sent_of(own, 0)[0])
    own.append(0, b"k", b"2", b"h2")
    await brokers.wait_requests(3)
    assert batches_of(brokers.requests[2][2]) == {0: [b"2"]}
    assert failures == []
    brokers.release_answers()
    assert await own.close(5)
