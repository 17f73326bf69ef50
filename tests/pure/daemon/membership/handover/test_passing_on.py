"""From one division to the next: who may still serve what, as members tell whoever leads."""

import pytest

from tests.pure.daemon.membership.world import HANDOVER_MS, Clock, Group, Member


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def group() -> Group:
    return Group()


async def test_a_leader_that_is_new_learns_from_the_members_who_may_serve_what(clock: Clock, group: Group) -> None:
    a, b, c, d = (Member(node_id, clock) for node_id in (1, 2, 3, 4))
    await group.rebalance(a)
    await group.rebalance(a, b)
    await group.rebalance(c, a, leader=c)  # b is killed while it loads what is on its way from a
    assert c.view.map is not None
    # What a serves and is not to have any more, nobody but a says.
    moved = {task for each in c.view.map.former if each.node == a.node for task in each.tasks}
    assert moved == {task for task in range(4) if c.view.map.owner(task) != a.node} != set()
    b.serving.clear()
    await group.rebalance(a, b)
    await group.rebalance(d, b, leader=d)  # a has left
    assert d.view.map is not None
    assert {each.node for each in d.view.map.former} >= {a.node}


async def test_who_is_silent_in_a_hand_over_is_passed_on_until_its_time_is_over(clock: Clock, group: Group) -> None:
    a, b, c = (Member(node_id, clock) for node_id in (1, 2, 3))
    await group.rebalance(a)
    await group.rebalance(a, b)
    b.serving.clear()  # it loads
    b.former.unanswered(a.node)  # which may be slow for once
    clock.now_ms += 1_000
    await group.rebalance(b, c)  # a has lost its session
    assert c.view.map is not None
    left = {task: each.wait_ms for each in c.view.map.former if each.node == a.node for task in each.tasks}
    assert left == {0: HANDOVER_MS, 1: HANDOVER_MS, 2: HANDOVER_MS - 1_000, 3: HANDOVER_MS - 1_000}
    c.serving.clear()
    b.former.unanswered(a.node)
    clock.now_ms += HANDOVER_MS - 1_000
    await group.rebalance(b, c)
    assert c.view.map is not None
    assert {task for each in c.view.map.former if each.node == a.node for task in each.tasks} == {0, 1}


async def test_the_time_of_a_hand_over_begins_behind_the_wait_for_an_absent_node(clock: Clock, group: Group) -> None:
    delay_ms = 3 * HANDOVER_MS
    a, b = (Member(node_id, clock, rebalance_delay_ms=delay_ms) for node_id in (1, 2))
    await group.rebalance(a, b)
    assert a.view.map is not None
    had = {task for task in range(4) if a.view.map.owner(task) == a.node}
    await group.rebalance(b, leader=b)  # a has lost its session, and serves on
    for _ in range(3):
        clock.now_ms += HANDOVER_MS
        b.former.to_query()  # which forgets whose time is over
        assert b.view.map is not None
        is_over = clock.now_ms >= delay_ms
        await group.rebalance(b, leader=b)
        assert {task for task in had if b.view.map.owner(task) is None} == (set() if is_over else had)
        assert [(each.node, {*each.tasks}, each.wait_ms) for each in b.view.map.former] == [(a.node, had, HANDOVER_MS)]
