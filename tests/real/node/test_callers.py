"""What callers meet at nodes on a real broker: a successor's address, and topics that others ask for wrongly or in masses."""

from __future__ import annotations

import asyncio
import os

import pytest

from holdfast.api.results import DeletePartition, InitializePartition, ReadPartition
from holdfast.client import connect
from holdfast.client.client import parse_address
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.records.share.keys import SharePartitionKey
from holdfast.runtime.partition.states import State
from tests.real.nodes import ONE_TRY, topic_id_of
from tests.real.running_node import make_settings, running
from tests.real.shared_kafka import NewTopicFactory

pytestmark = pytest.mark.real

GROUP = "group"


async def test_whoever_knows_a_superseded_node_reaches_its_successor(
    kafka: str, topic: str, new_topic: NewTopicFactory
) -> None:
    orders = topic_id_of(kafka, new_topic(4))
    keys = [SharePartitionKey(GROUP, orders, partition) for partition in range(4)]
    async with running(make_settings(kafka, topic, node_id=1)) as first:
        for key in keys:
            await first.client.initialize(GROUP, orders, key.partition, 1, 7)
        async with running(make_settings(kafka, topic, node_id=2)) as second:
            await first.until_states(State.CLOSED)
            rows = await first.client.admin("partitions")
            assert {row["owner_address"] for row in rows} == {second.address}
            for addresses in ([first.address], [first.address, second.address]):
                async with connect(addresses, ONE_TRY) as client:
                    assert await client.find(keys) == [parse_address(second.address)] * 4
                    for key in keys:
                        assert (await client.read(GROUP, orders, key.partition, 0)).start_offset == 7
            assert {node.node_id for node in first.parts.view.nodes} == {1, 2}
            # Taken back, one by one, each node names the other for what it has not.
            await first.client.admin("partitions-take", partition=0)
            await first.until_partition(0, lambda row: row["state"] == "active", "it is taken back")
            await second.until_partition(0, lambda row: row["state"] == "closed", "it is lost")
            owners = [each.parts.view.owner(index) for each in (first, second) for index in (0, 1)]
            assert [owner.node_id if owner else None for owner in owners] == [1, 2, 1, 2]


async def test_an_all_zero_topic_id_is_refused_and_disturbs_no_refresh(
    kafka: str, topic: str, new_topic: NewTopicFactory
) -> None:
    async with running(make_settings(kafka, topic)) as node, connect(node.address, ONE_TRY) as client:
        for topic_id in (bytes(16), bytes(15) + b"\x01"):
            (read,) = await client.read_many(GROUP, [(topic_id, ReadPartition(0, 0))])
            (deleted,) = await client.delete_many(GROUP, [(topic_id, DeletePartition(0))])
            assert (read.error_code, deleted.error_code) == (
                ErrorCode.INVALID_REQUEST,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            )
        await client.initialize(GROUP, topic_id_of(kafka, new_topic(1)), 0, 1, 0)
        assert node.parts.metadata.problem == ""


async def test_a_topic_made_during_a_flood_of_unknown_ids_is_found_or_tried_again_and_never_unknown(
    kafka: str, topic: str, new_topic: NewTopicFactory
) -> None:
    async with running(make_settings(kafka, topic)) as node:

        async def flood() -> set[int]:
            codes: set[int] = set()
            async with connect(node.address, ONE_TRY) as client:
                while not is_over.is_set():
                    asked = [(os.urandom(16), DeletePartition(0)) for _ in range(3_000)]
                    codes |= {result.error_code for result in await client.delete_many("flood", asked)}
            return codes

        is_over = asyncio.Event()
        floods = [asyncio.create_task(flood()) for _ in range(4)]
        for _ in range(4):
            fresh = topic_id_of(kafka, await asyncio.to_thread(new_topic, 1))
            async with connect(node.address, ONE_TRY) as client:
                code: int = ErrorCode.COORDINATOR_NOT_AVAILABLE
                while code == ErrorCode.COORDINATOR_NOT_AVAILABLE:  # on a machine that is too slow
                    (result,) = await client.initialize_many(GROUP, [(fresh, InitializePartition(0, 1, 0))])
                    code = result.error_code
                assert code == ErrorCode.NONE
        is_over.set()
        assert set().union(*await asyncio.gather(*floods)) <= {
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
        }
