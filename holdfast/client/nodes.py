"""Connections to all known nodes: one each, opened when first needed and again when it ended."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence

from holdfast.client.connection import Address, NodeConnection, open_connection
from holdfast.client.errors import ClientError, Disconnected
from holdfast.client.settings import ClientSettings


class Nodes:
    """The connections of one client."""

    def __init__(
        self, bootstrap: Sequence[Address], settings: ClientSettings, ssl_context: ssl.SSLContext | None = None
    ) -> None:
        self._bootstrap = tuple(dict.fromkeys(bootstrap))
        #: Nodes that were queried for a coordinator in vain, the longest ago first.
        self._doubted: dict[Address, None] = {}
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
        """Return an open connection to any node that can be reached, those known by name first.

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

    def in_turn(self) -> list[Address]:
        """Return the nodes to query for coordinators: those known by name and those that are connected, the connected ones first.

        Those that were put last come behind all others.
        """
        is_open = {address for address, connection in self._connections.items() if connection.is_open}
        others = sorted(is_open.difference(self._bootstrap))
        first = [address for address in (*self._bootstrap, *others) if address not in self._doubted]
        last = [address for address in self._doubted if address in is_open or address in self._bootstrap]
        return [*sorted(first, key=lambda address: address not in is_open), *last]

    def put_last(self, address: Address) -> None:
        """Query the others first from now on, because this node cannot be reached or what it said led nowhere."""
        self._doubted.pop(address, None)
        self._doubted[address] = None
        if len(self._doubted) > len(self._bootstrap) + len(self._connections):
            del self._doubted[next(iter(self._doubted))]

    def close(self) -> None:
        """Close all connections, for good."""
        self._is_closed = True
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
