"""The world of one life: nodes, states, logs of records, members, and who leads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

from holdfast.delivery.group_config import EARLIEST, LATEST, GroupConfig
from tests.simulated.cluster.timeline import Timeline
from tests.simulated.gateway.ledger import Ledger
from tests.simulated.gateway.member import Connection, Member, SentRequest
from tests.simulated.gateway.node import GatewayNode
from tests.simulated.gateway.records import RecordLog
from tests.simulated.gateway.states import States


class GatewayWorld:
    """Everything of one life."""

    def __init__(self, seed: int, trace: Callable[[str], None] | None) -> None:
        self._seed = seed
        self._trace = trace
        self._randoms: dict[str, Random] = {}
        self.random = self.random_of("world")
        self.counts: Counter[str] = Counter()
        self.timeline = Timeline()
        #: Faults have stopped.
        self.is_calm = False
        #: How much goes wrong between nodes and states.
        self.trouble = self.random.choice((0.0, 1.0, 3.0))
        self.logs = [
            RecordLog(self.random_of(f"log {index}"), self.random.choice((0, 7)))
            for index in range(self.random.choice((1, 1, 2, 3)))
        ]
        self.states = States(len(self.logs))
        self.ledger = Ledger(self)
        self.requests: list[SentRequest] = []
        self.connections: list[Connection] = []
        group_ids = ["a", "b"][: self.random.choice((1, 1, 2))]
        self._configs = {group_id: self._draw_config() for group_id in group_ids}
        self.nodes: list[GatewayNode] = []
        self._epoch = 0
        first = self.start_node()
        #: Leader and leader epoch of each partition.
        self.leaders = [(first, 0) for _ in self.logs]
        for index in range(len(self.logs)):
            self.take_over(index, first)
        self.members = [
            Member(self, group_id, number)
            for group_id in group_ids
            for number in range(self.random.choice((1, 2, 3, 4)))
        ]

    def random_of(self, name: str) -> Random:
        """Return a source of chance of its own, so that the order of others changes nothing of it."""
        if name not in self._randoms:
            self._randoms[name] = Random(f"gateway {self._seed} {name}")
        return self._randoms[name]

    def _draw_config(self) -> GroupConfig:
        random = self.random
        return GroupConfig(
            record_lock_duration_ms=random.choice((15_000, 20_000)),
            auto_offset_reset=random.choice((EARLIEST, EARLIEST, LATEST)),
            is_committed=random.random() < 0.4,
            delivery_count_limit=random.choice((2, 5, 10)),
            partition_max_record_locks=random.choice((5, 50, 2_000)),
            renew_acknowledge_enable=random.random() < 0.8,
        )

    def config_of(self, group_id: str) -> GroupConfig:
        """Return the config of a group."""
        return self._configs[group_id]

    def count(self, what: str) -> None:
        """Note that something happened."""
        self.counts[what] += 1

    def say(self, text: Callable[[], str]) -> None:
        """Tell something to who listens."""
        if self._trace is not None:
            self._trace(f"{self.timeline.now_s:.6f} {text()}")

    def after_network(self, call: Callable[[], None]) -> None:
        """Call when the network has brought something."""
        self.timeline.after(self.random.choice((0.0, 0.001, 0.001, 0.05)), call)

    # ---- nodes -------------------------------------------------------------------------------------------------------

    def start_node(self) -> GatewayNode:
        """Start a process."""
        node = GatewayNode(self, f"node {len(self.nodes)}")
        self.nodes.append(node)
        return node

    @property
    def alive(self) -> list[GatewayNode]:
        """Return the processes that are there."""
        return [node for node in self.nodes if not node.is_dead]

    def take_over(self, index: int, node: GatewayNode, *, old_learns_s: float = 0.0) -> None:
        """Let a node lead a partition under a new epoch; the one before learns of it later."""
        old = self.leaders[index][0]
        self._epoch += 1
        self.leaders[index] = node, self._epoch
        self.say(lambda: f"{node.name} leads {index} under {self._epoch}")
        epoch = self._epoch
        if old is not node:
            self.timeline.after(old_learns_s, lambda: self._tell(old, index))
        node.learn_epoch(index, epoch)

    def _tell(self, node: GatewayNode, index: int) -> None:
        leader, epoch = self.leaders[index]
        node.learn_epoch(index, epoch if leader is node else None)

    def kill(self, node: GatewayNode) -> None:
        """End a process; another one leads what it led."""
        self.say(lambda: f"{node.name} dies")
        node.die()
        for member in self.members:
            member.node_died(node)
        successor = self.random.choice(self.alive) if self.alive else self.start_node()
        for index, (leader, _) in enumerate(self.leaders):
            if leader is node:
                self.take_over(index, successor)

    def tell_all(self) -> None:
        """Let all nodes know who leads."""
        for node in self.alive:
            for index in range(len(self.logs)):
                self._tell(node, index)
