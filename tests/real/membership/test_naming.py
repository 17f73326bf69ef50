"""While a node loads what another one serves on, every client is answered by that one, also those that come anew; it may have left."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from itertools import count
from threading import Event
from typing import Final

import pytest

from holdfast.client import connect
from holdfast.daemon.membership import group_member
from holdfast.daemon.node_exit import NodeExit
from holdfast.kafka.addresses import parse_address
from holdfast.records.log.checkpoint import Placement
from holdfast.records.share.keys import SharePartitionKey, log_partition
from holdfast.runtime.partition.states import State
from holdfast.share.decisions import ShareShard
from tests.real.membership.test_nodes import LOG_PARTITIONS, MEMBER
from tests.real.nodes import PATIENT_CLIENT, topic_id_of
from tests.real.running_node import RunningNode, make_settings
from tests.real.shared_kafka import NewTopicFactory
from tests.waiting import PATIENCE_MS, PATIENCE_S, wait_until
from tests.world.samples import EPOCH_MAX

pytestmark = [pytest.mark.real, pytest.mark.pure_build("a load is held by a patch")]

GROUP: Final = "named"
#: So that every log partition has one by Kafka's hash.
PARTITIONS: Final = 64
#: Rounds of fresh clients, over several polls of a former owner.
ROUNDS: Final = 3
PAUSE_S: Final = 0.1
#: No busy machine decides who gives up when.
BOUNDS: Final = ("drain_timeout_ms", "handover_timeout_ms", "session.timeout.ms", "rebalance.timeout.ms")
_values = count(1)


@pytest.fixture(autouse=True)
def _patient_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no busy machine make a former owner look frozen."""
    monkeypatch.setattr(group_member, "_POLL_TIMEOUT_MS", PATIENCE_MS)


@pytest.fixture
def may_load(monkeypatch: pytest.MonkeyPatch) -> Iterator[Event]:
    """Give an event without which no load comes to its end."""
    event, fold = Event(), ShareShard.fold_loaded

    def fold_or_wait(shard: ShareShard, is_time_up: Callable[[], bool]) -> bool:
        return fold(shard, is_time_up) and event.is_set()

    monkeypatch.setattr(ShareShard, "fold_loaded", fold_or_wait)
    event.set()
    yield event
    event.set()


def make(kafka: str, topic: str, node_id: int) -> RunningNode:
    return RunningNode(make_settings(kafka, topic, node_id=node_id, **MEMBER | dict.fromkeys(BOUNDS, PATIENCE_MS)))


def indexes(node: RunningNode, state: State) -> set[int]:
    return {each.index for each in node.partitions() if each.state is state}


async def until_named(node: RunningNode, keys: dict[int, SharePartitionKey], nodes: set[RunningNode]) -> None:
    """Wait until a node names these nodes, and no others, for all log partitions to clients that come anew."""
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        async with connect(node.address, PATIENT_CLIENT) as client:
            named = set(await client.find([*keys.values()]))
        if named == {parse_address(each.address) for each in nodes}:
            return
        assert time.monotonic() < deadline_s, named
        await asyncio.sleep(PAUSE_S)


async def write_anew(node: RunningNode, key: SharePartitionKey) -> None:
    """Write over a client that knows nothing but one node."""
    async with connect(node.address, PATIENT_CLIENT) as client:
        await client.write(GROUP, key.topic_id, key.partition, EPOCH_MAX, EPOCH_MAX, next(_values), [])


async def write_everywhere(nodes: list[RunningNode], keys: dict[int, SharePartitionKey]) -> None:
    """Write to every log partition over fresh clients of every node, some polls of a former owner long."""
    for _ in range(ROUNDS):
        for node in nodes:
            for key in keys.values():
                await write_anew(node, key)
        await asyncio.sleep(PAUSE_S)


async def test_clients_are_sent_to_the_former_owner_until_the_new_one_has_loaded(
    kafka: str, topic: str, new_topic: NewTopicFactory, may_load: Event
) -> None:
    topic_id = topic_id_of(kafka, new_topic(PARTITIONS))
    keys = {
        log_partition(key, LOG_PARTITIONS, Placement.BY_TOPIC_PARTITION): key
        for key in (SharePartitionKey(GROUP, topic_id, n) for n in range(PARTITIONS))
    }
    assert len(keys) == LOG_PARTITIONS
    former = await make(kafka, topic, 1).ready()
    async with connect(former.address, PATIENT_CLIENT) as client:
        for key in keys.values():
            await client.initialize(GROUP, topic_id, key.partition, 1, 0)
    may_load.clear()
    new = make(kafka, topic, 2)
    await wait_until(lambda: len(indexes(new, State.LOADING)) == LOG_PARTITIONS // 2, "it loads its half")
    await until_named(new, keys, {former})
    await write_everywhere([former, new], keys)
    assert len(indexes(new, State.LOADING)) == LOG_PARTITIONS // 2, "it has loaded nothing meanwhile"
    may_load.set()
    await new.ready()
    await until_named(former, keys, {former, new})
    await write_everywhere([former, new], keys)

    may_load.clear()
    stopping = asyncio.create_task(former.stop())
    await wait_until(lambda: len(indexes(new, State.LOADING)) == LOG_PARTITIONS // 2, "it loads the other half")
    await until_named(new, keys, {former, new})
    await write_everywhere([new], keys)
    assert not stopping.done()
    may_load.set()
    assert await stopping is NodeExit.STOPPED
    await until_named(new, keys, {new})
    await write_everywhere([new], keys)
    await new.stop()
