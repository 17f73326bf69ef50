"""The cluster as a node without membership sees it: what it owns itself, and who took over the rest.

The checkpoint of a log partition names the node that took it over, and the address under which clients reach that node.
That node may have been superseded since; then it names the next one, so a client that follows the answers reaches the owner.
"""

from collections.abc import Callable
from functools import lru_cache

from holdfast.daemon.server.cluster_view import Node, StateTopicView
from holdfast.kafka.addresses import parse_address
from holdfast.records.log.checkpoint import Checkpoint
from holdfast.runtime.partition.lifecycle import Partition
from holdfast.runtime.partition.states import State

#: Node ids of the wire are int32.
_NODE_ID_MAX = 2**31 - 1
_NODE_ID_DIGITS_MAX = 10


class OwnView:
    """A view of this node, and of the nodes that superseded it (`cluster_view.ClusterView`)."""

    def __init__(
        self,
        this_node: Node,
        cluster_id: str,
        state_topic: StateTopicView,
        find_partition: Callable[[int], Partition | None],
    ) -> None:
        """Begin with what the node has found.

        Args:
            this_node: where clients reach it.
            cluster_id: of the Kafka cluster that holds the log.
            state_topic: the log.
            find_partition: returns what this node knows of a log partition.
        """
        self.cluster_id = cluster_id
        self.state_topic: StateTopicView | None = state_topic
        self._this_node = this_node
        self._partition_count = state_topic.partition_count
        self._find_partition = find_partition

    def log_renewed(self, state_topic: StateTopicView) -> None:
        """Take in that another topic has taken the name of the one before, with as many partitions."""
        self.state_topic = state_topic

    @property
    def nodes(self) -> tuple[Node, ...]:
        """This node, and the owners of what it lost; each node id once."""
        owners = {owner for index in range(self._partition_count) if (owner := self.owner(index)) is not None}
        nodes = {owner.node_id: owner for owner in sorted(owners)}
        # Another node with our id is named in our place where this one owns nothing any more.
        if self._this_node in owners or self._this_node.node_id not in nodes:
            nodes[self._this_node.node_id] = self._this_node
        return tuple(node for _, node in sorted(nodes.items()))

    def owner(self, partition: int) -> Node | None:
        """Return who serves a log partition, or is about to; None where no node is known to.

        That is this node while it loads, serves or loads again; where another took over, that one;
        none where an alarm waits for an admin.
        """
        found = self._find_partition(partition)
        if found is None or found.state in (State.INITIAL, State.LOADING, State.ACTIVE):
            return self._this_node
        if found.state is State.FAILED or found.retry_at_ms is not None:
            return None if found.is_alarmed else self._this_node
        winner = find_winner(found)
        return None if winner is None else _node_of(winner)

    def owner_epoch(self, partition: int) -> int:
        """Return the owner epoch of the owner of a log partition; -1 while it is being read."""
        return find_owner_epoch(self._find_partition(partition))


def find_owner_epoch(partition: Partition | None) -> int:
    """Return the owner epoch of the owner of a log partition, as far as this node knows; -1 while it is being read."""
    if partition is None or partition.state not in (State.ACTIVE, State.CLOSED) or partition.ownership.winner is None:
        return -1
    return partition.ownership.winner.owner_epoch


def find_winner(partition: Partition) -> Checkpoint | None:
    """Return the checkpoint of the node that took a log partition over from this one for good; None where none did."""
    ownership, winner = partition.ownership, partition.ownership.winner
    if partition.state is not State.CLOSED or partition.retry_at_ms is not None:
        return None
    return None if winner is None or winner.attempt_id == ownership.attempt_id else winner


@lru_cache(maxsize=256)
def _node_of(winner: Checkpoint) -> Node | None:
    # Its writer may be anyone: `int` refuses a text of thousands of digits.
    digits = winner.node_id if len(winner.node_id) <= _NODE_ID_DIGITS_MAX else ""
    if not digits.isdecimal() or (node_id := int(digits)) > _NODE_ID_MAX:
        return None
    try:
        host, port = parse_address(winner.advertised_address)
    except ValueError:
        return None  # of an older version, which did not name it
    return Node(node_id, host, port)
