"""A node whose consumers catch up with more than it may hold: its memory stays within the bound, and all of them go on.

MEMORY_S says for how long (15).
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import pytest

from tests.real.gateway.raw_member import RawMember, raw_member
from tests.real.gateway.test_stock_consumers import EARLIEST, produce
from tests.real.nodes import node_processes, topic_id_of
from tests.real.shared_kafka import NewTopicFactory
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.real

MEMORY_S: Final = float(os.environ.get("MEMORY_S", "15"))
GROUPS: Final = 4
MEMBERS: Final = 4
#: 1,000 share partitions in all groups.
PARTITIONS: Final = 250
BOUND_BYTES: Final = 96 << 20
VALUE_BYTES: Final = 1_000
#: More than twice the bound.
VALUES: Final = 220_000
SAMPLE_S: Final = 0.05


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def work(member: RawMember, number: int, taken: list[int], until_s: float) -> None:
    """Take records and accept them, for a time and until all members have some; notes how many."""
    while time.monotonic() < until_s or not min(taken):
        assert time.monotonic() < until_s + PATIENCE_S, "none starves"
        found = await member.fetch()
        ranges = {
            partition: [(first, last) for first, last, _ in answer.acquired]
            for partition, answer in found.items()
            if answer.acquired
        }
        if ranges:
            taken[number] += sum(last - first + 1 for of_one in ranges.values() for first, last in of_one)
            await member.acknowledge(ranges)


async def sample(pid: int, taken: list[int], until_s: float) -> int:
    most = 0
    while time.monotonic() < until_s or not min(taken):
        most = max(most, resident_bytes(pid))
        await asyncio.sleep(SAMPLE_S)
    return most


async def test_memory_stays_within_the_bound_where_many_catch_up(
    kafka: str, topic: str, new_topic: NewTopicFactory, tmp_path: Path
) -> None:
    records = new_topic(PARTITIONS)
    noise = random.Random(1).randbytes(VALUE_BYTES + VALUES)
    produce(
        kafka,
        records,
        [noise[at : at + VALUE_BYTES] for at in range(VALUES)],
        **{
            "linger.ms": 100,
            "queue.buffering.max.messages": VALUES + 1,
            "queue.buffering.max.kbytes": 1 << 20,
            # All that waits for the partitions to be known would go to one of them.
            "sticky.partitioning.linger.ms": 0,
        },
    )
    topic_id = topic_id_of(kafka, records)
    settings = {"gateway.topics": records, "gateway.fetch.buffer.bytes": BOUND_BYTES} | EARLIEST
    with node_processes(kafka, topic, tmp_path) as make_node:
        node = make_node(**settings)
        await node.start()
        async with AsyncExitStack() as stack:
            members = [
                await stack.enter_async_context(
                    raw_member(node.address, f"group-{group}", topic_id, range(first, PARTITIONS, MEMBERS))
                )
                for group in range(GROUPS)
                for first in range(MEMBERS)
            ]
            before = resident_bytes(node.pid())
            until_s, taken = time.monotonic() + MEMORY_S, [0] * len(members)
            async with asyncio.TaskGroup() as tasks:
                sampled = tasks.create_task(sample(node.pid(), taken, until_s))
                for number, member in enumerate(members):
                    tasks.create_task(work(member, number, taken, until_s))
    most = sampled.result()
    grown = most - before
    print(
        f"\nmemory: {GROUPS * PARTITIONS} share partitions, bound {BOUND_BYTES / 2**20:.0f} MiB, the node grew by"
        f" {grown / 2**20:.0f} MiB to {most / 2**20:.0f}; {sum(taken):,} records in {MEMORY_S:.0f} s, least {min(taken):,}"
    )
    assert grown <= BOUND_BYTES * 1.2
