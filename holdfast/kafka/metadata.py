"""Brokers and topics as one broker knows them; the one module that writes and reads requests for metadata.

Source: Apache Kafka `MetadataRequest.json` version 12, the first that takes ids alone (Kafka 3.1); `Topic.validate`, `Uuid.RESERVED`.
"""

import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

from kio.schema.metadata.v7.request import MetadataRequest as NamesRequest
from kio.schema.metadata.v7.request import MetadataRequestTopic as NamedTopic
from kio.schema.metadata.v7.response import MetadataResponse as NamesResponse
from kio.schema.metadata.v12.request import MetadataRequest, MetadataRequestTopic
from kio.schema.metadata.v12.response import MetadataResponse
from kio.schema.types import TopicName

from holdfast.kafka.addresses import Address
from holdfast.kafka.errors import VersionUnsupported
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.kafka.protocol.primitives import (
    MalformedBody,
    read_count,
    read_nullable_string,
    read_string,
    skip_tags,
)

#: In place of the id of a topic that a broker does not know.
NO_TOPIC: Final = bytes(16)
#: Ids that Kafka never gives to a topic that is created: none at all, and that of its own metadata log.
RESERVED_IDS: Final = frozenset((NO_TOPIC, bytes(15) + b"\x01"))

#: Topics in one request: the answer is read in one go, which takes about a millisecond for these.
TOPICS_PER_REQUEST_MAX: Final = 100

#: A topic by its id of 16 bytes, or by its name.
TopicRef: TypeAlias = bytes | str
#: Sends one of kio's requests to a broker, and returns the answer, whose type is the second argument; raises ConnectionFailed.
Send: TypeAlias = Callable[[Any, type[Any]], Awaitable[Any]]

_INT32_BYTES: Final = 4
#: A partition in version 12: error code, index, leader, leader epoch; and the least of all of it, with three empty arrays and no tags.
_PARTITION_HEAD_BYTES: Final = 14
_PARTITION_BYTES_MIN: Final = 18

_UNKNOWN: Final = (int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), int(ErrorCode.UNKNOWN_TOPIC_ID))
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class Leader(NamedTuple):
    """The broker that leads a partition."""

    broker_id: int
    #: Its leader epoch.
    epoch: int


class TopicView(NamedTuple):
    """A topic as a broker knows it."""

    name: str
    #: Zeros: the cluster has no ids, or there is no such topic.
    topic_id: bytes
    #: By partition; without those that have no leader.
    leaders: dict[int, Leader]
    #: Of all partitions.
    leader_epochs: dict[int, int]
    #: Kafka's; 0: the topic is there.
    error_code: int = 0
    is_internal: bool = False

    @property
    def is_missing(self) -> bool:
        """Tell whether there is no such topic."""
        return self.error_code in _UNKNOWN

    @property
    def summary(self) -> "TopicSummary":
        """The same without leaders."""
        return TopicSummary(self.name, self.topic_id, len(self.leader_epochs), self.is_internal, self.error_code)

    @property
    def is_hidden(self) -> bool:
        """Tell whether the broker does not say if there is such a topic, because its ACLs do not let it."""
        return self.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


class TopicSummary(NamedTuple):
    """A topic as a broker knows it, without its leaders."""

    #: Empty: it was requested by an id that the broker does not know.
    name: str
    #: Zeros: the cluster has no ids, or there is no such topic.
    topic_id: bytes
    partition_count: int
    is_internal: bool
    #: Kafka's; 0: the topic is there.
    error_code: int = 0

    @property
    def is_missing(self) -> bool:
        """Tell whether there is no such topic."""
        return self.error_code in _UNKNOWN


class Answer(NamedTuple):
    """The brokers and some topics, as one broker knows them."""

    #: Empty: the broker does not name its cluster.
    cluster_id: str
    brokers: dict[int, Address]
    #: Without those of which the broker said nothing.
    topics: dict[TopicRef, TopicView]


def is_topic_name(name: str) -> bool:
    """Tell whether Kafka allows a topic of this name."""
    return _TOPIC_NAME.fullmatch(name) is not None and name not in (".", "..")


async def query(send: Send, topics: Collection[TopicRef], *, may_lack_ids: bool = False) -> Answer:
    """Return what a broker says of some topics, none of which is created by that.

    Args:
        send: to the broker.
        topics: of which it is asked.
        may_lack_ids: a broker that is too old for ids is asked for topics by names alone.

    Raises:
        ConnectionFailed: there is no answer that can be read.
    """
    try:
        return read_answer(topics, await send(make_request(topics), MetadataResponse))
    except VersionUnsupported:
        names = [topic for topic in topics if isinstance(topic, str)]
        if not may_lack_ids or len(names) < len(topics):
            raise
    named = tuple(NamedTopic(name=TopicName(name)) for name in names)
    return read_answer(topics, await send(NamesRequest(topics=named, allow_auto_topic_creation=False), NamesResponse))


