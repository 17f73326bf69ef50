"""The settings of a member; the names are Kafka's, with `_` for `.`.

Source: Apache Kafka `GroupRebalanceConfig`, `CommonClientConfigs`.
"""

from dataclasses import dataclass

#: Heartbeats that may be lost before the session is.
HEARTBEATS_PER_SESSION = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipSettings:
    """Settings of one member.

    Raises:
        ValueError: two of them do not go together, both named; or one is out of its range.
    """

    #: `group.id`. Not empty.
    group_id: str
    #: `group.instance.id`: makes the member a static one, which may come back within its session without a rebalance. None: dynamic.
    group_instance_id: str | None = None
    #: `session.timeout.ms`: without a heartbeat for so long, the member has lost its place.
    session_timeout_ms: int = 10_000
    #: `rebalance.timeout.ms`: so long the group waits for each member to join again, callbacks included. Not below the session time-out.
    rebalance_timeout_ms: int = 60_000
    #: `heartbeat.interval.ms`. Below a third of the session time-out.
    heartbeat_interval_ms: int = 3_000
    #: `retry.backoff.ms`: first wait before another try; doubles.
    retry_backoff_ms: int = 100
    #: `retry.backoff.max.ms`: the longest such wait.
    retry_backoff_max_ms: int = 1_000
    #: `request.timeout.ms`: bound of each request that the broker answers at once, and of connecting; of the others beyond their waiting.
    request_timeout_ms: int = 5_000

    def __post_init__(self) -> None:
        """Check them against each other."""
        if not self.group_id:
            raise ValueError("group.id must not be empty")
        if self.group_instance_id == "":
            raise ValueError("group.instance.id must not be empty; leave it out for a dynamic member")
        for name in ("session_timeout_ms", "heartbeat_interval_ms", "retry_backoff_ms", "request_timeout_ms"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name.replace('_', '.')} must be above 0")
        if self.heartbeat_interval_ms * HEARTBEATS_PER_SESSION >= self.session_timeout_ms:
            raise ValueError(
                f"heartbeat.interval.ms ({self.heartbeat_interval_ms}) must be below a third of session.timeout.ms "
                f"({self.session_timeout_ms})"
            )
        if self.session_timeout_ms > self.rebalance_timeout_ms:
            raise ValueError(
                f"session.timeout.ms ({self.session_timeout_ms}) must not be above rebalance.timeout.ms "
                f"({self.rebalance_timeout_ms})"
            )
        if self.retry_backoff_ms > self.retry_backoff_max_ms:
            raise ValueError(
                f"retry.backoff.ms ({self.retry_backoff_ms}) must not be above retry.backoff.max.ms "
                f"({self.retry_backoff_max_ms})"
            )
