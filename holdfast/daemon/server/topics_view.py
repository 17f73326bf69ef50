"""Topics that a tenant shows to clients as if the nodes were the brokers that lead them.

The host knows of such a topic only what Metadata shows. Each partition of it is led by the owner of a log partition, under the owner
epoch of that, so that leadership needs no agreement of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from holdfast.kafka.metadata import NO_TOPIC
from holdfast.kafka.protocol.error_codes import ErrorCode


class TopicQuery(NamedTuple):
    """A topic that is requested by its name or, where that is None, by its id."""

    name: str | None
    topic_id: bytes


class ShownTopic(NamedTuple):
    """A topic as clients see it."""

    #: None: it was requested by an id that nobody knows.
    name: str | None
    #: Zeros: it is not known.
    topic_id: bytes
    partition_count: int = 0
    is_internal: bool = False
    #: Kafka's; 0: the topic is there.
    error_code: int = ErrorCode.NONE


#: Takes topics, in the order of the queries for them.
TakeTopics = Callable[[Sequence[ShownTopic]], None]


class TopicsView(Protocol):
    """The topics of a tenant."""

    def find(self, queries: Sequence[TopicQuery] | None, caller: str, take: TakeTopics) -> None:
        """Find topics for the client at address `caller`; None: all that are offered.

        `take` is called once, in bounded time and maybe before this returns, with one topic for each query, in their order. One that is
        not offered has an error.
        """

    def log_partition(self, topic_id: bytes, partition: int) -> int:
        """Return the log partition whose owner leads a partition of a topic."""


def unknown_topic(query: TopicQuery, error_code: int = ErrorCode.NONE) -> ShownTopic:
    """Return the topic that is not there, as it was requested; without an error code, it is unknown."""
    if query.name is None:
        return ShownTopic(None, query.topic_id, error_code=error_code or ErrorCode.UNKNOWN_TOPIC_ID)
    return ShownTopic(query.name, NO_TOPIC, error_code=error_code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
