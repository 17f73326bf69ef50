"""A node that offers topics looks to stock clients like a Kafka that has them; what is no share consumer gets one clear error."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.real.running_node import RunningNode, make_settings, running
from tests.real.shared_kafka import NewTopicFactory
from tests.waiting import PATIENCE_S

#: Requests of a client of a node in the seconds of a test, its connecting included.
REQUESTS_MAX = 40


@asynccontextmanager
async def gateway(kafka: str, topic: str, *patterns: str, **flags: object) -> AsyncIterator[RunningNode]:
    settings = make_settings(kafka, topic, **{"gateway.topics": ",".join(patterns), **flags})
    async with running(settings) as node:
        yield node


async def look_up(address: str, name: str) -> tuple[int, int]:
    """Return the error of a topic as a client sees it, 0 for none, and the number of its partitions."""
    admin = AdminClient({"bootstrap.servers": address})
    topic = (await asyncio.to_thread(admin.list_topics, name, timeout=PATIENCE_S)).topics[name]
    return 0 if topic.error is None else topic.error.code(), len(topic.partitions)


async def test_topics_are_listed_and_led_by_the_node(kafka: str, topic: str, new_topic: NewTopicFactory) -> None:
    offered, other = new_topic(3), new_topic(1)
    async with gateway(kafka, topic, offered) as node:
        admin = AdminClient({"bootstrap.servers": node.address})
        listed = await asyncio.to_thread(admin.list_topics, timeout=PATIENCE_S)
        assert set(listed.topics) == {offered, topic}
        partitions = listed.topics[offered].partitions
        assert {index: (each.leader, each.replicas, each.isrs) for index, each in partitions.items()} == dict.fromkeys(
            range(3), (1, [1], [1])
        )
        behind = AdminClient({"bootstrap.servers": kafka})
        assert listed.cluster_id == (await asyncio.to_thread(behind.list_topics, timeout=PATIENCE_S)).cluster_id
        assert await look_up(node.address, other) == (KafkaError.UNKNOWN_TOPIC_OR_PART, 0)


async def test_topics_that_come_and_go_are_noticed(kafka: str, topic: str) -> None:
    name, admin = f"{topic}-users", AdminClient({"bootstrap.servers": kafka})
    async with gateway(kafka, topic, f"{topic}-*", metadata_refresh_interval_ms=200) as node:
        assert await look_up(node.address, name) == (KafkaError.UNKNOWN_TOPIC_OR_PART, 0)
        for partitions in (2, 1):  # deleted and made again
            (made,) = admin.create_topics([NewTopic(name, partitions, 1)]).values()
            await asyncio.to_thread(made.result, PATIENCE_S)
            await until_partitions(node, name, partitions)
            (gone,) = admin.delete_topics([name]).values()
            await asyncio.to_thread(gone.result, PATIENCE_S)
            await until_partitions(node, name, 0)


async def until_partitions(node: RunningNode, name: str, count: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while (await look_up(node.address, name))[1] != count:
        assert time.monotonic() < deadline, f"{name} has not come to {count} partitions"
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("acks", [1, -1])
async def test_a_producer_gets_one_clear_error(kafka: str, topic: str, new_topic: NewTopicFactory, acks: int) -> None:
    offered = new_topic(2)
    async with gateway(kafka, topic, offered) as node:
        producer = Producer({"bootstrap.servers": node.address, "acks": acks})
        reports: list[KafkaError | None] = []

        def report(error: KafkaError | None, message: Message) -> None:
            reports.append(error)

        producer.produce(offered, b"value", on_delivery=report)
        assert await asyncio.to_thread(producer.flush, PATIENCE_S) == 0
        assert [error and error.code() for error in reports] == [KafkaError.TOPIC_AUTHORIZATION_FAILED]
        assert node.requests < REQUESTS_MAX


@pytest.mark.parametrize(
    ("protocol", "offset", "code"),
    [
        ("classic", None, KafkaError._UNSUPPORTED_FEATURE),
        ("consumer", None, KafkaError._FATAL),
        ("classic", 0, KafkaError.TOPIC_AUTHORIZATION_FAILED),
        ("classic", OFFSET_INVALID, KafkaError.GROUP_AUTHORIZATION_FAILED),
    ],
    ids=["a group", "a group of the new protocol", "from an offset", "from a committed offset"],
)
async def test_any_other_consumer_gets_a_clear_error(
    kafka: str, topic: str, new_topic: NewTopicFactory, protocol: str, offset: int | None, code: int
) -> None:
    offered = new_topic(1)
    async with gateway(kafka, topic, offered) as node:
        config: dict[str, Any] = {"bootstrap.servers": node.address, "group.id": "g", "group.protocol": protocol}
        consumer = Consumer(config)
        try:
            if offset is None:
                consumer.subscribe([offered])
            else:
                consumer.assign([TopicPartition(offered, 0, offset)])
            message = await asyncio.to_thread(consumer.poll, PATIENCE_S)
            assert message is not None
            error = message.error()
            assert error is not None
            assert error.code() == code
            before = node.requests
            await asyncio.sleep(2)
            assert node.requests - before < REQUESTS_MAX
        finally:
            await asyncio.to_thread(consumer.close)
