"""The cluster as a member of the group sees it: the leader's map while it holds, and what this node serves itself."""

from collections.abc import Callable

from holdfast.daemon.membership.division.ownership_map import OwnershipMap
from holdfast.daemon.server.cluster_view import Node, StateTopicView


class MapView:
    """A view of the last ownership map (`cluster_view.ClusterView`).

    While this member is to join again the map is stale: what this node serves, it answers for itself; the rest from the stale map,
    for a bounded time. Of a map from before a lost session nothing is ever answered.
    """

    def __init__(
        self,
        this_node: Node,
        cluster_id: str,
        state_topic: StateTopicView,
        serves: Callable[[int], bool],
        *,
        stale_map_max_ms: int,
        now_ms: Callable[[], int],
    ) -> None:
        """Begin without a map.

        Args:
            this_node: where clients reach it.
            cluster_id: of the Kafka cluster that holds the log.
            state_topic: the log.
            serves: tells whether this node serves a log partition.
            stale_map_max_ms: for so long a stale map is answered from.
            now_ms: the clock.
        """
        self.cluster_id = cluster_id
        self.state_topic: StateTopicView | None = state_topic
        self.map: OwnershipMap | None = None
        self._this_node = this_node
        self._serves = serves
        self._stale_map_max_ms = stale_map_max_ms
        self._now_ms = now_ms
        self._stale_since_ms: int | None = None

    def log_renewed(self, state_topic: StateTopicView) -> None:
        """Take in that another topic has taken the name of the one before, with as many partitions."""
        self.state_topic = state_topic

    def adopt(self, new: OwnershipMap) -> None:
        """Answer from a new map."""
        self.map = new

    def drop(self) -> None:
        """Forget the map, because the session was lost in which it was given."""
        self.map = None

    def set_stale(self, is_stale: bool) -> None:
        """Take in whether this member is to join again."""
        if not is_stale:
            self._stale_since_ms = None
        elif self._stale_since_ms is None:
            self._stale_since_ms = self._now_ms()

    @property
    def is_stale(self) -> bool:
        """Whether the map is older than what the group is about to agree on."""
        return self._stale_since_ms is not None

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes of the map that is answered from, and this one; sorted, each node id once."""
        known = self._usable_map()
        others = () if known is None else known.nodes
        by_id = {node.node_id: node for node in (self._this_node, *others)}
        return tuple(node for _, node in sorted(by_id.items()))

    def owner(self, partition: int) -> Node | None:
        """Return the node that has a log partition, or is about to; None where none has, or it is not known."""
        known = self._usable_map()
        mapped = None if known is None else known.owner(partition)
        if known is not None and not self.is_stale:
            return mapped
        if self._serves(partition):
            return self._this_node
        return None if mapped == self._this_node else mapped

    def _usable_map(self) -> OwnershipMap | None:
        since_ms = self._stale_since_ms
        is_too_old = since_ms is not None and self._now_ms() - since_ms > self._stale_map_max_ms
        return None if is_too_old else self.map
