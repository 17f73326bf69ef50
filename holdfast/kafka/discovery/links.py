"""Connections to the servers of one cluster: one each, opened when first needed and again when it ended, and calls over them.

The servers are those that the caller names and those that a server named in its answer to Metadata: so a client goes on when all that it
began with are gone. They stand at the beginning of such an answer, whose rest is not read.

Source: Apache Kafka's message schemas MetadataRequest and MetadataResponse, versions 1 to 13.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from math import inf
from typing import Final, Generic, NamedTuple, TypeVar

from holdfast.kafka.addresses import Address
from holdfast.kafka.discovery.calls import Answer, Call, Connection, I, Sender, V
from holdfast.kafka.errors import ConnectionFailed, all_failed
from holdfast.kafka.protocol import api_keys
from holdfast.kafka.protocol.body import BodyReader

C = TypeVar("C", bound=Connection)

#: How long in ms a server may be silent before another is queried as well.
OTHER_SERVER_AFTER_MS: Final = 500
#: Age in ms of what is known of the servers, from which on they are looked up again. Kafka's default of `metadata.max.age.ms`.
MAX_AGE_MS: Final = 300_000

_THROTTLE_FROM: Final = 3
_AUTO_CREATION_FROM: Final = 4
_TOPIC_OPERATIONS_FROM: Final = 8
_CLUSTER_OPERATIONS: Final = range(8, 11)
_FLEXIBLE_FROM: Final = 9

#: The one item of a call of Metadata: all servers.
ALL: Final = "servers"


class Servers(NamedTuple):
    """The servers of a cluster, as one of them knows them."""

    addresses: tuple[Address, ...] = ()
    error_code: int = 0


def _encode(version: int, _: Sequence[str]) -> bytes:
    is_flexible = version >= _FLEXIBLE_FROM
    no_topics = b"\x01" if is_flexible else bytes(4)
    flags = (version >= _AUTO_CREATION_FROM) + (version in _CLUSTER_OPERATIONS) + (version >= _TOPIC_OPERATIONS_FROM)
    return no_topics + bytes(flags) + bytes(is_flexible)


def _decode(version: int, items: Sequence[str], body: bytes) -> Answer[str, Servers]:
    reader = BodyReader(body, 0, is_flexible=version >= _FLEXIBLE_FROM)
    throttle_time_ms = reader.int32("ThrottleTimeMs") if version >= _THROTTLE_FROM else 0
    addresses = []
    for _ in range(reader.count("Brokers")):
        reader.int32("Brokers.NodeId")
        addresses.append((reader.string("Brokers.Host"), reader.int32("Brokers.Port")))
        reader.nullable_string("Brokers.Rack")
        reader.tags("Brokers")
    return Answer(throttle_time_ms, {items[0]: Servers(tuple(addresses))})


METADATA: Final[Call[str, Servers]] = Call(
    api_key=api_keys.METADATA,
    name="Metadata",
    versions=(1, 13),
    flexible_from=_FLEXIBLE_FROM,
    batched_from=None,
    encode=_encode,
    decode=_decode,
    refuse=lambda error_code, _: Servers((), error_code),
    error_of=lambda servers: servers.error_code,
)


class Links(Generic[C]):
    """The connections of one client to one cluster; see the module.

    Attributes:
        bootstrap: servers that are known from the beginning.
        learned: servers that were named by the last server to say so.
    """

    def __init__(
        self,
        bootstrap: Iterable[Address],
        open_one: Callable[[Address], Awaitable[C]],
        sender: Sender,
        *,
        max_age_ms: int = MAX_AGE_MS,
    ) -> None:
        """Describe the cluster; nothing is connected before the first call.

        Args:
            bootstrap: servers to begin with.
            open_one: opens a connection, or raises ConnectionFailed.
            sender: makes the calls.
            max_age_ms: age from which on the servers are looked up again, over the connection that is used next.
        """
        self.bootstrap = tuple(dict.fromkeys(bootstrap))
        self.learned: tuple[Address, ...] = ()
        self.sender = sender
        self._open_one = open_one
        self._max_age_s = max_age_ms / 1_000
        #: By the loop's clock.
        self._learned_s = -inf
        #: Servers that did not answer, or whose answer led nowhere, the longest ago first.
        self._doubted: dict[Address, None] = {}
        self._connections: dict[Address, C] = {}
        #: So that callers who need the same server at once open one connection.
        self._opening: dict[Address, asyncio.Task[C]] = {}
        self._is_closed = False

    async def to(self, address: Address) -> C:
        """Return an open connection to a server.

        Raises:
            ConnectionFailed: it cannot be opened, or broke at once.
        """
        connection = await self._opened(address)
        now_s = asyncio.get_running_loop().time()
        if now_s - self._learned_s >= self._max_age_s:
            self._learned_s = now_s
            servers = await self.sender.send(address, connection, METADATA, [ALL])
            self.learn(servers[ALL].addresses)
        return connection

    async def call(self, address: Address, call: Call[I, V], items: Sequence[I]) -> dict[I, V]:
        """Make a call to a server, see `Sender.send`.

        Raises:
            ConnectionFailed: it cannot be reached, or gave no answer that can be read.
        """
        return await self.sender.send(address, await self.to(address), call, items)

    def learn(self, addresses: Iterable[Address]) -> None:
        """Take servers that somebody else has heard of; where there are none, what is known stays."""
        self.learned = tuple(addresses) or self.learned

    async def any(self) -> C:
        """Return an open connection to any server that can be reached; while one is silent, the next ones are tried as well.

        Raises:
            ConnectionFailed: none can be reached.
        """
        failures: list[ConnectionFailed] = []
        untried = deque(self.in_turn())
        opening: dict[asyncio.Task[C], Address] = {}
        try:
            while untried or opening:
                if untried:
                    address = untried.popleft()
                    opening[asyncio.create_task(self._opened(address), name="holdfast-any-link")] = address
                patience_s = OTHER_SERVER_AFTER_MS / 1_000 if untried else None
                done, _ = await asyncio.wait(opening, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    address = opening.pop(task)
                    try:
                        await task
                        return await self.to(address)
                    except ConnectionFailed as failure:
                        failures.append(failure)
        finally:
            for task in opening:
                task.cancel()
            # Awaited, for how one ends that nobody looks at would be reported as lost.
            await asyncio.gather(*opening, return_exceptions=True)
        raise all_failed(failures)

    def in_turn(self) -> list[Address]:
        """Return the servers to query: all that are known or connected, the connected ones first.

        Those that were put last come behind all others.
        """
        is_open = {address for address, connection in self._connections.items() if connection.is_open}
        known = dict.fromkeys((*self.bootstrap, *self.learned, *sorted(is_open)))
        first = [address for address in known if address not in self._doubted]
        last = [address for address in self._doubted if address in known]
        return [*sorted(first, key=lambda address: address not in is_open), *last]

    def put_last(self, address: Address) -> None:
        """Query the others first from now on, because this server does not answer or what it said led nowhere."""
        self._doubted.pop(address, None)
        self._doubted[address] = None
        if len(self._doubted) > len(self.bootstrap) + len(self.learned) + len(self._connections):
            del self._doubted[next(iter(self._doubted))]

    def keep(self, addresses: Collection[Address]) -> None:
        """Close the connections to all other servers."""
        for address in self._connections.keys() - addresses:
            self._connections.pop(address).close()

    def close(self) -> None:
        """Close all connections, for good."""
        self._is_closed = True
        for opening in self._opening.values():
            opening.cancel()
        self.keep(())

    async def _opened(self, address: Address) -> C:
        connection = self._connections.get(address)
        if connection is not None and connection.is_open:
            return connection
        opening = self._opening.get(address)
        if opening is None:
            opening = asyncio.create_task(self._open(address), name="holdfast-link")
            self._opening[address] = opening
            opening.add_done_callback(lambda done: self._settle(address, done))
        try:
            # Shielded, because others may wait for it too.
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            # Who is cancelled itself ends so, also where the opening was cancelled with it.
            caller = asyncio.current_task()
            if opening.cancelled() and self._is_closed and not (caller and caller.cancelling()):
                raise ConnectionFailed("The client is closed.") from None
            raise

    async def _open(self, address: Address) -> C:
        if self._is_closed:
            raise ConnectionFailed("The client is closed.")
        return await self._open_one(address)

    def _settle(self, address: Address, done: "asyncio.Task[C]") -> None:
        del self._opening[address]
        # Also asked for where nobody waits any more: what was not looked at would be reported as lost.
        if done.cancelled() or done.exception() is not None:
            return
        for ended in [each for each, connection in self._connections.items() if not connection.is_open]:
            del self._connections[ended]
        self._connections[address] = done.result()
        if self._is_closed:
            self.keep(())
