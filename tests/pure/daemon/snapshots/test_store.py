"""How messages of the snapshot topic are removed, with a stand-in for Kafka's producer."""

from __future__ import annotations

from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from holdfast.daemon.brokers.silence import none_left_out
from holdfast.daemon.components import snapshot_bounds, snapshot_log_config
from holdfast.daemon.snapshots import store
from holdfast.daemon.snapshots.store import Snapshots
from holdfast.daemon.snapshots.verifier import RemovalRefused
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
        settings, LiveProperties(settings.kafka.properties), config, bounds, Registry(), none_left_out, unused
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
