"""Queries for offsets to brokers that are silent, answer late or answer nonsense."""

import asyncio
from collections.abc import AsyncIterator
from struct import Struct

import pytest
from kio.schema.list_offsets.v5.request import ListOffsetsRequest
from kio.serial import entity_reader

from holdfast.kafka.errors import ConnectionFailed
from holdfast.kafka.protocol import requests
from holdfast.metrics.registry import Registry
from holdfast.runtime.kafka_log.list_offsets import OffsetQueries
from holdfast.runtime.metrics import RuntimeMetrics
from tests.configs import offset_query_bounds
from tests.pure.kafka.brokers.fake_brokers import FakeBrokers
from tests.waiting import wait_until

_FOUND = Struct(">ihqqi")

Reports = list[tuple[int, dict[int, int | None]]]


def answer(found: dict[int, int], error_code: int = 0) -> bytes:
    """Return the answer to ListOffsets."""
    head = bytes(4) + (1).to_bytes(4, "big") + b"\x00\x05topic" + len(found).to_bytes(4, "big")
    return head + b"".join(_FOUND.pack(partition, error_code, -1, offset, 0) for partition, offset in found.items())


def asked_of(brokers: FakeBrokers) -> list[tuple[int, dict[int, int]]]:
    """Return each query: the broker, and the leader epoch by partition."""
    asked = []
    for broker_id, _, body in brokers.requests:
        request, _size = entity_reader(ListOffsetsRequest)(body, 0)
        partitions = request.topics[0].partitions
        asked.append((broker_id, {int(each.partition_index): int(each.current_leader_epoch) for each in partitions}))
    return asked


@pytest.fixture
def brokers() -> FakeBrokers:
    brokers = FakeBrokers({0: 1, 1: 2, 2: 2})
    brokers.leaders[2] = (2, 7)
    brokers.withhold_answers()
    return brokers


@pytest.fixture
def reports() -> Reports:
    return []


@pytest.fixture
async def offsets(brokers: FakeBrokers, reports: Reports) -> AsyncIterator[OffsetQueries]:
    metrics = RuntimeMetrics(Registry())
    offsets = OffsetQueries(
        brokers,  # type: ignore[arg-type]
        lambda number, found: reports.append((number, found)),
        metrics,
        **offset_query_bounds(),
    )
    yield offsets
    offsets.close()


async def test_each_broker_has_one_query_and_later_wishes_go_into_the_next(
    offsets: OffsetQueries, brokers: FakeBrokers, reports: Reports
) -> None:
    offsets.want_latest(1, [1])
    await brokers.wait_requests(1)
    offsets.want_latest(2, [2])
    offsets.want_latest(3, [0])
    await brokers.wait_requests(2)
    brokers.answers.append(lambda _: answer({1: 5}))
    brokers.answer_one()
    await brokers.wait_requests(3)
    assert asked_of(brokers) == [(2, {1: 0}), (1, {0: 0}), (2, {2: 7})]
    # The last query was sent when round 3 was already wanted, so it answers that one, too.
    brokers.answers.extend([lambda _: answer({0: 4}), lambda _: answer({2: 6})])
    brokers.release_answers()
    await wait_until(lambda: len(reports) == 3)
    assert reports == [(1, {1: 5}), (3, {0: 4}), (3, {2: 6})]


async def test_partitions_wanted_in_one_turn_are_one_query(
    offsets: OffsetQueries, brokers: FakeBrokers, reports: Reports
) -> None:
    brokers.answers.append(lambda _: answer({1: 5, 2: 6}))
    brokers.release_answers()
    offsets.want_latest(1, [1])
    offsets.want_latest(2, [2])
    await wait_until(lambda: bool(reports))
    assert reports == [(2, {1: 5, 2: 6})]
    assert len(brokers.requests) == 1


async def test_a_silent_broker_holds_up_only_what_it_leads(
    offsets: OffsetQueries, brokers: FakeBrokers, reports: Reports
) -> None:
    offsets.want_latest(1, [0, 1, 2])
    await brokers.wait_requests(2)
    silent = brokers._waiting.popleft()
    brokers.answers.append(lambda _: answer({1: 5, 2: 6}))
    brokers.answer_one()
    await wait_until(lambda: bool(reports))
    assert reports == [(1, {1: 5, 2: 6})]
    brokers.answers.append(lambda _: answer({0: 4}))
    silent.set_result(None)
    await wait_until(lambda: len(reports) == 2)
    assert reports[1] == (1, {0: 4})


