"""How messages of the snapshot topic are removed, and of which state topics, with a stand-in for Kafka's producer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException
from structlog.testing import capture_logs

from holdfast.daemon.partitions.partitions import LogPlace
from holdfast.daemon.server.cluster_view import Node
from holdfast.daemon.topics.metadata_cache import Refresh, TopicUser
from holdfast.daemon.topics.metadata_image import MetadataImage
from holdfast.daemon.topics.state_topic import StateTopic
from holdfast.kafka import librdkafka
from holdfast.kafka.connection_options import ConnectionOptions, LiveProperties
from holdfast.share.snapshots import store
from holdfast.share.snapshots.other_topics import OtherTopics
from holdfast.share.snapshots.store import Snapshots, Topics
from holdfast.share.snapshots.verifier import RemovalRefused
from tests.pure.daemon.topics.refreshes import OTHER, OURS, refresh
from tests.world.context import make_context
from tests.world.node import make_settings

LIVING = bytes(15) + b"a"
TOPICS = cast("Topics", SimpleNamespace(add_user=lambda _: None))


async def test_full_producer_is_tried_again_and_a_refusing_one_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failures: list[Exception] = []
    removed: list[tuple[str, bytes | None, bytes, int]] = []

    class Producer:
        def __init__(self, config: object, **_: object) -> None:
            if failures:
                raise failures.pop()

        def produce(self, topic: str, value: bytes | None, key: bytes, partition: int, **_: object) -> None:
            if failures:
                raise failures.pop()
            removed.append((topic, value, key, partition))

    monkeypatch.setattr(librdkafka, "Producer", Producer)
    monkeypatch.setattr(store, "KafkaLog", lambda *_: None)
    options = ConnectionOptions(bootstrap=(("127.0.0.1", 1),))
    settings, unused = make_settings(**{"snapshots.topic": "snaps"}), cast("Any", None)
    place = LogPlace(StateTopic("state", bytes(16), 4, 1, 1_000_000), OURS, options, Node(1, "h", 9001))
    subject = Snapshots(settings, LiveProperties(settings.kafka.properties), place, make_context(), unused, TOPICS)
    for _ in ("made", "asked"):
        failures.append(KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "not allowed")))
        with pytest.raises(RemovalRefused, match="not allowed; allow Write on topic snaps to User:ANONYMOUS"):
            subject.remove(3, b"key")
        if subject._producer is None:
            assert subject.remove(3, b"key") is True
    failures.append(BufferError("full"))
    assert subject.remove(3, b"key") is False
    assert removed == [("snaps", None, b"key", 3)]


async def test_another_state_topic_that_exists_is_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "KafkaLog", lambda *_: None)
    options = ConnectionOptions(bootstrap=(("127.0.0.1", 1),))
    settings, unused = make_settings(**{"snapshots.topic": "snaps"}), cast("Any", None)
    place = LogPlace(StateTopic("state", bytes(16), 4, 1, 1_000_000), OURS, options, Node(1, "h", 9001))
    kafka, users = LiveProperties(settings.kafka.properties), list[TopicUser]()
    topics = cast("Topics", SimpleNamespace(add_user=users.append))
    subject = Snapshots(settings, kafka, place, make_context(), unused, topics)
    assert subject.is_gone(LIVING) is False
    (user,) = users
    assert user.topics_in_use() == {LIVING}
    with capture_logs() as lines:
        user.refreshed(MetadataImage(1, OTHER), refresh(500, existing=[LIVING], cluster_id=OTHER))
        assert lines == []
        for _ in range(2):
            user.refreshed(MetadataImage(1, OURS), refresh(1_000, existing=[LIVING]))
    assert [(line["event"], line["topic"]) for line in lines] == [("snapshot_topic_shared", "snaps")]


@pytest.mark.parametrize(
    ("between", "is_gone"),
    [
        (refresh(1_500, unknown=[LIVING]), True),
        (refresh(1_500, unclear=[LIVING]), False),
        (refresh(1_500, existing=[LIVING]), False),
        (refresh(1_500, existing=[LIVING], is_full=False), False),
        (refresh(1_500, is_full=False), True),
        (refresh(1_500, unknown=[LIVING], cluster_id=OTHER), False),
    ],
)
def test_other_state_topic_is_gone_after_a_grace_of_unanimous_refreshes(between: Refresh, is_gone: bool) -> None:
    topics, image = OtherTopics(OURS, 1_000, lambda _: None), MetadataImage(1, OURS)
    topics.refreshed(image, refresh(0, unknown=[LIVING]))
    assert not topics.is_gone(LIVING, 5_000), "nobody wanted to know"
    topics.refreshed(image, refresh(1_000, unknown=[LIVING]))
    assert not topics.is_gone(LIVING, 1_999)
    topics.refreshed(image, between)
    topics.refreshed(image, refresh(2_000, unknown=[LIVING]))
    assert topics.is_gone(LIVING, 2_000) is is_gone
    assert topics.is_gone(LIVING, 3_000)


def test_another_cluster_that_knows_no_state_topic_of_ours_makes_none_gone() -> None:
    topics, image = OtherTopics(OURS, 1_000, lambda _: None), MetadataImage(1, OTHER)
    assert not topics.is_gone(LIVING, 0)
    for at_ms in (1_000, 2_000):
        topics.refreshed(image, refresh(at_ms, unknown=[LIVING], cluster_id=OTHER))
    assert not topics.is_gone(LIVING, 9_000)
