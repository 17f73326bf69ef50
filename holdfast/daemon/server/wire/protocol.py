"""One client connection on asyncio: bytes to a `Connection`, its requests to the handler, answers back.

A large request is worked off in steps, and a large answer is encoded in steps. A client that does not read its answers
is not read from; one that breaks the protocol loses its connection, costs one limited log line, and harms no other.
"""

from __future__ import annotations

import asyncio
import socket
from functools import partial
from typing import Final, cast

from holdfast.daemon.server.wire.accounts import Account
from holdfast.daemon.server.wire.connection import NEED_MEMORY, NEED_QUOTA, Connection
from holdfast.daemon.server.wire.connections import Connections
from holdfast.daemon.server.wire.open_connection import OpenConnection
from holdfast.daemon.server.wire.requests import (
    SMALL_FRAME_BYTES,
    Body,
    ClientConnection,
    Request,
    Steps,
    StepwiseRequest,
    Violation,
)
from holdfast.daemon.server.wire.security import Login, NotAdmitted, encrypt
from holdfast.kafka.addresses import format_address
from holdfast.kafka.protocol.primitives import MalformedBody

#: Answers of one turn are copied into one piece up to this size; larger ones go to the socket as they are.
_JOINED_BYTES_MAX: Final = 65_536
#: Bytes of an answer in pieces that go to one socket in one turn of the loop.
_TURN_BYTES_MAX: Final = 1 << 20
#: An answer in pieces whose client takes nothing for so long is given up: its pieces lie in memory that others wait for.
_PIECES_UNTAKEN_MS: Final = 30_000


