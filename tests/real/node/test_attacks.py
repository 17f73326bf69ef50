"""A node with small bounds under clients that mean ill: what it holds stays within them, and others are served meanwhile.

`python -m benchmarks.attacks` runs the same attacks, and more of them, against a node with its default settings.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from benchmarks.attacks import attacks, caller
from benchmarks.attacks.attacks import Attack, Target
from benchmarks.attacks.caller import Caller, share_body, write_one
from benchmarks.client import Address
from benchmarks.machine import memory_mib
from holdfast.api.results import InitializePartition
from holdfast.api.share_state import INITIALIZE, WRITE
from holdfast.api.state_responses import decode_response
from tests.real.nodes import NodeProcess, node_processes, topic_id_of
from tests.real.shared_kafka import NewTopicFactory
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.real

MIB = 1 << 20
#: Buffered, in flight, unsent; what is remembered of keys; one request decoded and one answer encoded; and as much
#: again as the allocator may keep beside it.
ABOVE_IDLE_MAX_MIB = 2 * (3 * 32 + 100 + 32)
SETTINGS = {
    "buffered_bytes_max": 32 * MIB,
    "requests_in_flight_bytes_max": 32 * MIB,
    "unsent_bytes_max": 32 * MIB,
}
KINDS: tuple[Attack, ...] = (
    attacks.long_group,
    attacks.big_read,
    attacks.deaf_reads,
    attacks.reads_left_behind,
    attacks.many_keys,
    attacks.metadata,
    attacks.large_json,
    attacks.header_tags,
    attacks.many_digits,
    attacks.unfinished_frames,
)


async def be_served(target: Target, caller: Caller, offset: int) -> None:
    """Write a share partition; it must be answered with success."""
    body = share_body(WRITE, "healthy", [(target.topic_id, [write_one(0, [(offset, offset, 2, 1)], offset)])])
    caller.call_share(WRITE, body)
    async with asyncio.timeout(PATIENCE_S):
        [(_, [(_, result)])] = decode_response(WRITE, 1, await caller.reader.readexactly(await size(caller)), 5)
    assert result.error_code == 0, result


async def size(caller: Caller) -> int:
    return int.from_bytes(await caller.reader.readexactly(4), "big")


async def suffer(attack: Attack, target: Target, healthy: Caller, node: NodeProcess) -> tuple[float, int]:
    """Return how much memory the node took above what it had, and how often it served a healthy client meanwhile."""
    idle_mib = peak_mib = memory_mib([target.process_id])
    served = 0
    running = asyncio.ensure_future(attack(target))
    while not running.done():
        await be_served(target, healthy, suffer_offset())
        served += 1
        peak_mib = max(peak_mib, memory_mib([target.process_id]))
        await asyncio.wait([running], timeout=0.02)
    await running
    assert node.exit_code() is None, node.last_words()
    return peak_mib - idle_mib, served


_offsets = iter(range(1, 1_000_000))


def suffer_offset() -> int:
    return next(_offsets)


async def test_what_a_node_holds_has_a_bound_whatever_clients_send_and_others_are_served_meanwhile(
    kafka: str, topic: str, new_topic: NewTopicFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = topic_id_of(kafka, new_topic(attacks.BIG_PARTITIONS + 1))
    with node_processes(kafka, topic, tmp_path) as make:
        node = make(**SETTINGS)
        await node.start()
        assert node._process is not None
        host, _, port = node.address.rpartition(":")
        target = Target(Address(host, int(port)), orders, node._process.pid)
        with monkeypatch.context() as patch:
            patch.setattr(caller, "_TIMEOUT_S", PATIENCE_S)
            healthy = await target.open()
            body = share_body(INITIALIZE, "healthy", [(orders, [InitializePartition(0, 0, 0)])])
            healthy.call_share(INITIALIZE, body)
            await healthy.receive()
            await attacks.big_states(target)  # its states stay, and are not part of the bound
        for attack in KINDS:
            above_mib, served = await suffer(attack, target, healthy, node)
            print(f"{attack.__name__}: {above_mib:.0f} MiB above idle, a healthy client served {served} times")
            assert above_mib <= ABOVE_IDLE_MAX_MIB, attack.__name__
            assert served >= 1
        metrics = await node.ask("metrics")
        assert metrics["holdfast_loop_turn_longest_seconds"] > 0
        assert (await node.status())["longest_turn_ms"] > 0
        deaf = target.connect_deaf(target.big_read() * 2)
        node._process.terminate()
        assert await node.wait_exit() == 0
        deaf.close()
        healthy.close()