async def test_a_broker_that_leads_no_more_is_not_waited_for(
    offsets: OffsetQueries, brokers: FakeBrokers, reports: Reports
) -> None:
    offsets.want_latest(1, [1, 2])
    await brokers.wait_requests(1)
    offsets.want_latest(2, [2])
    brokers.elected[1] = {2: (1, 8)}
    await brokers.refresh()
    await wait_until(lambda: bool(reports))
    assert reports == [(2, {2: None})]
    await brokers.wait_requests(2)
    assert asked_of(brokers)[1] == (1, {2: 8})
    # The answer of the old leader comes late and has old offsets.
    brokers.answers.append(lambda _: answer({1: 5, 2: 6}))
    brokers.answer_one()
    await wait_until(lambda: len(reports) == 2)
    assert reports[1] == (1, {1: 5})


async def test_one_look_up_ends_the_waits_for_several_former_leaders(
    offsets: OffsetQueries, brokers: FakeBrokers, reports: Reports
) -> None:
    offsets.want_latest(1, [0, 1])
    await brokers.wait_requests(2)
    brokers.elected[1] = {0: (3, 1), 1: (3, 1)}
    await brokers.refresh()
    await wait_until(lambda: len(reports) == 2)
    assert reports == [(1, {0: None}), (1, {1: None})]


async def test_a_partition_without_an_answer_does_not_hold_up_those_with_one(
    offsets: OffsetQueries, brokers: FakeBrokers, reports: Reports
) -> None:
    brokers.answers.append(lambda _: answer({1: 5}))
    brokers.release_answers()
    offsets.want_latest(1, [1, 2])
    await wait_until(lambda: len(reports) == 2)
    assert reports == [(1, {1: 5}), (1, {2: None})]
    assert brokers.refreshes == 1


@pytest.mark.parametrize("refreshes_fail", [False, True])
async def test_failure_is_reported_after_leaders_were_looked_up_again(
    offsets: OffsetQueries, brokers: FakeBrokers, reports: Reports, refreshes_fail: bool
) -> None:
    def fail(_: bytes) -> bytes:
        raise ConnectionFailed("it disconnected")

    brokers.answers.extend([fail, lambda _: b"?", lambda _: answer({0: 9}, error_code=6)])
    brokers.failures_left = 3 if refreshes_fail else 0
    brokers.release_answers()
    for number in (1, 2, 3):
        offsets.want_latest(number, [0])
        await wait_until(lambda: len(reports) == number)  # noqa: B023 - waited for within the turn
        assert reports[-1] == (number, {0: None})
        await asyncio.sleep(0)
    assert (brokers.refreshes, brokers.failures_left) == ((0, 0) if refreshes_fail else (3, 0))


async def test_a_start_or_an_end_is_requested_by_itself(offsets: OffsetQueries, brokers: FakeBrokers) -> None:
    brokers.answers.extend([lambda _: answer({2: 3}), lambda _: answer({2: 9}, error_code=75)])
    brokers.release_answers()
    assert await offsets.query(2, requests.EARLIEST) == 3
    assert await offsets.query(2, requests.LATEST) is None
    assert brokers.refreshes == 1
    assert asked_of(brokers) == [(2, {2: 7})] * 2


async def until_silent(loop_s: float) -> None:
    """Wait until a broker was silent for longer than `SILENCE_MS` since a moment of the loop's clock."""
    loop = asyncio.get_running_loop()
    await wait_until(lambda: loop.time() - loop_s > SILENCE_MS / 1_000)


SILENCE_MS = 30


@pytest.fixture
async def doubting(brokers: FakeBrokers, reports: Reports) -> AsyncIterator[OffsetQueries]:
    """Give one that has heard the first broker, which was confirmed then and not since."""
    metrics = RuntimeMetrics(Registry())
    offsets = OffsetQueries(
        brokers,  # type: ignore[arg-type]
        lambda number, found: reports.append((number, found)),
        metrics,
        **offset_query_bounds(leader_silence_max_ms=SILENCE_MS, request_timeout_ms=SILENCE_MS),
    )
    now_s = asyncio.get_running_loop().time()
    brokers.confirmed_at_s[1] = now_s
    offsets.on_heard(1, now_s)
    yield offsets
    offsets.close()


