"""Topics by ids and by names, over one connection that is kept.

librdkafka queries by name only, and a name says nothing about a topic that was deleted and recreated.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import partial
from random import Random
from typing import Final, NamedTuple, TypeVar

from holdfast.kafka.brokers.broker_connection import BrokerConnection
from holdfast.kafka.cluster import Cluster
from holdfast.kafka.connection_options import Address, ConnectionOptions
from holdfast.kafka.errors import ConnectionFailed, UnreadableAnswer, all_failed
from holdfast.kafka.exchange import exchange, to_bytes
from holdfast.kafka.metadata import (
    TOPICS_PER_REQUEST_MAX,
    Answer,
    SummaryReader,
    TopicRef,
    TopicSummary,
    make_request,
    query,
)
from holdfast.kafka.protocol.primitives import MalformedBody

A = TypeVar("A", Answer, "Summaries")

#: Topics and partitions of a listing that are read in one turn of the loop, about two milliseconds.
_ENTRIES_PER_TURN: Final = 500


class RequestRefused(ConnectionFailed):
    """A broker answered without what was requested: something in the request may be the reason."""


class Topic(NamedTuple):
    """A topic that exists."""

    topic_id: bytes
    name: str
    partition_count: int


class TopicAnswers(NamedTuple):
    """Topics of a request as a broker knows them; one in neither collection is unclear, which is no evidence."""

    cluster_id: str
    topics: tuple[Topic, ...]
    #: Requested by id, answered UNKNOWN_TOPIC_ID.
    unknown_ids: frozenset[bytes]


class Summaries(NamedTuple):
    """Topics as one broker knows them."""

    cluster_id: str
    topics: tuple[TopicSummary, ...]


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
        #: The brokers, and topics as each of them knows them; its queries go over connections of their own.
        self.cluster = Cluster(options, timeout_ms, may_lack_ids=False)
        self.topic_ids = self.cluster.topic_ids
        self.is_known_everywhere = self.cluster.is_known_everywhere
        self._topics_per_request_max = topics_per_request_max
        self._random = random
        self._kept: BrokerConnection | None = None
        #: Requests that need a connection at once open one between them.
        self._connecting: asyncio.Task[BrokerConnection] | None = None
        #: Calls in flight.
        self._calls = 0
        #: Brokers to be tried, the next one last.
        self._untried: list[Address] = []

    @property
    def addresses(self) -> Mapping[int, Address]:
        """Return the addresses of the brokers, by their ids."""
        return self.cluster.addresses

    async def query_ids(self, topic_ids: Collection[bytes]) -> TopicAnswers:
        """Request topics by their 16-byte ids; without any, the answer still names the cluster.

        Raises:
            ConnectionFailed: there is no answer; the next request goes to another broker.
        """
        return await self._request(list(topic_ids))

    async def query_names(self, names: Iterable[str]) -> Mapping[str, Topic]:
        """Request topics by name, see `is_topic_name`; missing ones are left out. Nothing is created by that.

        Raises:
            ConnectionFailed: there is no answer.
        """
        answers = await self._request(list(names))
        return {topic.name: topic for topic in answers.topics}

    async def summarize(self, topics: Collection[TopicRef] | None) -> Summaries:
        """Request topics, at most as many as go into one request and all by id or all by name; None: all that there are.

        Raises:
            ConnectionFailed: there is no answer.
        """
        request = make_request(topics)

        async def ask(connection: BrokerConnection) -> Summaries:
            body = await connection.exchange(
                request.__api_key__, request.__version__, to_bytes(request), is_flexible=request.__flexible__
            )
            try:
                return await _read_summaries(body)
            except MalformedBody as error:
                raise UnreadableAnswer(f"a broker sent an answer that cannot be read: {error}") from error

        self._calls += 1
        try:
            return await self._send(ask)
        finally:
            self._calls -= 1

    def move_on(self) -> None:
        """Go to another broker from the next request on, unless one is in flight."""
        if not self._calls:
            self.close()

    def close(self) -> None:
        """Close the connection; requests in flight fail, and a later one connects again."""
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    async def _request(self, topics: list[TopicRef]) -> TopicAnswers:
        self._calls += 1
        try:
            size = self._topics_per_request_max
            answers = [
                await self._request_some(topics[start : start + size]) for start in range(0, max(1, len(topics)), size)
            ]
        finally:
            self._calls -= 1
        self.cluster.addresses = answers[-1].brokers or self.addresses
        return _to_answers(answers)

    async def _request_some(self, topics: list[TopicRef]) -> Answer:
        return await self._send(lambda connection: query(partial(exchange, connection), topics))

    async def _send(self, ask: Callable[[BrokerConnection], Awaitable[A]]) -> A:
        """Send a request over the connection that is there; where that turns out to be dead, once more over another."""
        kept = self._kept
        if kept is not None and kept.is_open:
            try:
                return await self._send_over(kept, ask)
            except ConnectionFailed:
                pass  # a broker that was restarted, say; nothing is waited for in here
        return await self._send_over(await self._connected(), ask)

    async def _send_over(self, connection: BrokerConnection, ask: Callable[[BrokerConnection], Awaitable[A]]) -> A:
        try:
            answer = await ask(connection)
            if not answer.cluster_id:
                raise RequestRefused("a broker refused the request, or does not know its cluster yet")
        except ConnectionFailed:
            connection.close()
            raise
        return answer

    async def _connected(self) -> BrokerConnection:
        if self._kept is not None and self._kept.is_open:
            return self._kept
        if self._connecting is None:
            self._connecting = asyncio.create_task(self._connect(), name="holdfast-metadata-connecting")
        connecting = self._connecting
        try:
            # Shielded, because others may wait for it too.
            return await asyncio.shield(connecting)
        except asyncio.CancelledError:
            # A caller that is cancelled itself ends so, also where the opening was cancelled with it.
            caller = asyncio.current_task()
            is_closed = connecting.cancelled() and self._connecting is not connecting
            if is_closed and not (caller and caller.cancelling()):
                raise ConnectionFailed("the connection was closed while it was opened") from None
            raise

    async def _connect(self) -> BrokerConnection:
        """Try each broker once, those that were tried before come last, until one can be reached.

        One after the other and not as `first_answer` does: the connection is kept, so a second one would have to be closed.
        """
        others = sorted({*self.addresses.values(), *self._options.bootstrap}.difference(self._untried))
        self._random.shuffle(others)
        self._untried[:0] = others
        failures: list[ConnectionFailed] = []
        try:
            async with asyncio.timeout(self._timeout_ms / 1_000):
                while self._untried:
                    address = self._untried.pop()
                    try:
                        self._kept = await self.cluster.connect(address)
                    except ConnectionFailed as failure:
                        failures.append(failure)
                    else:
                        return self._kept
        except TimeoutError:
            failures.append(ConnectionFailed(f"no broker was reached within {self._timeout_ms} ms"))
        finally:
            if self._connecting is asyncio.current_task():
                self._connecting = None
        raise all_failed(failures)


def _to_answers(answers: list[Answer]) -> TopicAnswers:
    cluster_ids = {answer.cluster_id for answer in answers}
    if len(cluster_ids) != 1 or not (cluster_id := cluster_ids.pop()):
        raise ConnectionFailed("the answers do not agree on one cluster id")
    views = [(topic, view) for answer in answers for topic, view in answer.topics.items()]
    return TopicAnswers(
        cluster_id=cluster_id,
        topics=tuple(
            Topic(view.topic_id, view.name, len(view.leader_epochs)) for _, view in views if not view.error_code
        ),
        unknown_ids=frozenset(topic for topic, view in views if isinstance(topic, bytes) and view.is_missing),
    )


async def _read_summaries(body: bytes) -> Summaries:
    reader, topics, room = SummaryReader(body), [], _ENTRIES_PER_TURN
    for topic in reader:
        topics.append(topic)
        room -= 1 + topic.partition_count
        if room <= 0:
            await asyncio.sleep(0)
            room = _ENTRIES_PER_TURN
    return Summaries(reader.cluster_id, tuple(topics))
