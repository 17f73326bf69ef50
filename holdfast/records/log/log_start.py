"""The offset from which a log is whole: the rule of every reader for a log that does not start at offset 0.

Brokers write the log start that DeleteRecords sets down only now and then. One that is lost in between may give back records
below a cut. The log then starts in the middle of an epoch, where it is not known which records count.
It holds updates without their snapshots.

Before an owner cuts the log at one of its refreshes, it refreshes once more and names that offset. The log is whole from a
checkpoint on that a later one names, if both count and no other checkpoint that counts lies between them.
All records that were read below it are forgotten. A log that starts at offset 0 was never cut, or lost nothing by it, and is whole.

Source: `Protocol.step` and `Protocol.beginning` of the model-checked log protocol.
"""

from __future__ import annotations

from holdfast.records.log.checkpoint import Checkpoint
from holdfast.records.log.fencing import Position, step


class Beginning:
    """The offset from which one log partition is whole; it is given every checkpoint, from the log's start, in offset order."""

    __slots__ = ("checkpoint_offset", "is_found", "offset")

    def __init__(self, log_start: int, checkpoint_offset: int = -1) -> None:
        #: From which the log is whole, once that is found; the log start before.
        self.offset = log_start
        self.is_found = log_start == 0
        #: Offset of the newest checkpoint that counts in this reading; -1 before the first.
        self.checkpoint_offset = checkpoint_offset

    def step(
        self, position: Position, offset: int, owner_epoch: int, sequence: int, checkpoint: Checkpoint
    ) -> tuple[Position, bool]:
        """Return the position after a checkpoint, and whether it counts, as `fencing.step` does.

        As long as the beginning is not found, what counts is an assumption, and is right from the beginning on.

        Args:
            position: the position after the record before it.
            offset: of the checkpoint.
            owner_epoch: from its header.
            sequence: from its header.
            checkpoint: its value.
        """
        after, counts = step(position, owner_epoch, sequence, checkpoint)
        if self.is_found:
            return after, counts
        is_same_epoch = owner_epoch == position.owner_epoch
        if not counts:
            # Only who won an epoch refreshes in it. So the checkpoint that seemed to open it was a claim that lost.
            if not is_same_epoch or sequence <= 0 or checkpoint.attempt_id == position.attempt_id:
                return after, False
            after = Position(owner_epoch, checkpoint.attempt_id, sequence + 1)
        elif is_same_epoch and checkpoint.cut_offset == self.checkpoint_offset >= 0:
            self.offset = checkpoint.cut_offset
            self.is_found = True
        self.checkpoint_offset = offset
        return after, True
