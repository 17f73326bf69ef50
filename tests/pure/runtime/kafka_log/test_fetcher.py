"""The fetcher against brokers with any answers: its reports, their instance, and its next fetches."""

import asyncio

import pytest

from holdfast.kafka.protocol.requests import Fetched
from holdfast.runtime.kafka_log.fetcher import Fetcher, FetchEvents
from holdfast.runtime.kafka_log.sent_batches import SentBatch
from holdfast.runtime.log_protocol import LogRecord
from tests.pure.kafka.brokers.fake_brokers import FakeBrokers, batch, fetched, targets_of
from tests.pure.runtime.kafka_log.fetcher_world import CONFIG, Reports, Sent, answer, found, make_metrics
from tests.waiting import wait_until


async def test_records_are_reported_and_next_fetch_begins_after_them(
    tail: Fetcher, silent_brokers: FakeBrokers, reports: Reports
) -> None:
    tail.follow(0, 3, 5)
    await answer(silent_brokers, fetched([found(batch(5, [b"a", b"b"]) + batch(9, [b"c"]))]))
    assert reports.lines == [
        "0 instance 3: 5 a, 6 b",
        "0 instance 3: stands at 7",
        "0 instance 3: 9 c",
        "0 instance 3: stands at 10",
    ]
    assert [targets_of(body) for _, _, body in silent_brokers.requests] == [((0, 0), {0: 5}, []), ((7, 1), {0: 10}, [])]


async def test_our_own_batch_is_reported_without_being_taken_apart(
    tail: Fetcher, silent_brokers: FakeBrokers, reports: Reports, sent: Sent
) -> None:
    ours = batch(5, [b"a", b"b"])
    sent.append(SentBatch(ours, 2, b"h0", b"h1", None))
    tail.follow(0, 3, 5)
    await answer(silent_brokers, fetched([found(ours + batch(7, [b"a", b"b"]))]))
    assert reports.lines == [
        "0 instance 3: 2 own from 5",
        "0 instance 3: 7 a, 8 b",
        "0 instance 3: stands at 9",
    ]
    assert not sent


async def test_our_own_batch_that_is_not_taken_is_reported_record_by_record(
    tail: Fetcher, silent_brokers: FakeBrokers, reports: Reports, sent: Sent
) -> None:
    ours = batch(5, [b"a", b"b"])
    sent.append(SentBatch(ours, 2, b"h0", b"h1", None))
    reports.takes_own = False
    tail.follow(0, 3, 5)
    await answer(silent_brokers, fetched([found(ours)]))
    assert reports.lines == ["0 instance 3: 5 a, 6 b", "0 instance 3: stands at 7"]
    assert not sent, "it was read all the same"


async def test_control_batch_only_moves_the_place(tail: Fetcher, silent_brokers: FakeBrokers, reports: Reports) -> None:
    tail.follow(0, 3, 5)
    await answer(silent_brokers, fetched([found(batch(5, [b"marker"], attributes=0x20))]))
    assert reports.lines == ["0 instance 3: stands at 6"]


async def test_batch_that_begins_below_offset_is_reported_from_the_offset(
    tail: Fetcher, silent_brokers: FakeBrokers, reports: Reports
) -> None:
    tail.follow(0, 3, 6)
    await answer(silent_brokers, fetched([found(batch(5, [b"a", b"b"]))]))
    assert reports.lines == ["0 instance 3: 6 b", "0 instance 3: stands at 7"]


async def test_batch_cut_short_is_fetched_again(tail: Fetcher, silent_brokers: FakeBrokers, reports: Reports) -> None:
    tail.follow(0, 3, 5)
    await answer(silent_brokers, fetched([found(batch(5, [b"a"]) + batch(6, [b"b"])[:-1])]))
    assert reports.lines == ["0 instance 3: 5 a", "0 instance 3: stands at 6"]
    assert targets_of(silent_brokers.requests[1][2])[1] == {0: 6}


