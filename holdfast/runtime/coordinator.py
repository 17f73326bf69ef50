"""All log partitions of a node: routes events to them and carries their effects out.

Still free of clock, threads and I/O: `clock_ms`, `random_bytes` and the log are given.
The asyncio shell calls it on one loop; the simulation calls it one event at a time.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeVar

from holdfast.metrics.registry import Registry
from holdfast.records.checkpoint import Checkpoint
from holdfast.runtime.deadlines import Deadlines
from holdfast.runtime.effects import (
    AskLogStart,
    AskOwner,
    BaseJudged,
    ContinueLoad,
    DeleteRecords,
    Effect,
    FindBase,
    Note,
    PartitionEffect,
    StartReading,
    StateChanged,
    StopReading,
    Superseded,
)
from holdfast.runtime.errors import (
    Alarm,
    CoordinatorError,
    NotAvailable,
    NotCoordinator,
    OperationFailed,
    OutcomeUnknown,
    TimedOut,
)
from holdfast.runtime.log import Log, LogRecord, ReadError
from holdfast.runtime.machine import Operation, StateMachine
from holdfast.runtime.metrics import RuntimeMetrics
from holdfast.runtime.partition.ownership import Owners
from holdfast.runtime.partition.restore_point import Base, BaseFinder
from holdfast.runtime.partition.serving import Partition
from holdfast.runtime.partition.states import State
from holdfast.runtime.settings import PartitionConfig, Ports

T = TypeVar("T")


class Host(Protocol):
    """What the runtime tells the node around it."""

    def note(self, level: str, event: str, fields: dict[str, object]) -> None:
        """Write a log line."""

    def continue_soon(self, task: Callable[[], None]) -> None:
        """Run a task on the runtime's thread after what already waits there."""

    def partition_changed(self, partition: Partition) -> None:
        """Learn that a partition entered another state."""

    def superseded(self, partition: Partition, winner: Checkpoint, offset: int) -> None:
        """Learn that another node rightfully owns a partition."""


