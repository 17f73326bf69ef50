"""Batches of ours that their leader acknowledged: they are read back without a fetch, and confirmed if the leader changed."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from holdfast.runtime.kafka_log.fetcher import Fetcher
from holdfast.runtime.kafka_log.sent_batches import SentBatch
from tests.configs import fetcher_config
from tests.pure.kafka.brokers.fake_brokers import FakeBrokers, batch, fetched, last_epochs_of, targets_of, wait_ms_of
from tests.pure.runtime.kafka_log.fetcher_world import Reports, Sent, answer, found, make_tail
from tests.waiting import PATIENCE_MS, wait_until


async def test_batch_acknowledged_at_tail_position_needs_no_fetch(
    tail: Fetcher, silent_brokers: FakeBrokers, reports: Reports, sent: Sent
) -> None:
    ours = batch(5, [b"a", b"b"])
    sent.append(SentBatch(ours, 2, b"h0", b"h1", None))
    sent.append(SentBatch(b"next", 1, b"h2", b"h2", None))
    tail.follow(0, 3, 5)
    await silent_brokers.wait_requests(1)
    tail.on_acknowledged(0, sent.oldest, 5)
    tail.on_acknowledged(0, sent.oldest, 7)
    assert reports.lines == ["0 instance 3: 2 own from 5", "0 instance 3: 1 own from 7"]
    assert not sent
    await answer(silent_brokers, fetched([found(ours)]))
    assert reports.lines[2:] == [], "a fetch that brings it once more tells nothing"
    assert targets_of(silent_brokers.requests[1][2])[1] == {0: 8}


async def test_acknowledged_batch_deleted_by_another_program_is_not_missed(
    tail: Fetcher, silent_brokers: FakeBrokers, reports: Reports, sent: Sent
) -> None:
    """A fetch that was sent before it was acknowledged finds its offset below the log start."""
    sent.append(SentBatch(batch(5, [b"a", b"b"]), 2, b"h0", b"h1", None))
    tail.follow(0, 3, 5)
    tail.follow(1, 4, 0)
    await silent_brokers.wait_requests(1)
    tail.on_acknowledged(0, sent.oldest, 5)
    await answer(silent_brokers, fetched([found(b"", error_code=1)]))
    assert reports.lines == ["0 instance 3: 2 own from 5"]
    assert targets_of(silent_brokers.requests[1][2])[1][0] == 7
    await answer(silent_brokers, fetched([found(b"", error_code=1)]))
    assert reports.lines[1:] == ["0 instance 3: failed, offset 7 is out of range"]


@pytest.mark.parametrize("is_fetched", [False, True])
async def test_partition_may_be_given_up_over_a_batch_of_ours(
    tail: Fetcher, silent_brokers: FakeBrokers, reports: Reports, sent: Sent, is_fetched: bool
) -> None:
    def give_up() -> None:
        tail.forget(0)
        sent.clear()

    ours = batch(5, [b"a"])
    sent.append(SentBatch(ours, 1, b"h0", b"h0", None))
    reports.at_records = give_up
    tail.follow(0, 3, 5)
    tail.follow(1, 4, 0)
    await silent_brokers.wait_requests(1)
    if not is_fetched:
        tail.on_acknowledged(0, sent.oldest, 5)
    await answer(silent_brokers, fetched([found(ours + batch(6, [b"b"]))]))
    assert reports.lines == ["0 instance 3: 1 own from 5"]
    assert targets_of(silent_brokers.requests[1][2])[2] == [0]


async def test_batch_that_was_appended_further_on_waits_for_what_lies_between(
    tail: Fetcher, silent_brokers: FakeBrokers, reports: Reports, sent: Sent
) -> None:
    """There may be the checkpoint of a newer owner between them."""
    ours = batch(6, [b"a"])
    sent.append(SentBatch(ours, 1, b"h0", b"h0", None))
    tail.follow(0, 3, 5)
    await silent_brokers.wait_requests(1)
    tail.on_acknowledged(0, sent.oldest, 6)
    assert reports.lines == []
    await answer(silent_brokers, fetched([found(batch(5, [b"rival"], header=b"rival ") + ours)]))
    assert reports.lines == ["0 instance 3: 5 rival", "0 instance 3: stands at 6", "0 instance 3: 1 own from 6"]


async def test_acknowledged_batch_that_is_not_accepted_is_read_by_record(
    tail: Fetcher, silent_brokers: FakeBrokers, reports: Reports, sent: Sent
) -> None:
    ours = batch(5, [b"a"])
    sent.append(SentBatch(ours, 1, b"h0", b"h0", None))
    reports.takes_own = False
    tail.follow(0, 3, 5)
    await silent_brokers.wait_requests(1)
    tail.on_acknowledged(0, sent.oldest, 5)
    await answer(silent_brokers, fetched([found(ours)]))
    assert reports.lines == ["0 instance 3: 5 a", "0 instance 3: stands at 6"]


async def land_and_move(tail: Fetcher, silent_brokers: FakeBrokers, sent: Sent) -> bytes:
    """Append a batch at offsets 5 and 6, then elect another broker; returns the batch as the log holds it."""
    ours = batch(5, [b"a", b"b"])
    sent.append(SentBatch(ours, 2, b"h0", b"h1", None))
    tail.follow(0, 3, 5)
    await silent_brokers.wait_requests(1)
    tail.on_acknowledged(0, sent.oldest, 5)
    silent_brokers.elected[1] = {0: (2, 4)}
    await silent_brokers.refresh()
    await silent_brokers.wait_requests(2)
    return ours[:12] + (3).to_bytes(4, "big") + ours[16:]  # with the epoch of its leader, which the checksum leaves out


async def test_acknowledged_batch_is_fetched_from_new_leader_with_its_epoch(
    tail: Fetcher, silent_brokers: FakeBrokers, reports: Reports, sent: Sent
) -> None:
    ours = await land_and_move(tail, silent_brokers, sent)
    assert (targets_of(silent_brokers.requests[1][2])[1], last_epochs_of(silent_brokers.requests[1][2])) == (
        {0: 6},
        {0: -1},
    )
    sent.append(SentBatch(b"next", 1, b"h2", b"h2", None))
    tail.on_acknowledged(0, sent.oldest, 7)
    assert reports.lines == ["0 instance 3: 2 own from 5"], "the log may have lost the batch before"
    silent_brokers.answers += [lambda _: fetched([]), lambda _: fetched([found(ours)])]
    silent_brokers.answer_one()
    silent_brokers.answer_one()
    await silent_brokers.wait_requests(3)
    assert (targets_of(silent_brokers.requests[2][2])[1], last_epochs_of(silent_brokers.requests[2][2])) == (
        {0: 7},
        {0: 3},
    )
    assert reports.lines == ["0 instance 3: 2 own from 5"]
    tail.on_acknowledged(0, sent.oldest, 7)
    assert reports.lines[1:] == ["0 instance 3: 1 own from 7"]


async def test_acknowledged_batch_is_fetched_from_new_leader_after_damage(
    tail: Fetcher, silent_brokers: FakeBrokers, sent: Sent
) -> None:
    behind = bytearray(batch(7, [b"c"]))
    behind[-1] ^= 1
    sent.append(SentBatch(batch(5, [b"a", b"b"]), 2, b"h0", b"h1", None))
    tail.follow(0, 3, 5)
    await silent_brokers.wait_requests(1)
    tail.on_acknowledged(0, sent.oldest, 5)
    silent_brokers.elected[1] = {0: (2, 4)}
    await answer(silent_brokers, fetched([]), fetched([found(bytes(behind))]))
    assert [targets_of(body)[1] for _, _, body in silent_brokers.requests] == [{0: 5}, {0: 7}, {0: 6}]


async def test_acknowledgement_after_new_election_needs_a_fetch(
    tail: Fetcher, silent_brokers: FakeBrokers, reports: Reports, sent: Sent
) -> None:
    """The records of the tail were checked with the former leader, and the log may have lost them since."""
    tail.follow(0, 3, 5)
    await silent_brokers.wait_requests(1)
    sent.append(SentBatch(batch(5, [b"a"]), 1, b"h0", b"h0", None))
    silent_brokers.elected[1] = {0: (1, 4)}
    await silent_brokers.refresh()
    tail.on_acknowledged(0, sent.oldest, 5)
    assert reports.lines == []


@pytest.mark.parametrize(
    "grown", [batch(5, [b"a", b"b"], header=b"other"), batch(6, [b"c", b"d"]), batch(7, [b"c"]), batch(6, [b"c"])]
)
async def test_a_log_that_lost_what_was_appended_and_grew_again_is_an_alarm(
    tail: Fetcher, silent_brokers: FakeBrokers, reports: Reports, sent: Sent, grown: bytes
) -> None:
    await land_and_move(tail, silent_brokers, sent)
    silent_brokers.answers += [lambda _: fetched([]), lambda _: fetched([found(grown)])]
    silent_brokers.answer_one()
    silent_brokers.answer_one()
    await wait_until(lambda: len(reports.lines) == 2)
    assert reports.lines[1] == "0 instance 3: alarm, the log was truncated below offset 7"


async def look(silent_brokers: FakeBrokers, *answers: bytes) -> list[dict[int, int]]:
    """Answer the fetch of the former leader with nothing and the next ones with these; returns their offsets and that of the one after."""
    for each in (fetched([]), *answers):
        silent_brokers.answers.append(lambda _, each=each: each)  # type: ignore[misc]
    silent_brokers.answer_one()
    for count in range(len(answers)):
        await silent_brokers.wait_requests(2 + count)
        silent_brokers.answer_one()
    return [targets_of(body)[1] for _, _, body in silent_brokers.requests[1:]]


async def test_a_log_that_lost_what_was_appended_and_stayed_short_loads_again(
    tail: Fetcher, silent_brokers: FakeBrokers, reports: Reports, sent: Sent
) -> None:
    """A leader holds a fetch from its log's end, so the next one begins at an offset that a log without the record does not reach."""
    await land_and_move(tail, silent_brokers, sent)
    began = await look(silent_brokers, fetched([]), fetched([found(b"", error_code=1)]))
    assert began == [{0: 6}, {0: 7}]
    await wait_until(lambda: len(reports.lines) == 2)
    assert reports.lines[1] == "0 instance 3: failed, offset 7 is out of range"


