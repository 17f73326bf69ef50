"""A node that starts asks who owned the log whether it serves: refused, waiting, or taking over."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Self

import pytest
from structlog.testing import capture_logs

from holdfast.daemon.internal_errors import InternalErrors
from holdfast.daemon.partitions.identity import KnownMembers, NodeIdentity
from holdfast.daemon.partitions.owners import Owners, query_status_at
from holdfast.daemon.partitions.partitions import Partitions
from holdfast.daemon.server.cluster_view import Node
from holdfast.daemon.server.other_nodes import OtherNodes
from holdfast.kafka.addresses import parse_address
from holdfast.kafka.topic_ids import format_topic_id
from holdfast.metrics.line_limit import LineLimiter
from holdfast.runtime.partition.states import State
from tests.simulated.memory_log import MemoryTopic
from tests.waiting import in_patience, look_until, wait_until
from tests.world.node import CLUSTER, PartitionsWorld
from tests.world.serving import serve


class World(PartitionsWorld):
    """A node that starts, and what it is told by those it asks: one `status` by address."""

    def __init__(self, topic: MemoryTopic, node_id: int, told: Mapping[str, Mapping[str, Any]], **flags: Any) -> None:
        super().__init__(topic, node_id, **flags)
        self.told = dict(told)
        self.asked: list[str] = []
        self.refused: list[tuple[str, bool]] = []
        self.make_owners = self._make_owners
        self.group: str | None = None
        self.known = KnownMembers()

    def _make_owners(self, partitions: Partitions) -> Owners:
        return Owners(
            self.settings.load,
            NodeIdentity("this-run", self.group, self.known, self._refuse),
            partitions,
            InternalErrors(self.runtime_metrics.internal_errors),
            self._ask,
            answer_timeout_ms=1,
            silence_max_ms=200,
        )

    def _refuse(self, why: str, *, is_setting_wrong: bool) -> None:
        self.refused.append((why, is_setting_wrong))

    async def _ask(self, address: str) -> Mapping[str, Any] | None:
        self.asked.append(address)
        return self.told.get(address)

    async def serve(self, image: Any = None) -> Self:
        await super().serve(image)
        await self.until(lambda: not self.is_asking())
        return self

    def is_asking(self) -> bool:
        return any(held.state is State.LOADING for held in self.partitions)

    async def until(self, condition: Any) -> None:
        def settled() -> bool:
            self.settle()
            return bool(condition())

        await wait_until(settled, "it came about")

    def states(self) -> set[State]:
        return {held.state for held in self.partitions}


def serving(topic: MemoryTopic, **other: Any) -> dict[str, Any]:
    """Return the status of a node that serves this log, except for what is said to be other."""
    topic_id = format_topic_id(topic.identity.topic_id)
    mine = {"run_id": "that-run", "node_id": 1, "cluster_id": CLUSTER, "topic_id": topic_id, "log_partitions_held": 3}
    return mine | other


ADDRESS = "node-1.example:9492"


@pytest.fixture
async def topic() -> MemoryTopic:
    """Give a log that node 1 owns."""
    topic = MemoryTopic(3)
    await PartitionsWorld(topic).serve()
    return topic


async def test_a_node_is_refused_while_the_owner_serves_which_is_queried_once_for_all(topic: MemoryTopic) -> None:
    world = await World(topic, 2, {ADDRESS: serving(topic)}).serve()
    why = f"node 1 serves this log and answers at {ADDRESS}: stop it first, or let this node take its place with --take-over"
    assert (world.refused, world.asked) == ([(why, False)], [ADDRESS])
    assert (world.states(), world.partitions.held_count()) == ({State.CLOSED}, 0)


@pytest.mark.parametrize(
    "other",
    [
        None,
        {"run_id": "this-run"},
        {"cluster_id": "another"},
        {"topic_id": format_topic_id(bytes(16))},
        {"log_partitions_held": 0},
        {"log_partitions_held": None},
        {"node_id": 3},
    ],
    ids=str,
)
async def test_a_node_starts_where_nobody_answers_or_somebody_who_does_not_serve_this_log(
    topic: MemoryTopic, other: dict[str, Any] | None
) -> None:
    reports = {} if other is None else {ADDRESS: serving(topic, **other)}
    world = await World(topic, 2, reports).serve()
    assert (world.refused, world.states(), world.asked) == ([], {State.ACTIVE}, [ADDRESS])


async def test_with_take_over_a_node_replaces_one_that_serves_and_says_so(topic: MemoryTopic) -> None:
    with capture_logs() as lines:
        world = await World(topic, 2, {ADDRESS: serving(topic)}, take_over=True).serve()
    assert (world.refused, world.states()) == ([], {State.ACTIVE})
    [said] = [line for line in lines if line["log_level"] == "warning"]
    assert said["event"] == "owner_superseded"
    assert (said["node"], said["address"]) == ("1", ADDRESS)


@pytest.mark.parametrize("flags", [{}, {"take_over": True}, {"when_superseded": "wait"}], ids=str)
async def test_a_node_with_the_id_of_one_that_serves_elsewhere_is_refused_whatever_it_was_told(
    topic: MemoryTopic, flags: dict[str, Any]
) -> None:
    world = World(topic, 1, {ADDRESS: serving(topic)}, **flags)
    world.advertised_address = "127.0.0.1:9999"
    await world.serve()
    [(why, is_setting_wrong)] = world.refused
    assert is_setting_wrong
    assert why == (
        f"node 1 serves this log and answers at {ADDRESS}, and this node has the same id: "
        "give this one another `node_id`, or stop that one first"
    )


@pytest.mark.parametrize(
    ("ours", "theirs", "why"),
    [
        (
            None,
            "shop",
            "as a member of the group shop and answers at {}, and this node would serve it alone (membership=static)",
        ),
        ("shop", None, "alone (membership=static) and answers at {}, and this node is of the group shop"),
        ("shop", "farm", "as a member of the group farm and answers at {}, and this node is of the group shop"),
    ],
)
@pytest.mark.parametrize("flags", [{}, {"take_over": True}, {"when_superseded": "wait"}], ids=str)
async def test_a_node_does_not_start_where_nodes_of_another_group_serve(
    topic: MemoryTopic, ours: str | None, theirs: str | None, why: str, flags: dict[str, Any]
) -> None:
    world = World(topic, 2, {ADDRESS: serving(topic, group=theirs)}, **flags)
    world.group = ours
    world.begin()
    await world.partitions.start()
    world.partitions.load(range(3), None if ours is None else 9)
    world.settle()
    await world.until(lambda: world.refused and not world.is_asking())
    assert world.refused == [
        (
            f"node 1 serves this log {why.format(ADDRESS)}: "
            "stop the one before the other starts, or let both have the same `membership` and `group.id`",
            True,
        )
    ]
    assert world.states() == {State.CLOSED}


@pytest.mark.parametrize("is_known", [True, False])
async def test_a_member_takes_what_its_group_gave_it_from_a_member_that_serves(
    topic: MemoryTopic, is_known: bool
) -> None:
    world = World(topic, 2, {ADDRESS: serving(topic, group="shop")})
    world.group = "shop"
    if is_known:
        world.known.add([Node(1, *parse_address(ADDRESS))])
    world.begin()
    await world.partitions.start()
    world.partitions.load(range(3), 9)
    world.settle()
    await world.until(lambda: world.states() == {State.ACTIVE})
    assert (world.refused, world.asked) == ([], [] if is_known else [ADDRESS])


async def test_a_node_that_waits_leaves_the_log_to_its_owner_until_that_one_is_silent(topic: MemoryTopic) -> None:
    world = World(topic, 2, {ADDRESS: serving(topic)}, when_superseded="wait")
    with capture_logs() as lines:
        await world.serve()
        await world.until(lambda: len(world.asked) > 10)
        assert (world.refused, world.states(), world.partitions.held_count()) == ([], {State.CLOSED}, 0)
        assert world.partitions.why_not_loaded() == (
            f"not every log partition serves (3 closed); node 1 at {ADDRESS} serves log partitions 0, 1, 2"
        )
        assert {row["failure"] for row in world.partitions.describe()} == {f"node 1 at {ADDRESS} serves it"}
        del world.told[ADDRESS]
        await world.until(lambda: world.states() == {State.ACTIVE})
    assert [line["event"] for line in lines if line["log_level"] == "warning"] == [
        "owner_awaited",
        "owner_lost",
    ]
    await wait_until(lambda: len(asyncio.all_tasks()) == 1, "nothing is left that asks")


async def test_a_close_ends_the_wait(topic: MemoryTopic) -> None:
    world = await World(topic, 2, {ADDRESS: serving(topic)}, when_superseded="wait").serve()
    await world.partitions.stop(1_000)
    assert len(asyncio.all_tasks()) == 1


async def test_an_owner_of_an_older_version_that_named_no_address_is_not_queried(topic: MemoryTopic) -> None:
    unknown = MemoryTopic(1)
    first = PartitionsWorld(unknown)
    first.advertised_address = ""
    await first.serve()
    world = await World(unknown, 2, {}).serve()
    assert (world.asked, world.states()) == ([], {State.ACTIVE})


async def test_a_node_returns_its_status_and_nothing_else_returns_any() -> None:
    status = {"run_id": "that-run", "log_partitions_held": 3}
    async with serve(commands={"status": lambda _: status}) as served:
        assert await query_status_at(OtherNodes(LineLimiter()), served.address, timeout_ms=10_000) == status
    async with serve(commands={}) as served:
        assert await query_status_at(OtherNodes(LineLimiter()), served.address, timeout_ms=10_000) is None, (
            "it does not know the command"
        )
    assert await query_status_at(OtherNodes(LineLimiter()), "127.0.0.1:1", timeout_ms=10_000) is None
    assert await query_status_at(OtherNodes(LineLimiter()), "no address", timeout_ms=10_000) is None


async def test_who_takes_connections_and_answers_nothing_costs_no_more_than_the_time_for_an_answer() -> None:
    taken, hung_up = asyncio.Event(), asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        taken.set()
        await reader.read()
        writer.close()
        await writer.wait_closed()
        hung_up.set()

    async with await asyncio.start_server(say_nothing, "127.0.0.1", 0) as silent:
        address = f"127.0.0.1:{silent.sockets[0].getsockname()[1]}"

        async def ask() -> None:
            assert await in_patience(query_status_at(OtherNodes(LineLimiter()), address, timeout_ms=50)) is None

        # On a machine that stalls, a query's time is over before it has a connection.
        await look_until(ask, lambda _: taken.is_set(), "a query that has a connection")
        await in_patience(hung_up.wait())


async def test_a_query_that_ends_in_an_unforeseen_way_holds_no_start_up(topic: MemoryTopic) -> None:
    class Stranger(dict[str, Any]):
        def get(self, *_: object) -> Any:
            raise IndexError("bytes of a stranger")

    world = World(topic, 2, {ADDRESS: Stranger()})
    with capture_logs() as lines:
        await world.serve()
        await world.until(lambda: world.states() == {State.ACTIVE})
    assert "owner_query_failed" in {line["event"] for line in lines}
    assert world.runtime_metrics.internal_errors.value == 1
