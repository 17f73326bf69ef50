"""A process in a life of a group: the real log partitions of a node, and its queries to earlier owners, over the real runtime."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from holdfast.daemon.internal_errors import InternalErrors
from holdfast.daemon.partitions.identity import KnownMembers, NodeIdentity
from holdfast.daemon.partitions.owners import Owners
from holdfast.daemon.partitions.partitions import LogPlace, Partitions
from holdfast.daemon.server.cluster_view import Node as Place
from holdfast.daemon.settings.models import Settings
from holdfast.daemon.topics.state_topic import StateTopic
from holdfast.kafka.addresses import parse_address
from holdfast.kafka.connection_options import ConnectionOptions
from holdfast.kafka.topic_ids import format_topic_id
from holdfast.metrics.instruments import Counter
from holdfast.metrics.line_limit import LineLimiter
from holdfast.node_settings import load_settings
from holdfast.records.log.checkpoint import Checkpoint
from holdfast.runtime.partition.lifecycle import Partition
from holdfast.runtime.partition.states import State
from holdfast.share.shard_kind import ShareShards
from tests.simulated.checks.invariants import Invariant, violate
from tests.simulated.group.network import Pause
from tests.simulated.parts.node import Node
from tests.simulated.parts.world import MESSAGE_BYTES_MAX

if TYPE_CHECKING:
    from tests.simulated.group.member import GroupMember
    from tests.simulated.group.world import GroupWorld

GROUP_ID = "nodes"
OWNER_ANSWER_TIMEOUT_MS = 500
POLL_TIMEOUT_MS = 300
#: In which a node ends that must not be.
ENDING_MS = 100
#: Between two looks of a query whether its answer has come.
QUERY_STEP_MS = 25


@lru_cache
def make_settings(membership: str, loads_max: int) -> Settings:
    """Return the settings of a node."""
    return load_settings(
        flags={"kafka.bootstrap.servers": "127.0.0.1:1", "membership": membership, "loads_max": loads_max}
    ).settings


class GroupNode(Node):
    """A process that takes log partitions as its group says, or, as a static node, all of them."""

    def __init__(self, world: GroupWorld, name: str, *, is_static: bool) -> None:
        self.group_world = world
        self.known = KnownMembers()
        self.run_id = str(world.random.getrandbits(32))
        #: It has heard that nodes of another membership serve the log, and has ended by then.
        self._ends_by_ms: int | None = None
        #: None: a static node, or one that has not joined yet.
        self.member: GroupMember | None = None
        #: When it has stood still last.
        self.thawed_ms = 0
        #: What happened to the process while it stood still.
        self.inbox: deque[Callable[[], None]] = deque()
        self.settings = make_settings("static" if is_static else "group", world.loads_max)
        super().__init__(world, name, is_static=is_static)
        node_id, address = world.identity_of(name)
        identity = world.topic.identity
        topic = StateTopic("state", identity.topic_id, identity.partition_count, 1, MESSAGE_BYTES_MAX)
        self.partitions = Partitions(
            self.settings,
            LogPlace(
                topic,
                identity.cluster_id,
                ConnectionOptions(bootstrap=(("127.0.0.1", 1),)),
                Place(int(node_id), *parse_address(address)),
            ),
            self.readers.readers,
            self,
            ShareShards(self.settings, topic, world.share_metrics),
            *world.metrics,
            LineLimiter(),
            image=self.image,
            make_shell=self._make_shell,
        )

    def _make_shell(self, *_: object, **__: object) -> Any:
        return _Shell(self)

    def make_owners(self) -> Owners:
        """See `Node.make_owners`."""
        return _SteppedOwners(self, None if self.is_static else GROUP_ID)

    @property
    def is_alive(self) -> bool:
        """Whether the process has not ended."""
        return not (self.is_dead or self.is_closed)

    def run(self, call: Callable[[], None]) -> None:
        """Let something happen in the process: now, or when it goes on; never, if it has ended."""
        if not self.is_alive:
            return
        if self.log.is_frozen:
            self.inbox.append(call)
        else:
            call()

    def drive(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Let a coroutine of this process run to where it waits, and on from there in its time."""
        try:
            pause = coroutine.send(None)
        except StopIteration:
            return
        assert isinstance(pause, Pause)
        self.group_world.network.after(pause.ms, partial(self.run, partial(self.drive, coroutine)))

    def end_soon(self, why: str) -> None:
        """Let the process end, as a node does that must not go on."""
        self.world.count(why)
        if self.world.is_tracing:
            self.world.trace(f"  {self.name} ends: {why}")
        self.group_world.network.after(1, partial(self.run, self.close))

    # ---- what is loaded ----------------------------------------------------------------------------------------------

    def load_all(self) -> None:
        """See `Node.load_all`."""
        self.partitions.load_all()

    def load(self, index: int, generation: int | None) -> None:
        """Let the runtime load a log partition, and see that it is to, and that not too many load at a time."""
        held = self.runtime.partitions
        states = [each.state for each in held.values()]
        if index not in held or held[index].state not in (State.LOADING, State.ACTIVE):
            if states.count(State.LOADING) >= self.group_world.loads_max:
                violate(Invariant.LOADS_ARE_BOUNDED, f"{self.name} loads {index} beside {states}")
            if self.member is not None:
                self.member.watch.loads(index)
        self.runtime.load(index, generation)

    def partition_changed(self, partition: Partition) -> None:
        """Have the real log partitions see it, too."""
        super().partition_changed(partition)
        self.partitions.partition_changed(partition)

    def superseded(self, partition: Partition, winner: Checkpoint, offset: int) -> None:
        """Have the real log partitions decide what it means."""
        self.world.count("superseded")
        self.partitions.superseded(partition, winner, offset)

    def waiting(self) -> set[int]:
        """Return the log partitions whose turn to load has not come."""
        return self.partitions._queue.waiting()

    # ---- what the log partitions report (PartitionsHost) ---------------------------------------------------------------

    def all_loaded(self, is_all_loaded: bool) -> None:
        """Ignore it: readiness is not looked at."""

    def taken_over(self, index: int, winner: Checkpoint) -> bool:
        """See `PartitionsHost.taken_over`."""
        return self.member is not None and not self.member.superseded(index, winner.generation)

    def lost(self, winner: Checkpoint) -> None:
        """End, because another node has taken over."""
        self.end_soon("static node superseded")

    def turned(self, late_ms: float) -> None:
        """Ignore it: virtual time is never late."""

    # ---- queries to earlier owners -------------------------------------------------------------------------------------

    def status(self) -> Mapping[str, Any]:
        """Return what the node answers to a node that queries the owner of a log partition."""
        log = self.runtime.config.log
        return {
            "run_id": self.run_id,
            "node_id": int(self.runtime.config.node_id),
            "cluster_id": log.cluster_id,
            "topic_id": format_topic_id(log.topic_id),
            "log_partitions_held": self.partitions.held_count(),
            "group": None if self.is_static else GROUP_ID,
        }

    async def query_status(self, address: str) -> Mapping[str, Any] | None:
        """Query the node at an address over the network."""
        world, network = self.group_world, self.group_world.network
        name = world.name_at(address)
        answers: list[Mapping[str, Any]] = []
        world.count("owner queried")

        def query() -> None:
            other = world.process(name)
            if other is not None and other.is_running:
                network.send(name, self.name, partial(answers.append, other.status()))

        network.send(self.name, name, query)
        until_ms = world.now_ms + OWNER_ANSWER_TIMEOUT_MS
        while not answers and world.now_ms < until_ms:
            await Pause(QUERY_STEP_MS)
        status = answers[0] if answers else None
        if status is not None and status["group"] != self.status()["group"] and status["log_partitions_held"]:
            world.count("nodes of another membership found")
            self._ends_by_ms = world.now_ms + ENDING_MS
        return status

    # ---- queries to former owners (handover.polls.Queries) -------------------------------------------------------------

    async def query(self, place: Place) -> Mapping[int, int] | None:
        """Query a node for which log partitions it names itself, over the network."""
        world, network, name = self.group_world, self.group_world.network, chr(place.node_id)
        answers: list[Mapping[int, int]] = []
        world.count("former owner queried")

        def query() -> None:
            other = world.process(name)
            if other is not None and other.is_running and other.member is not None:
                network.send(name, self.name, partial(answers.append, other.member.led()))

        network.send(self.name, name, query)
        until_ms = world.now_ms + POLL_TIMEOUT_MS
        while not answers and world.now_ms < until_ms:
            await Pause(QUERY_STEP_MS)
        return answers[0] if answers else None

    def forget(self, place: Place) -> None:
        """Do nothing: there is no connection."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing is due, unless something happens."""
        return (
            self.member is not None
            and self.member.is_idle
            and self._ends_by_ms is None
            and all(
                each.state is State.ACTIVE or (each.state is State.CLOSED and each.retry_at_ms is None)
                for each in self.runtime.partitions.values()
            )
            and all(operation.outcomes for operation in self.operations)
        )

    def tick(self) -> None:
        """See `Node.tick`."""
        super().tick()
        if self._ends_by_ms is not None and self.world.now_ms > self._ends_by_ms:
            violate(Invariant.MEMBERSHIPS_DO_NOT_MIX, f"{self.name} goes on beside nodes of another membership")


class _Shell:
    """What `Partitions` takes for the runtime's shell, and its runtime: the node's own, whose loads are watched."""

    def __init__(self, node: GroupNode) -> None:
        self.runtime = self
        self.load = node.load
        self._node = node

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node.runtime, name)


class _SteppedOwners(Owners):
    """The real queries to earlier owners, whose work is driven without an event loop."""

    def __init__(self, node: GroupNode, group: str | None) -> None:
        host: Any = node  # whose partitions are loaded only where a node waits for an owner, and none does
        super().__init__(
            node.settings.load,
            NodeIdentity(node.run_id, group, node.known, self._refuse),
            host,
            InternalErrors(Counter()),
            node.query_status,
        )
        self._node = node

    def _refuse(self, why: str, *, is_setting_wrong: bool) -> None:
        self._node.end_soon("refused beside nodes of another membership")

    def _run(self, work: Awaitable[None]) -> None:
        assert isinstance(work, Coroutine)
        self._node.drive(work)
