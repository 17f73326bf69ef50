"""How messages of the snapshot topic are removed, and of which state topics, with stand-ins for Kafka's producer and look-ups."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException
from structlog.testing import capture_logs

from holdfast.daemon.brokers.silence import none_left_out
from holdfast.daemon.components import snapshot_bounds, snapshot_log_config
from holdfast.daemon.snapshots import store
from holdfast.daemon.snapshots.store import Snapshots
from holdfast.daemon.snapshots.verifier import RemovalRefused
from holdfast.daemon.topics.look_ups import Then
from holdfast.daemon.topics.metadata_image import MetadataImage
from holdfast.kafka import librdkafka
from holdfast.kafka.connection_options import ConnectionOptions, LiveProperties
from holdfast.metrics.registry import Registry
from tests.world.node import make_settings


async def test_a_producer_that_is_full_is_tried_again_and_one_that_refuses_says_why(
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
    config, bounds = snapshot_log_config(settings, options), snapshot_bounds(settings)
    subject = Snapshots(
        settings, LiveProperties(settings.kafka.properties), config, bounds, Registry(), none_left_out, unused, unused
    )
    for _ in ("made", "asked"):
        failures.append(KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "not allowed")))
        with pytest.raises(RemovalRefused, match="not allowed; allow Write on topic snaps to User:ANONYMOUS"):
            subject.remove(3, b"key")
        if subject._producer is None:
            assert subject.remove(3, b"key") is True
    failures.append(BufferError("full"))
    assert subject.remove(3, b"key") is False
    assert removed == [("snaps", None, b"key", 3)]


class Topics:
    """Look-ups that the test ends."""

    def __init__(self) -> None:
        self.image: MetadataImage | None = None
        self.look_ups: list[tuple[Collection[bytes], Then]] = []

    def look_up(self, topic_ids: Collection[bytes], caller: str, then: Then, timeout_ms: int) -> None:
        self.look_ups.append((topic_ids, then))


async def test_another_state_topic_is_looked_up_until_a_broker_answers_and_named_where_it_exists(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store, "KafkaLog", lambda *_: None)
    options = ConnectionOptions(bootstrap=(("127.0.0.1", 1),))
    settings, unused, topics = make_settings(**{"snapshots.topic": "snaps"}), cast("Any", None), Topics()
    config, bounds = snapshot_log_config(settings, options), snapshot_bounds(settings)
    kafka = LiveProperties(settings.kafka.properties)
    subject = Snapshots(settings, kafka, config, bounds, Registry(), none_left_out, unused, topics)
    living, gone = bytes(15) + b"a", bytes(15) + b"b"
    for left in ((living,), ()):
        assert [subject.is_gone(living) for _ in range(3)] == [None] * 3
        topic_ids, then = topics.look_ups.pop()
        assert (topic_ids, topics.look_ups) == ((living,), [])
        topics.image = MetadataImage(1, "cluster", {living: 3})
        with capture_logs() as lines:
            then(left)
    assert subject.is_gone(living) is False
    assert [(line["event"], line["topic"]) for line in lines] == [("snapshot_topic_shared", "snaps")]
    assert subject.is_gone(gone) is None
    with capture_logs() as lines:
        topics.look_ups.pop()[1](())
    assert (subject.is_gone(gone), lines, topics.look_ups) == (True, [], [])
