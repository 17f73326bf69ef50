"""The log partitions of this node, each a share shard: started, watched, described and stopped."""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from time import perf_counter, thread_time
from typing import Any, Final, Protocol

import structlog

from holdfast.daemon.brokers.silence import IsLeftOut, named, none_left_out
from holdfast.daemon.partitions.load_summaries import PartitionSums
from holdfast.daemon.partitions.own_view import find_winner
from holdfast.daemon.partitions.owners import Owners
from holdfast.daemon.pruning.log_readers import LogReaders
from holdfast.daemon.pruning.pruner import Pruner
from holdfast.daemon.settings.log_limits import LineLimit
from holdfast.daemon.settings.models import Settings
from holdfast.daemon.share.config import ShardConfig
from holdfast.daemon.share.decisions import ShareShard
from holdfast.daemon.share.metrics import ShareMetrics
from holdfast.daemon.share.state_bounds import StateBounds, StateTotals
from holdfast.daemon.share.state_watch import StateWatch
from holdfast.daemon.snapshots.store import Snapshots
from holdfast.kafka.connection import ConnectionOptions
from holdfast.metrics.registry import Registry
from holdfast.records.checkpoint import Checkpoint
from holdfast.records.codecs.codec import Codec
from holdfast.records.keys import format_key
from holdfast.runtime.coordinator import CoordinatorRuntime
from holdfast.runtime.errors import NotAvailable
from holdfast.runtime.kafka_log.accumulator import RECORD_OVERHEAD_BYTES
from holdfast.runtime.kafka_log.log import KafkaLogConfig
from holdfast.runtime.kafka_log.shell import CoordinatorShell
from holdfast.runtime.machine import Operation
from holdfast.runtime.metrics import RuntimeMetrics
from holdfast.runtime.partition.lifecycle import Partition
from holdfast.runtime.partition.states import State
from holdfast.runtime.settings import LogIdentity, PartitionConfig

_log = structlog.get_logger(__name__)

#: What the runtime tells of each log partition, and what is said of all that it told it of within moments.
_SUMMED: Final = {"load_accepted": "log partitions begin to load", "unload_accepted": "log partitions are given up"}
#: States of a log partition that waits for nobody.
_AT_WORK: Final = (State.LOADING, State.ACTIVE)
#: Taking the time of each request would cost more than it tells.
_REQUESTS_PER_TIMING: Final = 64
#: What a snapshot takes beside its state batches, with the longest group id; then each batch, for offsets that are not
#: extreme. It bounds their number; near it, shards look at the bytes.
_SNAPSHOT_ROOM_BYTES: Final = 34_000
_STATE_BATCH_BYTES: Final = 20
#: Combining so many takes a good part of a second, for which the other shards wait.
_STATE_BATCHES_MAX: Final = 50_000


