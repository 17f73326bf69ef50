"""The cluster as a member of the group sees it: the leader's map while it holds, and what this node serves itself."""

from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from holdfast.daemon.membership.division.ownership_map import FormerOwner, OwnershipMap, explain_change
from holdfast.daemon.membership.handover.former_owners import FormerOwners
from holdfast.daemon.partitions.partitions import LogPlace
from holdfast.daemon.server.cluster_view import Node, StateTopicView

#: A node that could not join again for so long knows nothing of the others any more.
_STALE_MAP_MAX_MS: Final = 30_000


class OwnTasks(NamedTuple):
    """The log partitions of this node, as its clients and other nodes should see them."""

    #: Tells whether this node serves one.
    serves: Callable[[int], bool]
    #: Tells whether one of this node waits for an admin to end an alarm, or is out of reach.
    is_alarmed: Callable[[int], bool]
    #: Returns the owner epoch of one, as far as this node knows it; otherwise -1.
    owner_epoch: Callable[[int], int]


class MapView:
    """A view of the last ownership map (`cluster_view.ClusterView`).

    What this node serves, it answers for itself. Of the rest, the former owner is named while it is known to serve on until the owner
    of the map has loaded, and otherwise that one.
    While this member is to join again the map is stale, and is answered from for a bounded time; nothing is ever answered from a map
    from before a lost session.
    """

    def __init__(
        self,
        place: LogPlace,
        own: OwnTasks,
        former: FormerOwners,
        *,
        handover_timeout_ms: int,
        now_ms: Callable[[], int],
        stale_map_max_ms: int = _STALE_MAP_MAX_MS,
    ) -> None:
        """Begin without a map.

        Args:
            place: where the log is, and where clients reach this node.
            own: tells what this node has.
            former: knows which former owners still serve.
            handover_timeout_ms: for so long a node may serve what was divided again.
            now_ms: the clock.
            stale_map_max_ms: for so long a stale map is answered from.
        """
        self.cluster_id = place.cluster_id
        self.state_topic: StateTopicView | None = place.topic
        self.map: OwnershipMap | None = None
        #: The change of the nodes that came with the map, as a clause.
        self.why_divided = ""
        self.this_node = place.node
        self._own = own
        self._former = former
        self._handover_timeout_ms = handover_timeout_ms
        self._stale_map_max_ms = stale_map_max_ms
        self._now_ms = now_ms
        self._stale_since_ms: int | None = None

    def log_renewed(self, state_topic: StateTopicView) -> None:
        """Take in that another topic has taken the name of the one before, with as many partitions."""
        self.state_topic = state_topic

    def adopt(self, new: OwnershipMap) -> None:
        """Answer from a new map."""
        self.why_divided = explain_change(self.map, new, self.this_node)
        self.map = new
        self._former.adopt(new)

    def drop(self) -> None:
        """Forget the map, because the session was lost in which it was given."""
        self.map = None
        self._former.drop()

    def set_stale(self, *, is_stale: bool) -> None:
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
        """The nodes of the map that is answered from, this one, and former owners that serve; sorted, each node id once."""
        known = self._usable_map()
        others = () if known is None else (*self._former.confirmed.values(), *known.nodes)
        by_id = {node.node_id: node for node in (self.this_node, *others)}
        return tuple(node for _, node in sorted(by_id.items()))

    def owner(self, partition: int) -> Node | None:
        """Return the node that serves a log partition, or else is about to; None where none is known to.

        None as well where that is this node, and it is to join again, or an alarm waits for an admin, or the log is out of reach.
        """
        if self._own.serves(partition):
            return self.this_node
        known = self._usable_map()
        if known is None:
            return None
        named = self._former.owner(partition) or known.owner(partition)
        return None if named == self.this_node and (self.is_stale or self._own.is_alarmed(partition)) else named

    def may_serve(self, held: Collection[int]) -> tuple[FormerOwner, ...]:
        """Return who may serve which log partitions, as far as this member knows, this node being one of them for what it holds.

        That counts where the map is too old to be answered from, too, and whoever did not answer when it was queried.
        """
        known, tasks = self.map, dict[tuple[Node, int], list[int]]()
        if held:
            tasks[self.this_node, self._handover_timeout_ms] = sorted(held)
        for task in range(0 if known is None or self.state_topic is None else self.state_topic.partition_count):
            owner = None if known is None else known.owner(task)
            if owner == self.this_node and self._own.serves(task):
                continue
            waits_ms = self._former.waits_ms(task)
            if owner is None:  # it waits for an absent node, and who takes it in its place is yet to come
                waits_ms = dict.fromkeys(waits_ms, self._handover_timeout_ms)
            if owner is not None and owner != self.this_node:
                waits_ms[owner] = self._handover_timeout_ms
            for place in waits_ms.items():
                tasks.setdefault(place, []).append(task)
        return tuple(FormerOwner(node, tuple(theirs), wait_ms) for (node, wait_ms), theirs in sorted(tasks.items()))

    def owner_epoch(self, partition: int) -> int:
        """Return the owner epoch of a log partition; -1: this node has not read it, or names itself and has not taken it yet."""
        is_to_come = self.owner(partition) == self.this_node and not self._own.serves(partition)
        return -1 if is_to_come else self._own.owner_epoch(partition)

    def _usable_map(self) -> OwnershipMap | None:
        since_ms = self._stale_since_ms
        is_too_old = since_ms is not None and self._now_ms() - since_ms > self._stale_map_max_ms
        return None if is_too_old else self.map
