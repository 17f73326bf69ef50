"""Whose word about a log partition on its way is wanted, for how long it counts, and whose counts more."""

from typing import Final

from holdfast.daemon.membership.division.ownership_map import FormerOwner, MappedMember, OwnershipMap, Work
from holdfast.daemon.membership.handover.former_owners import FormerOwners
from holdfast.daemon.server.cluster_view import Node

US, OLD, NEW, OLDER = (Node(number, "h", 9000 + number) for number in (1, 2, 3, 4))
HANDOVER_MS: Final = 60_000
WORD_AGE_MS: Final = 1_000
NOBODY: Final = set[Node]()


class World:
    def __init__(self) -> None:
        self.now_ms = 5_000
        self.served: set[int] = set()
        self.changes: list[set[int]] = []
        self.former = FormerOwners(
            US,
            self.served.__contains__,
            word_age_max_ms=WORD_AGE_MS,
            now_ms=lambda: self.now_ms,
            changed=lambda tasks: self.changes.append(set(tasks)),
        )

    def adopt(self, *former: tuple[Node, tuple[int, ...]], taker: Node = NEW, tasks: tuple[int, ...] = (0, 1)) -> None:
        members = (MappedMember("m", taker, Work(tasks)),)
        self.former.adopt(OwnershipMap(1, members, (), tuple(FormerOwner(*each, HANDOVER_MS) for each in former)))

    def answered(self, node: Node, **epochs: int) -> None:
        self.former.answered(node, {int(task[1:]): epoch for task, epoch in epochs.items()}, self.now_ms)

    def owners(self) -> list[int | None]:
        found = [self.former.owner(task) for task in range(2)]
        return [None if node is None else node.node_id for node in found]


def test_a_former_owner_is_named_from_its_word_on_until_it_takes_it_back() -> None:
    world = World()
    world.adopt((OLD, (0, 1)))
    assert (world.owners(), world.former.to_query()) == ([None, None], {OLD})
    world.answered(OLD, p0=7, p1=7, p5=7)
    assert (world.owners(), world.former.confirmed) == ([2, 2], {0: OLD, 1: OLD})
    world.answered(OLD, p1=7)  # superseded in one
    assert (world.owners(), world.former.to_query()) == ([None, 2], {OLD, NEW})
    world.answered(OLD)
    assert (world.owners(), world.former.to_query()) == ([None, None], NOBODY)
    assert world.changes == [set(), {0, 1}, {1}, set()]


def test_who_is_to_have_it_and_loads_it_is_queried_on_and_not_named() -> None:
    world = World()
    world.adopt((OLD, (0,)))
    world.answered(OLD, p0=-1)
    assert (world.owners(), world.former.to_query()) == ([None, None], {OLD})
    world.answered(OLD, p0=7)
    world.answered(OLD, p0=-1)  # it failed, and loads again
    assert (world.owners(), world.former.to_query()) == ([None, None], {OLD})


def test_a_word_counts_for_a_bounded_time_from_when_the_query_left() -> None:
    world = World()
    world.adopt((OLD, (0,)))
    world.answered(OLD, p0=7)
    world.now_ms += WORD_AGE_MS
    assert world.owners() == [2, None]
    world.now_ms += 1
    assert (world.owners(), world.former.confirmed) == ([None, None], {})
    world.answered(OLD, p0=7)
    world.former.unanswered(OLD)
    assert (world.owners(), world.changes[-1]) == ([None, None], set())
    assert world.former.to_query() == {OLD}  # which may have been slow once


def test_nothing_is_queried_when_former_owners_have_given_up() -> None:
    world = World()
    world.adopt((OLD, (0,)))
    world.now_ms += HANDOVER_MS - 1
    world.answered(OLD, p0=7)
    assert (world.owners(), world.former.to_query()) == ([2, None], {OLD, NEW})
    world.now_ms += 1
    assert world.owners() == [None, None]
    assert (world.former.to_query(), world.changes[-1]) == (NOBODY, set())


