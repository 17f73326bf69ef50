"""The load of one log partition: read the log, fold it, claim the partition, read on to our own checkpoint, fold the rest.

Events are methods, called one at a time with the time as an argument; each returns the step that follows from it, or None.
A step is an effect or an end of this load, and the partition that holds the load carries it out.

The rules (docs/architecture.md): a load ends at our own checkpoint, which is recognized by its attempt id.
A load that starts over is a new object with a new machine.

No node serves between the claim and the end of the load, so the work that is left by then must not grow with the log. Everything that
takes long comes before the claim. Meanwhile reading goes on as in a tail, and the records that come are loaded as well.
"""

from typing import NamedTuple, final

from holdfast.records.errors import RecordError
from holdfast.records.log.checkpoint import CHECKPOINT_KEY, Checkpoint
from holdfast.records.log.header import encode_header
from holdfast.records.log.log_start import Beginning
from holdfast.runtime.effects import (
    ContinueLoad,
    FindRestorePoint,
    Note,
    PartitionEffect,
    QueryLogStart,
    QueryOwner,
    StartReading,
)
from holdfast.runtime.errors import Alarm, AppendRefused, LoadFailed
from holdfast.runtime.log_protocol import LogRecord
from holdfast.runtime.partition.ends import End, Fail, Lose, judge_unexpected
from holdfast.runtime.partition.ownership import OWNER_EPOCH_MAX, Verdict
from holdfast.runtime.partition.reading import Reading
from holdfast.runtime.partition.restore_point import RestorePoint
from holdfast.runtime.partition.tenancy import Tenancy
from holdfast.runtime.settings import Ports
from holdfast.runtime.state_machine import StateMachine


class BeginWithoutRestorePoint(NamedTuple):
    """Load from the log's start, because the restore point at an offset cannot be used."""

    restore_point_offset: int
    refusal: str


class BeginAtCut(NamedTuple):
    """Load from where the log was cut; records below it came back because a broker that had deleted them was lost."""

    cut_offset: int


class LeaveToOwner(NamedTuple):
    """Leave the partition to its owner, which serves it."""

    text: str


@final
class Loaded:
    """Serve: our own checkpoint was read, and every record before it is folded."""


Step = PartitionEffect | Note | End | BeginWithoutRestorePoint | BeginAtCut | LeaveToOwner | Loaded