@pytest.mark.parametrize("before", [[], [fetched([]), fetched([])]])
async def test_a_tail_that_is_where_the_log_of_a_new_leader_starts_goes_on(
    tail: Fetcher, silent_brokers: FakeBrokers, reports: Reports, sent: Sent, before: list[bytes]
) -> None:
    """Another program deleted the records that the tail has read; the memory that must write them again must not be lost with them."""
    await land_and_move(tail, silent_brokers, sent)
    out_of_range, behind = found(b"", error_code=1), found(batch(7, [b"c"]))._replace(log_start_offset=7)
    began = await look(silent_brokers, *before, fetched([out_of_range]), fetched([behind]))
    assert began[-2:] == [{0: 6}, {0: 7}]
    await wait_until(lambda: len(reports.lines) == 4)
    assert reports.lines[1:] == [
        "0 instance 3: log starts at 7",
        "0 instance 3: 7 c",
        "0 instance 3: stands at 8",
    ]


async def test_batch_at_log_start_of_new_leader_needs_no_fetch(
    tail: Fetcher, silent_brokers: FakeBrokers, reports: Reports, sent: Sent
) -> None:
    await land_and_move(tail, silent_brokers, sent)
    empty = found(b"")._replace(log_start_offset=7)
    await look(silent_brokers, fetched([found(b"", error_code=1)]), fetched([empty]))
    await silent_brokers.wait_requests(4)
    sent.append(SentBatch(b"next", 1, b"h2", b"h2", None))
    tail.on_acknowledged(0, sent.oldest, 7)
    assert reports.lines[1:] == ["0 instance 3: log starts at 7", "0 instance 3: 1 own from 7"]


