"""The open connections of one server: bytes to a `Connection`, its requests to the handler, answers back.

Connections take turns (`daemon.server.turns`); a large request is worked off in steps, and a large answer is encoded in steps.
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

from holdfast.daemon.server.admission import Admission
from holdfast.daemon.server.connection import Api, Body, Connection, Held, Request, Steps, Violation
from holdfast.daemon.server.turns import Turns
from holdfast.daemon.settings.listener_models import LimitSettings
from holdfast.kafka.addresses import format_address
from holdfast.kafka.protocol.primitives import MalformedBody

_log = structlog.get_logger(__name__)

#: While a connection holds more bytes than this of whole requests, it is not read from.
_READ_AHEAD_BYTES: Final = 65_536
#: Answers of one turn are copied into one piece up to this size; larger ones go to the socket as they are.
_JOINED_BYTES_MAX: Final = 65_536

#: Answers a request: the callback takes the body, once, at once or later. It raises MalformedBody for a body that does
#: not follow its API, and anything else for a bug of ours. Where it returns steps, the request is begun when all are done.
Handler = Callable[[Request, Callable[[Body], None]], Steps | None]


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
        self.turns = Turns(limits.request_slice_ms, clock)
        self.is_draining = False
        #: Set when the last connection is gone while the server drains.
        self.is_empty = asyncio.Event()
        #: Set when the last request is answered while the server drains.
        self.is_answered = asyncio.Event()
        #: What requests in flight hold, on all connections.
        self.held = Held()
        self.admission = Admission(limits)
        self._open: dict[Peer, None] = {}
        #: Connections with answers to be written in this turn of the loop.
        self._unflushed: list[Peer] = []
        #: Connections whose next request waits for others to end, each once however often it asks.
        self._starved: dict[Peer, None] = {}
        #: Bytes of requests that have begun to arrive or wait for their turn, on all connections.
        self.buffered_bytes = 0
        #: Answers given to sockets, in bytes; more than what is left there, until it is counted again.
        self._written_bytes = 0
        #: Totals since the start.
        self.accepted_connections = 0
        self.refused_connections = 0
        self.violations = 0
        self.requests = 0

    def __len__(self) -> int:
        return len(self._open)

    def now_ms(self) -> float:
        """Return the time of a clock that never goes back, in ms."""
        return self.clock() * 1_000

    # Connections come and go.

    def admit(self, peer: Peer) -> bool:
        """Return whether a new connection may stay; it may take the place of one that is silent."""
        if not self.is_draining:
            refusal = self.admission.refusal(peer.host)
            if refusal is not None:
                silent = self._find_silent(self.admission.where_to_make_room(peer.host))
                if silent is None:
                    self.report("too many connections", peer.address, f"it is closed at once, because {refusal}")
                else:
                    text = f"it was silent, and gives its place to a new connection, because {refusal}"
                    silent.close(Violation("too many connections", text), is_offence=True)
                    refusal = None
            if refusal is None:
                self._open[peer] = None
                self.admission.enter(peer.host)
                self.accepted_connections += 1
                return True
        self.refused_connections += 1
        return False

    def forget(self, peer: Peer) -> None:
        """Take note that a connection is gone; again is harmless."""
        if peer in self._open:
            del self._open[peer]
            self._starved.pop(peer, None)
            self.admission.leave(peer.host)
        if self.is_draining:
            self.look_for_end()

    def _find_silent(self, host: str | None) -> Peer | None:
        """Return the connection of an address (None: of any) that is silent for longest, if it is so long enough."""
        now_ms, longest_ms, found = self.now_ms(), float(self.limits.connections_silent_ms), None
        for peer in self._open:
            if host is None or peer.host == host:
                silent_ms = peer.silent_ms(now_ms)
                if silent_ms >= longest_ms:
                    longest_ms, found = silent_ms, peer
        return found

    def drain(self) -> None:
        """Take no more connections and requests; each connection closes when its requests in flight are answered."""
        self.is_draining = True
        for peer in list(self._open):
            peer.drain()
        self.look_for_end()

    def look_for_end(self) -> None:
        """Set the events of a server that drains."""
        if not self._open:
            self.is_empty.set()
        if not self.unanswered():
            self.is_answered.set()

    def unanswered(self) -> int:
        """Return the number of connections with requests that are being carried out."""
        return sum(peer.is_unanswered for peer in self._open)

    def abort(self) -> None:
        """Close all connections without waiting for anything."""
        for peer in list(self._open):
            peer.abort()

    def close_overdue(self) -> None:
        """Close the connections whose time is up."""
        now_ms = self.now_ms()
        for peer in list(self._open):
            peer.close_if_overdue(now_ms)

    # What all connections together may hold.

    def count_buffered(self, change: int) -> None:
        """Take note of bytes that came or went; over the bound, the connections that hold most go."""
        self.buffered_bytes += change
        while change > 0 and self.buffered_bytes > self.limits.buffered_bytes_max:
            largest = max(self._open, key=Peer.count_buffered_bytes)
            bound = self.limits.buffered_bytes_max
            text = (
                f"requests that are not begun have more than {bound} bytes on all connections, and it has most of them"
            )
            largest.close(Violation("out of buffers", text))

    def count_written(self, size: int) -> None:
        """Take note of bytes given to a socket; over the bound, the connections that hold most unsent bytes go."""
        self._written_bytes += size
        bound = self.limits.unsent_bytes_max
        if self._written_bytes + self.held.answer_bytes <= bound:
            return
        unsent = {peer: peer.count_unsent_bytes() for peer in self._open}
        while unsent and sum(unsent.values()) > bound:
            largest = max(unsent, key=lambda peer: unsent[peer])
            del unsent[largest]
            text = f"answers have more than {bound} bytes on all connections, and it has most of them and does not read"
            largest.close(Violation("out of buffers", text))
        self._written_bytes = max(0, sum(unsent.values()) - self.held.answer_bytes)

    def count_unsent_bytes(self) -> int:
        """Return how much answers take that clients have not taken, with those that are on their way."""
        return sum(peer.count_unsent_bytes() for peer in self._open)

    def starve(self, peer: Peer) -> None:
        """Have `peer` work again when requests of others have ended."""
        self._starved[peer] = None

    def feed(self) -> None:
        """Let those work who waited for others, if there is room."""
        if self._starved and self.held.work_bytes < self.limits.requests_in_flight_bytes_max:
            starved, self._starved = self._starved, {}
            for peer in starved:
                self.turns.wait(peer)

    # Answers leave.

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
        #: The address without its port.
        self.host = "unknown"
        #: What `Turns` keeps here.
        self.is_waiting = False
        self.heavy_until_s = 0.0
        self.used_s = 0.0
        self._transport: asyncio.Transport | None = None
        self._connection: Connection | None = None
        #: The steps left of the request that was taken last, and that request.
        self._steps: Steps | None = None
        self._request: Request | None = None
        #: Whether the next step has to wait.
        self._is_stalled = False
        self._is_in_step = False
        self._is_flush_due = False
        self._is_writing_paused = False
        self._writing_paused_ms = 0.0
        self._is_reading_paused = False
        self._buffered_bytes = 0

    # What asyncio calls.

    def connection_made(self, base_transport: asyncio.BaseTransport) -> None:
        """Take a new socket, or close it when there are too many."""
        # uvloop's transports have the interface and not the class.
        transport = cast("asyncio.Transport", base_transport)
        name = transport.get_extra_info("peername")
        if isinstance(name, tuple):
            self.host = str(name[0])
            self.address = format_address(self.host, name[1])
        peers = self._peers
        if not peers.admit(self):
            transport.abort()
            return
        transport.set_write_buffer_limits(high=peers.limits.write_buffer_bytes_max)
        self._transport = transport
        self._connection = Connection(peers.apis, peers.limits, self.address, peers.now_ms(), peers.held)

    def data_received(self, data: bytes) -> None:
        """Take bytes of the client."""
        connection, peers = self._connection, self._peers
        if connection is None or peers.is_draining:
            return
        connection.receive(data)
        if not self._is_writing_paused:
            peers.turns.offer(self, peers.clock())
        if self.is_waiting or self._is_writing_paused:
            self._count_buffered()
            self._update_reading()

    def eof_received(self) -> None:
        """Close when the client sends no more."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the socket; answers that come later are dropped."""
        self._let_go()
        self._transport = None
        self._peers.forget(self)

    def pause_writing(self) -> None:
        """Begin no more requests until the client takes its answers."""
        self._is_writing_paused = True
        self._writing_paused_ms = self._peers.now_ms()
        self._update_reading()

    def resume_writing(self) -> None:
        """Begin requests again."""
        self._is_writing_paused = False
        self._update_reading()
        self._peers.turns.wait(self)

    # What the server calls.

    @property
    def is_unanswered(self) -> bool:
        """Whether a request is being carried out."""
        return self._connection is not None and self._connection.unanswered > 0

    def silent_ms(self, now_ms: float) -> float:
        """Return for how long the client has waited for nothing and asked for nothing."""
        return 0.0 if self._connection is None else self._connection.silent_ms(now_ms)

    def count_buffered_bytes(self) -> int:
        """Return how much is held of requests that are not begun."""
        return self._buffered_bytes

    def count_unsent_bytes(self) -> int:
        """Return how much answers take that the client has not taken, with those that are on their way."""
        connection, transport = self._connection, self._transport
        if connection is None or transport is None:
            return 0
        return connection.unsent_bytes + transport.get_write_buffer_size()

    def flush(self) -> None:
        """Write the answers that may leave, and work on if that made room."""
        self._is_flush_due = False
        connection, transport = self._connection, self._transport
        if connection is None or transport is None:
            return
        output = connection.take_output()
        if len(output) == 1:
            transport.write(output[0])
            size = len(output[0])
        else:
            size = sum(map(len, output))
            if size <= _JOINED_BYTES_MAX:
                transport.write(b"".join(output))
            else:
                transport.writelines(output)
        self._peers.count_written(size)
        if connection.is_paused:
            self._peers.turns.wait(self)
        if self._peers.is_draining and not connection.in_flight:
            transport.close()

    def drain(self) -> None:
        """Take no more requests, and close when those in flight are answered; what still comes is read and dropped."""
        connection, transport = self._connection, self._transport
        if connection is None or transport is None:
            self.abort()
        elif not connection.in_flight and not self._is_flush_due:
            transport.close()

    def abort(self) -> None:
        """Close without waiting for anything."""
        self._let_go()
        if self._transport is not None:
            self._transport.abort()

    def close_if_overdue(self, now_ms: float) -> None:
        """Close a connection whose time is up."""
        if self._connection is None:
            return
        violation, idle_ms = self._connection.overdue(now_ms), self._peers.limits.connections_max_idle_ms
        if violation is None and self._is_writing_paused and now_ms - self._writing_paused_ms > idle_ms:
            violation = Violation("idle", f"it took too few of its answers for {idle_ms} ms")
        if violation is not None:
            # Silence is no offence: Kafka's clients leave connections to the idle limit.
            self.close(violation, is_offence=violation.kind != "idle")

    def close(self, violation: Violation, is_offence: bool = True) -> None:
        """Close because of what the client did; others take its place at once."""
        if is_offence:
            self._peers.violations += 1
            self._peers.report(violation.kind, self.address, violation.text)
        # Not the transport's close(): that would wait for a client to take what was written.
        self.abort()
        self._peers.forget(self)

    # The ways of a request and its answer.

    def work(self, ends_s: float) -> bool:
        """See `turns.Worker`: encode, go on with a request, or begin the next one."""
        is_unfinished = self._work(ends_s)
        self._count_buffered()
        self._update_reading()
        return is_unfinished

    def _work(self, ends_s: float) -> bool:
        clock = self._peers.clock
        while True:
            connection = self._connection
            if connection is None:
                if self._steps is not None:
                    self._step()
                return self._steps is not None and not self._is_stalled
            if self._steps is not None and not self._is_stalled:
                self._step()
            elif connection.has_more_to_encode and not self._is_writing_paused:
                self._encode(connection)
            elif self._steps is not None or not self._begin(connection):
                return False
            if self._steps is None and not connection.has_unread_chunk and not connection.has_more_to_encode:
                return False
            if clock() >= ends_s:
                return True

    def _begin(self, connection: Connection) -> bool:
        """Begin the next request; returns whether there was one."""
        peers = self._peers
        if self._is_writing_paused or peers.is_draining:
            return False
        request = connection.next_request(peers.now_ms())
        if request is None:
            if connection.violation is not None:
                self.close(connection.violation)
            elif connection.is_starved:
                connection.is_starved = False
                peers.starve(self)
            return False
        peers.requests += 1
        try:
            self._steps = peers.handler(request, partial(self._answer, request))
        except MalformedBody as error:
            self._refuse(request, error)
        except Exception as bug:
            self._fail(request, bug)
        if self._steps is None:
            request.frame = b""
        else:
            self._request = request
            request.wake = self._wake
        return True

    def _wake(self) -> None:
        """Go on with the steps of a request."""
        if self._is_stalled:
            self._is_stalled = False
            self._peers.turns.wait(self)

    def _step(self) -> None:
        """Do one step of the request that was taken last."""
        steps, request = self._steps, self._request
        assert steps is not None
        assert request is not None
        self._is_in_step = True
        try:
            self._is_stalled = not next(steps)
        except StopIteration:
            self._steps = self._request = None
        except MalformedBody as error:
            self._steps = self._request = None
            self._refuse(request, error)
        except Exception as bug:
            self._steps = self._request = None
            self._fail(request, bug)
        self._is_in_step = False
        if self._steps is None:
            request.frame = b""
            request.wake = None
            self._is_stalled = False

    def _encode(self, connection: Connection) -> None:
        try:
            connection.encode_piece()
        except Exception as bug:
            self._fail(None, bug)
            return
        self._flush_if_due(connection)
        self._peers.feed()

    def _answer(self, request: Request, body: Body) -> None:
        connection = self._connection
        if connection is None or not request.is_wanted:
            request.release()
        elif request.failure is not None:
            self._fail(request, request.failure)
        else:
            connection.reply(request, body)
            self._flush_if_due(connection)
            if connection.has_more_to_encode:
                self._peers.turns.wait(self)
        peers = self._peers
        peers.feed()
        if peers.is_draining:
            peers.look_for_end()

    def _flush_if_due(self, connection: Connection) -> None:
        if connection.has_output and not self._is_flush_due:
            self._is_flush_due = True
            self._peers.flush_soon(self)

    def _refuse(self, request: Request, error: MalformedBody) -> None:
        request.release()
        self.close(Violation("malformed request", f"{self._peers.apis[request.api_key].name}: {error}"))

    def _fail(self, request: Request | None, bug: Exception) -> None:
        """End a connection that cannot be answered; a bug of ours stays with it, and the client learns of it so."""
        name = "an answer"
        if request is not None:
            request.release()
            name = self._peers.apis[request.api_key].name
        _log.debug("a request could not be answered", peer=self.address, call=name, exc_info=bug)
        self.close(Violation("failed request", f"{name} failed by a bug of ours: {bug!r}"), is_offence=True)

    def _update_reading(self) -> None:
        connection, transport = self._connection, self._transport
        if connection is None or transport is None:
            return
        is_ahead = connection.has_unread_chunk and (
            connection.is_paused or connection.buffered_bytes > _READ_AHEAD_BYTES
        )
        is_paused = is_ahead or self._is_writing_paused
        if is_paused != self._is_reading_paused:
            self._is_reading_paused = is_paused
            if is_paused:
                transport.pause_reading()
            else:
                transport.resume_reading()

    def _count_buffered(self) -> None:
        connection = self._connection
        buffered_bytes = 0 if connection is None else connection.buffered_bytes
        change = buffered_bytes - self._buffered_bytes
        if change:
            self._buffered_bytes = buffered_bytes
            self._peers.count_buffered(change)

    def _let_go(self) -> None:
        """Drop all that is held for the client; what is being carried out learns that nobody waits for it."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        connection.close()
        self._count_buffered()
        if self._steps is not None and not self._is_in_step:
            self._peers.turns.wait(self)
        self._peers.feed()
