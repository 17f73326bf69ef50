"""Metadata, versions 0 to 13: the live nodes, and the state topic led by the owners of its partitions.

There is no other topic here: other names are UNKNOWN_TOPIC_OR_PARTITION, other ids UNKNOWN_TOPIC_ID, and nothing is ever
created. Authorized operations stay unset.
"""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode

from holdfast.daemon import schemas
from holdfast.daemon.cluster_view import ClusterView, StateTopicView
from holdfast.records.body import BodyReader
from holdfast.records.compact import MalformedBody

METADATA: Final = 3
MAX_VERSION: Final = 13
FLEXIBLE_FROM: Final = 9

_TOPIC_IDS_FROM: Final = 10
_CLUSTER_OPERATIONS: Final = range(8, 11)
_NO_TOPIC_ID: Final = bytes(16)
_NO_NODE: Final = -1


class TopicQuery(NamedTuple):
    """Name a topic by its name or, where that is None, by its id."""

    name: str | None
    topic_id: bytes


def decode_request(version: int, data: bytes, offset: int, topics_max: int) -> list[TopicQuery] | None:
    """Return the topics asked for, None for all of them.

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


def encode_response(version: int, queries: list[TopicQuery] | None, cluster: ClusterView) -> bytes:
    """Return the body of the answer."""

    def make(entity: str, /, **values: object) -> Any:  # noqa: ANN401
        return schemas.make("metadata", version, entity, **values)

    def make_state_topic(topic: StateTopicView) -> Any:  # noqa: ANN401
        partitions = []
        for index in range(topic.partition_count):
            owner = cluster.owner(index)
            replicas = () if owner is None else (owner.node_id,)
            partition = make(
                "MetadataResponsePartition",
                error_code=ErrorCode.leader_not_available if owner is None else ErrorCode.none,
                partition_index=index,
                leader_id=_NO_NODE if owner is None else owner.node_id,
                replica_nodes=replicas,
                isr_nodes=replicas,
            )
            partitions.append(partition)
        return make(
            "MetadataResponseTopic",
            error_code=ErrorCode.none,
            name=topic.name,
            topic_id=uuid.UUID(bytes=topic.topic_id),
            is_internal=True,
            partitions=tuple(partitions),
        )

    def make_unknown_topic(query: TopicQuery) -> Any:  # noqa: ANN401
        is_by_name = query.name is not None
        return make(
            "MetadataResponseTopic",
            error_code=ErrorCode.unknown_topic_or_partition if is_by_name else ErrorCode.unknown_topic_id,
            # Versions 10 and 11 know ids but no null name.
            name=query.name if is_by_name or version >= 12 else "",
            topic_id=None if is_by_name or query.topic_id == _NO_TOPIC_ID else uuid.UUID(bytes=query.topic_id),
            is_internal=False,
            partitions=(),
        )

    state_topic = cluster.state_topic
    if queries is None:
        topics = [] if state_topic is None else [make_state_topic(state_topic)]
    else:
        topics = [
            make_state_topic(state_topic)
            if state_topic is not None and _is_for(query, state_topic)
            else make_unknown_topic(query)
            for query in dict.fromkeys(queries)
        ]
    response = make(
        "MetadataResponse",
        throttle_time=timedelta(0),
        brokers=tuple(
            make("MetadataResponseBroker", node_id=node.node_id, host=node.host, port=node.port)
            for node in cluster.nodes
        ),
        cluster_id=cluster.cluster_id,
        # Any node, as a KRaft broker does: without one, Kafka's admin tools ask for ever and do not fail.
        controller_id=cluster.nodes[0].node_id if cluster.nodes else _NO_NODE,
        topics=tuple(topics),
        error_code=ErrorCode.none,
    )
    return schemas.encode(response)


def _is_for(query: TopicQuery, topic: StateTopicView) -> bool:
    return query.topic_id == topic.topic_id if query.name is None else query.name == topic.name