async def test_batch_below_log_start_of_new_leader_causes_a_load(
    tail: Fetcher, silent_brokers: FakeBrokers, reports: Reports, sent: Sent
) -> None:
    """Records between the tail and the log start were never read, so they may be another owner's."""
    await land_and_move(tail, silent_brokers, sent)
    out_of_range = found(b"", error_code=1)
    began = await look(silent_brokers, fetched([out_of_range]), fetched([out_of_range]))
    assert began == [{0: 6}, {0: 7}]
    await wait_until(lambda: len(reports.lines) == 2 or len(silent_brokers.requests) > 3)
    assert reports.lines[1:] == ["0 instance 3: failed, offset 7 is out of range"]


async def test_a_log_that_starts_below_what_was_appended_is_asked_for_it_again(
    tail: Fetcher, silent_brokers: FakeBrokers, reports: Reports, sent: Sent
) -> None:
    """One answer "out of range" proves nothing: the leader had less of the log then."""
    await land_and_move(tail, silent_brokers, sent)
    behind = found(batch(7, [b"c"]))._replace(log_start_offset=6)
    there = found(batch(6, [b"b"], header=b"other"))._replace(log_start_offset=6)
    began = await look(silent_brokers, fetched([found(b"", error_code=1)]), fetched([behind]), fetched([there]))
    assert began == [{0: 6}, {0: 7}, {0: 6}]
    await wait_until(lambda: len(reports.lines) == 3)
    assert reports.lines[1:] == [
        "0 instance 3: log starts at 6",
        "0 instance 3: alarm, the log was truncated below offset 7",
    ]


