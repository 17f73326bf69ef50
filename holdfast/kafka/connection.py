"""One open connection to one Kafka broker, for the requests that the log makes itself.

aiokafka connects and does TLS and SASL, then its transport is taken over; the bytes of requests and answers are the caller's.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from struct import Struct
from typing import Final, NamedTuple, Self

from holdfast.kafka import addresses
from holdfast.kafka.aiokafka_parts import open_transport
from holdfast.kafka.errors import ConnectionFailed, VersionUnsupported
from holdfast.kafka.oauth.sources import Bearer
from holdfast.kafka.oauth.tokens import TokenKeeper
from holdfast.kafka.security import Sasl, Security, make_ssl_context, parse_security, principal_of, wrong_value

Address = addresses.Address

#: Length, API key, version, correlation id, length of the client id.
_REQUEST_HEAD: Final = Struct(">ihhih")
#: Length, correlation id.
_ANSWER_HEAD: Final = Struct(">ii")


#: Takes the body of an answer, or why none came; then whether the broker acted is not known.
Answered = Callable[[bytes | ConnectionFailed], None]


class AnswerTimes:
    """When brokers answered last, by their addresses, over all connections of a process; by the loop's clock, in seconds."""

    def __init__(self) -> None:
        self.by_address: dict[Address, float] = {}

    def heard_s(self, address: Address) -> float | None:
        """Return when a broker answered last, by the loop's clock; None: it never did."""
        return self.by_address.get(address)

    def keep(self, addresses: Collection[Address]) -> None:
        """Forget all other addresses."""
        for address in self.by_address.keys() - addresses:
            del self.by_address[address]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """How to connect to any broker of one cluster."""

    #: Not empty.
    bootstrap: tuple[Address, ...]
    security_protocol: str = "PLAINTEXT"
    #: aiokafka's arguments; empty without a password.
    sasl: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: Gives the tokens of SASL OAUTHBEARER; None: another mechanism, or none.
    tokens: TokenKeeper | None = field(default=None, repr=False, compare=False)
    ssl_context: ssl.SSLContext | None = None
    client_id: str = "holdfast"
    #: Who brokers take us for, see `security.principal_of`.
    principal: str = "User:ANONYMOUS"
    #: When each broker answered last.
    answers: AnswerTimes = field(default_factory=AnswerTimes, repr=False, compare=False)
    #: Gives what says of security how the next connection is opened; None: these do.
    renewed: "Callable[[], ConnectionOptions] | None" = field(default=None, repr=False, compare=False)

    def who(self) -> str:
        """Return who brokers take the next connection for."""
        return self.principal if self.renewed is None else self.renewed().principal


#: Of brokers.
_DEFAULT_PORT: Final = 9092


def connection_options(properties: Mapping[str, str]) -> ConnectionOptions:
    """Return how our own connections reach the brokers.

    Raises:
        PropertyRefused: a property about security has no counterpart here, a value is wrong, or a file cannot be read.
    """
    security = parse_security(properties)
    bootstrap = _parse_servers(properties.get("bootstrap.servers", ""))
    return secured_options(bootstrap, security, properties.get("client.id", "holdfast"))


