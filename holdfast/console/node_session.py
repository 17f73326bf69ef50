"""The connections of one command to nodes: kept to its end, because one address may lead to several nodes.

A second connection might reach another worker, which has not made the page before and does not know the decision that was shown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Final, TypeVar

import click

from holdfast.client import Client, ClientError, ClientSettings, connect
from holdfast.console.outcomes import Exit, Failure
from holdfast.kafka.errors import PropertyRefused
from holdfast.kafka.security import PLAINTEXT, Security, read_security

T = TypeVar("T")

_SETTINGS: Final = ClientSettings(connect_timeout_ms=5_000, request_timeout_ms=60_000, attempts_max=3)
#: Under which a command keeps its session.
_KEY: Final = "holdfast.console.node_session"
#: Under which it keeps the file by which it reaches nodes otherwise.
_FILE: Final = "holdfast.console.client_properties_file"


class NodeSession:
    """Connections by the address that the user gave, on a loop that runs while there is a query."""

    def __init__(self, security: Security = PLAINTEXT) -> None:
        """Reach nodes under some security."""
        self._security = security
        self._runner = asyncio.Runner()
        self._open: dict[str, tuple[Client, AsyncExitStack]] = {}

    def query(self, address: str, query: Callable[[Client], Awaitable[T]]) -> T:
        """Query the node at an address, over the connection of the last query that it answered.

        Raises:
            ValueError: the address is none.
            ClientError: the node does not answer, or refuses.
        """
        return self._runner.run(self._query(address, query))

    def close(self) -> None:
        """Close all connections, for good."""
        for address in tuple(self._open):
            self._runner.run(self._close(address))
        self._runner.close()

    async def _query(self, address: str, query: Callable[[Client], Awaitable[T]]) -> T:
        if address not in self._open:
            stack = AsyncExitStack()
            self._open[address] = await stack.enter_async_context(connect(address, _SETTINGS, self._security)), stack
        try:
            return await query(self._open[address][0])
        except ClientError:
            await self._close(address)
            raise

    async def _close(self, address: str) -> None:
        _, stack = self._open.pop(address)
        await stack.aclose()


@contextmanager
def node_session() -> Iterator[NodeSession]:
    """Give the session of the command that runs; outside of one, a session that ends with the context."""
    context = click.get_current_context(silent=True)
    if context is None:
        session = NodeSession()
        try:
            yield session
        finally:
            session.close()
        return
    if _KEY not in context.meta:
        context.meta[_KEY] = NodeSession(_find_security(context))
        context.find_root().call_on_close(context.meta[_KEY].close)
    yield context.meta[_KEY]


def reach_nodes_by(properties_file: str) -> None:
    """Have the command that runs reach nodes by a file of properties, unless `--command-config` names one; empty: by none."""
    if properties_file:
        click.get_current_context().meta[_FILE] = Path(properties_file)


def _find_security(context: click.Context) -> Security:
    """Return what `--command-config` says, or the file of `reach_nodes_by`.

    Raises:
        Failure: the file is wrong.
    """
    path = context.find_root().params.get("command_config") or context.meta.get(_FILE)
    try:
        return PLAINTEXT if path is None else read_security(path)
    except PropertyRefused as error:
        raise Failure(str(error), Exit.WRONG_USAGE) from None
