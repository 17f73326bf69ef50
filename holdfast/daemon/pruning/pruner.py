"""Keeps the log of one partition short: refresh the checkpoint, write snapshots of what lies below it, cut.

A log always begins with one of our checkpoints, and what is cut is replaced by a snapshot or a tombstone *in the log*.
A round begins when enough of the log is dead; the next one only when it is done or given up.
So the snapshot bytes it writes stay below (1 / dead share - 1) times the bytes that calls write: a round writes at most
the live bytes, and begins only when (dead share / (1 - dead share)) times as many others were written since the last.
What a round has cost that was given up is not paid twice: the next one counts from where that one began.
A load knows nothing of the rounds before it and counts from the log's start.

Source: docs/architecture.md, "Pruning is the only policy"; `covered` and `prune_points` in tests/model.
"""

from collections.abc import Callable, Container
from enum import Enum
from typing import Protocol

from holdfast.daemon.pruning.log_readers import LogReaders, Progress
from holdfast.daemon.settings.models import PruningSettings
from holdfast.daemon.share.decisions import ShareShard
from holdfast.records.keys import SharePartitionKey, format_key
from holdfast.runtime.errors import CoordinatorError, RecordTooLarge
from holdfast.runtime.machine import Decision, Operation
from holdfast.runtime.partition.lifecycle import Partition
from holdfast.runtime.partition.states import State

#: A round writes one slice at most this often; the bytes of a slice follow from the rate.
SLICE_INTERVAL_MS = 100


class Phase(Enum):
    """How far a round is."""

    IDLE = "idle"  #: not enough of the log is dead
    REFRESHING = "refreshing"  #: our checkpoint is on its way into the log again
    WRITING = "writing snapshots"  #: of the keys whose newest snapshot lies below the checkpoint
    CUTTING = "cutting"  #: everything below the checkpoint is replaced; the cut is asked for, or a reader holds it


class Runtime(Protocol):
    """What a pruner asks of the coordinator runtime."""

    def write(self, index: int, operation: Operation) -> None:
        """Run an operation on a log partition and complete it exactly once, maybe at once."""

    def refresh(self, index: int, cut_offset: int = -1) -> bool:
        """Append our checkpoint again, which may say that nothing below an offset is needed; returns whether it was handed over."""

    def delete_records(self, index: int, before_offset: int) -> None:
        """Cut the log below one of our checkpoints."""


