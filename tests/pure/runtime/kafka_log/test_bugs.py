"""A bug of ours on the way to a broker: it is counted and logged, and callers are told that there is no answer."""

import asyncio
from itertools import chain, repeat
from math import inf
from typing import Any

import pytest

from holdfast.kafka.errors import ConnectionFailed
from holdfast.metrics.instruments import Counter
from holdfast.metrics.registry import Registry
from holdfast.runtime.kafka_log.bug_reports import BugReports
from holdfast.runtime.kafka_log.fetcher import Fetcher, FetchEvents
from holdfast.runtime.kafka_log.list_offsets import OffsetQueries
from holdfast.runtime.kafka_log.sending.sender import Sender
from holdfast.runtime.kafka_log.sent_batches import SentBatches
from holdfast.runtime.metrics import RuntimeMetrics
from tests.configs import accumulator_config, fetcher_config, offset_query_bounds, sender_config
from tests.pure.kafka.brokers.fake_brokers import FakeBrokers, FakeConnection, fetched, produced
from tests.pure.runtime.kafka_log.fetcher_world import Reports
from tests.pure.runtime.kafka_log.test_list_offsets import answer
from tests.waiting import PATIENCE_MS, wait_until


@pytest.fixture
async def logged() -> list[tuple[str, str]]:
    lines: list[tuple[str, str]] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: lines.append((str(context["message"]), repr(context["exception"])))
    )
    return lines


@pytest.fixture
def metrics() -> RuntimeMetrics:
    return RuntimeMetrics(Registry())


@pytest.fixture
def brokers() -> FakeBrokers:
    return FakeBrokers({0: 1, 1: 1})


def raise_bug(*_: object) -> bytes:
    raise TypeError("a bug")


async def test_bug_in_fetch_fails_its_partitions(
    brokers: FakeBrokers, metrics: RuntimeMetrics, logged: list[tuple[str, str]]
) -> None:
    reports = Reports()
    brokers.always = lambda _: fetched([])
    brokers.answers.append(raise_bug)
    tail = Fetcher(
        "tail",
        fetcher_config(retry_backoff_ms=50),
        brokers,  # type: ignore[arg-type]
        lambda: reports,  # type: ignore[arg-type,return-value]
        SentBatches(),
        metrics,
        FetchEvents(reports.ended),
    )
    tail.follow(0, 3, 5)
    tail.follow(1, 4, 5)
    await wait_until(lambda: len(reports.lines) == 2)
    assert reports.lines == ["0 instance 3: failed, TypeError('a bug')", "1 instance 4: failed, TypeError('a bug')"]
    assert logged == [(f"reading partition {number} failed", "TypeError('a bug')") for number in (0, 1)]
    assert metrics.internal_errors.value == 2
    await tail.close()


@pytest.mark.parametrize("where", ["send", "wait_longer"])
async def test_bug_in_query_for_offsets_is_reported(
    brokers: FakeBrokers,
    metrics: RuntimeMetrics,
    logged: list[tuple[str, str]],
    monkeypatch: pytest.MonkeyPatch,
    where: str,
) -> None:
    reports: list[tuple[int, dict[int, int | None]]] = []
    monkeypatch.setattr(FakeConnection, where, raise_bug)
    brokers.answers.append(lambda _: (100).to_bytes(4, "big") + bytes(4))
    offsets = OffsetQueries(
        brokers,  # type: ignore[arg-type]
        lambda number, found: reports.append((number, found)),
        metrics,
        **offset_query_bounds(),
    )
    offsets.want_latest(1, [0])
    await wait_until(lambda: bool(reports))
    assert reports == [(1, {0: None})]
    assert logged == [("querying offsets from broker 1 failed", "TypeError('a bug')")]
    assert metrics.internal_errors.value == 1
    offsets.close()


class NoLeader:
    """The compiled build treats it as no leader, and the pure build cannot compare it with one."""

    def __eq__(self, other: object) -> bool:
        raise TypeError("a bug")

    def __hash__(self) -> int:
        return 0


