"""What is assigned to a node, as its metrics show it: before the first assignment, after one, and after it was given up."""

from holdfast.daemon.membership.metrics import AssignmentMetrics
from holdfast.metrics.registry import Registry
from tests.pure.daemon.membership.world import Clock, Group, Member


async def test_what_is_assigned_is_shown_at_once_and_is_nothing_before_and_after_an_eager_revocation() -> None:
    clock, group = Clock(), Group()
    a, b = Member(1, clock, rebalance_protocol="eager"), Member(2, clock)
    registry = Registry()
    AssignmentMetrics(registry, a.holdings)

    def shown() -> list[float]:
        found = dict(registry.numbers())
        return [found[f"holdfast_{name}"] for name in ("assigned_tasks", "assigned_duties", "released_tasks")]

    assert shown() == [0, 0, 0]
    await group.rebalance(a)
    assert shown() == [4, 1, 0]
    await a.coordinator.on_join_prepare(1, a.id)
    assert shown() == [0, 0, 0]
    await group.rebalance(a)
    assert shown() == [4, 1, 0]

    # Under the cooperative protocol what moves is served until it is taken.
    c = Member(3, clock)
    AssignmentMetrics(registry := Registry(), c.holdings)
    await group.rebalance(c)
    await group.rebalance(c, b)
    assert shown() == [2, 1, 2]