async def test_broker_that_repeats_out_of_range_is_asked_with_pauses(
    tail: Fetcher, silent_brokers: FakeBrokers, reports: Reports, sent: Sent
) -> None:
    await land_and_move(tail, silent_brokers, sent)
    behind = found(batch(7, [b"c"]))._replace(log_start_offset=6)
    out_of_range = found(b"", error_code=1)
    await look(silent_brokers, *[fetched([out_of_range]), fetched([behind])] * 3)
    await silent_brokers.wait_requests(8)
    assert silent_brokers.refreshes == 1 + 3, "a look at the leaders begins with a pause"
    assert reports.lines[1:] == ["0 instance 3: log starts at 6"]


async def test_a_leader_that_learns_its_high_watermark_late_is_given_the_time(
    tail: Fetcher, silent_brokers: FakeBrokers, reports: Reports, sent: Sent
) -> None:
    ours = await land_and_move(tail, silent_brokers, sent)
    began = await look(silent_brokers, fetched([]), fetched([]), fetched([]), fetched([]), fetched([found(ours)]))
    assert began == [{0: 6}, {0: 7}, {0: 6}, {0: 7}, {0: 6}]
    await silent_brokers.wait_requests(7)
    assert targets_of(silent_brokers.requests[6][2])[1] == {0: 7}
    assert last_epochs_of(silent_brokers.requests[6][2]) == {0: 3}
    assert reports.lines == ["0 instance 3: 2 own from 5"]


@pytest.mark.parametrize("is_lost", [False, True])
async def test_records_after_acknowledged_batch_are_reported_once_it_is_seen(
    tail: Fetcher, silent_brokers: FakeBrokers, reports: Reports, sent: Sent, is_lost: bool
) -> None:
    ours = await land_and_move(tail, silent_brokers, sent)
    behind = batch(7, [b"c"])
    there = batch(5, [b"a", b"b"], header=b"other") if is_lost else ours
    await look(silent_brokers, fetched([]), fetched([found(behind)]))
    await silent_brokers.wait_requests(4)
    assert targets_of(silent_brokers.requests[3][2])[1] == {0: 6}
    assert reports.lines == ["0 instance 3: 2 own from 5"], "the log may have lost the batch before"
    silent_brokers.answers.append(lambda _: fetched([found(there + behind)]))
    silent_brokers.answer_one()
    await wait_until(lambda: len(reports.lines) == (2 if is_lost else 3))
    assert reports.lines[1:] == (
        ["0 instance 3: alarm, the log was truncated below offset 7"]
        if is_lost
        else ["0 instance 3: 7 c", "0 instance 3: stands at 8"]
    )


async def test_acknowledgement_of_read_or_forgotten_batch_changes_nothing(
    tail: Fetcher, silent_brokers: FakeBrokers, reports: Reports, sent: Sent
) -> None:
    ours = batch(5, [b"a"])
    read_back = SentBatch(ours, 1, b"h0", b"h0", None)
    sent.append(read_back)
    tail.follow(0, 3, 5)
    await answer(silent_brokers, fetched([found(ours)]))
    tail.on_acknowledged(0, read_back, 5)
    tail.on_acknowledged(1, read_back, 5)
    assert reports.lines == ["0 instance 3: 1 own from 5"]


