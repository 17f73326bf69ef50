"""Everything of one life of a group: the brokers, the network, the members, and what their leader hands in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from holdfast.daemon.membership.division.assignment import AssignmentError, decode_assignment
from holdfast.runtime.membership import MembershipSettings
from tests.simulated.checks.invariants import Invariant, violate
from tests.simulated.group.brokers import GroupBrokers
from tests.simulated.group.group import Group
from tests.simulated.group.member import GroupMember
from tests.simulated.group.network import Network
from tests.simulated.memory_log import MemoryTopic
from tests.simulated.parts.node import Node
from tests.simulated.parts.world import MESSAGE_BYTES_MAX, World


class GroupWorld(World):
    """Nodes that are members of one group."""

    snapshots_share = 0

    def __init__(self, random: Random, trace: Callable[[str], None] | None = None) -> None:
        super().__init__(random, trace)
        choose = random.choice
        self.is_static = False
        self.is_pruning = False
        self.network = Network(random, self.clock_ms)
        self.brokers = GroupBrokers(random, self.clock_ms, self.handed_in)
        #: The membership of each node's newest process, by name.
        self.members: dict[str, GroupMember] = {}
        #: By what a JoinGroup says: the highest ownership generation that its member had met, and its config offset.
        self.met_at_join: dict[tuple[tuple[str, bytes], ...], tuple[int, int]] = {}
        self.config_end = -1
        self.duties = choose(((), ("compaction",), ("compaction", "cleaning")))
        self.rebalance_delay_ms = choose((0, 0, 1_500))
        self.rebalance_protocols = choose((("cooperative",), ("cooperative",), ("eager",), ("cooperative", "eager")))
        self.static_share = choose((0.0, 0.0, 0.5, 1.0))
        self._protocols: dict[str, str] = {}
        self._instances: dict[str, str | None] = {}

    def _make_topic(self, partition_count: int) -> MemoryTopic:
        return MemoryTopic(partition_count + self.random.choice((1, 2, 4)), MESSAGE_BYTES_MAX)

    # ---- processes ---------------------------------------------------------------------------------------------------

    def join(self, node: Node) -> None:
        """Let a process become a member."""
        name, random = node.name, self.random
        if name not in self._protocols:
            self._protocols[name] = random.choice(self.rebalance_protocols)
            self._instances[name] = f"instance-{name}" if random.random() < self.static_share else None
        settings = MembershipSettings(
            group_id="nodes",
            group_instance_id=self._instances[name],
            session_timeout_ms=3_000,
            rebalance_timeout_ms=4_000,
            heartbeat_interval_ms=800,
            retry_backoff_ms=100,
            retry_backoff_max_ms=1_000,
            request_timeout_ms=1_000,
        )
        self.members[name] = GroupMember(self, node, settings, self._protocols[name])

    def rebalance(self) -> None:
        """Do nothing: the group does it."""

    def superseded(self, node: Node, index: int, generation: int) -> None:
        """Have the member learn that another node has taken a log partition."""
        self.members[node.name].superseded(index, generation)

    def member_of(self, node: Node) -> GroupMember:
        """Return the membership of a process."""
        return self.members[node.name]

    # ---- time --------------------------------------------------------------------------------------------------------

    def pass_time(self, until_ms: int) -> None:
        """Deliver all that is due until then, in order."""
        network = self.network
        while (next_ms := network.next_ms()) is not None and next_ms <= until_ms:
            self.now_ms = max(self.now_ms, next_ms)
            network.pop()()
        self.now_ms = until_ms
        self.brokers.tick()

    # ---- what a leader hands in --------------------------------------------------------------------------------------

    def handed_in(self, group: Group, given: Mapping[str, bytes]) -> None:
        """Look at the assignments of all members."""
        found = {member_id: decode_assignment(data) for member_id, data in given.items()}
        if set(found) != set(group.places):
            violate(Invariant.ASSIGNED_ONCE, f"assignments of {sorted(found)} for members {sorted(group.places)}")
        met = [self.met_at_join[place.protocols] for place in group.places.values()]
        config_offset = max(offset for _, offset in met)
        if any(each.error is AssignmentError.CONFIG_MISMATCH for each in found.values()):
            self.count("config mismatch")
            if any(any(each.work) or each.map.members for each in found.values()):
                violate(Invariant.ASSIGNED_ONCE, f"work beside a config mismatch: {found}")
            return
        self.count("assignment handed in")
        divided = next(iter(found.values())).map
        if any(each.map != divided for each in found.values()):
            violate(Invariant.ASSIGNED_ONCE, f"members are given different maps: {found}")
        if any(each.config_offset < config_offset for each in found.values()):
            violate(Invariant.BEHIND_WAITS, f"assigned for less of the config topic than {config_offset}: {found}")
        generation_met = max(generation for generation, _ in met)
        if divided.generation <= generation_met:
            text = f"{divided.generation} is handed out, and a member has met {generation_met}"
            violate(Invariant.GENERATIONS_RISE, text)
        work = [*(each.work for each in found.values()), *(each.work for each in divided.absent)]
        tasks = [task for each in work for task in each.tasks]
        duties = [duty for each in work for duty in each.duties]
        if sorted(tasks) != [*range(len(self.topic.partitions))] or sorted(duties) != sorted(self.duties):
            violate(Invariant.ASSIGNED_ONCE, f"tasks {sorted(tasks)} and duties {sorted(duties)} in {divided}")
        loads = [len(each.work.tasks) + len(each.work.duties) for each in found.values()]
        if max(loads) - min(loads) > 1:
            violate(Invariant.BALANCED, f"{loads} of {divided}")
