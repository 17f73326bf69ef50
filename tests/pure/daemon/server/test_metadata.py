"""Metadata in each version against kio's entities: the nodes, the state topic, topics of a tenant, and topics that are not here."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from datetime import timedelta

import pytest
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader

from holdfast.daemon.server.metadata import MetadataAnswers
from holdfast.daemon.server.topics_view import ShownTopic, TakeTopics, TopicQuery, unknown_topic
from holdfast.daemon.server.wire.requests import Body, Request, RequestMemory
from holdfast.kafka.protocol.primitives import MalformedBody
from tests.pure.daemon.server.calls import (
    NODES,
    TOPIC_UUID,
    ApiWorld,
    kio_bytes,
    metadata_fields,
    schema,
)
from tests.world.serving import FakeCluster


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


class UsersTopics:
    """Topics of a tenant; the log partition of each partition is its own number."""

    def __init__(self, *topics: ShownTopic) -> None:
        self.topics = topics
        self.later: list[Callable[[], None]] = []
        self.is_later = False

    def find(self, queries: Sequence[TopicQuery] | None, caller: str, take: TakeTopics) -> None:
        found = list(self.topics) if queries is None else [self._find(query) for query in queries]
        if self.is_later:
            self.later.append(lambda: take(found))
        else:
            take(found)

    def _find(self, query: TopicQuery) -> ShownTopic:
        for topic in self.topics:
            if query.topic_id == topic.topic_id if query.name is None else query.name == topic.name:
                return topic
        return unknown_topic(query)

    def log_partition(self, topic_id: bytes, partition: int) -> int:
        return partition


ORDERS = ShownTopic("orders", bytes([7] * 16), 4)
AUDIT = ShownTopic("audit", bytes([8] * 16), 1, is_internal=True)
DENIED = ShownTopic("denied", bytes(16), error_code=29)


@pytest.mark.parametrize("version", range(14))
def test_topics_of_a_tenant_are_led_by_the_owners_of_their_log_partitions(version: int) -> None:
    world = ApiWorld(topics=UsersTopics(ORDERS, AUDIT, DENIED))
    world.cluster.owner_epochs = {0: 5, 1: 6, 2: 7}
    names = [("orders", None), ("audit", None), ("__holdfast_share_state", None), ("denied", None), ("nope", None)]
    response = world.ask("metadata", version, **metadata_fields(version, list(names)))
    orders, audit, state_topic, denied, unknown = response.topics
    # There are three log partitions; nobody owns one that the log does not have.
    leaders = [(0, 1), (0, 2), (0, 1), (5, -1)]
    assert [(p.error_code.value, p.leader_id) for p in orders.partitions] == leaders
    assert [p.replica_nodes for p in orders.partitions] == [(1,), (2,), (1,), ()]
    assert [p.isr_nodes for p in orders.partitions] == [(1,), (2,), (1,), ()]
    assert [p.partition_index for p in orders.partitions] == [0, 1, 2, 3]
    if version >= 5:
        assert {p.offline_replicas for p in orders.partitions} == {()}
    if version >= 7:
        assert [p.leader_epoch for p in orders.partitions] == [5, 6, 7, -1]
    assert [topic.name for topic in response.topics] == [name for name, _ in names]
    assert len(state_topic.partitions) == 3
    assert [(t.error_code.value, len(t.partitions)) for t in (orders, audit, denied, unknown)] == [
        (0, 4),
        (0, 1),
        (29, 0),
        (3, 0),
    ]
    if version >= 1:
        assert [topic.is_internal for topic in response.topics] == [False, True, True, False, False]
    if version >= 10:
        assert [topic.topic_id and topic.topic_id.bytes for topic in (orders, audit, denied, unknown)] == [
            ORDERS.topic_id,
            AUDIT.topic_id,
            None,
            None,
        ]
    everything = world.ask("metadata", version, **metadata_fields(version, [] if version == 0 else None))
    assert [topic.name for topic in everything.topics] == ["__holdfast_share_state", "orders", "audit", "denied"]


@pytest.mark.parametrize("version", [12, 13])
def test_topics_of_a_tenant_by_id(version: int) -> None:
    world = ApiWorld(topics=UsersTopics(ORDERS))
    ids = [(None, uuid.UUID(bytes=ORDERS.topic_id)), (None, uuid.UUID(int=7)), (None, TOPIC_UUID)]
    response = world.ask("metadata", version, **metadata_fields(version, list(ids)))
    assert [(topic.error_code.value, topic.name) for topic in response.topics] == [
        (0, "orders"),
        (100, None),
        (0, "__holdfast_share_state"),
    ]


@pytest.mark.parametrize("version", [1, 8, 13])
def test_a_large_answer_is_made_in_pieces_and_shows_one_moment(version: int) -> None:
    many = [ShownTopic(f"topic-{n}", bytes([n] * 16), 700) for n in range(1, 6)]
    world = ApiWorld(topics=UsersTopics(*many))
    answers: list[Body] = []
    request = schema("metadata", version, "request", "MetadataRequest")(**metadata_fields(version, None))
    world.handler(
        Request(3, version, 1, b"me", b"head" + kio_bytes(request), 4, "10.0.0.1:5", RequestMemory(), 0), answers.append
    )
    (pieces,) = answers
    assert not isinstance(pieces, bytes | list)
    first = next(pieces)
    world.cluster.nodes = []
    rest = list(pieces)
    assert len(rest) > 3
    response, _ = entity_reader(schema("metadata", version, "response", "MetadataResponse"))(first + b"".join(rest), 0)
    assert [len(topic.partitions) for topic in response.topics] == [3, *[700] * 5]
    assert {p.leader_id for p in response.topics[-1].partitions} == {1, 2, -1}


def test_an_answer_comes_when_a_tenant_has_looked_its_topics_up() -> None:
    topics = UsersTopics(ORDERS)
    topics.is_later = True
    world = ApiWorld(topics=topics)
    answers: list[Body] = []
    for fields in (metadata_fields(9, [("orders", None)]), metadata_fields(9, None)):
        request = schema("metadata", 9, "request", "MetadataRequest")(**fields)
        world.handler(
            Request(3, 9, 1, b"me", b"head" + kio_bytes(request), 4, "10.0.0.1:5", RequestMemory(), 0), answers.append
        )
    assert answers == []
    # The state topic needs no tenant.
    assert world.ask("metadata", 9, **metadata_fields(9, [("__holdfast_share_state", None)])).topics
    for answer in topics.later:
        answer()
    assert len(answers) == 2


def test_a_client_hears_only_of_topics_that_it_may_know() -> None:
    answers = MetadataAnswers(
        FakeCluster(nodes=list(NODES)), UsersTopics(ORDERS, AUDIT), lambda request, name, is_named: name != "orders"
    )

    def ask(topics: list[tuple[str | None, uuid.UUID | None]] | None) -> list[tuple[int, str | None, uuid.UUID | None]]:
        body = kio_bytes(schema("metadata", 12, "request", "MetadataRequest")(**metadata_fields(12, topics)))
        given: list[Body] = []
        answers.answer(Request(3, 12, 1, b"me", body, 0, "10.0.0.1:5", RequestMemory(), 0), given.append)
        (answer,) = given
        assert isinstance(answer, bytes)
        response, _ = entity_reader(schema("metadata", 12, "response", "MetadataResponse"))(answer, 0)
        return [(topic.error_code.value, topic.name, topic.topic_id) for topic in response.topics]

    orders_id, audit_id = uuid.UUID(bytes=ORDERS.topic_id), uuid.UUID(bytes=AUDIT.topic_id)
    assert [name for _, name, _ in ask(None)] == ["__holdfast_share_state", "audit"]
    # As in Kafka: the id of a name that may not be known stays hidden, and so does the name of an id.
    assert ask([("orders", None), ("audit", None)]) == [(29, "orders", None), (0, "audit", audit_id)]
    assert ask([(None, orders_id)]) == [(29, None, orders_id)]
