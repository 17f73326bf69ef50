"""Brokers and topics as one broker knows them; the one module that writes and reads requests for metadata.

Source: Apache Kafka `MetadataRequest.json` version 12, the first that takes ids alone (Kafka 3.1); `Topic.validate`, `Uuid.RESERVED`.
"""

import re
from collections.abc import Awaitable, Callable, Collection, Iterable
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

    @property
    def is_missing(self) -> bool:
        """Tell whether there is no such topic."""
        return self.error_code in _UNKNOWN

    @property
    def is_hidden(self) -> bool:
        """Tell whether the broker does not say if there is such a topic, because its ACLs do not let it."""
        return self.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


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
    # Kafka refuses a whole request because of one reserved id.
    asked = [topic for topic in topics if topic not in RESERVED_IDS]
    request = MetadataRequest(
        topics=tuple(
            topic_by_name(topic)
            if isinstance(topic, str)
            else MetadataRequestTopic(topic_id=UUID(bytes=topic), name=None)
            for topic in asked
        ),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
    try:
        return read_answer(topics, await send(request, MetadataResponse))
    except VersionUnsupported:
        names = [topic for topic in topics if isinstance(topic, str)]
        if not may_lack_ids or len(names) < len(topics):
            raise
    named = tuple(NamedTopic(name=TopicName(name)) for name in names)
    return read_answer(topics, await send(NamesRequest(topics=named, allow_auto_topic_creation=False), NamesResponse))


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
        views[topic_id] = views[name] = TopicView(name, topic_id, leaders, epochs, int(topic.error_code))
    views |= dict.fromkeys(RESERVED_IDS, TopicView("", NO_TOPIC, {}, {}, int(ErrorCode.UNKNOWN_TOPIC_ID)))
    return Answer(response.cluster_id or "", brokers, {topic: views[topic] for topic in topics if topic in views})
