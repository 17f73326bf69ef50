"""librdkafka against our server: what it asks for by itself, and a consumer that was pointed at us by mistake."""

from __future__ import annotations

import asyncio

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from tests.waiting import PATIENCE_S
from tests.world.serving import serve


async def test_it_lists_the_nodes_and_the_state_topic() -> None:
    async with serve() as served:
        admin = AdminClient({"bootstrap.servers": served.address})
        answer = await asyncio.to_thread(admin.list_topics, timeout=PATIENCE_S)
        assert answer.cluster_id == "cluster"
        assert {broker.id: f"{broker.host}:{broker.port}" for broker in answer.brokers.values()} == {1: served.address}
        topic = answer.topics["__holdfast_share_state"]
        assert list(answer.topics) == ["__holdfast_share_state"]
        assert [(p.leader, p.replicas, p.isrs) for p in topic.partitions.values()] == [(1, [1], [1])] * 3
        assert served.reports == []


async def test_a_consumer_that_came_by_mistake_fails_and_does_not_spin() -> None:
    async with serve() as served:
        consumer = Consumer({"bootstrap.servers": served.address, "group.id": "g", "log_level": 0})
        try:
            consumer.subscribe(["orders"])
            message = await asyncio.to_thread(consumer.poll, PATIENCE_S)
            assert message is not None
            assert "this node coordinates share state only" in str(message.error())
            assert served.server.connections.requests < 30
            assert served.reports == []
        finally:
            await asyncio.to_thread(consumer.close)