class LiveProperties:
    """librdkafka's properties of one cluster as they are now: those about security may be renewed while a node runs."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self.current = properties
        #: How often they were renewed.
        self.renewals = 0
        #: None before the first connection.
        self._secured: ConnectionOptions | None = None

    def connection_options(self) -> ConnectionOptions:
        """Return how our own connections reach the brokers; each goes by the properties of the time at which it is opened.

        Raises:
            PropertyRefused: as `connection_options`.
        """
        return replace(self._options(), answers=AnswerTimes(), renewed=self._options)

    def renew(self, properties: Mapping[str, str]) -> None:
        """Go by other properties from now on, and by what their files hold now.

        Raises:
            PropertyRefused: as `connection_options`; the former ones stay.
        """
        self._secured = connection_options(properties)
        self.current = properties
        self.renewals += 1

    def _options(self) -> ConnectionOptions:
        if self._secured is None:
            self._secured = connection_options(self.current)
        return self._secured


def secured_options(bootstrap: tuple[Address, ...], security: Security, client_id: str) -> ConnectionOptions:
    """Return how our own connections reach brokers or nodes under some security.

    Raises:
        PropertyRefused: a file cannot be read.
    """
    sasl = security.sasl
    return ConnectionOptions(
        bootstrap=bootstrap,
        security_protocol=security.protocol,
        sasl={
            "sasl_mechanism": sasl.mechanism,
            "sasl_plain_username": sasl.username,
            "sasl_plain_password": sasl.password,
        }
        if isinstance(sasl, Sasl)
        else {},
        tokens=TokenKeeper(sasl) if isinstance(sasl, Bearer) else None,
        ssl_context=None if security.tls is None else make_ssl_context(security.tls),
        client_id=client_id,
        principal=principal_of(security),
    )


def _parse_servers(text: str) -> tuple[Address, ...]:
    servers = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        try:
            servers.append(addresses.parse_address(part.rpartition("://")[2], _DEFAULT_PORT))
        except ValueError:
            raise wrong_value("bootstrap.servers", text, "host:port,host:port") from None
    if not servers:
        raise wrong_value("bootstrap.servers", text, "host:port,host:port")
    return tuple(servers)


class _Request(NamedTuple):
    """A request in flight."""

    correlation_id: int
    #: Whether the answer's header ends with tagged fields.
    has_tags: bool
    #: By the loop's clock.
    expires_s: float
    on_answer: Answered


class BrokerConnection(asyncio.Protocol):
    """An open connection; requests go out in the order of the calls and are answered in that order."""

    def __init__(
        self,
        transport: asyncio.Transport,
        close_transport: Callable[[], object],
        address: Address,
        client_id: str,
        versions: Mapping[int, tuple[int, int]],
        timeout_ms: int,
        answers: AnswerTimes | None = None,
    ) -> None:
        """Take over a transport whose broker has let us in and answered every request so far.

        Args:
            transport: to the broker; its protocol is to be set by the caller.
            close_transport: closes it.
            address: of the broker, for people.
            client_id: what we call ourselves.
            versions: lowest and highest version of each API that the broker speaks; empty: not known, so all are sent.
            timeout_ms: bounds every answer.
            answers: keeps when answers came.
        """
        #: Requests can still be sent.
        self.is_open = True
        #: As `versions` of the arguments.
        self.versions = versions
        self._transport = transport
        self._close_transport = close_transport
        self._place = address
        self._address = f"{address[0]}:{address[1]}"
        self._heard = (answers or AnswerTimes()).by_address
        self._client_id = client_id.encode()
        self._timeout_ms = timeout_ms
        self._loop = asyncio.get_running_loop()
        self._correlation_id = 0
        self._waiting: deque[_Request] = deque()
        #: Runs while requests are in flight.
        self._watch: asyncio.TimerHandle | None = None
        #: The beginning of an answer, in the pieces in which it came.
        self._pieces: list[bytes] = []
        self._pieces_bytes = 0
        #: How long they must be together before another look at them is worth while.
        self._bytes_needed = 0

    @classmethod
    async def open(cls, address: Address, options: ConnectionOptions, timeout_ms: int) -> Self:
        """Connect, and authenticate if the options say so; `timeout_ms` bounds this and every later answer.

        Raises:
            ConnectionFailed: it did not come about.
        """
        host, port = address
        secured = options if options.renewed is None else options.renewed()
        transport, versions, close_transport = await open_transport(
            host,
            port,
            client_id=options.client_id,
            timeout_ms=timeout_ms,
            security_protocol=secured.security_protocol,
            ssl_context=secured.ssl_context,
            sasl=secured.sasl,
            tokens=secured.tokens,
        )
        connection = cls(transport, close_transport, address, options.client_id, versions, timeout_ms, options.answers)
        connection._heard[address] = connection._loop.time()  # it has said what versions it speaks
        # What aiokafka does for each request, in two tasks and a stream, costs several times the request itself.
        transport.set_protocol(connection)
        if transport.is_closing():  # aiokafka's protocol was notified, not ours
            connection.close()
            raise ConnectionFailed(f"{host}:{port} closed the connection")
        return connection

    def send(self, api_key: int, version: int, body: bytes, on_answer: Answered, *, is_flexible: bool = False) -> None:
        """Send one request; `on_answer` gets the body of its answer or why none came, once, maybe before this returns."""
        if not self.is_open:
            on_answer(ConnectionFailed(f"the connection to {self._address} was closed"))
            return
        lowest, highest = self.versions.get(api_key, (0, -1))
        if self.versions and not lowest <= version <= highest:
            on_answer(VersionUnsupported(f"the broker does not speak version {version} of API {api_key}"))
            return
        self._correlation_id = correlation_id = (self._correlation_id + 1) & 0x7FFF_FFFF
        name = self._client_id
        tags = b"\x00" if is_flexible else b""
        size = _REQUEST_HEAD.size - 4 + len(name) + len(tags) + len(body)
        head = _REQUEST_HEAD.pack(size, api_key, version, correlation_id, len(name))
        expires_s = self._loop.time() + self._timeout_ms / 1_000
        self._waiting.append(_Request(correlation_id, is_flexible, expires_s, on_answer))
        if self._watch is None:
            self._watch = self._loop.call_at(expires_s, self._close_overdue)
        try:
            self._transport.write(b"".join((head, name, tags, body)))
        except RuntimeError as closed:  # uvloop's, between the end of a connection and its notification
            self._fail(str(closed))

    async def exchange(self, api_key: int, version: int, body: bytes, *, is_flexible: bool = False) -> bytes:
        """Send one request and return the body of its answer; both without their headers.

        Raises:
            ConnectionFailed: no answer in time, or the connection broke; whether the broker acted is not known.
        """
        answer: asyncio.Future[bytes] = self._loop.create_future()
        self.send(api_key, version, body, partial(_resolve, answer), is_flexible=is_flexible)
        return await answer

    def wait_longer(self, by_ms: int) -> None:
        """Give the requests in flight more time, because the broker said that it reads nothing for so long."""
        self._waiting = deque(
            request._replace(expires_s=request.expires_s + by_ms / 1_000) for request in self._waiting
        )

    def close(self) -> None:
        """Close the connection; requests in flight fail."""
        self._fail("the connection was closed")

    # What asyncio calls.

    def data_received(self, data: bytes) -> None:
        """Take bytes, and hand over the answers that are whole."""
        if self._pieces:
            self._pieces.append(data)
            self._pieces_bytes += len(data)
            if self._pieces_bytes < self._bytes_needed:
                return
            data = b"".join(self._pieces)
            self._pieces.clear()
        start, end = 0, len(data)
        while end - start >= _ANSWER_HEAD.size:
            size, correlation_id = _ANSWER_HEAD.unpack_from(data, start)
            stop = start + 4 + size
            if not self._waiting or correlation_id != self._waiting[0].correlation_id or size < 4:
                self._fail("it answered something else")
                return
            if stop > end:
                self._bytes_needed = stop - start
                break
            request = self._waiting.popleft()
            self._heard[self._place] = self._loop.time()
            # Brokers send no tags in the head of an answer.
            request.on_answer(data[start + _ANSWER_HEAD.size + request.has_tags : stop])
            start = stop
        else:
            self._bytes_needed = _ANSWER_HEAD.size
        if start < end:
            self._pieces.append(data[start:])
            self._pieces_bytes = end - start

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the requests in flight."""
        self._fail((str(exc) or type(exc).__name__) if exc else "it closed the connection")

    # Inside.

    def _close_overdue(self) -> None:
        self._watch = None
        if not self._waiting:
            return
        expires_s = self._waiting[0].expires_s
        if expires_s > self._loop.time():
            self._watch = self._loop.call_at(expires_s, self._close_overdue)
        else:  # answers come in order: behind one that does not come, no other will
            self._fail(f"no answer within {self._timeout_ms} ms")

    def _fail(self, why: str) -> None:
        if not self.is_open:
            return
        self.is_open = False
        if self._watch is not None:
            self._watch.cancel()
        self._close_transport()
        waiting, self._waiting = self._waiting, deque()
        for request in waiting:
            request.on_answer(ConnectionFailed(f"{self._address} did not answer: {why}"))


def _resolve(answer: "asyncio.Future[bytes]", outcome: bytes | ConnectionFailed) -> None:
    if answer.done():
        return
    if isinstance(outcome, ConnectionFailed):
        answer.set_exception(outcome)
    else:
        answer.set_result(outcome)