def test_the_new_owner_says_when_it_is_over() -> None:
    world = World()
    world.adopt((OLD, (0, 1)))
    world.answered(OLD, p0=7, p1=7)
    world.answered(NEW, p0=-1, p1=8)  # it loads one, and serves the other
    assert (world.owners(), world.former.to_query()) == ([2, None], {OLD, NEW})
    world.answered(OLD, p0=7, p1=7)  # which has not read yet that it was superseded
    assert world.owners() == [2, None]


def test_a_new_owner_has_taken_it_under_a_higher_epoch_alone() -> None:
    world = World()
    world.adopt((OLD, (0,)))
    world.answered(OLD, p0=7)
    world.answered(NEW, p0=7)  # what it has read of the former owner, whom it has not superseded
    assert (world.owners(), world.former.to_query()) == ([2, None], {OLD, NEW})
    world.answered(NEW, p0=8)
    assert (world.owners(), world.former.to_query()) == ([None, None], NOBODY)


def test_of_two_former_owners_the_one_with_the_higher_epoch_has_superseded_the_other() -> None:
    world = World()
    world.adopt((OLD, (0, 1)), (OLDER, (0,)))
    world.answered(OLDER, p0=5)
    assert world.owners() == [4, None]
    world.answered(OLD, p0=6, p1=6)
    world.answered(OLDER, p0=5)
    assert world.owners() == [2, 2]
    world.answered(OLDER)
    assert world.owners() == [2, 2]
    world.answered(OLD)
    assert world.owners() == [None, None]
    # A word that is too old gives way.
    world.adopt((OLD, (0,)), (OLDER, (0,)))
    world.answered(OLD, p0=6)
    world.now_ms += WORD_AGE_MS + 1
    world.answered(OLDER, p0=5)
    assert world.owners() == [4, None]


def test_a_node_that_serves_queries_nobody_and_one_that_loads_does_not_query_itself() -> None:
    world = World()
    world.adopt((OLD, (0,)), (US, (1,)), taker=US)
    assert world.former.to_query() == {OLD}
    world.answered(OLD, p0=7)
    assert world.former.to_query() == {OLD}
    world.served.add(0)
    assert world.former.to_query() == NOBODY


def test_of_one_division_to_the_next_a_word_lasts_and_who_is_silent_is_passed_on() -> None:
    world = World()
    world.adopt((OLD, (0, 1)), (OLDER, (0,)))
    world.answered(OLD, p0=7, p1=7)
    world.former.unanswered(OLDER)
    world.now_ms += 10
    left = HANDOVER_MS - 10
    assert (world.former.waits_ms(0), world.former.waits_ms(5)) == ({OLD: left, OLDER: left}, {})
    world.adopt((OLD, (0,)), taker=OLDER)
    assert (world.owners(), world.changes[-1]) == ([2, None], {0})
    world.adopt((OLDER, (0,)))
    assert (world.owners(), world.former.waits_ms(0)) == ([None, None], {OLDER: HANDOVER_MS})
    world.former.drop()
    assert (world.former.to_query(), world.former.waits_ms(0)) == (NOBODY, {})


def test_each_former_owner_has_its_own_time() -> None:
    world = World()
    members = (MappedMember("m", NEW, Work((0, 1))),)
    former = (FormerOwner(OLD, (0,), 100), FormerOwner(OLD, (1,), 200), FormerOwner(OLDER, (0,), 200))
    world.former.adopt(OwnershipMap(1, members, (), former))
    world.answered(OLD, p0=7, p1=7)
    assert world.owners() == [2, 2]
    world.now_ms += 100
    assert (world.owners(), world.former.to_query()) == ([None, 2], {OLD, OLDER, NEW})
    world.now_ms += 100
    assert (world.owners(), world.former.to_query(), world.former.waits_ms(1)) == ([None, None], NOBODY, {})
