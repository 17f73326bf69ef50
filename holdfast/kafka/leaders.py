"""Who leads which partition of the state topic, and open connections to them.

A broker that was frozen or cut off names leaders of the past, and such a leader, asked for its log's end, tells one of the past.
So of one topic no leader epoch is taken that is lower than one seen before, and each question goes to another broker first.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping
from math import inf
from typing import Any, TypeVar

from holdfast.kafka.connection import Address, BrokerConnection, ConnectionFailed, ConnectionOptions
from holdfast.kafka.protocol import requests as frames
from holdfast.kafka.protocol.requests import Leaders

T = TypeVar("T")

NOT_LEADER_OR_FOLLOWER = 6
#: Errors that say: ask who leads, and try again. The broker did nothing.
STALE_LEADER = frozenset({3, 5, NOT_LEADER_OR_FOLLOWER, 9, 56, 74, 75, 78, 100})

#: Least time between two questions who leads.
REFRESH_INTERVAL_S = 0.1

#: In place of the id of a topic that a broker does not know.
NO_TOPIC = bytes(16)

#: How long the answer of one broker is waited for before another is asked as well.
PATIENCE_S = 0.5


async def first_answer(addresses: Iterable[Address], ask: Callable[[Address], Coroutine[Any, Any, T]]) -> T:
    """Ask one broker after the other, and the next one as well when the last is silent for a while.

    Raises:
        ConnectionFailed: none of them gave an answer that could be read; says why of each.
    """
    untried = deque(addresses)
    asking: set[asyncio.Task[T]] = set()
    failures: list[str] = []
    try:
        while untried or asking:
            if untried:
                asking.add(asyncio.create_task(ask(untried.popleft()), name="holdfast-first-answer"))
            patience_s = PATIENCE_S if untried else None
            done, asking = await asyncio.wait(asking, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
            # An answer that cannot be read is a failure, too: another broker may give a better one.
            failures += [str(task.exception()) for task in done if task.exception() is not None]
            for task in done:
                if task.exception() is None:
                    return task.result()
        raise ConnectionFailed("; ".join(failures))
    finally:
        for task in asking:
            task.cancel()


class Brokers:
    """Leaders of one topic's partitions; connections by broker and purpose, so that a waiting fetch holds nobody up."""

    def __init__(self, options: ConnectionOptions, topic: str, timeout_ms: int) -> None:
        self.topic = topic
        self.leaders: dict[int, tuple[int, int]] = {}  #: partition to (broker id, leader epoch)
        self.is_known = False  #: some broker has told who leads
        self._topic_id = NO_TOPIC
        self._leader_epochs: dict[int, int] = {}  #: the highest seen of this topic, by partition
        self._questions = 0  #: asked so far
        self._confirmed_s: dict[int, float] = {}  #: by broker
        self._options = options
        self._timeout_ms = timeout_ms
        self._addresses: dict[int, Address] = {}
        self._connections: dict[tuple[int, str], BrokerConnection] = {}
        self._opening: dict[tuple[int, str], asyncio.Future[BrokerConnection]] = {}
        self._refresh: asyncio.Task[None] | None = None
        self._listeners: list[Callable[[], None]] = []
        self._is_closed = False

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call a listener after every refresh."""
        self._listeners.append(listener)

    async def refresh(self) -> None:
        """Ask who leads; callers meanwhile share one question. Failures leave what was known.

        Raises:
            ConnectionFailed: no broker answered, or none that knows what is known already.
        """
        if self._refresh is None or self._refresh.done():
            self._refresh = asyncio.create_task(self._ask_leaders(), name="holdfast-leaders")
        await asyncio.shield(self._refresh)

    def confirmed_s(self, broker_id: int) -> float:
        """Return when the newest question left, by the loop's clock, in whose answer another broker than this one named it.

        In a cluster of one there is no other to ask.
        """
        return self._confirmed_s.get(broker_id, -inf)

    async def connection(self, broker_id: int, purpose: str) -> BrokerConnection:
        """Return an open connection.

        Raises:
            ConnectionFailed: the broker is unknown or cannot be reached.
        """
        place = (broker_id, purpose)
        held = self._connections.get(place)
        if held is not None and held.is_open:
            return held
        opening = self._opening.get(place)
        if opening is None:
            opening = asyncio.ensure_future(self._open(place))
            self._opening[place] = opening
            opening.add_done_callback(lambda _: self._opening.pop(place, None))
        return await asyncio.shield(opening)

    @property
    def addresses(self) -> Mapping[int, Address]:
        """Where the brokers are, by their ids, as last told."""
        return self._addresses

    async def ask_one(self, broker_id: int, purpose: str) -> None:
        """Ask one broker something, to hear from it.

        Raises:
            ConnectionFailed: the broker is unknown or does not answer.
        """
        api, version = frames.METADATA
        connection = await self.connection(broker_id, purpose)
        await connection.exchange(api, version, frames.encode_metadata(self.topic), is_flexible=True)

    def open_connection(self, broker_id: int, purpose: str) -> BrokerConnection | None:
        """Return a connection that is open already, or None."""
        held = self._connections.get((broker_id, purpose))
        return held if held is not None and held.is_open else None

    def close(self) -> None:
        """Hang up on everybody."""
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

    async def _ask_leaders(self) -> None:
        began_s = asyncio.get_running_loop().time()
        try:
            address, answer = await self._first_answer()
        except ConnectionFailed:
            await asyncio.sleep(REFRESH_INTERVAL_S)
            raise
        if answer.topic_id not in (NO_TOPIC, self._topic_id):
            self._topic_id, self._leader_epochs = answer.topic_id, {}
        self._leader_epochs |= answer.leader_epochs
        self._addresses = answer.brokers
        self.leaders, self.is_known = answer.leaders, True
        is_one, is_known = len(answer.brokers) == 1, address in answer.brokers.values()
        for broker_id, place in answer.brokers.items():
            if is_one or (is_known and place != address):
                self._confirmed_s[broker_id] = began_s
        for listener in self._listeners:
            listener()
        await asyncio.sleep(REFRESH_INTERVAL_S)

    async def _first_answer(self) -> tuple[Address, Leaders]:
        addresses = deque(dict.fromkeys((*self._addresses.values(), *self._options.bootstrap)))
        addresses.rotate(-self._questions)
        self._questions += 1
        return await first_answer(addresses, self._ask)

    async def _ask(self, address: Address) -> tuple[Address, Leaders]:
        api, version = frames.METADATA
        connection = await BrokerConnection.open(address, self._options, self._timeout_ms)
        try:
            body = await connection.exchange(api, version, frames.encode_metadata(self.topic), is_flexible=True)
        finally:
            connection.close()
        answer = frames.decode_metadata(body)
        if self._is_outdated(answer):
            raise ConnectionFailed(f"{address[0]}:{address[1]} has not learned yet who leads now")
        return address, answer

    def _is_outdated(self, answer: Leaders) -> bool:
        known = self._leader_epochs
        return answer.topic_id == self._topic_id and any(
            epoch < known.get(partition, epoch) for partition, epoch in answer.leader_epochs.items()
        )