async def test_answer_for_an_earlier_instance_is_not_reported_to_the_next_one(
    tail: Fetcher, silent_brokers: FakeBrokers, reports: Reports
) -> None:
    """The old fetch began at 50; if it counted for the new instance, 40 to 49 would be skipped."""
    tail.follow(0, 3, 50)
    await silent_brokers.wait_requests(1)
    tail.forget(0)
    tail.follow(0, 4, 40)
    await answer(silent_brokers, fetched([found(batch(50, [b"late"]))]), fetched([found(batch(40, [b"first"]))]))
    assert reports.lines == ["0 instance 4: 40 first", "0 instance 4: stands at 41"]
    assert targets_of(silent_brokers.requests[1][2])[1] == {0: 40}


async def test_forgotten_partition_is_left_out_and_reported_no_more(
    tail: Fetcher, silent_brokers: FakeBrokers, reports: Reports
) -> None:
    tail.follow(0, 3, 5)
    tail.follow(1, 4, 0)
    await silent_brokers.wait_requests(1)
    tail.forget(0)
    await answer(silent_brokers, fetched([found(batch(5, [b"a"])), found(batch(0, [b"b"]), 1)]))
    assert reports.lines == ["1 instance 4: 0 b", "1 instance 4: stands at 1"]
    assert targets_of(silent_brokers.requests[1][2]) == ((7, 1), {1: 1}, [0])


@pytest.mark.parametrize(
    ("bad", "line"),
    [
        (found(b"", error_code=1), "0 instance 3: failed, offset 5 is out of range"),
        (
            found(b"", is_diverging=True),
            "0 instance 3: alarm, the log was truncated below offset 5",
        ),
        (found(b"", error_code=-1), "0 instance 3: failed, the broker answered UNKNOWN_SERVER_ERROR (-1)"),
    ],
)
async def test_reading_ends_with_an_error(
    tail: Fetcher, silent_brokers: FakeBrokers, reports: Reports, bad: Fetched, line: str
) -> None:
    tail.follow(0, 3, 5)
    tail.follow(1, 4, 0)
    await answer(silent_brokers, fetched([bad]))
    assert reports.lines == [line]
    assert targets_of(silent_brokers.requests[1][2])[2] == [0]


@pytest.mark.parametrize("error_code", [70, 71])
async def test_session_that_the_broker_lost_begins_again(
    tail: Fetcher, silent_brokers: FakeBrokers, reports: Reports, error_code: int
) -> None:
    tail.follow(0, 3, 5)
    await answer(silent_brokers, fetched([]), fetched([], error_code=error_code))
    assert [targets_of(body)[:2] for _, _, body in silent_brokers.requests] == [
        ((0, 0), {0: 5}),
        ((7, 1), {}),
        ((0, 0), {0: 5}),
    ]


async def test_broken_batch_is_fetched_again(tail: Fetcher, silent_brokers: FakeBrokers, reports: Reports) -> None:
    broken = bytearray(batch(5, [b"a"]))
    broken[-1] ^= 1
    tail.follow(0, 3, 5)
    await answer(silent_brokers, fetched([found(bytes(broken))]), fetched([found(batch(5, [b"a"]))]))
    assert reports.lines == ["0 instance 3: 5 a", "0 instance 3: stands at 6"]


async def test_answer_that_cannot_be_read_ends_the_reading_of_its_partitions(
    tail: Fetcher, silent_brokers: FakeBrokers, reports: Reports
) -> None:
    tail.follow(0, 3, 5)
    await silent_brokers.wait_requests(1)
    silent_brokers.answers.append(lambda _: b"nonsense")
    silent_brokers.answer_one()
    await wait_until(lambda: bool(reports.lines))
    assert reports.lines[0].startswith("0 instance 3: failed, a broker sent an answer that cannot be read: ")
    tail.follow(0, 4, 5)
    await silent_brokers.wait_requests(2)


async def test_close_ends_every_session(tail: Fetcher, silent_brokers: FakeBrokers) -> None:
    tail.follow(0, 3, 5)
    await silent_brokers.wait_requests(1)
    await tail.close()
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("holdfast-tail")]


