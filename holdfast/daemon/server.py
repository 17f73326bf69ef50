"""The wire server: accept, pass bytes to a `Connection`, requests to the handler, answers back.

One handler serves all connections, on the loop that owns the shards. Answers that become ready in one turn of the loop
leave each connection in one write. A client that does not read its answers is not read from; one that breaks the
protocol loses its connection, costs one limited log line, and harms nobody else.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, Protocol, cast

import structlog

from holdfast.daemon.connection import Api, Connection, Request, Violation
from holdfast.daemon.settings import LimitSettings
from holdfast.records.compact import MalformedBody

_log = structlog.get_logger(__name__)

#: Longest time between two looks for connections whose time is up.
_SWEEP_INTERVAL_MS_MAX: Final = 1_000
#: Node-wide bound on requests that have begun to arrive, in frames of the largest size.
_PARTIAL_FRAMES_MAX: Final = 32

#: Answers a request: the callback takes the body, once, at once or later. It raises MalformedBody for a body that does
#: not follow its API, and anything else for a bug of ours.
Handler = Callable[[Request, Callable[[bytes], None]], None]


class ClientReport(Protocol):
    """Log what a client did; limited per kind, because clients cause it."""

    def __call__(self, kind: str, peer: str, text: str) -> None:
        """Take one event of `kind` caused by the client at address `peer`."""


class CannotListen(Exception):
    """Say that the listener's address cannot be used."""