@pytest.mark.parametrize("is_doubted", [False, True])
async def test_bug_in_handling_an_offsets_answer_is_reported(
    brokers: FakeBrokers,
    metrics: RuntimeMetrics,
    logged: list[tuple[str, str]],
    monkeypatch: pytest.MonkeyPatch,
    is_doubted: bool,
) -> None:
    if is_doubted:
        confirmed_s = chain([-inf], repeat(inf))
        monkeypatch.setattr(brokers, "confirmed_s", lambda _: next(confirmed_s))
    reports: list[tuple[int, dict[int, int | None]]] = []
    brokers.elected[1] = {**brokers.leaders}
    offsets = OffsetQueries(
        brokers,  # type: ignore[arg-type]
        lambda number, found: reports.append((number, found)),
        metrics,
        **offset_query_bounds(),
    )

    def answer_and_break(_: bytes) -> bytes:
        brokers.leaders[0] = NoLeader()  # type: ignore[assignment]
        return answer({0: 5})

    brokers.answers.append(answer_and_break)
    brokers.always = lambda _: bytes(8)
    for number in (1, 2):
        offsets.want_latest(number, [0])
        await wait_until(lambda: len(reports) == number)  # noqa: B023 - waited for within the turn
    assert reports == [(1, {0: None}), (2, {0: None})]
    assert [(message, bug.partition("(")[0]) for message, bug in logged] == [
        ("querying offsets from broker 1 failed", "TypeError")
    ]
    assert metrics.internal_errors.value == 1
    offsets.close()