async def test_batch_that_was_appended_below_what_was_read_shows_a_truncated_log(
    tail: Fetcher, silent_brokers: FakeBrokers, reports: Reports, sent: Sent
) -> None:
    sent.append(SentBatch(b"ours", 1, b"h0", b"h0", None))
    tail.follow(0, 3, 5)
    tail.follow(1, 4, 0)
    await silent_brokers.wait_requests(1)
    tail.on_acknowledged(0, sent.oldest, 4)
    assert reports.lines == [
        "0 instance 3: alarm, a new batch is at offset 4, below 5, which was read before: the log was truncated"
    ]
    await answer(silent_brokers, fetched([]))
    assert targets_of(silent_brokers.requests[1][2])[2] == [0]


async def test_fetch_pauses_unheld_while_batches_are_acknowledged(
    tail: Fetcher, silent_brokers: FakeBrokers, sent: Sent
) -> None:
    tail.follow(0, 3, 5)
    await silent_brokers.wait_requests(1)
    land(tail, sent, 5)
    await answer(silent_brokers, fetched([]), fetched([]))
    assert [targets_of(body)[1] for _, _, body in silent_brokers.requests] == [{0: 5}, {0: 6}, {}]
    assert [wait_ms_of(body) for _, _, body in silent_brokers.requests] == [10, 0, 10]


@pytest.fixture
async def patient(silent_brokers: FakeBrokers, reports: Reports, sent: Sent) -> AsyncIterator[Fetcher]:
    """Give a tail that fetches nothing for longer than a test lasts, while batches are appended and there is nothing else to read."""
    config = fetcher_config(fetch_wait_ms=10 * PATIENCE_MS, retry_backoff_ms=50)
    patient = make_tail(silent_brokers, reports, sent.batches, config)
    yield patient
    await patient.close()


async def let_the_loop_turn() -> None:
    """Run everything that waits neither for an answer nor for a timer."""
    for _ in range(100):
        await asyncio.sleep(0)


async def test_read_index_is_fetched_at_once_while_batches_are_acknowledged(
    patient: Fetcher, silent_brokers: FakeBrokers, sent: Sent
) -> None:
    patient.follow(0, 3, 5)
    await silent_brokers.wait_requests(1)
    land(patient, sent, 5)
    silent_brokers.answer_one()
    for offset in (5, 6):
        patient.reach(0, offset)
    sent.append(SentBatch(b"on its way", 1, b"h", b"h", None))
    patient.reach(0, 7)
    await let_the_loop_turn()
    assert len(silent_brokers.requests) == 1
    sent.clear()
    patient.reach(0, 7)
    await let_the_loop_turn()
    assert len(silent_brokers.requests) == 2


async def test_read_index_wanted_during_a_fetch_is_fetched_next(
    patient: Fetcher, silent_brokers: FakeBrokers, sent: Sent
) -> None:
    patient.follow(0, 3, 5)
    await silent_brokers.wait_requests(1)
    land(patient, sent, 5)
    patient.reach(0, 7)
    silent_brokers.answer_one()
    await let_the_loop_turn()
    assert len(silent_brokers.requests) == 2


def land(tail: Fetcher, sent: Sent, offset: int) -> None:
    sent.append(SentBatch(b"ours", 1, b"h", b"h", None))
    tail.on_acknowledged(0, sent.oldest, offset)


async def test_batch_read_in_slices_may_be_acknowledged_meanwhile(
    tail: Fetcher, silent_brokers: FakeBrokers, reports: Reports, sent: Sent
) -> None:
    own = SentBatch(b"as it was before the broker wrote it anew", 3, b"h0", b"h2", None)
    sent.append(own)
    reports.at_records = lambda: tail.on_acknowledged(0, own, 5)
    tail.follow(0, 3, 5)
    await answer(silent_brokers, fetched([found(batch(5, [b"a", b"b", b"c"]))]))
    assert reports.lines == ["0 instance 3: 5 a, 6 b", "0 instance 3: 7 c", "0 instance 3: stands at 8"]
    assert not sent
