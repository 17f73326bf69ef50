"""A server of the page on the loop of a test: uvicorn's connections, and none of its signals."""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.types import ASGIApp
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

_STOP_S: Final = 1.0


class PageServer:
    """A server of one application at one address."""

    def __init__(self, app: ASGIApp) -> None:
        self._config = Config(
            app,
            http="h11",
            ws="none",
            lifespan="off",
            loop="none",
            log_config=None,
            log_level="critical",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
        )
        self._state = ServerState()
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        """Port that is listened on, also when any free one was asked for."""
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def start(self, host: str, port: int) -> None:
        """Listen until `stop`; port 0 is any free one.

        Raises:
            OSError: the address is in use or not ours.
        """
        self._config.load()
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: H11Protocol(self._config, self._state, {}), host, port)

    async def stop(self) -> None:
        """Stop listening, give requests that are answered a moment, and close all connections."""
        if self._server is not None:
            self._server.close()
        for connection in list(self._state.connections):
            connection.shutdown()
        tasks = list(self._state.tasks)
        if tasks:
            await asyncio.wait(tasks, timeout=_STOP_S)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for connection in list(self._state.connections):
            connection.transport.abort()
