"""A connection to one broker for answers that are large: each is received into one buffer of its size.

`BrokerConnection` is for many small answers: it joins the pieces that come and cuts answers out of them. Here each byte is
written once, by the system, and what is handed out are views. One request at a time is in flight.
"""

import asyncio
from collections.abc import Callable
from struct import Struct
from typing import Final

from holdfast.kafka.addresses import format_address
from holdfast.kafka.aiokafka_parts import Opened, open_transport
from holdfast.kafka.brokers.broker_connection import ANSWER_BYTES_MAX
from holdfast.kafka.connection_options import Address, ConnectionOptions
from holdfast.kafka.errors import ConnectionFailed
from holdfast.kafka.protocol.frames import encode_request

#: Length, correlation id.
_HEAD: Final = Struct(">ii")
_LENGTH_BYTES: Final = 4
#: An answer without records comes into this buffer in one read; of a larger one its beginning is copied out of here.
_FIRST_BYTES: Final = 4_096
_CORRELATION_ID_MAX: Final = 0x7FFF_FFFF

#: Makes the buffer of an answer of this many bytes.
MakeBuffer = Callable[[int], bytearray]


class RecordConnection(asyncio.BufferedProtocol):
    """An open connection; a request that fails closes it."""

    def __init__(
        self,
        opened: Opened,
        address: Address,
        options: ConnectionOptions,
        make_buffer: MakeBuffer = bytearray,
    ) -> None:
        """Take over a transport whose broker has let us in and answered every request so far.

        Args:
            opened: the transport; `open` sets its protocol.
            address: of the broker.
            options: how it was opened.
            make_buffer: see `MakeBuffer`.
        """
        #: A request can be sent.
        self.is_open = True
        #: Lowest and highest version of each API that the broker speaks, both inclusive; empty: not known.
        self.versions = opened.versions
        self._transport = opened.transport
        self._close_transport = opened.close
        self._address = address
        self._client_id = options.client_id.encode()
        self._heard = options.answers.by_address
        self._make_buffer = make_buffer
        self._loop = asyncio.get_running_loop()
        self._correlation_id = 0
        #: Of the request in flight.
        self._answer: asyncio.Future[memoryview] | None = None
        #: Bytes of the answer before its body: correlation id, and the tags of a flexible one.
        self._head_bytes = 0
        self._first = memoryview(bytearray(_FIRST_BYTES))
        #: What the answer is received into, without its length; None: its length is not there yet.
        self._body: memoryview | None = None
        #: Bytes that are there, in `_first` or in `_body`.
        self._filled = 0

    @staticmethod
    async def open(
        address: Address, options: ConnectionOptions, timeout_ms: int, make_buffer: MakeBuffer = bytearray
    ) -> "RecordConnection":
        """Connect, and authenticate if the options say so; `timeout_ms` bounds that.

        Raises:
            ConnectionFailed: it did not come about.
        """
        opened = await open_transport(address, options, timeout_ms)
        connection = RecordConnection(opened, address, options, make_buffer)
        connection._heard[address] = connection._loop.time()  # it has said what versions it speaks
        opened.transport.set_protocol(connection)
        if opened.transport.is_closing():  # aiokafka's protocol was notified, not ours
            connection.close()
            raise ConnectionFailed(f"{format_address(*address)} closed the connection")
        return connection

    async def exchange(
        self, api_key: int, version: int, body: bytes, *, timeout_ms: int, is_flexible: bool
    ) -> memoryview:
        """Send a request and return the body of its answer; no other one may be in flight.

        Raises:
            ConnectionFailed: there is no answer in time, or the connection broke. It is closed then.
        """
        if not self.is_open:
            raise ConnectionFailed(f"the connection to {format_address(*self._address)} was closed")
        assert self._answer is None, "a request is in flight already"
        self._correlation_id = (self._correlation_id + 1) & _CORRELATION_ID_MAX
        # A flexible answer's header ends with tagged fields, of which brokers send none.
        self._head_bytes = _LENGTH_BYTES + is_flexible
        answer: asyncio.Future[memoryview] = self._loop.create_future()
        self._answer = answer
        overdue = self._loop.call_later(timeout_ms / 1_000, self._fail, f"no answer within {timeout_ms} ms")
        try:
            self._transport.write(
                encode_request(api_key, version, self._correlation_id, self._client_id, body, is_flexible)
            )
        except RuntimeError as closed:  # uvloop's, between the end of a connection and its notification
            self._fail(str(closed))
        try:
            return await answer
        except asyncio.CancelledError:
            self._fail("nobody waits for its answer any more")
            raise
        finally:
            overdue.cancel()

    def close(self) -> None:
        """Close the connection; a request in flight fails."""
        self._fail("the connection was closed")

    # What asyncio calls.

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where the next bytes are written."""
        return (self._first if self._body is None else self._body)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Handle bytes that were written."""
        self._filled += nbytes
        body = self._body
        if body is None:
            if self._filled < _HEAD.size:
                return
            body = self._begin_body()
            if body is None:
                return
        if self._filled == len(body):
            self._end_body(body)

    def eof_received(self) -> None:
        """Have the transport closed when the broker sends no more."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the request in flight."""
        self._fail((str(exc) or type(exc).__name__) if exc else "it closed the connection")

    # Inside.

    def _begin_body(self) -> memoryview | None:
        """Make the buffer of the answer whose length is there; None: the connection failed."""
        size, correlation_id = _HEAD.unpack_from(self._first)
        begun = self._filled - _LENGTH_BYTES
        if self._answer is None or correlation_id != self._correlation_id or size < max(begun, self._head_bytes):
            self._fail("it answered something else")
            return None
        if size > ANSWER_BYTES_MAX:
            self._fail(f"it announced an answer of {size} bytes")
            return None
        body = self._body = memoryview(self._make_buffer(size))
        body[:begun] = self._first[_LENGTH_BYTES : self._filled]
        self._filled = begun
        return body

    def _end_body(self, body: memoryview) -> None:
        answer, self._answer, self._body, self._filled = self._answer, None, None, 0
        self._heard[self._address] = self._loop.time()
        if answer is not None and not answer.done():
            answer.set_result(body[self._head_bytes :].toreadonly())

    def _fail(self, why: str) -> None:
        if not self.is_open:
            return
        self.is_open = False
        self._close_transport()
        # A transport may still write into the last buffer it was given, but nothing keeps a large one.
        answer, self._answer, self._body, self._filled = self._answer, None, None, 0
        if answer is not None and not answer.done():
            answer.set_exception(ConnectionFailed(f"{format_address(*self._address)} did not answer: {why}"))
