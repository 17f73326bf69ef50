"""One connection to a node: requests out, answers in, matched by their order and their correlation id.

Requests are pipelined. A server that answers out of order, or something that is no answer, ends the connection, and with
it every request in flight.

`kafka/brokers/broker_connection.py` pipelines requests to brokers, too, and shares no code with this: it hands answers to callbacks,
bounds nothing because brokers are trusted, takes over a transport of aiokafka, and lets a quota move its time-outs. What is common is a
queue and a timer; a base of both would be longer than what it saves.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import Final, NamedTuple, cast

from holdfast.client.errors import ClientError, Disconnected, LoginRefused, RequestTimedOut, Unsupported
from holdfast.client.login import log_in
from holdfast.client.settings import ClientSettings
from holdfast.distribution import VERSION
from holdfast.kafka.addresses import format_address
from holdfast.kafka.discovery.dialing import dial
from holdfast.kafka.protocol.api_keys import API_VERSIONS
from holdfast.kafka.protocol.body import BodyReader
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.kafka.protocol.frames import LENGTH_SIZE, encode_request, read_length, read_response_header
from holdfast.kafka.protocol.primitives import MalformedBody, encode_string
from holdfast.kafka.security import Sasl

_API_VERSIONS_VERSION: Final = 3
_CLIENT_SOFTWARE: Final = ("holdfast", VERSION)


class Address(NamedTuple):
    """Where a node listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return format_address(self.host, self.port)


class Answer(NamedTuple):
    """A response; its body reaches from `body_offset` to the end of `frame`."""

    frame: bytes
    body_offset: int


class _Waiting(NamedTuple):
    correlation_id: int
    has_tags: bool
    #: On the loop's clock, in seconds.
    deadline: float
    answer: asyncio.Future[Answer]


