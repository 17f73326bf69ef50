"""While one shard loads a long log, another one answers.

How long a turn of the loop takes depends on the machine; how many records a load takes in one does not, and is bounded.
RECORDS=1000000 makes the log so long (100,000 by default); `pytest -s` shows the figures.
"""

from __future__ import annotations

import asyncio
import os
import time
from itertools import count

import pytest
from confluent_kafka.admin import AdminClient

from holdfast.client import connect
from holdfast.daemon.topics.state_topic import FIXED_CONFIG
from holdfast.records.log.checkpoint import Checkpoint
from holdfast.records.share.batches import ACKNOWLEDGED, StateBatch
from holdfast.records.share.keys import SharePartitionKey, log_partition
from holdfast.runtime.kafka_log.log import SLICE_RECORDS_MAX
from holdfast.runtime.partition.lifecycle import Partition
from holdfast.runtime.partition.states import State
from tests.real.log.long_log import LogPartitionWriter
from tests.real.nodes import PATIENT_CLIENT, topic_id_of
from tests.real.running_node import RunningNode, make_settings
from tests.real.shared_kafka import NewTopicFactory
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.real

RECORDS = int(os.environ.get("RECORDS", "100000"))
KEYS = 1_000
#: A slice ends with the first records that make it whole, and they are as many as a slice at most.
TURN_RECORDS_MAX = 2 * SLICE_RECORDS_MAX
TURNS_MIN = WRITES_MIN = 10


async def count_turns(partition: Partition, turns: list[int]) -> None:
    """Count the records that a load takes in, in each turn of the loop in which it takes any."""
    last = partition.ownership.position
    while True:
        await asyncio.sleep(0)
        now = partition.ownership.position
        if now.owner_epoch == last.owner_epoch and now.next_sequence > last.next_sequence:
            turns.append(now.next_sequence - last.next_sequence)
        last = now


def keys_of(log_partition_index: int, number: int, topic_id: bytes) -> list[SharePartitionKey]:
    """Return so many share partitions that one of two log partitions holds."""
    found: list[SharePartitionKey] = []
    for group in count():
        key = SharePartitionKey(f"group-{group}", topic_id, 0)
        if log_partition(key, 2) == log_partition_index:
            found.append(key)
            if len(found) == number:
                return found
    raise AssertionError("count ends")


async def test_a_shard_answers_while_another_one_loads_a_long_log(kafka: str, new_topic: NewTopicFactory) -> None:
    topic = new_topic(2, **{name.replace(".", "_"): value for name, value in FIXED_CONFIG.items()})
    orders = topic_id_of(kafka, new_topic(1))
    admin = AdminClient({"bootstrap.servers": kafka})
    cluster_id = admin.describe_cluster().result(PATIENCE_S).cluster_id
    checkpoint = Checkpoint(1, bytes(16), "1", 1, cluster_id, topic_id_of(kafka, topic), 2, None)
    writers = [LogPartitionWriter(kafka, topic, partition, checkpoint) for partition in range(2)]
    writers[1].append_updates(keys_of(1, KEYS, orders), RECORDS // KEYS)
    for writer in writers:
        writer.close()
    [key] = keys_of(0, 1, orders)
    node = RunningNode(make_settings(kafka, topic))
    held = node.partitions
    times_ms: list[float] = []
    turns: list[int] = []
    try:
        await node.until(lambda: held() and held()[0].state is State.ACTIVE, "the short log is loaded")
        counting = asyncio.create_task(count_turns(held()[1], turns))
        async with connect(node.address, PATIENT_CLIENT) as client:
            await client.initialize(key.group_id, orders, 0, 1, 0)
            while held()[1].state is State.LOADING:
                offset = len(times_ms)
                began_s = time.perf_counter()
                await client.write(key.group_id, orders, 0, 1, 0, offset, [StateBatch(offset, offset, ACKNOWLEDGED, 1)])
                times_ms.append((time.perf_counter() - began_s) * 1_000)
            counting.cancel()
            await node.ready()
            assert len(times_ms) >= WRITES_MIN
            [_, long_log] = await client.admin("partitions")
    finally:
        await node.stop()
    print(
        f"\n{len(times_ms)} writes to one shard while another loaded {long_log['records_loaded']} records in "
        f"{long_log['load_ms']} ms, in {len(turns)} turns of the loop; a write took "
        f"{sorted(times_ms)[len(times_ms) * 99 // 100]:.1f} ms at p99, {max(times_ms):.1f} ms at most"
    )
    assert long_log["keys"] == KEYS
    assert long_log["records_loaded"] >= RECORDS
    assert len(turns) >= TURNS_MIN
    assert max(turns) < TURN_RECORDS_MAX
