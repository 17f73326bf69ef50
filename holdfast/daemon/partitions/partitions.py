"""The log partitions of this node, each with a shard: loaded, watched, pruned, lost and stopped."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterator
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from holdfast.daemon.components import partition_config, state_log_config
from holdfast.daemon.log_metrics import LogMetrics
from holdfast.daemon.partitions.description import (
    describe_partition,
    describe_readiness,
    superseded_by,
    why_not_loaded,
)
from holdfast.daemon.partitions.hand_overs import HandOvers
from holdfast.daemon.partitions.load_queue import LoadQueue
from holdfast.daemon.partitions.loop_clock import LoopClock
from holdfast.daemon.partitions.owners import Owners
from holdfast.daemon.partitions.partition_lines import PartitionLines
from holdfast.daemon.partitions.timed_writes import TimedWrites
from holdfast.daemon.pruning.log_readers import LogReaders
from holdfast.daemon.pruning.pruner import Phase, Pruner
from holdfast.daemon.server.cluster_view import Node
from holdfast.daemon.settings.logging import warn_of_library
from holdfast.daemon.settings.models import Settings
from holdfast.daemon.shards import ShardKind, Snapshots
from holdfast.daemon.topics.state_topic import StateTopic
from holdfast.kafka.addresses import format_address
from holdfast.kafka.connection_options import ConnectionOptions
from holdfast.metrics.line_limit import LineLimiter
from holdfast.records.log.checkpoint import Checkpoint, Placement
from holdfast.runtime.coordinator import CoordinatorRuntime, LoadAdvisers
from holdfast.runtime.deadlines import Interval
from holdfast.runtime.kafka_log.shell import CoordinatorShell
from holdfast.runtime.metrics import RuntimeMetrics
from holdfast.runtime.partition.lifecycle import Partition
from holdfast.runtime.partition.states import State
from holdfast.runtime.settings import LogIdentity

#: States of a log partition that waits for no turn to load.
_AT_WORK: Final = (State.LOADING, State.ACTIVE)
#: The longest time between two looks at what changes slowly, pruners between rounds among it: an idle node costs whoever shares its
#: processors, and each tick whoever waits for an answer meanwhile.
LOOK_INTERVAL_MS: Final = 1_000
#: What an admin may do about log partitions that were lost against all plans.
_NEXT_STEPS: Final = {
    "static": "`holdfast partitions take` takes one back",
    "group": "the group divides them again; `holdfast members` shows the next owner of each",
}


class LogPlace(NamedTuple):
    """Where the log is, and where clients reach the node that serves it."""

    topic: StateTopic
    cluster_id: str
    connection: ConnectionOptions
    #: The node, as clients and other nodes reach it.
    node: Node

    @property
    def advertised_address(self) -> str:
        """Return the address at which clients reach the node, as `host:port`; checkpoints name it."""
        return format_address(self.node.host, self.node.port)


class PartitionsHost(Protocol):
    """What the node must know of its log partitions."""

    def all_loaded(self, is_all_loaded: bool) -> None:
        """Notify the node whether every log partition serves."""

    def taken_over(self, index: int, winner: Checkpoint) -> bool:
        """Notify the node that another one took a log partition over; returns whether that was planned."""

    def lost(self, winner: Checkpoint) -> None:
        """Notify the node that another one took a log partition over, and that it is to stop because of it."""

    def turned(self, late_ms: float) -> None:
        """Notify the node at each tick of its loop how late that is."""


class Partitions:
    """The log partitions of a node; observes the runtime in which they live (`kafka_log.shell.Observer`)."""

    def __init__(
        self,
        settings: Settings,
        place: LogPlace,
        readers: LogReaders,
        host: PartitionsHost,
        kind: ShardKind,
        metrics: LogMetrics,
        runtime_metrics: RuntimeMetrics,
        limiter: LineLimiter,
        *,
        image: object = None,
        make_owners: Callable[[Partitions], Owners] | None = None,
        make_snapshots: Callable[[Partitions], Snapshots] | None = None,
        make_shell: Callable[..., CoordinatorShell] = CoordinatorShell,
    ) -> None:
        """Prepare; `start` connects, and nothing is loaded before `load`. Needs a running event loop.

        Args:
            settings: of the node.
            place: where the log is.
            readers: block pruning of what they have not read.
            host: the node.
            kind: of the shards.
            metrics: of the log.
            runtime_metrics: of the runtime.
            limiter: of the lines of the node.
            image: which topics exist, as known now.
            make_owners: makes what queries owners before a log partition is taken from them; None: none is queried.
            make_snapshots: makes what loads restore from; None: they read the whole log.
            make_shell: makes the runtime over the log.
        """
        self.pruners: dict[int, Pruner] = {}
        #: Log partitions that this node is to serve, each with its ownership generation; None: as a static node.
        self.wanted: dict[int, int | None] = {}
        self.readers = readers
        self._settings = settings
        self.place = place
        self._topic = place.topic
        self._host = host
        self._kind = kind
        self._metrics = metrics
        self._runtime_metrics = runtime_metrics
        self._clock = LoopClock(runtime_metrics)
        self._looks = Interval(min(LOOK_INTERVAL_MS, settings.pruning.pruning_check_interval_ms))
        self._lines = PartitionLines(
            runtime_metrics.internal_errors,
            lambda: self.runtime.now_ms(),
            limiter,
        )
        self.hand_overs = HandOvers(lambda: self.runtime.now_ms())
        #: Identity of the log; None until its first records were read.
        self.placement: Placement | None = None
        #: Are told of each log partition whose state has changed.
        self._watchers: list[Callable[[int], None]] = []
        #: `load` was called, if for none.
        self._is_ordered = False
        self._queue = LoadQueue(
            settings.load.loads_max,
            lambda: self._list_states().count(State.LOADING),
            lambda index: self.runtime.load(index, self.wanted[index]),
        )
        self._snapshots = None if make_snapshots is None else make_snapshots(self)
        self._owners = None if make_owners is None else make_owners(self)
        identity = LogIdentity(place.cluster_id, place.topic.topic_id, place.topic.partition_count)
        self._shell = make_shell(
            partition_config(settings, identity, place.advertised_address, kind.write_timeout_ms),
            state_log_config(settings, place.topic, place.connection, partial(warn_of_library, limiter)),
            kind.make_machine,
            self,
            tick_ms=settings.load.tick_ms,
            metrics=runtime_metrics,
            advisers=LoadAdvisers(None if self._snapshots is None else self._snapshots.follower, self._owners),
        )
        self.runtime: CoordinatorRuntime = self._shell.runtime
        #: Takes the operations of calls.
        self.writes = TimedWrites(self.runtime, runtime_metrics.event_processing_time)
        self._image = image
        self.runtime.new_metadata_image(image)
        metrics.pruning_snapshots.source = lambda: sum(pruner.snapshots_written for pruner in self.pruners.values())
        runtime_metrics.parked_writes.source = lambda: sum(
            len(each.parking) for each in self.runtime.partitions.values()
        )

    # ---- lifecycle -------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect to the log, and to the snapshots that loads may restore from.

        Raises:
            ConnectionFailed: no broker answered.
        """
        await self._shell.start()
        if self._snapshots is not None:
            await self._snapshots.start()

    def list_all_unloaded(self, why: str | None) -> None:
        """List every log partition with why none is loaded yet; None: there is no reason any more."""
        for index in range(self._topic.partition_count):
            self.runtime.set_unloaded_reason(index, why)

    def renew_log(self, topic_id: bytes) -> None:
        """Expect the log in another topic, because it was recreated under its name."""
        self._shell.renew_log(topic_id)

    def place_log(self, placement: Placement) -> None:
        """Expect this placement, by the first records of the log; before the first load."""
        self.placement = placement
        self.runtime.place_log(placement)

    def load_all(self) -> None:
        """Take every log partition, a bounded number at a time."""
        self.load(range(self._topic.partition_count))

    def load(self, indexes: Collection[int], generation: int | None = None) -> None:
        """Take log partitions, a bounded number at a time; those at work remember the ownership generation.

        A static node has no generation.
        """
        self._is_ordered = True
        self.wanted.update(dict.fromkeys(indexes, generation))
        at_work = {each.index for each in self if each.state in _AT_WORK}
        for index in indexes:
            if index in at_work:
                self.runtime.load(index, generation)
        self._queue.add(index for index in indexes if index not in at_work)
        self._report_loaded()

    def release(self, indexes: Collection[int]) -> None:
        """Serve log partitions until another node takes them over, and miss none of them then."""
        for index in indexes:
            self.wanted.pop(index, None)
            self._queue.remove(index)
        self._report_loaded()

    def note_served_elsewhere(self, indexes: Collection[int]) -> None:
        """Take in which log partitions another node serves until they are loaded here; callers are sent on, and do not wait."""
        for partition in self.runtime.partitions.values():
            partition.tenancy.note_served_elsewhere(partition.index in indexes)

    def note_out_of_reach(self, indexes: Collection[int]) -> None:
        """Take in of which log partitions the leading broker does not answer; calls about them are refused at once."""
        for partition in self.runtime.partitions.values():
            partition.tenancy.note_out_of_reach(partition.index in indexes)

    def unload(self, indexes: Collection[int]) -> None:
        """Give log partitions up now; what is parked is answered NOT_COORDINATOR."""
        for index in indexes:
            self.wanted.pop(index, None)
            self._queue.remove(index)
        for index in indexes:  # each makes room for a load, which is to be none of those that go, too
            self.runtime.unload(index, None)
        self._report_loaded()

    def load_again_soon(self) -> None:
        """Let failed partitions load again at the next tick, because what they failed for is over; those with an alarm wait."""
        for partition in self:
            if not partition.is_alarmed:
                partition.retry_soon(self.runtime.now_ms())

    async def stop(self, timeout_ms: int) -> bool:
        """Give every partition up and close the log; returns whether all of it ended in time."""
        try:
            if self._owners is not None:
                await self._owners.close()
        finally:  # whatever became of that, the log is closed in good order
            is_stopped = await self._shell.stop(timeout_ms / 1_000)
            self._lines.flush()
            is_followed_to_its_end = self._snapshots is None or await self._snapshots.stop(timeout_ms / 1_000)
        return is_followed_to_its_end and is_stopped

    # ---- what there is ---------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Partition]:
        """Yield the partitions that are known here, in any state, by index."""
        return iter([partition for _, partition in sorted(self.runtime.partitions.items())])

    def __len__(self) -> int:
        return len(self.runtime.partitions)

    def find(self, index: int) -> Partition | None:
        """Return a partition that is known here, in any state, or None."""
        return self.runtime.partitions.get(index)

    def active(self) -> Iterator[Partition]:
        """Yield the partitions that serve."""
        return (partition for partition in self if partition.state is State.ACTIVE)

    def committed_offsets(self) -> dict[int, int]:
        """Return the committed offsets of the log partitions that serve."""
        return {partition.index: partition.committed_offset for partition in self.active()}

    def held_count(self) -> int:
        """Return how many log partitions this node serves, or is about to: it has not left them to another one."""
        return sum(each.state is not State.CLOSED or each.retry_at_ms is not None for each in self._list_wanted())

    @property
    def ticks(self) -> int:
        """How often the loop has ticked since the start."""
        return self._clock.ticks

    def watch(self, changed: Callable[[int], None]) -> None:
        """Call `changed` with each log partition whose state has changed, from now on; a bug in it is noted."""
        self._watchers.append(changed)

    # ---- description -----------------------------------------------------------------------------------------------

    def describe(self) -> list[dict[str, Any]]:
        """Return every partition for people; the state of those that wait for their turn to load is `waiting`."""
        waiting = self._queue.waiting()
        return [
            describe_partition(
                each,
                self.pruners.get(each.index),
                self._kind,
                "waiting" if each.index in waiting and each.state not in _AT_WORK else each.state.value,
            )
            for each in self
        ]

    def describe_readiness(self, cut_off: Container[int]) -> list[dict[str, Any]]:
        """Return every log partition that this node is to serve, see `description.describe_readiness`."""
        waiting = self._queue.waiting()
        known = {each.index: each for each in self._list_wanted()}
        return [
            describe_readiness(index, known.get(index), index in waiting, is_cut_off=index in cut_off)
            for index in sorted(known.keys() | waiting)
        ]

    def superseded_by(self) -> list[dict[str, Any]]:
        """See `description.superseded_by`."""
        return superseded_by(self._list_wanted())

    def why_not_loaded(self) -> str:
        """See `description.why_not_loaded`."""
        return why_not_loaded(self._list_wanted())

    # ---- the shell reports (Observer) ------------------------------------------------------------------------------

    def note(self, level: str, event: str, fields: dict[str, object]) -> None:
        """See `PartitionLines.note`."""
        self._lines.note(level, event, fields)

    def partition_changed(self, partition: Partition) -> None:
        """Count states, load the next partition, and report when all of them serve."""
        index, state = partition.index, partition.state
        metrics, states = self._runtime_metrics, self._list_states()
        metrics.partitions_loading.value = states.count(State.LOADING)
        metrics.partitions_active.value = states.count(State.ACTIVE)
        metrics.partitions_failed.value = states.count(State.FAILED)
        self.hand_overs.changed(partition)
        if state is State.ACTIVE:
            self._lines.loaded(partition)
            metrics.partition_load_time.record(partition.reading.load_ended_ms - partition.reading.load_began_ms)
            self._begin_to_prune(partition)
        else:
            self._metrics.forget_partition(index)
            if state is State.FAILED:
                metrics.loads_failed.value += not partition.reading.load_ended_ms
        if self._snapshots is not None:
            self._snapshots.partition_changed(partition)
        if state is not State.LOADING:
            self._queue.load_next()
        self._report_loaded()
        for changed in self._watchers:
            try:
                changed(index)
            except Exception as bug:
                self.note("error", "partition_watch_failed", {"partition": index, "error": repr(bug), "exc_info": bug})

    def _begin_to_prune(self, partition: Partition) -> None:
        index, shard = partition.index, self._kind.shard_of(partition.machine)
        assert shard is not None
        pruner = self.pruners.get(index)
        if pruner is None:
            pruner = self.pruners[index] = Pruner(
                partition, self.runtime, self._settings.pruning, self.readers, self._kind
            )
        self._metrics.watch_partition(self._topic.name, index, lambda: partition.log_start, pruner.bytes_dead)
        self._kind.watch(self._topic.name, index, shard)

    def superseded(self, partition: Partition, winner: Checkpoint, offset: int) -> None:
        """Report who took over; a static node may stop because of it."""
        self.hand_overs.lost(partition, winner)
        if self._host.taken_over(partition.index, winner):
            self._lines.handed_over(partition, winner)
            return
        membership = self._settings.members.membership
        if membership == "group" and not partition.reading.load_ended_ms:
            self._lines.outranked(partition, winner)
            return
        self._runtime_metrics.ownerships_lost.value += 1
        self._lines.superseded(partition, winner, _NEXT_STEPS[membership])
        if membership == "static" and self._settings.load.when_superseded == "exit":
            self._host.lost(winner)

    def ticked(self, late_ms: float) -> bool:
        """See `Observer.ticked`: let the snapshots and the pruners do their next step; a bug in one does not keep the others from it."""
        now_ms = self.runtime.now_ms()
        is_at_work = self._tick_snapshots()
        is_look_due = self._looks.has_passed(now_ms)
        for index, pruner in self.pruners.items():
            if pruner.phase is Phase.IDLE and not is_look_due:
                continue
            try:
                pruner.tick(now_ms)
            except Exception as bug:
                self.note("error", "pruning_failed", {"partition": index, "error": repr(bug), "exc_info": bug})
            is_at_work |= pruner.phase is not Phase.IDLE
        self._clock.tick(late_ms)
        self._host.turned(late_ms)
        self._lines.tick()
        if is_look_due:
            self._kind.tick()
        return is_at_work

    def _tick_snapshots(self) -> bool:
        """Let the snapshots do their next step; return whether there are more."""
        try:
            return self._snapshots is not None and self._snapshots.tick()
        except Exception as bug:
            self.note("error", "snapshot_tick_failed", {"error": repr(bug), "exc_info": bug})
            return False

    def new_metadata_image(self, image: object) -> None:
        """Hand a metadata image to every shard; the one they have already costs nothing."""
        if image is not self._image:
            self._image = image
            self.runtime.new_metadata_image(image)

    def _report_loaded(self) -> None:
        """Notify the node whether all that it is to serve is served."""
        is_all_loaded = self._is_ordered and all(
            index in self.runtime.partitions and self.runtime.partitions[index].state is State.ACTIVE
            for index in self.wanted
        )
        if is_all_loaded:
            self._lines.flush()
        self._host.all_loaded(is_all_loaded)

    def _list_wanted(self) -> list[Partition]:
        """Return what this node is to serve, as far as it is known; before `load`, all that is."""
        return [each for each in self if not self._is_ordered or each.index in self.wanted]

    def _list_states(self) -> list[State]:
        return [each.state for each in self.runtime.partitions.values()]
