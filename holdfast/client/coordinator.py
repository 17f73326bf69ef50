"""Which node coordinates a share partition: looked up in batches, and remembered until a node says it does not (any more).

Share keys exist since version 6 of FindCoordinator; to a server that only knows older versions they cannot be named.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.client.connection import Address
from holdfast.client.errors import Disconnected, Unsupported
from holdfast.client.nodes import Nodes
from holdfast.client.settings import ClientSettings
from holdfast.kafka.discovery import coordinators
from holdfast.kafka.discovery.find_coordinator import Found, Key, KeyType
from holdfast.kafka.errors import ConnectionFailed
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.records.share.keys import SharePartitionKey, format_key


class Refusal(tuple[int, str | None]):
    """The error code and the text with which the look-up of one key was answered."""

    __slots__ = ()


class Coordinators:
    """The coordinators of share partitions, looked up and remembered."""

    def __init__(self, nodes: Nodes, settings: ClientSettings) -> None:
        self._lookups = coordinators.Coordinators(
            nodes.links,
            other_server_after_ms=settings.other_node_after_ms,
            cached_max=settings.coordinators_cached_max,
        )

    async def find(self, keys: Sequence[SharePartitionKey]) -> list[Address | Refusal]:
        """Return the coordinator of each key, or why there is none, in the order of `keys`.

        Where a node knows none now, or is silent for a while, the next node is queried.

        Raises:
            ClientError: no node answered, or none that knows share keys.
        """
        try:
            found = await self._lookups.find(KeyType.SHARE, map(format_key, keys))
        except ConnectionFailed as failure:
            raise Disconnected(str(failure)) from failure
        return [_result(each) for each in found]

    def forget(self, keys: Iterable[SharePartitionKey]) -> None:
        """Look these keys up again the next time, and first at another node than the one whose answer led nowhere."""
        self._lookups.forget(Key(KeyType.SHARE, format_key(key)) for key in keys)


def _result(found: Found) -> Address | Refusal:
    """Return where a coordinator is, or why none is known.

    Raises:
        Unsupported: no node knows share keys.
    """
    if found.error_code == ErrorCode.UNSUPPORTED_VERSION:
        raise Unsupported(f"{found.error_message} A newer server is needed.")
    if found.error_code:
        return Refusal((found.error_code, found.error_message))
    return Address(*found.address)