@final
class Load:
    """One load, from the first look at the log to the machine that is ready to serve."""

    def __init__(
        self, tenancy: Tenancy, ports: Ports, reading: Reading, machine: StateMachine, now_ms: int, begins_at: int = 0
    ) -> None:
        self.machine = machine
        self._tenancy = tenancy
        self._ports = ports
        self._reading = reading
        #: No record below it is read, because a checkpoint says that none there is needed.
        self._begins_at = begins_at
        #: The high watermark when reading began.
        self._end_offset = 0
        #: The restore point until it was compared with the log; then None.
        self._restore_point: RestorePoint | None = None
        #: The restore point's newest checkpoint is read first.
        self._is_at_checkpoint = False
        self._is_reading = False
        self._is_folding = False
        #: Our own checkpoint was read.
        self._is_ours = False
        self._progress_ms = now_ms
        #: Time of the last line about a stall.
        self._noted_ms = now_ms
        #: The event that such a line says the load waits for.
        self._waiting_for = ""
        #: The attempt of an owner that did not answer that it serves.
        self._silent_attempt_id: bytes | None = None

    # ---- where it begins -------------------------------------------------------------------------------------------

    def begin(self) -> Step:
        """Look for a restore point, or read the whole log."""
        if self._may_restore():
            self._waiting_for = "where the log starts"
            return QueryLogStart(self._tenancy.index, self._reading.instance)
        return self.read_from(None)

    def _may_restore(self) -> bool:
        """Tell whether a restore point may be used; a log that lost its end, or that an admin accepts, is read from its start."""
        tenancy = self._tenancy
        return self._ports.has_restore_points and tenancy.accept_reason is None and tenancy.lost_from is None

    def log_start_found(self, log_start: int | None, now_ms: int) -> Step | None:
        """Look for a restore point that a log with this start can use."""
        if self._is_reading:
            return None
        self._progress_ms = now_ms
        if log_start is None:
            return self.read_from(None)
        self._reading.log_start = log_start
        self._waiting_for = "a restore point"
        return FindRestorePoint(self._tenancy.index, self._reading.instance, log_start)

    def restore_point_found(self, point: RestorePoint | None, now_ms: int) -> Step | None:
        """Read the log from the restore point on, or from its start if there is none."""
        if self._is_reading:
            return None
        self._progress_ms = now_ms
        return self.read_from(point if self._may_restore() else None)

    def read_from(self, point: RestorePoint | None) -> Step:
        """Read the log from a restore point, or from the offset at which this load begins."""
        self._restore_point = point
        self._is_reading = True
        self._waiting_for = "where the log starts and ends"
        from_offset = self._begins_at if point is None else point.offset
        self._is_at_checkpoint = point is not None and point.reads_checkpoint(self._reading.log_start)
        if point is not None and self._is_at_checkpoint:
            from_offset = point.checkpoint_offset
        return StartReading(self._tenancy.index, self._reading.instance, from_offset)

    def read_started(self, start_offset: int, end_offset: int, now_ms: int) -> Step | None:
        """Handle the start of the log and its end when reading began."""
        reading, tenancy, point = self._reading, self._tenancy, self._restore_point
        reading.log_start = reading.position = max(start_offset, self._begins_at)
        self._end_offset = end_offset
        self._waiting_for = "the next record"
        if point is None:
            reading.ownership.beginning = Beginning(reading.log_start)
        self._progress_ms = now_ms
        tenancy.find_lost_end(end_offset)
        if point is not None and not start_offset <= point.offset < end_offset:
            return BeginWithoutRestorePoint(point.offset, "the log does not hold its offset")
        if tenancy.lost_from is not None:
            reading.check.judge_lost_end(tenancy.lost_from, tenancy.committed_offset)
        return None

    # ---- the restore point -----------------------------------------------------------------------------------------

    def _compare_checkpoint(self, point: RestorePoint, record: LogRecord) -> Step:
        """Compare the restore point's newest checkpoint with the log, then read on at the end of the restore point."""
        self._is_at_checkpoint = False
        reading = self._reading
        refusal = point.checkpoint_refusal(record) if point.reads_checkpoint(reading.log_start) else ""
        if refusal:
            return BeginWithoutRestorePoint(point.offset, refusal)
        reading.instance += 1
        return StartReading(self._tenancy.index, reading.instance, point.offset)

    def _restore(self, point: RestorePoint) -> None:
        """Continue after a restore point whose record is in the log."""
        reading = self._reading
        self._restore_point, reading.restored_from_offset = None, point.offset
        reading.position = point.offset + 1
        reading.bytes_counted = (point.offset + 1 - reading.log_start) * point.record_size_bytes
        reading.ownership.begin_at(point.position, point.checkpoint, point.offset)
        self.machine.restore(point.content)
        self._judge_checkpoint(point.checkpoint, point.offset)

    # ---- the log ---------------------------------------------------------------------------------------------------

    def records_read(self, records: list[LogRecord], now_ms: int) -> list[Step]:
        """Handle the next records of the log; returns the steps that follow, in order."""
        reading, machine = self._reading, self.machine
        ownership, check, metrics = reading.ownership, reading.check, self._ports.metrics
        self._ports.begin_slice()  # reading shares its time with the fold
        self._progress_ms = now_ms
        reading.records_read += len(records)
        point = self._restore_point
        if point is not None:
            if self._is_at_checkpoint:
                return [self._compare_checkpoint(point, records[0])]
            refusal = point.refusal(records[0])
            if refusal:
                return [BeginWithoutRestorePoint(point.offset, refusal)]
            self._restore(point)
            records = records[1:]
        steps: list[Step] = []
        tenancy = self._tenancy
        committed_last = -1 if tenancy.lost_from is None else tenancy.committed_offset - 1
        for record in records:
            offset, key, value, _ = record
            reading.position = offset + 1
            if self._is_ours:  # after our own checkpoint no record is loaded, and we have sent none so far
                end = judge_unexpected(reading, record, metrics)
                if end is not None:
                    return [*steps, end]
                continue
            try:
                verdict = ownership.judge(record)
                if verdict is Verdict.DATA:
                    reading.bytes_counted += len(key or b"") + len(value or b"")
                    machine.load_record(key or b"", value, offset)
                    if offset == committed_last:
                        self._look_for_end(offset)
                    continue
            except (RecordError, LoadFailed) as error:
                check.found(LoadFailed(f"offset {offset} cannot be read: {error}"))
                continue
            if verdict is Verdict.VOID:
                reading.void_records += 1
                metrics.records_void.value += 1
                if ownership.winner is None:
                    check.judge_before_checkpoint(record, reading.log_start)
                continue
            step = self._checkpoint_read(verdict, ownership.winning(), offset)
            if step is not None:
                steps.append(step)
                if not isinstance(step, ContinueLoad):
                    break
        return steps

    def _checkpoint_read(self, verdict: Verdict, winner: Checkpoint, offset: int) -> Step | None:
        """Handle a checkpoint that counts: it may show from where the log is whole, and it may end this load."""
        reading = self._reading
        self._judge_checkpoint(winner, offset)
        self._look_for_end(offset)
        beginning = reading.ownership.beginning
        if beginning.offset > reading.log_start and beginning.is_found and self._tenancy.accept_reason is None:
            return BeginAtCut(beginning.offset)
        if verdict is Verdict.OWN:
            return self._own_checkpoint_read(offset)
        if reading.ownership.attempt_id is not None:  # a RIVAL after our claim
            return Lose(winner, offset)
        return None

    def _look_for_end(self, offset: int) -> None:
        """Check whether a missing end is in the log after all: the same record at the same offset and position."""
        if self._tenancy.lost_from is not None and self._tenancy.find_end_again(
            offset, self._reading.ownership.position
        ):
            self._reading.check.end_found_again()

    def _judge_checkpoint(self, checkpoint: Checkpoint, offset: int) -> None:
        """Judge a checkpoint that counts; tells the machine if an admin accepted the log, by it or in a part that was cut."""
        check = self._reading.check
        was_accepted = check.accepted_reason is not None
        if check.judge_checkpoint(checkpoint, offset) or (check.accepted_reason is not None and not was_accepted):
            self.machine.on_log_accepted()

    def caught_up(self, next_offset: int, now_ms: int) -> Step | None:
        """Fold and claim, because the end that the log had when reading began was reached."""
        self._reading.position_reached(next_offset)
        self._progress_ms = now_ms
        if self._restore_point is not None:
            return BeginWithoutRestorePoint(self._restore_point.offset, "no record lies at its offset")
        return self._approach()

    def _own_checkpoint_read(self, offset: int) -> Step:
        reading, tenancy = self._reading, self._tenancy
        if reading.check.finding is not None:
            return Fail(reading.check.finding)
        reading.found_own_checkpoint(offset)
        tenancy.committed_offset = offset + 1
        tenancy.committed_position = reading.ownership.position
        tenancy.lost_from = None
        reading.records_loaded = reading.records_read
        self._is_ours = self._is_folding = True
        return ContinueLoad(tenancy.index, reading.instance, is_claimed=True)

    # ---- the claim -------------------------------------------------------------------------------------------------

    def _approach(self) -> Step | None:
        """Fold a slice, and claim the partition once everything is folded; its owner serves it meanwhile.

        A log that an admin accepts is folded after our checkpoint, because that checkpoint makes its unusable records harmless.
        """
        if self._reading.ownership.attempt_id is not None:
            return None
        step = self._find_obstacle()
        if step is None and self._tenancy.accept_reason is None:
            step = self._fold()
        return self._claim() if step is None else step

    def _find_obstacle(self) -> Step | None:
        """Return the step to take before a claim or instead of it; None: nothing is in the way of a claim."""
        tenancy, reading = self._tenancy, self._reading
        ownership, check = reading.ownership, reading.check
        if not ownership.beginning.is_found:
            # Also if it begins with a checkpoint: an owner whose log was emptied refreshes before it writes the states again.
            check.judge_start(reading.log_start)
        winner = ownership.winner
        finding = tenancy.log_alarm() or check.finding
        if finding is not None and tenancy.accept_reason is None:
            return Fail(finding)
        if winner is not None and self._queries_first(winner):
            self._waiting_for = f"the answer of its owner, node {winner.node_id}"
            return QueryOwner(tenancy.index, reading.instance, winner)
        # In a log that an admin accepts, the generation in a checkpoint of another log means nothing.
        is_of_this_log = winner is None or tenancy.accept_reason is None or check.is_of_this_log(winner)
        if winner is not None and is_of_this_log and not tenancy.may_take(winner):
            return Lose(winner, ownership.winner_offset)
        if ownership.highest_epoch() >= OWNER_EPOCH_MAX:
            return Fail(Alarm(f"owner epoch {OWNER_EPOCH_MAX} is the last one"))
        return None

    def _claim(self) -> Step | None:
        """Append our checkpoint under the next epoch."""
        tenancy, ownership = self._tenancy, self._reading.ownership
        self._is_folding = False
        ownership.beginning.is_found = True  # no finding says otherwise, or an admin accepts it
        if tenancy.generation is None:
            tenancy.generation = ownership.generation_max + 1
        attempt_id = self._ports.random_bytes(16)
        ownership.claim(attempt_id)
        return self._append_checkpoint(attempt_id)

    def _append_checkpoint(self, attempt_id: bytes) -> Step | None:
        tenancy, ownership, ports = self._tenancy, self._reading.ownership, self._ports
        reason = tenancy.accept_reason
        accepted_reason = reason or self._reading.check.accepted_reason
        value = tenancy.encode_checkpoint(ownership, attempt_id, reason, accepted_reason, -1)
        try:
            ports.append(tenancy.index, CHECKPOINT_KEY, value, encode_header(ownership.epoch, 0))
        except AppendRefused as refused:
            ports.metrics.appends_refused.value += 1
            return Fail(LoadFailed(f"the log refused our checkpoint: {refused.reason}"))
        ports.metrics.checkpoints_appended.value += 1
        self._waiting_for = "our own checkpoint"
        return None

    def _queries_first(self, owner: Checkpoint) -> bool:
        """Tell whether to query an owner before we outrank it.

        A process that has never had the partition does so once, and a member of a group before each claim.
        """
        tenancy = self._tenancy
        is_ordered = tenancy.takes_over or tenancy.accept_reason is not None
        is_queried = owner.attempt_id == self._silent_attempt_id
        is_newcomer = tenancy.generation is None or not tenancy.is_static
        return self._ports.queries_owners and is_newcomer and not is_ordered and not is_queried

    def owner_answered(self, owner: Checkpoint, is_serving: bool) -> Step | None:
        """Handle the owner's answer: leave the partition to an owner that serves it, otherwise go on to the claim."""
        if self._reading.ownership.attempt_id is not None:
            return None
        if is_serving:
            return LeaveToOwner(f"node {owner.node_id} at {owner.advertised_address} serves it")
        self._silent_attempt_id = owner.attempt_id
        return self._approach()  # it queries again if another node has taken the partition meanwhile

    # ---- the fold --------------------------------------------------------------------------------------------------

    def fold_slice(self, image: object) -> Step | None:
        """Fold another slice; when all is folded, claim, or after our own checkpoint serve with the newest metadata image."""
        if not self._is_ours:
            return self._approach()
        step = self._fold()
        if step is not None:
            return step
        try:
            self.machine.on_loaded(image)
        except Exception as error:  # a bug in one machine fails its partition, never the loop
            return self._judge_failure(error)
        return Loaded()

    def _fold(self) -> Step | None:
        """Fold a slice of the loaded records; returns None when all are folded."""
        try:
            self._is_folding = not self.machine.fold_loaded(self._ports.begin_slice())
        except Exception as error:  # as above
            return self._judge_failure(error)
        if not self._is_folding:
            return None
        return ContinueLoad(self._tenancy.index, self._reading.instance, self._is_ours)

    def _judge_failure(self, error: Exception) -> Step:
        restored_from_offset = self._reading.restored_from_offset
        if restored_from_offset >= 0:
            return BeginWithoutRestorePoint(restored_from_offset, f"loading failed: {error!r}")
        return Fail(error if isinstance(error, LoadFailed) else LoadFailed(f"loading failed: {error!r}"))

    def tick(self, now_ms: int) -> Step | None:
        """Fail if the load takes too long; write a line if it stalls."""
        reading, config = self._reading, self._tenancy.config
        where = f"at offset {reading.position} (log start {reading.log_start}, end was {self._end_offset})"
        if now_ms - reading.load_began_ms >= config.load_timeout_ms:
            limit_ms = config.load_timeout_ms
            return Fail(LoadFailed(f"the load did not end within {limit_ms} ms; it was {where}"))
        if not self.is_stalled(now_ms) or now_ms - self._noted_ms < config.load_stall_ms:
            return None
        self._noted_ms = now_ms
        return Note("warning", "load_stalled", {"where": where, "waiting_for": self._waiting_for})

    def is_stalled(self, now_ms: int) -> bool:
        """Tell whether the log, the restore points and the owner have been silent for too long."""
        return now_ms - self._progress_ms >= self._tenancy.config.load_stall_ms and not self._is_folding