class PruningSlice:
    """One slice of snapshots, as an operation of the runtime."""

    name = "prune-log-partition"

    def __init__(
        self,
        below_offset: int,
        settings: PruningSettings,
        done: Callable[[object, int], None],
        left_out: Container[SharePartitionKey] = frozenset(),
    ) -> None:
        self.deadline_ms = 0
        self.is_done = False
        self._below_offset = below_offset
        self._records_max = settings.pruning_records_per_slice_max
        self._bytes_max = max(1, settings.pruning_bytes_per_second_max * SLICE_INTERVAL_MS // 1_000)
        self._left_out = left_out
        self._done = done
        self._count = 0

    def decide(self, machine: ShareShard, now_ms: int) -> Decision:
        """Decide the next snapshots; none when every key has one above the offset or on its way."""
        decision = machine.decide_pruning_slice(self._below_offset, self._records_max, self._bytes_max, self._left_out)
        self._count = len(decision.records)
        return decision

    def complete(self, outcome: object) -> None:
        """Tell the pruner what came of it."""
        self._done(outcome, self._count)


class Pruner:
    """The rounds of one log partition; `tick` drives them."""

    def __init__(
        self,
        partition: Partition,
        runtime: Runtime,
        settings: PruningSettings,
        readers: LogReaders,
    ) -> None:
        self.phase = Phase.IDLE
        self.snapshots_written = 0  #: by all rounds of this process
        self._partition = partition
        self._runtime = runtime
        self._settings = settings
        self._readers = readers
        self._instance = 0
        self._cut_offset = -1
        self._next_ms = 0  #: nothing is done before
        self._progress_ms = 0  #: when the round last came forward
        self._is_slice_out = False
        self._slice_failure = ""  #: why the newest slice failed; empty if it did not
        self._is_cut_named = False  #: the checkpoint that names the cut is on its way
        self._left_out: dict[
            SharePartitionKey, str
        ] = {}  #: of this pass over the keys; why the log refused the snapshot
        self._waits_for: dict[SharePartitionKey, str] = {}  #: all that the round waits for, as of the last pass
        self._bytes_given_up = 0  #: `Partition.bytes_counted` where a round began that was given up; of this instance

    def tick(self, now_ms: int) -> None:
        """Do the next step if one is due."""
        partition = self._partition
        if partition.state is not State.ACTIVE or partition.instance != self._instance:
            self._instance = partition.instance
            self._bytes_given_up = 0
            self._end_round(now_ms)
        elif now_ms < self._next_ms or self._is_slice_out:
            return
        elif self.phase is Phase.IDLE:
            self._consider(now_ms)
        elif (
            self.phase is Phase.CUTTING
        ):  # never given up: it costs nothing more, and a new round would write all again
            self._cut(now_ms)
        elif now_ms - self._progress_ms >= self._settings.pruning_timeout_ms:
            self._give_up(now_ms)
        elif self.phase is Phase.REFRESHING:
            if partition.reading.checkpoint_offset > self._cut_offset:
                self._cut_offset = partition.reading.checkpoint_offset
                self._enter(Phase.WRITING, now_ms)
        else:
            self._write_slice(now_ms)

    def bytes_dead(self) -> tuple[int, int]:
        """Return (dead bytes, all bytes) of the log as far as they count; dead is what one snapshot of every key would replace."""
        partition = self._partition
        machine = partition.machine
        total = partition.reading.bytes_counted - partition.reading.bytes_cut
        live = machine.state.live_bytes if isinstance(machine, ShareShard) else 0
        return max(0, total - live), total

    def why_not_pruned(self) -> str:
        """Say in one sentence what stands between the log start and a shorter log."""
        partition, settings = self._partition, self._settings
        machine = partition.machine
        if partition.state is not State.ACTIVE or not isinstance(machine, ShareShard):
            return f"the partition is {partition.state.value}"
        if self.phase is Phase.IDLE:
            dead, total = self.bytes_dead()
            return (
                f"{dead} of {total} bytes are dead; a round begins at {settings.pruning_dead_share:.0%} "
                f"and {settings.pruning_dead_bytes_min} bytes"
            )
        reader = self._readers.holding(partition.index, self._cut_offset)
        if self.phase is Phase.CUTTING and reader is not None:
            return f"reader {reader.group} {_stands(reader)} and the cut would be at {self._cut_offset}"
        oldest = machine.state.offsets.oldest()
        if self.phase is Phase.WRITING and oldest is not None and oldest[1] < self._cut_offset:
            if oldest[0] in self._waits_for:
                return f"key {format_key(oldest[0])} alone is in the way: {self._waits_for[oldest[0]]}; move its start offset"
            failure = f"; writing the next ones failed: {self._slice_failure}" if self._slice_failure else ""
            return (
                f"key {format_key(oldest[0])} has its newest snapshot at {oldest[1]}, below {self._cut_offset}{failure}"
            )
        return f"a round is {self.phase.value} for offset {self._cut_offset}"

    # ---- the steps -------------------------------------------------------------------------------------------------

    def _consider(self, now_ms: int) -> None:
        self._next_ms = now_ms + self._settings.pruning_check_interval_ms
        self._cut_offset = self._partition.reading.checkpoint_offset
        if self._is_due() and self._runtime.refresh(self._partition.index):
            self._next_ms = now_ms
            self._enter(Phase.REFRESHING, now_ms)

    def _is_due(self) -> bool:
        dead, total = self.bytes_dead()
        paid = max(0, self._bytes_given_up - self._partition.reading.bytes_cut)
        dead, total = dead - paid, total - paid
        settings = self._settings
        return dead >= max(1, settings.pruning_dead_bytes_min, total * settings.pruning_dead_share)

    def _write_slice(self, now_ms: int) -> None:
        self._next_ms = now_ms + SLICE_INTERVAL_MS
        self._is_slice_out = True

        def done(outcome: object, count: int) -> None:
            self._is_slice_out = False
            if isinstance(outcome, RecordTooLarge) and isinstance(outcome.key, SharePartitionKey):
                self._left_out[outcome.key] = str(outcome)
                return
            if isinstance(outcome, CoordinatorError):
                self._slice_failure = str(outcome)
                self._next_ms = now_ms + self._settings.pruning_check_interval_ms
                return
            self._slice_failure = ""
            self.snapshots_written += count
            machine = self._partition.machine
            if count:
                self._progress_ms = now_ms
            elif self._left_out:
                # Nothing else is left to be written, so waiting costs nothing, and a new round would write all of it again.
                self._waits_for, self._left_out = self._left_out, {}
                self._progress_ms = now_ms
                self._next_ms = now_ms + self._settings.pruning_check_interval_ms
            # Nothing is left to be written, and all of it has been met: this answer waited for every record before it.
            elif isinstance(machine, ShareShard) and machine.is_prunable_to(self._cut_offset):
                self._enter(Phase.CUTTING, now_ms)
                self._name_cut()

        self._runtime.write(self._partition.index, PruningSlice(self._cut_offset, self._settings, done, self._left_out))

    def _cut(self, now_ms: int) -> None:
        partition = self._partition
        if partition.log_start >= self._cut_offset:
            self._end_round(now_ms)
        elif partition.reading.cut_offset < self._cut_offset:
            self._name_cut()
        elif self._readers.holding(partition.index, self._cut_offset) is None:
            # A cut that fails is told as a line only; it is asked for again until the log start has moved.
            self._next_ms = now_ms + self._settings.pruning_check_interval_ms
            self._runtime.delete_records(partition.index, self._cut_offset)

    def _name_cut(self) -> None:
        """Let the log say that nothing below the cut is needed, before it is cut: brokers forget a cut they have not written down."""
        if not self._is_cut_named:
            self._is_cut_named = self._runtime.refresh(self._partition.index, self._cut_offset)

    def _give_up(self, now_ms: int) -> None:
        if self.phase is Phase.WRITING:
            self._bytes_given_up = self._partition.reading.checkpoint_bytes
        self._end_round(now_ms)

    def _end_round(self, now_ms: int) -> None:
        self._enter(Phase.IDLE, now_ms)
        self._next_ms = now_ms + self._settings.pruning_check_interval_ms

    def _enter(self, phase: Phase, now_ms: int) -> None:
        self.phase = phase
        self._progress_ms = now_ms
        self._slice_failure = ""
        self._is_cut_named = False
        self._left_out, self._waits_for = {}, {}


def _stands(reader: Progress) -> str:
    if not reader.is_known:
        return "is not looked up yet"
    return f"stands at {reader.offset}" if reader.offset >= 0 else "has committed nothing"
