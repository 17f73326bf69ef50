"""Connections to all nodes that were heard of: one each, opened when first needed and again when it ended."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence

from holdfast.client.connection import Address, NodeConnection, open_connection
from holdfast.client.errors import ClientError, Disconnected
from holdfast.client.settings import ClientSettings


class Nodes:
    """Hold the connections of one client."""

    def __init__(
        self, bootstrap: Sequence[Address], settings: ClientSettings, ssl_context: ssl.SSLContext | None = None
    ) -> None:
        self._bootstrap = tuple(bootstrap)
        self._settings = settings
        self._ssl_context = ssl_context
        self._connections: dict[Address, NodeConnection] = {}
        #: So that callers who need the same node at once open one connection.
        self._locks: dict[Address, asyncio.Lock] = {}
        self._is_closed = False

    async def to(self, address: Address) -> NodeConnection:
        """Return an open connection to a node.

        Raises:
            Disconnected: it cannot be opened.
        """
        connection = self._connections.get(address)
        if connection is not None and connection.is_open:
            return connection
        async with self._locks.setdefault(address, asyncio.Lock()):
            connection = self._connections.get(address)
            if connection is not None and connection.is_open:
                return connection
            if self._is_closed:
                raise Disconnected("The client is closed.")
            connection = await open_connection(address, self._settings, self._ssl_context)
            self._connections[address] = connection
            return connection

    async def any(self) -> NodeConnection:
        """Return an open connection to whichever node can be reached, those known by name first.

        Raises:
            Disconnected: none can be reached.
        """
        for connection in self._connections.values():
            if connection.is_open:
                return connection
        failures = []
        for address in self._bootstrap:
            try:
                return await self.to(address)
            except ClientError as error:
                failures.append(str(error))
        raise Disconnected(" ".join(failures))

    def close(self) -> None:
        """Close all connections, for good."""
        self._is_closed = True
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
