"""The pruner, which keeps the log of one partition short: refresh the checkpoint, write snapshots of what lies below it, delete that part.

A log always begins with one of our checkpoints, and what is pruned is replaced by a snapshot or a tombstone *in the log*.
A round begins when enough of the log is dead; the next one only when it is done or given up.
So the snapshot bytes it writes stay below (1 / dead share - 1) times the bytes that calls write: a round writes at most
the live bytes, and begins only when (dead share / (1 - dead share)) times as many others were written since the last.
What a round has cost that was given up is not paid twice: the next one counts from where that one began.
A load knows nothing of the rounds before it and counts from the log's start.
A round begins without waiting for the next look where another program deleted records that are needed: behind it the log is whole again.

Source: docs/decisions/pruning.md, "Pruning is the only policy"; `covered` and `prune_points` in tests/model.
"""

from collections.abc import Callable, Container, Hashable
from enum import Enum
from typing import Final, Protocol

from holdfast.daemon.pruning.log_readers import LogReaders, Progress
from holdfast.daemon.settings.models import PruningSettings
from holdfast.daemon.shards import Shard, Shards
from holdfast.runtime.errors import CoordinatorError, RecordTooLarge
from holdfast.runtime.partition.lifecycle import Partition
from holdfast.runtime.partition.states import State
from holdfast.runtime.state_machine import Decision, Operation

#: A round writes one slice at most this often; the bytes of a slice follow from the rate.
SLICE_INTERVAL_MS = 100
#: Between two rounds that write again what another program deletes.
REWRITE_PAUSE_MS = 500

#: Snapshots that are written in one go: some milliseconds of work, before others have their turn.
RECORDS_PER_SLICE_MAX: Final = 200
#: A round that has written nothing for this long is given up; the next one waits until as much has changed again.
TIMEOUT_MS: Final = 3_600_000


class Phase(Enum):
    """How far a round is."""

    #: Not enough of the log is dead.
    IDLE = "idle"
    #: Our checkpoint is being appended again.
    REFRESHING = "refreshing"
    #: Of the keys whose newest snapshot lies below the checkpoint.
    WRITING = "writing snapshots"
    #: Everything below the checkpoint is replaced; its deletion is requested, or waits for a reader.
    DELETING = "deleting records"


class Runtime(Protocol):
    """The part of the coordinator runtime that a pruner uses."""

    def write(self, index: int, operation: Operation) -> None:
        """Run an operation on a log partition and complete it exactly once, maybe at once."""

    def refresh(self, index: int, cut_offset: int = -1) -> bool:
        """Append our checkpoint again, which may say that nothing below an offset is needed; return whether it was handed over."""

    def delete_records(self, index: int, before_offset: int) -> None:
        """Delete the records of the log below one of our checkpoints."""


