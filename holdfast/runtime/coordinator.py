"""All log partitions of a node: routes events to them and carries out their effects.

It has no clock, threads or I/O: `clock_ms`, `random_bytes` and the log are arguments.
The asyncio shell calls it on one loop; the simulation calls it one event at a time.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from holdfast.records.log.checkpoint import Checkpoint, Placement
from holdfast.runtime.deadlines import Deadlines, Interval
from holdfast.runtime.dispatch import Dispatcher
from holdfast.runtime.effects import ContinueLoad, Note, Outbox
from holdfast.runtime.errors import (
    Alarm,
    CoordinatorError,
    NotAvailable,
    NotCoordinator,
    OperationFailed,
    OutcomeUnknown,
    TimedOut,
)
from holdfast.runtime.host import Host
from holdfast.runtime.load_slices import Discards, Slices
from holdfast.runtime.log_protocol import Log, LogRecord, ReadError
from holdfast.runtime.metrics import RuntimeMetrics
from holdfast.runtime.partition.lifecycle import Partition
from holdfast.runtime.partition.load import Load, Step
from holdfast.runtime.partition.ownership import Owners
from holdfast.runtime.partition.restore_point import RestorePoint, RestorePointFinder
from holdfast.runtime.partition.serving import Serving
from holdfast.runtime.partition.states import State
from holdfast.runtime.read_index import ReadIndexes
from holdfast.runtime.settings import LogIdentity, LogTrust, PartitionConfig, Ports, Surroundings
from holdfast.runtime.state_machine import Operation, StateMachine

T = TypeVar("T")

#: Time between two checks of serving partitions, for appends that stall (after minutes) and for records that another program deleted.
_SERVING_LOOK_MS: Final = 1_000


class LoadAdvisers(NamedTuple):
    """The parts of a node that its loads ask; None: they do not."""

    #: Finds from where a load may begin.
    restore_points: RestorePointFinder | None = None
    #: Asks the owner whether it still serves.
    owners: Owners | None = None


class CoordinatorRuntime:
    """The partitions of one node, their clock and their log."""

    def __init__(
        self,
        config: PartitionConfig,
        log: Log,
        host: Host,
        make_machine: Callable[[int], StateMachine],
        surroundings: Surroundings,
        metrics: RuntimeMetrics,
        advisers: LoadAdvisers = LoadAdvisers(),  # noqa: B008 - immutable
    ) -> None:
        clock_ms, random_bytes, jitter = surroundings
        restore_points, owners = advisers
        self.partitions: dict[int, Partition] = {}
        self.config = config
        self.write_timeout_ms = config.write_timeout_ms
        self.is_closed = False
        self._log = log
        self._host = host
        self._make_machine = make_machine
        self._clock_ms = clock_ms
        self._trust = LogTrust()
        self._read_indexes = ReadIndexes()
        slices = Slices(clock_ms, config.slice_ms, host.begin_load_turn)
        self._discards = Discards(slices.begin, host.continue_soon, host.note)
        self._ports = Ports(
            log.append,
            self._read_indexes.want,
            slices.begin,
            self._discards.add,
            random_bytes,
            jitter,
            self._trust,
            metrics,
            has_restore_points=restore_points is not None,
            queries_owners=owners is not None,
        )
        self._outbox = Outbox()
        self._is_draining = False
        self._image: object = None
        self._dispatcher = Dispatcher(log, host, owners, restore_points, self._continue_soon)
        #: Operations in order of arrival, which is the order of their deadlines.
        self._deadlines = Deadlines()
        self._serving_looks = Interval(_SERVING_LOOK_MS)

    @property
    def is_at_rest(self) -> bool:
        """Tell whether no operation waits, no partition loads, and none waits for a retry."""
        return not self._deadlines and not any(
            isinstance(each.phase, Load) or each.retry_at_ms is not None for each in self.partitions.values()
        )

    @property
    def log_alarm(self) -> Alarm | None:
        """Return why the log as a whole is not trusted; meanwhile no partition is taken."""
        return self._trust.alarm

    # ---- callers ---------------------------------------------------------------------------------------------------

    def load(self, index: int, generation: int | None) -> None:
        """Take a log partition, or take it again under a newer generation."""
        if self.is_closed:
            return
        partition = self._find_or_add(index)
        self._handle(partition, "load", partition.load, generation)

    def set_unloaded_reason(self, index: int, why: str | None) -> None:
        """Add a log partition that must not be loaded yet, with the reason; None: it may be loaded now."""
        partition = self._find_or_add(index)
        partition.set_unloaded_reason(why)

    def _find_or_add(self, index: int) -> Partition:
        partition = self.partitions.get(index)
        if partition is None:
            partition = Partition(index, self.config, self._ports, self._make_machine, self._outbox)
            self.partitions[index] = partition
        return partition

    def unload(self, index: int, generation: int | None) -> None:
        """Give a log partition up."""
        partition = self.partitions.get(index)
        if partition is not None:
            partition.unload(generation)
            self._drain()

    def take(self, index: int) -> None:
        """Take a log partition over from its owner; does nothing if a group assigns the partition."""
        partition = self.partitions.get(index)
        if partition is not None and partition.tenancy.is_static and not self.is_closed:
            self._handle(partition, "take", partition.take)

    def accept(self, index: int, reason: str) -> None:
        """Accept a partition's log as it is."""
        partition = self.partitions.get(index)
        if partition is not None and not self.is_closed:
            self._handle(partition, "accept", partition.accept, reason)

    def write(self, index: int, operation: Operation) -> None:
        """Run an operation on a partition; it is completed exactly once, maybe before this returns."""
        self.write_many(((index, operation),))

    def write_many(self, operations: Iterable[tuple[int, Operation]], waited_ms: int = 0) -> None:
        """Run each operation on its partition, in order; each is completed exactly once, maybe before this returns.

        The time that they have waited before they came here is subtracted from their time.
        """
        now_ms = self._clock_ms()
        deadline_ms = now_ms + self.write_timeout_ms - waited_ms
        partitions, outbox, read_indexes = self.partitions, self._outbox, self._read_indexes
        wait = self._deadlines.add_shortened if waited_ms else self._deadlines.in_order.append
        for index, operation in operations:
            operation.deadline_ms = deadline_ms
            operation.is_done = False
            partition = partitions.get(index)
            if partition is None or self.is_closed:
                operation.is_done = True
                outbox.replies.append((operation, self._not_here(index)))
                continue
            try:
                partition.write(operation, now_ms)
            except Exception as bug:  # a bug stays with its partition
                self._fail_partition(partition, "write", bug)
                if not operation.is_done:
                    text = "writing failed; whether its records count is unknown"
                    outbox.reply(operation, OutcomeUnknown(text))
            if not operation.is_done:
                wait(operation)
        if outbox.replies or outbox.effects or read_indexes.wanted:
            self._drain()
        try:
            self._log.flush_if_all_wait()
        except Exception as bug:  # appended records are not lost: an append that stalls fails its partition
            self._host.note("error", "flush_failed", {"error": repr(bug), "exc_info": bug})

    def read(self, index: int, query: Callable[[Any, int], T]) -> T | CoordinatorError:
        """Query a partition's state at its last committed position, at once."""
        partition = self.partitions.get(index)
        if partition is None or self.is_closed:
            return self._not_here(index)
        try:
            return partition.read(query)
        except Exception as bug:  # a bug in a query is its caller's; the partition goes on
            self._host.note("error", "query_failed", {"partition": index, "error": repr(bug), "exc_info": bug})
            return OperationFailed("reading failed")

    def new_metadata_image(self, image: object) -> None:
        """Hand a newer metadata image to every partition."""
        self._image = image
        for partition in self.partitions.values():
            try:
                partition.new_metadata_image(image)
            except Exception as bug:  # a bug stays with its partition
                self._fail_partition(partition, "new metadata image", bug)
        self._drain()

    def tick(self) -> None:
        """Run the work that is due: deadlines, retries of loads and of requests for read indexes."""
        now_ms = self._clock_ms()
        for operation in self._deadlines.take_due(now_ms):
            self._outbox.reply(operation, TimedOut(operation.overdue(self.write_timeout_ms)))
        are_serving_due = self._serving_looks.has_passed(now_ms)
        for partition in list(self.partitions.values()):
            if isinstance(partition.phase, Serving) and not are_serving_due:
                continue
            try:
                partition.tick(now_ms)
            except Exception as bug:  # a bug stays with its partition
                self._fail_partition(partition, "tick", bug)
        self._retry_loads(now_ms)
        self._read_indexes.tick()
        self._drain()

    def _retry_loads(self, now_ms: int) -> None:
        """Start the loads that are due, longest wait first, up to the bound on loads; a load that stalls does not count."""
        due = [each for each in self.partitions.values() if each.is_retry_due(now_ms)]
        if not due:
            return
        loads = (each.phase for each in self.partitions.values())
        room = self.config.loads_max - sum(isinstance(each, Load) and not each.is_stalled(now_ms) for each in loads)
        for partition in sorted(due, key=lambda each: each.retry_at_ms or 0)[: max(0, room)]:
            self._handle(partition, "retry", partition.start_load)

    def now_ms(self) -> int:
        """Return the time of the clock for deadlines and records."""
        return self._clock_ms()

    def distrust_log(self, alarm: Alarm) -> None:
        """Fail every partition that loads or serves; until `trust_log` none is taken unless an admin accepts it."""
        self._trust.alarm = alarm
        self._host.note("error", "log_distrusted", {"why": str(alarm), "is_alarm": True})
        for partition in self.partitions.values():
            partition.log_trust_changed(alarm, self._clock_ms())
        self._drain()

    def renew_log(self, topic_id: bytes) -> None:
        """Expect another topic id from the next loads on, because the topic was recreated."""
        self._expect(self.config.log._replace(topic_id=topic_id))

    def place_log(self, placement: Placement) -> None:
        """Expect this placement from the next loads on, and write it; it must be known before the first load."""
        self._expect(self.config.log._replace(placement=placement))

    def _expect(self, log: LogIdentity) -> None:
        self.config = replace(self.config, log=log)
        for partition in self.partitions.values():
            partition.tenancy.renew_config(self.config)

    def trust_log(self) -> None:
        """Let partitions be taken again from the next tick on."""
        if self._trust.alarm is not None:
            self._trust.alarm = None
            for partition in self.partitions.values():
                partition.log_trust_changed(None, self._clock_ms())

    def refresh(self, index: int, cut_offset: int = -1) -> bool:
        """Append a partition's own checkpoint again; with a cut offset it says that no record below that offset is needed."""
        is_sent = self.partitions[index].refresh(cut_offset)
        self._drain()
        return is_sent

    def delete_records(self, index: int, before_offset: int) -> None:
        """Cut a partition's log below one of its own checkpoints."""
        self.partitions[index].delete_records(before_offset)
        self._drain()

    def close(self) -> None:
        """Close every partition; afterwards every operation has an outcome and no record is appended. Idempotent."""
        if self.is_closed:
            self._host.note("warning", "runtime_close_repeated", {})
            return
        self.is_closed = True
        for partition in self.partitions.values():
            partition.unload(None)
        self._drain()
        self._deadlines.clear()

    def restore_point_found(self, index: int, instance: int, point: RestorePoint | None) -> None:
        """Handle the restore point for a load; None: there is none."""
        self._while_loading(
            index, instance, "restore point found", lambda load, now_ms: load.restore_point_found(point, now_ms)
        )

    def owner_answered(self, index: int, instance: int, owner: Checkpoint, is_serving: bool) -> None:
        """Handle the answer whether the owner of a partition still serves it."""
        self._while_loading(
            index, instance, "owner answered", lambda load, now_ms: load.owner_answered(owner, is_serving)
        )

    # ---- the log reports (LogListener) -----------------------------------------------------------------------------

    def read_started(self, partition: int, instance: int, start_offset: int, end_offset: int) -> None:
        """See `LogListener.read_started`."""
        self._while_loading(
            partition,
            instance,
            "read started",
            lambda load, now_ms: load.read_started(start_offset, end_offset, now_ms),
        )

    def records_read(self, partition: int, instance: int, records: list[LogRecord]) -> None:
        """See `LogListener.records_read`."""
        found = self.partitions[partition]
        self._handle(found, "records read", found.records_read, instance, records)

    def own_records_read(
        self, partition: int, instance: int, base_offset: int, count: int, first_header: bytes
    ) -> bool:
        """See `LogListener.own_records_read`."""
        found = self.partitions[partition]
        try:
            is_taken = found.own_records_read(instance, base_offset, count, first_header)
        except Exception as bug:  # a bug stays with its partition
            self._fail_partition(found, "own records read", bug)
            is_taken = True
        self._drain()
        return is_taken

    def position_reached(self, partition: int, instance: int, next_offset: int) -> None:
        """See `LogListener.position_reached`."""
        self.partitions[partition].position_reached(instance, next_offset)
        self._drain()

    def caught_up(self, partition: int, instance: int, next_offset: int) -> None:
        """See `LogListener.caught_up`."""
        self._while_loading(partition, instance, "caught up", lambda load, now_ms: load.caught_up(next_offset, now_ms))

    def log_start_moved(self, partition: int, instance: int, log_start_offset: int) -> None:
        """See `LogListener.log_start_moved`."""
        reading = self.partitions[partition].reading
        if instance == reading.instance:
            reading.log_start_moved(log_start_offset)

    def read_failed(self, partition: int, instance: int, error: ReadError) -> None:
        """See `LogListener.read_failed`."""
        found = self.partitions[partition]
        self._handle(found, "read failed", found.read_failed, instance, error)

    def append_failed(self, partition: int, header: bytes | None, text: str) -> None:
        """See `LogListener.append_failed`."""
        found = self.partitions[partition]
        self._handle(found, "append failed", found.append_failed, header, text)

    def log_start_found(self, partition: int, instance: int, log_start_offset: int | None) -> None:
        """See `LogListener.log_start_found`."""
        found = self.partitions[partition]
        self._handle(found, "log start found", found.log_start_found, instance, log_start_offset)

    def latest_offsets(self, round_number: int, offsets: dict[int, int | None]) -> None:
        """See `LogListener.latest_offsets`."""
        self._read_indexes.end(offsets)
        for index, offset in offsets.items():
            partition = self.partitions[index]
            if offset is None:
                if partition.parking.answers:  # the answers that needed it may have timed out meanwhile
                    self._read_indexes.not_answered(index)
                continue
            try:
                partition.read_index_found(round_number, offset)
            except Exception as bug:
                self._fail_partition(partition, "read index", bug)
        # Partitions that waited for this answer are in the next query.
        self._begin_round()
        self._drain()

    def records_deleted(self, partition: int, log_start_offset: int | None, why: str) -> None:
        """See `LogListener.records_deleted`."""
        if log_start_offset is None:
            self._host.note("warning", "record_deletion_failed", {"partition": partition, "why": why})
        else:
            self.partitions[partition].records_deleted(log_start_offset)

    # ---- bugs stay with their partition ----------------------------------------------------------------------------

    def _handle(self, partition: Partition, event: str, handle: Callable[..., object], *arguments: object) -> None:
        """Let a partition handle an event now, and carry out its effects; a bug fails only that partition."""
        try:
            handle(*arguments, self._clock_ms())
        except Exception as bug:
            self._fail_partition(partition, event, bug)
        self._drain()

    def _while_loading(self, index: int, instance: int, event: str, handle: Callable[[Load, int], Step | None]) -> None:
        """Let the load of a partition handle an event of one of its readings."""
        partition = self.partitions[index]
        self._handle(partition, event, partition.while_loading, instance, handle)

    def _fail_partition(self, partition: Partition, event: str, bug: Exception) -> None:
        origin = {"partition": partition.index, "owner_epoch": partition.ownership.epoch, "during": event}
        self._host.note("error", "event_handler_failed", {**origin, "error": repr(bug), "exc_info": bug})
        if partition.state in (State.LOADING, State.ACTIVE):
            partition.fail(bug, self._clock_ms())

    # ---- effects ---------------------------------------------------------------------------------------------------

    def _begin_round(self) -> None:
        """Request the wanted read indexes of all partitions without a request in flight."""
        if self.is_closed or not (partitions := self._read_indexes.begin_round()):
            return
        try:
            self._log.query_latest_offsets(self._read_indexes.round, partitions)
        except Exception as bug:
            self._host.note("error", "read_index_request_failed", {"error": repr(bug), "exc_info": bug})
            self.latest_offsets(self._read_indexes.round, dict.fromkeys(partitions))

    def _drain(self) -> None:
        """Carry out effects and replies until none is left; a nested call leaves them to the outer one."""
        if self._is_draining:
            return
        self._is_draining = True
        try:
            while self._outbox.replies or self._outbox.effects:
                self._carry_out()
        finally:
            self._is_draining = False
        if self._read_indexes.plan_round():
            self._host.end_turn_with(self._begin_round)

    def _carry_out(self) -> None:
        replies, effects = self._outbox.take_all()
        for operation, outcome in replies:
            try:
                operation.complete(outcome)
            except Exception as bug:  # a failure of one caller does not affect another
                self._host.note("error", "operation_completion_failed", {"operation": operation.name, "exc_info": bug})
        self._deadlines.drop_done()
        for effect in effects:
            if isinstance(effect, Note):
                self._host.note(effect.level, effect.event, effect.fields)
                continue
            partition = self.partitions[effect.partition]
            try:
                self._dispatcher.carry_out(effect, partition)
            except Exception as bug:  # the other effects are still carried out
                self._fail_partition(partition, type(effect).__name__, bug)

    def _continue_soon(self, effect: ContinueLoad) -> None:
        index, instance, is_claimed = effect
        self._discards.continue_load(partial(self._continue_load, index, instance), is_claimed=is_claimed)

    def _continue_load(self, index: int, instance: int) -> None:
        self._while_loading(index, instance, "load", lambda load, _: load.fold_slice(self._image))

    def _not_here(self, index: int) -> CoordinatorError:
        if self.is_closed:
            return NotAvailable("the coordinator is shut down")
        return NotCoordinator(f"this node does not own log partition {index}")
