"""Who is polled, when, and when that ends; and what Metadata says of a node."""

from __future__ import annotations

from collections.abc import Coroutine, Generator, Mapping
from typing import Any

from holdfast.daemon.membership.division.ownership_map import FormerOwner, MappedMember, OwnershipMap, Work
from holdfast.daemon.membership.handover.former_owners import FormerOwners
from holdfast.daemon.membership.handover.polls import Polls
from holdfast.daemon.server.cluster_view import Node

US, OLD, NEW = (Node(number, "h", 9000 + number) for number in (1, 2, 3))


class Pause:
    def __init__(self, ms: int) -> None:
        self.ms = ms

    def __await__(self) -> Generator[Pause, None, None]:
        yield self


class World:
    """Polls that a test steps (`Queries`)."""

    def __init__(self) -> None:
        self.now_ms = 0
        #: How long each query takes.
        self.query_ms = 0
        self.says: dict[Node, Mapping[int, int] | None] = {}
        self.queried: list[int] = []
        self.forgotten: list[int] = []
        self.polls_run: list[Coroutine[Any, Any, None]] = []
        self.former = FormerOwners(
            US,
            lambda _: False,
            word_age_max_ms=1_000,
            now_ms=lambda: self.now_ms,
            changed=lambda _: None,
        )
        self.polls = Polls(self.former, self, self.run, Pause, lambda: self.now_ms, interval_ms=200)
        self.former.adopt(OwnershipMap(1, (MappedMember("m", NEW, Work((0,))),), (), (FormerOwner(OLD, (0,), 10_000),)))

    async def query(self, node: Node) -> Mapping[int, int] | None:
        self.queried.append(node.node_id)
        self.now_ms += self.query_ms
        return self.says.get(node)

    def forget(self, node: Node) -> None:
        self.forgotten.append(node.node_id)

    def run(self, poll: Coroutine[Any, Any, None]) -> None:
        self.polls_run.append(poll)

    def step(self) -> list[int]:
        """Let each poll go on to its pause; returns who was queried."""
        self.queried.clear()
        for poll in [*self.polls_run]:
            try:
                assert poll.send(None).ms == 200
            except StopIteration:
                self.polls_run.remove(poll)
        return [*self.queried]


def test_a_former_owner_is_polled_at_once_and_until_it_serves_no_more() -> None:
    world = World()
    world.polls.begin()
    world.polls.begin()
    assert (world.step(), world.former.owner(0)) == ([2], None)
    world.says[OLD] = {0: 5}
    assert (world.step(), world.former.owner(0)) == ([2], OLD)
    assert world.step() == [2, 3]  # of the new owner it is wanted now when it serves
    world.says[OLD] = {}
    assert (world.step(), world.former.owner(0), world.forgotten) == ([2], None, [3])
    assert (world.step(), world.polls_run, world.forgotten) == ([], [], [3, 2])
    world.polls.begin()
    assert world.polls_run == []


def test_a_word_is_as_old_as_the_query_that_it_answers() -> None:
    world = World()
    world.query_ms, world.says[OLD] = 600, {0: 5}
    world.polls.begin()
    world.step()
    world.now_ms = 1_000
    assert world.former.owner(0) == OLD
    world.now_ms = 1_001
    assert world.former.owner(0) is None
    for poll in world.polls_run:
        poll.close()


def test_who_was_polled_before_is_polled_again_for_a_new_division() -> None:
    world = World()
    world.says[OLD] = {}
    world.polls.begin()
    assert (world.step(), world.step(), world.polls_run) == ([2], [], [])
    world.former.adopt(OwnershipMap(2, (MappedMember("m", NEW, Work((0,))),), (), (FormerOwner(OLD, (0,), 10_000),)))
    world.polls.begin()
    assert world.step() == [2]
