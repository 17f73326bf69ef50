"""One process of a simulated node: the real runtime, shards, service and pruning, with watchers between them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

from holdfast.api.results import StateRequest, StateResponse
from holdfast.daemon.internal_errors import InternalErrors
from holdfast.daemon.pruning.pruner import Phase, Pruner
from holdfast.metrics.instruments import Counter
from holdfast.metrics.registry import Registry
from holdfast.records.log.checkpoint import CHECKPOINT_KEY, Checkpoint
from holdfast.runtime.coordinator import CoordinatorRuntime, LoadAdvisers
from holdfast.runtime.errors import AppendRefused
from holdfast.runtime.log_protocol import LogRecord, ReadError
from holdfast.runtime.metrics import RuntimeMetrics
from holdfast.runtime.partition.lifecycle import Partition
from holdfast.runtime.partition.ownership import Owners
from holdfast.runtime.partition.states import State
from holdfast.runtime.settings import Surroundings
from holdfast.runtime.state_machine import Operation, StateMachine
from holdfast.share.service import ShareService
from holdfast.share.snapshots.follower import Bounds, SnapshotFollower
from holdfast.share.snapshots.metrics import SnapshotMetrics
from holdfast.share.snapshots.verifier import SnapshotVerifier
from tests.configs import partition_config
from tests.simulated.around.readers import NodeReaders
from tests.simulated.around.topics import Image, NodeTopics
from tests.simulated.checks import judge
from tests.simulated.checks.invariants import Invariant, violate
from tests.simulated.memory_log import Append, MemoryLog
from tests.simulated.parts.machine import Fault, HeldShards, WatchedOperation, WatchedShard
from tests.simulated.parts.stand_ins import (
    PRUNING,
    CountingOwnership,
    EagerPruner,
    FollowerHost,
    NoMetrics,
    WatchedLog,
    WatchedRestorePoints,
    WatchedSnapshotTopic,
)
from tests.world.tenants import SHARDS

if TYPE_CHECKING:
    from tests.simulated.parts.world import World

#: What may follow what, written down a second time.
LEGAL = {
    "initial": {"loading", "closed"},
    "loading": {"active", "failed", "closed"},
    "active": {"failed", "closed"},
    "failed": {"loading", "closed"},
    "closed": {"loading"},
}

#: Among the log partitions of which something asks for an alarm.
EVERY_PARTITION = -1

APPEND_STALL_MS = 8_000


class Node:
    """One process: it lives until it crashes or is closed; another one may follow under the same name."""

    def __init__(self, world: World, name: str, *, is_static: bool) -> None:
        self.world = world
        self.name = name
        self.is_static = is_static
        self.is_dead = False
        self.is_closed = False
        self.tasks: deque[Callable[[], None]] = deque()
        self.views: deque[tuple[int, dict[int, Node]]] = deque()  #: (generation, owner of each partition) to learn
        self.requests: deque[Callable[[], None]] = deque()  #: those that came while it was frozen
        self.operations: deque[WatchedOperation] = deque()
        self.planted: str | None = None  #: the next call of this kind raises
        self.planted_after = 0
        self.states: dict[int, str] = {}
        self.instances: dict[int, int] = {}  #: by log partition, when its state was seen last
        self.raised: list[tuple[int, int]] = []  #: (log partition, instance) that raised since the last check
        #: By log partition, the offset behind the newest record of ours that counted.
        self.seen_committed: dict[int, int] = {}
        self.has_unloaded = False  #: an instance ended since the last check
        #: The operation that decided last, whose records are appended next.
        self.decided: WatchedOperation | None = None
        self.log = world.open_log(name)
        node_id, address = world.identity_of(name)
        config = partition_config(
            node_id=node_id,
            advertised_address=address,
            log=world.topic.identity,
            parked_writes_max=world.parked_writes_max,
            load_timeout_ms=20_000,
            load_stall_ms=5_000,
            append_stall_ms=APPEND_STALL_MS,
            alarm_backoff_ms=30_000,
            slice_ms=world.slice_ms,
        )
        self.snapshot_log = None if world.snapshots is None else world.snapshots.open_log()
        self.snapshot_metrics = SnapshotMetrics(Registry())
        self.follower = None if self.snapshot_log is None else self._make_follower(self.snapshot_log)
        self.runtime = CoordinatorRuntime(
            config,
            WatchedLog(self.log, self._appended),
            self,
            self._make_shard,
            Surroundings(world.clock_ms, world.random_bytes, world.random.random),
            RuntimeMetrics(Registry()),
            LoadAdvisers(self.follower and WatchedRestorePoints(self.follower, world.count), self.make_owners()),
        )
        self.log.start(self)
        self.service = ShareService(self, NoMetrics(), world.clock_ms, InternalErrors(Counter()))
        self.service.start_up(len(world.topic.partitions))
        self.image = Image()  #: the newest
        self.learn_image()
        self.readers = NodeReaders(self)
        self.topics = NodeTopics(self)
        self.pruners: dict[int, Pruner] = {}
        self.shards: dict[int, WatchedShard] = {}
        self.held = HeldShards()

    def _make_follower(self, log: MemoryLog) -> SnapshotFollower:
        snapshots = self.world.snapshots
        assert snapshots is not None
        host = FollowerHost(self, lambda partition, key: snapshots.remove(partition, key, log.read_offset(partition)))
        follower = SnapshotFollower(
            WatchedSnapshotTopic(log, snapshots),
            Bounds(read_timeout_ms=2_000, bytes_max=1 << 24, slice_ms=self.world.slice_ms),
            host,
            self.snapshot_metrics,
            SnapshotVerifier(host, self.snapshot_metrics, 1_000, 1),
        )
        log.start(follower)
        return follower

    def make_owners(self) -> Owners | None:
        """Return what queries earlier owners; None: none is queried."""
        return None

    @property
    def is_running(self) -> bool:
        """Tell whether anything can happen in this process."""
        return not (self.is_dead or self.is_closed or self.log.is_frozen)

    def partition(self, index: int) -> Partition | None:
        """Return a log partition as this node has it."""
        return self.runtime.partitions.get(index)

    def serves(self, index: int) -> bool:
        """Tell whether this node believes to own a log partition and serves it."""
        partition = self.partition(index)
        return partition is not None and partition.state is State.ACTIVE

    def is_loading(self, index: int) -> bool:
        """Tell whether a log partition is being loaded here."""
        partition = self.partition(index)
        return partition is not None and partition.state is State.LOADING

    def _make_shard(self, index: int) -> StateMachine:
        self.runtime.partitions[index].reading.ownership = CountingOwnership(self.world.counts)
        before = self.shards.get(index)
        if before is not None and before.phase != "unloaded":
            violate(Invariant.ONE_LIFE_PER_INSTANCE, f"a second instance beside one that is {before.phase}")
        shard = self.shards[index] = WatchedShard(self.world.shard_config, self, index)
        return shard

    # ---- what happens to it ----------------------------------------------------------------------------------------

    def learn_view(self) -> None:
        """Learn of the next assignment."""
        generation, owners = self.views.popleft()
        for index, owner in owners.items():
            if owner is self:
                self.runtime.load(index, generation)
            else:
                self.runtime.unload(index, generation)

    def load_all(self) -> None:
        """Take every log partition, as a static node does when it starts."""
        for index in range(len(self.world.topic.partitions)):
            self.runtime.load(index, None)

    def learn_image(self) -> None:
        """Learn of newer cluster metadata."""
        self.image = Image()
        self.runtime.new_metadata_image(self.image)

    def handle(self, api_key: int, request: StateRequest, respond: Callable[[StateResponse], None]) -> None:
        """Take a request, now or when it is thawed."""
        if self.log.is_frozen:
            self.requests.append(partial(self.topics.let_in, api_key, request, respond))
        else:
            self.topics.let_in(api_key, request, respond)

    def write(self, index: int, operation: Operation) -> None:
        """Run an operation under watch; what the pruners take for the runtime."""
        self.write_many(((index, operation),))

    def write_many(self, operations: Iterable[tuple[int, Operation]], waited_ms: int = 0) -> None:
        """Run operations under watch; what the service takes for the runtime."""
        watched = [(index, WatchedOperation(operation, self, index)) for index, operation in operations]
        self.operations.extend(operation for _, operation in watched)
        self.runtime.write_many(watched, waited_ms)

    def refresh(self, index: int, cut_offset: int = -1) -> bool:
        """See `CoordinatorRuntime.refresh`."""
        self.world.count("refresh" if cut_offset < 0 else "cut named")
        return self.runtime.refresh(index, cut_offset)

    def delete_records(self, index: int, before_offset: int) -> None:
        """See `CoordinatorRuntime.delete_records`."""
        self.world.count("prune")
        self.readers.check_cut(index, before_offset)
        self.runtime.delete_records(index, before_offset)

    def tick(self) -> None:
        """Let the clock tick, then see that nothing is overdue."""
        now_ms = self.world.clock_ms()
        self.topics.tick(now_ms)
        self.runtime.tick()
        self.readers.tick(now_ms)
        if self.follower is not None:
            self.follower.tick(now_ms)
        for index, partition in self.runtime.partitions.items():
            if self.world.is_pruning:
                self._prune(index, partition)
            # A log that is not trusted is read when it is again, and not before.
            is_waiting = partition.state in (State.FAILED, State.CLOSED) and self.runtime.log_alarm is None
            if is_waiting and partition.retry_at_ms is not None and partition.retry_at_ms <= now_ms:
                violate(Invariant.LOADS_AGAIN, f"{self.name}/{index} is {partition.state} after its back-off")
            if partition.state is State.FAILED and partition.retry_at_ms is None:
                violate(Invariant.LOADS_AGAIN, f"{self.name}/{index} failed for ever: {partition.failure}")
        operations = self.operations
        while operations and operations[0].outcomes:
            operations.popleft()
        if operations and operations[0].deadline_ms <= now_ms:
            violate(Invariant.ANSWERED_IN_TIME, f"{operations[0]} is overdue since {operations[0].deadline_ms} ms")

    def _prune(self, index: int, partition: Partition) -> None:
        pruner = self.pruners.get(index)
        if pruner is None:
            pruner = self.pruners[index] = EagerPruner(
                partition, self, PRUNING, self.readers.readers, SHARDS, records_per_slice_max=2, timeout_ms=20_000
            )
        pruner.tick(self.world.clock_ms())
        if pruner.phase is not Phase.IDLE:
            self.world.count(f"pruning {pruner.phase.value}")

    def crash(self) -> None:
        """Lose the process and all that it held."""
        self.is_dead = True
        self.log.crash()
        if self.snapshot_log is not None:
            self.snapshot_log.crash()

    def close(self) -> None:
        """Shut down in order; requests that come after it are refused."""
        self.topics.close()
        self.service.shut_down()
        self.runtime.close()
        self.is_closed = True
        while self.requests:
            self.requests.popleft()()
        for operation in self.operations:
            if not operation.outcomes:
                violate(Invariant.ALWAYS_ANSWERED, f"{operation} has no outcome after close")

    def plant(self, kind: str, after: int) -> None:
        """Let a call of this kind (`decide`, `replay`) raise once, after some that do not."""
        self.planted, self.planted_after = kind, after

    def raise_planted(self, kind: str) -> None:
        """Raise what was planted for this kind of call."""
        if self.planted == kind:
            if self.planted_after:
                self.planted_after -= 1
                return
            self.planted = None
            self.world.count(f"fault: {kind} raises")
            raise Fault(kind)

    # ---- Host ------------------------------------------------------------------------------------------------------

    def note(self, level: str, event: str, fields: dict[str, object]) -> None:
        """Write it into the trace."""
        self.world.count(f"note: {event}")
        if self.world.is_tracing:
            self.world.trace(f"  {self.name}: {level}: {event} {fields}")
        bug = fields.get("exc_info")
        if event == "event_handler_failed":
            index = fields["partition"]
            assert isinstance(index, int)
            self.raised.append((index, self.runtime.partitions[index].reading.instance))
        if bug is not None and not isinstance(bug, Fault | AppendRefused):
            violate(Invariant.BUGS_STAY_AT_HOME, f"{event} at {self.name}: {bug!r}")

    def begin_load_turn(self, ended: Callable[[], None]) -> None:
        """End it at once: each event of a life is a turn of its own."""
        ended()

    def continue_soon(self, task: Callable[[], None]) -> None:
        """Run it when the world says so."""
        self.tasks.append(task)

    def end_turn_with(self, task: Callable[[], None]) -> None:
        """Run it at once: each event of a life is a turn of its own."""
        task()

    def partition_changed(self, partition: Partition) -> None:
        """Compare with the table."""
        index, after = partition.index, partition.state.value
        before = self.states.get(index, "initial")
        if after != before:
            self.states[index] = after
            self.world.count(f"{before} -> {after}")
            # A load that fails at once is seen when it has failed; that it began shows in the instance.
            has_loaded = (
                after == "failed" and before != "loading" and partition.reading.instance > self.instances.get(index, 0)
            )
            steps = (before, "loading", after) if has_loaded else (before, after)
            if any(second not in LEGAL[first] for first, second in pairwise(steps)):
                violate(Invariant.LEGAL_TRANSITIONS, f"{before} -> {after} at {self.name}/{index}")
        if partition.is_alarmed and not self.may_be_alarmed(partition):
            violate(Invariant.ALARMS_HAVE_A_REASON, f"{self.name}/{index}: {partition.failure}")
        if partition.state is State.CLOSED and self.follower is not None:
            self.follower.forget(index)
        if partition.state is State.ACTIVE and self.runtime.log_alarm is not None:
            violate(Invariant.DISTRUSTED_IS_NOT_SERVED, f"{self.name}/{index} serves: {self.runtime.log_alarm}")
        self.instances[index] = partition.reading.instance
        if self.world.is_tracing:
            self.world.trace(f"  {self.name}/{index} is {after} ({self.instances[index]}, {partition.failure})")

    def may_be_alarmed(self, partition: Partition) -> bool:
        """Tell whether something happened to a log partition of which an admin has to know."""
        return bool(self.world.alarm_reasons & {partition.index, EVERY_PARTITION})

    def superseded(self, partition: Partition, winner: Checkpoint, offset: int) -> None:
        """Count it, and report it to whoever divides the log partitions."""
        self.world.count("superseded")
        self.world.superseded(self, partition.index, winner.generation)

    # ---- LogListener -----------------------------------------------------------------------------------------------

    def read_started(self, partition: int, instance: int, start_offset: int, end_offset: int) -> None:
        """See `LogListener.read_started`."""
        self.runtime.read_started(partition, instance, start_offset, end_offset)

    def records_read(self, partition: int, instance: int, records: list[LogRecord]) -> None:
        """See `LogListener.records_read`."""
        self.runtime.records_read(partition, instance, records)

    def own_records_read(
        self, partition: int, instance: int, base_offset: int, count: int, first_header: bytes
    ) -> bool:
        """See `LogListener.own_records_read`."""
        is_taken = self.runtime.own_records_read(partition, instance, base_offset, count, first_header)
        self.world.count("own records taken" if is_taken else "own records refused")
        return is_taken

    def position_reached(self, partition: int, instance: int, next_offset: int) -> None:
        """See `LogListener.position_reached`."""
        self.runtime.position_reached(partition, instance, next_offset)

    def caught_up(self, partition: int, instance: int, next_offset: int) -> None:
        """See `LogListener.caught_up`."""
        self.runtime.caught_up(partition, instance, next_offset)

    def log_start_moved(self, partition: int, instance: int, log_start_offset: int) -> None:
        """See `LogListener.log_start_moved`."""
        self.runtime.log_start_moved(partition, instance, log_start_offset)

    def read_failed(self, partition: int, instance: int, error: ReadError) -> None:
        """See `LogListener.read_failed`."""
        self.world.count("alarm while reading" if error.is_alarm else "reading fails")
        self.runtime.read_failed(partition, instance, error)

    def append_failed(self, partition: int, header: bytes | None, text: str) -> None:
        """Tell the runtime and see that the instance that sent it stops, unless it has read it back."""
        held = self.partition(partition)
        assert held is not None
        instance, is_serving = held.reading.instance, held.state is State.ACTIVE
        is_open = header is None or any(parked.header == header for parked in held.parking.records)
        self.runtime.append_failed(partition, header, text)
        goes_on = held.reading.instance == instance and held.state is State.ACTIVE
        if is_serving and is_open and goes_on:
            violate(Invariant.AMBIGUITY_FAILS, f"{self.name}/{partition} goes on after an ambiguous append")
        if is_serving and not is_open and not goes_on:
            violate(Invariant.AMBIGUITY_FAILS, f"{self.name}/{partition} ends after an append that it read back")

    def log_start_found(self, partition: int, instance: int, log_start_offset: int | None) -> None:
        """See `LogListener.log_start_found`."""
        self.runtime.log_start_found(partition, instance, log_start_offset)

    def latest_offsets(self, round_number: int, offsets: dict[int, int | None]) -> None:
        """See `LogListener.latest_offsets`."""
        self.runtime.latest_offsets(round_number, offsets)

    def records_deleted(self, partition: int, log_start_offset: int | None, why: str) -> None:
        """See `LogListener.records_deleted`."""
        self.runtime.records_deleted(partition, log_start_offset, why)

    # ---- checks ----------------------------------------------------------------------------------------------------

    def unread_appends(self) -> dict[int, int]:
        """Return how many records of ours were neither read back nor given up, by log partition; one that gives up loads again."""
        parked = {index: len(partition.parking.records) for index, partition in self.runtime.partitions.items()}
        return {index: count for index, count in parked.items() if count}

    def _appended(self, append: Append) -> None:
        index = append.partition
        partition = self.runtime.partitions[index]
        if self.is_dead or self.runtime.is_closed or partition.state not in (State.LOADING, State.ACTIVE):
            violate(Invariant.SILENT_AFTER_CLOSE, f"{self.name}/{index} appends while {partition.state}")
        operation = self.decided if append.key != CHECKPOINT_KEY else None
        if operation is not None:
            operation.appends.append(append)
        if partition.state is State.ACTIVE:
            self.shards[index].unmet.append(append)
        self.world.sent(self, append, operation, partition.machine)

    def check_loaded(self, shard: WatchedShard) -> None:
        """See `judge.check_loaded`."""
        judge.check_loaded(self, shard)

    def judge(self, operation: WatchedOperation, outcome: object) -> None:
        """See `judge.judge_answer`."""
        judge.judge_answer(self, operation, outcome)

    def may_know_the_past(self, operation: WatchedOperation) -> bool:
        """Tell whether a broker broke Kafka's word while a read waited, so that nothing could tell its answer from a good one."""
        return False

    def check(self) -> None:
        """Compare each partition with itself and with the truth, and see that no instance that ended kept an operation."""
        for partition in self.runtime.partitions.values():
            judge.check_partition(self, partition)
        while self.raised:
            index, instance = self.raised.pop()
            held = self.runtime.partitions[index]
            if held.reading.instance == instance and held.state is State.ACTIVE:
                violate(Invariant.BUGS_FAIL_THEIR_PARTITION, f"{self.name}/{index} goes on")
        if self.has_unloaded:
            self.has_unloaded = False
            for operation in self.operations:
                if operation.shard is not None and operation.shard.phase == "unloaded" and not operation.outcomes:
                    violate(Invariant.UNLOAD_ANSWERS_ALL, f"{operation} waits for an instance that is gone")