class Server:
    """Serve the Kafka protocol on one address."""

    def __init__(
        self,
        handler: Handler,
        apis: Mapping[int, Api],
        limits: LimitSettings,
        report: ClientReport,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """Prepare a server; `clock` gives seconds and never goes back, by default it is the loop's."""
        self.handler = handler
        self.apis = apis
        self.limits = limits
        self.report = report
        self._clock = clock
        self._listener: asyncio.Server | None = None
        self._sweep: asyncio.TimerHandle | None = None
        self._peers: set[_Peer] = set()
        #: Connections with answers to be written in this turn of the loop.
        self._unflushed: list[_Peer] = []
        self._is_draining = False
        self._is_empty = asyncio.Event()
        #: Bytes of requests that have begun to arrive, on all connections.
        self.buffered_bytes = 0
        #: Totals since the start.
        self.accepted_connections = 0
        self.refused_connections = 0
        self.violations = 0
        self.requests = 0

    @property
    def connections(self) -> int:
        """Number of open connections."""
        return len(self._peers)

    @property
    def buffered_bytes_max(self) -> int:
        """Bound on `buffered_bytes`; the connection that goes over it is closed."""
        return _PARTIAL_FRAMES_MAX * self.limits.frame_size_bytes_max

    @property
    def port(self) -> int:
        """Port that is listened on, also when the setting asked for any free one."""
        assert self._listener is not None
        port: int = self._listener.sockets[0].getsockname()[1]
        return port

    async def start(self, host: str, port: int, ssl_context: ssl.SSLContext | None = None) -> None:
        """Listen, from now on until `drain`.

        Raises:
            CannotListen: the address is in use or not ours.
        """
        loop = asyncio.get_running_loop()
        if self._clock is None:
            self._clock = loop.time
        try:
            self._listener = await loop.create_server(
                lambda: _Peer(self), host, port, backlog=self.limits.connections_max, ssl=ssl_context
            )
        except OSError as error:
            reason = error.strerror or str(error)
            raise CannotListen(f"Cannot listen on {host}:{port} ({reason}); set another `listen` address.") from error
        self._schedule_sweep()

    async def drain(self, deadline_ms: int) -> int:
        """Stop listening, let requests in flight finish until the deadline, close all connections.

        Returns:
            The number of connections that were cut off with requests in flight.
        """
        if self._is_draining:
            return 0
        self._is_draining = True
        if self._listener is not None:
            self._listener.close()
        if self._sweep is not None:
            self._sweep.cancel()
        for peer in list(self._peers):
            peer.drain()
        cut_off = 0
        if self._peers:
            try:
                await asyncio.wait_for(self._is_empty.wait(), deadline_ms / 1_000)
            except TimeoutError:
                cut_off = len(self._peers)
                _log.warning("Connections are cut off with requests in flight.", connections=cut_off)
                for peer in list(self._peers):
                    peer.abort()
                await self._is_empty.wait()
        return cut_off

    def now_ms(self) -> float:
        """Return the time of a clock that never goes back, in ms."""
        assert self._clock is not None
        return self._clock() * 1_000

    def admit(self, peer: _Peer) -> bool:
        """Return whether a new connection may stay."""
        if self._is_draining or len(self._peers) >= self.limits.connections_max:
            self.refused_connections += 1
            if not self._is_draining:
                text = f"it is closed at once, because {self.limits.connections_max} connections are open (connections_max)"
                self.report("too many connections", peer.address, text)
            return False
        self._peers.add(peer)
        self.accepted_connections += 1
        return True

    def forget(self, peer: _Peer) -> None:
        """Take note that a connection is gone."""
        self._peers.discard(peer)
        if self._is_draining and not self._peers:
            self._is_empty.set()

    def flush_soon(self, peer: _Peer) -> None:
        """Have `peer` write its answers at the end of this turn of the loop."""
        if not self._unflushed:
            asyncio.get_running_loop().call_soon(self._flush)
        self._unflushed.append(peer)

    def _flush(self) -> None:
        peers, self._unflushed = self._unflushed, []
        for peer in peers:
            peer.flush()

    def _schedule_sweep(self) -> None:
        limits = self.limits
        interval_ms = min(limits.frame_timeout_ms, limits.connections_max_idle_ms, _SWEEP_INTERVAL_MS_MAX)
        self._sweep = asyncio.get_running_loop().call_later(interval_ms / 1_000, self._close_overdue)

    def _close_overdue(self) -> None:
        now_ms = self.now_ms()
        for peer in list(self._peers):
            peer.close_if_overdue(now_ms)
        self._schedule_sweep()


class _Peer(asyncio.Protocol):
    """Carry bytes between one socket and its `Connection`."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.address = "unknown"
        self._transport: asyncio.Transport | None = None
        self._connection: Connection | None = None
        self._is_flush_due = False
        self._is_draining = False
        #: The two reasons for which the socket is not read.
        self._is_writing_paused = False
        self._is_reading_paused = False
        self._buffered_bytes = 0

    # What asyncio calls.

    def connection_made(self, base_transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the interface and not the class.
        transport = cast("asyncio.Transport", base_transport)
        name = transport.get_extra_info("peername")
        if isinstance(name, tuple):
            self.address = f"{name[0]}:{name[1]}"
        server = self._server
        if not server.admit(self):
            transport.abort()
            return
        transport.set_write_buffer_limits(high=server.limits.write_buffer_bytes_max)
        self._transport = transport
        self._connection = Connection(server.apis, server.limits, self.address, server.now_ms())

    def data_received(self, data: bytes) -> None:
        connection = self._connection
        if connection is None or self._is_draining:
            return
        self._dispatch(connection, connection.receive(data, self._server.now_ms()))

    def connection_lost(self, exc: Exception | None) -> None:
        self._count_buffered(0)
        self._transport = self._connection = None
        self._server.forget(self)

    def pause_writing(self) -> None:
        self._is_writing_paused = True
        self._update_reading()

    def resume_writing(self) -> None:
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
        if self._is_draining and not connection.in_flight:
            transport.close()

    def drain(self) -> None:
        """Take no more requests, and close when those in flight are answered; what still comes is read and dropped."""
        self._is_draining = True
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
        server = self._server
        self._count_buffered(connection.buffered_bytes)
        if connection.violation is not None:
            self._close(connection.violation)
            return
        if server.buffered_bytes > server.buffered_bytes_max and not connection.is_paused and connection.buffered_bytes:
            text = (
                f"the requests that began to arrive have more than {server.buffered_bytes_max} bytes on all connections"
            )
            self._close(Violation("out of buffers", text))
            return
        server.requests += len(requests)
        for request in requests:
            try:
                server.handler(request, partial(self._answer, request))
            except MalformedBody as error:
                self._close(Violation("malformed request", f"{server.apis[request.api_key].name}: {error}"))
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
            self._server.flush_soon(self)

    def _go_on(self) -> None:
        connection = self._connection
        if connection is None:
            return
        if not self._is_draining and not self._is_writing_paused:
            self._dispatch(connection, connection.resume(self._server.now_ms()))
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
        self._server.buffered_bytes += buffered_bytes - self._buffered_bytes
        self._buffered_bytes = buffered_bytes

    def _close(self, violation: Violation, is_offence: bool = True) -> None:
        if is_offence:
            self._server.violations += 1
            self._server.report(violation.kind, self.address, violation.text)
        self._connection = None
        if self._transport is not None:
            # Not close(): that would wait for a client to take what was written.
            self._transport.abort()
