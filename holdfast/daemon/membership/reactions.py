"""What a node does about the assignment that it is given, as one table; and when it wants to join again, as one function.

Source: Kafka Connect's `WorkerCoordinator` (`needRejoin`; "it is the responsibility of the code driving this process to decide
how to react").
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

from holdfast.daemon.membership.division.assignment import Assignment, AssignmentError


class Situation(Enum):
    """What an assignment means to the member that gets it."""

    #: It can be carried out.
    GOOD = "good"
    #: It was made for more of the config topic than this node has read.
    BEHIND = "behind"
    #: The leader could not divide anything, or could not read this member.
    FAILED = "failed"
    #: Another member has our id, or says so.
    REFUSED = "refused"
    #: Its bytes are none.
    UNREADABLE = "unreadable"
    #: A later one has come already.
    OUTDATED = "outdated"


class Reaction(NamedTuple):
    """What a node does in a situation."""

    #: The map is shown to clients, and what moves elsewhere is given up.
    is_adopted: bool = False
    #: New log partitions and duties begin at once; otherwise when the config topic was read far enough.
    begins_at_once: bool = False
    #: The node serves what it has, and joins again after a pause.
    joins_again: bool = False


REACTIONS: Final[Mapping[Situation, Reaction]] = {
    Situation.GOOD: Reaction(is_adopted=True, begins_at_once=True),
    Situation.BEHIND: Reaction(is_adopted=True),
    Situation.FAILED: Reaction(joins_again=True),
    Situation.REFUSED: Reaction(joins_again=True),
    Situation.UNREADABLE: Reaction(joins_again=True),
    Situation.OUTDATED: Reaction(),
}

_BY_ERROR: Final[Mapping[AssignmentError, Situation]] = {
    AssignmentError.CONFIG_MISMATCH: Situation.FAILED,
    AssignmentError.NODE_ID_IN_USE: Situation.REFUSED,
    AssignmentError.METADATA_UNREADABLE: Situation.FAILED,
}


def judge(
    assignment: Assignment | None, config_offset: int, group_generation: int, newest_generation: int
) -> Situation:
    """Return what an assignment means.

    Args:
        assignment: None: its bytes are none.
        config_offset: up to which this node has read the config topic.
        group_generation: of the group, under which it was given.
        newest_generation: of the group, of the newest one given since this member has joined.
    """
    if group_generation < newest_generation:
        return Situation.OUTDATED
    if assignment is None:
        return Situation.UNREADABLE
    if assignment.error is not AssignmentError.NONE:
        return _BY_ERROR[assignment.error]
    return Situation.BEHIND if config_offset < assignment.config_offset else Situation.GOOD


def needs_rejoin(*, group_rebalances: bool, has_assignment: bool, has_failed: bool, is_requested: bool) -> bool:
    """Tell whether a member is to join again: the group says so, it has no assignment, that one failed, or somebody requests it."""
    return group_rebalances or not has_assignment or has_failed or is_requested
