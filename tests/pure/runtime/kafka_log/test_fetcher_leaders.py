"""Leaders that move, are unknown, or are no leaders any more."""

import asyncio

import pytest
from kio.schema.fetch.v12.request import FetchRequest
from kio.serial import entity_reader

from holdfast.kafka.protocol.requests import Fetched
from holdfast.runtime.kafka_log.fetcher import Fetcher
from tests.pure.kafka.brokers.fake_brokers import FakeBrokers, batch, fetched, targets_of
from tests.pure.runtime.kafka_log.fetcher_world import Reports, answer, found
from tests.waiting import wait_until


@pytest.mark.parametrize("error_code", [6, 74, 75])
async def test_stale_leader_is_looked_up_again(
    tail: Fetcher, silent_brokers: FakeBrokers, reports: Reports, error_code: int
) -> None:
    tail.follow(0, 3, 5)
    await silent_brokers.wait_requests(1)
    silent_brokers.leaders[0] = (2, 1)
    await answer(silent_brokers, fetched([found(b"", error_code=error_code)]))
    await wait_until(lambda: 2 in {broker_id for broker_id, _, _ in silent_brokers.requests})
    moved = next(body for broker_id, _, body in silent_brokers.requests if broker_id == 2)
    assert targets_of(moved) == ((0, 0), {0: 5}, [])
    assert reports.lines == []


@pytest.mark.parametrize("late", [found(batch(5, [b"a"])), found(b"", error_code=1), found(b"", is_diverging=True)])
async def test_a_leader_of_the_past_that_answers_late_is_not_listened_to(
    tail: Fetcher, silent_brokers: FakeBrokers, reports: Reports, late: Fetched
) -> None:
    tail.follow(0, 3, 5)
    await silent_brokers.wait_requests(1)
    silent_brokers.elected[1] = {0: (2, 1)}
    await silent_brokers.refresh()
    await silent_brokers.wait_requests(2)
    silent_brokers.answers.extend([lambda _: fetched([late]), lambda _: fetched([found(batch(5, [b"b"]))])])
    silent_brokers.answer_one()
    silent_brokers.answer_one()
    await wait_until(lambda: bool(reports.lines))
    assert reports.lines == ["0 instance 3: 5 b", "0 instance 3: stands at 6"]


async def test_a_new_leader_goes_on_where_the_slices_of_the_old_one_end(
    tail: Fetcher, silent_brokers: FakeBrokers, reports: Reports
) -> None:
    tail.follow(0, 3, 5)
    await silent_brokers.wait_requests(1)
    silent_brokers.elected[1] = {0: (2, 1)}
    reports.at_records = lambda: silent_brokers.asking.append(asyncio.ensure_future(silent_brokers.refresh()))
    whole = bytearray(batch(5, [b"a", b"b", b"c", b"d", b"e"]))
    whole[12:16] = bytes(4)  # the leader epoch, which is not in the checksum
    silent_brokers.answers.append(lambda _: fetched([found(bytes(whole))]))
    silent_brokers.answer_one()
    await wait_until(lambda: 2 in {broker_id for broker_id, _, _ in silent_brokers.requests})
    moved = next(body for broker_id, _, body in silent_brokers.requests if broker_id == 2)
    assert reports.lines == ["0 instance 3: 5 a, 6 b"]
    assert targets_of(moved) == ((0, 0), {0: 7}, [])
    request, _ = entity_reader(FetchRequest)(moved, 0)
    # Offset 7 lies in the epoch of the batch that holds 5 to 9, and not in the one before.
    assert request.topics[0].partitions[0].last_fetched_epoch == 0
    silent_brokers.answers.append(lambda _: fetched([found(bytes(whole))]))
    reports.at_records = lambda: None
    silent_brokers.answer_one()
    await wait_until(lambda: len(reports.lines) == 4)
    assert reports.lines[1:] == ["0 instance 3: 7 c, 8 d", "0 instance 3: 9 e", "0 instance 3: stands at 10"]


async def test_partition_without_a_leader_is_looked_for_until_it_has_one(
    tail: Fetcher, silent_brokers: FakeBrokers, reports: Reports
) -> None:
    del silent_brokers.leaders[0]
    silent_brokers.elected[3] = {0: (2, 0)}
    tail.follow(0, 3, 5)
    await silent_brokers.wait_requests(1)
    assert silent_brokers.requests[0][0] == 2
    assert silent_brokers.refreshes == 3


async def test_failed_search_for_leaders_is_no_context_of_other_failures(
    tail: Fetcher, silent_brokers: FakeBrokers, reports: Reports
) -> None:
    del silent_brokers.leaders[0]
    silent_brokers.failures_left = 5
    silent_brokers.elected[1] = {0: (2, 0)}
    tail.follow(0, 3, 5)
    contexts = set()
    while not silent_brokers.requests:
        await asyncio.sleep(0)
        try:
            raise ValueError
        except ValueError as elsewhere:
            contexts.add(elsewhere.__context__)
    assert contexts == {None}
