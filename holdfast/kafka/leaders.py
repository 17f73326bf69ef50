"""Who leads which partition of the state topic, and open connections to them.

A broker that was frozen or cut off names leaders of the past, and such a leader answers with an end of its log of the past.
So of one topic no leader epoch is taken that is lower than one seen before, and each request goes to another broker first.
Nor does it know that its topic was deleted and another one has the name now, whose leader epochs begin again: who knows by its
id which topic is meant believes a broker that names another one only when all brokers do.
Here it is learned that a leader has moved; in `runtime/kafka_log`, `fetcher.py` gives a log partition to the loop of its new
leader, `sender.py` sends to it what the old one refused, and `list_offsets.py` asks it for the ends that are awaited.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from math import inf
from typing import NamedTuple

from kio.schema.metadata.v12.response import MetadataResponse

from holdfast.kafka.addresses import format_address
from holdfast.kafka.brokers.broker_connection import BrokerConnection
from holdfast.kafka.connection_options import Address, ConnectionOptions
from holdfast.kafka.errors import ConnectionFailed, UnreadableAnswer
from holdfast.kafka.exchange import exchange, exchange_with, first_answer
from holdfast.kafka.metadata import make_request, topic_by_name
from holdfast.kafka.protocol.error_codes import ErrorCode

#: Least time between two requests for the leaders.
REFRESH_INTERVAL_S = 0.1

#: In place of the id of a topic that a broker does not know.
NO_TOPIC = bytes(16)


class Leader(NamedTuple):
    """Who leads a partition."""

    broker_id: int
    #: Its leader epoch.
    epoch: int


class Leaders(NamedTuple):
    """The brokers, and who leads each partition of the topic, as one of them knows it."""

    brokers: dict[int, Address]
    #: Zeros: there is no such topic.
    topic_id: bytes
    #: By partition; without those that have no leader.
    leaders: dict[int, Leader]
    #: Of all partitions.
    leader_epochs: dict[int, int]
    #: The broker does not say whether there is such a topic, because its ACLs do not let it.
    is_hidden: bool = False
    #: The broker says that there is no such topic.
    is_missing: bool = False
    #: As the broker names its cluster; empty where it does not.
    cluster_id: str = ""


class Brokers:
    """Leaders of one topic's partitions; connections by broker and purpose, so that a waiting fetch delays nothing else."""

    def __init__(self, options: ConnectionOptions, topic: str, timeout_ms: int, wanted_id: bytes = NO_TOPIC) -> None:
        """Prepare.

        Args:
            options: how to connect.
            topic: its name.
            timeout_ms: bound of each query.
            wanted_id: of the topic that is meant; zeros: whichever has the name.
        """
        self.topic = topic
        #: See `__init__`.
        self.wanted_id = wanted_id
        #: By partition.
        self.leaders: dict[int, Leader] = {}
        #: Some broker has named the leaders.
        self.is_known = False
        #: The broker that answered last does not let this client know whether there is such a topic.
        self.is_hidden = False
        #: It says that there is no such topic.
        self.is_missing = False
        #: Of the cluster, and of the topic, as it says; empty, and zeros: it says none.
        self.cluster_id, self.topic_id = "", NO_TOPIC
        self._topic_id = NO_TOPIC
        #: The highest seen of this topic, by partition.
        self._leader_epochs: dict[int, int] = {}
        #: By the loop's clock: when the last query for the leaders was answered, or failed.
        self._answered_s = -inf
        #: Requests for the leaders so far.
        self._requests = 0
        #: By broker.
        self._confirmed_s: dict[int, float] = {}
        self._options = options
        self._timeout_ms = timeout_ms
        self._addresses: dict[int, Address] = {}
        self._connections: dict[tuple[int, str], BrokerConnection] = {}
        self._opening: dict[tuple[int, str], asyncio.Future[BrokerConnection]] = {}
        self._refresh: asyncio.Task[None] | None = None
        self._listeners: list[Callable[[], None]] = []
        self._is_closed = False
        #: Who brokers take us for.
        self.who = options.who

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call a listener after every refresh."""
        self._listeners.append(listener)

    @property
    def has_topic(self) -> bool:
        """Whether some broker has known the topic."""
        return self._topic_id != NO_TOPIC

    async def refresh(self) -> None:
        """Look up who leads; callers meanwhile share one request. Failures leave what was known.

        Raises:
            ConnectionFailed: no broker answered, or none that knows what is known already.
        """
        if self._refresh is None or self._refresh.done():
            self._refresh = asyncio.create_task(self._look_up(), name="holdfast-leaders")
        await asyncio.shield(self._refresh)

    def confirmed_s(self, broker_id: int) -> float:
        """Return when the newest request left, by the loop's clock, in whose answer another broker than this one named it.

        In a cluster of one there is no other.
        """
        return self._confirmed_s.get(broker_id, -inf)

    async def connection(self, broker_id: int, purpose: str) -> BrokerConnection:
        """Return an open connection.

        Raises:
            ConnectionFailed: the broker is unknown or cannot be reached.
        """
        place = (broker_id, purpose)
        connection = self._connections.get(place)
        if connection is not None and connection.is_open:
            return connection
        opening = self._opening.get(place)
        if opening is None:
            opening = asyncio.ensure_future(self._open(place))
            self._opening[place] = opening
            opening.add_done_callback(lambda _: self._opening.pop(place, None))
        return await asyncio.shield(opening)

    @property
    def addresses(self) -> Mapping[int, Address]:
        """Where the brokers are, by their ids, as the last answer that names any says."""
        return self._addresses

    async def query_one(self, broker_id: int, purpose: str) -> None:
        """Send one broker a request, only to hear from it.

        Raises:
            ConnectionFailed: the broker is unknown or does not answer.
        """
        connection = await self.connection(broker_id, purpose)
        await exchange(connection, make_request([topic_by_name(self.topic)]), MetadataResponse)

    def open_connection(self, broker_id: int, purpose: str) -> BrokerConnection | None:
        """Return a connection that is open already, or None."""
        connection = self._connections.get((broker_id, purpose))
        return connection if connection is not None and connection.is_open else None

    def close(self) -> None:
        """Close all connections; requests in flight fail."""
        self._is_closed = True
        if self._refresh is not None:
            self._refresh.cancel()
        for opening in self._opening.values():
            opening.cancel()
        for connection in self._connections.values():
            connection.close()

    async def _open(self, place: tuple[int, str]) -> BrokerConnection:
        address = self._addresses.get(place[0])
        if address is None or self._is_closed:
            raise ConnectionFailed(f"broker {place[0]} is not known")
        connection = await BrokerConnection.open(address, self._options, self._timeout_ms)
        self._connections[place] = connection
        return connection

    async def _look_up(self) -> None:
        loop = asyncio.get_running_loop()
        # The pause comes before the next query, not behind this answer: the first callers of a start wait for no pause.
        await asyncio.sleep(self._answered_s + REFRESH_INTERVAL_S - loop.time())
        began_s = loop.time()
        try:
            address, answer = await self._first_answer()
        finally:
            self._answered_s = loop.time()
        if answer.topic_id not in (NO_TOPIC, self._topic_id):
            self._topic_id, self._leader_epochs = answer.topic_id, {}
        self._leader_epochs |= answer.leader_epochs
        # A broker that stops may name none at its end, not even itself; those known before are then asked on, and missed.
        self._addresses = answer.brokers or self._addresses
        self.leaders, self.is_known, self.is_hidden = answer.leaders, True, answer.is_hidden
        self.is_missing, self.cluster_id, self.topic_id = answer.is_missing, answer.cluster_id, answer.topic_id
        is_one, is_known = len(answer.brokers) == 1, address in answer.brokers.values()
        for broker_id, place in answer.brokers.items():
            if is_one or (is_known and place != address):
                self._confirmed_s[broker_id] = began_s
        for listener in self._listeners:
            listener()

    async def _first_answer(self) -> tuple[Address, Leaders]:
        addresses = deque(dict.fromkeys((*self._addresses.values(), *self._options.bootstrap)))
        addresses.rotate(-self._requests)
        self._requests += 1
        about_another: dict[Address, Leaders] = {}
        query = partial(self._query, about_another)
        try:
            return await first_answer(addresses, query)
        except ConnectionFailed:
            if not about_another:
                raise
            # Those that are known under no bootstrap address were not queried yet.
            named = {place for answer in about_another.values() for place in answer.brokers.values()}
            if unqueried := named.difference(addresses):
                with suppress(ConnectionFailed):
                    return await first_answer(sorted(unqueried), query)
            for address, answer in about_another.items():
                if self._is_unanimous(answer, about_another) and not self._is_outdated(answer):
                    return address, answer
            raise

    async def _query(self, about_another: dict[Address, Leaders], address: Address) -> tuple[Address, Leaders]:
        """Return the answer of one broker; one about another topic than the wanted one is kept in `about_another`.

        Raises:
            ConnectionFailed: there is no answer that can be used.
        """
        request = make_request([topic_by_name(self.topic)])
        answer = read_leaders(await exchange_with(address, self._options, self._timeout_ms, request, MetadataResponse))
        if NO_TOPIC not in (self.wanted_id, answer.topic_id) and answer.topic_id != self.wanted_id:
            about_another[address] = answer
            raise ConnectionFailed(f"{format_address(*address)} means another topic by the name {self.topic}")
        if self._is_outdated(answer):
            raise ConnectionFailed(f"{format_address(*address)} has not learned yet who leads now")
        return address, answer

    @staticmethod
    def _is_unanimous(answer: Leaders, about_another: Mapping[Address, Leaders]) -> bool:
        """Tell whether each broker that an answer names has named the same topic; it names one at least."""
        found = [about_another.get(place) for place in answer.brokers.values()]
        return bool(found) and all(other is not None and other.topic_id == answer.topic_id for other in found)

    def _is_outdated(self, answer: Leaders) -> bool:
        known = self._leader_epochs
        return answer.topic_id == self._topic_id and any(
            epoch < known.get(partition, epoch) for partition, epoch in answer.leader_epochs.items()
        )


def read_leaders(response: MetadataResponse) -> Leaders:
    """Return what an answer says about its one topic.

    Raises:
        UnreadableAnswer: it is about none, or about several.
    """
    if len(response.topics) != 1:
        raise UnreadableAnswer(f"a broker was queried for one topic and answered for {len(response.topics)}")
    (topic,) = response.topics
    brokers = {int(broker.node_id): (broker.host, int(broker.port)) for broker in response.brokers}
    return Leaders(
        brokers,
        topic.topic_id.bytes if topic.topic_id else NO_TOPIC,
        {
            int(each.partition_index): Leader(int(each.leader_id), int(each.leader_epoch))
            for each in topic.partitions
            if each.leader_id in brokers
        },
        {int(each.partition_index): int(each.leader_epoch) for each in topic.partitions},
        int(topic.error_code) == ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        int(topic.error_code) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        response.cluster_id or "",
    )
