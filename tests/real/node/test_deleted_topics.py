"""Topics that are deleted in Kafka lose their state, also when no node was up to see it."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from structlog.testing import capture_logs

from holdfast.records.share.codecs.codec import decode_key
from holdfast.records.share.keys import SharePartitionKey
from tests.real.nodes import topic_id_of
from tests.real.running_node import RunningNode, make_settings, read_log, running
from tests.real.shared_kafka import NewTopicFactory
from tests.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.real

GROUP = "group"
SETTINGS: dict[str, Any] = {
    "share.coordinator.state.topic.num.partitions": 1,
    "metadata_refresh_interval_ms": 200,
    "deleted_topic_grace_ms": 1_000,
}


class Topics:
    """Two topics, of which the first is deleted."""

    def __init__(self, kafka: str, new_topic: NewTopicFactory) -> None:
        # Not from the factory, which would delete it once more.
        self.gone_name = f"{new_topic(1)}-gone"
        self._admin = AdminClient({"bootstrap.servers": kafka})
        self._admin.create_topics([NewTopic(self.gone_name, 20, 1)])[self.gone_name].result(PATIENCE_S)
        self.gone = topic_id_of(kafka, self.gone_name)
        self.kept = topic_id_of(kafka, new_topic(20))

    async def known(self) -> Topics:
        await wait_until(
            lambda: self.gone_name in self._admin.list_topics(timeout=PATIENCE_S).topics, "the topic is known"
        )
        return self

    async def delete(self) -> None:
        self._admin.delete_topics([self.gone_name])[self.gone_name].result(PATIENCE_S)
        await wait_until(
            lambda: self.gone_name not in self._admin.list_topics(timeout=PATIENCE_S).topics, "the topic is gone"
        )


async def fill(node: RunningNode, topics: Topics, gone: int, kept: int) -> None:
    for topic_id, count in ((topics.gone, gone), (topics.kept, kept)):
        for number in range(count):
            await node.client.initialize(GROUP, topic_id, number, 1, 0)


async def until_keys(node: RunningNode, count: int) -> None:
    # Keys are counted as they were decided; what is parked is not committed yet, and may not be in the log when the node stops.
    await node.until_partition(
        0, lambda row: (row["keys"], row["parked"]) == (count, 0), f"{count} keys, all committed"
    )


def tombstones(kafka: str, topic: str) -> list[SharePartitionKey]:
    return sorted(decode_key(record.key) for record in read_log(kafka, topic, 0) if record.value is None)


def keys(topic_id: bytes, count: int) -> list[SharePartitionKey]:
    return [SharePartitionKey(GROUP, topic_id, number) for number in range(count)]


async def test_the_state_of_a_deleted_topic_goes_after_the_grace(
    kafka: str, topic: str, new_topic: NewTopicFactory
) -> None:
    topics = await Topics(kafka, new_topic).known()
    async with running(make_settings(kafka, topic, **SETTINGS)) as node:
        await fill(node, topics, gone=5, kept=7)
        await topics.delete()
        await until_keys(node, 7)
    assert tombstones(kafka, topic) == keys(topics.gone, 5)
    async with running(make_settings(kafka, topic, **SETTINGS)) as again:
        await until_keys(again, 7)


async def test_a_topic_deleted_while_the_node_was_down_loses_its_state(
    kafka: str, topic: str, new_topic: NewTopicFactory
) -> None:
    topics = await Topics(kafka, new_topic).known()
    async with running(make_settings(kafka, topic, **SETTINGS)) as node:
        await fill(node, topics, gone=5, kept=7)
    await topics.delete()
    assert tombstones(kafka, topic) == []
    async with running(make_settings(kafka, topic, **SETTINGS)) as again:
        await until_keys(again, 7)
    assert tombstones(kafka, topic) == keys(topics.gone, 5)


async def test_too_large_a_share_waits_for_an_admin(kafka: str, topic: str, new_topic: NewTopicFactory) -> None:
    topics = await Topics(kafka, new_topic).known()
    stopped = "clean_up_stopped"
    with capture_logs() as lines:
        async with running(make_settings(kafka, topic, **SETTINGS)) as node:
            await fill(node, topics, gone=8, kept=7)
            await topics.delete()
            await node.until(lambda: stopped in [line["event"] for line in lines], "an alarm")
            assert (await node.client.admin("metrics"))["holdfast_deleted_topics_alarm"] == 1
            await until_keys(node, 15)
            await node.client.admin("topics-accept-deleted", reason="the shop was closed")
            await until_keys(node, 7)
            await node.until(
                lambda: dict(node.node.context.registry.numbers())["holdfast_deleted_topics_alarm"] == 0, "no alarm"
            )
    assert [line["event"] for line in lines if line["log_level"] == "error"] == [stopped]
    assert tombstones(kafka, topic) == keys(topics.gone, 8)
