"""Everything of one life of a group: the brokers, the network, the members, and what their leader hands in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from holdfast.daemon.log_metrics import LogMetrics
from holdfast.daemon.membership.division.assignment import Assignment, AssignmentError, decode_assignment
from holdfast.daemon.membership.division.metadata import MemberMetadata, decode_metadata
from holdfast.membership import MembershipSettings
from holdfast.metrics.registry import Registry
from holdfast.runtime.metrics import RuntimeMetrics
from holdfast.share.metrics import ShareMetrics
from tests.simulated.checks.invariants import Invariant, violate
from tests.simulated.group.brokers import GroupBrokers
from tests.simulated.group.config import ConfigLog
from tests.simulated.group.group import Group
from tests.simulated.group.member import GroupMember
from tests.simulated.group.network import Network
from tests.simulated.group.node import GROUP_ID, GroupNode
from tests.simulated.group.watch import SeenAtJoin
from tests.simulated.memory_log import MemoryTopic
from tests.simulated.parts.node import Node
from tests.simulated.parts.world import MESSAGE_BYTES_MAX, World

TIME_SLICES_MS = (100, 250, 400)
#: The name of the static node.
STATIC = "s"


class GroupWorld(World):
    """Nodes that are members of one group."""

    snapshots_share = 0
    #: No topic is deleted here.
    topics_interval_ms = 60_000

    def __init__(self, random: Random, trace: Callable[[str], None] | None = None) -> None:
        super().__init__(random, trace)
        choose = random.choice
        self.is_static = False
        self.is_pruning = False
        self.network = Network(random, self.clock_ms)
        self.brokers = GroupBrokers(random, self.clock_ms, self.handed_in)
        #: The membership of each node's newest process, by name.
        self.members: dict[str, GroupMember] = {}
        #: By what a JoinGroup says.
        self.seen_at_join: dict[tuple[tuple[str, bytes], ...], SeenAtJoin] = {}
        #: Who has sent a JoinGroup that reached a broker after the next process of that name had begun.
        self.late_joins: set[str] = set()
        self.config = ConfigLog(random)
        #: Time goes by in slices, at the end of each of which every process does what is due.
        self.time_slice_ms = choose(TIME_SLICES_MS)
        self.loads_max = choose((1, 2, 64))
        #: The newest process of a static node, which is in no group.
        self.static: GroupNode | None = None
        self.duties = choose(((), ("compaction",), ("compaction", "cleaning")))
        self.rebalance_delay_ms = choose((0, 0, 1_500))
        self.rebalance_protocols = choose((("cooperative",), ("cooperative",), ("eager",), ("cooperative", "eager")))
        self.static_share = choose((0.0, 0.0, 0.5, 1.0))
        registry = Registry()
        #: Of all processes together.
        self.share_metrics = ShareMetrics(registry)
        self.metrics = (LogMetrics(registry), RuntimeMetrics(registry))
        self._protocols: dict[str, str] = {}
        self._instances: dict[str, str | None] = {}

    def _make_topic(self, partition_count: int) -> MemoryTopic:
        return MemoryTopic(partition_count + self.random.choice((1, 2, 4)), MESSAGE_BYTES_MAX)

    # ---- processes ---------------------------------------------------------------------------------------------------

    def identity_of(self, name: str) -> tuple[str, str]:
        """See `World.identity_of`."""
        return str(ord(name)), f"host-{name}:9092"

    def name_at(self, address: str) -> str:
        """Return the name of the node at an address."""
        return address.removeprefix("host-").removesuffix(":9092")

    def process(self, name: str) -> GroupNode | None:
        """Return the newest process of a node; None: there is no such node any more."""
        return next((each for each in self.processes if each.name == name), None)

    @property
    def processes(self) -> list[GroupNode]:
        """The newest process of each node, and that of the static one."""
        members = [self.members[node.name].node for node in self.nodes]
        return members if self.static is None else [*members, self.static]

    def make_node(self, name: str) -> GroupNode:
        """See `World.make_node`."""
        living = {each.log for each in self.processes if each.is_alive}
        self.topic.logs = [log for log in self.topic.logs if log in living or any(log.in_flight.values())]
        return GroupNode(self, name, is_static=False)

    def start_static(self) -> None:
        """Start a static node."""
        if self.static is not None:
            self.former.append(self.static)
        self.static = GroupNode(self, STATIC, is_static=True)
        self.static.load_all()

    def join(self, node: Node) -> None:
        """Let a process become a member."""
        name, random = node.name, self.random
        if name not in self._protocols:
            self._protocols[name] = random.choice(self.rebalance_protocols)
            self._instances[name] = f"instance-{name}" if random.random() < self.static_share else None
        settings = MembershipSettings(
            group_id=GROUP_ID,
            group_instance_id=self._instances[name],
            session_timeout_ms=3_000,
            rebalance_timeout_ms=4_000,
            heartbeat_interval_ms=800,
            retry_backoff_ms=100,
            retry_backoff_max_ms=1_000,
            request_timeout_ms=1_000,
        )
        assert isinstance(node, GroupNode)
        self.members[name] = GroupMember(self, node, settings, self._protocols[name])

    def rebalance(self) -> None:
        """Do nothing: the group does it."""

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
        seen = [self.seen_at_join[place.protocols] for place in group.places.values()]
        # What a member has read of a topic that was deleted since counts for nothing.
        of_this_topic = [each.config_offset for each in seen if each.config_made == self.config.times_made]
        config_offset = max(of_this_topic, default=-1)
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
        generation_seen = max(each.generation for each in seen)
        if divided.generation <= generation_seen:
            text = f"{divided.generation} is handed out, and a member has seen {generation_seen}"
            violate(Invariant.GENERATIONS_RISE, text)
        work = [*(each.work for each in found.values()), *(each.work for each in divided.absent)]
        tasks = [task for each in work for task in each.tasks]
        duties = [duty for each in work for duty in each.duties]
        if sorted(tasks) != [*range(len(self.topic.partitions))] or sorted(duties) != sorted(self.duties):
            violate(Invariant.ASSIGNED_ONCE, f"tasks {sorted(tasks)} and duties {sorted(duties)} in {divided}")
        loads = [len(each.work.tasks) + len(each.work.duties) for each in found.values()]
        if max(loads) - min(loads) > 1:
            violate(Invariant.BALANCED, f"{loads} of {divided}")
        self._see_claims(found, {each: decode_metadata(place.protocols[0][1]) for each, place in group.places.items()})

    def _see_claims(self, found: Mapping[str, Assignment], said: Mapping[str, MemberMetadata]) -> None:
        """See that who held a log partition last does not lose it to one that held it before, and get another one for it."""
        for member_id, assignment in found.items():
            for task in set(assignment.work.tasks) & set(said[member_id].tasks):
                claims = {each: other.generation for each, other in said.items() if task in other.tasks}
                newest = min(claims, key=lambda each: (-claims[each], each))
                gets_others = set(found[newest].work.tasks) - set(said[newest].tasks)
                if claims[member_id] < claims[newest] and gets_others:
                    text = f"{task} goes to {member_id}, of {claims}, and {newest} gets {gets_others}"
                    violate(Invariant.NEWEST_CLAIM_WINS, f"{text}: {said} in {found}")
