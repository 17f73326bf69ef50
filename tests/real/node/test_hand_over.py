"""How long nobody answers for a log partition while another node takes it: not longer where its log is longer.

HAND_OVER_UPDATES="100000 2000000" runs it with logs of so many updates; `pytest -s` shows the figures.
"""

from __future__ import annotations

import asyncio
import os
import time

import pytest

from holdfast.client import ShareStateError, connect
from holdfast.daemon.topics.state_topic import FIXED_CONFIG
from holdfast.records.share.batches import ACKNOWLEDGED, StateBatch
from holdfast.records.share.keys import SharePartitionKey
from holdfast.runtime.partition.states import State
from tests.real.log.long_log import write_long_log
from tests.real.nodes import ONE_TRY, topic_id_of
from tests.real.running_node import RunningNode, make_settings, running
from tests.real.shared_kafka import NewTopicFactory

pytestmark = pytest.mark.real

UPDATES = [int(number) for number in os.environ.get("HAND_OVER_UPDATES", "").split()]
KEYS = 1_000
#: Between two looks at a node that does not serve yet, which are not to slow its load down.
LOOK_S = 0.002


async def write_until_superseded(node: RunningNode, key: SharePartitionKey) -> tuple[int, float]:
    """Write one after the other; returns the last start offset that was answered, and when."""
    start_offset, answered_s = 0, time.perf_counter()
    async with connect(node.address, ONE_TRY) as client:
        while True:
            batch = StateBatch(start_offset, start_offset, ACKNOWLEDGED, 1)
            try:
                await client.write(key.group_id, key.topic_id, key.partition, 1, 0, start_offset, [batch])
            except ShareStateError:
                return start_offset - 1, answered_s
            start_offset, answered_s = start_offset + 1, time.perf_counter()


async def read_until_answered(node: RunningNode, key: SharePartitionKey) -> tuple[int, float]:
    """Read until there is an answer; returns its start offset, and when it came."""
    async with connect(node.address, ONE_TRY) as client:
        while True:
            try:
                state = await client.read(key.group_id, key.topic_id, key.partition, 0)
            except ShareStateError:
                await asyncio.sleep(LOOK_S)
            else:
                return state.start_offset, time.perf_counter()


@pytest.mark.skipif(not UPDATES, reason="a measurement: HAND_OVER_UPDATES says how long the logs are")
@pytest.mark.parametrize("updates", UPDATES)
async def test_a_log_partition_changes_hands_under_a_writer(
    kafka: str, new_topic: NewTopicFactory, updates: int
) -> None:
    topic = new_topic(1, **{name.replace(".", "_"): value for name, value in FIXED_CONFIG.items()})
    topic_id = topic_id_of(kafka, new_topic(1))
    write_long_log(
        kafka, topic, [SharePartitionKey(f"group-{n}", topic_id, 0) for n in range(KEYS)], 1, updates // KEYS
    )
    key = SharePartitionKey("writer", topic_id, 0)
    flags: dict[str, object] = {"share.coordinator.state.topic.num.partitions": 1, "load_timeout_ms": 600_000}
    async with running(make_settings(kafka, topic, **flags)) as first:
        await first.client.initialize(key.group_id, topic_id, 0, 1, 0)
        second = RunningNode(make_settings(kafka, topic, node_id=2, take_over=False, **flags))
        try:
            await second.until_states(State.CLOSED)
            writing = asyncio.create_task(write_until_superseded(first, key))
            began_s = time.perf_counter()
            async with connect(second.address, ONE_TRY) as client:
                await client.admin("partitions-take", partition=0)
            found, first_s = await read_until_answered(second, key)
            written, last_s = await writing
        finally:
            await second.stop()
    print(
        f"\n{updates:,} updates: nobody answered for {(first_s - last_s) * 1_000:.0f} ms of the {first_s - began_s:.1f} s "
        f"that the hand-over took; {written + 1} writes were answered meanwhile"
    )
    assert found in (written, written + 1)  # of the last write it may be unknown whether it counts
