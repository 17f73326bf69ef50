"""The owners of log partitions, as the tenants of the node see them (`tenant.Leadership`): what Metadata shows of the state topic."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from holdfast.daemon.partitions.partitions import Partitions
from holdfast.daemon.server.cluster_view import ClusterView, Node
from holdfast.runtime.partition.states import State


class Leader(NamedTuple):
    """The owner of a log partition, as this node knows it now."""

    #: It serves the log partition, or is about to; None: no node is known to.
    node: Node | None
    #: Owner epoch under which it serves, which rises whenever the log partition is taken; -1: it is not known, or being taken.
    epoch: int
    #: This node is the owner and has loaded the log partition: calls about it are carried out here.
    serves_here: bool


class LogLeadership:
    """Owners by the view of the node, which knows those of other members, and its own log partitions."""

    def __init__(self, view: ClusterView, partitions: Partitions) -> None:
        self._view = view
        self._partitions = partitions

    def leader(self, log_partition: int) -> Leader:
        """See `Leadership.leader`."""
        found = self._partitions.find(log_partition)
        if found is not None and found.state is State.ACTIVE:
            return Leader(self._partitions.place.node, found.ownership.epoch, serves_here=True)
        view = self._view
        return Leader(view.owner(log_partition), view.owner_epoch(log_partition), serves_here=False)

    def watch(self, changed: Callable[[int], None]) -> None:
        """See `Leadership.watch`."""
        self._partitions.watch(changed)