async def test_leader_silent_for_too_long_needs_confirmation_by_another(
    doubting: OffsetQueries, brokers: FakeBrokers, reports: Reports
) -> None:
    """It may have been frozen for longer than its session: another broker leads, and it does not know yet."""
    doubting.want_latest(1, [0])
    await brokers.wait_requests(1)
    await until_silent(asyncio.get_running_loop().time())
    brokers.answers.append(lambda _: answer({0: 4}))
    brokers.answer_one()
    await wait_until(lambda: bool(reports))
    assert reports == [(1, {0: None})]
    assert brokers.refreshes > 1
    # The next query is answered quickly, by a broker that may still not know.
    doubting.want_latest(2, [0])
    await brokers.wait_requests(2)
    brokers.answers.append(lambda _: answer({0: 4}))
    brokers.answer_one()
    await wait_until(lambda: len(reports) == 2)
    assert reports[1] == (2, {0: None})
    doubting.want_latest(3, [0])
    await brokers.wait_requests(3)
    brokers.witnessed.add(1)
    brokers.answers.append(lambda _: answer({0: 5}))
    brokers.answer_one()
    await wait_until(lambda: len(reports) == 3)
    assert reports[2] == (3, {0: 5})


async def test_a_silence_shows_in_the_answer_to_any_request_to_the_broker(
    doubting: OffsetQueries, brokers: FakeBrokers, reports: Reports
) -> None:
    """Nothing was asked of it while it was frozen, but its tail was."""
    before_s = asyncio.get_running_loop().time()
    await until_silent(before_s)
    doubting.on_heard(1, asyncio.get_running_loop().time())
    doubting.want_latest(1, [0])
    brokers.answers.append(lambda _: answer({0: 4}))
    brokers.release_answers()
    await wait_until(lambda: bool(reports))
    assert reports == [(1, {0: None})]


async def test_leader_named_by_another_broker_after_silence_counts(
    doubting: OffsetQueries, brokers: FakeBrokers, reports: Reports
) -> None:
    doubting.want_latest(1, [0])
    await brokers.wait_requests(1)
    await until_silent(asyncio.get_running_loop().time())
    brokers.elected[brokers.refreshes + 1] = {0: (2, 1)}
    brokers.witnessed.add(1)
    brokers.answers.append(lambda _: answer({0: 4}))
    brokers.answer_one()
    await wait_until(lambda: bool(reports))
    assert reports == [(1, {0: None})]


async def test_a_confirmation_that_was_requested_before_the_answer_came_is_none(
    doubting: OffsetQueries, brokers: FakeBrokers
) -> None:
    began_s = asyncio.get_running_loop().time()
    await until_silent(began_s)
    brokers.confirmed_at_s[1] = asyncio.get_running_loop().time()
    await until_silent(asyncio.get_running_loop().time())
    brokers.answers.append(lambda _: answer({0: 4}))
    brokers.release_answers()
    assert await doubting.query(0, requests.LATEST) is None
    brokers.witnessed.add(1)
    brokers.answers.append(lambda _: answer({0: 4}))
    assert await doubting.query(0, requests.LATEST) == 4


async def test_a_broker_that_is_heard_all_the_time_is_queried_once(brokers: FakeBrokers, reports: Reports) -> None:
    metrics = RuntimeMetrics(Registry())
    offsets = OffsetQueries(
        brokers,  # type: ignore[arg-type]
        lambda number, found: reports.append((number, found)),
        metrics,
        **offset_query_bounds(leader_silence_max_ms=60_000),
    )
    brokers.confirmed_at_s[1] = -1.0
    brokers.witnessed.add(1)
    brokers.always = lambda _: answer({0: 4})
    brokers.release_answers()
    refreshes = []
    for number in range(1, 6):
        offsets.want_latest(number, [0])
        await wait_until(lambda: len(reports) == number)  # noqa: B023 - waited for within the turn
        refreshes.append(brokers.refreshes)
    assert reports == [(number, {0: 4}) for number in range(1, 6)]
    assert refreshes[0] > 0, "nobody had heard this broker before"
    assert refreshes[-1] == refreshes[0]
    offsets.close()