class PruningSlice(Operation):
    """One slice of snapshots, as an operation of the runtime."""

    name = "prune-log-partition"

    def __init__(
        self,
        below_offset: int,
        settings: PruningSettings,
        done: Callable[[object, int], None],
        left_out: Container[Hashable] = frozenset(),
        records_max: int = RECORDS_PER_SLICE_MAX,
    ) -> None:
        self.deadline_ms = 0
        self.is_done = False
        self._below_offset = below_offset
        self._records_max = records_max
        self._bytes_max = max(1, settings.pruning_bytes_per_second_max * SLICE_INTERVAL_MS // 1_000)
        self._left_out = left_out
        self._done = done
        self._count = 0

    def decide(self, machine: Shard, now_ms: int) -> Decision:
        """Decide the next snapshots; none when every key has one above the offset or in flight."""
        decision = machine.decide_pruning_slice(self._below_offset, self._records_max, self._bytes_max, self._left_out)
        self._count = len(decision.records)
        return decision

    def complete(self, outcome: object) -> None:
        """Report the outcome to the pruner."""
        self._done(outcome, self._count)


class Pruner:
    """The rounds of one log partition; `tick` drives them."""

    def __init__(
        self,
        partition: Partition,
        runtime: Runtime,
        settings: PruningSettings,
        readers: LogReaders,
        shards: Shards,
        *,
        records_per_slice_max: int = RECORDS_PER_SLICE_MAX,
        timeout_ms: int = TIMEOUT_MS,
    ) -> None:
        self.phase = Phase.IDLE
        self._records_max = records_per_slice_max
        self._timeout_ms = timeout_ms
        #: By all rounds of this process.
        self.snapshots_written = 0
        self._partition = partition
        self._runtime = runtime
        self._settings = settings
        self._readers = readers
        self._shards = shards
        self._instance = 0
        self._cut_offset = -1
        #: `tick` does nothing before.
        self._next_ms = 0
        #: When the last round ended, or nothing could be begun.
        self._ended_ms = 0
        #: When the round last made progress.
        self._progress_ms = 0
        self._is_slice_in_flight = False
        #: Why the newest slice failed; empty if it did not.
        self._slice_failure = ""
        #: The checkpoint that names the cut offset is in flight.
        self._is_cut_offset_named = False
        #: Why the log refused a snapshot, by key; of this pass over the keys.
        self._left_out: dict[Hashable, str] = {}
        #: All that the round waits for, as of the last pass.
        self._waits_for: dict[Hashable, str] = {}
        #: `Partition.bytes_counted` where a round began that was given up; of this instance.
        self._bytes_given_up = 0

    def tick(self, now_ms: int) -> None:
        """Do the next step if one is due."""
        partition = self._partition
        if partition.state is not State.ACTIVE or partition.reading.instance != self._instance:
            self._instance = partition.reading.instance
            self._bytes_given_up = 0
            self._end_round(now_ms)
        elif self._is_slice_in_flight or (now_ms < self._next_ms and not self._is_rewrite_due(now_ms)):
            return
        elif self.phase is Phase.IDLE:
            self._consider(now_ms)
        elif self.phase is Phase.DELETING:
            # It is never given up: it costs nothing more, and a new round would write all snapshots again.
            self._delete_records(now_ms)
        elif now_ms - self._progress_ms >= self._timeout_ms:
            self._give_up(now_ms)
        elif self.phase is Phase.REFRESHING:
            if partition.reading.checkpoint_offset > self._cut_offset:
                self._cut_offset = partition.reading.checkpoint_offset
                self._enter(Phase.WRITING, now_ms)
        else:
            self._write_slice(now_ms)

    def bytes_dead(self) -> tuple[int, int]:
        """Return (dead bytes, all bytes) of the log as far as they count; dead is what one snapshot of every key would replace."""
        partition, shard = self._partition, self._shard()
        total = partition.reading.bytes_counted - partition.reading.bytes_cut
        live = 0 if shard is None else shard.live_bytes()
        return max(0, total - live), total

    def why_not_pruned(self) -> str:
        """Return in one sentence what keeps the log from being pruned further."""
        partition, settings = self._partition, self._settings
        shard = self._shard()
        if partition.state is not State.ACTIVE or shard is None:
            return f"the partition is {partition.state.value}"
        if self.phase is Phase.IDLE:
            dead, total = self.bytes_dead()
            return (
                f"{dead} of {total} bytes are dead; a round begins at {settings.pruning_dead_share:.0%} "
                f"and {settings.pruning_dead_bytes_min} bytes"
            )
        reader = self._reader_behind()
        if self.phase is Phase.DELETING and reader is not None:
            cut_offset, at = self._cut_offset, _describe_progress(reader)
            return f"reader {reader.group} {at}; the log is pruned to {cut_offset} when it has read that offset"
        oldest = shard.oldest_snapshot()
        if self.phase is Phase.WRITING and oldest is not None and oldest[1] < self._cut_offset:
            if oldest[0] in self._waits_for:
                return f"key {self._shards.format_key(oldest[0])} alone blocks it: {self._waits_for[oldest[0]]}; move its start offset"
            failure = f"; writing the next ones failed: {self._slice_failure}" if self._slice_failure else ""
            return f"key {self._shards.format_key(oldest[0])} has its newest snapshot at {oldest[1]}, below {self._cut_offset}{failure}"
        return f"a round is {self.phase.value} for offset {self._cut_offset}"

    def _shard(self) -> Shard | None:
        return self._shards.shard_of(self._partition.machine)

    # ---- the steps -------------------------------------------------------------------------------------------------

    def _consider(self, now_ms: int) -> None:
        self._next_ms = now_ms + self._settings.pruning_check_interval_ms
        self._cut_offset = self._partition.reading.checkpoint_offset
        self._ended_ms = now_ms
        if self._is_due() and self._runtime.refresh(self._partition.index):
            self._next_ms = now_ms
            self._enter(Phase.REFRESHING, now_ms)

    def _is_rewrite_due(self, now_ms: int) -> bool:
        """Tell whether records that another program deleted are written again now; nothing but our memory holds them meanwhile."""
        is_rested = now_ms >= self._ended_ms + REWRITE_PAUSE_MS
        return self.phase is Phase.IDLE and is_rested and self._partition.reading.is_missing_records()

    def _is_due(self) -> bool:
        if self._partition.reading.is_missing_records():
            return True
        dead, total = self.bytes_dead()
        paid = max(0, self._bytes_given_up - self._partition.reading.bytes_cut)
        dead, total = dead - paid, total - paid
        settings = self._settings
        return dead >= max(1, settings.pruning_dead_bytes_min, total * settings.pruning_dead_share)

    def _write_slice(self, now_ms: int) -> None:
        self._next_ms = now_ms + SLICE_INTERVAL_MS
        self._is_slice_in_flight = True

        def done(outcome: object, count: int) -> None:
            self._is_slice_in_flight = False
            if isinstance(outcome, RecordTooLarge) and isinstance(outcome.key, Hashable):
                self._left_out[outcome.key] = str(outcome)
                return
            if isinstance(outcome, CoordinatorError):
                self._slice_failure = str(outcome)
                self._next_ms = now_ms + self._settings.pruning_check_interval_ms
                return
            self._slice_failure = ""
            self.snapshots_written += count
            shard = self._shard()
            if count:
                self._progress_ms = now_ms
            elif self._left_out:
                # Nothing else is left to be written, so waiting costs nothing, and a new round would write all of it again.
                self._waits_for, self._left_out = self._left_out, {}
                self._progress_ms = now_ms
                self._next_ms = now_ms + self._settings.pruning_check_interval_ms
            # Nothing is left to be written, and all of it is committed: this answer waited for every record before it.
            elif shard is not None and shard.is_prunable_to(self._cut_offset):
                self._enter(Phase.DELETING, now_ms)
                self._name_cut_offset()

        self._runtime.write(
            self._partition.index,
            PruningSlice(self._cut_offset, self._settings, done, self._left_out, self._records_max),
        )

    def _delete_records(self, now_ms: int) -> None:
        partition = self._partition
        if partition.reading.cut_offset < self._cut_offset:
            self._name_cut_offset()  # also where nothing is left to be deleted: without it no load takes the log for whole
        elif partition.log_start >= self._cut_offset:
            self._end_round(now_ms)
        elif self._reader_behind() is None:
            # A failed deletion is only logged; it is requested again until the log start has moved.
            self._next_ms = now_ms + self._settings.pruning_check_interval_ms
            self._runtime.delete_records(partition.index, self._cut_offset)

    def _reader_behind(self) -> Progress | None:
        """Return the reader furthest behind that has not read the checkpoint at the cut offset, or None.

        By what it read last, a reader knows that the log is still the one that it has read, so that record must stay.
        """
        return self._readers.blocking(self._partition.index, self._cut_offset + 1)

    def _name_cut_offset(self) -> None:
        """Append that nothing below the cut offset is needed, before it is deleted: brokers forget a log start not yet on disk."""
        if not self._is_cut_offset_named:
            self._is_cut_offset_named = self._runtime.refresh(self._partition.index, self._cut_offset)

    def _give_up(self, now_ms: int) -> None:
        if self.phase is Phase.WRITING:
            self._bytes_given_up = self._partition.reading.checkpoint_bytes
        self._end_round(now_ms)

    def _end_round(self, now_ms: int) -> None:
        self._enter(Phase.IDLE, now_ms)
        self._ended_ms = now_ms
        self._next_ms = now_ms + self._settings.pruning_check_interval_ms

    def _enter(self, phase: Phase, now_ms: int) -> None:
        self.phase = phase
        self._progress_ms = now_ms
        self._slice_failure = ""
        self._is_cut_offset_named = False
        self._left_out, self._waits_for = {}, {}


def _describe_progress(reader: Progress) -> str:
    if not reader.is_known:
        return "is not looked up yet"
    return f"is at {reader.offset}" if reader.offset >= 0 else "has committed nothing"
