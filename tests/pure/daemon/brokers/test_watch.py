"""The watch over brokers: whom it asks, and that any answer on any connection counts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from kio.schema.errors import ErrorCode
from structlog.testing import capture_logs

from holdfast.daemon.brokers.watch import BrokerWatch
from holdfast.daemon.topics.state_topic import StateTopic
from holdfast.kafka.brokers.broker_connection import BrokerConnection
from holdfast.kafka.connection_options import ConnectionOptions
from holdfast.kafka.errors import ConnectionFailed
from holdfast.metrics.instruments import Counter
from holdfast.metrics.registry import Registry
from tests.pure.kafka.brokers.metadata_answers import TOPIC_ID, metadata
from tests.waiting import wait_until
from tests.world.context import make_context

SILENCE_MAX_MS = 500


class World:
    """Two brokers, each of which leads one log partition, answers or is frozen, or is gone."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.options = ConnectionOptions(bootstrap=(("bootstrap", 9092),))
        self.registry = Registry()
        self.frozen: set[str] = set()
        self.gone: set[str] = set()
        self.leaders = {0: (1, 1), 1: (2, 1)}
        #: What each answer names; None: the brokers that lead.
        self.broker_ids: tuple[int, ...] | None = None
        self.asked: list[str] = []
        self.connections: list[Connection] = []
        self.error = ErrorCode.none
        self.cluster = b"cluster"
        self.recoveries = 0
        self.fails_to_recover = False
        monkeypatch.setattr(BrokerConnection, "open", self._open)
        self.bugs = Counter()
        self.watch = BrokerWatch(
            self.options,
            StateTopic("topic", TOPIC_ID.bytes, 2, 1, 1_000_000),
            "cluster",
            make_context(registry=self.registry, bugs=self.bugs),
            silence_max_ms=SILENCE_MAX_MS,
            timeout_ms=60_000,
            answered_again=self._answered_again,
        )

    def _answered_again(self) -> None:
        self.recoveries += 1
        if self.fails_to_recover:
            raise RuntimeError("a bug")

    def hear(self, host: str) -> None:
        """Let an answer come on some other connection of this process."""
        self.options.answers.by_address[(host, 9092)] = asyncio.get_running_loop().time()

    async def _open(self, address: tuple[str, int], options: ConnectionOptions, timeout_ms: int) -> Connection:
        if address[0] in self.gone:
            raise ConnectionFailed(f"{address[0]} cannot be reached")
        self.connections.append(Connection(self, address[0]))
        return self.connections[-1]


class Connection:
    """Stands in for `BrokerConnection`."""

    def __init__(self, world: World, host: str) -> None:
        self.is_open = True
        self._world = world
        self._host = host

    async def exchange(self, api_key: int, version: int, body: bytes, *, is_flexible: bool) -> bytes:
        self._world.asked.append(self._host)
        await wait_until(lambda: self._host not in self._world.frozen)
        if self._host in self._world.gone:
            self.close()
            raise ConnectionFailed(f"{self._host} closed the connection")
        self._world.hear(self._host)
        answer = metadata(self._world.leaders, broker_ids=self._world.broker_ids, error=self._world.error)
        return answer.replace(b"cluster", self._world.cluster)

    def close(self) -> None:
        self.is_open = False


