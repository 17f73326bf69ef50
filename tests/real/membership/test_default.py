"""Nodes with no word about membership: one is a group of one and soon back, a second one joins, and all may stop at once."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from holdfast.daemon.node_exit import NodeExit
from holdfast.runtime.partition.states import State
from tests.real.membership.test_nodes import forget
from tests.real.nodes import NodeFactory, NodeProcess, node_processes
from tests.real.running_node import RunningNode, make_settings
from tests.waiting import PATIENCE_MS, wait_until

pytestmark = pytest.mark.real


@pytest.fixture
def make_node(kafka: str, topic: str, tmp_path: Path) -> Iterator[NodeFactory]:
    with node_processes(kafka, topic, tmp_path) as make:
        yield make


def count(node: NodeProcess, event: str) -> int:
    return sum(line["event"] == event for line in node.events())


async def members(node: NodeProcess) -> dict[int, list[int]]:
    return {row["node_id"]: row["log_partitions"] for row in await node.ask("members")}


async def test_a_static_member_finds_its_place_again_however_it_ended(make_node: NodeFactory) -> None:
    # Its place waits for so long, and how fast this machine starts a process must not decide.
    times = {"session.timeout.ms": PATIENCE_MS, "rebalance.timeout.ms": PATIENCE_MS}
    node = make_node(**times, **{"group.instance.id": "first"})
    await node.start()
    assert await members(node) == {1: [0, 1, 2, 3]}
    node.kill()
    await node.start()
    node.signal(signal.SIGTERM)
    assert await node.wait_exit() == 0
    await node.start()
    assert await members(node) == {1: [0, 1, 2, 3]}
    # One division for three lives: what it was given by itself at first waits for it.
    assert (count(node, "assignment_started"), count(node, "assignment_adopted")) == (1, 3)

    # Another process that gives itself out for this node: one of the two ends, and says why.
    twin = make_node(advertised_listener=node.address, **times, **{"group.instance.id": "first"})
    twin.launch()
    assert await node.wait_exit() == 2
    (why,) = (line["why"] for line in node.events() if line["event"] == "membership_refused")
    assert "FENCED_INSTANCE_ID" in why
    assert "group.instance.id" in why


async def test_a_killed_node_that_starts_again_does_not_wait_for_the_end_of_its_session(make_node: NodeFactory) -> None:
    times = {"session.timeout.ms": PATIENCE_MS, "rebalance.timeout.ms": PATIENCE_MS}
    node = make_node(**times)
    await node.start()
    for kills in (1, 2):
        node.kill()
        await node.start()
        assert (await members(node), count(node, "former_member_dismissed")) == ({1: [0, 1, 2, 3]}, kills)


async def test_nodes_that_were_killed_together_find_their_former_members_while_the_group_rebalances(
    make_node: NodeFactory,
) -> None:
    times = {"session.timeout.ms": PATIENCE_MS, "rebalance.timeout.ms": PATIENCE_MS}
    first, second = (make_node(node_id=node_id, **times) for node_id in (1, 2))
    await first.start()
    await second.start()
    first.kill()
    second.kill()
    first.launch()
    await wait_until(lambda: count(first, "former_member_dismissed") == 1, "the group waits for the former second")
    await second.start()
    await first.wait_ready()
    assert count(second, "former_member_dismissed") == 1
    assert {*await members(first)} == {1, 2}


async def test_a_second_node_joins_and_where_all_stop_at_once_none_waits_for_another(kafka: str, topic: str) -> None:
    # All start and serve within a session, so they wait for none; how fast this machine starts them must not decide.
    times = {"session.timeout.ms": PATIENCE_MS, "rebalance.timeout.ms": PATIENCE_MS}
    settings = [make_settings(kafka, topic, node_id=node_id, membership="group", **times) for node_id in (1, 2)]
    with capture_logs() as lines:
        for _ in range(2):
            async with asyncio.timeout(PATIENCE_MS / 1_000):
                nodes = [RunningNode(each) for each in settings]
                for node in nodes:
                    await node.ready()
                await wait_until(lambda nodes=nodes: [active(node) for node in nodes] == [1, 1], "each serves a half")  # type: ignore[misc]
            assert await asyncio.gather(*(node.stop() for node in nodes)) == [NodeExit.STOPPED] * 2
            # Kafka begins again at generation 1, and the logs do not.
            await forget(kafka, f"holdfast-{topic}")
    events = {line["event"] for line in lines}
    assert "handover_unwanted" in events
    assert "handover_expired" not in events


def active(node: RunningNode) -> int:
    return sum(each.state is State.ACTIVE for each in node.partitions())
