"""The counters and gauges of a member.

Source: Apache Kafka `AbstractCoordinator.GroupCoordinatorMetrics`, for the names.
"""

from collections.abc import Callable
from typing import final

from holdfast.membership.rejoin import RejoinCause
from holdfast.metrics.registry import Registry


@final
class MembershipMetrics:
    """The instruments of one member; all are 0 from the start."""

    def __init__(self, registry: Registry, heartbeat_age_s: Callable[[], float] | None = None) -> None:
        """Make them; the age of the heartbeat is taken from `heartbeat_age_s` at each reading, and stays 0 without."""
        self.heartbeats = registry.counter("heartbeats", "Heartbeats sent to the group coordinator.")
        registry.gauge(
            "heartbeat_age_seconds",
            "Time since the group coordinator answered a heartbeat; 0 outside a group. Healthy below the session time-out.",
            heartbeat_age_s,
        )
        self.heartbeat_lateness = registry.histogram(
            "heartbeat_lateness_ms",
            "How much later than due heartbeats left: the event loop was busy, or a request before was not answered yet. "
            "Healthy below a tenth of `heartbeat.interval.ms`.",
        )
        self.join_time = registry.histogram("join_time_ms", "Time of a JoinGroup until its answer.")
        self.sync_time = registry.histogram("sync_time_ms", "Time of a SyncGroup until its answer.")
        self.rebalance_latency = registry.histogram(
            "rebalance_latency_ms",
            "Time from the first moment of a join or rejoin until the assignment was taken over.",
        )
        self.rebalances = registry.counter("rebalances", "Joins and rejoins whose assignment was taken over.")
        self.failed_rebalances = registry.counter(
            "failed_rebalances",
            "Tries to join that came to nothing, and assignments that could not be handed in or taken over.",
        )
        self.throttle_time_ms = registry.counter(
            "group_throttle_time_ms",
            "Time for which the group coordinator, and brokers that were queried for it, requested to be sent nothing.",
        )
        causes = "Rejoins begun, by their cause: the group rebalances, the program requested it, the place was lost, the assignment failed."
        self.rejoins = {cause: registry.counter("rejoins", causes, cause=cause.value) for cause in RejoinCause}
