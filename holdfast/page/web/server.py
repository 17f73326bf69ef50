"""The server of the page at one socket: uvicorn's connections on the loop of the caller, within bounds.

A connection that asks for nothing does not take the place of another for ever.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any, Final

from starlette.types import ASGIApp
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from holdfast.http_connections import connections_of

#: Connections at once: people and their event streams, and not more than a process has descriptors for.
CONNECTIONS_MAX: Final = 200
#: A connection on which no whole request has come for so long is closed, and one whose client takes nothing of its answer.
PATIENCE_S: Final = 10.0
#: And after so long already while others wait for its place: more than a round trip to another continent.
_GRACE_S: Final = 0.25
#: How long it takes to see that a connection has ended.
_FULL_S: Final = 0.02
#: Line and headers of a request: a name has 249 characters, of which each may take twelve in an address.
_HEAD_BYTES_MAX: Final = 32 << 10
#: How long answers that are on their way may take at the end.
_END_S: Final = 0.2


class PageServer:
    """A server of one application."""

    def __init__(self, app: ASGIApp, listener: socket.socket) -> None:
        """Take what is served, and answer nothing yet.

        Args:
            app: answers.
            listener: is listened at, and stays open.
        """
        self._listener = listener
        self._config = connections_of(app, _HEAD_BYTES_MAX)
        self._state = ServerState()
        #: Those that wait for a request, by the loop's time since when they do; the one that has waited longest first.
        self._idle: dict[_Connection, float] = {}

    async def serve(self, ended: asyncio.Event) -> None:
        """Answer requests until the end; then those that are on their way have a moment, and event streams are cut."""
        self._config.load()
        self._listener.setblocking(False)
        accepting = asyncio.create_task(self._accept_all(), name="holdfast-page-accept")
        try:
            await ended.wait()
        finally:
            accepting.cancel()
            await asyncio.gather(accepting, return_exceptions=True)
            await self._close_all()

    def note(self, connection: _Connection, *, is_idle: bool) -> None:
        """Note whether a connection waits for a request."""
        if not is_idle:
            self._idle.pop(connection, None)
        else:
            self._idle.setdefault(connection, asyncio.get_running_loop().time())

    async def _accept_all(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            # Those for which there is no room wait in the kernel, which refuses nobody.
            if len(self._state.connections) >= CONNECTIONS_MAX:
                self._make_room()
                await asyncio.sleep(_FULL_S)
                continue
            try:
                accepted, _ = await loop.sock_accept(self._listener)
                await loop.connect_accepted_socket(lambda: _Connection(self, self._config, self._state), accepted)
            except OSError:  # the client is gone again, or descriptors are used up
                await asyncio.sleep(_FULL_S)

    def _make_room(self) -> None:
        """Have connections that have waited long for a request give their places to those that may ask."""
        before_s = asyncio.get_running_loop().time() - _GRACE_S
        for connection, since_s in list(self._idle.items()):
            if since_s > before_s:
                break
            connection.abort()

    async def _close_all(self) -> None:
        for connection in list(self._state.connections):
            connection.shutdown()
        tasks = set(self._state.tasks)
        if tasks:
            await asyncio.wait(tasks, timeout=_END_S)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for connection in list(self._state.connections):
            connection.transport.abort()


class _Connection(H11Protocol):
    """One of uvicorn's connections, whose client has a request, and takes the answer, within a time."""

    def __init__(self, server: PageServer, config: Config, state: ServerState) -> None:
        super().__init__(config, state, {})
        self._page_server = server
        #: Ends it, unless what it waits for comes before.
        self._deadline: asyncio.TimerHandle | None = None
        #: The last answer that was begun when it began to wait.
        self._waits_after: object = None
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        super().connection_made(transport)
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._page_server.note(self, is_idle=False)
        for timer in (self._deadline, self._unread):
            if timer is not None:
                timer.cancel()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._look()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = asyncio.get_running_loop().call_later(PATIENCE_S, self.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()

    def abort(self) -> None:
        """End it now."""
        self._page_server.note(self, is_idle=False)
        self.transport.abort()

    def _look(self) -> None:
        """Have its time run from now on if it has begun to wait for a request, and end if it waits no longer."""
        cycle: Any = self.cycle
        is_idle = cycle is None or cycle.response_complete
        self._page_server.note(self, is_idle=is_idle and not self.transport.is_closing())
        if is_idle and self._deadline is not None and self._waits_after is cycle:
            return  # a part of a request gives it no more time
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if is_idle:
            self._waits_after = cycle
            self._deadline = asyncio.get_running_loop().call_later(PATIENCE_S, self.abort)
