"""The rule which records count; every reader of the log applies it (load, tail, Spark job, CLI).

Read in offset order, the current owner epoch is the highest checkpoint epoch so far; of two checkpoints with one
epoch the first wins. A record counts only if its epoch is the current one and its sequence is the next one, so after
a gap nothing more of that epoch counts. A record that does not count is *void*, because it is fenced or stale: it changes nothing.
So the log itself stops a node that was replaced.

Source: `Model.step` of the model-checked log protocol.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from holdfast.records.log.checkpoint import Checkpoint
from holdfast.records.native import maker


class Position(NamedTuple):
    """The position of a reader between one record and the next."""

    owner_epoch: int
    #: Attempt of the checkpoint that opened the epoch; None before the first checkpoint.
    attempt_id: bytes | None
    #: Sequence that the next counting record of this epoch has.
    next_sequence: int


#: Make a position of its three fields; one is made for every batch that is committed.
make_position: Final[Callable[[tuple[int, bytes | None, int]], Position]] = maker(Position)

#: The position at the beginning of every log. No sequence is negative, so nothing counts before a checkpoint does.
START: Final = Position(owner_epoch=0, attempt_id=None, next_sequence=-1)


def is_next(current_epoch: int, next_sequence: int, owner_epoch: int, sequence: int) -> bool:
    """Tell whether a record that is no checkpoint counts: it is of the current owner epoch, and the next one of it.

    Args:
        current_epoch: of the position after the record before it, as `next_sequence`.
        next_sequence: negative before the first checkpoint, when nothing counts.
        owner_epoch: from the record's header.
        sequence: from the record's header.
    """
    return owner_epoch == current_epoch and sequence == next_sequence and sequence >= 0


def step(position: Position, owner_epoch: int, sequence: int, checkpoint: Checkpoint | None) -> tuple[Position, bool]:
    """Return the position after a record with this header, and whether the record counts.

    Args:
        position: the position after the record before it.
        owner_epoch: from the record's header.
        sequence: from the record's header.
        checkpoint: its value if the record is a checkpoint, else None.
    """
    if checkpoint is not None and owner_epoch > position.owner_epoch:
        # A log whose prefix was pruned begins with a refresh, whose sequence is not 0.
        return Position(owner_epoch, checkpoint.attempt_id, sequence + 1), True
    if not is_next(position.owner_epoch, position.next_sequence, owner_epoch, sequence):
        return position, False
    # Two owners may take one epoch; a refresh is the winner's only.
    if checkpoint is not None and checkpoint.attempt_id != position.attempt_id:
        return position, False
    return Position(owner_epoch, position.attempt_id, sequence + 1), True
