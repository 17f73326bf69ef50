"""One open connection to one Kafka broker, for the requests that the log makes itself.

aiokafka connects and does TLS and SASL, then its transport is taken over; the bytes of requests and answers are the caller's.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from struct import Struct
from typing import Any, Final, cast, final

from mypy_extensions import mypyc_attr

from holdfast.kafka.addresses import format_address
from holdfast.kafka.aiokafka_parts import Opened, open_transport
from holdfast.kafka.connection_options import Address, ConnectionOptions
from holdfast.kafka.errors import ConnectionFailed, VersionUnsupported
from holdfast.kafka.protocol import requests
from holdfast.kafka.protocol.frames import encode_request

#: Length, correlation id.
_ANSWER_HEAD: Final = Struct(">ii")
_ANSWER_HEAD_BYTES: Final = 8
#: Callers wait for these, and brokers answer them at once if they can.
_POLLED_FOR: Final = (requests.PRODUCE[0], requests.LIST_OFFSETS[0])
#: Of an answer; no record batch of the topics that are read may have half as many. More would only be a way to take our memory.
ANSWER_BYTES_MAX: Final = 128 << 20
_unpack_head: Final[Callable[[bytes, int], tuple[int, int]]] = _ANSWER_HEAD.unpack_from

#: Takes the body of an answer, or why none came; then whether the broker acted is not known.
Answered = Callable[[bytes | ConnectionFailed], None]


@final
class _Request:
    """A request in flight."""

    __slots__ = ("correlation_id", "expires_s", "head_bytes", "is_polled_for", "on_answer")

    def __init__(self, correlation_id: int, head_bytes: int, expires_s: float, on_answer: Answered) -> None:
        self.correlation_id = correlation_id
        #: Of the answer, in front of its body.
        self.head_bytes = head_bytes
        #: By the loop's clock.
        self.expires_s = expires_s
        self.on_answer = on_answer
        #: Whether the loop polls for its answer, and for the request that may follow.
        self.is_polled_for = False


@mypyc_attr(allow_interpreted_subclasses=True)
class BrokerConnection:
    """An open connection; requests go out in the order of the calls and are answered in that order.

    It has all that an `asyncio.Protocol` has.
    """

    def __init__(
        self,
        opened: Opened,
        address: Address,
        options: ConnectionOptions,
        timeout_ms: int,
    ) -> None:
        """Take over a transport whose broker has let us in and answered every request so far.

        Args:
            opened: the transport, whose protocol the caller sets; without versions, all are sent.
            address: of the broker, for people.
            options: how it was opened.
            timeout_ms: bounds every answer.
        """
        #: Requests can still be sent.
        self.is_open = True
        #: Lowest and highest version of each API that the broker speaks, both inclusive; empty: not known.
        self.versions = opened.versions
        self._write = opened.transport.write
        self._close_transport = opened.close
        # Compiled, a tuple whose type is known is made again wherever it is a key.
        self._place: Any = address
        self._address = format_address(*address)
        self._heard = options.answers.by_address
        self._client_id = options.client_id.encode()
        self._timeout_ms = timeout_ms
        self._loop = asyncio.get_running_loop()
        self._now_s = self._loop.time
        self._busy_polling = options.busy_polling
        self._correlation_id = 0
        #: Few, as a rule one.
        self._waiting: list[_Request] = []
        #: Runs while requests are in flight.
        self._watch: asyncio.TimerHandle | None = None
        #: The beginning of an answer, in the pieces in which it came.
        self._pieces: list[bytes] = []
        self._pieces_bytes = 0
        #: How long they must be together before another look at them is worth while.
        self._bytes_needed = 0

    @staticmethod
    async def open(
        address: Address, options: ConnectionOptions, timeout_ms: int, answer_timeout_ms: int | None = None
    ) -> "BrokerConnection":
        """Connect, and authenticate if the options say so.

        Args:
            address: of the broker.
            options: how to connect.
            timeout_ms: bounds each step of that; each of several addresses has its part of it.
            answer_timeout_ms: bounds every later answer; None: `timeout_ms`.

        Raises:
            ConnectionFailed: it did not come about.
        """
        opened = await open_transport(address, options, timeout_ms)
        connection = BrokerConnection(opened, address, options, answer_timeout_ms or timeout_ms)
        connection._heard[address] = connection._loop.time()  # it has said what versions it speaks
        # What aiokafka does for each request, in two tasks and a stream, costs several times the request itself.
        opened.transport.set_protocol(cast("asyncio.Protocol", connection))
        if opened.transport.is_closing():  # aiokafka's protocol was notified, not ours
            connection.close()
            raise ConnectionFailed(f"{format_address(*address)} closed the connection")
        return connection

    def send(self, api_key: int, version: int, body: bytes, on_answer: Answered, *, is_flexible: bool = False) -> None:
        """Send one request; `on_answer` gets the body of its answer or why none came, once, maybe before this returns."""
        if not self.is_open:
            on_answer(ConnectionFailed(f"the connection to {self._address} was closed"))
            return
        versions = self.versions
        if versions:
            lowest, highest = versions.get(api_key, (0, -1))
            if not lowest <= version <= highest:
                on_answer(VersionUnsupported(f"the broker does not speak version {version} of API {api_key}"))
                return
        self._correlation_id = correlation_id = (self._correlation_id + 1) & 0x7FFF_FFFF
        frame = encode_request(api_key, version, correlation_id, self._client_id, body, is_flexible)
        expires_s = self._now_s() + self._timeout_ms / 1_000
        # A flexible answer's header ends with tagged fields, of which brokers send none.
        head_bytes = _ANSWER_HEAD_BYTES + 1 if is_flexible else _ANSWER_HEAD_BYTES
        request = _Request(correlation_id, head_bytes, expires_s, on_answer)
        self._waiting.append(request)
        if self._watch is None:
            self._watch = self._loop.call_at(expires_s, self._close_overdue)
        try:
            self._write(frame)
            if api_key in _POLLED_FOR:
                request.is_polled_for = True
                self._busy_polling.on_sent(self._loop)
        except RuntimeError as closed:  # uvloop's, between the end of a connection and its notification
            self._fail(str(closed))

    def exchange(self, api_key: int, version: int, body: bytes, *, is_flexible: bool = False) -> Awaitable[bytes]:
        """Send one request and return what the body of its answer is awaited from; both without their headers.

        Raises:
            ConnectionFailed: no answer in time, or the connection broke; whether the broker acted is not known.
        """
        answer: asyncio.Future[bytes] = self._loop.create_future()
        self.send(api_key, version, body, partial(_resolve, answer), is_flexible=is_flexible)
        return answer

    def wait_longer(self, by_ms: int) -> None:
        """Give the requests in flight more time, because the broker said that it reads nothing for so long."""
        for request in self._waiting:
            request.expires_s += by_ms / 1_000

    def close(self) -> None:
        """Close the connection; requests in flight fail."""
        self._fail("the connection was closed")

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Do nothing: the connection was made before this is its protocol."""

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
        while end - start >= _ANSWER_HEAD_BYTES:
            size, correlation_id = _unpack_head(data, start)
            stop = start + 4 + size
            # What is too short for its head would leave a slice that ends before it begins, which raises where it is compiled.
            waiting = self._waiting
            if not waiting or correlation_id != waiting[0].correlation_id or size + 4 < waiting[0].head_bytes:
                self._fail("it answered something else")
                return
            if size > ANSWER_BYTES_MAX:
                self._fail(f"it announced an answer of {size} bytes")
                return
            if stop > end:
                self._bytes_needed = stop - start
                break
            request = self._waiting.pop(0)
            self._heard[self._place] = self._now_s()
            if request.is_polled_for:
                self._busy_polling.on_answered(self._loop)
            request.on_answer(data[start + request.head_bytes : stop])
            start = stop
        else:
            self._bytes_needed = _ANSWER_HEAD_BYTES
        if start < end:
            self._pieces.append(data[start:])
            self._pieces_bytes = end - start

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the requests in flight."""
        self._fail((str(exc) or type(exc).__name__) if exc else "it closed the connection")

    def eof_received(self) -> None:
        """Have the transport closed when the broker sends no more."""

    def pause_writing(self) -> None:
        """Do nothing: what may be in flight is bounded by whoever sends it."""

    def resume_writing(self) -> None:
        """Do nothing, as when writing was paused."""

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
        waiting, self._waiting = self._waiting, []
        for request in waiting:
            try:
                request.on_answer(ConnectionFailed(f"{self._address} did not answer: {why}"))
            except Exception as bug:  # the others learn of it all the same
                self._loop.call_exception_handler({"message": "taking that no answer came failed", "exception": bug})


def _resolve(answer: "asyncio.Future[bytes]", outcome: bytes | ConnectionFailed) -> None:
    if answer.done():
        return
    if isinstance(outcome, ConnectionFailed):
        answer.set_exception(outcome)
    else:
        answer.set_result(outcome)
