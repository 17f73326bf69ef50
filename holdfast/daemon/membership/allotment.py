"""How a node comes to its log partitions and duties: all of them for itself, or as a member of a group."""

from collections.abc import Callable
from typing import Any, Protocol

from holdfast.daemon.server.cluster_view import ClusterView, StateTopicView


class NodeClusterView(ClusterView, Protocol):
    """What a node shows of the cluster once it has found its log."""

    @property
    def cluster_id(self) -> str:
        """Id of the Kafka cluster that holds the log."""

    def log_renewed(self, state_topic: StateTopicView) -> None:
        """Take in that another topic has taken the name of the one before, with as many partitions."""


class Allotment(Protocol):
    """What gives a node its work, from `start` to `stop`."""

    @property
    def view(self) -> NodeClusterView:
        """Whom this node names to clients."""

    def start(self, leader_quiet_s: Callable[[int], float]) -> None:
        """Begin to take log partitions and duties.

        Args:
            leader_quiet_s: returns for how many seconds the broker that leads a log partition has been silent.
        """

    async def stop(self) -> None:
        """Give duties up, and log partitions to those who take them, in bounded time."""

    def why_not_ready(self) -> str:
        """Return what keeps this node from knowing its work; empty if it knows it."""

    def taken_over(self, index: int, generation: int) -> bool:
        """Take in that a log partition was taken under an ownership generation; returns whether that was planned."""

    def refuse_take(self) -> str:
        """Return why an admin may not let this node take log partitions; empty if it may."""

    def describe_elsewhere(self) -> list[dict[str, Any]]:
        """Return the log partitions of which other members know more, for people: by the map of the group."""

    def describe_members(self) -> list[dict[str, Any]]:
        """Return the nodes that divide the work, for people."""

    def describe_membership(self) -> dict[str, Any]:
        """Return what this node says of itself as a member; None stands for what it has not.

        That is `config_offset`, up to which it has read the config topic, its `group_instance_id`, and `heartbeat_age_ms`, the time
        since its last heartbeat that was answered.
        """