class ClientProtocol(OpenConnection):
    """The way of bytes between one socket and its `Connection`; has all that an `asyncio.Protocol` has."""

    def __init__(self, connections: Connections) -> None:
        super().__init__()
        self._connections = connections
        #: Whose requests are counted with its own, and as which principal; None while it has no place.
        self._account: Account | None = None
        self._joined_as = ""
        self._transport: asyncio.Transport | None = None
        self._connection: Connection | None = None
        #: The connection as calls see it; None until it has a transport.
        self._client: ClientConnection | None = None
        self._stepwise: StepwiseRequest | None = None
        #: None: the client need not log in.
        self._login: Login | None = None
        #: The TLS handshake, until it is over.
        self._handshake: asyncio.Future[None] | None = None
        #: When it was accepted.
        self._came_ms = 0.0
        #: Whether it was given up before it had a transport.
        self._is_gone = False
        #: Whether the connection is to be closed when what is in flight is answered.
        self._is_ending = False
        self._is_flush_due = False
        self._is_writing_paused = False
        self._writing_paused_ms = 0.0
        self._is_reading_paused = False
        self._buffered_bytes = 0

    # What asyncio calls.

    def connection_made(self, base_transport: asyncio.BaseTransport) -> None:
        """Take a new socket, or close it when there are too many; one with TLS was taken before its handshake."""
        # uvloop's transports have the interface and not the class.
        transport = cast("asyncio.Transport", base_transport)
        connections, certificate = self._connections, None
        if self._handshake is not None:
            self._handshake = None
            certificate = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
        elif self._is_gone or not self._enter(transport.get_extra_info("peername")):
            transport.abort()
            return
        bounds = connections.bounds
        transport.set_write_buffer_limits(high=bounds.write_buffer_bytes_max)
        self._transport = transport
        now_ms = connections.now_ms()
        self._client = client = ClientConnection(self.address, self.host, connections.waiting, connections.run_soon)
        self._connection = connection = Connection(
            connections.apis, connections.limits, self.address, now_ms, connections.memory, bounds, client
        )
        security = connections.security
        try:
            connection.principal = security.principal_of(certificate, self.address)
        except NotAdmitted as error:
            self.close(Violation("client_not_admitted", str(error)))
            return
        self._join_account(connection)
        self._login = security.begin_login(self)
        if self._login is not None:
            connection.await_login(security.login_frame_size_bytes_max, self._came_ms + security.login_timeout_ms)

    def data_received(self, data: bytes) -> None:
        """Take bytes of the client."""
        connection, connections = self._connection, self._connections
        if connection is None or connections.is_draining:
            return
        connection.receive(data)
        if not self._is_writing_paused:
            connections.turns.offer(self, connections.clock())
        if self.is_waiting or self._is_writing_paused:
            self._report_buffered()
            self._update_reading()

    def eof_received(self) -> None:
        """Close when the client sends no more."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the socket; answers that come later are dropped."""
        self._release_connection()
        self._transport = None
        self._connections.remove(self)

    def pause_writing(self) -> None:
        """Begin no more requests until the client takes its answers."""
        self._is_writing_paused = True
        self._writing_paused_ms = self._connections.now_ms()
        self._update_reading()

    def resume_writing(self) -> None:
        """Begin requests again."""
        self._is_writing_paused = False
        self._update_reading()
        if self._connection is not None:
            self._flush_next(self._connection)
        self._connections.turns.wait(self)

    # What comes of the TLS handshake and of the login.

    def take_socket(self, accepted: socket.socket, peer_name: object) -> None:
        """See `security.HandshakeConnection`."""
        connections, security = self._connections, self._connections.security
        context = security.ssl_context
        if context is None or not self._enter(peer_name):
            accepted.close()
            return
        timeouts_ms = security.login_timeout_ms, connections.bounds.unread_timeout_ms
        self._handshake = asyncio.ensure_future(encrypt(self, accepted, context, *timeouts_ms))

    def not_encrypted(self, why: str) -> None:
        """See `security.HandshakeConnection`."""
        self._connections.security.not_encrypted(self.address, why)
        if self._handshake is not None:
            self.close(Violation("tls_handshake_failed", why))

    def let_in(self, principal: str) -> None:
        """See `security.LoginConnection`."""
        if self._connection is not None:
            self._connection.let_in(principal)

    def close_answered(self, violation: Violation) -> None:
        """See `security.LoginConnection`."""
        self._is_ending = True
        self._connections.violations += 1
        self._connections.report(violation.kind, self.address, violation.text)

    def _enter(self, peer_name: object) -> bool:
        """Take the address of the client, and the time; returns whether it has a place."""
        self._came_ms = self._connections.now_ms()
        if isinstance(peer_name, tuple):
            self.host = str(peer_name[0])
            self.address = format_address(self.host, peer_name[1])
        return self._connections.admit(self)

    # What the server calls.

    @property
    def is_unanswered(self) -> bool:
        """Whether a request is being carried out."""
        return self._connection is not None and self._connection.unanswered > 0

    def silent_ms(self, now_ms: float) -> float:
        """Return for how long the client has sent no request and waited for no answer."""
        if self._handshake is not None:
            return now_ms - self._came_ms
        return 0.0 if self._connection is None else self._connection.silent_ms(now_ms)

    def count_buffered_bytes(self) -> int:
        """Return how many bytes it has of requests that are not begun."""
        return self._buffered_bytes

    def count_unsent_bytes(self) -> int:
        """Return how much answers take that the client has not taken, those in flight included."""
        connection, transport = self._connection, self._transport
        if connection is None or transport is None:
            return 0
        return connection.unsent_bytes + transport.get_write_buffer_size()

    def flush(self) -> None:
        """Write the answers that may leave, and work on if that made room."""
        try:
            self._flush()
        except Exception as bug:
            self._fail(None, bug)

    def _flush(self) -> None:
        self._is_flush_due = False
        connection, transport = self._connection, self._transport
        if connection is None or transport is None:
            return
        output = connection.take_output(0 if self._is_writing_paused else _TURN_BYTES_MAX)
        if len(output) == 1:
            transport.write(output[0])
            size = len(output[0])
        else:  # none where the socket has no room for the rest of an answer in pieces
            size = sum(map(len, output))
            if size <= _JOINED_BYTES_MAX:
                transport.write(b"".join(output))
            else:
                transport.writelines(output)
        self._connections.buffers.add_written(size)
        if connection.has_output:
            self._flush_next(connection)
        if connection.is_paused:
            self._connections.turns.wait(self)
        if (self._is_ending or self._connections.is_draining) and not connection.in_flight:
            transport.close()

    def _flush_next(self, connection: Connection) -> None:
        """Write what is left of an answer in pieces in a later turn of the loop, if the socket has room then."""
        if connection.has_output and not self._is_flush_due and not self._is_writing_paused:
            self._is_flush_due = True
            self._connections.flush_next(self)

    def drain(self) -> None:
        """Take no more requests, and close when those in flight are answered; what still comes is read and dropped."""
        if self._client is not None:
            try:
                self._client.answer_waiting()
            except Exception as bug:
                self._fail(None, bug)
        connection, transport = self._connection, self._transport
        if connection is None or transport is None:
            self.abort()
        elif not connection.in_flight and not self._is_flush_due:
            transport.close()

    def abort(self) -> None:
        """Close without waiting for anything."""
        self._release_connection()
        if self._transport is not None:
            self._transport.abort()
        elif self._handshake is not None:
            self._handshake.cancel()
            self._handshake, self._is_gone = None, True
            self._connections.remove(self)

    def close_if_overdue(self, now_ms: float) -> None:
        """Close a connection whose time is up."""
        if self._connection is None:
            return
        violation, untaken_ms = self._connection.overdue(now_ms), self._connections.limits.connections_max_idle_ms
        if self._connection.has_output:
            untaken_ms = min(untaken_ms, _PIECES_UNTAKEN_MS)
        takes_no_answers = self._is_writing_paused and now_ms - self._writing_paused_ms > untaken_ms
        if violation is not None:
            self.close(violation)
        elif self._connection.is_idle(now_ms) or takes_no_answers:
            # Silence is no violation: Kafka's clients leave connections to the idle limit.
            self._close_at_once()

    def close(self, violation: Violation) -> None:
        """Close because of what the client did; others take its place at once."""
        self._connections.violations += 1
        self._connections.report(violation.kind, self.address, violation.text)
        self._close_at_once()

    def _close_at_once(self) -> None:
        # Not the transport's close(): that would wait for a client to take what was written.
        self.abort()
        self._connections.remove(self)

    # Requests are carried out, and answers encoded.

    def work(self, ends_s: float) -> bool:
        """See `turns.Worker`: encode, go on with a request, or begin the next one."""
        try:
            is_unfinished = self._work(ends_s)
            self._report_buffered()
            self._update_reading()
        except Exception as bug:
            self._fail(None, bug)
            return False
        return is_unfinished

    def _work(self, ends_s: float) -> bool:
        clock = self._connections.clock
        while True:
            if self.is_in_batch:
                self._connections.batch.begin()
            connection, stepwise = self._connection, self._stepwise
            if connection is None:
                # The client is gone; the last step gives back what its request takes.
                return stepwise is not None and self._step(stepwise)
            if stepwise is not None and not stepwise.is_waiting:
                self._step(stepwise)
            elif connection.has_more_to_encode and not self._is_writing_paused:
                self._encode(connection)
            elif stepwise is not None or not self._begin_next(connection):
                return False
            if self._stepwise is None and not connection.has_unread_chunk and not connection.has_more_to_encode:
                return False
            if clock() >= ends_s:
                return True

    def _begin_next(self, connection: Connection) -> bool:
        """Begin the next request, a small one together with those of other connections; returns whether there was one."""
        connections = self._connections
        if self._is_writing_paused or self._is_ending or connections.is_draining:
            connections.share_free_memory()  # what made it work again is for others
            return False
        if connection.principal != self._joined_as:
            self._join_account(connection)
        now_ms = connections.now_ms()
        request = connection.next_event(now_ms)
        if not isinstance(request, Request):
            if isinstance(request, Violation):
                self.close(request)
            elif request is NEED_MEMORY:
                connections.wait_for_memory(self)
            elif request is NEED_QUOTA and self._account is not None:
                connections.accounts.wait(self._account, self)
            return False
        connections.requests += 1
        if len(request.frame) <= SMALL_FRAME_BYTES and connections.apis[request.api_key].is_batched:
            connections.batch.add(self, request)
        else:
            self._begin(request)
        return True

    def begin(self, request: Request) -> None:
        """See `OpenConnection`."""
        if not request.is_wanted:
            self._answer(request, b"")
            return
        self._begin(request)
        if self._stepwise is not None:
            self._connections.turns.wait(self)

    def _begin(self, request: Request) -> None:
        connections, login, answer = self._connections, self._login, partial(self._answer, request)
        steps: Steps | None = None
        try:
            if login is not None and login.takes(request.api_key):
                login.handle(request, answer)
            elif login is not None and (violation := login.violation(connections.now_ms())) is not None:
                request.release()
                self.close(violation)
            else:
                steps = connections.handler(request, answer)
        except MalformedBody as error:
            self._refuse(request, error)
        except Exception as bug:
            self._fail(request, bug)
        if steps is None:
            request.frame = b""
        else:
            self._stepwise = StepwiseRequest(request, steps)
            request.wake = self._wake

    def _join_account(self, connection: Connection) -> None:
        """Count what follows as requests of the principal that the connection has now."""
        accounts = self._connections.accounts
        if self._account is not None:
            accounts.leave(self._account, self)
        self._joined_as = connection.principal
        self._account = account = accounts.enter(connection.principal, self.host)
        self.payer = account.payer
        connection.join(account)

    def _wake(self) -> None:
        """Go on with the steps of a request."""
        stepwise = self._stepwise
        if stepwise is not None and stepwise.is_waiting:
            stepwise.is_waiting = False
            self._connections.turns.wait(self)

    def _step(self, stepwise: StepwiseRequest) -> bool:
        """Do one step of a request; returns whether the next one can be done."""
        failure: Exception | None = None
        try:
            stepwise.step()
        except Exception as error:
            failure = error
        if stepwise.is_done:
            self._stepwise = None
        if isinstance(failure, MalformedBody):
            self._refuse(stepwise.request, failure)
        elif failure is not None:
            self._fail(stepwise.request, failure)
        return not stepwise.is_done and not stepwise.is_waiting

    def _encode(self, connection: Connection) -> None:
        try:
            connection.encode_piece()
        except Exception as bug:
            self._fail(None, bug)
            return
        self._flush_if_due(connection)
        self._connections.share_free_memory()

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
                self._connections.turns.wait(self)
        connections = self._connections
        connections.share_free_memory()
        if connections.is_draining:
            connections.check_drained()

    def _flush_if_due(self, connection: Connection) -> None:
        if not connection.has_output or self._is_flush_due:
            return
        if self._connections.memory.requests or connection.has_unread_chunk:
            self._is_flush_due = True
            self._connections.flush_soon(self)
        else:
            self.flush()  # nothing else is carried out that could leave with it

    # A connection ends.

    def _refuse(self, request: Request, error: MalformedBody) -> None:
        request.release()
        self.close(Violation("malformed_request_received", f"{self._connections.apis[request.api_key].name}: {error}"))

    def _fail(self, request: Request | None, bug: Exception) -> None:
        """Close a connection that cannot be answered; so a bug of ours costs this one alone, and its client notices."""
        call = None if request is None else self._connections.apis[request.api_key].name
        if request is not None:
            request.release()
        self._connections.internal_errors.note_bug("request_failure_traced", bug, client=self.address, call=call)
        self.close(Violation("request_failed", f"{call or 'a request or its answer'} failed by a bug of ours: {bug!r}"))

    def _update_reading(self) -> None:
        connection, transport = self._connection, self._transport
        if connection is None or transport is None:
            return
        is_paused = connection.is_ahead or self._is_writing_paused
        if is_paused != self._is_reading_paused:
            self._is_reading_paused = is_paused
            if is_paused:
                transport.pause_reading()
            else:
                transport.resume_reading()

    def _report_buffered(self) -> None:
        connection = self._connection
        buffered_bytes = 0 if connection is None else connection.buffered_bytes
        change = buffered_bytes - self._buffered_bytes
        if change:
            self._buffered_bytes = buffered_bytes
            self._connections.buffers.add_buffered(change)

    def _release_connection(self) -> None:
        """Drop all that is kept for the client; what is being carried out learns that its answer is not wanted any more."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        connection.close()
        if self._login is not None:
            self._login.end()
        if self._account is not None:
            self._connections.accounts.leave(self._account, self)
            self._account = None
        self._report_buffered()
        if self._stepwise is not None and not self._stepwise.is_running:
            self._connections.turns.wait(self)
        self._connections.share_free_memory()
