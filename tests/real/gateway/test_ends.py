"""Connections and nodes that end while clients hold records: another client has the records at once, and no lock must end first."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from typing import Any

import pytest

from holdfast.api.share_fetch import FetchedPartition
from holdfast.client import ClientError
from holdfast.kafka.addresses import parse_address
from holdfast.kafka.protocol.error_codes import ErrorCode
from tests.real.gateway.cutting_proxy import CuttingProxy
from tests.real.gateway.raw_member import RawMember, raw_member
from tests.real.gateway.test_attacks import ALONE, GROUP, LOCK_S, gateway, metric, until_waiting
from tests.real.gateway.test_stock_consumers import produce
from tests.real.nodes import topic_id_of
from tests.real.running_node import RunningNode, make_settings, running
from tests.real.shared_kafka import NewTopicFactory
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.real

#: Far below a lock, and more than any busy machine takes.
SOON_S = LOCK_S / 2
RECORDS = 50
RELEASE = 2
#: Larger than the buffers of two sockets, so that answers to a client which reads nothing stay in the node.
LARGE_RECORDS, LARGE_BYTES = 400, 100_000


async def take(member: RawMember, count: int) -> dict[int, int]:
    """Fetch until a member has a number of records, and return the delivery count of each by its offset."""
    counts: dict[int, int] = {}
    deadline = time.monotonic() + PATIENCE_S
    while len(counts) < count:
        assert time.monotonic() < deadline, f"it has {len(counts)} of {count} records"
        for partition in (await member.fetch()).values():
            for first, last, delivery_count in partition.acquired or ():
                counts |= dict.fromkeys(range(first, last + 1), delivery_count)
    return counts


async def fill(node: RunningNode, deaf: RawMember) -> list[asyncio.Task[dict[int, FetchedPartition]]]:
    """Let a member that reads nothing fetch until its answers stay in the node, and return its fetches."""
    asks: list[asyncio.Task[dict[int, FetchedPartition]]] = []
    looks_full, began_s, given = 0, time.monotonic(), -1.0
    # The last that was sent is on its way for a moment.
    while looks_full < 2:
        assert time.monotonic() < began_s + PATIENCE_S, "all answers were taken"
        numbers = await node.client.admin("metrics")
        is_full = numbers["holdfast_answers_unsent_bytes"] > 1 << 16
        looks_full = looks_full + 1 if is_full else 0
        # Each takes what is at hand, which may be nothing for a while.
        if not is_full and numbers["holdfast_gateway_bytes_given_total"] > given:
            given = numbers["holdfast_gateway_bytes_given_total"]
            asks.append(asyncio.create_task(deaf.fetch(wait_ms=60_000, records_max=LARGE_RECORDS)))
        await asyncio.sleep(0.05)
    return [*asks, asyncio.create_task(deaf.fetch(records_max=LARGE_RECORDS))]


async def test_records_held_at_a_stop_come_from_the_next_node_at_once(
    kafka: str, topic: str, new_topic: NewTopicFactory
) -> None:
    """Locks end with their leader, which writes nothing for it: the delivery that nobody answered is not counted."""
    orders = new_topic(1)
    topic_id = topic_id_of(kafka, orders)
    produce(kafka, orders, [b"%d" % number for number in range(RECORDS)], **ALONE)
    async with gateway(kafka, topic, orders) as node, raw_member(node.address, GROUP, topic_id) as member:
        held = await take(member, RECORDS)
        accepted = 10
        answer = await member.acknowledge({0: [(0, accepted - 1)]})
        assert not answer.topics[0][1][0].error_code
        began_s = time.monotonic()
        await node.stop()
        stopped_s = time.monotonic()
    assert held == dict.fromkeys(range(RECORDS), 1)
    async with gateway(kafka, topic, orders) as node, raw_member(node.address, GROUP, topic_id) as member:
        ready_s = time.monotonic()
        again = await take(member, RECORDS - accepted)
        took_s = time.monotonic() - ready_s
        assert not await metric(node, "locks_ended_total"), "no lock had to end"
    print(f"\nstopped in {stopped_s - began_s:.2f} s; the next node gave {len(again)} records after {took_s:.2f} s")
    assert again == dict.fromkeys(range(accepted, RECORDS), 1)


async def test_a_stop_takes_as_long_with_fetches_that_wait_as_without(
    kafka: str, topic: str, new_topic: NewTopicFactory
) -> None:
    orders = new_topic(1)
    topic_id = topic_id_of(kafka, orders)
    produce(kafka, orders, [b"%d" % number for number in range(RECORDS)], **ALONE)
    async with running(make_settings(kafka, f"{topic}-alone")) as alone:
        began_s = time.monotonic()
        await alone.stop()
        alone_s = time.monotonic() - began_s
    async with gateway(kafka, topic, orders) as node, AsyncExitStack() as stack:
        members = [await stack.enter_async_context(raw_member(node.address, GROUP, topic_id)) for _ in range(20)]
        held = await take(members[0], RECORDS)
        for each in members[1:]:
            await each.fetch(wait_ms=1)
        asks = [asyncio.ensure_future(each.fetch(wait_ms=int(LOCK_S * 1_000))) for each in members]
        await until_waiting(node, len(asks))
        began_s = time.monotonic()
        await node.stop()
        took_s = time.monotonic() - began_s
        assert await asyncio.gather(*asks) == [{}] * len(members), "no partition has an error"
    print(f"\na stop takes {alone_s:.2f} s alone; {took_s:.2f} s with {len(asks)} waiting and {len(held)} records held")
    assert took_s < alone_s + SOON_S, "no fetch was waited for"


async def test_a_client_that_does_not_read_loses_its_connection_and_records(
    kafka: str, topic: str, new_topic: NewTopicFactory
) -> None:
    orders = new_topic(1)
    topic_id = topic_id_of(kafka, orders)
    produce(kafka, orders, [bytes(LARGE_BYTES)] * LARGE_RECORDS, **ALONE)
    # Longer than a stall of the machine, in which the others say nothing either.
    idle_s = 10.0
    async with (
        gateway(kafka, topic, orders, **{"connections.max.idle.ms": int(idle_s * 1_000)}) as node,
        raw_member(node.address, GROUP, topic_id) as deaf,
    ):
        await deaf.fetch(wait_ms=1, records_max=1)
        transport: Any = deaf.connection._transport  # no client of ours is deaf
        transport.pause_reading()
        began_s = time.monotonic()
        asks = await fill(node, deaf)
        async with raw_member(node.address, GROUP, topic_id) as other:
            taken = await take(other, LARGE_RECORDS)
        took_s = time.monotonic() - began_s
        transport.resume_reading()
        outcomes = await asyncio.gather(*asks, return_exceptions=True)
        assert isinstance(outcomes[-1], ClientError), "its connection has ended"
        assert not await metric(node, "locks_ended_total"), "no lock had to end"
    again = sum(count == 2 for count in taken.values())
    print(
        f"\na client that read nothing held {again} records of {len(asks)} fetches, which others had {took_s:.2f} s later"
    )
    assert again * LARGE_BYTES > 1 << 20
    assert idle_s / 2 < took_s


async def test_a_connection_cut_in_an_answer_gives_its_records_back_at_once(
    kafka: str, topic: str, new_topic: NewTopicFactory
) -> None:
    orders = new_topic(1)
    topic_id = topic_id_of(kafka, orders)
    produce(kafka, orders, [b"%d" % number * 100 for number in range(RECORDS)], **ALONE)
    async with (
        gateway(kafka, topic, orders) as node,
        CuttingProxy(*parse_address(node.address)) as proxy,
        raw_member(node.address, GROUP, topic_id) as other,
    ):
        took_s = []
        for count in (2, 4):
            async with raw_member(proxy.address, GROUP, topic_id) as cut:
                proxy.cut_in_answers()
                with pytest.raises(ClientError):
                    await take(cut, RECORDS)
            began_s = time.monotonic()
            counts = await take(other, RECORDS)
            took_s.append(time.monotonic() - began_s)
            assert counts == dict.fromkeys(range(RECORDS), count), "the delivery that was cut counts"
            answer = await other.acknowledge({0: [(0, RECORDS - 1)]}, kind=RELEASE)
            assert answer.topics[0][1][0].error_code == ErrorCode.NONE
        assert proxy.cuts == len(took_s)
        assert not await metric(node, "locks_ended_total"), "no lock had to end"
    times = " and ".join(f"{each:.3f} s" for each in took_s)
    print(f"\ncut: another client had all {RECORDS} records after {times}")
