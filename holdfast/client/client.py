"""The client as a user sees it: share-state calls and admin commands over connections it keeps."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from holdfast.client.admin import run_command
from holdfast.client.connection import Address
from holdfast.client.coordinator import Refusal
from holdfast.client.errors import ShareStateError
from holdfast.client.nodes import Nodes
from holdfast.client.persister import Persister
from holdfast.client.settings import ClientSettings
from holdfast.kafka import addresses
from holdfast.kafka.security import PLAINTEXT, Security
from holdfast.records.share.keys import SharePartitionKey


class Client(Persister):
    """A client of one Holdfast cluster; `connect` makes one."""

    async def admin(self, command: str, /, **arguments: Any) -> Any:  # noqa: ANN401
        """Run an admin command in the node that is reached first and return what it gave; it is not tried again.

        Raises:
            AdminRefused: the node does not know the command, or refused it, or it failed there.
            ClientError: the node could not be reached, or gave no answer.
        """
        return await run_command(await self._nodes.any(), command, arguments)

    async def admin_of(self, key: SharePartitionKey, command: str, /, **arguments: Any) -> Any:  # noqa: ANN401
        """Run an admin command in the node that coordinates a share partition and return what it gave; one try only.

        Raises:
            ShareStateError: no node coordinates it now.
            AdminRefused: the node does not know the command, or refused it, or it failed there.
            ClientError: the node could not be reached, or gave no answer.
        """
        [found] = await self.find([key])
        if isinstance(found, Refusal):
            raise ShareStateError(*found)
        # What is remembered may be outdated by the next command; a look-up costs little where a person waits.
        self._coordinators.forget([key])
        return await run_command(await self._nodes.to(found), command, arguments)

    async def topic_id(self, name: str) -> bytes:
        """Return the id of a topic by its name, 16 bytes; remembered for `topic_id_max_age_ms`.

        Raises:
            AdminRefused: the cluster knows no such topic, or cannot be reached now, which is retriable.
            ClientError: no node could be reached, or it is not one of Holdfast's: Kafka's brokers look up no names here.
        """
        return await self._topic_ids.find(name)

    async def find(self, keys: Sequence[SharePartitionKey]) -> list[Address | Refusal]:
        """Return the coordinator of each share partition, or why there is none, in the order of `keys`; one try only.

        Raises:
            ClientError: no node answered, or none that knows share keys.
        """
        return await self._coordinators.find(keys)

    def close(self) -> None:
        """Close all connections; calls in flight fail with Disconnected."""
        self._nodes.close()


@asynccontextmanager
async def connect(
    bootstrap: str | Sequence[str], settings: ClientSettings | None = None, security: Security = PLAINTEXT
) -> AsyncIterator[Client]:
    """Give a client that has reached a node, and close it at the end.

    Args:
        bootstrap: `host:port` of one node or several; the others are learnt from them.
        settings: limits and times.
        security: how nodes are reached, and who we are to them; `kafka.security.read_security` reads it from a file.

    Raises:
        ValueError: an address is not `host:port`.
        PropertyRefused: a file that `security` names cannot be read.
        LoginRefused: no node lets us in.
        Disconnected: no node can be reached.
    """
    known = [parse_address(text) for text in ([bootstrap] if isinstance(bootstrap, str) else bootstrap)]
    if not known:
        raise ValueError("The client needs the address of one node at least, as host:port.")
    settings = settings or ClientSettings()
    nodes = Nodes(known, settings, security)
    client = Client(nodes, settings)
    try:
        await nodes.any()
        yield client
    finally:
        client.close()


def parse_address(text: str) -> Address:
    """Return the address that `host:port` names; an IPv6 host is in brackets.

    Raises:
        ValueError: it is anything else.
    """
    try:
        host, port = addresses.parse_address(text)
    except ValueError:
        host, port = "", 0
    if not port:
        raise ValueError(f"The address {text!r} is not host:port, as in 127.0.0.1:{addresses.DEFAULT_PORT}.")
    return Address(host, port)
