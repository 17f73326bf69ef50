"""Three nodes divide one log: one joins, one stops, one is killed; what was answered is there, and look-ups name the owner."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
from kio.schema.delete_groups.v2.request import DeleteGroupsRequest
from kio.schema.delete_groups.v2.response import DeleteGroupsResponse
from kio.schema.errors import ErrorCode
from kio.schema.types import GroupId
from structlog.testing import capture_logs

from holdfast.client import AdminRefused, Client, ClientError, connect
from holdfast.daemon import node as node_module
from holdfast.daemon.node_exit import NodeExit
from holdfast.daemon.partitions.hand_overs import merge
from holdfast.daemon.settings.models import Settings
from holdfast.kafka.addresses import parse_address
from holdfast.kafka.connection_options import connection_options
from holdfast.kafka.exchange import exchange_with_any
from holdfast.records.share.batches import StateBatch
from holdfast.records.share.keys import SharePartitionKey
from holdfast.runtime.partition.states import State
from tests.real.nodes import PATIENT_CLIENT, NodeProcess, node_processes, topic_id_of
from tests.real.running_node import RunningNode, make_settings, running
from tests.real.shared_kafka import NewTopicFactory
from tests.waiting import PATIENCE_MS, PATIENCE_S, in_patience, wait_until

pytestmark = pytest.mark.real

LOG_PARTITIONS: Final = 6
#: Users' partitions, spread over the log partitions by Kafka's hash.
PARTITIONS: Final = 12
GROUP: Final = "shop"
#: A node that is killed is missed soon, and no machine that stalls for some seconds has another one missed.
MEMBER: Final[dict[str, object]] = {
    "membership": "group",
    "session.timeout.ms": 12_000,
    "heartbeat.interval.ms": 500,
    "rebalance.timeout.ms": 30_000,
    "drain_timeout_ms": 10_000,
    "share.coordinator.state.topic.num.partitions": LOG_PARTITIONS,
}


def member_settings(kafka: str, topic: str, node_id: int) -> Settings:
    return make_settings(kafka, topic, node_id=node_id, **MEMBER)


def tasks(node: RunningNode) -> list[int]:
    """Return the log partitions that a node serves."""
    return [each.index for each in node.partitions() if each.state is State.ACTIVE]


async def write_all(client: Client, topic_id: bytes, turn: int) -> None:
    """Write a batch to every partition, again and again until it is answered."""
    deadline_s = time.monotonic() + PATIENCE_S
    for partition in range(PARTITIONS):
        batch = StateBatch(turn * 10, turn * 10 + 9, 2, 1)
        while True:
            try:
                await client.write(GROUP, topic_id, partition, 1, 0, 0, [batch])
                break
            except ClientError:
                if time.monotonic() > deadline_s:
                    raise
                await asyncio.sleep(0.05)


async def read_all(client: Client, topic_id: bytes) -> set[int]:
    """Return how many offsets each partition has, as a set."""
    found = [await client.read(GROUP, topic_id, partition, leader_epoch=0) for partition in range(PARTITIONS)]
    return {sum(batch.last_offset - batch.first_offset + 1 for batch in each.state_batches) for each in found}


async def owners(client: Client, topic_id: bytes) -> set[object]:
    """Return the addresses that are named for all partitions."""
    return set(await client.find([SharePartitionKey(GROUP, topic_id, partition) for partition in range(PARTITIONS)]))


async def test_nodes_divide_the_log_and_lose_nothing_when_one_stops_and_one_is_killed(
    kafka: str, topic: str, new_topic: NewTopicFactory, tmp_path: Path
) -> None:
    topic_id = topic_id_of(kafka, new_topic(PARTITIONS))
    with node_processes(kafka, topic, tmp_path) as make_process:
        killed = make_process(node_id=3, **MEMBER)
        killed.launch()
        a, b = (RunningNode(member_settings(kafka, topic, node_id)) for node_id in (1, 2))
        try:
            for node in (a, b):
                await node.ready()
            await killed.wait_ready()
            await wait_until(lambda: len(tasks(a)) == len(tasks(b)) == 2, "each has a third")
            assert [dict(node.node.context.registry.numbers())["holdfast_assigned_tasks"] for node in (a, b)] == [2, 2]
            assert not set(tasks(a)) & set(tasks(b))
            async with connect(a.address, PATIENT_CLIENT) as client:
                await client_walk(client, topic_id, a, b, killed)
        finally:
            for node in (a, b):
                await node.stop()


async def client_walk(client: Client, topic_id: bytes, a: RunningNode, b: RunningNode, killed: NodeProcess) -> None:
    for partition in range(PARTITIONS):
        await client.initialize(GROUP, topic_id, partition, 1, 0)
    await write_all(client, topic_id, 0)
    rows = await client.admin("members")
    assert [(row["node_id"], len(row["log_partitions"])) for row in rows] == [(1, 2), (2, 2), (3, 2)]
    assert sorted(index for row in rows for index in row["log_partitions"]) == list(range(LOG_PARTITIONS))
    assert sum(row["is_leader"] for row in rows) == 1

    with pytest.raises(AdminRefused, match="The group of nodes divides the log partitions, and a node that takes one"):
        await client.admin("partitions-take", partition=tasks(a)[0])

    named = {parse_address(address) for address in (a.address, b.address, killed.address)}
    assert await owners(client, topic_id) == named
    had = next(row["log_partitions"] for row in rows if row["node_id"] == 3)
    # It may have come first, and given the others some of its own.
    before = hand_overs(a, b)
    killed.kill()
    await write_all(client, topic_id, 1)
    await wait_until(lambda: len(tasks(a)) == len(tasks(b)) == 3, "two have it all")
    from_killed = [row for row in hand_overs(a, b) if row["from_node"] == "3" and row not in before]
    assert {(row["log_partition"], row["why"]) for row in from_killed} == {
        (index, "node 3 left or was lost") for index in had
    }
    assert all(row["load_ms"] is not None and row["owner_epoch"] > 1 for row in from_killed)

    assert await b.stop() is NodeExit.STOPPED
    await write_all(client, topic_id, 2)
    await a.until(lambda: len(tasks(a)) == LOG_PARTITIONS and a.node.is_ready, "one has it all")
    from_stopped = [row for row in hand_overs(a) if (row["from_node"], row["to_node"]) == ("2", "1")][:3]
    assert {row["why"] for row in from_stopped} == {"node 2 left or was lost"}
    assert abs(from_stopped[0]["at_ms"] / 1_000 - time.time()) < PATIENCE_S
    assert await owners(client, topic_id) == {parse_address(a.address)}
    assert await read_all(client, topic_id) == {30}


def hand_overs(*nodes: RunningNode) -> list[dict[str, Any]]:
    """Return the hand-overs that nodes remember, as the page and the command line tool merge them."""
    return merge([node.parts.partitions.hand_overs.describe() for node in nodes])


async def test_a_static_member_that_comes_back_at_another_address_is_named_there(kafka: str, topic: str) -> None:
    def make(node_id: int) -> Settings:
        times = {"session.timeout.ms": PATIENCE_MS // 5, "rebalance.timeout.ms": PATIENCE_MS // 5}
        static = {"group.instance.id": f"node-{node_id}"}
        return make_settings(kafka, topic, node_id=node_id, **MEMBER | times | static)

    async with running(make(1)) as stays:
        async with running(make(2)) as moves:
            await wait_until(lambda: len(tasks(stays)) == len(tasks(moves)) == LOG_PARTITIONS // 2, "each has half")
            former = moves.address
        async with running(make(2)) as moved:
            assert moved.address != former

            async def known_as() -> list[str]:
                rows = await stays.client.admin("members")
                return [row["address"] for row in rows if row["node_id"] == 2]

            deadline_s = time.monotonic() + PATIENCE_S
            while await known_as() != [moved.address]:
                assert time.monotonic() < deadline_s
                await asyncio.sleep(0.05)


async def test_generations_never_go_back_from_static_to_a_group_that_is_forgotten_and_to_static_again(
    kafka: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No stall makes a node that serves look absent to one that starts.
    monkeypatch.setattr(node_module, "ANSWER_TIMEOUT_MS", PATIENCE_MS)
    static, group = make_settings(kafka, topic, node_id=1), member_settings(kafka, topic, 2)
    async with running(static) as node:
        handed_out = [generations(node)]
        why = await refusal(group)
        assert (
            f"node 1 serves this log alone (membership=static) and answers at {node.address}, and this node is of"
            in why
        )
    async with running(group) as node:
        handed_out.append(generations(node))
        why = await refusal(static)
        assert (
            f"node 2 serves this log as a member of the group holdfast-{topic} and answers at {node.address}, " in why
        )
        why = await refusal(group)
        assert f"node id 2 belongs to the node at {node.address}, and the one at 127.0.0.1:" in why
        assert node.node.is_ready
    await forget(kafka, f"holdfast-{topic}")
    async with running(member_settings(kafka, topic, 3)) as node:
        handed_out.append(generations(node))
    async with running(static) as node:
        handed_out.append(generations(node))
    assert all(max(before) < min(after) for before, after in pairwise(handed_out)), handed_out


async def forget(kafka: str, group: str) -> None:
    """Let the one broker forget a group that is empty, as it does after a while."""
    options = connection_options({"bootstrap.servers": kafka})
    request = DeleteGroupsRequest(groups_names=(GroupId(group),))
    answer = await exchange_with_any(options.bootstrap, options, PATIENCE_MS, request, DeleteGroupsResponse)
    assert [(each.group_id, each.error_code) for each in answer.results] == [(group, ErrorCode.none)]


def generations(node: RunningNode) -> list[int]:
    """Return the generations under which a node has its log partitions."""
    return [each.generation or 0 for each in node.partitions()]


async def refusal(settings: Settings) -> str:
    """Return why a node does not start where others serve."""
    with capture_logs() as lines:
        assert await in_patience(RunningNode(settings).exit) is NodeExit.WRONG_USAGE
    [why] = [line["why"] for line in lines if line["event"] == "take_over_refused"]
    return str(why)
