"""Metadata, versions 0 to 13: the live nodes, and the state topic led by the owners of its partitions.

The leader epoch of a partition is its owner epoch, so clients that route by metadata see that it moved.

There is no other topic here: other names are UNKNOWN_TOPIC_OR_PARTITION, other ids UNKNOWN_TOPIC_ID, and nothing is ever
created. Authorized operations stay unset.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import timedelta
from struct import Struct
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode

from holdfast.daemon.server.cluster_view import ClusterView, StateTopicView
from holdfast.daemon.server.schemas import ResponseSchemas, encode
from holdfast.kafka.protocol.body import BodyReader
from holdfast.kafka.protocol.primitives import MalformedBody, encode_varint

MAX_VERSION: Final = 13
FLEXIBLE_FROM: Final = 9

_TOPIC_IDS_FROM: Final = 10
_ERROR_CODE_FROM: Final = 13
_CLUSTER_OPERATIONS: Final = range(8, 11)
_NO_TOPIC_ID: Final = bytes(16)
_NO_NODE: Final = -1
_INT32: Final = Struct(">i")


class TopicQuery(NamedTuple):
    """A topic that is requested by its name or, where that is None, by its id."""

    name: str | None
    topic_id: bytes


def decode_request(version: int, data: bytes, offset: int, topics_max: int) -> list[TopicQuery] | None:
    """Return the topics that a request names, None for all of them.

    Raises:
        MalformedBody: the bytes are no such request, or it names more than `topics_max` topics.
    """
    reader = BodyReader(data, offset, version >= FLEXIBLE_FROM)
    count = reader.nullable_count("Topics")
    if count is None and version == 0:
        raise MalformedBody("Topics", offset, "it must not be null")
    if count is not None and count > topics_max:
        raise MalformedBody("Topics", offset, f"{count} topics are named, at most {topics_max} are taken")
    queries = []
    for _ in range(count or 0):
        topic_id = reader.raw(16, "Topics.TopicId") if version >= _TOPIC_IDS_FROM else _NO_TOPIC_ID
        name = reader.nullable_string("Topics.Name") if version >= _TOPIC_IDS_FROM else reader.string("Topics.Name")
        reader.tags("Topics")
        queries.append(TopicQuery(name, topic_id))
    if version >= 4:
        reader.boolean("AllowAutoTopicCreation")
    if version in _CLUSTER_OPERATIONS:
        reader.boolean("IncludeClusterAuthorizedOperations")
    if version >= 8:
        reader.boolean("IncludeTopicAuthorizedOperations")
    reader.lenient_end()
    # In version 0 an empty list stood for all topics.
    return None if count is None or (version == 0 and not count) else queries


class MetadataAnswers:
    """The answers to Metadata requests; those for few topics are encoded once, as long as the cluster looks the same."""

    def __init__(self, cluster: ClusterView) -> None:
        self._cluster = cluster
        #: What the answers below were made from.
        self._seen: object = None
        #: (version, the state topic by name or by id, or None for all topics) to body.
        self._bodies: dict[tuple[int, TopicQuery | None], bytes] = {}

    def encode(self, version: int, queries: list[TopicQuery] | None) -> bytes:
        """Return the body of the answer to a request for few topics or for all."""
        cluster, state_topic = self._cluster, self._cluster.state_topic
        self._drop_outdated()
        name: tuple[int, TopicQuery | None] | None = None
        if queries is None:
            name = version, None
        elif len(queries) == 1 and state_topic is not None and _is_for(queries[0], state_topic):
            name = version, TopicQuery(queries[0].name and state_topic.name, state_topic.topic_id)
        if name is None:
            return b"".join(self.encode_in_steps(version, queries or []))
        body = self._bodies.get(name)
        if body is None:
            schemas = ResponseSchemas("metadata", version)
            topics = [] if state_topic is None else [_make_state_topic(schemas, state_topic, cluster)]
            body = self._bodies[name] = encode(_make_response(schemas, cluster, topics))
        return body

    def encode_in_steps(self, version: int, queries: list[TopicQuery]) -> Iterator[bytes]:
        """Return the body of the answer to a request for many topics, in pieces."""
        cluster, state_topic = self._cluster, self._cluster.state_topic
        distinct = list(dict.fromkeys(queries))
        schemas = ResponseSchemas("metadata", version)
        # Topics follow one another, so the body is that of an answer without one, split where they belong.
        empty = encode(_make_response(schemas, cluster, []))
        end = len(empty) - _size_behind_topics(version)
        if version >= FLEXIBLE_FROM:
            yield empty[: end - 1] + encode_varint(len(distinct) + 1)
        else:
            yield empty[: end - _INT32.size] + _INT32.pack(len(distinct))
        for query in distinct:
            if state_topic is not None and _is_for(query, state_topic):
                yield encode(_make_state_topic(schemas, state_topic, cluster))
            else:
                yield encode(_make_unknown_topic(schemas, query))
        yield empty[end:]

    def _drop_outdated(self) -> None:
        """Drop what was encoded if the cluster looks different."""
        cluster, topic = self._cluster, self._cluster.state_topic
        shape = None
        if topic is not None:
            owners = tuple(map(cluster.owner, range(topic.partition_count)))
            epochs = tuple(map(cluster.owner_epoch, range(topic.partition_count)))
            shape = (topic.name, topic.topic_id, owners, epochs)
        seen = (cluster.cluster_id, tuple(cluster.nodes), shape)
        if seen != self._seen:
            self._seen = seen
            self._bodies.clear()


def _size_behind_topics(version: int) -> int:
    """Return how many bytes follow the topics: authorized operations, error code, tagged fields."""
    operations = _INT32.size if version in _CLUSTER_OPERATIONS else 0
    error_code = 2 if version >= _ERROR_CODE_FROM else 0
    return operations + error_code + (version >= FLEXIBLE_FROM)


def _make_state_topic(schemas: ResponseSchemas, topic: StateTopicView, cluster: ClusterView) -> Any:  # noqa: ANN401
    partitions = []
    for index in range(topic.partition_count):
        owner = cluster.owner(index)
        replicas = () if owner is None else (owner.node_id,)
        partition = schemas.make(
            "MetadataResponsePartition",
            error_code=ErrorCode.leader_not_available if owner is None else ErrorCode.none,
            partition_index=index,
            leader_id=_NO_NODE if owner is None else owner.node_id,
            leader_epoch=cluster.owner_epoch(index),
            replica_nodes=replicas,
            isr_nodes=replicas,
        )
        partitions.append(partition)
    return schemas.make(
        "MetadataResponseTopic",
        error_code=ErrorCode.none,
        name=topic.name,
        topic_id=uuid.UUID(bytes=topic.topic_id),
        is_internal=True,
        partitions=tuple(partitions),
    )


def _make_unknown_topic(schemas: ResponseSchemas, query: TopicQuery) -> Any:  # noqa: ANN401
    is_by_name = query.name is not None
    return schemas.make(
        "MetadataResponseTopic",
        error_code=ErrorCode.unknown_topic_or_partition if is_by_name else ErrorCode.unknown_topic_id,
        # Versions 10 and 11 know ids but no null name.
        name=query.name if is_by_name or schemas.version >= 12 else "",
        topic_id=None if is_by_name or query.topic_id == _NO_TOPIC_ID else uuid.UUID(bytes=query.topic_id),
        is_internal=False,
        partitions=(),
    )


def _make_response(schemas: ResponseSchemas, cluster: ClusterView, topics: list[Any]) -> Any:  # noqa: ANN401
    return schemas.make(
        "MetadataResponse",
        throttle_time=timedelta(0),
        brokers=tuple(
            schemas.make("MetadataResponseBroker", node_id=node.node_id, host=node.host, port=node.port)
            for node in cluster.nodes
        ),
        cluster_id=cluster.cluster_id,
        # Any node, as a KRaft broker does: without one, Kafka's admin tools retry for ever and do not fail.
        controller_id=cluster.nodes[0].node_id if cluster.nodes else _NO_NODE,
        topics=tuple(topics),
        error_code=ErrorCode.none,
    )


def _is_for(query: TopicQuery, topic: StateTopicView) -> bool:
    return query.topic_id == topic.topic_id if query.name is None else query.name == topic.name
