"""The open connections of one server: bytes to a `Connection`, its requests to the handler, answers back.

Answers that become ready in one turn of the loop leave each connection in one write. A client that does not read its
answers is not read from; one that breaks the protocol loses its connection, costs one limited log line, and harms
nobody else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from time import monotonic
from typing import Final, Protocol, cast

import structlog

from holdfast.daemon.connection import Api, Connection, Request, Violation
from holdfast.daemon.listener_settings import LimitSettings
from holdfast.records.compact import MalformedBody

_log = structlog.get_logger(__name__)

#: Node-wide bound on requests that have begun to arrive, in frames of the largest size.
_PARTIAL_FRAMES_MAX: Final = 32

#: Answers a request: the callback takes the body, once, at once or later. It raises MalformedBody for a body that does
#: not follow its API, and anything else for a bug of ours.
Handler = Callable[[Request, Callable[[bytes], None]], None]


class ClientReport(Protocol):
    """Log what a client did; limited per kind, because clients cause it."""

    def __call__(self, kind: str, peer: str, text: str) -> None:
        """Take one event of `kind` caused by the client at address `peer`."""


class Peers:
    """All connections of one server, and what they share."""

    def __init__(
        self,
        handler: Handler,
        apis: Mapping[int, Api],
        limits: LimitSettings,
        report: ClientReport,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """Begin without a connection; `clock` gives seconds and never goes back."""
        self.handler = handler
        self.apis = apis
        self.limits = limits
        self.report = report
        self.clock = clock
        self.is_draining = False
        #: Set when the last connection is gone while the server drains.
        self.is_empty = asyncio.Event()
        self._open: set[Peer] = set()
        #: Connections with answers to be written in this turn of the loop.
        self._unflushed: list[Peer] = []
        #: Bytes of requests that have begun to arrive, on all connections.
        self.buffered_bytes = 0
        #: Totals since the start.
        self.accepted_connections = 0
        self.refused_connections = 0
        self.violations = 0
        self.requests = 0

    def __len__(self) -> int:
        return len(self._open)

    @property
    def buffered_bytes_max(self) -> int:
        """Bound on `buffered_bytes`; the connection that goes over it is closed."""
        return _PARTIAL_FRAMES_MAX * self.limits.frame_size_bytes_max

    def now_ms(self) -> float:
        """Return the time of a clock that never goes back, in ms."""
        return self.clock() * 1_000

    def admit(self, peer: Peer) -> bool:
        """Return whether a new connection may stay."""
        if self.is_draining or len(self._open) >= self.limits.connections_max:
            self.refused_connections += 1
            if not self.is_draining:
                text = f"it is closed at once, because {self.limits.connections_max} connections are open (connections_max)"
                self.report("too many connections", peer.address, text)
            return False
        self._open.add(peer)
        self.accepted_connections += 1
        return True

    def forget(self, peer: Peer) -> None:
        """Take note that a connection is gone."""
        self._open.discard(peer)
        if self.is_draining and not self._open:
            self.is_empty.set()

    def drain(self) -> None:
        """Take no more connections and requests; each connection closes when its requests in flight are answered."""
        self.is_draining = True
        for peer in list(self._open):
            peer.drain()

    def abort(self) -> None:
        """Close all connections without waiting for anything."""
        for peer in list(self._open):
            peer.abort()

    def close_overdue(self) -> None:
        """Close the connections whose time is up."""
        now_ms = self.now_ms()
        for peer in list(self._open):
            peer.close_if_overdue(now_ms)

    def flush_soon(self, peer: Peer) -> None:
        """Have `peer` write its answers at the end of this turn of the loop."""
        if not self._unflushed:
            asyncio.get_running_loop().call_soon(self._flush)
        self._unflushed.append(peer)

    def _flush(self) -> None:
        peers, self._unflushed = self._unflushed, []
        for peer in peers:
            peer.flush()


class Peer:
    """Carry bytes between one socket and its `Connection`; has all that an `asyncio.Protocol` has."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self.address = "unknown"
        self._transport: asyncio.Transport | None = None
        self._connection: Connection | None = None
        self._is_flush_due = False
        #: The two reasons for which the socket is not read.
        self._is_writing_paused = False
        self._is_reading_paused = False
        self._buffered_bytes = 0

    # What asyncio calls.

    def connection_made(self, base_transport: asyncio.BaseTransport) -> None:
        """Take a new socket, or close it when there are too many."""
        # uvloop's transports have the interface and not the class.
        transport = cast("asyncio.Transport", base_transport)
        name = transport.get_extra_info("peername")
        if isinstance(name, tuple):
            self.address = f"{name[0]}:{name[1]}"
        peers = self._peers
        if not peers.admit(self):
            transport.abort()
            return
        transport.set_write_buffer_limits(high=peers.limits.write_buffer_bytes_max)
        self._transport = transport
        self._connection = Connection(peers.apis, peers.limits, self.address, peers.now_ms())

    def data_received(self, data: bytes) -> None:
        """Take bytes of the client."""
        connection = self._connection
        if connection is None or self._peers.is_draining:
            return
        self._dispatch(connection, connection.receive(data, self._peers.now_ms()))

    def eof_received(self) -> None:
        """Close when the client sends no more."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the socket; answers that come later are dropped."""
        self._count_buffered(0)
        self._transport = self._connection = None
        self._peers.forget(self)

    def pause_writing(self) -> None:
        """Read no more requests until the client takes its answers."""
        self._is_writing_paused = True
        self._update_reading()

    def resume_writing(self) -> None:
        """Read requests again."""
        self._is_writing_paused = False
        self._go_on()

    # What the server calls.

    def flush(self) -> None:
        """Write the answers that may leave, and read on if that made room."""
        self._is_flush_due = False
        connection, transport = self._connection, self._transport
        if connection is None or transport is None:
            return
        transport.write(connection.take_output())
        if connection.is_paused:
            self._go_on()
        if self._peers.is_draining and not connection.in_flight:
            transport.close()

    def drain(self) -> None:
        """Take no more requests, and close when those in flight are answered; what still comes is read and dropped."""
        connection, transport = self._connection, self._transport
        assert connection is not None
        assert transport is not None
        if not connection.in_flight and not self._is_flush_due:
            transport.close()

    def abort(self) -> None:
        """Close without waiting for anything."""
        if self._transport is not None:
            self._transport.abort()

    def close_if_overdue(self, now_ms: float) -> None:
        """Close a connection whose time is up."""
        if self._connection is not None and (violation := self._connection.overdue(now_ms)) is not None:
            # Silence is no offence: Kafka's clients leave connections to the idle limit.
            self._close(violation, is_offence=violation.kind != "idle")

    # The ways of a request and its answer.

    def _dispatch(self, connection: Connection, requests: list[Request]) -> None:
        peers = self._peers
        self._count_buffered(connection.buffered_bytes)
        if connection.violation is not None:
            self._close(connection.violation)
            return
        if peers.buffered_bytes > peers.buffered_bytes_max and not connection.is_paused and connection.buffered_bytes:
            text = (
                f"the requests that began to arrive have more than {peers.buffered_bytes_max} bytes on all connections"
            )
            self._close(Violation("out of buffers", text))
            return
        peers.requests += len(requests)
        for request in requests:
            try:
                peers.handler(request, partial(self._answer, request))
            except MalformedBody as error:
                self._close(Violation("malformed request", f"{peers.apis[request.api_key].name}: {error}"))
                return
            except Exception:
                # A bug of ours stays with this connection; the client learns of it by the connection's end.
                _log.exception("A request could not be handled.", api_key=request.api_key, peer=self.address)
                self.abort()
                self._connection = None
                return
        if connection.is_paused != self._is_reading_paused:
            self._update_reading()

    def _answer(self, request: Request, body: bytes) -> None:
        connection = self._connection
        if connection is None:
            return
        connection.reply(request, body)
        if connection.has_output and not self._is_flush_due:
            self._is_flush_due = True
            self._peers.flush_soon(self)

    def _go_on(self) -> None:
        connection = self._connection
        if connection is None:
            return
        if not self._peers.is_draining and not self._is_writing_paused:
            self._dispatch(connection, connection.resume(self._peers.now_ms()))
        self._update_reading()

    def _update_reading(self) -> None:
        connection, transport = self._connection, self._transport
        if connection is None or transport is None:
            return
        is_paused = connection.is_paused or self._is_writing_paused
        if is_paused != self._is_reading_paused:
            self._is_reading_paused = is_paused
            if is_paused:
                transport.pause_reading()
            else:
                transport.resume_reading()

    def _count_buffered(self, buffered_bytes: int) -> None:
        self._peers.buffered_bytes += buffered_bytes - self._buffered_bytes
        self._buffered_bytes = buffered_bytes

    def _close(self, violation: Violation, is_offence: bool = True) -> None:
        if is_offence:
            self._peers.violations += 1
            self._peers.report(violation.kind, self.address, violation.text)
        self._connection = None
        if self._transport is not None:
            # Not close(): that would wait for a client to take what was written.
            self._transport.abort()
