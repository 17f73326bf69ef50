"""The faults of lives of a gateway, as a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tests.simulated.gateway.node import GatewayNode
    from tests.simulated.gateway.world import GatewayWorld

_FREEZES_S = (0.5, 3.0, 20.0)


def _freeze(world: GatewayWorld, node: GatewayNode) -> bool:
    if node.loop.is_frozen:
        return False
    node.freeze()
    world.timeline.after(world.random.choice(_FREEZES_S), node.thaw)
    return True


def _freeze_and_take_over(world: GatewayWorld, node: GatewayNode) -> bool:
    return _take_over(world, node, is_frozen=True)


def _take_over(world: GatewayWorld, node: GatewayNode, *, is_frozen: bool = False) -> bool:
    mine = [index for index, (leader, _) in enumerate(world.leaders) if leader is node]
    if not mine or node.loop.is_frozen:
        return False
    others = [each for each in world.alive if each is not node and not each.loop.is_frozen]
    other = world.random.choice(others) if others else world.start_node()
    if is_frozen:
        _freeze(world, node)
    for index in mine if world.random.random() < 0.6 else mine[:1]:
        world.take_over(index, other, old_learns_s=world.random.choice((0.0, 0.0, 0.5, 20.0)))
    return True


def _take_again(world: GatewayWorld, node: GatewayNode) -> bool:
    """Lead under a new epoch, as after a failed load of the log partition."""
    for index, (leader, _) in enumerate(world.leaders):
        if leader is node:
            world.take_over(index, node)
            return True
    return False


def _kill(world: GatewayWorld, node: GatewayNode) -> bool:
    world.kill(node)
    return True


def _move_start(world: GatewayWorld, node: GatewayNode) -> bool:
    world.random.choice(world.logs).move_start()
    return True


def _compact(world: GatewayWorld, node: GatewayNode) -> bool:
    world.random.choice(world.logs).compact()
    return True


def _lose_end(world: GatewayWorld, node: GatewayNode) -> bool:
    world.random.choice(world.logs).lose_end()
    return True


def _fail_reading(world: GatewayWorld, node: GatewayNode) -> bool:
    readers = [*node.readers.values()]
    return bool(readers) and world.random.choice(readers).fail_one(world.random)


def _need_room(world: GatewayWorld, node: GatewayNode) -> bool:
    have_rested = [reader.need_room() for reader in node.readers.values()]
    return any(have_rested)


def _produce_much(world: GatewayWorld, node: GatewayNode) -> bool:
    for _ in range(20):
        world.random.choice(world.logs).produce()
    return True


def _trouble(world: GatewayWorld, node: GatewayNode) -> bool:
    before, world.trouble = world.trouble, 8.0
    world.timeline.after(3.0, lambda: setattr(world, "trouble", before))
    return True


#: Each tells whether it came about.
FAULTS: Final[dict[str, Callable[[GatewayWorld, GatewayNode], bool]]] = {
    "node frozen": _freeze,
    "node frozen, another leads": _freeze_and_take_over,
    "another node leads": _take_over,
    "new leader epoch": _take_again,
    "node killed": _kill,
    "log start moved": _move_start,
    "log compacted": _compact,
    "end of the log lost": _lose_end,
    "reading fails": _fail_reading,
    "room needed by others": _need_room,
    "burst of records": _produce_much,
    "trouble with states": _trouble,
}
