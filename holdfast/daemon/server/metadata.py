"""Metadata, versions 0 to 13: the live nodes, the state topic, and the topics that a tenant shows; all led by owners of log partitions.

The leader epoch of a partition is the owner epoch of its log partition, so clients that route by metadata see that it moved.

A name that is not here is UNKNOWN_TOPIC_OR_PARTITION, another id UNKNOWN_TOPIC_ID, and nothing is ever created. Authorized
operations stay unset. Topics are packed by hand: there may be thousands of partitions, and kio takes 30 µs for each.

Source: Apache Kafka's `MetadataResponse.json`; `KafkaApis.handleTopicMetadataRequest` for what is said of topics that a client may not see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from struct import Struct
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode as KioErrorCode

from holdfast.daemon.server.cluster_view import ClusterView, Node
from holdfast.daemon.server.schemas import ResponseSchemas, encode
from holdfast.daemon.server.topics_view import (
    ShownTopic,
    TopicQuery,
    TopicsView,
    unknown_topic,
)
from holdfast.daemon.server.wire.requests import Request, Respond
from holdfast.kafka.metadata import NO_TOPIC
from holdfast.kafka.protocol.body import BodyReader
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.kafka.protocol.primitives import MalformedBody, encode_legacy_string, encode_string, encode_varint

MAX_VERSION: Final = 13
FLEXIBLE_FROM: Final = 9

#: First versions with a field.
_IS_INTERNAL_FROM: Final = 1
_OFFLINE_REPLICAS_FROM: Final = 5
_LEADER_EPOCH_FROM: Final = 7
_TOPIC_OPERATIONS_FROM: Final = 8
_TOPIC_IDS_FROM: Final = 10
_NULL_NAMES_FROM: Final = 12
_ERROR_CODE_FROM: Final = 13
_CLUSTER_OPERATIONS: Final = range(8, 11)

_NO_NODE: Final = -1
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
#: Error code, index.
_PARTITION_HEAD: Final = Struct(">hi")
#: Authorized operations that nobody asked for.
_UNSET_OPERATIONS: Final = _INT32.pack(-(1 << 31))

#: Topics that one request may name.
TOPICS_MAX: Final = 1_000
#: Topics and partitions of an answer that is made in one go, about a millisecond; a larger one is made in steps of as many.
_ENTRIES_AT_ONCE: Final = 500
#: The most that one of them takes in an answer, a name excepted.
_ENTRY_BYTES: Final = 40

#: Tells whether the client of a request may know of the topic of a name, and that it asked where the last argument is true.
MayDescribe = Callable[[Request, str, bool], bool]


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
        topic_id = reader.raw(16, "Topics.TopicId") if version >= _TOPIC_IDS_FROM else NO_TOPIC
        name = reader.nullable_string("Topics.Name") if version >= _TOPIC_IDS_FROM else reader.string("Topics.Name")
        reader.tags("Topics")
        # A name counts where both are given.
        queries.append(TopicQuery(name, topic_id if name is None else NO_TOPIC))
    if version >= 4:
        reader.boolean("AllowAutoTopicCreation")
    if version in _CLUSTER_OPERATIONS:
        reader.boolean("IncludeClusterAuthorizedOperations")
    if version >= _TOPIC_OPERATIONS_FROM:
        reader.boolean("IncludeTopicAuthorizedOperations")
    reader.lenient_end()
    # In version 0 an empty list stood for all topics.
    return None if count is None or (version == 0 and not count) else queries


def _describes_all(request: Request, name: str, is_named: bool) -> bool:
    return True


class MetadataAnswers:
    """The answers to Metadata requests.

    Args:
        cluster: the nodes, the state topic, and the owners of log partitions.
        topics: those of a tenant; None: none shows any.
        may_describe: whether a client may know of one of those; the state topic is shown to any.
    """

    def __init__(
        self,
        cluster: ClusterView,
        topics: TopicsView | None = None,
        may_describe: MayDescribe = _describes_all,
    ) -> None:
        self._cluster = cluster
        self._topics = topics
        self._may_describe = may_describe
        self._leaders = _Leaders(None, (), ())

    def answer(self, request: Request, respond: Respond) -> None:
        """Answer a request, maybe after this returns: topics that are not known are looked up first.

        Raises:
            MalformedBody: the bytes are no such request, or it names too many topics.
        """
        queries = decode_request(request.api_version, request.frame, request.body_offset, TOPICS_MAX)
        state_topic = self._find_state_topic()
        if queries is None:
            self._answer_all([] if state_topic is None else [state_topic], request, respond)
            return
        wanted = list(dict.fromkeys(queries))
        # Those that need no look-up.
        known = {query: state_topic for query in wanted if state_topic is not None and _is_for(query, state_topic)}
        others = [query for query in wanted if query not in known]
        if self._topics is None:
            known |= {query: unknown_topic(query) for query in others}
        else:
            known |= {query: _deny(query) for query in others if not self._may_name(request, query.name)}
        asked = [query for query in others if query not in known]

        def take(found: Sequence[ShownTopic]) -> None:
            topics = known | {
                query: topic if self._may_name(request, topic.name) else _deny(query)
                for query, topic in zip(asked, found, strict=True)
            }
            self._respond(request, respond, [topics[query] for query in wanted])

        if self._topics is None or not asked:
            take(())
        else:
            self._topics.find(asked, request.client_address, take)

    def _answer_all(self, own: list[ShownTopic], request: Request, respond: Respond) -> None:
        def take(found: Sequence[ShownTopic]) -> None:
            named = [topic for topic in found if topic.name is None or self._may_describe(request, topic.name, False)]
            self._respond(request, respond, [*own, *named])

        if self._topics is None:
            take(())
        else:
            self._topics.find(None, request.client_address, take)

    def _may_name(self, request: Request, name: str | None) -> bool:
        """Return whether a client may know of a topic that it asks for; an id without a name says nothing."""
        return name is None or self._may_describe(request, name, True)

    def _respond(self, request: Request, respond: Respond, topics: Sequence[ShownTopic]) -> None:
        if not request.is_wanted:
            respond(b"")
            return
        pieces = self._encode(request.api_version, topics)
        entries = sum(1 + topic.partition_count for topic in topics)
        if entries <= _ENTRIES_AT_ONCE:
            respond(b"".join(pieces))
        else:
            request.count_answer_bytes(entries * _ENTRY_BYTES)
            respond(pieces)

    def _encode(self, version: int, topics: Sequence[ShownTopic]) -> Iterator[bytes]:
        """Return the body of an answer in pieces; all of them show who leads as of now."""
        leaders = self._see_leaders()
        before, behind = leaders.frame(version)
        encode_count = encode_varint if version >= FLEXIBLE_FROM else _INT32.pack
        empty = int(version >= FLEXIBLE_FROM)
        return self._encode_pieces(version, topics, leaders, [before, encode_count(len(topics) + empty)], behind)

    def _encode_pieces(
        self, version: int, topics: Sequence[ShownTopic], leaders: _Leaders, parts: list[bytes], behind: bytes
    ) -> Iterator[bytes]:
        is_flexible = version >= FLEXIBLE_FROM
        state_topic, users_topics = self._cluster.state_topic, self._topics
        state_topic_id = None if state_topic is None else state_topic.topic_id
        end = b"%b%b" % (_UNSET_OPERATIONS if version >= _TOPIC_OPERATIONS_FROM else b"", b"\x00" * is_flexible)
        by_log_partition = leaders.partitions(version)
        nobody = leaders.nobody(version)
        room = _ENTRIES_AT_ONCE
        for topic in topics:
            parts.append(_encode_head(version, topic))
            users = None if topic.topic_id == state_topic_id else users_topics
            for index in range(topic.partition_count):
                place = index if users is None else users.log_partition(topic.topic_id, index)
                error_code, rest = by_log_partition[place] if place < len(by_log_partition) else nobody
                parts.append(_PARTITION_HEAD.pack(error_code, index))
                parts.append(rest)
                room -= 1
                if not room:
                    yield b"".join(parts)
                    parts.clear()
                    room = _ENTRIES_AT_ONCE
            parts.append(end)
        parts.append(behind)
        yield b"".join(parts)

    def _find_state_topic(self) -> ShownTopic | None:
        topic = self._cluster.state_topic
        return (
            None if topic is None else ShownTopic(topic.name, topic.topic_id, topic.partition_count, is_internal=True)
        )

    def _see_leaders(self) -> _Leaders:
        """Return who leads now; what was encoded of it before, as long as nothing changed."""
        cluster, topic = self._cluster, self._cluster.state_topic
        indexes = range(0 if topic is None else topic.partition_count)
        owners = tuple(_Owner(cluster.owner(index), cluster.owner_epoch(index)) for index in indexes)
        seen = _Leaders(cluster.cluster_id, tuple(cluster.nodes), owners)
        if not self._leaders.is_same(seen):
            self._leaders = seen
        return self._leaders


class _Owner(NamedTuple):
    """The owner of a log partition."""

    node: Node | None
    epoch: int


class _Leaders:
    """The nodes and the owners at one moment, and what is encoded of them."""

    def __init__(self, cluster_id: str | None, nodes: tuple[Node, ...], owners: tuple[_Owner, ...]) -> None:
        self._seen = (cluster_id, nodes, owners)
        self._cluster_id = cluster_id
        self._nodes = nodes
        self._owners = owners
        #: By version.
        self._frames: dict[int, tuple[bytes, bytes]] = {}
        self._partitions: dict[int, list[tuple[int, bytes]]] = {}

    def is_same(self, other: _Leaders) -> bool:
        """Tell whether the cluster looks the same."""
        return self._seen == other._seen

    def frame(self, version: int) -> tuple[bytes, bytes]:
        """Return all that stands in front of the topics, and all after them."""
        frame = self._frames.get(version)
        if frame is None:
            whole = encode(_make_response(ResponseSchemas("metadata", version), self._cluster_id, self._nodes))
            end = len(whole) - _size_behind_topics(version)
            start = end - (1 if version >= FLEXIBLE_FROM else _INT32.size)
            frame = self._frames[version] = (whole[:start], whole[end:])
        return frame

    def partitions(self, version: int) -> list[tuple[int, bytes]]:
        """Return by log partition the error of a partition that its owner leads, and all that follows its index."""
        partitions = self._partitions.get(version)
        if partitions is None:
            partitions = self._partitions[version] = [_encode_leader(version, owner) for owner in self._owners]
        return partitions

    def nobody(self, version: int) -> tuple[int, bytes]:
        """Return the same for a partition that nobody leads."""
        return _encode_leader(version, _Owner(None, -1))


def _encode_leader(version: int, owner: _Owner) -> tuple[int, bytes]:
    is_flexible = version >= FLEXIBLE_FROM
    node, epoch = owner
    nobody, one = (b"\x01", b"\x02") if is_flexible else (_INT32.pack(0), _INT32.pack(1))
    replicas = nobody if node is None else one + _INT32.pack(node.node_id)
    parts = (
        _INT32.pack(_NO_NODE if node is None else node.node_id),
        _INT32.pack(epoch) if version >= _LEADER_EPOCH_FROM else b"",
        replicas,
        replicas,
        nobody if version >= _OFFLINE_REPLICAS_FROM else b"",
        b"\x00" * is_flexible,
    )
    return ErrorCode.LEADER_NOT_AVAILABLE if node is None else ErrorCode.NONE, b"".join(parts)


def _encode_head(version: int, topic: ShownTopic) -> bytes:
    """Return a topic up to its partitions."""
    is_flexible = version >= FLEXIBLE_FROM
    # Versions 10 and 11 know ids but no null name.
    name = topic.name if version >= _NULL_NAMES_FROM else topic.name or ""
    count = topic.partition_count
    parts = (
        _INT16.pack(topic.error_code),
        encode_string(name) if is_flexible else encode_legacy_string(name),
        topic.topic_id if version >= _TOPIC_IDS_FROM else b"",
        bytes((topic.is_internal,)) if version >= _IS_INTERNAL_FROM else b"",
        encode_varint(count + 1) if is_flexible else _INT32.pack(count),
    )
    return b"".join(parts)


def _size_behind_topics(version: int) -> int:
    """Return how many bytes follow the topics: authorized operations, error code, tagged fields."""
    operations = _INT32.size if version in _CLUSTER_OPERATIONS else 0
    error_code = _INT16.size if version >= _ERROR_CODE_FROM else 0
    return operations + error_code + (version >= FLEXIBLE_FROM)


def _make_response(schemas: ResponseSchemas, cluster_id: str | None, nodes: Sequence[Node]) -> Any:  # noqa: ANN401
    return schemas.make(
        "MetadataResponse",
        throttle_time=timedelta(0),
        brokers=tuple(
            schemas.make("MetadataResponseBroker", node_id=node.node_id, host=node.host, port=node.port)
            for node in nodes
        ),
        cluster_id=cluster_id,
        # Any node, as a KRaft broker does: without one, Kafka's admin tools retry for ever and do not fail.
        controller_id=nodes[0].node_id if nodes else _NO_NODE,
        topics=(),
        error_code=KioErrorCode.none,
    )


def _deny(query: TopicQuery) -> ShownTopic:
    """Return a topic that a client may not know: it hears no more than it said itself."""
    return unknown_topic(query, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _is_for(query: TopicQuery, topic: ShownTopic) -> bool:
    return query.topic_id == topic.topic_id if query.name is None else query.name == topic.name
