"""A node that one broker does not answer: its group gives what that broker leads to members that reach it, and counts on it again."""

import pytest
from structlog.testing import capture_logs

from tests.pure.daemon.membership.world import PARTITIONS, Clock, Group, Member


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def group() -> Group:
    return Group()


async def test_what_a_node_cannot_reach_goes_to_another_one_at_once(clock: Clock, group: Group) -> None:
    a, b = Member(1, clock), Member(2, clock)
    await group.rebalance(a, b)
    assert (a.serving, b.serving) == ({1, 3}, {0, 2})
    said = b.coordinator.metadata()
    b.done()
    with capture_logs() as lines:
        b.coordinator.reach_changed(frozenset({1, 2}))
    assert [(line["event"], line["log_partitions"]) for line in lines] == [("log_out_of_reach", [1, 2])]
    clock.now_ms += 100
    assert b.coordinator.take_rejoin() == "log partitions [1, 2] are out of reach"
    assert b.coordinator.metadata() != said, "else the broker would answer with the generation that there is"
    b.serving.remove(2)  # it serves nothing that is out of reach
    await group.rebalance(a, b)
    assert (a.serving, b.serving) == ({1, 2, 3}, {0})
    assert b.done() == ["end [2]", "begin [0] under 2"], "nobody is to see it taken over"
    with capture_logs() as lines:
        b.coordinator.reach_changed(frozenset())
    assert [(line["event"], line["log_partitions"]) for line in lines] == [("log_in_reach_again", [1, 2])]
    clock.now_ms += 60_000
    assert b.coordinator.take_rejoin() == "log partitions [1, 2] are in reach again"
    await group.rebalance(a, b)
    assert len(b.serving) == 2
    assert a.view.map is not None
    assert sorted(task for each in a.view.map.members for task in each.work.tasks) == [*range(PARTITIONS)]


async def test_what_no_member_reaches_moves_nowhere(clock: Clock, group: Group) -> None:
    a, b = Member(1, clock), Member(2, clock)
    await group.rebalance(a, b)
    with capture_logs():
        for each in (a, b):
            each.coordinator.reach_changed(frozenset({0, 1}))
    await group.rebalance(a, b)
    assert (a.serving, b.serving) == ({1, 3}, {0, 2})
