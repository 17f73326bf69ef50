"""What a member counts and measures.

Source: Apache Kafka `AbstractCoordinator.GroupCoordinatorMetrics`, for the names.
"""

from typing import final

from holdfast.metrics.registry import Registry
from holdfast.runtime.membership.rejoin import RejoinCause


@final
class MembershipMetrics:
    """The instruments of one member; all are 0 from the start."""

    def __init__(self, registry: Registry) -> None:
        self.heartbeats = registry.meter("heartbeat", "Heartbeats sent to the group coordinator.")
        self.heartbeat_age = registry.gauge(
            "last-heartbeat-seconds-ago",
            "Time since the group coordinator answered a heartbeat, in s; 0 outside a group. Healthy below the session time-out.",
        )
        self.heartbeat_lateness = registry.window(
            "heartbeat-lateness",
            "How much later than due heartbeats left, in ms: the event loop was busy, or a request before was not answered yet. "
            "Healthy below a tenth of `heartbeat.interval.ms`.",
        )
        self.join_time = registry.window("join-time", "Time of a JoinGroup until its answer, in ms.")
        self.sync_time = registry.window("sync-time", "Time of a SyncGroup until its answer, in ms.")
        self.rebalance_latency = registry.window(
            "rebalance-latency",
            "Time from the first moment of a join or rejoin until the assignment was taken over, in ms.",
        )
        self.rebalances = registry.counter("rebalance-total", "Joins and rejoins whose assignment was taken over.")
        self.failed_rebalances = registry.counter(
            "failed-rebalance-total",
            "Tries to join that came to nothing, and assignments that could not be handed in or taken over.",
        )
        self.throttle_time_ms = registry.counter(
            "group-throttle-time-ms-total",
            "Time for which the group coordinator, and brokers that were queried for it, requested to be sent nothing, in ms.",
        )
        causes = "Rejoins begun, by their cause: the group rebalances, the program requested it, the place was lost, the assignment failed."
        self.rejoins = {cause: registry.counter("rejoins-total", causes, cause=cause.value) for cause in RejoinCause}
