"""Work that waits: for a node that is absent, and for a config topic that this node has not read far enough."""

import pytest

from holdfast.daemon.membership.division.metadata import decode_metadata
from holdfast.daemon.membership.division.ownership_map import FormerOwner
from tests.pure.daemon.membership.world import HANDOVER_MS, Clock, Config, Group, Member


@pytest.fixture
def clock() -> Clock:
    return Clock()


async def test_of_several_absent_nodes_the_leader_ends_the_wait_for_the_first_when_it_is_over(clock: Clock) -> None:
    group = Group()
    a, b, c, d = (Member(number, clock, rebalance_delay_ms=30_000) for number in (1, 2, 3, 4))
    await group.rebalance(a, b, c, d)
    await group.rebalance(a, b, c)
    clock.now_ms += 10_000
    await group.rebalance(a, b)
    assert a.view.map is not None
    assert {each.node_id: each.wait_ms for each in a.view.map.absent} == {3: 30_000, 4: 20_000}
    clock.now_ms += 20_000
    a.coordinator.tick()
    clock.now_ms += 100
    assert a.coordinator.take_rejoin() == "what absent nodes had has waited for rebalance_delay_ms"


async def test_who_waits_for_the_config_topic_says_that_it_may_come_to_serve_what_it_was_assigned(clock: Clock) -> None:
    group = Group()
    leader, late = Member(1, clock, Config(4)), Member(2, clock)
    await group.rebalance(leader)
    await group.rebalance(leader, late)
    assert late.holdings.waiting.tasks == (2, 3)
    said = decode_metadata(late.coordinator.metadata()[0][1])
    assert FormerOwner(late.node, (2, 3), HANDOVER_MS) in said.may_serve
