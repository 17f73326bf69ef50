"""What the documentation tells others to do with a state topic, done to a topic that daemons wrote."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from holdfast.client import connect
from holdfast.records.batches import ACKNOWLEDGED, AVAILABLE, StateBatch
from holdfast.records.header import HEADER_NAME, encode_header
from holdfast.records.keys import format_topic_id
from tests.real.nodes import NodeProcess, node_processes, topic_id_of
from tests.real.shared_kafka import NewTopicFactory

pytestmark = pytest.mark.real

EXAMPLE = Path(__file__).parents[2] / "examples" / "read_state.py"
PARTITIONS = 6
TIMEOUT_S = 60


async def run_example(bootstrap_servers: str, state_topic: str) -> tuple[dict[int, dict[str, Any]], str]:
    """Run examples/read_state.py; returns the state of each share partition by its partition, and what it said beside."""
    arguments = (str(EXAMPLE), "--bootstrap-server", bootstrap_servers, "--topic", state_topic)
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(TIMEOUT_S):
        printed, said = await process.communicate()
    assert process.returncode == 0, said.decode()
    lines = [json.loads(line) for line in printed.decode().splitlines()]
    return {line["partition"]: line for line in lines}, said.decode()


async def write_something(node: NodeProcess, topic_id: bytes, leader_epoch: int) -> dict[int, dict[str, Any]]:
    """Write to every share partition, forget the last, and return what the node then says of the others."""
    told: dict[int, dict[str, Any]] = {}
    async with connect(node.address) as client:
        for partition in range(PARTITIONS):
            await client.initialize("group", topic_id, partition, state_epoch=leader_epoch, start_offset=0)
            await client.read("group", topic_id, partition, leader_epoch)
            for first in range(0, 10 * partition, 10):
                batches = [
                    StateBatch(first, first + 9, ACKNOWLEDGED, 1),
                    StateBatch(first + 5, first + 14, AVAILABLE, 2),
                ]
                await client.write("group", topic_id, partition, leader_epoch, leader_epoch, first // 2, batches, first)
        await client.delete("group", topic_id, PARTITIONS - 1)
        for partition in range(PARTITIONS - 1):
            state = await client.read("group", topic_id, partition, leader_epoch=-1)
            summary = await client.read_summary("group", topic_id, partition)
            told[partition] = {
                "group_id": "group",
                "topic_id": format_topic_id(topic_id),
                "partition": partition,
                "state_epoch": summary.state_epoch,
                "leader_epoch": summary.leader_epoch,
                "start_offset": state.start_offset,
                "delivery_complete_count": summary.delivery_complete_count,
                "state_batches": [batch._asdict() for batch in state.state_batches],
                "leader_epoch_fence": leader_epoch,
                "state_epoch_fence": leader_epoch,
            }
    return told


async def test_the_example_reads_what_the_daemons_say(
    kafka: str, topic: str, new_topic: NewTopicFactory, tmp_path: Path
) -> None:
    """Two owners one after the other, snapshots and updates, a tombstone, and records of neither owner."""
    topic_id = topic_id_of(kafka, new_topic(PARTITIONS))
    updates = "share.coordinator.snapshot.update.records.per.snapshot"
    with node_processes(kafka, topic, tmp_path) as make_node:
        first = make_node(node_id=1, **{updates: 3})
        await first.start()
        await write_something(first, topic_id, 1)
        first.kill()
        second = make_node(node_id=2)
        await second.start()
        told = await write_something(second, topic_id, 2)

        strays = Producer({"bootstrap.servers": kafka})
        superseded: dict[str, str | bytes | None] = {HEADER_NAME: encode_header(1, 1_000)}
        for headers in (None, superseded):
            strays.produce(topic, b"stray", b"stray", partition=0, headers=headers)
        assert strays.flush(TIMEOUT_S) == 0

        read, said = await run_example(kafka, topic)
    hidden = ("snapshot_epoch", "create_timestamp_ms", "write_timestamp_ms")
    assert {
        partition: {name: value for name, value in line.items() if name not in hidden}
        for partition, line in read.items()
    } == told
    assert said == f"{PARTITIONS - 1} share partitions; 2 void records were passed over.\n"
