"""Which node the client asks: coordinators that move, nodes that do not serve, and nodes that are gone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from holdfast.api.results import (
    ReadPartition,
    ReadResult,
    WritePartition,
    WriteResult,
)
from holdfast.client import (
    ShareStateError,
)
from holdfast.client.client import parse_address
from holdfast.daemon.server.cluster_view import Node
from holdfast.records.share.keys import SharePartitionKey, log_partition
from tests.pure.client.client_world import World, world
from tests.world.samples import TOPIC


async def test_the_memory_of_coordinators_is_bounded() -> None:
    async with world(coordinators_cached_max=5) as w:
        asked = [(TOPIC, ReadPartition(n, 0)) for n in range(20)]
        assert await w.client.read_many("g", asked) == [ReadResult()] * 20
        assert len(w.client._coordinators._lookups._known) == 5


async def test_a_refused_look_up_is_a_result_of_that_key_alone() -> None:
    async with world(attempts_max=2) as w:
        blank = await w.client.read_many(" ", [(TOPIC, ReadPartition(1, 0))])
        assert blank == [ReadResult(42, "The key is not valid: the group id is blank.")]
        assert w.waits == []
        w.served[0].service.partition_count = 0
        with pytest.raises(ShareStateError, match="COORDINATOR_NOT_AVAILABLE"):
            await w.client.read("g", TOPIC, 1, 0)
        assert len(w.waits) == 1


async def test_a_node_that_dies_is_looked_up_again() -> None:
    async with world(node_count=2) as w:
        # One that the first node does not own.
        number = next(n for n in range(9) if log_partition(SharePartitionKey("g", TOPIC, n), 3) % 2 == 1)
        await w.client.write("g", TOPIC, number, 1, 1, -1, [])
        await w.served[1].server.drain(deadline_ms=1_000)
        w.served[0].cluster.nodes = [Node(0, "127.0.0.1", w.served[0].server.port)]
        assert await w.client.write("g", TOPIC, number, 1, 1, -1, []) == WriteResult()
        assert w.asked(0) == [[number]]


@asynccontextmanager
async def two_nodes(**settings: Any) -> AsyncIterator[World]:
    """Give a client that knows two nodes, of which the second owns everything."""
    async with world(node_count=2, **settings) as w:
        owner = Node(1, "127.0.0.1", w.served[1].server.port)
        for each in w.served:
            each.cluster.nodes = [owner]
        w.client._nodes.links.bootstrap = tuple(parse_address(each.address) for each in w.served)
        yield w


async def write(w: World) -> WriteResult:
    return await w.client.write("g", TOPIC, 1, 1, 1, -1, [])


async def test_a_node_that_names_itself_and_does_not_serve_is_passed_over() -> None:
    async with two_nodes(attempts_max=3) as w:
        w.served[0].cluster.nodes = [Node(0, "127.0.0.1", w.served[0].server.port)]
        w.served[0].service.answer = lambda api_key, key, asked: WriteResult(16, "another node took it")
        assert await write(w) == WriteResult()
        assert (w.asked(0), w.asked(1), len(w.waits)) == ([[1]], [[1]], 1)


async def test_every_share_partition_of_a_call_that_moved_is_looked_up_again() -> None:
    async with two_nodes(attempts_max=2) as w:
        w.served[0].cluster.nodes = [Node(0, "127.0.0.1", w.served[0].server.port)]
        w.served[0].service.answer = lambda api_key, key, asked: WriteResult(16, "another node took it")
        requested = [(TOPIC, WritePartition(number, 1, 1, -1, -1, ())) for number in (1, 2)]
        assert await w.client.write_many("g", requested) == [WriteResult()] * 2
        assert (w.asked(0), w.asked(1)) == ([[1, 2]], [[1, 2]])


async def test_a_node_that_loads_is_tried_again_and_not_looked_up_again() -> None:
    async with two_nodes(attempts_max=3) as w:
        w.served[1].cluster.nodes = w.served[0].cluster.nodes = [Node(0, "127.0.0.1", w.served[0].server.port)]
        answers = [WriteResult(14, "it loads"), WriteResult()]

        def load(*_: object) -> WriteResult:
            # Whoever looks it up from now on is sent to the other node.
            w.served[1].cluster.nodes = w.served[0].cluster.nodes = [Node(1, "127.0.0.1", w.served[1].server.port)]
            return answers.pop(0)

        w.served[0].service.answer = load
        assert await write(w) == WriteResult()
        assert (w.asked(0), w.asked(1)) == ([[1], [1]], [])


async def test_a_node_that_knows_no_coordinator_now_is_passed_over_at_once() -> None:
    async with two_nodes(attempts_max=1) as w:
        w.served[0].cluster.nodes = []
        assert await write(w) == WriteResult()
        assert [len(w.asked(node)) for node in (0, 1)] == [0, 1]
        (found,) = await w.client.find([SharePartitionKey("g", TOPIC, 2)])
        assert found == parse_address(w.served[1].address)


async def test_a_dead_address_that_a_node_names_is_passed_over() -> None:
    async with two_nodes(attempts_max=3) as w:
        w.served[0].cluster.nodes = [Node(9, "127.0.0.1", 1)]
        assert await write(w) == WriteResult()
        assert len(w.waits) == 1
        # The one that led nowhere is asked last from now on.
        await w.client.write("g", TOPIC, 5, 1, 1, -1, [])
        assert len(w.waits) == 1


async def test_a_node_that_is_dead_is_passed_over() -> None:
    async with two_nodes(attempts_max=1) as w:
        await w.served[0].server.drain(deadline_ms=1_000)
        assert await write(w) == WriteResult()


async def test_where_no_node_knows_a_coordinator_the_last_answer_is_reported() -> None:
    async with two_nodes(attempts_max=2) as w:
        for each in w.served:
            each.cluster.nodes = []
        with pytest.raises(ShareStateError, match="COORDINATOR_NOT_AVAILABLE"):
            await write(w)
        w.served[0].cluster.nodes = [Node(1, "127.0.0.1", w.served[1].server.port)]
        assert await write(w) == WriteResult()


async def test_each_of_three_nodes_is_queried_before_one_is_queried_again() -> None:
    async with world(node_count=3, attempts_max=3) as w:
        w.client._nodes.links.bootstrap = tuple(parse_address(each.address) for each in w.served)
        for number, each in enumerate(w.served[:2]):
            each.cluster.nodes = [Node(number, "127.0.0.1", 1)]
        w.served[2].cluster.nodes = [Node(2, "127.0.0.1", w.served[2].server.port)]
        assert await write(w) == WriteResult()
        assert len(w.waits) == 2


async def test_when_no_node_is_left_the_call_fails_as_disconnected() -> None:
    async with world(attempts_max=3) as w:
        await w.client.write("g", TOPIC, 1, 1, 1, -1, [])
        await w.served[0].server.drain(deadline_ms=1_000)
        with pytest.raises(ShareStateError, match=r"NETWORK_EXCEPTION \(13\): No server can be reached at") as caught:
            await w.client.write("g", TOPIC, 1, 1, 1, -1, [])
        assert caught.value.is_retriable
        assert len(w.waits) == 2
