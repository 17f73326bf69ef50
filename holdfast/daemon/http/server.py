"""The server of the HTTP port: uvicorn's connections on the loop of the node, within bounds.

uvicorn's own server would take the signals of the process and has no bound on what a slow client may hold, so only what it has for
one connection is used. A connection is counted before its TLS handshake, as those of the listener are.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, cast

from starlette.types import ASGIApp
from uvicorn.server import ServerState

from holdfast.daemon.http.bounded_heads import BoundedHeads
from holdfast.daemon.internal_errors import InternalErrors
from holdfast.daemon.login.tls import FollowedTls
from holdfast.daemon.server.sockets import CannotListen, listen
from holdfast.daemon.server.wire.admission import Admission
from holdfast.daemon.server.wire.requests import ANONYMOUS
from holdfast.daemon.server.wire.security import accept_encrypted, accept_plain, encrypt, keep_accepting
from holdfast.daemon.settings.components.http import HttpSettings
from holdfast.http_connections import connections_of
from holdfast.kafka.addresses import format_address

#: Of the file descriptors that clients of the listener leave, those of this port leave so many.
_PART_KEPT: Final = 0.5

#: A client that has its answer takes it within a round trip to another continent.
UNREAD_TIMEOUT_MS: Final = 500


class HttpBounds(NamedTuple):
    """The bounds of one HTTP connection."""

    #: A connection is closed when no request has begun on it for so long, the TLS handshake included, or one takes longer: three times
    #: the patience of Prometheus.
    request_timeout_ms: int = 30_000
    #: Line and headers of one request: twice those of a browser with cookies, and as large as h11 takes by itself.
    head_bytes_max: int = 16 * 1024


class CannotListenHttp(Exception):
    """The address of the HTTP port cannot be used."""

    def __init__(self, address: str, why: object) -> None:
        super().__init__(
            f"Cannot listen for HTTP on {address} ({why}); set another `http.listen`, or an empty one for none."
        )


class HttpServer:
    """A server of one application at one address."""

    def __init__(
        self,
        app: ASGIApp,
        settings: HttpSettings,
        internal_errors: InternalErrors,
        tls: FollowedTls | None = None,
        bounds: HttpBounds | None = None,
        principal_of: Callable[[bytes | None], str] = lambda certificate: ANONYMOUS,
    ) -> None:
        """Prepare a server; its connections are encrypted where there is `tls`, which ends with it.

        `principal_of` returns who a client is that has shown a certificate (DER), or none.
        """
        self.principal_of = principal_of
        self._settings = settings
        self._bounds = bounds = bounds or HttpBounds()
        self._internal_errors = internal_errors
        self._tls = tls
        self._admission = Admission(settings, part_kept=_PART_KEPT)
        self._config = connections_of(
            app,
            bounds.head_bytes_max,
            date_header=False,
            timeout_keep_alive=max(1, bounds.request_timeout_ms // 1_000),
        )
        self._state = ServerState()
        self._connections: set[_Connection] = set()
        self._is_empty = asyncio.Event()
        self._is_empty.set()
        self._sockets: tuple[socket.socket, ...] = ()
        #: What accepts at them.
        self._listeners: list[asyncio.Task[None]] = []

    @property
    def port(self) -> int:
        """Port that is listened on, also when the setting asked for any free one."""
        port: int = self._sockets[0].getsockname()[1]
        return port

    @property
    def is_tls(self) -> bool:
        """Whether clients are to speak TLS."""
        return self._tls is not None

    async def start(self, host: str, port: int) -> None:
        """Listen, from now on until `stop`; port 0 is any free one.

        Raises:
            CannotListenHttp: the address is in use or not ours.
        """
        backlog = self._settings.connections_max
        try:
            self._sockets = listen(host, port, backlog)
        except CannotListen as error:
            raise CannotListenHttp(format_address(host, port), error.why) from error
        self._config.load()
        for each in self._sockets:
            if self._tls is None:
                accept = partial(accept_plain, each, self._make_connection)
            else:
                accept = partial(accept_encrypted, each, self._make_connection)
            accepting = keep_accepting(accept, self._internal_errors)
            self._listeners.append(asyncio.create_task(accepting, name="holdfast-http-accept"))

    async def stop(self, unread_timeout_ms: int = UNREAD_TIMEOUT_MS) -> None:
        """Stop listening, let requests finish and clients take their answers for so long, and close all connections."""
        for listener in self._listeners:
            listener.cancel()
        for each in self._sockets:
            each.close()
        if self._tls is not None:
            self._tls.stop()
        for connection in list(self._connections):
            connection.finish()
        try:
            await asyncio.wait_for(self._is_empty.wait(), unread_timeout_ms / 1_000)
        except TimeoutError:
            for connection in list(self._connections):
                connection.abort()
            await self._is_empty.wait()
        tasks = list(self._state.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def opened(self, connection: _Connection) -> bool:
        """Count a connection in; returns False where there is no place for it."""
        if self._admission.refusal(connection.host) is not None:
            return False
        self._admission.enter(connection.host)
        self._connections.add(connection)
        self._is_empty.clear()
        return True

    def closed(self, connection: _Connection) -> None:
        """Count a connection out."""
        self._admission.leave(connection.host)
        self._connections.discard(connection)
        if not self._connections:
            self._is_empty.set()

    def _make_connection(self) -> _Connection:
        inner = BoundedHeads(self._config, self._state, {})
        return _Connection(self, inner, self._bounds.request_timeout_ms, self._tls)


class _Connection(asyncio.Protocol):
    """One of uvicorn's connections, which ends when its time is up."""

    def __init__(self, server: HttpServer, inner: BoundedHeads, timeout_ms: int, tls: FollowedTls | None) -> None:
        self.host = "unknown"
        self._server = server
        self._inner = inner
        self._timeout_ms = timeout_ms
        self._tls = tls
        #: The TLS handshake, until it has ended.
        self._handshake: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._is_open = False
        self._timer: asyncio.TimerHandle | None = None
        #: The request that was there at the last look.
        self._seen: object = None

    # What comes of the TLS handshake.

    def take_socket(self, accepted: socket.socket, peer_name: object) -> None:
        """See `wire.security.HandshakeConnection`."""
        assert self._tls is not None
        if not self._enter(peer_name):
            accepted.close()
            return
        handshake = encrypt(self, accepted, self._tls.context, self._timeout_ms, self._timeout_ms)
        self._handshake = asyncio.ensure_future(handshake)

    def not_encrypted(self, why: str) -> None:
        """See `wire.security.HandshakeConnection`."""
        if self._handshake is not None:
            self._handshake = None
            self._leave()

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # That of uvloop has the interface and not the class.
        self._transport = cast("asyncio.Transport", transport)
        if self._handshake is not None:
            self._handshake = None
        elif self._tls is not None or not self._enter(transport.get_extra_info("peername")):
            # It was given up meanwhile, or has no place.
            self._transport.abort()
            return
        encrypted = self._transport.get_extra_info("ssl_object")
        certificate = None if encrypted is None else encrypted.getpeercert(binary_form=True)
        self._inner.app_state["principal"] = self._server.principal_of(certificate)
        self._inner.connection_made(self._transport)

    def data_received(self, data: bytes) -> None:
        if self._is_open:
            self._inner.data_received(data)

    def eof_received(self) -> None:
        self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        if self._is_open:
            self._leave()
            self._inner.connection_lost(error)

    # What the server calls.

    def finish(self) -> None:
        """Close when the request in flight is answered; at once where there is none."""
        if self._transport is None:
            self.abort()
        elif not self._transport.is_closing():
            self._inner.shutdown()

    def abort(self) -> None:
        """Close now."""
        if self._transport is not None:
            self._transport.abort()
        elif self._handshake is not None:
            self._handshake.cancel()
            self._handshake = None
            self._leave()

    def _enter(self, peer_name: object) -> bool:
        """Take the address of the client; returns whether it has a place. Its time runs from now on."""
        if isinstance(peer_name, tuple):
            self.host = str(peer_name[0])
        self._is_open = self._server.opened(self)
        if self._is_open:
            self._look()
        return self._is_open

    def _leave(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._is_open = False
        self._server.closed(self)

    def _look(self) -> None:
        self._seen = self._inner.cycle
        self._timer = asyncio.get_running_loop().call_later(self._timeout_ms / 1_000, self._close_if_stuck)

    def _close_if_stuck(self) -> None:
        if self._inner.cycle is self._seen and not self._goes_on():
            self.abort()
        else:
            self._look()

    def _goes_on(self) -> bool:
        """Tell whether the answer is one that goes on, such as events, of which the client has taken all so far."""
        cycle, transport = self._inner.cycle, self._transport
        if cycle is None or transport is None or not cycle.response_started or cycle.response_complete:
            return False
        return transport.get_write_buffer_size() == 0
