"""Bugs that the simulation found, told step by step."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from holdfast.runtime.states import State
from tests.simulated.world import World


def make_world(*, is_static: bool) -> World:
    world = World(Random(1))
    world.is_static = is_static
    return world


def run_until_quiet(world: World) -> None:
    for _ in range(1_000):
        moves: list[Callable[[], None]] = [move.make for move in world.topic.moves()[:1]]
        for node in world.nodes:
            if node.tasks:
                moves.append(node.tasks.popleft())
            elif node.views:
                moves.append(node.learn_view)
        if not moves:
            return
        for make in moves:
            make()
            world.settle(None)
    raise AssertionError("the world does not come to rest")


def test_a_node_that_was_told_to_take_what_it_serves_can_still_be_superseded() -> None:
    """`take` forgot the generation of the partition that it left alone; meeting a rival then raised."""
    world = make_world(is_static=True)
    first = world.start("a")
    run_until_quiet(world)
    first.runtime.take(0)
    second = world.start("b")
    run_until_quiet(world)
    held = first.partition(0)
    assert held is not None
    assert held.state is State.CLOSED
    assert second.serves(0)


def test_a_refresh_does_not_pass_the_bound_on_what_waits() -> None:
    """Every refresh that was not met yet waited beside as many writes as the setting allows."""
    world = make_world(is_static=True)
    world.parked_writes_max = 2
    node = world.start("a")
    run_until_quiet(world)
    assert [node.runtime.refresh(0) for _ in range(4)] == [True, True, False, False]
    run_until_quiet(world)
    assert node.runtime.refresh(0)
