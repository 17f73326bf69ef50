"""Which node has which log partitions and duties, as the leader of the group has divided them: one value, never changed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from holdfast.daemon.server.cluster_view import Node


class Work(NamedTuple):
    """What one member has to do."""

    #: Log partitions, in numeric order.
    tasks: tuple[int, ...] = ()
    #: Names, sorted.
    duties: tuple[str, ...] = ()

    @property
    def items(self) -> list[int | str]:
        """Return duties, by name, and then log partitions, by number."""
        return [*self.duties, *self.tasks]


class MappedMember(NamedTuple):
    """A member, where it is reached, and its work."""

    member_id: str
    node: Node
    work: Work


class AbsentNode(NamedTuple):
    """A node that has left, and whose work waits for it."""

    node_id: int
    #: For so long from the assignment on.
    wait_ms: int
    work: Work


class FormerOwner(NamedTuple):
    """A node that may serve log partitions which are another member's now, or wait for one; it may have left."""

    #: Where it was reached.
    node: Node
    #: In numeric order.
    tasks: tuple[int, ...]
    #: For so long from now on; then it has given them up, or was superseded.
    wait_ms: int


@dataclass(frozen=True)
class OwnershipMap:
    """The whole division; its version is the ownership generation."""

    #: Ownership generation under which all of it is taken.
    generation: int
    #: Sorted by member id.
    members: tuple[MappedMember, ...]
    #: Sorted by node id; their work has no owner meanwhile.
    absent: tuple[AbsentNode, ...] = ()
    #: Sorted; a node has an entry for each time.
    former: tuple[FormerOwner, ...] = ()

    @cached_property
    def _owners(self) -> dict[int | str, Node]:
        return {each: member.node for member in self.members for each in member.work.items}

    def owner(self, task_or_duty: int | str) -> Node | None:
        """Return the node that has a log partition (by number) or a duty (by name); None where none has, or it is unknown."""
        return self._owners.get(task_or_duty)

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes of all members, those without work, too; sorted, each node id once."""
        by_id = {member.node.node_id: member.node for member in self.members}
        return tuple(node for _, node in sorted(by_id.items()))

    def place_of(self, node_id: int) -> Node | None:
        """Return where the members are to reach a node; None where it is no member."""
        return next((node for node in self.nodes if node.node_id == node_id), None)


def explain_change(before: OwnershipMap | None, after: OwnershipMap, this_node: Node) -> str:
    """Return which nodes came or went between two maps, as a clause; empty where none did, as when the group divides again.

    A member that has left and one whose session has ended look the same to the others.
    """
    if before is None:
        return f"node {this_node.node_id} came"
    had, has = ({each.node_id for each in divided.nodes} for divided in (before, after))
    awaited, awaits = ({each.node_id for each in divided.absent} for divided in (before, after))
    clauses = [
        *(f"node {each} {'came back' if each in awaited else 'came'}" for each in sorted(has - had)),
        *(f"node {each} left or was lost{', and is waited for' * (each in awaits)}" for each in sorted(had - has)),
        *(f"node {each} did not come back in time" for each in sorted(awaited - awaits - has)),
    ]
    return "; ".join(clauses)
