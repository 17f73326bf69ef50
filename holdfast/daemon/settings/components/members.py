"""The settings of a node as a member of its group."""

from typing import Final, Literal, Self

from pydantic import model_validator

from holdfast.daemon.settings.declarations import MINUTE_MS, Component, setting, time_ms
from holdfast.membership.settings import HEARTBEATS_PER_SESSION

#: What a group is called by the state topic of its nodes.
_GROUP_PREFIX: Final = "holdfast-"


class MemberSettings(Component):
    """How nodes divide the log partitions: as members of a group of Kafka's, or not at all."""

    membership: Literal["static", "group"] = setting(
        "group",
        "`group`: the nodes of one state topic divide its log partitions through Kafka's group coordinator, one node or many. "
        "`static`: this node serves all of them, without a group. While nodes of one kind serve, those of the other do not start.",
    )
    group_id: str = setting(
        "",
        f"Group of the nodes of one state topic. Empty: `{_GROUP_PREFIX}` and the name of the state topic.",
        kafka="group.id",
        max_length=249,
    )
    group_instance_id: str = setting(
        "",
        "Makes this node a static member of its group: one that stops or is killed and starts again within session.timeout.ms "
        "gets back what it had at once, and nothing moves meanwhile. Its own for each node; empty: a dynamic member.",
        kafka="group.instance.id",
        max_length=249,
    )
    session_timeout_ms: int = time_ms(
        10_000,
        "A node that its group has not heard of for so long has left it, and others take over. "
        "Within the brokers' group.min.session.timeout.ms and group.max.session.timeout.ms.",
        kafka="session.timeout.ms",
    )
    rebalance_timeout_ms: int = time_ms(
        60_000,
        "How long the group waits for each node to join again when it rebalances. At least session.timeout.ms.",
        kafka="rebalance.timeout.ms",
    )
    # A cut after which the group hears one more heartbeat costs clients a session and two of these.
    heartbeat_interval_ms: int = time_ms(
        1_000,
        "How often a node is heard of by its group, and learns that it rebalances. Below a third of session.timeout.ms.",
        kafka="heartbeat.interval.ms",
    )
    rebalance_protocol: Literal["cooperative", "eager"] = setting(
        "cooperative",
        "`cooperative`: a node keeps what it serves in a rebalance but what moves, and that until its new owner takes it. "
        "`eager`: it gives everything up before. If one node is eager, all are.",
    )
    rebalance_delay_ms: int = setting(
        0,
        "For so long the log partitions of a node that has left wait for its return, without an owner. 0: they are divided at once.",
        ge=0,
        le=60 * MINUTE_MS,
    )
    handover_timeout_ms: int = time_ms(
        60_000,
        "How long a node goes on serving a log partition until another one takes it over; a node that stops waits as long.",
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if HEARTBEATS_PER_SESSION * self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ValueError(
                f"heartbeat.interval.ms is {self.heartbeat_interval_ms} and session.timeout.ms {self.session_timeout_ms}; "
                f"heartbeat.interval.ms must be below a third of session.timeout.ms, or one lost heartbeat ends the session"
            )
        if self.session_timeout_ms > self.rebalance_timeout_ms:
            raise ValueError(
                f"session.timeout.ms is {self.session_timeout_ms} and rebalance.timeout.ms {self.rebalance_timeout_ms}; "
                f"rebalance.timeout.ms must be at least session.timeout.ms"
            )
        return self

    def group_of(self, state_topic: str) -> str | None:
        """Return the id of the group of all nodes of a state topic; None for a static node."""
        return None if self.membership == "static" else self.group_id or _GROUP_PREFIX + state_topic