@asynccontextmanager
async def watched(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    world = World(monkeypatch)
    world.watch.start()
    try:
        await wait_until(lambda: len(dict(world.registry.numbers())) == 2)
        yield world
    finally:
        await world.watch.stop()
    await wait_until(lambda: not [task for task in asyncio.all_tasks() if task.get_name().startswith("holdfast-")])


async def test_a_stop_that_is_given_up_leaves_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the machine stalls for the time of a step of the node's stop."""
    async with watched(monkeypatch) as world:
        await wait_until(lambda: {"host-1", "host-2"} <= {*world.asked})
        stopping = asyncio.create_task(world.watch.stop())
        await asyncio.sleep(0)
        stopping.cancel()
        await asyncio.wait([stopping])
        assert stopping.cancelled()
        await wait_until(lambda: not [each for each in world.connections if each.is_open])


def quiet_ms(world: World, broker: int) -> float:
    return 1_000 * dict(world.registry.numbers())[f"holdfast_broker_silence_seconds{{broker={broker}}}"]


async def test_brokers_that_nothing_else_queries_are_queried_and_stay_no_problem(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with watched(monkeypatch) as world:
        await wait_until(lambda: world.asked.count("host-1") >= 5 and world.asked.count("host-2") >= 5)
        assert world.watch.problem == ""


@pytest.mark.parametrize("sort", ["frozen", "gone"])
async def test_a_broker_that_is_frozen_or_gone_becomes_a_problem_and_ceases_to_be_one(
    monkeypatch: pytest.MonkeyPatch, sort: str
) -> None:
    async with watched(monkeypatch) as world:
        getattr(world, sort).add("host-2")
        await wait_until(lambda: world.watch.problem)
        assert world.watch.problem.startswith("broker 2 did not answer for ")
        assert world.watch.problem.endswith("and leads log partition 1")
        assert quiet_ms(world, 2) >= SILENCE_MAX_MS
        assert world.recoveries == 0
        getattr(world, sort).clear()
        await wait_until(lambda: world.recoveries)
        assert world.watch.problem == ""


async def test_all_brokers_that_are_frozen_are_no_broker_that_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    async with watched(monkeypatch) as world:
        world.frozen |= {"host-1", "host-2", "bootstrap"}
        await wait_until(lambda: world.watch.problem.startswith("no broker answers, for "))
        world.frozen.clear()
        await wait_until(lambda: not world.watch.problem)


async def test_brokers_whose_last_answer_names_none_are_missed_when_they_are_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with watched(monkeypatch) as world:
        world.leaders, world.broker_ids = {0: (-1, 2), 1: (-1, 2)}, ()
        await wait_until(lambda: world.watch.problem.startswith("no broker has led log partitions 0, 1"))
        world.gone |= {"host-1", "host-2", "bootstrap"}
        await wait_until(lambda: world.watch.problem.startswith("no broker answers, for "))


async def test_an_answer_on_any_other_connection_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    async with watched(monkeypatch) as world:
        world.gone |= {"host-1", "host-2", "bootstrap"}
        await wait_until(lambda: world.watch.problem)

        def is_well() -> bool:
            for host in ("host-1", "host-2"):
                world.hear(host)
            return not world.watch.problem

        await wait_until(is_well)


async def test_leaders_that_moved_are_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    async with watched(monkeypatch) as world:
        world.gone.add("host-2")
        world.leaders = {0: (1, 1), 1: (1, 2)}
        await wait_until(lambda: set(dict(world.registry.numbers())) == {"holdfast_broker_silence_seconds{broker=1}"})
        assert world.watch.problem == ""


async def test_addresses_of_the_past_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    async with watched(monkeypatch) as world:
        world.hear("of the past")
        await wait_until(
            lambda: {host for host, _ in world.options.answers.by_address} == {"host-1", "host-2", "bootstrap"}
        )


async def test_a_bug_in_one_look_is_not_the_last_look(monkeypatch: pytest.MonkeyPatch) -> None:
    async with watched(monkeypatch) as world:
        world.fails_to_recover = True
        for _ in range(2):
            world.frozen.add("host-2")
            await wait_until(lambda: world.watch.problem)
            world.frozen.clear()
            await wait_until(lambda: not world.watch.problem)
        assert (world.recoveries, world.bugs.value) == (2, 2)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"error": ErrorCode.unknown_topic_or_partition}, "there is no topic topic any more: it was deleted: "),
        (
            {"error": ErrorCode.unknown_topic_or_partition, "cluster": b"foreign"},
            "the brokers are another cluster (foreign) than the one that has the log (cluster): ",
        ),
        ({}, ""),
    ],
)
async def test_brokers_that_lead_nothing_say_why_if_they_do(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, object], why: str
) -> None:
    async with watched(monkeypatch) as world:
        with capture_logs() as lines:
            for name, value in changes.items():
                setattr(world, name, value)
            world.leaders, world.broker_ids = {}, (1, 2)
            await wait_until(lambda: world.watch.problem)
        assert world.watch.problem.startswith(f"{why}no broker has led log partitions 0, 1 for ")
        assert [line.get("why", "") for line in lines if line["event"] == "leaders_lost"] == [why.removesuffix(": ")]


async def test_another_cluster_leads_nothing_of_the_log_though_it_has_a_topic_of_that_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with watched(monkeypatch) as world:
        world.cluster = b"foreign"
        await wait_until(lambda: world.watch.problem)
        assert world.watch.problem.startswith(
            "the brokers are another cluster (foreign) than the one that has the log (clu"
        )
        assert world.watch.silence.cut_off == {0, 1}
        world.cluster = b"cluster"
        await wait_until(lambda: not world.watch.problem)
