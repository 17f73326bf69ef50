"""Metadata of topics, requested from the brokers by topic id or by name; the one module that writes and reads such requests.

librdkafka queries by name only, and a name says nothing about a topic that was deleted and recreated.
Source: Apache Kafka `MetadataRequest.json` version 12, the first that takes ids alone (Kafka 3.1); `Topic.validate`, `Uuid.RESERVED`.
"""

import asyncio
import re
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from random import Random
from typing import Final, NamedTuple
from uuid import UUID

from kio.schema.metadata.v12.request import MetadataRequest, MetadataRequestTopic
from kio.schema.metadata.v12.response import MetadataResponse, MetadataResponseTopic
from kio.schema.types import TopicName

from holdfast.kafka.brokers.broker_connection import BrokerConnection
from holdfast.kafka.connection_options import Address, ConnectionOptions
from holdfast.kafka.errors import ConnectionFailed, all_failed
from holdfast.kafka.exchange import PATIENCE_S, exchange, exchange_with
from holdfast.kafka.protocol.error_codes import ErrorCode

#: Ids that Kafka never gives to a topic that is created: none at all, and that of its own metadata log.
RESERVED_IDS: Final = frozenset((bytes(16), bytes(15) + b"\x01"))

#: Topics in one request: the answer is read in one go, which takes about a millisecond for these.
TOPICS_PER_REQUEST_MAX: Final = 100

_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class RequestRefused(ConnectionFailed):
    """A broker answered without what was requested: something in the request may be the reason."""


class Topic(NamedTuple):
    """A topic that exists."""

    topic_id: bytes
    name: str
    partition_count: int
    #: Whether every partition has a leader.
    is_led: bool


class TopicAnswers(NamedTuple):
    """What a broker says about the topics of a request; one in neither collection is unclear, which is no evidence."""

    cluster_id: str
    topics: tuple[Topic, ...]
    #: Requested by id, answered UNKNOWN_TOPIC_ID.
    unknown_ids: frozenset[bytes]