async def test_a_load_is_reported_in_slices_and_ends_where_the_log_ended(
    tail: Fetcher, silent_brokers: FakeBrokers, reports: Reports
) -> None:
    tail.follow(0, 3, 5, 11)
    tail.follow(1, 3, 0)
    await answer(silent_brokers, fetched([found(batch(5, [b"a", b"b", b"c", b"d", b"e"]) + batch(10, [b"f"]))]))
    assert reports.lines == [
        "0 instance 3: 5 a, 6 b",
        "0 instance 3: 7 c, 8 d",
        "0 instance 3: 9 e",
        "0 instance 3: stands at 10",
        "0 instance 3: 10 f",
        "0 instance 3: stands at 11",
        "0 instance 3: ended at 11",
    ]


async def test_between_slices_a_load_can_be_forgotten(
    tail: Fetcher, silent_brokers: FakeBrokers, reports: Reports
) -> None:
    read = reports.records_read

    def read_and_forget(partition: int, instance: int, records: list[LogRecord]) -> None:
        read(partition, instance, records)
        asyncio.get_running_loop().call_soon(tail.forget, partition)

    reports.records_read = read_and_forget  # type: ignore[method-assign]
    tail.follow(0, 3, 5, 10)
    tail.follow(1, 3, 0)
    await answer(silent_brokers, fetched([found(batch(5, [b"a", b"b", b"c", b"d", b"e"]))]))
    assert reports.lines == ["0 instance 3: 5 a, 6 b"]


async def test_partition_forgotten_between_slices_is_reported_no_more(
    tail: Fetcher, silent_brokers: FakeBrokers, reports: Reports
) -> None:
    def follow_anew() -> None:
        tail.forget(0)
        tail.follow(0, 4, 0, 9)

    reports.at_records = lambda: asyncio.get_running_loop().call_soon(follow_anew)
    tail.follow(0, 3, 0, 9)
    await answer(silent_brokers, fetched([found(batch(0, [b"%d" % number for number in range(9)]))]))
    assert reports.lines == ["0 instance 3: 0 0, 1 1"]
    assert targets_of(silent_brokers.requests[1][2])[1] == {0: 0}


async def test_out_of_range_without_bounds_is_reported_without_them(
    tail: Fetcher, silent_brokers: FakeBrokers, reports: Reports
) -> None:
    tail.follow(0, 3, 5)
    tail.follow(1, 4, 0)
    await answer(silent_brokers, fetched([Fetched(0, 1, -1, -1, False, b"")]))
    assert reports.lines == ["0 instance 3: failed, offset 5 is out of range"]


async def test_each_answer_says_when_its_request_left(silent_brokers: FakeBrokers, reports: Reports) -> None:
    heard: list[tuple[int, float]] = []
    tail = Fetcher(
        "tail",
        CONFIG,
        silent_brokers,  # type: ignore[arg-type]
        lambda: reports,  # type: ignore[arg-type,return-value]
        Sent().batches,
        make_metrics(),
        FetchEvents(reports.ended, on_heard=lambda broker_id, sent_s: heard.append((broker_id, sent_s))),
    )
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    tail.follow(0, 3, 5)
    await silent_brokers.wait_requests(1)
    left_s = loop.time()
    await wait_until(lambda: loop.time() > left_s)
    await answer(silent_brokers, fetched([]))
    assert [broker_id for broker_id, _ in heard] == [1]
    assert began_s <= heard[0][1] <= left_s
    await tail.close()


async def test_a_broker_that_requests_a_pause_is_fetched_from_when_it_is_over(
    tail: Fetcher, silent_brokers: FakeBrokers
) -> None:
    loop = asyncio.get_running_loop()
    tail.follow(0, 3, 5)
    await silent_brokers.wait_requests(1)
    silent_brokers.answers.append(lambda _: (100).to_bytes(4, "big") + fetched([])[4:])
    began_s = loop.time()
    silent_brokers.answer_one()
    await silent_brokers.wait_requests(2)
    assert loop.time() - began_s >= 0.1