class StateTopicView(Protocol):
    """What the shards need to know of the state topic."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def topic_id(self) -> bytes:
        """Its id."""

    @property
    def partition_count(self) -> int:
        """How many log partitions it has."""

    @property
    def max_message_bytes(self) -> int:
        """Its largest record batch."""


class Shards:
    """Observes the coordinator shell and tells the node what it must know: `all_loaded` and `lost`."""

    def __init__(
        self,
        settings: Settings,
        metrics: ShareMetrics,
        registry: Registry,
        all_loaded: Callable[[bool], None],
        lost: Callable[[Checkpoint], None],
        make_shell: Callable[..., CoordinatorShell] = CoordinatorShell,
        is_left_out: IsLeftOut = none_left_out,
    ) -> None:
        self.pruners: dict[int, Pruner] = {}
        self.readers = LogReaders((), 1, lambda: 0, lambda *_: None)
        self._settings = settings
        self._metrics = metrics
        self._runtime_metrics = RuntimeMetrics(registry)
        self._all_loaded = all_loaded
        self._lost = lost
        self._make_shell = make_shell
        self._is_left_out = is_left_out
        self._shell: CoordinatorShell | None = None
        self._topic: StateTopicView | None = None
        self._snapshots: Snapshots | None = None
        self._image: object = None
        self._line_limit = LineLimit(settings.logging.partition_lines_per_minute_max)
        share = settings.share
        self._totals = StateTotals(
            StateBounds(
                share.share_partitions_max,
                share.share_partitions_per_group_max,
                share.state_bytes_max,
                share.group_id_bytes_max,
            )
        )
        self._state_watch = StateWatch(self._totals, metrics)
        self._to_load: deque[int] = deque()
        self._until_timed = _REQUESTS_PER_TIMING
        self._sums = PartitionSums(lambda: self.runtime.now_ms())
        self._ticked_s = 0.0  #: when the last tick ended
        self._worked_before_s = thread_time()

    # ---- life ------------------------------------------------------------------------------------------------------

    async def start(
        self,
        topic: StateTopicView,
        cluster_id: str,
        connection: ConnectionOptions,
        snapshots: Snapshots | None = None,
        *,
        advertised_address: str = "",
        owners: Owners | None = None,
    ) -> None:
        """Connect to the log, and to the snapshots that loads may begin with; nothing is loaded yet.

        The address (`host:port`) is where clients reach this node; its checkpoints name it.
        Without `owners` nobody is asked before a log partition is taken.

        Raises:
            ConnectionFailed: no broker answered.
        """
        settings, log = self._settings, self._settings.log
        self._topic, self._snapshots = topic, snapshots
        share = ShardConfig(
            updates_per_snapshot=settings.share.snapshot_update_records_per_snapshot,
            state_batches_max=state_batches_max(topic.max_message_bytes),
            snapshot_bytes_max=max(1, topic.max_message_bytes - RECORD_OVERHEAD_BYTES),
            codec=Codec(log.codec),
            totals=self._totals,
        )
        self._shell = self._make_shell(
            PartitionConfig(
                node_id=str(settings.node_id),
                log=LogIdentity(cluster_id, topic.topic_id, topic.partition_count),
                advertised_address=advertised_address,
                parked_writes_max=log.max_parked_writes,
                load_timeout_ms=settings.load.load_timeout_ms,
                load_stall_ms=settings.load.load_stall_ms,
                append_stall_ms=2 * log.message_timeout_ms,
                retry_backoff_ms=settings.load.retry_backoff_ms,
                retry_backoff_ms_max=settings.load.retry_backoff_max_ms,
                alarm_backoff_ms=settings.load.alarm_backoff_ms,
            ),
            KafkaLogConfig(
                topic=topic.name,
                connection=connection,
                message_bytes_max=topic.max_message_bytes,
                message_timeout_ms=log.message_timeout_ms,
                compression=log.state_topic_compression_codec,
                linger_ms=max(0, log.append_linger_ms),
                append_gather_max_ms=log.append_gather_max_ms,
                append_records_max=log.producer_queue_records_max,
                append_bytes_max=log.producer_queue_bytes_max,
                append_requests_in_flight_max=log.produce_requests_in_flight_max,
                fetch_wait_ms=log.fetch_wait_ms,
                slice_records_max=log.read_batch_records_max,
                fetch_bytes_max=log.fetch_bytes_max,
                fetch_partition_bytes_max=log.fetch_partition_bytes_max,
                request_timeout_ms=log.admin_timeout_ms,
                leader_silence_max_ms=log.leader_silence_max_ms,
                throttle_max_ms=log.throttle_max_ms,
            ),
            lambda _index: ShareShard(share),
            self,
            write_timeout_ms=settings.share.write_timeout_ms,
            tick_ms=settings.load.tick_ms,
            slice_ms=settings.load.slice_ms,
            metrics=self._runtime_metrics,
            bases=None if snapshots is None else snapshots.follower,
            owners=owners,
        )
        if owners is not None:
            owners.start(self.runtime, self.load)
        self.runtime.new_metadata_image(self._image)
        await self._shell.start()
        if snapshots is not None:
            await snapshots.start(self.runtime)

    def hold_all(self, why: str | None) -> None:
        """Show every log partition, and why none is loaded yet; None: nothing stands against it any more."""
        assert self._topic is not None
        for index in range(self._topic.partition_count):
            self.runtime.hold(index, why)

    def load_all(self) -> None:
        """Take every log partition, a bounded number at a time."""
        assert self._topic is not None
        self.load(range(self._topic.partition_count))

    def load(self, partitions: Iterable[int]) -> None:
        """Take log partitions, a bounded number at a time."""
        self._to_load.extend(partitions)
        self._load_next()

    def load_again_soon(self) -> None:
        """Let failed partitions load again at the next tick, because what they failed for is over; those with an alarm wait."""
        for partition in self.partitions():
            if partition.state is State.FAILED and not partition.is_alarmed and partition.retry_at_ms is not None:
                partition.retry_at_ms = self.runtime.now_ms()

    async def stop(self, timeout_ms: int) -> bool:
        """Give every partition up and let go of the log; returns whether all of it ended in time."""
        is_stopped = self._shell is None or await self._shell.stop(timeout_ms / 1_000)
        self._sums.tell()
        return (self._snapshots is None or await self._snapshots.stop(timeout_ms / 1_000)) and is_stopped

    @property
    def runtime(self) -> CoordinatorRuntime:
        """The runtime, once started."""
        assert self._shell is not None
        return self._shell.runtime

    # ---- callers ---------------------------------------------------------------------------------------------------

    def write_many(self, operations: Iterable[tuple[int, Operation]], waited_ms: int = 0) -> None:
        """Run each operation on its log partition; before the start they are refused at once."""
        if self._shell is not None:
            self._until_timed -= 1
            if self._until_timed:
                self._shell.runtime.write_many(operations, waited_ms)
            else:
                self._write_and_time(list(operations), waited_ms)
            return
        for _, operation in operations:
            operation.is_done = True
            operation.complete(NotAvailable("this node is still starting"))

    def _write_and_time(self, operations: list[tuple[int, Operation]], waited_ms: int) -> None:
        self._until_timed = _REQUESTS_PER_TIMING
        began_s = perf_counter()
        self.runtime.write_many(operations, waited_ms)
        each_ms = (perf_counter() - began_s) * 1_000 / max(1, len(operations))
        self._runtime_metrics.event_processing_time.record(each_ms)

    def new_metadata_image(self, image: object) -> None:
        """Hand a metadata image to every shard, now or when there are some; the one they have already costs nothing."""
        if image is not self._image:
            self._image = image
            if self._shell is not None:
                self._shell.runtime.new_metadata_image(image)

    def partitions(self) -> list[Partition]:
        """Return the partitions held, in any state, by index."""
        return [] if self._shell is None else [held for _, held in sorted(self._shell.runtime.partitions.items())]

    def find(self, index: int) -> Partition | None:
        """Return a partition that is held, in any state, or None."""
        return None if self._shell is None else self._shell.runtime.partitions.get(index)

    def active(self) -> Iterator[tuple[Partition, ShareShard]]:
        """Yield the partitions that serve, with their machines."""
        for partition in self.partitions():
            machine = partition.machine
            if partition.state is State.ACTIVE and isinstance(machine, ShareShard):
                yield partition, machine

    def superseded_by(self) -> list[dict[str, Any]]:
        """Return the nodes that serve log partitions which this one left to them: node id, advertised address, log partitions."""
        taken: dict[tuple[str, str], list[int]] = {}
        for partition in self.partitions():
            if (winner := find_winner(partition)) is not None:
                taken.setdefault((winner.node_id, winner.advertised_address), []).append(partition.index)
        return [
            {"node_id": node_id, "advertised_address": address or None, "log_partitions": indexes}
            for (node_id, address), indexes in sorted(taken.items())
        ]

    def why_not_loaded(self) -> str:
        """Return how many log partitions do not serve, in which states, what the first failure says, and who took some over."""
        counts = Counter(partition.state for partition in self.partitions() if partition.state is not State.ACTIVE)
        states = ", ".join(f"{count} {state.value}" for state, count in counts.items())
        untold = [
            held
            for held in self.partitions()
            if held.state is not State.ACTIVE and held.failure and find_winner(held) is None
        ]
        failed = min(untold, key=lambda held: held.state is not State.FAILED, default=None)
        why = "" if failed is None else f"; log partition {failed.index}: {failed.failure}"
        for winner in self.superseded_by():
            where = f" at {winner['advertised_address']}" if winner["advertised_address"] else ""
            why += f"; node {winner['node_id']}{where} serves log partitions {named(winner['log_partitions'])}"
        return f"not every log partition serves ({states or 'none is held'}){why}"

    def topics_in_use(self) -> set[bytes]:
        """Return the ids of all topics of which this node holds state."""
        return {topic_id for _, machine in self.active() for topic_id in machine.state.topic_ids()}

    def held_count(self) -> int:
        """Return how many log partitions this node serves, or is about to: it has not left them to another one."""
        return sum(held.state is not State.CLOSED or held.retry_at_ms is not None for held in self.partitions())

    def describe(self) -> list[dict[str, Any]]:
        """Return every partition for people: owner, epoch, state, offsets, keys and what holds pruning up.

        The state of those that wait for their turn to load, because `loads_max` others do, is `waiting`.
        """
        waiting = set(self._to_load)
        return [
            self._describe(
                held, "waiting" if held.index in waiting and held.state not in _AT_WORK else held.state.value
            )
            for held in self.partitions()
        ]

    def _describe(self, partition: Partition, state: str) -> dict[str, Any]:
        ownership, machine = partition.ownership, partition.machine
        winner = ownership.winner
        shard = machine if partition.state is State.ACTIVE and isinstance(machine, ShareShard) else None
        oldest = shard.state.offsets.oldest() if shard is not None else None
        pruner = self.pruners.get(partition.index)
        dead, total = pruner.bytes_dead() if pruner is not None else (0, 0)
        return {
            "partition": partition.index,
            "state": state,
            "owner": None if winner is None else winner.node_id,
            "owner_address": None if winner is None else winner.advertised_address,
            "owner_epoch": None if winner is None else winner.owner_epoch,
            "generation": None if winner is None else winner.generation,
            "written": partition.committed_offset + len(partition.parking.records),
            "committed": partition.committed_offset,
            "log_start": partition.log_start,
            "keys": None if shard is None else shard.state.share_partition_count(),
            "parked": len(partition.parking),
            "load_ms": partition.reading.load_ended_ms - partition.reading.load_began_ms if shard is not None else None,
            "records_loaded": partition.reading.records_loaded,
            "void_records": partition.reading.void_records,
            "log_bytes": total,
            "dead_bytes": dead,
            "oldest_key": None if oldest is None else format_key(oldest[0]),
            "oldest_snapshot_offset": None if oldest is None else oldest[1],
            "why_not_pruned": None if pruner is None else pruner.why_not_pruned(),
            "failure": partition.failure,
            "is_alarmed": partition.is_alarmed,
        }

    # ---- the shell tells (Observer) --------------------------------------------------------------------------------

    def note(self, level: str, event: str, fields: dict[str, object]) -> None:
        """Write a log line of the runtime; one that carries an exception tells of a bug.

        What befalls many partitions at once is told of some of them, and what a silent broker causes is left to who tells of that.
        """
        is_bug = "exc_info" in fields
        self._runtime_metrics.internal_errors.value += is_bug
        is_always_told = is_bug or level in ("debug", "info") or bool(fields.get("is_alarm"))
        partition = fields.get("partition")
        if not is_always_told and isinstance(partition, int) and self._is_left_out(partition):
            return
        if (summed := _SUMMED.get(event)) is not None:
            assert isinstance(partition, int)
            self._sums.add("info", summed, partition)
        left_out = {} if is_always_told else self._line_limit.admit(event)
        if left_out is not None:
            getattr(_log, level)(event, **fields, **left_out)

    def partition_changed(self, partition: Partition) -> None:
        """Count states, load the next partition, and tell when all of them serve."""
        index, state = partition.index, partition.state
        metrics, states = self._runtime_metrics, self._list_states()
        metrics.partitions_loading.value = states.count(State.LOADING)
        metrics.partitions_active.value = states.count(State.ACTIVE)
        metrics.partitions_failed.value = states.count(State.FAILED)
        if state is State.ACTIVE:
            numbers = {
                "records": partition.reading.records_read,
                "longest_load_ms": partition.reading.load_ended_ms - partition.reading.load_began_ms,
            }
            self._sums.add("info", "log partitions loaded", index, numbers)
            metrics.partition_load_time.record(partition.reading.load_ended_ms - partition.reading.load_began_ms)
            self._serve(partition)
        else:
            self._metrics.forget_partition(index)
            if state is State.FAILED:
                metrics.loads_failed.value += not partition.reading.load_ended_ms
        if self._snapshots is not None:
            self._snapshots.partition_changed(partition)
        if state is not State.LOADING:
            self._load_next()
        assert self._topic is not None
        is_all_loaded = states.count(State.ACTIVE) == self._topic.partition_count
        if is_all_loaded:
            self._sums.tell()
        self._all_loaded(is_all_loaded)

    def _serve(self, partition: Partition) -> None:
        assert self._topic is not None
        index, topic, machine = partition.index, self._topic.name, partition.machine
        assert isinstance(machine, ShareShard)
        pruner = self.pruners.get(index)
        if pruner is None:
            pruner = Pruner(partition, self.runtime, self._settings.pruning, self.readers)
            self.pruners[index] = pruner
        self._metrics.watch_partition(
            topic, index, lambda: partition.log_start, machine.state.share_partition_count, pruner.bytes_dead
        )

    def superseded(self, partition: Partition, winner: Checkpoint, offset: int) -> None:
        """Say who took over; a static node may end because of it."""
        self._runtime_metrics.ownerships_lost.value += 1
        self._sums.add(
            "error",
            "another node owns log partitions of this one now",
            partition.index,
            node=winner.node_id,
            address=winner.advertised_address,
            next_step="`holdfast partitions take` takes one back",
        )
        if self._settings.load.when_superseded == "exit":
            self._lost(winner)

    def ticked(self) -> None:
        """Let the snapshots and every pruner do their next step; a bug in one is not another's."""
        now_ms = self.runtime.now_ms()
        if self._snapshots is not None:
            try:
                self._snapshots.tick()
            except Exception as bug:
                self.note("error", "looking after the snapshot topic failed", {"error": repr(bug), "exc_info": bug})
        for index, pruner in self.pruners.items():
            try:
                pruner.tick(now_ms)
            except Exception as bug:
                self.note("error", "pruning failed", {"partition": index, "error": repr(bug), "exc_info": bug})
        self._time_the_loop()
        self._sums.tick()
        self._state_watch.tick()
        self._metrics.pruning_snapshots.value = sum(pruner.snapshots_written for pruner in self.pruners.values())
        self._runtime_metrics.parked_writes.value = sum(len(held.parking) for held in self.runtime.partitions.values())

    def _time_the_loop(self) -> None:
        """Measure how late this tick is, and how long this thread has worked in all."""
        metrics, now_s = self._runtime_metrics, perf_counter()
        if self._ticked_s:
            late_ms = (now_s - self._ticked_s) * 1_000 - self._settings.load.tick_ms
            metrics.event_queue_time.record(max(0.0, late_ms))
        metrics.thread_idle_ratio.value = int((thread_time() - self._worked_before_s) * 1_000)
        self._ticked_s = now_s

    def _load_next(self) -> None:
        while self._to_load and self._list_states().count(State.LOADING) < self._settings.load.loads_max:
            self.runtime.load(self._to_load.popleft(), None)

    def _list_states(self) -> list[State]:
        return [held.state for held in self.runtime.partitions.values()]


def state_batches_max(message_bytes_max: int) -> int:
    """Return how many state batches a share partition may have, so that its snapshot fits into a batch of the state topic."""
    return min(_STATE_BATCHES_MAX, max(1, (message_bytes_max - _SNAPSHOT_ROOM_BYTES) // _STATE_BATCH_BYTES))
