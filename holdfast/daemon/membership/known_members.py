"""Everybody who was a member of our group, as far as this node has heard."""

from collections.abc import Iterable

from holdfast.daemon.server.cluster_view import Node
from holdfast.kafka.addresses import format_address


class KnownMembers:
    """The newest address of each node id; as many as there were node ids."""

    def __init__(self) -> None:
        self._addresses: dict[str, str] = {}

    def add(self, nodes: Iterable[Node]) -> None:
        """Learn of members."""
        self._addresses.update({str(node_id): format_address(host, port) for node_id, host, port in nodes})

    def knows(self, node_id: str, address: str) -> bool:
        """Tell whether a node was a member, at this address (`host:port`)."""
        return self._addresses.get(node_id) == address
