"""Calls about many items, made in as few requests as the version of a server allows: a table row for each API, and what sends by it.

A row says from which version on one request takes many items, which of them may share a request, and how the answers become one.
Callers hand over items and get a value for each; how many requests that took, they do not see.

Source: KIP-699 (`buildToList` and the list of APIs that can be batched); KIP-219 for the pauses; KIP-511 for the versions.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from holdfast.kafka.addresses import Address, format_address
from holdfast.kafka.brokers.throttle import Throttle
from holdfast.kafka.errors import ConnectionFailed, UnreadableAnswer
from holdfast.kafka.protocol.api_keys import API_VERSIONS
from holdfast.kafka.protocol.body import BodyReader
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.kafka.protocol.primitives import MalformedBody
from holdfast.metrics.instruments import Counter

I = TypeVar("I", bound=Hashable)  # noqa: E741  # an item
V = TypeVar("V")

#: Lowest and highest version of each API that a server speaks, both inclusive.
Versions = Mapping[int, tuple[int, int]]

_VERSIONS_FIRST: Final = 0
_NONE_SERVED: Final = (0, -1)
_log: Final = logging.getLogger(__name__)


class Connection(Protocol):
    """An open connection to a server that speaks Kafka's protocol."""

    #: Empty: not known yet.
    versions: Versions

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent."""

    def exchange(self, api_key: int, version: int, body: bytes, *, is_flexible: bool = False) -> Awaitable[bytes]:
        """Send one request and return what the body of its answer is awaited from; both without their headers.

        Raises:
            ConnectionFailed: no answer in time, or the connection broke.
        """

    def close(self) -> None:
        """Close the connection; requests in flight fail."""


class Answer(NamedTuple, Generic[I, V]):
    """What one request was answered."""

    #: For how long the server reads nothing more on this connection.
    throttle_time_ms: int
    #: May lack items, and hold others than those of the request.
    values: Mapping[I, V]


def _one_kind(_: object) -> Hashable:
    return None


def _any_version(_: object) -> int:
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[I, V]):
    """A row of the table: an API, and how a call about many items becomes requests and their answers one result."""

    api_key: int
    #: Kafka's.
    name: str
    #: Lowest and highest that we speak, both inclusive.
    versions: tuple[int, int]
    flexible_from: int
    #: The first version of which one request takes many items; None: there is none.
    batched_from: int | None
    #: Gives the body of a request of a version for items of one kind.
    encode: Callable[[int, Sequence[I]], bytes]
    #: Takes the version, the items of the request and the body of its answer; raises MalformedBody or ConnectionFailed.
    decode: Callable[[int, Sequence[I], bytes], Answer[I, V]]
    #: Gives the value of an item that was not answered: an error code and why.
    refuse: Callable[[int, str], V]
    #: Gives the error code in a value; 0: none.
    error_of: Callable[[V], int]
    #: Items of different kinds never share a request.
    kind: Callable[[I], Hashable] = _one_kind
    #: Gives the lowest version that can name an item.
    lowest: Callable[[I], int] = _any_version

    def split(self, version: int, items: Iterable[I], items_max: int) -> list[list[I]]:
        """Return the items of each request, `items_max` at most, in as few requests as the version allows."""
        size = items_max if self.batched_from is not None and version >= self.batched_from else 1
        kinds: dict[Hashable, list[I]] = {}
        for item in items:
            kinds.setdefault(self.kind(item), []).append(item)
        return [each[start : start + size] for each in kinds.values() for start in range(0, len(each), size)]

    def join(self, requested: Sequence[I], answer: Answer[I, V], address: Address) -> dict[I, V]:
        """Return the value of each item of a request; one that the answer lacks is an error of that item alone."""
        absent = self.refuse(ErrorCode.UNKNOWN_SERVER_ERROR, f"The server at {format_address(*address)} left it out.")
        return {item: answer.values.get(item, absent) for item in requested}


@dataclass(frozen=True, slots=True, kw_only=True)
class CallLimits:
    """Bounds of what one call does to one server."""

    #: Items of one request; a call for more is cut into several.
    items_per_request_max: int = 1_000
    #: Requests of one call that may wait for their answers; more wait here.
    requests_in_flight_max: int = 32
    #: The longest that a server is left alone at a time, whatever it says.
    throttle_max_ms: int = 30_000


class Sender:
    """Calls over connections that others keep; servers that asked for a pause are left alone for as long."""

    def __init__(self, limits: CallLimits | None = None, throttle_time_ms: Counter | None = None) -> None:
        """Begin with no pauses.

        Args:
            limits: bounds of each call.
            throttle_time_ms: counts the pauses that servers asked for.
        """
        self._limits = limits or CallLimits()
        #: Counts the pauses that servers asked for.
        self.throttle_time_ms = throttle_time_ms or Counter()
        self._throttle: Throttle[Address] | None = None

    async def send(self, address: Address, connection: Connection, call: Call[I, V], items: Sequence[I]) -> dict[I, V]:
        """Make a call to one server and return the value of each item, in the order of `items`.

        An item that no version common to both can name is an error of that item, UNSUPPORTED_VERSION, and is not sent.
        A server that refuses a version, whatever it said before, is queried for its versions once, and then gets a lower one.

        Raises:
            ConnectionFailed: the connection broke, or an answer did not come in time or cannot be read.
        """
        wanted = list(dict.fromkeys(items))
        version = _version(connection, call)
        if not connection.versions:
            about = {"server": format_address(*address), "api": call.name, "version": version}
            _log.debug("server_version_assumed", extra=about)
        sendable, values = _sendable(version, address, connection, call, wanted)
        values |= await self._send_in(version, address, connection, call, sendable)
        refused = [item for item in sendable if call.error_of(values[item]) == ErrorCode.UNSUPPORTED_VERSION]
        if refused:
            await self._pause(address)
            connection.versions = await query_versions(connection)
            lower = _version(connection, call)
            if lower != version:
                sendable, unspeakable = _sendable(lower, address, connection, call, refused)
                values |= unspeakable | await self._send_in(lower, address, connection, call, sendable)
        return {item: values[item] for item in wanted}

    async def _send_in(
        self, version: int, address: Address, connection: Connection, call: Call[I, V], items: Sequence[I]
    ) -> dict[I, V]:
        """Send the requests of a call together, as many as may be in flight."""
        requests = call.split(version, items, self._limits.items_per_request_max)
        unsent = iter(requests)
        values: dict[I, V] = {}

        async def send_next() -> None:
            for requested in unsent:
                await self._pause(address)
                answer = await _exchange(address, connection, call, version, requested)
                self._throttled(address, answer.throttle_time_ms)
                values.update(call.join(requested, answer, address))

        in_flight = min(len(requests), self._limits.requests_in_flight_max)
        await _all_of(send_next() for _ in range(in_flight))
        return values

    def _throttled(self, address: Address, throttle_time_ms: int) -> None:
        if throttle_time_ms > 0:
            if self._throttle is None:
                now_s = asyncio.get_running_loop().time
                self._throttle = Throttle(self._limits.throttle_max_ms, self.throttle_time_ms, now_s)
            self._throttle.on_answer(address, throttle_time_ms)

    async def _pause(self, address: Address) -> None:
        """Leave a server alone for as long as it asked."""
        if self._throttle is not None and (wait_s := self._throttle.wait_s(address)) > 0:
            await asyncio.sleep(wait_s)


async def query_versions(connection: Connection) -> dict[int, tuple[int, int]]:
    """Return what a server speaks, requested in the version that every server knows.

    Raises:
        ConnectionFailed: it does not say.
    """
    body = await connection.exchange(API_VERSIONS, _VERSIONS_FIRST, b"")
    reader = BodyReader(body, 0, is_flexible=False)
    try:
        error_code = reader.int16("ErrorCode")
        served = {
            reader.int16("ApiKeys.ApiKey"): (reader.int16("ApiKeys.MinVersion"), reader.int16("ApiKeys.MaxVersion"))
            for _ in range(reader.count("ApiKeys"))
        }
    except MalformedBody as error:
        raise UnreadableAnswer(f"a server does not say what it speaks: {error}") from error
    if error_code or not served:
        raise ConnectionFailed(f"a server does not say what it speaks: error {error_code}")
    return served


def _version(connection: Connection, call: Call[Any, Any]) -> int:
    """Return the newest version that both speak, the newest of ours where theirs are not known, -1 where there is none."""
    lowest, highest = call.versions
    if not connection.versions:
        return highest
    served = connection.versions.get(call.api_key, _NONE_SERVED)
    version = min(highest, served[1])
    return version if version >= max(lowest, served[0]) else -1


def _sendable(
    version: int, address: Address, connection: Connection, call: Call[I, V], items: Sequence[I]
) -> tuple[list[I], dict[I, V]]:
    """Return the items that a version can name, and why each of the others cannot be sent."""
    sendable: list[I] = []
    others: dict[I, V] = {}
    for item in items:
        lowest = max(call.lowest(item), call.versions[0])
        if version >= lowest:
            sendable.append(item)
            continue
        served = connection.versions.get(call.api_key, _NONE_SERVED)
        text = f"The server at {format_address(*address)} serves {call.name} in versions {served[0]} to {served[1]}, "
        text += f"and {lowest} to {call.versions[1]} would do."
        if served is _NONE_SERVED:
            text = f"The server at {format_address(*address)} does not serve {call.name}."
        others[item] = call.refuse(ErrorCode.UNSUPPORTED_VERSION, text)
    return sendable, others


async def _exchange(
    address: Address, connection: Connection, call: Call[I, V], version: int, items: Sequence[I]
) -> Answer[I, V]:
    is_flexible = version >= call.flexible_from
    body = await connection.exchange(call.api_key, version, call.encode(version, items), is_flexible=is_flexible)
    try:
        return call.decode(version, items, body)
    except MalformedBody as error:
        raise UnreadableAnswer(f"The server at {format_address(*address)} breaks the protocol. {error}") from error


async def _all_of(steps: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run some steps together; where one fails, the others end, too."""
    tasks = [asyncio.create_task(step, name="holdfast-call") for step in steps]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
