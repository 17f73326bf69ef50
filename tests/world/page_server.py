"""The server of the page at an address of a test, on the loop of the test."""

from __future__ import annotations

import asyncio
import socket

from starlette.types import ASGIApp

from holdfast.page.web import server


class PageServer:
    """A server of one application at one address."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._ended = asyncio.Event()
        self._listener: socket.socket | None = None
        self._serving: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        """Port that is listened on, also when any free one was asked for."""
        assert self._listener is not None
        port: int = self._listener.getsockname()[1]
        return port

    async def start(self, host: str, port: int) -> None:
        """Listen until `stop`; port 0 is any free one.

        Raises:
            OSError: the address is in use or not ours.
        """
        self._listener = socket.create_server((host, port))
        self._serving = asyncio.create_task(server.PageServer(self._app, self._listener).serve(self._ended))

    async def stop(self) -> None:
        """Stop listening, give requests that are answered a moment, and close all connections."""
        self._ended.set()
        if self._serving is not None:
            await self._serving
        if self._listener is not None:
            self._listener.close()
