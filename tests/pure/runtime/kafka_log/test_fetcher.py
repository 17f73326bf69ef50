"""The tail against brokers that answer as they please: what is told, under which instance, and what is asked next."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from kio.schema.fetch.v12.request import FetchRequest
from kio.serial import entity_reader

from holdfast.kafka.protocol.requests import Fetched
from holdfast.runtime.kafka_log.fetch_loop import FetcherConfig
from holdfast.runtime.kafka_log.fetcher import Fetcher
from holdfast.runtime.kafka_log.record_batches import BATCH_HEAD_BYTES
from holdfast.runtime.kafka_log.sent_batches import SentBatch
from holdfast.runtime.log import LogRecord
from tests.pure.kafka.fake_brokers import FakeBrokers, batch, fetched, last_epochs_of, targets_of, wait_ms_of
from tests.pure.runtime.kafka_log.fetcher_world import Sent, Told, answer, found, make_metrics
from tests.waiting import wait_until

CONFIG = FetcherConfig(wait_ms=10, bytes_max=10_000, partition_bytes_max=1_000, slice_records_max=2, retry_backoff_ms=1)


@pytest.fixture
def brokers() -> FakeBrokers:
    brokers = FakeBrokers({0: 1, 1: 1})
    brokers.hold()
    brokers.always = lambda _: fetched([])
    return brokers


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def sent() -> Sent:
    return Sent()


@pytest.fixture
async def tail(brokers: FakeBrokers, told: Told, sent: Sent) -> AsyncIterator[Fetcher]:
    tail = Fetcher("tail", CONFIG, brokers, lambda: told, sent.batches, make_metrics(), told.ended)  # type: ignore[arg-type,return-value]
    yield tail
    await tail.close()


async def test_record_by_record_and_the_next_fetch_goes_on_behind(
    tail: Fetcher, brokers: FakeBrokers, told: Told
) -> None:
    tail.follow(0, 3, 5)
    await answer(brokers, fetched([found(batch(5, [b"a", b"b"]) + batch(9, [b"c"]))]))
    assert told.lines == [
        "0 instance 3: 5 a, 6 b",
        "0 instance 3: stands at 7",
        "0 instance 3: 9 c",
        "0 instance 3: stands at 10",
    ]
    assert [targets_of(body) for _, _, body in brokers.requests] == [((0, 0), {0: 5}, []), ((7, 1), {0: 10}, [])]


async def test_our_own_batch_is_told_without_being_taken_apart(
    tail: Fetcher, brokers: FakeBrokers, told: Told, sent: Sent
) -> None:
    ours = batch(5, [b"a", b"b"])
    sent.append(SentBatch(ours[BATCH_HEAD_BYTES:], 2, b"h0", b"h1", None))
    tail.follow(0, 3, 5)
    await answer(brokers, fetched([found(ours + batch(7, [b"a", b"b"]))]))
    assert told.lines == [
        "0 instance 3: 2 own from 5",
        "0 instance 3: 7 a, 8 b",
        "0 instance 3: stands at 9",
    ]
    assert not sent


async def test_our_own_batch_that_is_not_taken_is_told_record_by_record(
    tail: Fetcher, brokers: FakeBrokers, told: Told, sent: Sent
) -> None:
    ours = batch(5, [b"a", b"b"])
    sent.append(SentBatch(ours[BATCH_HEAD_BYTES:], 2, b"h0", b"h1", None))
    told.takes_own = False
    tail.follow(0, 3, 5)
    await answer(brokers, fetched([found(ours)]))
    assert told.lines == ["0 instance 3: 5 a, 6 b", "0 instance 3: stands at 7"]
    assert not sent, "it was met all the same"


async def test_batch_that_landed_where_the_tail_stands_is_met_without_a_fetch(
    tail: Fetcher, brokers: FakeBrokers, told: Told, sent: Sent
) -> None:
    ours = batch(5, [b"a", b"b"])
    sent.append(SentBatch(ours[BATCH_HEAD_BYTES:], 2, b"h0", b"h1", None))
    sent.append(SentBatch(b"next", 1, b"h2", b"h2", None))
    tail.follow(0, 3, 5)
    await brokers.wait_requests(1)
    tail.on_acknowledged(0, sent.oldest, 5)
    tail.on_acknowledged(0, sent.oldest, 7)
    assert told.lines == ["0 instance 3: 2 own from 5", "0 instance 3: 1 own from 7"]
    assert not sent
    await answer(brokers, fetched([found(ours)]))
    assert told.lines[2:] == [], "a fetch that brings it once more tells nothing"
    assert targets_of(brokers.requests[1][2])[1] == {0: 8}


@pytest.mark.parametrize("is_fetched", [False, True])
async def test_partition_may_be_given_up_over_a_batch_of_ours(
    tail: Fetcher, brokers: FakeBrokers, told: Told, sent: Sent, is_fetched: bool
) -> None:
    def give_up() -> None:
        tail.forget(0)
        sent.clear()

    ours = batch(5, [b"a"])
    sent.append(SentBatch(ours[BATCH_HEAD_BYTES:], 1, b"h0", b"h0", None))
    told.at_records = give_up
    tail.follow(0, 3, 5)
    tail.follow(1, 4, 0)
    await brokers.wait_requests(1)
    if not is_fetched:
        tail.on_acknowledged(0, sent.oldest, 5)
    await answer(brokers, fetched([found(ours + batch(6, [b"b"]))]))
    assert told.lines == ["0 instance 3: 1 own from 5"]
    assert targets_of(brokers.requests[1][2])[2] == [0]


async def test_batch_that_landed_further_on_waits_for_what_lies_between(
    tail: Fetcher, brokers: FakeBrokers, told: Told, sent: Sent
) -> None:
    """What lies between may be the checkpoint of a newer owner."""
    ours = batch(6, [b"a"])
    sent.append(SentBatch(ours[BATCH_HEAD_BYTES:], 1, b"h0", b"h0", None))
    tail.follow(0, 3, 5)
    await brokers.wait_requests(1)
    tail.on_acknowledged(0, sent.oldest, 6)
    assert told.lines == []
    await answer(brokers, fetched([found(batch(5, [b"rival"], header=b"rival ") + ours)]))
    assert told.lines == ["0 instance 3: 5 rival", "0 instance 3: stands at 6", "0 instance 3: 1 own from 6"]


async def test_batch_that_landed_and_is_not_taken_is_told_record_by_record(
    tail: Fetcher, brokers: FakeBrokers, told: Told, sent: Sent
) -> None:
    ours = batch(5, [b"a"])
    sent.append(SentBatch(ours[BATCH_HEAD_BYTES:], 1, b"h0", b"h0", None))
    told.takes_own = False
    tail.follow(0, 3, 5)
    await brokers.wait_requests(1)
    tail.on_acknowledged(0, sent.oldest, 5)
    await answer(brokers, fetched([found(ours)]))
    assert told.lines == ["0 instance 3: 5 a", "0 instance 3: stands at 6"]


async def land_and_move(tail: Fetcher, brokers: FakeBrokers, sent: Sent) -> bytes:
    """Let a batch of offsets 5 and 6 land, and then another broker be elected; returns the batch as the log holds it."""
    ours = batch(5, [b"a", b"b"])
    sent.append(SentBatch(ours[BATCH_HEAD_BYTES:], 2, b"h0", b"h1", None))
    tail.follow(0, 3, 5)
    await brokers.wait_requests(1)
    tail.on_acknowledged(0, sent.oldest, 5)
    brokers.elected[1] = {0: (2, 4)}
    await brokers.refresh()
    await brokers.wait_requests(2)
    return ours[:12] + (3).to_bytes(4, "big") + ours[16:]  # with the epoch of its leader, which the checksum leaves out


async def test_what_landed_is_looked_at_when_another_leader_was_elected_and_then_its_leader_epoch_is_known(
    tail: Fetcher, brokers: FakeBrokers, told: Told, sent: Sent
) -> None:
    ours = await land_and_move(tail, brokers, sent)
    assert (targets_of(brokers.requests[1][2])[1], last_epochs_of(brokers.requests[1][2])) == ({0: 6}, {0: -1})
    sent.append(SentBatch(b"next", 1, b"h2", b"h2", None))
    tail.on_acknowledged(0, sent.oldest, 7)
    assert told.lines == ["0 instance 3: 2 own from 5"], "the log may have lost the batch before"
    brokers.answers += [lambda _: fetched([]), lambda _: fetched([found(ours)])]
    brokers.answer_one()
    brokers.answer_one()
    await brokers.wait_requests(3)
    assert (targets_of(brokers.requests[2][2])[1], last_epochs_of(brokers.requests[2][2])) == ({0: 7}, {0: 3})
    assert told.lines == ["0 instance 3: 2 own from 5"]
    tail.on_acknowledged(0, sent.oldest, 7)
    assert told.lines[1:] == ["0 instance 3: 1 own from 7"]


@pytest.mark.parametrize(
    "grown", [batch(5, [b"a", b"b"], header=b"other"), batch(6, [b"c", b"d"]), batch(7, [b"c"]), batch(6, [b"c"])]
)
async def test_a_log_that_lost_what_landed_and_grew_again_is_an_alarm(
    tail: Fetcher, brokers: FakeBrokers, told: Told, sent: Sent, grown: bytes
) -> None:
    await land_and_move(tail, brokers, sent)
    brokers.answers += [lambda _: fetched([]), lambda _: fetched([found(grown)])]
    brokers.answer_one()
    brokers.answer_one()
    await wait_until(lambda: len(told.lines) == 2)
    assert told.lines[1] == "0 instance 3: alarm, the log was truncated below offset 7"


async def test_batch_that_a_fetch_met_first_or_that_was_forgotten_lands_unheard(
    tail: Fetcher, brokers: FakeBrokers, told: Told, sent: Sent
) -> None:
    ours = batch(5, [b"a"])
    met = SentBatch(ours[BATCH_HEAD_BYTES:], 1, b"h0", b"h0", None)
    sent.append(met)
    tail.follow(0, 3, 5)
    await answer(brokers, fetched([found(ours)]))
    tail.on_acknowledged(0, met, 5)
    tail.on_acknowledged(1, met, 5)
    assert told.lines == ["0 instance 3: 1 own from 5"]


async def test_batch_that_landed_below_what_was_read_tells_of_a_truncated_log(
    tail: Fetcher, brokers: FakeBrokers, told: Told, sent: Sent
) -> None:
    sent.append(SentBatch(b"ours", 1, b"h0", b"h0", None))
    tail.follow(0, 3, 5)
    tail.follow(1, 4, 0)
    await brokers.wait_requests(1)
    tail.on_acknowledged(0, sent.oldest, 4)
    assert told.lines == ["0 instance 3: alarm, what was written now lies at offset 4, below 5: the log was truncated"]
    await answer(brokers, fetched([]))
    assert targets_of(brokers.requests[1][2])[2] == [0]


async def test_while_batches_land_a_fetch_waits_for_its_time_and_no_broker_holds_it(
    tail: Fetcher, brokers: FakeBrokers, sent: Sent
) -> None:
    tail.follow(0, 3, 5)
    await brokers.wait_requests(1)
    land(tail, sent, 5)
    await answer(brokers, fetched([]), fetched([]))
    assert [targets_of(body)[1] for _, _, body in brokers.requests] == [{0: 5}, {0: 6}, {}]
    assert [wait_ms_of(body) for _, _, body in brokers.requests] == [10, 0, 10]


async def test_while_batches_land_what_an_answer_rests_on_is_fetched_at_once(
    brokers: FakeBrokers, told: Told, sent: Sent
) -> None:
    config = FetcherConfig(wait_ms=60_000, bytes_max=10_000, partition_bytes_max=1_000, slice_records_max=2)
    tail = Fetcher("tail", config, brokers, lambda: told, sent.batches, make_metrics(), told.ended)  # type: ignore[arg-type,return-value]
    tail.follow(0, 3, 5)
    await brokers.wait_requests(1)
    land(tail, sent, 5)
    brokers.answer_one()
    for offset in (5, 6):
        tail.reach(0, offset)
    sent.append(SentBatch(b"on its way", 1, b"h", b"h", None))
    tail.reach(0, 7)
    for _ in range(100):
        await asyncio.sleep(0)
    assert len(brokers.requests) == 1
    sent.clear()
    tail.reach(0, 7)
    await brokers.wait_requests(2)
    await tail.close()


def land(tail: Fetcher, sent: Sent, offset: int) -> None:
    sent.append(SentBatch(b"ours", 1, b"h", b"h", None))
    tail.on_acknowledged(0, sent.oldest, offset)


async def test_control_batch_only_moves_the_place(tail: Fetcher, brokers: FakeBrokers, told: Told) -> None:
    tail.follow(0, 3, 5)
    await answer(brokers, fetched([found(batch(5, [b"marker"], attributes=0x20))]))
    assert told.lines == ["0 instance 3: stands at 6"]


async def test_batch_that_begins_below_the_asked_offset_is_told_from_there(
    tail: Fetcher, brokers: FakeBrokers, told: Told
) -> None:
    tail.follow(0, 3, 6)
    await answer(brokers, fetched([found(batch(5, [b"a", b"b"]))]))
    assert told.lines == ["0 instance 3: 6 b", "0 instance 3: stands at 7"]


async def test_batch_cut_short_is_fetched_again(tail: Fetcher, brokers: FakeBrokers, told: Told) -> None:
    tail.follow(0, 3, 5)
    await answer(brokers, fetched([found(batch(5, [b"a"]) + batch(6, [b"b"])[:-1])]))
    assert told.lines == ["0 instance 3: 5 a", "0 instance 3: stands at 6"]
    assert targets_of(brokers.requests[1][2])[1] == {0: 6}


async def test_answer_for_an_earlier_instance_is_not_told_to_the_next_one(
    tail: Fetcher, brokers: FakeBrokers, told: Told
) -> None:
    """The old fetch began at 50; were it taken for the new instance, 40 to 49 would be skipped."""
    tail.follow(0, 3, 50)
    await brokers.wait_requests(1)
    tail.forget(0)
    tail.follow(0, 4, 40)
    await answer(brokers, fetched([found(batch(50, [b"late"]))]), fetched([found(batch(40, [b"first"]))]))
    assert told.lines == ["0 instance 4: 40 first", "0 instance 4: stands at 41"]
    assert targets_of(brokers.requests[1][2])[1] == {0: 40}


async def test_forgotten_partition_is_left_out_and_told_no_more(
    tail: Fetcher, brokers: FakeBrokers, told: Told
) -> None:
    tail.follow(0, 3, 5)
    tail.follow(1, 4, 0)
    await brokers.wait_requests(1)
    tail.forget(0)
    await answer(brokers, fetched([found(batch(5, [b"a"])), found(batch(0, [b"b"]), 1)]))
    assert told.lines == ["1 instance 4: 0 b", "1 instance 4: stands at 1"]
    assert targets_of(brokers.requests[1][2]) == ((7, 1), {1: 1}, [0])


@pytest.mark.parametrize("error_code", [6, 74, 75])
async def test_stale_leader_is_asked_for_anew(tail: Fetcher, brokers: FakeBrokers, told: Told, error_code: int) -> None:
    tail.follow(0, 3, 5)
    await brokers.wait_requests(1)
    brokers.leaders[0] = (2, 1)
    await answer(brokers, fetched([found(b"", error_code=error_code)]))
    await wait_until(lambda: 2 in {broker_id for broker_id, _, _ in brokers.requests})
    moved = next(body for broker_id, _, body in brokers.requests if broker_id == 2)
    assert targets_of(moved) == ((0, 0), {0: 5}, [])
    assert told.lines == []


@pytest.mark.parametrize("late", [found(batch(5, [b"a"])), found(b"", error_code=1), found(b"", is_diverging=True)])
async def test_a_leader_of_the_past_that_answers_late_is_not_listened_to(
    tail: Fetcher, brokers: FakeBrokers, told: Told, late: Fetched
) -> None:
    tail.follow(0, 3, 5)
    await brokers.wait_requests(1)
    brokers.elected[1] = {0: (2, 1)}
    await brokers.refresh()
    await brokers.wait_requests(2)
    brokers.answers.extend([lambda _: fetched([late]), lambda _: fetched([found(batch(5, [b"b"]))])])
    brokers.answer_one()
    brokers.answer_one()
    await wait_until(lambda: bool(told.lines))
    assert told.lines == ["0 instance 3: 5 b", "0 instance 3: stands at 6"]


async def test_a_new_leader_goes_on_where_the_slices_of_the_old_one_end(
    tail: Fetcher, brokers: FakeBrokers, told: Told
) -> None:
    tail.follow(0, 3, 5)
    await brokers.wait_requests(1)
    brokers.elected[1] = {0: (2, 1)}
    told.at_records = lambda: brokers.asking.append(asyncio.ensure_future(brokers.refresh()))
    whole = bytearray(batch(5, [b"a", b"b", b"c", b"d", b"e"]))
    whole[12:16] = bytes(4)  # the leader epoch, which is not in the checksum
    brokers.answers.append(lambda _: fetched([found(bytes(whole))]))
    brokers.answer_one()
    await wait_until(lambda: 2 in {broker_id for broker_id, _, _ in brokers.requests})
    moved = next(body for broker_id, _, body in brokers.requests if broker_id == 2)
    assert told.lines == ["0 instance 3: 5 a, 6 b"]
    assert targets_of(moved) == ((0, 0), {0: 7}, [])
    request, _ = entity_reader(FetchRequest)(moved, 0)
    # Offset 7 lies in the epoch of the batch that holds 5 to 9, and not in the one before.
    assert request.topics[0].partitions[0].last_fetched_epoch == 0
    brokers.answers.append(lambda _: fetched([found(bytes(whole))]))
    told.at_records = lambda: None
    brokers.answer_one()
    await wait_until(lambda: len(told.lines) == 4)
    assert told.lines[1:] == ["0 instance 3: 7 c, 8 d", "0 instance 3: 9 e", "0 instance 3: stands at 10"]


async def test_a_batch_of_ours_that_is_met_in_slices_may_land_meanwhile(
    tail: Fetcher, brokers: FakeBrokers, told: Told, sent: Sent
) -> None:
    own = SentBatch(b"as it was before the broker wrote it anew", 3, b"h0", b"h2", None)
    sent.append(own)
    told.at_records = lambda: tail.on_acknowledged(0, own, 5)
    tail.follow(0, 3, 5)
    await answer(brokers, fetched([found(batch(5, [b"a", b"b", b"c"]))]))
    assert told.lines == ["0 instance 3: 5 a, 6 b", "0 instance 3: 7 c", "0 instance 3: stands at 8"]
    assert not sent


@pytest.mark.parametrize(
    ("bad", "line"),
    [
        (found(b"", error_code=1), "0 instance 3: failed, offset 5 is out of range"),
        (
            found(b"", is_diverging=True),
            "0 instance 3: alarm, the log was truncated below offset 5",
        ),
        (found(b"", error_code=-1), "0 instance 3: failed, the broker answered error -1"),
    ],
)
async def test_reading_ends_with_an_error(
    tail: Fetcher, brokers: FakeBrokers, told: Told, bad: Fetched, line: str
) -> None:
    tail.follow(0, 3, 5)
    tail.follow(1, 4, 0)
    await answer(brokers, fetched([bad]))
    assert told.lines == [line]
    assert targets_of(brokers.requests[1][2])[2] == [0]


@pytest.mark.parametrize("error_code", [70, 71])
async def test_session_that_the_broker_lost_begins_anew(
    tail: Fetcher, brokers: FakeBrokers, told: Told, error_code: int
) -> None:
    tail.follow(0, 3, 5)
    await answer(brokers, fetched([]), fetched([], error_code=error_code))
    assert [targets_of(body)[:2] for _, _, body in brokers.requests] == [
        ((0, 0), {0: 5}),
        ((7, 1), {}),
        ((0, 0), {0: 5}),
    ]


async def test_broken_batch_is_fetched_again(tail: Fetcher, brokers: FakeBrokers, told: Told) -> None:
    broken = bytearray(batch(5, [b"a"]))
    broken[-1] ^= 1
    tail.follow(0, 3, 5)
    await answer(brokers, fetched([found(bytes(broken))]), fetched([found(batch(5, [b"a"]))]))
    assert told.lines == ["0 instance 3: 5 a", "0 instance 3: stands at 6"]


async def test_answer_that_cannot_be_read_ends_the_reading_of_its_partitions(
    tail: Fetcher, brokers: FakeBrokers, told: Told
) -> None:
    tail.follow(0, 3, 5)
    await brokers.wait_requests(1)
    brokers.answers.append(lambda _: b"nonsense")
    brokers.answer_one()
    await wait_until(lambda: bool(told.lines))
    assert told.lines[0].startswith("0 instance 3: failed, a broker sent an answer that cannot be read: ")
    tail.follow(0, 4, 5)
    await brokers.wait_requests(2)


async def test_close_ends_every_session(tail: Fetcher, brokers: FakeBrokers) -> None:
    tail.follow(0, 3, 5)
    await brokers.wait_requests(1)
    await tail.close()
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("holdfast-tail")]


async def test_partition_without_a_leader_is_looked_for_until_it_has_one(
    tail: Fetcher, brokers: FakeBrokers, told: Told
) -> None:
    del brokers.leaders[0]
    brokers.elected[3] = {0: (2, 0)}
    tail.follow(0, 3, 5)
    await brokers.wait_requests(1)
    assert brokers.requests[0][0] == 2
    assert brokers.refreshes == 3


async def test_a_search_for_leaders_that_fails_is_no_context_of_what_fails_elsewhere(
    tail: Fetcher, brokers: FakeBrokers, told: Told
) -> None:
    del brokers.leaders[0]
    brokers.failures_left = 5
    brokers.elected[1] = {0: (2, 0)}
    tail.follow(0, 3, 5)
    contexts = set()
    while not brokers.requests:
        await asyncio.sleep(0)
        try:
            raise ValueError
        except ValueError as elsewhere:
            contexts.add(elsewhere.__context__)
    assert contexts == {None}


async def test_a_load_is_told_in_slices_and_ends_where_the_log_ended(
    tail: Fetcher, brokers: FakeBrokers, told: Told
) -> None:
    tail.follow(0, 3, 5, 11)
    tail.follow(1, 3, 0)
    await answer(brokers, fetched([found(batch(5, [b"a", b"b", b"c", b"d", b"e"]) + batch(10, [b"f"]))]))
    assert told.lines == [
        "0 instance 3: 5 a, 6 b",
        "0 instance 3: 7 c, 8 d",
        "0 instance 3: 9 e",
        "0 instance 3: stands at 10",
        "0 instance 3: 10 f",
        "0 instance 3: stands at 11",
        "0 instance 3: ended at 11",
    ]


async def test_between_slices_a_load_can_be_forgotten(tail: Fetcher, brokers: FakeBrokers, told: Told) -> None:
    read = told.records_read

    def read_and_forget(partition: int, instance: int, records: list[LogRecord]) -> None:
        read(partition, instance, records)
        asyncio.get_running_loop().call_soon(tail.forget, partition)

    told.records_read = read_and_forget  # type: ignore[method-assign]
    tail.follow(0, 3, 5, 10)
    tail.follow(1, 3, 0)
    await answer(brokers, fetched([found(batch(5, [b"a", b"b", b"c", b"d", b"e"]))]))
    assert told.lines == ["0 instance 3: 5 a, 6 b"]


async def test_partition_forgotten_between_slices_is_told_no_more(
    tail: Fetcher, brokers: FakeBrokers, told: Told
) -> None:
    def follow_anew() -> None:
        tail.forget(0)
        tail.follow(0, 4, 0, 9)

    told.at_records = lambda: asyncio.get_running_loop().call_soon(follow_anew)
    tail.follow(0, 3, 0, 9)
    await answer(brokers, fetched([found(batch(0, [b"%d" % number for number in range(9)]))]))
    assert told.lines == ["0 instance 3: 0 0, 1 1"]
    assert targets_of(brokers.requests[1][2])[1] == {0: 0}


async def test_out_of_range_without_bounds_is_told_without_them(
    tail: Fetcher, brokers: FakeBrokers, told: Told
) -> None:
    tail.follow(0, 3, 5)
    tail.follow(1, 4, 0)
    await answer(brokers, fetched([Fetched(0, 1, -1, -1, False, b"")]))
    assert told.lines == ["0 instance 3: failed, offset 5 is out of range"]


async def test_each_answer_tells_when_its_request_left(brokers: FakeBrokers, told: Told) -> None:
    heard: list[tuple[int, float]] = []
    tail = Fetcher(
        "tail",
        CONFIG,
        brokers,  # type: ignore[arg-type]
        lambda: told,  # type: ignore[arg-type,return-value]
        Sent().batches,
        make_metrics(),
        told.ended,
        on_heard=lambda broker_id, sent_s: heard.append((broker_id, sent_s)),
    )
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    tail.follow(0, 3, 5)
    await brokers.wait_requests(1)
    left_s = loop.time()
    await wait_until(lambda: loop.time() > left_s)
    await answer(brokers, fetched([]))
    assert [broker_id for broker_id, _ in heard] == [1]
    assert began_s <= heard[0][1] <= left_s
    await tail.close()


async def test_a_broker_that_asks_for_a_pause_is_fetched_from_when_it_is_over(
    tail: Fetcher, brokers: FakeBrokers
) -> None:
    loop = asyncio.get_running_loop()
    tail.follow(0, 3, 5)
    await brokers.wait_requests(1)
    brokers.answers.append(lambda _: (100).to_bytes(4, "big") + fetched([])[4:])
    began_s = loop.time()
    brokers.answer_one()
    await brokers.wait_requests(2)
    assert loop.time() - began_s >= 0.1


async def test_while_a_broker_wants_a_pause_it_is_asked_nothing_and_the_rest_of_the_node_goes_on(
    tail: Fetcher, brokers: FakeBrokers, told: Told
) -> None:
    brokers.always = lambda _: (60_000).to_bytes(4, "big") + fetched([])[4:]
    tail.follow(0, 3, 5)
    await brokers.wait_requests(1)
    for _ in range(20):
        await asyncio.sleep(0)
    tail.follow(1, 3, 5)
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(brokers.requests) == 1
    await asyncio.wait_for(tail.close(), 60)