class NodeConnection(asyncio.Protocol):
    """An open connection; `open_connection` makes one."""

    def __init__(self, address: Address, settings: ClientSettings) -> None:
        self.address = address
        self._settings = settings
        self._client_id = settings.client_id.encode()
        self._transport: asyncio.Transport | None = None
        self._correlation_id = 0
        #: In the order of the requests, which is the order of the answers.
        self._waiting: deque[_Waiting] = deque()
        self._room = asyncio.Semaphore(settings.requests_in_flight_max)
        #: One for all requests: the first that waits is the first whose time is up.
        self._timer: asyncio.TimerHandle | None = None
        self._buffer = bytearray()
        self._ended: ClientError | None = None
        #: API key to (lowest version, highest version) of what the node serves.
        self.versions: Mapping[int, tuple[int, int]] = {}

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent."""
        return self._ended is None

    def version_of(self, name: str, api_key: int, lowest: int, highest: int) -> int:
        """Return the highest version of a call that both sides speak.

        Raises:
            Unsupported: there is none.
        """
        served = self.versions.get(api_key)
        if served is None:
            raise Unsupported(f"The server at {self.address} does not serve {name}; is it a Holdfast node?")
        version = min(highest, served[1])
        if version < max(lowest, served[0]):
            raise Unsupported(
                f"The server at {self.address} serves {name} in versions {served[0]} to {served[1]}, "
                f"and {lowest} to {highest} would do; a newer server is needed."
            )
        return version

    async def exchange(self, api_key: int, version: int, body: bytes, *, is_flexible: bool = False) -> bytes:
        """Send a request and return the body of its answer (`kafka.discovery.calls.Connection`).

        Raises:
            Disconnected: the connection ended before the answer came.
            RequestTimedOut: no answer came in time; the connection is closed.
        """
        frame, offset = await self.request(api_key, version, body, has_tags=is_flexible, has_header_tags=is_flexible)
        return frame[offset:]

    async def request(
        self, api_key: int, version: int, body: bytes, *, has_tags: bool = True, has_header_tags: bool = True
    ) -> Answer:
        """Send a request and return its answer; many may be in flight.

        Args:
            api_key: of the call.
            version: of the call.
            body: of the request.
            has_tags: whether the header of the answer ends with tagged fields.
            has_header_tags: whether that of the request does.

        Raises:
            Disconnected: the connection ended before the answer came.
            RequestTimedOut: no answer came in time; the connection is closed.
        """
        async with self._room:
            if self._ended is None and self._transport is not None and self._transport.is_closing():
                # A write before this one failed, and asyncio has not reported it so far; it would complain of each that follows.
                self._end_lost()
            if self._ended is not None or self._transport is None:
                raise Disconnected(str(self._ended))
            self._correlation_id = self._correlation_id + 1 & 0x7FFFFFFF
            loop = asyncio.get_running_loop()
            answer: asyncio.Future[Answer] = loop.create_future()
            deadline = loop.time() + self._settings.request_timeout_ms / 1_000
            self._waiting.append(_Waiting(self._correlation_id, has_tags, deadline, answer))
            if self._timer is None:
                self._timer = loop.call_at(deadline, self._check_time)
            head = (api_key, version, self._correlation_id, self._client_id)
            self._transport.write(encode_request(*head, body, has_header_tags))
            return await answer

    def close(self, reason: ClientError | None = None) -> None:
        """Close the connection; requests in flight fail with `reason`."""
        if self._ended is None:
            self._ended = reason or Disconnected(f"The connection to {self.address} is closed.")
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._transport is not None:
            self._transport.abort()
        while self._waiting:
            answer = self._waiting.popleft().answer
            if not answer.done():
                # One exception each: they will be raised in different places.
                answer.set_exception(type(self._ended)(*self._ended.args))

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
        # uvloop's transports have the interface and not the class.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Take bytes of the server and hand out the answers in them."""
        buffer = self._buffer
        buffer += data
        position, available = 0, len(buffer)
        while available - position >= LENGTH_SIZE:
            length = read_length(bytes(buffer[position : position + LENGTH_SIZE]), 0)
            if not LENGTH_SIZE <= length <= self._settings.frame_size_bytes_max:
                text = f"The server at {self.address} announces an answer of {length} bytes; does it speak Kafka's protocol?"
                self.close(Disconnected(text))
                return
            end = position + LENGTH_SIZE + length
            if end > available:
                break
            self._take_answer(bytes(buffer[position + LENGTH_SIZE : end]))
            if self._ended is not None:
                return
            position = end
        del buffer[:position]

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the requests in flight."""
        self._transport = None
        self._end_lost()

    def _end_lost(self) -> None:
        self.close(Disconnected(f"The server at {self.address} closed the connection."))

    def _check_time(self) -> None:
        self._timer = None
        if not self._waiting:
            return
        loop = asyncio.get_running_loop()
        if self._waiting[0].deadline <= loop.time():
            timeout_ms = self._settings.request_timeout_ms
            self.close(RequestTimedOut(f"The server at {self.address} gave no answer in {timeout_ms} ms."))
        else:
            self._timer = loop.call_at(self._waiting[0].deadline, self._check_time)

    def _take_answer(self, frame: bytes) -> None:
        if not self._waiting:
            self.close(Disconnected(f"The server at {self.address} answered a request that was not sent."))
            return
        correlation_id, has_tags, _, answer = self._waiting.popleft()
        try:
            answered_id, offset = read_response_header(frame, has_tags)
        except MalformedBody as error:
            answered_id, offset = None, 0
            reason = str(error)
        else:
            reason = f"It answers request {answered_id} where {correlation_id} is next."
        if answered_id == correlation_id:
            # A caller that was cancelled does not wait any more.
            if not answer.done():
                answer.set_result(Answer(frame, offset))
            return
        broken = Disconnected(f"The server at {self.address} breaks the protocol. {reason}")
        if not answer.done():
            answer.set_exception(broken)
        self.close(broken)


async def open_connection(
    address: Address, settings: ClientSettings, ssl_context: ssl.SSLContext | None = None, sasl: Sasl | None = None
) -> NodeConnection:
    """Return a connection to a node that has said what it serves, and has let us in.

    Raises:
        LoginRefused: it has not.
        Disconnected: no server listens there, or not in time, or it speaks something else.
    """
    timeout_ms = settings.connect_timeout_ms

    async def shake_hands(connected: socket.socket, part_s: float) -> NodeConnection:
        connection = None
        try:
            async with asyncio.timeout(part_s):
                _, connection = await asyncio.get_running_loop().create_connection(
                    partial(NodeConnection, address, settings),
                    sock=connected,
                    ssl=ssl_context,
                    server_hostname=None if ssl_context is None else address.host,
                )
                versions = await _query_versions(connection)
                if sasl is not None:
                    await log_in(connection, sasl)
                connection.versions = versions
                return connection
        finally:
            # A socket of which no connection came is closed by the transport that has it.
            if connection is not None and not connection.versions:
                connection.close()

    try:
        async with asyncio.timeout(timeout_ms / 1_000):
            return await dial(address.host, address.port, timeout_ms / 1_000, shake_hands)
    except TimeoutError as error:
        reason = f"The server at {address} did not open a connection in {timeout_ms} ms."
        raise Disconnected(reason) from error
    except LoginRefused as error:
        raise LoginRefused(f"The login at {address} failed: {error}.") from None
    except OSError as error:
        # asyncio says nothing of a server that hangs up within a handshake.
        cut_off = "it closed the connection" + (
            ", as one without TLS does; see security.protocol" if ssl_context else ""
        )
        raise Disconnected(
            f"No server can be reached at {address} ({error.strerror or str(error) or cut_off})."
        ) from error
    except MalformedBody as error:
        raise Disconnected(f"The server at {address} breaks the protocol. {error}") from error


async def _query_versions(connection: NodeConnection) -> dict[int, tuple[int, int]]:
    body = b"%b%b\x00" % tuple(map(encode_string, _CLIENT_SOFTWARE))
    frame, offset = await connection.request(API_VERSIONS, _API_VERSIONS_VERSION, body, has_tags=False)
    reader = BodyReader(frame, offset, is_flexible=True)
    if reader.int16("ErrorCode") == ErrorCode.UNSUPPORTED_VERSION:
        # The list then comes in the oldest form.
        reader = BodyReader(frame, reader.offset, is_flexible=False)
    versions = {}
    for _ in range(reader.count("ApiKeys")):
        api_key = reader.int16("ApiKeys.ApiKey")
        versions[api_key] = (reader.int16("ApiKeys.MinVersion"), reader.int16("ApiKeys.MaxVersion"))
        reader.tags("ApiKeys")
    return versions
