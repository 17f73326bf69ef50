"""Topics asked for by id, of a real broker."""

import asyncio
import os
from collections.abc import Collection
from random import Random

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from holdfast.daemon.settings.models import MetadataSettings
from holdfast.daemon.topics.metadata_cache import ClusterMetadata, Refresh
from holdfast.daemon.topics.metadata_image import MetadataImage
from holdfast.kafka.connection_options import connection_options
from holdfast.kafka.topics.metadata_client import MetadataClient
from holdfast.share.deleted_topics import CleanUp, DeletedTopics
from holdfast.share.settings import DeletedTopicSettings
from tests.real.shared_kafka import NewTopicFactory
from tests.waiting import PATIENCE_MS, PATIENCE_S
from tests.world.context import make_context

pytestmark = pytest.mark.real


def client_of(bootstrap_servers: str, topics_per_request_max: int = 100) -> MetadataClient:
    """Return a client that turns to the first of two brokers first, which is what its seed is for."""
    options = connection_options({"bootstrap.servers": bootstrap_servers})
    return MetadataClient(
        options, timeout_ms=PATIENCE_MS, topics_per_request_max=topics_per_request_max, random=Random(1)
    )


async def make_topic(admin: AdminClient, name: str, partitions: int) -> None:
    """Make a topic that the test itself deletes."""
    await asyncio.to_thread(admin.create_topics([NewTopic(name, partitions, 1)])[name].result, PATIENCE_S)


async def test_a_topic_is_found_by_name_then_by_id_and_is_unknown_once_deleted(kafka: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka})
    await make_topic(admin, topic, 3)
    client = client_of(kafka)
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not (named := await client.query_names([topic, "no-such-topic"])):
                pass
            assert list(named) == [topic]
            topic_id = named[topic].topic_id
            while not await client.is_known_everywhere(topic_id, 3):
                pass
            stranger = os.urandom(16)
            answers = await client.query_ids([topic_id, stranger])
            assert [(found.topic_id, found.partition_count) for found in answers.topics] == [(topic_id, 3)]
            assert answers.unknown_ids == {stranger}
            assert (await client.query_ids([])).cluster_id == answers.cluster_id
            await asyncio.to_thread(admin.delete_topics([topic])[topic].result, PATIENCE_S)
            while not (await client.query_ids([topic_id])).unknown_ids:
                pass
            assert await client.query_names([topic]) == {}
    finally:
        client.close()


async def test_many_ids_are_requested_in_bounded_requests(kafka: str, new_topic: NewTopicFactory) -> None:
    names = [new_topic(1) for _ in range(5)]
    client = client_of(kafka, topics_per_request_max=2)
    try:
        async with asyncio.timeout(PATIENCE_S):
            while len(named := await client.query_names(names)) < len(names):
                pass
        ids = [topic.topic_id for topic in named.values()]
        strangers = [os.urandom(16) for _ in range(4)]
        answers = await client.query_ids([*ids, *strangers])
    finally:
        client.close()
    assert {topic.topic_id for topic in answers.topics} == set(ids)
    assert answers.unknown_ids == set(strangers)


async def test_a_deleted_topic_is_noticed_while_the_cache_runs(
    kafka: str, topic: str, new_topic: NewTopicFactory
) -> None:
    admin = AdminClient({"bootstrap.servers": kafka})
    doomed, staying = topic, new_topic(1)
    await make_topic(admin, doomed, 2)
    client = client_of(kafka)
    async with asyncio.timeout(PATIENCE_S):
        while len(named := await client.query_names([doomed, staying])) < 2:
            pass
    ids = {name: found.topic_id for name, found in named.items()}
    cluster_id = (await client.query_ids([])).cluster_id
    tracker = DeletedTopics(DeletedTopicSettings(deleted_topic_grace_ms=200), cluster_id)
    key_counts = {ids[doomed]: 1, ids[staying]: 1}
    decisions: asyncio.Queue[object] = asyncio.Queue()

    class User:
        def topics_in_use(self) -> Collection[bytes]:
            return key_counts.keys()

        def refreshed(self, image: MetadataImage, refresh: Refresh) -> None:
            tracker.observe(refresh)
            if decision := tracker.decide(key_counts, refresh.at_ms):
                counts = (image.partition_count(ids[doomed]), image.partition_count(ids[staying]))
                decisions.put_nowait((*counts, decision))

    metadata = ClusterMetadata(
        client,
        MetadataSettings(metadata_refresh_interval_ms=100),
        make_context(),
        random=Random(1),
    )
    metadata.add_user(User())
    running = asyncio.create_task(metadata.run())
    try:
        image = await metadata.wait_for_first_image(PATIENCE_MS)
        assert (image.cluster_id, image.partition_count(ids[doomed])) == (cluster_id, 2)
        await asyncio.to_thread(admin.delete_topics([doomed])[doomed].result, PATIENCE_S)
        async with asyncio.timeout(PATIENCE_S):
            assert await decisions.get() == (None, 1, CleanUp(frozenset([ids[doomed]]), 1))
    finally:
        running.cancel()
        await asyncio.wait([running])


async def test_a_broker_that_cannot_be_reached_is_left_for_the_next(kafka: str) -> None:
    client = client_of(f"127.0.0.1:1,{kafka}")
    try:
        assert (await client.query_ids([])).cluster_id
    finally:
        client.close()