@pytest.mark.virtual_time
async def test_broker_that_answers_error_is_throttled_as_it_asks(tail: Fetcher, silent_brokers: FakeBrokers) -> None:
    loop = asyncio.get_running_loop()
    tail.follow(0, 3, 5)
    await silent_brokers.wait_requests(1)
    silent_brokers.answers.append(lambda _: (5_000).to_bytes(4, "big") + fetched([], error_code=70)[4:])
    began_s = loop.time()
    silent_brokers.answer_one()
    await silent_brokers.wait_requests(2)
    assert loop.time() - began_s >= 5


@pytest.mark.virtual_time
async def test_endless_throttle_stops_fetches_for_seconds_only(tail: Fetcher, silent_brokers: FakeBrokers) -> None:
    loop = asyncio.get_running_loop()
    tail.follow(0, 3, 5)
    await silent_brokers.wait_requests(1)
    silent_brokers.answers.append(lambda _: (2**31 - 1).to_bytes(4, "big") + fetched([])[4:])
    began_s = loop.time()
    silent_brokers.answer_one()
    await silent_brokers.wait_requests(2)
    assert loop.time() - began_s == pytest.approx(10, abs=1)


async def test_throttled_broker_gets_no_fetch_and_the_node_goes_on(
    tail: Fetcher, silent_brokers: FakeBrokers, reports: Reports
) -> None:
    silent_brokers.always = lambda _: (60_000).to_bytes(4, "big") + fetched([])[4:]
    tail.follow(0, 3, 5)
    await silent_brokers.wait_requests(1)
    for _ in range(20):
        await asyncio.sleep(0)
    tail.follow(1, 3, 5)
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(silent_brokers.requests) == 1
    await asyncio.wait_for(tail.close(), 60)


# ---- the log start: the owner hears of records that any program deletes -----------------------------------------------


def starting_at(log_start: int, records: bytes = b"") -> Fetched:
    return found(records)._replace(log_start_offset=log_start)


async def test_new_log_start_is_reported_once_and_before_its_records(
    tail: Fetcher, silent_brokers: FakeBrokers, reports: Reports
) -> None:
    tail.follow(0, 3, 5)
    answers = [starting_at(4), starting_at(4), starting_at(2), starting_at(5, batch(5, [b"a"]))]
    await answer(silent_brokers, *(fetched([each]) for each in answers))
    assert reports.lines == [
        "0 instance 3: log starts at 4",
        "0 instance 3: log starts at 2",
        "0 instance 3: log starts at 5",
        "0 instance 3: 5 a",
        "0 instance 3: stands at 6",
    ]


async def test_a_log_start_above_the_high_watermark_is_not_believed(
    tail: Fetcher, silent_brokers: FakeBrokers, reports: Reports
) -> None:
    tail.follow(0, 3, 5)
    answers = [starting_at(4), starting_at(100), starting_at(2**63 - 1), starting_at(99)]
    await answer(silent_brokers, *(fetched([each]) for each in answers))
    assert reports.lines == ["0 instance 3: log starts at 4", "0 instance 3: log starts at 99"]


async def test_load_hears_only_the_log_start_at_its_beginning(
    tail: Fetcher, silent_brokers: FakeBrokers, reports: Reports
) -> None:
    tail.follow(0, 3, 5, end_offset=9)
    await answer(silent_brokers, fetched([starting_at(5)]))
    assert reports.lines == []


@pytest.mark.parametrize("wrong", [found(b"", error_code=1), found(b"", is_diverging=True)])
async def test_error_of_partition_comes_without_a_log_start(
    tail: Fetcher, silent_brokers: FakeBrokers, reports: Reports, wrong: Fetched
) -> None:
    tail.follow(0, 3, 5)
    await silent_brokers.wait_requests(1)
    silent_brokers.answers.append(lambda _: fetched([wrong._replace(log_start_offset=7)]))
    silent_brokers.answer_one()
    await wait_until(lambda: bool(reports.lines))
    assert len(reports.lines) == 1
    assert "log starts" not in reports.lines[0]
