"""Whom a node names in FindCoordinator and Metadata: itself, who took over, or nobody."""

from __future__ import annotations

from functools import partial

import pytest

from holdfast.daemon.server import find_coordinator
from holdfast.daemon.server.cluster_view import Node
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.records.share.keys import SharePartitionKey, format_key
from holdfast.runtime.errors import Alarm
from holdfast.runtime.partition.states import State
from holdfast.share.calls import KEY_TYPE
from tests.simulated.memory_log import MemoryTopic
from tests.world.node import PartitionsWorld
from tests.world.samples import TOPIC
from tests.world.tenants import share_keys

NODES = {number: Node(number, f"node-{number}.example", 9492) for number in (1, 2, 3)}


#: A node that goes on when another one has taken over.
World = partial(PartitionsWorld, when_superseded="wait")


def owners(world: PartitionsWorld) -> list[Node | None]:
    """Return whom a node names for each log partition."""
    return [world.view.owner(index) for index in range(world.topic.identity.partition_count)]


async def test_a_node_that_serves_names_itself() -> None:
    world = await World(MemoryTopic(3)).serve()
    assert owners(world) == [NODES[1]] * 3
    assert [world.view.owner_epoch(index) for index in range(3)] == [1, 1, 1]
    assert world.view.nodes == (NODES[1],)


async def test_before_it_loads_a_node_names_itself() -> None:
    world = World(MemoryTopic(2))
    world.begin()
    assert world.view.nodes == (NODES[1],)
    assert owners(world) == [NODES[1]] * 2, "its partitions are about to be loaded"
    assert [world.view.owner_epoch(index) for index in range(2)] == [-1, -1]


async def test_a_superseded_node_names_the_winner_in_the_place_of_itself() -> None:
    topic = MemoryTopic(2)
    first = await World(topic).serve()
    await World(topic, node_id=2).serve()
    first.settle()
    assert [held.state for held in first.partitions] == [State.CLOSED] * 2
    assert owners(first) == [NODES[2]] * 2
    assert [first.view.owner_epoch(index) for index in range(2)] == [2, 2]
    assert first.view.nodes == (NODES[1], NODES[2])
    key = SharePartitionKey("g", TOPIC, 0)
    finder = find_coordinator.Finder(6, first.view, share_keys(lambda _: 1), lambda _: True, "denied")
    found = finder.find(KEY_TYPE, format_key(key))
    assert found == find_coordinator.Answer(NODES[2])


async def test_each_of_a_chain_of_nodes_names_the_next_or_the_last() -> None:
    topic = MemoryTopic(1)
    worlds = [await World(topic).serve()]
    for node_id in (2, 3):
        worlds.append(await World(topic, node_id=node_id).serve())
        worlds[-2].settle()
    assert [owners(world) for world in worlds] == [[NODES[2]], [NODES[3]], [NODES[3]]]


async def test_partitions_that_were_taken_one_by_one_have_their_own_owners() -> None:
    topic = MemoryTopic(3)
    first = await World(topic).serve()
    second = await World(topic, node_id=2).serve()
    first.settle()
    first.runtime.take(1)
    first.settle()
    second.settle()
    assert owners(first) == owners(second) == [NODES[2], NODES[1], NODES[2]]
    assert first.view.nodes == second.view.nodes == (NODES[1], NODES[2])


@pytest.mark.parametrize("address", ["", "nonsense", "host:70000"])
async def test_a_winner_whose_address_is_not_known_is_not_named(address: str) -> None:
    topic = MemoryTopic(1)
    first, second = await World(topic).serve(), World(topic, node_id=2)
    second.advertised_address = address
    await second.serve()
    first.settle()
    assert (owners(first), first.view.nodes) == ([None], (NODES[1],))
    key = format_key(SharePartitionKey("g", TOPIC, 0))
    finder = find_coordinator.Finder(6, first.view, share_keys(lambda _: 0), lambda _: True, "denied")
    answer = finder.find(KEY_TYPE, key)
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_a_partition_with_an_alarm_has_no_owner_and_one_that_loads_again_has() -> None:
    world = await World(MemoryTopic(2)).serve()
    world.partition(0).fail(Alarm("the log was cut"), world.clock.now_ms)
    world.partition(1).fail(RuntimeError("a bug"), world.clock.now_ms)
    assert owners(world) == [None, NODES[1]]


@pytest.mark.parametrize("node_id", ["9" * 5_000, "0" * 5_000, "2147483648", "-1", ""])
async def test_a_winner_whose_node_id_is_no_number_of_32_bits_is_named_to_nobody(node_id: str) -> None:
    topic = MemoryTopic(1)
    first = await World(topic).serve()
    await World(topic, node_id=2).serve()
    first.settle()
    ownership = first.partition(0).ownership
    assert ownership.winner is not None
    ownership.winner = ownership.winner._replace(node_id=node_id)
    assert owners(first) == [None]


async def test_the_same_node_id_at_another_address_is_named_once_and_where_it_owns() -> None:
    topic = MemoryTopic(2)
    first = await World(topic).serve()
    # As if a process with its number had been started elsewhere: the worlds of one id would have one source of chance.
    second = World(topic, node_id=2)
    second.advertised_address = "elsewhere.example:9492"
    await second.serve()
    first.settle()
    for index in (0, 1):
        ownership = first.partition(index).ownership
        assert ownership.winner is not None
        ownership.winner = ownership.winner._replace(node_id="1")
    elsewhere = Node(1, "elsewhere.example", 9492)
    assert (owners(first), first.view.nodes) == ([elsewhere] * 2, (elsewhere,))
    first.runtime.take(0)
    first.settle()
    assert owners(first) == [NODES[1], elsewhere]
    assert first.view.nodes == (NODES[1],), "one number has one address, its own while it owns anything"
