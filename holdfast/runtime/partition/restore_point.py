"""The restore point of a load: the content of a state machine after one record of the log, restored from snapshots.

The log alone is the truth, so a load that begins with a restore point reads that record of the log first.
If it is the record that the restore point names, the load continues after it. Otherwise the load starts again without a restore point.
"""

from typing import Any, NamedTuple, Protocol

from holdfast.records.errors import RecordError
from holdfast.records.log.checkpoint import CHECKPOINT_KEY, Checkpoint, decode_checkpoint
from holdfast.records.log.fencing import Position
from holdfast.records.log.header import decode_header, is_foreign
from holdfast.runtime.log_protocol import LogRecord


class RestorePoint(NamedTuple):
    """A state to begin a load with, and the record of the log that it ends with."""

    #: Offset of the last record that counts and is contained.
    offset: int
    #: Position of a reader after that record.
    position: Position
    #: The newest checkpoint of that position's epoch.
    checkpoint: Checkpoint
    #: Argument for `StateMachine.restore`.
    content: Any
    #: Rough size of a record below; the load knows only the offsets of the part that it does not read.
    record_size_bytes: int
    #: Offset of the checkpoint, which the load compares as well unless it was cut off; -1: it is not compared.
    checkpoint_offset: int = -1

    def reads_checkpoint(self, log_start: int) -> bool:
        """Tell whether a log with this start holds the checkpoint, and the checkpoint is not the last record itself."""
        return log_start <= self.checkpoint_offset < self.offset

    def checkpoint_refusal(self, record: LogRecord) -> str:
        """Return why a record is not the checkpoint; empty if it is.

        Another attempt can have taken the same epoch: the log lost its end, and both checkpoints were appended at one offset.
        """
        if record.offset != self.checkpoint_offset or record.key != CHECKPOINT_KEY:
            return "its newest checkpoint is not in the log"
        try:
            is_it = decode_checkpoint(record.value or b"") == self.checkpoint
        except RecordError:
            return "its newest checkpoint cannot be read"
        return "" if is_it else "its newest checkpoint is another one"

    def refusal(self, record: LogRecord) -> str:
        """Return why a record is not the last one of the restore point; empty if it is."""
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
        """Look for a restore point for a log with this start; report it to `CoordinatorRuntime.restore_point_found` in bounded time."""

    def restore_point_judged(self, partition: int, offset: int, refusal: str) -> None:
        """Handle the result of a load: the restore point was used (empty), or why the load started again without it."""