def make_request(topics: Collection[TopicRef] | None) -> MetadataRequest:
    """Return a request for some topics, or for all of them; names and ids must not be in one."""
    # Kafka refuses a whole request because of one reserved id.
    asked = [topic for topic in topics or () if topic not in RESERVED_IDS]
    named = tuple(
        topic_by_name(topic) if isinstance(topic, str) else MetadataRequestTopic(topic_id=UUID(bytes=topic), name=None)
        for topic in asked
    )
    return MetadataRequest(
        topics=None if topics is None else named,
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )


def topic_by_name(name: str) -> MetadataRequestTopic:
    """Name a topic by its name."""
    return MetadataRequestTopic(topic_id=None, name=TopicName(name))


def read_answer(topics: Iterable[TopicRef], response: Any) -> Answer:  # noqa: ANN401  # of two versions
    """Return what an answer says about the topics that were requested; a reserved id names none."""
    brokers = {int(broker.node_id): (str(broker.host), int(broker.port)) for broker in response.brokers}
    views: dict[TopicRef, TopicView] = {}
    for topic in response.topics:
        found = getattr(topic, "topic_id", None)
        epochs = {int(each.partition_index): int(each.leader_epoch) for each in topic.partitions}
        leaders = {
            int(each.partition_index): Leader(int(each.leader_id), int(each.leader_epoch))
            for each in topic.partitions
            if each.leader_id in brokers
        }
        topic_id, name = found.bytes if found else NO_TOPIC, str(topic.name or "")
        views[topic_id] = views[name] = TopicView(
            name, topic_id, leaders, epochs, int(topic.error_code), bool(topic.is_internal)
        )
    views |= dict.fromkeys(RESERVED_IDS, TopicView("", NO_TOPIC, {}, {}, int(ErrorCode.UNKNOWN_TOPIC_ID)))
    return Answer(response.cluster_id or "", brokers, {topic: views[topic] for topic in topics if topic in views})


class SummaryReader:
    """An answer of version 12, read for its topics alone: a cluster may have a hundred thousand, and kio takes a second for some of them.

    Raises:
        MalformedBody: the bytes are no such answer; while it is iterated, too.
    """

    def __init__(self, body: bytes) -> None:
        self._body = body
        offset = _INT32_BYTES  # the throttle time
        count, offset = read_count(body, offset, 1, "Brokers")
        for _ in range(count):
            _, offset = read_string(body, offset + _INT32_BYTES, "Brokers.Host")
            _, offset = read_nullable_string(body, offset + _INT32_BYTES, "Brokers.Rack")
            offset = skip_tags(body, offset, "Brokers")
        cluster_id, offset = read_nullable_string(body, offset, "ClusterId")
        #: Empty: the broker does not name its cluster.
        self.cluster_id = cluster_id or ""
        self._offset = offset + _INT32_BYTES  # the controller

    def __iter__(self) -> Iterator[TopicSummary]:
        """Yield each topic."""
        body = self._body
        count, offset = read_count(body, self._offset, 1, "Topics")
        for _ in range(count):
            error_code = int.from_bytes(_cut(body, offset, 2), "big", signed=True)
            name, offset = read_nullable_string(body, offset + 2, "Topics.Name")
            topic_id = _cut(body, offset, 16)
            is_internal = _cut(body, offset + 16, 1) != b"\x00"
            partition_count, offset = read_count(body, offset + 17, _PARTITION_BYTES_MIN, "Topics.Partitions")
            for _ in range(partition_count):
                offset += _PARTITION_HEAD_BYTES
                for _ in range(3):  # replicas, those in sync, those that are offline
                    replicas, offset = read_count(body, offset, _INT32_BYTES, "Topics.Partitions.ReplicaNodes")
                    offset += replicas * _INT32_BYTES
                offset = skip_tags(body, offset, "Topics.Partitions")
            offset = skip_tags(body, offset + _INT32_BYTES, "Topics")
            yield TopicSummary(name or "", topic_id, partition_count, is_internal, error_code)


def _cut(body: bytes, offset: int, size: int) -> bytes:
    part = body[offset : offset + size]
    if len(part) < size:
        raise MalformedBody("Topics", offset, f"{size} bytes are announced and {len(part)} are left")
    return part