async def test_bug_in_confirming_a_broker_is_reported(
    brokers: FakeBrokers, metrics: RuntimeMetrics, logged: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    reports: list[tuple[int, dict[int, int | None]]] = []
    brokers.always = lambda _: bytes(8)
    offsets = OffsetQueries(
        brokers,  # type: ignore[arg-type]
        lambda number, found: reports.append((number, found)),
        metrics,
        **offset_query_bounds(),
    )
    monkeypatch.setattr(brokers, "confirmed_s", raise_bug)
    offsets.want_latest(1, [0])
    await wait_until(lambda: bool(reports))
    assert reports == [(1, {0: None})]
    assert ("querying offsets from broker 1 failed", "TypeError('a bug')") in logged
    offsets.close()


async def test_query_for_offsets_is_answered_after_bug_in_sending(
    brokers: FakeBrokers, metrics: RuntimeMetrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports: list[tuple[int, dict[int, int | None]]] = []
    send = FakeConnection.send

    def send_and_raise(*arguments: Any) -> None:
        send(*arguments)
        raise TypeError("a bug")

    monkeypatch.setattr(FakeConnection, "send", send_and_raise)
    brokers.always = lambda _: bytes(8)
    offsets = OffsetQueries(
        brokers,  # type: ignore[arg-type]
        lambda number, found: reports.append((number, found)),
        metrics,
        **offset_query_bounds(),
    )
    for number in (1, 2):
        offsets.want_latest(number, [0])
        await wait_until(lambda: len(reports) == number)  # noqa: B023 - waited for within the turn
        await asyncio.wait(brokers.asking)
    assert reports == [(1, {0: None}), (2, {0: None})]
    offsets.close()


async def test_bug_in_receiver_of_offsets_is_reported(
    brokers: FakeBrokers, metrics: RuntimeMetrics, logged: list[tuple[str, str]]
) -> None:
    reports: list[tuple[int, dict[int, int | None]]] = []

    def report(number: int, found: dict[int, int | None]) -> None:
        reports.append((number, found))
        if number == 1:
            raise TypeError("a bug")

    offsets = OffsetQueries(
        brokers,  # type: ignore[arg-type]
        report,
        metrics,
        **offset_query_bounds(),
    )
    for number in (1, 2):
        brokers.answers.append(lambda _: bytes(8))
        offsets.want_latest(number, [0])
        await wait_until(lambda: len(reports) == number)  # noqa: B023 - waited for within the turn
    assert reports == [(1, {0: None}), (2, {0: None})]
    assert logged == [("reporting latest offsets failed", "TypeError('a bug')")]
    assert metrics.internal_errors.value == 1
    offsets.close()


def make_sender(
    brokers: FakeBrokers, metrics: RuntimeMetrics, **settings: Any
) -> tuple[Sender, list[int], list[tuple[int, bytes]]]:
    """Return a sender, the partitions of the batches that were acknowledged, and those that were given up with their first header."""
    landed: list[int] = []
    failed: list[tuple[int, bytes]] = []
    sender = Sender(
        sender_config(accumulator=accumulator_config(), message_timeout_ms=PATIENCE_MS, **settings),
        brokers,  # type: ignore[arg-type]
        SentBatches(),
        lambda partition, *_: landed.append(partition),
        lambda partition, header, _: failed.append((partition, header)),
        lambda: 1_000,
        metrics,
    )
    return sender, landed, failed


async def test_bug_before_a_retry_is_reported(
    brokers: FakeBrokers,
    metrics: RuntimeMetrics,
    logged: list[tuple[str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sender, landed, _ = make_sender(brokers, metrics, retry_backoff_ms=1)
    refresh = brokers.refresh

    async def raise_once() -> None:
        monkeypatch.setattr(brokers, "refresh", refresh)
        raise TypeError("a bug")

    monkeypatch.setattr(brokers, "refresh", raise_once)
    brokers.answers.append(lambda body: produced(body, 6))
    sender.append(0, b"k", b"1", b"h")
    await wait_until(lambda: landed == [0])
    assert logged == [("looking up leaders failed", "TypeError('a bug')")]
    assert metrics.internal_errors.value == 1
    assert await sender.close(5)


@pytest.mark.parametrize("where", ["open_connection", "send", "send it all the same"])
async def test_bug_in_sending_a_request_is_reported(
    brokers: FakeBrokers,
    metrics: RuntimeMetrics,
    logged: list[tuple[str, str]],
    monkeypatch: pytest.MonkeyPatch,
    where: str,
) -> None:
    sender, landed, failed = make_sender(brokers, metrics, produce_requests_in_flight_max=1)
    brokers.always = produced
    changed: Any = brokers if where == "open_connection" else FakeConnection
    name = where.partition(" ")[0]
    called = getattr(changed, name)

    def raise_once(*arguments: Any) -> None:
        monkeypatch.setattr(changed, name, called)
        if where == "send it all the same":
            called(*arguments)
        raise TypeError("a bug")

    monkeypatch.setattr(changed, name, raise_once)
    for partition in (0, 1):
        sender.append(partition, b"k", b"1", b"first")
    await wait_until(lambda: len(failed) == 2)
    assert failed == [(0, b"first"), (1, b"first")]
    assert logged == [("sending to broker 1 failed", "TypeError('a bug')")]
    assert metrics.internal_errors.value == 1
    for partition in (0, 1):
        sender.append(partition, b"k", b"2", b"second")
    await wait_until(lambda: len(landed) == 2)
    assert (sorted(landed), len(failed)) == ([0, 1], 2)
    assert await sender.close(5)
    assert sender._in_flight == 0
    assert [len(slot.free) for slot in sender.pace.slots.values()] == [1]


async def test_bug_in_handling_a_failed_send_is_reported(
    brokers: FakeBrokers, metrics: RuntimeMetrics, logged: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    sender, landed, failed = make_sender(brokers, metrics, retry_backoff_ms=1)
    send = FakeConnection.send

    def answer_and_raise(connection: FakeConnection, *arguments: Any) -> None:
        monkeypatch.setattr(FakeConnection, "send", send)
        arguments[-1](ConnectionFailed("it was closed"))
        raise TypeError("a bug")

    monkeypatch.setattr(FakeConnection, "send", answer_and_raise)
    brokers.always = produced
    sender.append(0, b"k", b"1", b"h")
    await wait_until(lambda: landed == [0])
    assert (failed, logged) == ([], [("handling an answer of broker 1 failed", "TypeError('a bug')")])
    assert await sender.close(5)


async def test_bug_in_task_that_is_not_awaited_is_logged(logged: list[tuple[str, str]]) -> None:
    count = Counter()
    bugs = BugReports(count)

    async def work(error: BaseException) -> None:
        raise error

    for error in (TypeError("a bug"), asyncio.CancelledError()):
        task = asyncio.get_running_loop().create_task(work(error), name="work")
        await asyncio.wait([task])
        bugs.watch(task)
    assert logged == [("the task work failed", "TypeError('a bug')")]
    assert count.value == 1


async def test_connection_failure_is_no_bug(logged: list[tuple[str, str]]) -> None:
    count = Counter()
    assert BugReports(count).explain(ConnectionFailed("it disconnected"), "asking failed") == "it disconnected"
    assert (logged, count.value) == ([], 0)
