"""Metadata in each version against kio's entities: the nodes, the state topic, and topics that are not here."""

from __future__ import annotations

import uuid
from datetime import timedelta

import pytest
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader

from holdfast.kafka.protocol.primitives import MalformedBody
from tests.pure.daemon.server.calls import (
    NODES,
    TOPIC_UUID,
    ApiWorld,
    metadata_fields,
    schema,
)


@pytest.mark.parametrize("version", range(14))
def test_metadata_shows_the_nodes_and_the_state_topic_led_by_its_owners(version: int) -> None:
    world = ApiWorld()
    names: list[tuple[str | None, uuid.UUID | None]] = [("__holdfast_share_state", None), ("orders", None)]
    response = world.ask("metadata", version, **metadata_fields(version, names))
    assert [(broker.node_id, broker.host, broker.port) for broker in response.brokers] == NODES
    state_topic, other = response.topics
    assert (state_topic.error_code, state_topic.name) == (ErrorCode.none, "__holdfast_share_state")
    assert [
        (p.error_code, p.partition_index, p.leader_id, p.replica_nodes, p.isr_nodes) for p in state_topic.partitions
    ] == [
        (ErrorCode.none, 0, 1, (1,), (1,)),
        (ErrorCode.none, 1, 2, (2,), (2,)),
        (ErrorCode.none, 2, 1, (1,), (1,)),
    ]
    assert (other.error_code, other.name, other.partitions) == (ErrorCode.unknown_topic_or_partition, "orders", ())
    if version >= 1:
        assert response.controller_id == 1
    if version >= 2:
        assert response.cluster_id == "cluster"
    if version >= 3:
        assert response.throttle_time == timedelta(0)
    if version >= 8:
        assert state_topic.topic_authorized_operations == -(1 << 31)
    if version >= 10:
        assert (state_topic.topic_id, other.topic_id) == (TOPIC_UUID, None)


@pytest.mark.parametrize("version", range(14))
def test_metadata_of_all_topics_and_of_none(version: int) -> None:
    world = ApiWorld()
    everything = world.ask("metadata", version, **metadata_fields(version, [] if version == 0 else None))
    assert [topic.name for topic in everything.topics] == ["__holdfast_share_state"]
    if version >= 1:
        assert world.ask("metadata", version, **metadata_fields(version, [])).topics == ()


@pytest.mark.parametrize("version", [12, 13])
def test_metadata_by_topic_id(version: int) -> None:
    unknown_id = uuid.UUID(int=7)
    response = ApiWorld().ask("metadata", version, **metadata_fields(version, [(None, TOPIC_UUID), (None, unknown_id)]))
    known, unknown = response.topics
    assert (known.error_code, known.name, known.topic_id) == (ErrorCode.none, "__holdfast_share_state", TOPIC_UUID)
    assert (unknown.error_code, unknown.name, unknown.topic_id) == (ErrorCode.unknown_topic_id, None, unknown_id)


def test_the_metadata_request_recorded_from_librdkafka() -> None:
    """It asks for all topics, and its last three bytes are too many."""
    answer = ApiWorld().ask_raw(3, 13, bytes.fromhex("00000000010000"))
    response, _ = entity_reader(schema("metadata", 13, "response", "MetadataResponse"))(answer, 0)
    assert [topic.name for topic in response.topics] == ["__holdfast_share_state"]


def test_metadata_before_the_state_topic_is_known_and_of_a_partition_without_owner() -> None:
    world = ApiWorld()
    world.cluster.state_topic = world.cluster.cluster_id = None
    response = world.ask("metadata", 13, **metadata_fields(13, [("__holdfast_share_state", None)]))
    assert response.cluster_id is None
    assert response.topics[0].error_code is ErrorCode.unknown_topic_or_partition
    assert world.ask("metadata", 13, **metadata_fields(13, None)).topics == ()
    world = ApiWorld()
    world.cluster.nodes = []
    (topic,) = world.ask("metadata", 13, **metadata_fields(13, None)).topics
    assert {(p.error_code, p.leader_id, p.replica_nodes) for p in topic.partitions} == {
        (ErrorCode.leader_not_available, -1, ())
    }


def test_metadata_names_a_bounded_number_of_topics() -> None:
    with pytest.raises(MalformedBody, match="1001 topics are named, at most 1000"):
        ApiWorld().ask("metadata", 9, **metadata_fields(9, [("t", None)] * 1_001))


@pytest.mark.parametrize("version", range(7, 14))
def test_the_leader_epoch_is_the_owner_epoch_and_follows_it(version: int) -> None:
    world = ApiWorld()
    fields = metadata_fields(version, None)
    for epoch in (3, 4):
        world.cluster.owner_epochs = {0: epoch, 2: 9}
        (state_topic,) = world.ask("metadata", version, **fields).topics
        assert [partition.leader_epoch for partition in state_topic.partitions] == [epoch, -1, 9]
