"""The time of the next query for latest offsets: after the answers to the last one, with the wishes that have come by then."""

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from holdfast.metrics.registry import Registry
from holdfast.runtime.kafka_log.list_offsets import OffsetQueries
from holdfast.runtime.metrics import RuntimeMetrics
from tests.configs import offset_query_bounds
from tests.pure.kafka.brokers.fake_brokers import FakeBrokers
from tests.pure.runtime.kafka_log.test_list_offsets import Reports, answer, asked_of
from tests.waiting import wait_until


@pytest.fixture
def brokers() -> FakeBrokers:
    brokers = FakeBrokers({1: 2, 2: 2})
    brokers.leaders[2] = (2, 7)
    return brokers


@pytest.fixture
def reports() -> Reports:
    return []


def make_queries(brokers: FakeBrokers, report: Callable[[int, dict[int, int | None]], None]) -> OffsetQueries:
    return OffsetQueries(brokers, report, RuntimeMetrics(Registry()), **offset_query_bounds())  # type: ignore[arg-type]


@pytest.mark.parametrize(("turns", "asked"), [(1, [{1: 0, 2: 7}]), (3, [{1: 0, 2: 7}]), (6, [{1: 0}, {2: 7}])])
async def test_next_query_waits_for_turns_until_it_is_as_large_as_the_last(
    turns: int, asked: list[dict[int, int]], brokers: FakeBrokers, reports: Reports
) -> None:
    loop = asyncio.get_running_loop()
    asking: list[int] = []

    def want_later(turns: int) -> None:
        if turns:
            loop.call_soon(want_later, turns - 1)
        else:
            queries.want_latest(3, [2])

    def report(number: int, found: dict[int, int | None]) -> None:
        reports.append((number, found))
        if len(reports) == 1:
            queries.want_latest(2, [1])
            asking.append(len(brokers.asking))
            want_later(turns)

    queries = make_queries(brokers, report)
    brokers.answers.append(lambda _: answer({1: 5, 2: 6}))
    brokers.answers.extend(partial(_answer_ends, each) for each in asked)
    queries.want_latest(1, [1, 2])
    await wait_until(lambda: len(reports) == 1 + len(asked))
    assert [partitions for _, partitions in asked_of(brokers)] == [{1: 0, 2: 7}, *asked]
    assert asking == [1], "those who waited are answered first"
    queries.close()


async def test_of_queries_of_one_size_none_waits_longer_than_the_others(brokers: FakeBrokers, reports: Reports) -> None:
    loop = asyncio.get_running_loop()
    turns: list[int] = []

    def count_turns() -> None:
        if len(brokers.requests) == len(reports):
            turns[-1] += 1
            loop.call_soon(count_turns)

    def report(number: int, found: dict[int, int | None]) -> None:
        reports.append((number, found))
        if number < 9:
            queries.want_latest(number + 1, [1, 2])
            turns.append(0)
            count_turns()

    queries = make_queries(brokers, report)
    brokers.always = lambda _: answer({1: 5, 2: 6})
    brokers.answers.extend([brokers.always, lambda _: answer({1: 5, 2: 6}, error_code=6)])
    queries.want_latest(1, [1, 2])
    await wait_until(lambda: len(reports) == 9)
    assert reports[1] == (2, {1: None, 2: None})
    assert turns == [4] * 8
    queries.close()


async def test_query_after_a_throttle_waits_for_others_too(brokers: FakeBrokers, reports: Reports) -> None:
    queries = make_queries(brokers, lambda number, found: reports.append((number, found)))
    brokers.always = lambda _: answer({1: 5, 2: 6})
    queries.want_latest(1, [1, 2])
    await wait_until(lambda: len(reports) == 1)
    for _ in range(10):
        await asyncio.sleep(0)
    queries.want_latest(2, [1])
    await asyncio.sleep(0)
    queries.want_latest(3, [2])
    await wait_until(lambda: len(reports) >= 2)
    assert reports[1:] == [(3, {1: 5, 2: 6})]
    queries.close()


async def test_reported_offset_is_not_reported_again_when_leader_moves(brokers: FakeBrokers, reports: Reports) -> None:
    def report(number: int, found: dict[int, int | None]) -> None:
        reports.append((number, found))
        if len(reports) == 1:
            queries.want_latest(2, [2])
            brokers.leaders[2] = (1, 8)
            asyncio.get_running_loop().call_soon(queries._on_leaders_changed)

    queries = make_queries(brokers, report)
    brokers.answers.extend([lambda _: answer({}), lambda _: answer({2: 6})])
    queries.want_latest(1, [2])
    await wait_until(lambda: len(reports) >= 2)
    assert reports == [(1, {2: None}), (2, {2: 6})]
    queries.close()


def _answer_ends(partitions: dict[int, int], _request: bytes) -> bytes:
    return answer(dict.fromkeys(partitions, 9))