async def test_silence_counts_from_send_time_of_last_answered_request(
    brokers: FakeBrokers,
) -> None:
    """The broker may have answered at once, and this node may have been busy elsewhere."""
    offsets = OffsetQueries(
        brokers,  # type: ignore[arg-type]
        lambda *_: None,
        RuntimeMetrics(Registry()),
        **offset_query_bounds(leader_silence_max_ms=1_000),
    )
    now_s = asyncio.get_running_loop().time()
    offsets.on_heard(1, now_s - 0.9)
    brokers.confirmed_at_s[1] = now_s
    offsets._doubted_s.clear()
    offsets.on_heard(1, now_s - 1.5)
    assert not offsets._doubted_s
    offsets._alive_s[1] = now_s - 1.5
    offsets.on_heard(1, now_s)
    assert list(offsets._doubted_s) == [1]
    offsets.close()


async def test_the_first_silence_is_measured_from_when_the_request_left_too(brokers: FakeBrokers) -> None:
    offsets = OffsetQueries(
        brokers,  # type: ignore[arg-type]
        lambda *_: None,
        RuntimeMetrics(Registry()),
        **offset_query_bounds(leader_silence_max_ms=1_000),
    )
    now_s = asyncio.get_running_loop().time()
    offsets.on_heard(1, now_s - 1.5)
    offsets._doubted_s.clear()
    offsets.on_heard(1, now_s)
    assert list(offsets._doubted_s) == [1]
    offsets.close()


@pytest.mark.virtual_time
async def test_a_broker_that_requests_a_pause_is_queried_when_it_is_over(
    offsets: OffsetQueries, brokers: FakeBrokers, reports: Reports
) -> None:
    began_s = asyncio.get_running_loop().time()
    brokers.answers.append(lambda _: (100).to_bytes(4, "big") + answer({0: 4})[4:])
    brokers.always = lambda _: answer({0: 5})
    brokers.release_answers()
    offsets.want_latest(1, [0])
    await wait_until(lambda: len(reports) == 1)
    assert brokers.longer_ms == [(1, 100)], "what was asked behind it already waits as long"
    offsets.want_latest(2, [0])
    await wait_until(lambda: len(reports) == 2)
    assert asyncio.get_running_loop().time() - began_s >= 0.1
    assert reports == [(1, {0: 4}), (2, {0: 5})]


@pytest.mark.virtual_time
async def test_endless_throttle_stops_queries_for_seconds_only(
    offsets: OffsetQueries, brokers: FakeBrokers, reports: Reports
) -> None:
    began_s = asyncio.get_running_loop().time()
    brokers.answers.append(lambda _: (2**31 - 1).to_bytes(4, "big") + answer({0: 4})[4:])
    brokers.always = lambda _: answer({0: 5})
    brokers.release_answers()
    offsets.want_latest(1, [0])
    await wait_until(lambda: len(reports) == 1)
    offsets.want_latest(2, [0])
    await wait_until(lambda: len(reports) == 2)
    assert asyncio.get_running_loop().time() - began_s == pytest.approx(10, abs=1)


@pytest.mark.virtual_time
async def test_broker_that_leads_nothing_after_its_throttle_is_not_queried(
    offsets: OffsetQueries, brokers: FakeBrokers, reports: Reports
) -> None:
    brokers.answers.append(lambda _: (100).to_bytes(4, "big") + answer({0: 4})[4:])
    brokers.always = lambda _: answer({0: 5})
    brokers.release_answers()
    offsets.want_latest(1, [0])
    await wait_until(lambda: len(reports) == 1)
    brokers.elected = {1: {0: (2, 1)}, 2: {0: (1, 2)}}
    offsets.want_latest(2, [0])
    await asyncio.sleep(0)
    await brokers.refresh()
    await wait_until(lambda: len(reports) == 2)
    await brokers.refresh()
    offsets.want_latest(3, [0])
    await wait_until(lambda: len(reports) == 3)
    assert reports == [(1, {0: 4}), (2, {0: None}), (3, {0: 5})]
    assert asked_of(brokers) == [(1, {0: 0}), (1, {0: 2})]


async def test_bug_in_opening_a_connection_leaves_no_caller_waiting(
    offsets: OffsetQueries, brokers: FakeBrokers, reports: Reports, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(brokers, "open_connection", fail)
    offsets.want_latest(1, [0])
    await wait_until(lambda: len(reports) == 1)
    assert reports == [(1, {0: None})]
    monkeypatch.undo()
    brokers.answers.append(lambda _: answer({0: 4}))
    brokers.release_answers()
    offsets.want_latest(2, [0])
    await wait_until(lambda: len(reports) == 2)
    assert reports[1] == (2, {0: 4})
