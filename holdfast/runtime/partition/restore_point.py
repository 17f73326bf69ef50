"""The restore point of a load: what a state machine holds after one record of the log, restored from snapshots.

The log alone is the truth.
A load that begins with a restore point reads the log from that very record on.
Only if the record is the one that the restore point names does the load go on behind it, as it would have from the log's start.
Otherwise it begins again without one.
"""

from typing import Any, NamedTuple, Protocol

from holdfast.records.errors import RecordError
from holdfast.records.log.checkpoint import CHECKPOINT_KEY, Checkpoint, decode_checkpoint
from holdfast.records.log.fencing import Position
from holdfast.records.log.header import decode_header, is_foreign
from holdfast.runtime.log_protocol import LogRecord


class RestorePoint(NamedTuple):
    """A restore point."""

    #: Of the last record that counts and is contained.
    offset: int
    #: After that record.
    position: Position
    #: The newest of that epoch.
    checkpoint: Checkpoint
    #: For `StateMachine.restore`.
    content: Any
    #: Roughly, of one record below; the part of the log that is not read is known by its offsets only.
    record_size_bytes: int
    #: Of the checkpoint, which the load compares as well unless it was cut off; -1: it is not compared.
    checkpoint_offset: int = -1

    def reads_checkpoint(self, log_start: int) -> bool:
        """Tell whether the checkpoint lies in a log that starts there, and is not the record at hand by itself."""
        return log_start <= self.checkpoint_offset < self.offset

    def checkpoint_refusal(self, record: LogRecord) -> str:
        """Return why a record is not the checkpoint; empty if it is.

        The same epoch may have been taken by another attempt, where the log lost its end and both were appended at one offset.
        """
        if record.offset != self.checkpoint_offset or record.key != CHECKPOINT_KEY:
            return "its newest checkpoint is not in the log"
        try:
            is_it = decode_checkpoint(record.value or b"") == self.checkpoint
        except RecordError:
            return "its newest checkpoint cannot be read"
        return "" if is_it else "its newest checkpoint is another one"

    def refusal(self, record: LogRecord) -> str:
        """Return why the record at hand is not the one that the restore point ends with; empty if it is."""
        owner_epoch, attempt_id, next_sequence = self.position
        if record.offset != self.offset:
            return "no record lies at its offset"
        if record.header is None or is_foreign(record.header):
            return "the record at its offset is another program's"
        try:
            if decode_header(record.header) != (owner_epoch, next_sequence - 1):
                return "the record at its offset is another one"
            if record.key == CHECKPOINT_KEY and decode_checkpoint(record.value or b"").attempt_id != attempt_id:
                return "the checkpoint at its offset is another one"
        except RecordError:
            return "the record at its offset cannot be read"
        return ""


class RestorePointFinder(Protocol):
    """The finder of restore points."""

    def find_restore_point(self, partition: int, instance: int, log_start: int) -> None:
        """Look for a restore point in a log that starts there, and report by `CoordinatorRuntime.restore_point_found`, in bounded time."""

    def restore_point_judged(self, partition: int, offset: int, refusal: str) -> None:
        """Learn whether a restore point was used: empty, or why the load began again without it."""
