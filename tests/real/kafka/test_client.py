"""Our client against Apache Kafka's own share coordinator: the wire is what Kafka speaks, not what we think it is."""

from __future__ import annotations

import asyncio

import pytest
from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient

from holdfast.api.results import ReadPartition, ReadResult, SummaryResult, WritePartition, WriteResult
from holdfast.client import ShareStateError, Unsupported, connect
from holdfast.records.share.batches import ACKNOWLEDGED, ARCHIVED, StateBatch
from tests.real.nodes import FIRST_CLIENT
from tests.real.shared_kafka import NewTopicFactory
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.real

PARTITIONS = 30


@pytest.fixture
def topic_id(kafka: str, new_topic: NewTopicFactory) -> bytes:
    name = new_topic(partitions=PARTITIONS)
    admin = AdminClient({"bootstrap.servers": kafka})
    answer = admin.describe_topics(TopicCollection([name]))[name].result(PATIENCE_S).topic_id
    halves = (answer.get_most_significant_bits(), answer.get_least_significant_bits())
    return b"".join(half.to_bytes(8, "big", signed=True) for half in halves)


async def test_the_life_of_a_share_partition(kafka: str, topic_id: bytes) -> None:
    batches = (StateBatch(100, 109, ACKNOWLEDGED, 1), StateBatch(110, 119, ARCHIVED, 5))
    async with connect(kafka, FIRST_CLIENT) as client:
        await client.initialize("group", topic_id, 3, state_epoch=1, start_offset=100)
        assert await client.read("group", topic_id, 3, leader_epoch=2) == ReadResult(0, None, 1, 100, ())
        await client.write("group", topic_id, 3, 1, 2, 100, batches, delivery_complete_count=20)
        assert await client.read("group", topic_id, 3, leader_epoch=2) == ReadResult(0, None, 1, 100, batches)
        assert await client.read_summary("group", topic_id, 3) == SummaryResult(0, None, 1, 2, 100, 20)
        with pytest.raises(ShareStateError, match="FENCED_STATE_EPOCH"):
            await client.write("group", topic_id, 3, 0, 2, -1, batches)
        with pytest.raises(ShareStateError, match="FENCED_LEADER_EPOCH"):
            await client.write("group", topic_id, 3, 1, 1, -1, batches)
        await client.delete("group", topic_id, 3)
        assert (await client.read_summary("group", topic_id, 3)).start_offset == -1
        with pytest.raises(Unsupported, match="does not serve HoldfastAdmin; is it a Holdfast node"):
            await client.admin("status")


async def test_many_share_partitions_and_many_calls_at_once(kafka: str, topic_id: bytes) -> None:
    async with connect(kafka, FIRST_CLIENT) as client:
        await asyncio.gather(*(client.initialize("many", topic_id, n, 1, n) for n in range(PARTITIONS)))
        written = [WritePartition(n, 1, 0, -1, -1, (StateBatch(n, n, 2, 1),)) for n in range(PARTITIONS)]
        results = await client.write_many("many", [(topic_id, each) for each in written])
        assert results == [WriteResult()] * PARTITIONS
        states = await client.read_many("many", [(topic_id, ReadPartition(n, 0)) for n in range(PARTITIONS)])
        assert states == [ReadResult(0, None, 1, n, (StateBatch(n, n, 2, 1),)) for n in range(PARTITIONS)]
