"""Nodes as members of one group, without Kafka: who joins is decided by the test, and rounds go by at once."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from holdfast.backoff import Backoff
from holdfast.daemon.membership.coordinator import CoordinatorPorts, NodeCoordinator, NodeProtocolConfig
from holdfast.daemon.membership.handover.former_owners import FormerOwners
from holdfast.daemon.membership.holdings import Holdings
from holdfast.daemon.membership.map_view import MapView, OwnTasks
from holdfast.daemon.membership.rebalance_watch import RebalanceWatch
from holdfast.daemon.membership.rejoins import Rejoins
from holdfast.daemon.partitions.identity import KnownMembers
from holdfast.daemon.partitions.partitions import LogPlace
from holdfast.daemon.server.cluster_view import Node
from holdfast.daemon.topics.state_topic import StateTopic
from holdfast.kafka.connection_options import ConnectionOptions
from holdfast.membership import JoinedMember
from holdfast.metrics.instruments import Counter
from holdfast.records.log.checkpoint import Placement

PARTITIONS = 4
HANDOVER_MS = 5_000
CONFIG_MS = 3_000
STALE_MS = 10_000
WORD_AGE_MS = 1_000


class Config:
    """A config topic that a test moves (`ConfigSource`)."""

    def __init__(self, offset: int = -1) -> None:
        self.offset = offset
        #: What a refresh brings it to.
        self.end = offset
        self.refreshes = 0
        #: It can be read to its end.
        self.is_current = True

    async def refresh(self, offset: int, timeout_ms: int) -> int:
        self.refreshes += 1
        self.offset = max(self.offset, self.end)
        return self.offset


class Member:
    """A node in a group, and all that it did (`Workplace`)."""

    def __init__(self, node_id: int, clock: Clock, config: Config | None = None, host: str = "h", **given: Any) -> None:
        self.node = Node(node_id, host, 9000 + node_id)
        self.id = f"m-{node_id}"
        self.config = config or Config()
        self.did: list[str] = []
        self.refusals: list[tuple[str, Node | None]] = []
        self.serving: set[int] = set()
        self.alarms = Counter()
        self.holdings = Holdings(self, HANDOVER_MS)
        topic = StateTopic("state", bytes(16), PARTITIONS, 1, 1_000_000)
        self.former = FormerOwners(
            self.node,
            self.serves,
            word_age_max_ms=WORD_AGE_MS,
            now_ms=lambda: clock.now_ms,
            changed=lambda _: None,
        )
        self.view = MapView(
            LogPlace(topic, "cluster", ConnectionOptions(bootstrap=(("127.0.0.1", 1),)), self.node),
            OwnTasks(self.serves, lambda _: False, lambda _: -1),
            self.former,
            handover_timeout_ms=HANDOVER_MS,
            stale_map_max_ms=STALE_MS,
            now_ms=lambda: clock.now_ms,
        )
        values: dict[str, Any] = {
            "partition_count": PARTITIONS,
            "machine": "",
            "duties_offered": ("compaction",),
            "rebalance_protocol": "cooperative",
            "rebalance_delay_ms": 0,
            "handover_timeout_ms": HANDOVER_MS,
            "config_timeout_ms": CONFIG_MS,
            "keeps_place": False,
        }
        #: Of the log.
        self.placement = Placement.BY_GROUP
        self.coordinator = NodeCoordinator(
            NodeProtocolConfig(**{**values, **given}),
            self.holdings,
            self.view,
            self.config,
            Rejoins(Backoff(100, 30_000, lambda: 1.0), 60_000),
            RebalanceWatch(self.alarms, 20),
            CoordinatorPorts(
                lambda: clock.now_ms,
                KnownMembers().add,
                lambda why, place: self.refusals.append((why, place)),
                lambda: self.placement,
            ),
        )

    def begin_tasks(self, tasks: Collection[int], generation: int) -> None:
        self.serving.update(tasks)
        if tasks:
            self.did.append(f"begin {list(tasks)} under {generation}")

    def release_tasks(self, tasks: Collection[int]) -> None:
        assert set(tasks) <= self.serving

    def end_tasks(self, tasks: Collection[int]) -> None:
        self.serving.difference_update(tasks)
        if tasks:
            self.did.append(f"end {list(tasks)}")

    def serves(self, task: int) -> bool:
        return task in self.serving

    def set_duties(self, duties: Collection[str]) -> None:
        self.did.append(f"duties {list(duties)}")

    def taken(self, task: int, generation: int) -> bool:
        """Let another node take a log partition in the log."""
        self.serving.discard(task)
        return self.coordinator.superseded(task, generation)

    def done(self) -> list[str]:
        """Return what it did since this was called last."""
        did, self.did = self.did, []
        return did


class Clock:
    def __init__(self) -> None:
        self.now_ms = 0


class Group:
    """The broker's part of a rebalance: a generation, a protocol that all know, and assignments to everybody."""

    def __init__(self, generation: int = 0) -> None:
        self.generation = generation

    async def rebalance(self, *members: Member, leader: Member | None = None) -> dict[str, bytes]:
        """Let these members join, and hand out what their leader assigns, which is returned."""
        leader = leader or members[0]
        before = self.generation or -1
        self.generation += 1
        for member in members:
            await member.coordinator.on_join_prepare(before, member.id)
        protocol, joined = self.choose(members)
        assigned = await leader.coordinator.perform_assignment(leader.id, protocol, joined)
        assert set(assigned) == {member.id for member in members}
        for member in members:
            await member.coordinator.on_join_complete(self.generation, member.id, protocol, assigned[member.id])
        return dict(assigned)

    def choose(self, members: Sequence[Member]) -> tuple[str, list[JoinedMember]]:
        """Return the first protocol that all members know, and the metadata of each under it."""
        offers = [dict(member.coordinator.metadata()) for member in members]
        protocol = next(name for name in offers[0] if all(name in offer for offer in offers))
        return protocol, [JoinedMember(m.id, None, offer[protocol]) for m, offer in zip(members, offers, strict=True)]
