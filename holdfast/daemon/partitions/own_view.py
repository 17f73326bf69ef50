"""The cluster as a node without membership sees it: what it owns itself, and who took over the rest.

Who took a log partition over is told by its checkpoint, which names the node and the address under which clients reach it.
That node may have been superseded since; then it names the next one, so a client that follows arrives.
"""

from collections.abc import Callable
from functools import lru_cache

from holdfast.daemon.server.cluster_view import Node, StateTopicView
from holdfast.kafka.addresses import format_address, parse_address
from holdfast.records.checkpoint import Checkpoint
from holdfast.runtime.partition.lifecycle import Partition
from holdfast.runtime.partition.states import State

#: Node ids of the wire are int32.
_NODE_ID_MAX = 2**31 - 1


class OwnView:
    """Shows this node, and the nodes that superseded it."""

    def __init__(self, node_id: int, find_partition: Callable[[int], Partition | None]) -> None:
        """Know nothing of the cluster yet.

        Args:
            node_id: of this node.
            find_partition: returns what this node knows of a log partition; None before the shards have started.
        """
        self.cluster_id: str | None = None
        self.state_topic: StateTopicView | None = None
        self._node_id = node_id
        self._find_partition = find_partition
        self._self: Node | None = None

    def listens(self, host: str, port: int) -> None:
        """Learn under which address clients reach this node."""
        self._self = Node(self._node_id, host, port)

    @property
    def advertised_address(self) -> str:
        """Host and port under which clients reach this node; empty until it listens."""
        return format_address(self._self.host, self._self.port) if self._self is not None else ""

    @property
    def nodes(self) -> tuple[Node, ...]:
        """This node, once it listens, and the owners of what it lost; each node id once."""
        if self._self is None:
            return ()
        partition_count = 0 if self.state_topic is None else self.state_topic.partition_count
        owners = {owner for index in range(partition_count) if (owner := self.owner(index)) is not None}
        nodes = {owner.node_id: owner for owner in sorted(owners)}
        # Whoever bears our number elsewhere is named in our place where nothing is left to us.
        if self._self in owners or self._node_id not in nodes:
            nodes[self._node_id] = self._self
        return tuple(node for _, node in sorted(nodes.items()))

    def owner(self, partition: int) -> Node | None:
        """Return who serves a log partition, or is about to; None where nobody is known to.

        That is this node while it loads, serves or loads again; where another took over, that one;
        and nobody where an alarm waits for an admin.
        """
        if self._self is None or self.state_topic is None:
            return None
        held = self._find_partition(partition)
        if held is None or held.state in (State.INITIAL, State.LOADING, State.ACTIVE):
            return self._self
        if held.state is State.FAILED or held.retry_at_ms is not None:
            return None if held.is_alarmed else self._self
        winner = find_winner(held)
        return None if winner is None else _node_of(winner)


def find_winner(partition: Partition) -> Checkpoint | None:
    """Return the checkpoint of the node that took a log partition over from this one for good; None where nobody did."""
    ownership, winner = partition.ownership, partition.ownership.winner
    if partition.state is not State.CLOSED or partition.retry_at_ms is not None:
        return None
    return None if winner is None or winner.attempt_id == ownership.attempt_id else winner


@lru_cache(maxsize=256)
def _node_of(winner: Checkpoint) -> Node | None:
    if not winner.node_id.isdecimal() or (node_id := int(winner.node_id)) > _NODE_ID_MAX:
        return None
    try:
        host, port = parse_address(winner.advertised_address)
    except ValueError:
        return None  # of an older version, which did not name it
    return Node(node_id, host, port)
