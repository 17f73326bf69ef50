"""This node among others: by what they tell it from another process, and which of them it knows."""

from collections.abc import Iterable
from typing import NamedTuple

from holdfast.daemon.node_exit import Refused
from holdfast.daemon.server.cluster_view import Node
from holdfast.kafka.addresses import format_address


class KnownMembers:
    """Everybody who was a member of our group, as far as this node has heard: the newest address of each node id."""

    def __init__(self) -> None:
        self._addresses: dict[str, str] = {}

    def add(self, nodes: Iterable[Node]) -> None:
        """Learn of members."""
        self._addresses.update({str(node_id): format_address(host, port) for node_id, host, port in nodes})

    def knows(self, node_id: str, address: str) -> bool:
        """Tell whether a node was a member, at this address (`host:port`)."""
        return self._addresses.get(node_id) == address


class NodeIdentity(NamedTuple):
    """The marks of this process among others, and the call that ends it where another one serves."""

    #: A node that answers with it is this process, under any address.
    run_id: str
    #: Id of the group of which this node is a member; None: it is a static node.
    group: str | None
    known_members: KnownMembers
    #: Called with why this node must not serve, and whether a setting is wrong.
    refused: Refused
