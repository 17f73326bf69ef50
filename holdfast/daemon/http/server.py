"""The server of the HTTP port: uvicorn's connections on the loop of the node, within bounds.

uvicorn's own server would take the signals of the process and has no bound on what a slow client may hold, so only what it has for
one connection is used.
"""

from __future__ import annotations

import asyncio
from typing import cast

from starlette.types import ASGIApp
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from holdfast.daemon.http.guard import make_ssl_context
from holdfast.daemon.settings.components.http import HttpSettings


class CannotListenHttp(Exception):
    """The address of the HTTP port cannot be used."""

    def __init__(self, address: str, error: OSError) -> None:
        super().__init__(
            f"Cannot listen for HTTP on {address} ({error.strerror or error}); set another `http.listen`, or an empty one for none."
        )


class HttpServer:
    """A server of one application at one address."""

    def __init__(self, app: ASGIApp, settings: HttpSettings) -> None:
        self._settings = settings
        self._config = Config(
            app,
            http="h11",
            ws="none",
            lifespan="off",
            loop="none",
            log_config=None,
            # What clients do is no line of ours, and what the application fails at is logged by it.
            log_level="critical",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=max(1, settings.request_timeout_ms // 1_000),
            h11_max_incomplete_event_size=settings.request_head_bytes_max,
        )
        self._state = ServerState()
        self._connections: set[_Connection] = set()
        self._is_empty = asyncio.Event()
        self._is_empty.set()
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        """Port that is listened on, also when the setting asked for any free one."""
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def is_tls(self) -> bool:
        """Whether clients are to speak TLS."""
        return bool(self._settings.tls_certificate_file)

    async def start(self) -> None:
        """Listen, from now on until `stop`.

        Raises:
            CannotListenHttp: the address is in use or not ours.
            GuardRefused: a file of TLS cannot be used.
        """
        address = self._settings.listen_address
        assert address is not None
        context = make_ssl_context(self._settings)
        self._config.load()
        timeout_s = self._settings.request_timeout_ms / 1_000 if context is not None else None
        try:
            self._server = await asyncio.get_running_loop().create_server(
                self._make_connection,
                *address,
                backlog=self._settings.connections_max,
                ssl=context,
                ssl_handshake_timeout=timeout_s,
            )
        except OSError as error:
            raise CannotListenHttp(self._settings.listen, error) from error

    async def stop(self, unread_timeout_ms: int) -> None:
        """Stop listening, let requests finish and clients take their answers for so long, and close all connections."""
        if self._server is None:
            return
        self._server.close()
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
        if len(self._connections) >= self._settings.connections_max:
            return False
        self._connections.add(connection)
        self._is_empty.clear()
        return True

    def closed(self, connection: _Connection) -> None:
        """Count a connection out."""
        self._connections.discard(connection)
        if not self._connections:
            self._is_empty.set()

    def _make_connection(self) -> _Connection:
        inner = H11Protocol(self._config, self._state, {})
        return _Connection(self, inner, self._settings.request_timeout_ms / 1_000)


class _Connection(asyncio.Protocol):
    """One of uvicorn's connections, which ends when its time is up."""

    def __init__(self, server: HttpServer, inner: H11Protocol, timeout_s: float) -> None:
        self._server = server
        self._inner = inner
        self._timeout_s = timeout_s
        self._transport: asyncio.Transport | None = None
        self._is_open = False
        self._timer: asyncio.TimerHandle | None = None
        #: The request that was there at the last look.
        self._seen: object = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # That of uvloop has the interface and not the class.
        self._transport = cast("asyncio.Transport", transport)
        self._is_open = self._server.opened(self)
        if not self._is_open:
            self.abort()
            return
        self._inner.connection_made(self._transport)
        self._look()

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
        if self._timer is not None:
            self._timer.cancel()
        if self._is_open:
            self._is_open = False
            self._inner.connection_lost(error)
            self._server.closed(self)

    def finish(self) -> None:
        """Close when the request in flight is answered; at once where there is none."""
        assert self._transport is not None
        if not self._transport.is_closing():
            self._inner.shutdown()

    def abort(self) -> None:
        """Close now."""
        assert self._transport is not None
        self._transport.abort()

    def _look(self) -> None:
        self._seen = self._inner.cycle
        self._timer = asyncio.get_running_loop().call_later(self._timeout_s, self._close_if_stuck)

    def _close_if_stuck(self) -> None:
        if self._inner.cycle is self._seen:
            self.abort()
        else:
            self._look()
