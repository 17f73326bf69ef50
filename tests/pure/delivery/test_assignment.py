"""The assignment of partitions: Kafka's sizes, every partition, and no move that need not be."""

from collections import Counter
from collections.abc import Collection, Mapping
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.delivery.assignment import Assignment, Place, assign

A, B, C = (bytes([number]) * 16 for number in (1, 2, 3))
MEMBERS = [f"m{number}" for number in range(9)]

members_of_a_group = st.lists(st.sampled_from(MEMBERS), min_size=1, unique=True)
counts = st.integers(1, 10)


def kafkas_sizes(member_count: int, place_count: int) -> list[int]:
    """Return what `SimpleHomogeneousAssignmentBuilder` gives its members, in order of size."""
    shared = -(-member_count // place_count) * place_count
    ends = [-(-number * shared // member_count) for number in range(member_count + 1)]
    return sorted(end - start for start, end in pairwise(ends))


def share(members: Collection[str], count: int, before: Mapping[str, Collection[Place]]) -> Assignment:
    return assign({member: [A] for member in members}, {A: count}, before)


def moves(before: Mapping[str, Collection[Place]], after: Assignment) -> int:
    """Return how many places members got that they had not."""
    return sum(len(set(places).difference(before.get(member, ()))) for member, places in after.items())


def check_shared(assignment: Assignment, members: Collection[str], places: Collection[Place]) -> None:
    """Check that each place has its holders, and each member Kafka's number of places."""
    holders = Counter(place for mine in assignment.values() for place in mine)
    assert holders == dict.fromkeys(places, -(-len(members) // len(places)))
    assert sorted(map(len, assignment.values())) == kafkas_sizes(len(members), len(places))


@pytest.mark.parametrize(
    ("member_count", "place_count", "sizes"),
    [
        (1, 4, [4]),
        (2, 5, [2, 3]),
        (4, 4, [1, 1, 1, 1]),
        (5, 3, [1, 1, 1, 1, 2]),
        (8, 3, [1, 1, 1, 1, 1, 1, 1, 2]),
        (3, 1, [1, 1, 1]),
        (7, 4, [1, 1, 1, 1, 1, 1, 2]),
    ],
)
def test_sizes_are_kafkas(member_count: int, place_count: int, sizes: list[int]) -> None:
    assignment = share(MEMBERS[:member_count], place_count, {})
    assert sorted(map(len, assignment.values())) == sizes == kafkas_sizes(member_count, place_count)


@given(st.lists(st.tuples(members_of_a_group, counts), min_size=1, max_size=5))
def test_group_that_changes_stays_balanced_and_then_still(changes: list[tuple[list[str], int]]) -> None:
    assignment: Assignment = {}
    for members, count in changes:
        assignment = share(members, count, assignment)
        check_shared(assignment, members, [(A, partition) for partition in range(count)])
        assert share(list(reversed(members)), count, assignment) == assignment


@given(members_of_a_group, counts, st.dictionaries(st.sampled_from(MEMBERS), st.sets(st.integers(0, 12))))
def test_any_assignment_before_becomes_a_balanced_one(
    members: list[str], count: int, before: dict[str, set[int]]
) -> None:
    held = {member: {(A, partition) for partition in mine} | {(B, 0)} for member, mine in before.items()}
    check_shared(share(members, count, held), members, [(A, partition) for partition in range(count)])


def test_place_that_only_its_own_member_could_take_is_exchanged() -> None:
    after = share(["m0", "m1", "m2"], 2, {"m2": [(A, 1)]})
    check_shared(after, after.keys(), [(A, 0), (A, 1)])
    assert after["m2"] == {(A, 0), (A, 1)}


def test_member_with_too_many_gives_up_a_place_that_another_has() -> None:
    before = {"m1": [(A, 0), (A, 1), (A, 2)], "m0": [(A, 2), (A, 3)]}
    assert moves(before, share(["m0", "m1"], 4, before)) == 0


@given(st.integers(2, 9), st.integers(9, 40), st.data())
def test_member_that_leaves_moves_only_what_it_had(member_count: int, place_count: int, data: st.DataObject) -> None:
    members = MEMBERS[:member_count]
    before = share(members, place_count, {})
    gone = data.draw(st.sampled_from(members))
    after = share([member for member in members if member != gone], place_count, before)
    assert moves(before, after) == len(before[gone])
    assert all(before[member] <= after[member] for member in after)


@given(st.integers(1, 8), st.integers(9, 40))
def test_member_that_joins_gets_its_part_and_nobody_else_gets_any(member_count: int, place_count: int) -> None:
    before = share(MEMBERS[:member_count], place_count, {})
    # The name comes first, so that no number of a member is what it was.
    after = share(["a", *MEMBERS[:member_count]], place_count, before)
    assert moves(before, after) == len(after["a"])


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9))
def test_partitions_that_come_move_no_others(member_count: int, more: int, times: int) -> None:
    members, count = MEMBERS[:member_count], member_count * times
    before = share(members, count, {})
    after = share(members, count + more, before)
    assert all(before[member] <= after[member] for member in members)


@given(st.dictionaries(st.sampled_from(MEMBERS), st.sets(st.sampled_from([A, B, C])), min_size=1), counts, counts)
def test_each_topic_is_shared_among_its_subscribers(
    subscriptions: dict[str, set[bytes]], count_a: int, count_b: int
) -> None:
    partitions = {A: count_a, B: count_b}  # C is not there yet
    assignment = assign(subscriptions, partitions, {})
    assert assign(subscriptions, partitions, assignment) == assignment
    assert assignment.keys() == subscriptions.keys()
    known = {member: topics - {C} for member, topics in subscriptions.items()}
    assert all(place[0] in known[member] for member, mine in assignment.items() for place in mine)
    if all(topics == {A, B} for topics in known.values()):
        places = [(topic, partition) for topic in (A, B) for partition in range(partitions[topic])]
        check_shared(assignment, list(known), places)
        return
    if len({frozenset(topics) for topics in known.values()}) == 1:
        return
    for topic in (A, B):
        members = [member for member, topics in known.items() if topic in topics]
        if members:
            of_topic = {
                member: frozenset(place for place in assignment[member] if place[0] == topic) for member in members
            }
            check_shared(of_topic, members, [(topic, partition) for partition in range(partitions[topic])])


def test_member_with_little_of_other_topics_gets_the_odd_partition() -> None:
    topics = [bytes([number]) * 16 for number in range(10)]
    subscriptions = {"a": topics, "b": topics, "c": [A]}
    assignment = assign(subscriptions, dict.fromkeys(topics, 3), {})
    assert abs(len(assignment["a"]) - len(assignment["b"])) <= 1


def test_nobody_and_nothing_are_assigned_nothing() -> None:
    assert assign({}, {A: 3}, {"m": [(A, 0)]}) == {}
    assert assign({"m": [A]}, {}, {"m": [(A, 0)]}) == {"m": frozenset()}
    assert assign({"m": [A], "n": [B]}, {A: 0, B: 1}, {}) == {"m": frozenset(), "n": {(B, 0)}}


def test_topics_in_common_are_spread_over_members_as_one() -> None:
    topics = [bytes([number]) * 16 for number in range(6)]
    assignment = assign(dict.fromkeys(("a", "b", "c"), topics), dict.fromkeys(topics, 1), {})
    assert [len(mine) for mine in assignment.values()] == [2, 2, 2]
