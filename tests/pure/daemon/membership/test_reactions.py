"""What a node does about an assignment: a row each; and when it wants to join again: all sixteen cases."""

from itertools import product

import pytest

from holdfast.daemon.membership.division.assignment import Assignment, AssignmentError
from holdfast.daemon.membership.division.ownership_map import OwnershipMap, Work
from holdfast.daemon.membership.reactions import REACTIONS, Reaction, Situation, judge, needs_rejoin
from holdfast.daemon.server.cluster_view import Node


def assignment(error: AssignmentError = AssignmentError.NONE, offset: int = 5) -> Assignment:
    return Assignment(error, "", "a", Node(1, "h", 1), offset, Work(), OwnershipMap(1, ()))


@pytest.mark.parametrize(
    ("found", "config_offset", "situation"),
    [
        (assignment(), 5, Situation.GOOD),
        (assignment(), 6, Situation.GOOD),
        (assignment(), 4, Situation.BEHIND),
        (assignment(AssignmentError.CONFIG_MISMATCH), 4, Situation.FAILED),
        (assignment(AssignmentError.METADATA_UNREADABLE), 5, Situation.FAILED),
        (assignment(AssignmentError.NODE_ID_IN_USE), 5, Situation.REFUSED),
        (None, 5, Situation.UNREADABLE),
    ],
)
def test_what_an_assignment_means(found: Assignment | None, config_offset: int, situation: Situation) -> None:
    assert judge(found, config_offset, 3, 3) is situation
    assert judge(found, config_offset, 4, 3) is situation
    assert judge(found, config_offset, 2, 3) is Situation.OUTDATED


@pytest.mark.parametrize(
    ("situation", "reaction"),
    [
        (Situation.GOOD, Reaction(is_adopted=True, begins_at_once=True, joins_again=False)),
        (Situation.BEHIND, Reaction(is_adopted=True, begins_at_once=False, joins_again=False)),
        (Situation.FAILED, Reaction(is_adopted=False, begins_at_once=False, joins_again=True)),
        (Situation.UNREADABLE, Reaction(is_adopted=False, begins_at_once=False, joins_again=True)),
        (Situation.OUTDATED, Reaction(is_adopted=False, begins_at_once=False, joins_again=False)),
        (Situation.REFUSED, Reaction(is_adopted=False, begins_at_once=False, joins_again=True)),
    ],
)
def test_the_reaction_to_each(situation: Situation, reaction: Reaction) -> None:
    assert REACTIONS[situation] == reaction
    assert len(REACTIONS) == len(Situation)


@pytest.mark.parametrize(
    ("group_rebalances", "has_assignment", "has_failed", "is_requested"), list(product((False, True), repeat=4))
)
def test_only_a_good_assignment_that_nobody_disputes_needs_no_rejoin(
    group_rebalances: bool, has_assignment: bool, has_failed: bool, is_requested: bool
) -> None:
    rests = (group_rebalances, has_assignment, has_failed, is_requested) == (False, True, False, False)
    assert (
        needs_rejoin(
            group_rebalances=group_rebalances,
            has_assignment=has_assignment,
            has_failed=has_failed,
            is_requested=is_requested,
        )
        is not rests
    )
