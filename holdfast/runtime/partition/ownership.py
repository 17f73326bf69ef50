"""The owner of a partition and the records that count, as one owner attempt sees them in the log.

Every reader applies the same rule to each record (`records.log.fencing.step`); the verdict says what the record means to *this* node.
The log alone decides which node owns a partition; the generation only decides which node should try.

Source: docs/architecture.md, "Owning a partition"; checked in tests/model.
"""

from enum import Enum
from typing import Protocol

from mypy_extensions import mypyc_attr

from holdfast.records.errors import ForeignHeader
from holdfast.records.log.checkpoint import CHECKPOINT_KEY, Checkpoint, decode_checkpoint
from holdfast.records.log.fencing import START, Position, make_position, step
from holdfast.records.log.header import decode_header, is_foreign
from holdfast.records.log.log_start import Beginning
from holdfast.runtime.log_protocol import LogRecord

#: Owner epochs are int32; the last one is never taken, so that every reader can compare.
OWNER_EPOCH_MAX = 2**31 - 2


class Verdict(Enum):
    """The meaning of a record for this node."""

    #: A record that counts.
    DATA = "data"
    #: A fenced or stale record, which counts for no reader.
    VOID = "void"
    #: This attempt's checkpoint, and it counts: the partition is ours.
    OWN = "own"
    #: A refresh of our checkpoint.
    REFRESH = "refresh"
    #: A checkpoint of another attempt, and it counts.
    RIVAL = "rival"


# The simulation watches it by a subclass, on both builds.
@mypyc_attr(allow_interpreted_subclasses=True)
class Ownership:
    """The reader's position, the winning checkpoint, and our own attempt at the partition."""

    __slots__ = (
        "attempt_id",
        "beginning",
        "cut_offset",
        "epoch",
        "epoch_seen",
        "former",
        "generation_max",
        "position",
        "sequence",
        "winner",
        "winner_offset",
    )

    def __init__(self) -> None:
        self.position: Position = START
        #: Offset from which on the log is whole.
        self.beginning = Beginning(0)
        #: The checkpoint of the current epoch.
        self.winner: Checkpoint | None = None
        #: Offset of the newest checkpoint of the current epoch, refreshes included.
        self.winner_offset = -1
        #: Highest cut offset of the checkpoints that counted, except ours: no owner needs a record below it. -1: there is none.
        self.cut_offset = -1
        #: Highest generation of any checkpoint that counted.
        self.generation_max = 0
        #: Our attempt; None before the claim.
        self.attempt_id: bytes | None = None
        #: Highest epoch of the records before the first checkpoint of a log that was cut; their own checkpoint is gone.
        self.epoch_seen = 0
        #: The winning checkpoint when we claimed: of the owner before us. None: there was none.
        self.former: Checkpoint | None = None
        #: The owner epoch of our attempt.
        self.epoch = -1
        #: The sequence of our next record.
        self.sequence = 0

    def claim(self, attempt_id: bytes) -> int:
        """Start an attempt under the next epoch and return that epoch; the checkpoint itself takes sequence 0.

        An owner whose checkpoint was cut off may still serve, and only an epoch above its own supersedes it.
        """
        self.attempt_id, self.former = attempt_id, self.winner
        self.epoch = self.highest_epoch() + 1
        self.sequence = 1
        return self.epoch

    def winning(self) -> Checkpoint:
        """Return the newest checkpoint that counted; there must be one."""
        assert self.winner is not None
        return self.winner

    def highest_epoch(self) -> int:
        """Return the highest epoch of an owner that was read so far."""
        return max(self.position.owner_epoch, self.epoch_seen)

    def begin_at(self, position: Position, checkpoint: Checkpoint, offset: int) -> None:
        """Start after the record at an offset; the checkpoint is the newest one of that record's epoch."""
        self.position, self.winner, self.winner_offset = position, checkpoint, offset
        self.generation_max, self.cut_offset = checkpoint.generation, checkpoint.cut_offset
        self.beginning = Beginning(0)

    def judge(self, record: LogRecord) -> Verdict:
        """Judge the next record of the log.

        Raises:
            Undecodable: the header or the checkpoint cannot be read.
        """
        header = record.header
        if header is None:
            return Verdict.VOID
        try:
            owner_epoch, sequence = decode_header(header)
        except ForeignHeader:
            return Verdict.VOID
        if record.key != CHECKPOINT_KEY:
            self.position, counts = step(self.position, owner_epoch, sequence, None)
            if counts:
                return Verdict.DATA
            if self.winner is None and not self.beginning.is_found:
                self.epoch_seen = max(self.epoch_seen, owner_epoch)
            return Verdict.VOID
        checkpoint = decode_checkpoint(record.value or b"")
        is_own = checkpoint.attempt_id == self.attempt_id
        was_own = self.owns()
        self.position, counts = self.beginning.step(self.position, record.offset, owner_epoch, sequence, checkpoint)
        if not counts:  # nor does one of ours, if a rival took the epoch first or if it was appended twice
            return Verdict.VOID
        self.winner = checkpoint
        self.winner_offset = record.offset
        self.generation_max = max(self.generation_max, checkpoint.generation)
        self.cut_offset = max(self.cut_offset, checkpoint.cut_offset)
        if not is_own:
            return Verdict.RIVAL
        return Verdict.REFRESH if was_own else Verdict.OWN

    def own_committed(self, sequence: int) -> None:
        """Move past our own record of this sequence, which was read back as we sent it and counted."""
        self.position = make_position((self.epoch, self.attempt_id, sequence + 1))

    def may_be_lost(self, header: bytes) -> bool:
        """Tell whether a record is of this attempt and was not read back; if its append fails, it may or may not be in the log.

        A batch is read back as a whole, so the answer for its first record holds for all.
        """
        owner_epoch, sequence = decode_header(header)
        return owner_epoch == self.epoch and not (self.owns() and sequence < self.position.next_sequence)

    def is_ahead(self, record: LogRecord) -> bool:
        """Tell whether a void record is one of ours after a gap; then no further record of our epoch will count."""
        if record.header is None or is_foreign(record.header):
            return False
        owner_epoch, sequence = decode_header(record.header)
        return owner_epoch == self.epoch and sequence >= self.position.next_sequence

    def owns(self) -> bool:
        """Tell whether the current epoch belongs to our attempt."""
        return self.attempt_id is not None and self.position.attempt_id == self.attempt_id


class Owners(Protocol):
    """The way to ask owners of log partitions whether they still serve."""

    def query_owner(self, partition: int, instance: int, owner: Checkpoint) -> None:
        """Query the owner; report its answer to `CoordinatorRuntime.owner_answered` in bounded time."""


def may_take(winner: Checkpoint | None, generation: int, node_id: str) -> bool:
    """Tell whether a node of this generation may take a partition from the winner.

    It may if the winner's generation is lower, or if the winner is an earlier attempt of the same node.
    """
    return (
        winner is None
        or winner.generation < generation
        or (winner.node_id == node_id and winner.generation == generation)
    )
