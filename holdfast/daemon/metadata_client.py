"""Questions about topics, asked of the brokers by topic id or by name.

librdkafka asks by name only, and a name says nothing about a topic that was deleted and made again.
Source: Apache Kafka `MetadataRequest.json` version 12, the first that takes ids alone (Kafka 3.1).
"""

from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from random import Random
from typing import NamedTuple
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.schema.metadata.v12.request import MetadataRequest, MetadataRequestTopic
from kio.schema.metadata.v12.response import MetadataResponse, MetadataResponseTopic
from kio.schema.types import TopicName

from holdfast.daemon.kafka_connection import ask
from holdfast.runtime.broker_connection import Address, BrokerConnection, ConnectionFailed, ConnectionOptions

_NONE = ErrorCode.none


class Topic(NamedTuple):
    """A topic that exists."""

    topic_id: bytes
    name: str
    partition_count: int
    is_led: bool  #: whether every partition has a leader


class TopicAnswers(NamedTuple):
    """What a broker says about the topics it was asked for; one in neither collection is unclear, which is no evidence."""

    cluster_id: str
    topics: tuple[Topic, ...]
    unknown_ids: frozenset[bytes]  #: asked for by id, answered UNKNOWN_TOPIC_ID


class MetadataClient:
    """One connection to any broker of the cluster, made when needed and made again elsewhere when it broke."""

    def __init__(
        self, options: ConnectionOptions, *, timeout_ms: int, topics_per_request_max: int = 100, random: Random
    ) -> None:
        """Describe the cluster; nothing is connected before the first question.

        Args:
            options: how to connect.
            timeout_ms: bound of each step of connecting, and of each answer.
            topics_per_request_max: more topics are asked for in several requests.
            random: chooses among the brokers.
        """
        self._options = options
        self._timeout_ms = timeout_ms
        self._topics_per_request_max = topics_per_request_max
        self._random = random
        self._connection: BrokerConnection | None = None
        self._asking = 0  #: questions under way
        self._untried: list[Address] = []
        #: the brokers named by the last answer; empty before it
        self.brokers: tuple[Address, ...] = ()

    async def ask_ids(self, topic_ids: Collection[bytes]) -> TopicAnswers:
        """Ask for topics by their 16-byte ids; without any, the answer still names the cluster.

        Raises:
            ConnectionFailed: there is no answer; the next question goes to another broker.
        """
        return await self._ask([_by_id(topic_id) for topic_id in topic_ids])

    async def ask_names(self, names: Iterable[str]) -> Mapping[str, Topic]:
        """Ask for topics by name; missing ones are left out. Nothing is created by asking.

        Raises:
            ConnectionFailed: there is no answer.
        """
        answers = await self._ask([MetadataRequestTopic(topic_id=None, name=TopicName(name)) for name in names])
        return {topic.name: topic for topic in answers.topics}

    async def is_known_everywhere(self, topic_id: bytes, partition_count: int) -> bool:
        """Tell whether every broker knows this topic, all of its partitions and a leader for each.

        Raises:
            ConnectionFailed: a broker gave no answer.
        """
        await self.ask_ids([topic_id])
        for address in self.brokers:
            connection = await BrokerConnection.open(address, self._options, self._timeout_ms)
            try:
                answers = _to_answers([await _request(connection, [_by_id(topic_id)])])
            finally:
                connection.close()
            if not any(topic.partition_count == partition_count and topic.is_led for topic in answers.topics):
                return False
        return True

    def move_on(self) -> None:
        """Ask another broker from the next question on, unless one is under way."""
        if not self._asking:
            self.close()

    def close(self) -> None:
        """Hang up; a later question connects again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _ask(self, topics: list[MetadataRequestTopic]) -> TopicAnswers:
        responses: list[MetadataResponse] = []
        remaining = iter(topics)
        self._asking += 1
        try:
            while (some := list(islice(remaining, self._topics_per_request_max))) or not responses:
                connection = await self._connected()
                responses.append(await _request(connection, some))
        except BaseException:
            # Cancelled or failed: what the connection would say next answers nobody's question.
            self.close()
            raise
        finally:
            self._asking -= 1
        self.brokers = tuple((broker.host, broker.port) for broker in responses[-1].brokers)
        return _to_answers(responses)

    async def _connected(self) -> BrokerConnection:
        if self._connection is None:
            if not self._untried:
                self._untried = sorted({*self.brokers, *self._options.bootstrap})
                self._random.shuffle(self._untried)
            self._connection = await BrokerConnection.open(self._untried.pop(), self._options, self._timeout_ms)
        return self._connection


async def _request(connection: BrokerConnection, topics: Collection[MetadataRequestTopic]) -> MetadataResponse:
    request = MetadataRequest(
        topics=tuple(topics), allow_auto_topic_creation=False, include_topic_authorized_operations=False
    )
    return await ask(connection, request, MetadataResponse)


def _by_id(topic_id: bytes) -> MetadataRequestTopic:
    return MetadataRequestTopic(topic_id=UUID(bytes=topic_id), name=None)


def _to_answers(responses: list[MetadataResponse]) -> TopicAnswers:
    cluster_ids = {response.cluster_id for response in responses}
    if len(cluster_ids) != 1 or not (cluster_id := cluster_ids.pop()):
        raise ConnectionFailed("the answers do not agree on one cluster id")
    found = [topic for response in responses for topic in response.topics]
    return TopicAnswers(
        cluster_id=cluster_id,
        topics=tuple(_to_topic(topic) for topic in found if topic.error_code is _NONE),
        unknown_ids=frozenset(
            topic.topic_id.bytes for topic in found if topic.topic_id and topic.error_code is ErrorCode.unknown_topic_id
        ),
    )


def _to_topic(topic: MetadataResponseTopic) -> Topic:
    return Topic(
        topic_id=topic.topic_id.bytes if topic.topic_id else bytes(16),
        name=topic.name or "",
        partition_count=len(topic.partitions),
        is_led=all(partition.error_code is _NONE and partition.leader_id >= 0 for partition in topic.partitions),
    )