class CoordinatorRuntime:
    """The partitions of one node, their clock and their log."""

    def __init__(
        self,
        config: PartitionConfig,
        log: Log,
        host: Host,
        make_machine: Callable[[int], StateMachine],
        clock_ms: Callable[[], int],
        random_bytes: Callable[[int], bytes],
        jitter: Callable[[], float],
        write_timeout_ms: int = 5_000,
        slice_ms: int = 5,
        metrics: RuntimeMetrics | None = None,
        bases: BaseFinder | None = None,
        owners: Owners | None = None,
    ) -> None:
        self.partitions: dict[int, Partition] = {}
        self.config = config
        self.write_timeout_ms = write_timeout_ms
        self.is_closed = False
        self._log = log
        self._host = host
        self._make_machine = make_machine
        self._clock_ms = clock_ms
        self._slice_ms = slice_ms
        self._bases = bases
        self._owners = owners
        self.log_alarm: Alarm | None = None  #: why the log as a whole is not trusted; nothing is taken meanwhile
        metrics = metrics or RuntimeMetrics(Registry(clock_ms))
        self._ports = Ports(
            log.append,
            self._request_read_index,
            random_bytes,
            jitter,
            lambda: self.log_alarm,
            metrics,
            has_bases=bases is not None,
            asks_owners=owners is not None,
        )
        self._effects: list[Effect] = []
        self._replies: list[tuple[Operation, object]] = []
        self._is_draining = False
        self._image: object = None
        #: operations in order of arrival, which is the order of their deadlines
        self._deadlines = Deadlines()
        self._index_round = 0  #: the newest round of questions for read indexes that was sent
        self._index_asked: set[int] = set()  #: partitions whose question has no answer yet; each has one at a time
        self._index_wanted: set[int] = set()
        self._index_retry: set[int] = set()

    # ---- callers ---------------------------------------------------------------------------------------------------

    def load(self, index: int, generation: int | None) -> None:
        """Take a log partition, or take it again under a newer generation."""
        if self.is_closed:
            return
        partition = self._hold(index)
        self._handle(partition, "load", partition.load, generation)

    def hold(self, index: int, why: str | None) -> None:
        """Hold a log partition that is not to be loaded yet, and say why; None: nothing stands against it any more."""
        partition = self._hold(index)
        if partition.state is State.INITIAL:
            partition.failure = why

    def _hold(self, index: int) -> Partition:
        partition = self.partitions.get(index)
        if partition is None:
            partition = Partition(index, self.config, self._ports, self._make_machine, self._effects, self._replies)
            partition.image = self._image
            self.partitions[index] = partition
        return partition

    def unload(self, index: int, generation: int | None) -> None:
        """Give a log partition up."""
        partition = self.partitions.get(index)
        if partition is not None:
            partition.unload(generation)
            self._drain()

    def take(self, index: int) -> None:
        """Take a log partition over from whoever won it."""
        partition = self.partitions.get(index)
        if partition is not None and not self.is_closed:
            self._handle(partition, "take", partition.take)

    def accept(self, index: int, reason: str) -> None:
        """Go on with a partition's log as it is."""
        partition = self.partitions.get(index)
        if partition is not None and not self.is_closed:
            self._handle(partition, "accept", partition.accept, reason)

    def write(self, index: int, operation: Operation) -> None:
        """Run an operation on a partition; it is completed exactly once, maybe before this returns."""
        self.write_many(((index, operation),))

    def write_many(self, operations: Iterable[tuple[int, Operation]], waited_ms: int = 0) -> None:
        """Run each operation on its partition, in order; each is completed exactly once, maybe before this returns.

        What they have waited before they came here is taken off their time.
        """
        now_ms = self._clock_ms()
        deadline_ms = now_ms + self.write_timeout_ms - waited_ms
        partitions, replies = self.partitions, self._replies
        wait = self._deadlines.add_shortened if waited_ms else self._deadlines.in_order.append
        for index, operation in operations:
            operation.deadline_ms = deadline_ms
            operation.is_done = False
            partition = partitions.get(index)
            if partition is None or self.is_closed:
                operation.is_done = True
                replies.append((operation, self._not_here(index)))
                continue
            try:
                partition.write(operation, now_ms)
            except Exception as bug:  # a bug stays with its partition
                self._stumble(partition, "write", bug)
                if not operation.is_done:
                    operation.is_done = True
                    replies.append((operation, OutcomeUnknown("writing failed; whether its records count is unknown")))
            if not operation.is_done:
                wait(operation)
        if replies or self._effects or self._index_wanted:
            self._drain()

    def write_all(self, make_operation: Callable[[int], Operation]) -> None:
        """Run one operation on each partition held now, in any state."""
        self.write_many([(index, make_operation(index)) for index in self.partitions])

    def read(self, index: int, query: Callable[[Any, int], T]) -> T | CoordinatorError:
        """Ask a partition's state at its last committed position, at once."""
        partition = self.partitions.get(index)
        if partition is None or self.is_closed:
            return self._not_here(index)
        try:
            return partition.read(query)
        except Exception as bug:  # a bug in a query is its caller's; the partition goes on
            fields = {"partition": index, "error": repr(bug), "exc_info": bug}
            self._host.note("error", "reading failed", fields)
            return OperationFailed("reading failed")

    def new_metadata_image(self, image: object) -> None:
        """Hand a newer metadata image to every partition."""
        self._image = image
        for partition in self.partitions.values():
            try:
                partition.new_metadata_image(image)
            except Exception as bug:  # a bug stays with its partition
                self._stumble(partition, "new metadata image", bug)
        self._drain()

    def tick(self) -> None:
        """Run what is due: deadlines, timers, loads to try again, read indexes to ask again."""
        now_ms = self._clock_ms()
        for operation in self._deadlines.take_due(now_ms):
            operation.is_done = True
            text = f"not committed within {self.write_timeout_ms} ms; the outcome is unknown"
            self._replies.append((operation, TimedOut(text)))
        for partition in list(self.partitions.values()):
            try:
                partition.tick(now_ms)
            except Exception as bug:  # a bug stays with its partition
                self._stumble(partition, "tick", bug)
        self._index_wanted |= self._index_retry
        self._index_retry.clear()
        self._drain()

    def now_ms(self) -> int:
        """Return the time by the clock that deadlines and records share."""
        return self._clock_ms()

    def distrust_log(self, alarm: Alarm) -> None:
        """Fail every partition that loads or serves, and take none until `trust_log`, unless an admin accepts it."""
        self.log_alarm = alarm
        self._host.note("error", "the log is not trusted", {"why": str(alarm), "is_alarm": True})
        for partition in self.partitions.values():
            if partition.state in (State.LOADING, State.ACTIVE):
                partition.fail(alarm, self._clock_ms())
        self._drain()

    def renew_log(self, topic_id: bytes) -> None:
        """Expect a log of another topic from the next loads on, because it was made again under its name."""
        self.config = replace(self.config, log=self.config.log._replace(topic_id=topic_id))
        for partition in self.partitions.values():
            partition.config = self.config

    def trust_log(self) -> None:
        """Let partitions be taken again, with the next tick."""
        if self.log_alarm is not None:
            self.log_alarm = None
            for partition in self.partitions.values():
                partition.log_trusted(self._clock_ms())

    def refresh(self, index: int, cut_offset: int = -1) -> bool:
        """Append a partition's own checkpoint again; with a cut offset it says that nothing below that is needed."""
        is_sent = self.partitions[index].refresh(self._clock_ms(), cut_offset)
        self._drain()
        return is_sent

    def delete_records(self, index: int, before_offset: int) -> None:
        """Cut a partition's log below one of its own checkpoints."""
        self.partitions[index].delete_records(before_offset)
        self._drain()

    def close(self) -> None:
        """Close every partition; after it every operation has an outcome and nothing is appended. Idempotent."""
        if self.is_closed:
            self._host.note("warning", "runtime closed twice", {})
            return
        self.is_closed = True
        for partition in self.partitions.values():
            partition.unload(None)
        self._drain()
        self._deadlines.clear()

    def base_found(self, index: int, instance: int, base: Base | None) -> None:
        """Learn what a load may begin with; None: nothing."""
        held = self.partitions[index]
        self._handle(held, "base found", held.base_found, instance, base)

    def owner_answered(self, index: int, instance: int, owner: Checkpoint, is_serving: bool) -> None:
        """Learn whether the owner of a partition still serves it."""
        held = self.partitions[index]
        self._handle(held, "owner answered", held.owner_answered, instance, owner, is_serving)

    # ---- the log tells (LogListener) -------------------------------------------------------------------------------

    def read_started(self, partition: int, instance: int, start_offset: int, end_offset: int) -> None:
        """See `LogListener.read_started`."""
        held = self.partitions[partition]
        self._handle(held, "read started", held.read_started, instance, start_offset, end_offset)

    def records_read(self, partition: int, instance: int, records: list[LogRecord]) -> None:
        """See `LogListener.records_read`."""
        held = self.partitions[partition]
        self._handle(held, "records read", held.records_read, instance, records)

    def own_records_read(
        self, partition: int, instance: int, base_offset: int, count: int, first_header: bytes
    ) -> bool:
        """See `LogListener.own_records_read`."""
        held = self.partitions[partition]
        try:
            is_taken = held.own_records_read(instance, base_offset, count, first_header)
        except Exception as bug:  # a bug stays with its partition
            self._stumble(held, "own records read", bug)
            is_taken = True
        self._drain()
        return is_taken

    def position_reached(self, partition: int, instance: int, next_offset: int) -> None:
        """See `LogListener.position_reached`."""
        self.partitions[partition].position_reached(instance, next_offset)
        self._drain()

    def caught_up(self, partition: int, instance: int, next_offset: int) -> None:
        """See `LogListener.caught_up`."""
        held = self.partitions[partition]
        self._handle(held, "caught up", held.caught_up, instance, next_offset)

    def read_failed(self, partition: int, instance: int, error: ReadError) -> None:
        """See `LogListener.read_failed`."""
        held = self.partitions[partition]
        self._handle(held, "read failed", held.read_failed, instance, error)

    def append_failed(self, partition: int, header: bytes | None, text: str) -> None:
        """See `LogListener.append_failed`."""
        held = self.partitions[partition]
        self._handle(held, "append failed", held.append_failed, header, text)

    def producer_replaced(self, text: str) -> None:
        """See `LogListener.producer_replaced`."""
        for partition in self.partitions.values():
            partition.append_failed(None, text, self._clock_ms())
        self._drain()

    def log_start_found(self, partition: int, instance: int, log_start_offset: int | None) -> None:
        """See `LogListener.log_start_found`."""
        held = self.partitions[partition]
        self._handle(held, "log start found", held.log_start_found, instance, log_start_offset)

    def latest_offsets(self, round_number: int, offsets: dict[int, int | None]) -> None:
        """See `LogListener.latest_offsets`."""
        self._index_asked.difference_update(offsets)
        for index, offset in offsets.items():
            if offset is None:
                self._index_retry.add(index)
                continue
            partition = self.partitions[index]
            try:
                partition.read_index(round_number, offset)
            except Exception as bug:
                self._stumble(partition, "read index", bug)
        self._drain()

    def records_deleted(self, partition: int, log_start_offset: int | None, why: str) -> None:
        """See `LogListener.records_deleted`."""
        if log_start_offset is None:
            self._host.note("warning", "records not deleted", {"partition": partition, "why": why})
        else:
            self.partitions[partition].records_deleted(log_start_offset)

    # ---- bugs stay with their partition ----------------------------------------------------------------------------

    def _handle(self, partition: Partition, event: str, handle: Callable[..., object], *arguments: object) -> None:
        """Let a partition handle an event now, and carry out what it asks for; a bug stays with its partition."""
        try:
            handle(*arguments, self._clock_ms())
        except Exception as bug:
            self._stumble(partition, event, bug)
        self._drain()

    def _stumble(self, partition: Partition, event: str, bug: Exception) -> None:
        origin = {"partition": partition.index, "owner_epoch": partition.ownership.epoch, "during": event}
        self._host.note("error", "event failed", {**origin, "error": repr(bug), "exc_info": bug})
        if partition.state in (State.LOADING, State.ACTIVE):
            partition.fail(bug, self._clock_ms())

    # ---- effects ---------------------------------------------------------------------------------------------------

    def _request_read_index(self, index: int) -> int:
        self._index_wanted.add(index)
        return self._index_round + 1

    def _ask_read_indexes(self, partitions: set[int]) -> None:
        self._index_round += 1
        self._index_wanted -= partitions
        self._index_asked |= partitions
        wanted = sorted(partitions)
        try:
            self._log.ask_latest_offsets(self._index_round, wanted)
        except Exception as bug:
            self._host.note("error", "read index not asked", {"error": repr(bug), "exc_info": bug})
            self.latest_offsets(self._index_round, dict.fromkeys(wanted))

    def _drain(self) -> None:
        """Carry out effects and replies until none is left; called again from inside, it leaves them to the caller."""
        if self._is_draining:
            return
        self._is_draining = True
        try:
            while self._replies or self._effects:
                self._carry_out()
        finally:
            self._is_draining = False
        if self._index_wanted and not self.is_closed:
            free = self._index_wanted - self._index_asked
            if free:
                self._ask_read_indexes(free)

    def _carry_out(self) -> None:
        replies, effects = self._replies[:], self._effects[:]
        del self._replies[: len(replies)], self._effects[: len(effects)]
        for operation, outcome in replies:
            try:
                operation.complete(outcome)
            except Exception as bug:  # one caller's failure is not another's
                self._host.note("error", "completing failed", {"operation": operation.name, "exc_info": bug})
        for effect in effects:
            if isinstance(effect, Note):
                self._host.note(effect.level, effect.event, effect.fields)
                continue
            partition = self.partitions[effect.partition]
            try:
                self._carry_out_one(effect, partition)
            except Exception as bug:  # what others asked for is carried out all the same
                self._stumble(partition, type(effect).__name__, bug)

    def _carry_out_one(self, effect: PartitionEffect, partition: Partition) -> None:
        match effect:
            case AskLogStart(index, instance):
                self._log.ask_log_start(index, instance)
            case AskOwner(index, instance, owner):
                assert self._owners is not None
                self._owners.ask_owner(index, instance, owner)
            case FindBase(index, instance, log_start):
                assert self._bases is not None
                self._bases.find_base(index, instance, log_start)
            case BaseJudged(index, offset, refusal):
                assert self._bases is not None
                self._bases.base_judged(index, offset, refusal)
            case StartReading(index, instance, from_offset):
                self._log.start_reading(index, instance, from_offset)
            case StopReading(index):
                self._log.stop_reading(index)
            case ContinueLoad(index, instance):
                self._host.continue_soon(partial(self._continue_load, index, instance))
            case DeleteRecords(index, before_offset):
                self._log.delete_records(index, before_offset)
            case StateChanged():
                self._host.partition_changed(partition)
            case Superseded(_, winner, offset):
                self._host.superseded(partition, winner, offset)

    def _continue_load(self, index: int, instance: int) -> None:
        ends_ms = self._clock_ms() + self._slice_ms
        partition = self.partitions[index]
        self._handle(partition, "load", partition.continue_load, instance, lambda: self._clock_ms() >= ends_ms)

    def _not_here(self, index: int) -> CoordinatorError:
        if self.is_closed:
            return NotAvailable("the coordinator is shut down")
        return NotCoordinator(f"this node does not own log partition {index}")
