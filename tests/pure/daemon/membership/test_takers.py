"""The wait of a node that stops: for those that take over, as long as there are any; and by what its group knows it again."""

import pytest
from structlog.testing import capture_logs

from holdfast.daemon.membership.holdings import Takers
from tests.pure.daemon.membership.world import Clock, Group, Member
from tests.waiting import PATIENCE_MS


async def leaving() -> tuple[Member, Takers]:
    """Return a member that has let go log partitions 0 and 2, which it serves."""
    clock = Clock()
    a, b = Member(2, clock), Member(1, clock)
    await Group().rebalance(a, b)
    await a.coordinator.on_leave_prepare(1, a.id)
    assert a.holdings.released == [0, 2]
    return a, Takers(a.holdings)


async def test_it_ends_when_all_is_taken() -> None:
    node, takers = await leaving()
    untaken = [0, 2]

    async def has_members() -> bool:
        if untaken:
            node.taken(untaken.pop(), 2)
            takers.taken()
        return True

    with capture_logs() as lines:
        await takers.wait(has_members, PATIENCE_MS, 0)
    assert (node.holdings.released, lines) == ([], [])


async def test_it_ends_when_nobody_is_left_who_could_take_anything() -> None:
    _, takers = await leaving()
    answers = [True, True, False]

    async def has_members() -> bool:
        return answers.pop(0)

    with capture_logs() as lines:
        await takers.wait(has_members, PATIENCE_MS, 0)
    assert answers == []
    assert [(line["event"], line["log_partitions"]) for line in lines] == [("handover_unwanted", [0, 2])]


async def test_it_ends_when_the_time_is_over() -> None:
    _, takers = await leaving()

    async def has_members() -> bool:
        return True

    with capture_logs() as lines:
        await takers.wait(has_members, 1, PATIENCE_MS)
    assert [(line["event"], line["log_partitions"]) for line in lines] == [("handover_expired", [0, 2])]


async def test_a_query_that_fails_is_raised() -> None:
    _, takers = await leaving()

    async def has_members() -> bool:
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        await takers.wait(has_members, PATIENCE_MS, 0)


async def test_who_has_released_nothing_queries_nobody() -> None:
    async def has_members() -> bool:
        raise AssertionError("nobody is waited for")

    await Takers(Member(1, Clock()).holdings).wait(has_members, PATIENCE_MS, 0)