class MetadataClient:
    """One connection to any broker of the cluster, opened when needed and opened elsewhere when it broke."""

    def __init__(
        self,
        options: ConnectionOptions,
        *,
        timeout_ms: int,
        topics_per_request_max: int = TOPICS_PER_REQUEST_MAX,
        random: Random,
    ) -> None:
        """Describe the cluster; nothing is connected before the first request.

        Args:
            options: how to connect.
            timeout_ms: bound of connecting, and of each answer.
            topics_per_request_max: more topics go into several requests.
            random: chooses among the brokers.
        """
        self._options = options
        self._timeout_ms = timeout_ms
        self._topics_per_request_max = topics_per_request_max
        self._random = random
        self._connection: BrokerConnection | None = None
        #: Requests that need a connection at once open one between them.
        self._connecting: asyncio.Task[BrokerConnection] | None = None
        #: Calls in flight.
        self._calls = 0
        #: Brokers to be tried, the next one last.
        self._untried: list[Address] = []
        #: The brokers named by the last answer that names any; empty before it.
        self.brokers: tuple[Address, ...] = ()

    async def query_ids(self, topic_ids: Collection[bytes]) -> TopicAnswers:
        """Request topics by their 16-byte ids; without any, the answer still names the cluster.

        Reserved ids name no topic, and are left out: Kafka refuses a whole request because of one.

        Raises:
            ConnectionFailed: there is no answer; the next request goes to another broker.
        """
        reserved = RESERVED_IDS.intersection(topic_ids)
        answers = await self._request([topic_by_id(topic_id) for topic_id in topic_ids if topic_id not in reserved])
        return answers._replace(unknown_ids=answers.unknown_ids | reserved)

    async def query_names(self, names: Iterable[str]) -> Mapping[str, Topic]:
        """Request topics by name, see `is_topic_name`; missing ones are left out. Nothing is created by that.

        Raises:
            ConnectionFailed: there is no answer.
        """
        answers = await self._request([topic_by_name(name) for name in names])
        return {topic.name: topic for topic in answers.topics}

    async def is_known_everywhere(self, topic_id: bytes, partition_count: int) -> bool:
        """Tell whether every broker knows this topic, all of its partitions and a leader for each.

        Raises:
            ConnectionFailed: a broker gave no answer.
        """
        await self.query_ids([topic_id])
        for address in self.brokers:
            request = make_request([topic_by_id(topic_id)])
            response = await exchange_with(address, self._options, self._timeout_ms, request, MetadataResponse)
            answers = _to_answers([response])
            if not any(topic.partition_count == partition_count and topic.is_led for topic in answers.topics):
                return False
        return bool(self.brokers)

    async def topic_ids(self, name: str) -> Mapping[Address, bytes | None]:
        """Return the id that each broker has for the topic of a name, None: it knows no such topic. All are queried at once.

        Those that do not answer, or whose ACLs do not let them say, are left out.
        Brokers that the answers name are waited for until their time is over, any other bootstrap address not for long: it may be gone.

        Raises:
            ConnectionFailed: no broker said anything about the name.
        """

        async def query(address: Address) -> MetadataResponse | None:
            with suppress(ConnectionFailed):
                request = make_request([topic_by_name(name)])
                return await exchange_with(address, self._options, self._timeout_ms, request, MetadataResponse)
            return None

        queries: dict[Address, asyncio.Task[MetadataResponse | None]] = {}
        answers: dict[Address, MetadataResponse] = {}
        wanted = {*self.brokers, *self._options.bootstrap}
        try:
            while not all(address in queries and queries[address].done() for address in wanted):
                for address in wanted.difference(queries):
                    queries[address] = asyncio.create_task(query(address), name="holdfast-topic-ids")
                done, _ = await asyncio.wait(queries.values(), timeout=PATIENCE_S)
                found = {address: task.result() for address, task in queries.items() if task in done}
                answers = {address: answer for address, answer in found.items() if answer is not None}
                named = {(broker.host, int(broker.port)) for answer in answers.values() for broker in answer.brokers}
                wanted = named or wanted
        finally:
            for task in queries.values():
                task.cancel()
        ids: dict[Address, bytes | None] = {}
        for address, answer in answers.items():
            for topic in answer.topics:
                if int(topic.error_code) == ErrorCode.NONE and topic.topic_id:
                    ids[address] = topic.topic_id.bytes
                elif int(topic.error_code) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    ids[address] = None
        if not ids:
            raise ConnectionFailed(f"no broker said which topic {name} is")
        return ids

    def move_on(self) -> None:
        """Go to another broker from the next request on, unless one is in flight."""
        if not self._calls:
            self.close()

    def close(self) -> None:
        """Close the connection; requests in flight fail, and a later one connects again."""
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _request(self, topics: list[MetadataRequestTopic]) -> TopicAnswers:
        self._calls += 1
        try:
            size = self._topics_per_request_max
            responses = [
                await self._request_some(topics[start : start + size]) for start in range(0, max(1, len(topics)), size)
            ]
        finally:
            self._calls -= 1
        # One that stops may name none, see `leaders.py`.
        self.brokers = tuple((broker.host, broker.port) for broker in responses[-1].brokers) or self.brokers
        return _to_answers(responses)

    async def _request_some(self, topics: list[MetadataRequestTopic]) -> MetadataResponse:
        """Send a request over the connection that is there; where that turns out to be dead, once more over another."""
        kept = self._connection
        if kept is not None and kept.is_open:
            try:
                return await self._request_over(kept, topics)
            except ConnectionFailed:
                pass  # a broker that was restarted, say; nothing is waited for in here
        return await self._request_over(await self._connected(), topics)

    async def _request_over(self, connection: BrokerConnection, topics: list[MetadataRequestTopic]) -> MetadataResponse:
        try:
            response = await exchange(connection, make_request(topics), MetadataResponse)
            if not response.cluster_id:
                raise RequestRefused("a broker refused the request, or does not know its cluster yet")
        except ConnectionFailed:
            connection.close()
            raise
        return response

    async def _connected(self) -> BrokerConnection:
        if self._connection is not None and self._connection.is_open:
            return self._connection
        if self._connecting is None:
            self._connecting = asyncio.create_task(self._connect(), name="holdfast-metadata-connecting")
        connecting = self._connecting
        try:
            # Shielded, because others may wait for it too.
            return await asyncio.shield(connecting)
        except asyncio.CancelledError:
            if connecting.cancelled() and self._connecting is not connecting:
                raise ConnectionFailed("the connection was closed while it was opened") from None
            raise

    async def _connect(self) -> BrokerConnection:
        """Try each broker once, those that were tried before come last, until one can be reached.

        One after the other and not as `first_answer` does: the connection is kept, so a second one beside it would be in the way.
        """
        others = sorted({*self.brokers, *self._options.bootstrap}.difference(self._untried))
        self._random.shuffle(others)
        self._untried[:0] = others
        failures: list[ConnectionFailed] = []
        try:
            async with asyncio.timeout(self._timeout_ms / 1_000):
                while self._untried:
                    address = self._untried.pop()
                    try:
                        self._connection = await BrokerConnection.open(address, self._options, self._timeout_ms)
                    except ConnectionFailed as failure:
                        failures.append(failure)
                    else:
                        return self._connection
        except TimeoutError:
            failures.append(ConnectionFailed(f"no broker was reached within {self._timeout_ms} ms"))
        finally:
            if self._connecting is asyncio.current_task():
                self._connecting = None
        raise all_failed(failures)


def is_topic_name(name: str) -> bool:
    """Tell whether Kafka allows a topic of this name."""
    return _TOPIC_NAME.fullmatch(name) is not None and name not in (".", "..")


def make_request(topics: Iterable[MetadataRequestTopic]) -> MetadataRequest:
    """Return a request for some topics, none of which is created by it."""
    return MetadataRequest(
        topics=tuple(topics), allow_auto_topic_creation=False, include_topic_authorized_operations=False
    )


def topic_by_id(topic_id: bytes) -> MetadataRequestTopic:
    """Name a topic by its 16-byte id."""
    return MetadataRequestTopic(topic_id=UUID(bytes=topic_id), name=None)


def topic_by_name(name: str) -> MetadataRequestTopic:
    """Name a topic by its name."""
    return MetadataRequestTopic(topic_id=None, name=TopicName(name))


def _to_answers(responses: list[MetadataResponse]) -> TopicAnswers:
    cluster_ids = {response.cluster_id for response in responses}
    if len(cluster_ids) != 1 or not (cluster_id := cluster_ids.pop()):
        raise ConnectionFailed("the answers do not agree on one cluster id")
    found = [topic for response in responses for topic in response.topics]
    return TopicAnswers(
        cluster_id=cluster_id,
        topics=tuple(_to_topic(topic) for topic in found if int(topic.error_code) == ErrorCode.NONE),
        unknown_ids=frozenset(
            topic.topic_id.bytes
            for topic in found
            if topic.topic_id and int(topic.error_code) == ErrorCode.UNKNOWN_TOPIC_ID
        ),
    )


def _to_topic(topic: MetadataResponseTopic) -> Topic:
    return Topic(
        topic_id=topic.topic_id.bytes if topic.topic_id else bytes(16),
        name=topic.name or "",
        partition_count=len(topic.partitions),
        is_led=all(
            int(partition.error_code) == ErrorCode.NONE and partition.leader_id >= 0 for partition in topic.partitions
        ),
    )
