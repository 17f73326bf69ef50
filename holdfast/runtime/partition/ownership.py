"""Who counts, and who owns: one partition's log as seen by one owner attempt.

Every record is put to the one rule of every reader (`records.log.fencing.step`), and the verdict says what it means to *this* node.
The log alone decides who has a partition; the generation only decides which node should try.

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
    """What a record means to this node."""

    #: A record that counts.
    DATA = "data"
    #: A fenced or stale record; it counts for no reader.
    VOID = "void"
    #: This attempt's checkpoint, and it counts: the partition is ours.
    OWN = "own"
    #: Our checkpoint again.
    REFRESH = "refresh"
    #: Another attempt's checkpoint that counts.
    RIVAL = "rival"


# The simulation watches it as a subclass, whichever build it runs on.
@mypyc_attr(allow_interpreted_subclasses=True)
class Ownership:
    """The reader's position, the winning checkpoint, and our own attempt at the partition."""

    __slots__ = (
        "attempt_id",
        "beginning",
        "cut_offset",
        "epoch",
        "epoch_seen",
        "generation_max",
        "position",
        "sequence",
        "winner",
        "winner_offset",
    )

    def __init__(self) -> None:
        self.position: Position = START
        #: Where the log is whole from.
        self.beginning = Beginning(0)
        #: The checkpoint of the current epoch.
        self.winner: Checkpoint | None = None
        #: Offset of the newest checkpoint of the current epoch, refreshes included.
        self.winner_offset = -1
        #: The highest that any checkpoint named which counted, but for our own: no owner needs what lies below it. -1: none did.
        self.cut_offset = -1
        #: Highest generation of any checkpoint that counted.
        self.generation_max = 0
        #: Ours, once claimed.
        self.attempt_id: bytes | None = None
        #: Highest epoch of the records before the first checkpoint of a log that was cut, whose own checkpoint is gone.
        self.epoch_seen = 0
        #: The owner epoch of our attempt.
        self.epoch = -1
        #: The sequence of our next record.
        self.sequence = 0

    def claim(self, attempt_id: bytes) -> int:
        """Begin an attempt under the next epoch and return that epoch; the checkpoint itself takes sequence 0.

        Where the checkpoint of an owner was cut off, that owner may still serve: only a higher epoch than its own supersedes it.
        """
        self.attempt_id = attempt_id
        self.epoch = self.highest_epoch() + 1
        self.sequence = 1
        return self.epoch

    def winning(self) -> Checkpoint:
        """Return the checkpoint that counted last; after a verdict on one there is one."""
        assert self.winner is not None
        return self.winner

    def highest_epoch(self) -> int:
        """Return the highest epoch that an owner may have, as far as was read."""
        return max(self.position.owner_epoch, self.epoch_seen)

    def begin_at(self, position: Position, checkpoint: Checkpoint, offset: int) -> None:
        """Begin behind a record at an offset, whose epoch this checkpoint opened or renewed."""
        self.position, self.winner, self.winner_offset = position, checkpoint, offset
        self.generation_max, self.cut_offset = checkpoint.generation, checkpoint.cut_offset
        self.beginning = Beginning(0)

    def judge(self, record: LogRecord) -> Verdict:
        """Put the next record of the log to the rule.

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
        if not counts:  # even one of ours does not, if a rival took the epoch before it, or if it was appended twice
            return Verdict.VOID
        self.winner = checkpoint
        self.winner_offset = record.offset
        self.generation_max = max(self.generation_max, checkpoint.generation)
        self.cut_offset = max(self.cut_offset, checkpoint.cut_offset)
        if not is_own:
            return Verdict.RIVAL
        return Verdict.REFRESH if was_own else Verdict.OWN

    def own_committed(self, sequence: int) -> None:
        """Move behind our own record of this sequence, which is what we sent and counted."""
        self.position = make_position((self.epoch, self.attempt_id, sequence + 1))

    def may_be_lost(self, header: bytes) -> bool:
        """Tell whether a record is of this attempt and was not read back, so that its fate is open when its append fails.

        A batch is read back as a whole: what holds for its first record holds for all.
        """
        owner_epoch, sequence = decode_header(header)
        return owner_epoch == self.epoch and not (self.owns() and sequence < self.position.next_sequence)

    def is_ahead(self, record: LogRecord) -> bool:
        """Tell whether a void record is one of ours behind a gap: nothing more of our epoch will count."""
        if record.header is None or is_foreign(record.header):
            return False
        owner_epoch, sequence = decode_header(record.header)
        return owner_epoch == self.epoch and sequence >= self.position.next_sequence

    def owns(self) -> bool:
        """Tell whether the current epoch is that of our attempt."""
        return self.attempt_id is not None and self.position.attempt_id == self.attempt_id


class Owners(Protocol):
    """Queries to owners of log partitions, whether they still serve."""

    def query_owner(self, partition: int, instance: int, owner: Checkpoint) -> None:
        """Query the owner, and report by `CoordinatorRuntime.owner_answered`, in bounded time."""


def may_take(winner: Checkpoint | None, generation: int, node_id: str) -> bool:
    """Tell whether a node of this generation may take a partition from the winner.

    It may while the winner's generation is lower, or the winner is an earlier attempt of this same node.
    """
    return (
        winner is None
        or winner.generation < generation
        or (winner.node_id == node_id and winner.generation == generation)
    )
