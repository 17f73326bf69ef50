"""What a node counts of its part in the group; joins and heartbeats are counted by `membership.metrics`."""

from holdfast.daemon.membership.holdings import Holdings
from holdfast.metrics.registry import Registry


class AssignmentMetrics:
    """The instruments of one member's assignment; 0 before the first, and while nothing is assigned."""

    def __init__(self, registry: Registry, holdings: Holdings) -> None:
        """Measure what the node holds whenever it is read."""
        registry.gauge(
            "assigned_tasks",
            "Log partitions that the group has assigned to this node, and it has begun.",
            lambda: len(holdings.tasks),
        )
        registry.gauge(
            "assigned_duties",
            "Duties that the group has assigned to this node, and it has begun.",
            lambda: len(holdings.duties),
        )
        registry.gauge(
            "released_tasks",
            "Log partitions that this node serves until another member takes them. Healthy near 0.",
            lambda: len(holdings.released),
        )
        self.rebalance_alarms = registry.counter(
            "rebalance_alarms",
            "Times that the group has rebalanced more than 20 times in ten minutes.",
        )
