"""What goes wrong in a life of a group: each fault does something and returns True, or returns False where it cannot."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.simulated.group.brokers import BROKERS
from tests.simulated.parts.node import Node

if TYPE_CHECKING:
    from tests.simulated.group.life import GroupLife

NODES_MIN, NODES_MAX = 2, 5
NAMES = "abcdefgh"


def _crash(life: GroupLife, node: Node) -> bool:
    if not life.world.member_of(node).is_alive:
        return False
    node.crash()
    return True


def _crash_and_restart(life: GroupLife, node: Node) -> bool:
    _crash(life, node)
    life.restart(node)
    return True


def _freeze(life: GroupLife, node: Node) -> bool:
    if not life.world.member_of(node).is_alive or node.log.is_frozen:
        return False
    life.freeze(node)
    return True


def _thaw(life: GroupLife, node: Node) -> bool:
    if not node.log.is_frozen or not life.world.member_of(node).is_alive:
        return False
    life.thaw(node)
    return True


def _stop(life: GroupLife, node: Node) -> bool:
    member = life.world.member_of(node)
    if not node.is_running or member.is_leaving:
        return False
    member.stop()
    return True


def _stop_all(life: GroupLife, node: Node) -> bool:
    return sum(_stop(life, each) for each in life.world.nodes) > 0


def _kill_all(life: GroupLife, node: Node) -> bool:
    return sum(_crash(life, each) for each in life.world.nodes) > 0


def leave_for_good(life: GroupLife, node: Node) -> bool:
    """Lose a node that nobody starts again."""
    world = life.world
    if len(world.nodes) <= NODES_MIN or not world.member_of(node).is_alive:
        return False
    node.crash()
    world.nodes.remove(node)
    world.former.append(node)
    return True


def _start_another(life: GroupLife, node: Node) -> bool:
    name = next((name for name in NAMES if name not in life.world.members), "")
    if not name or len(life.world.nodes) >= NODES_MAX:
        return False
    life.world.start(name)
    return True


def _cut(life: GroupLife, one: str, other: str) -> bool:
    pair = frozenset((one, other))
    if pair in life.world.network.cuts:
        return False
    life.world.network.cuts.add(pair)
    return True


def _cut_from_coordinator(life: GroupLife, node: Node) -> bool:
    coordinator = life.world.brokers.coordinator
    return coordinator is not None and _cut(life, node.name, coordinator)


def _cut_from_broker(life: GroupLife, node: Node) -> bool:
    return _cut(life, node.name, life.random.choice(BROKERS))


def _cut_from_node(life: GroupLife, node: Node) -> bool:
    other = life.random.choice(life.world.processes)
    return other.name != node.name and _cut(life, node.name, other.name)


def _cut_from_log(life: GroupLife, node: Node) -> bool:
    return _cut(life, node.name, "log")


def _isolate(life: GroupLife, node: Node) -> bool:
    others = [each.name for each in life.world.processes if each.name != node.name]
    return sum(_cut(life, node.name, party) for party in (*BROKERS, *others, "log")) > 0


def _heal(life: GroupLife, node: Node) -> bool:
    was_cut = bool(life.world.network.cuts)
    life.world.network.cuts.clear()
    return was_cut


def _clock_jumps(life: GroupLife, node: Node) -> bool:
    life.world.member_of(node).ahead_ms += life.random.choice((500, 2_000, 5_000, 60_000))
    return True


def _dawdle(life: GroupLife, node: Node) -> bool:
    network = life.world.network
    network.dawdling = 0.0 if network.dawdling else life.random.choice((0.1, 0.4))
    return network.dawdling > 0


def _move_group(life: GroupLife, node: Node) -> bool:
    life.world.brokers.move()
    return True


def _move_group_unknown(life: GroupLife, node: Node) -> bool:
    """Let another broker coordinate, and the former one go on as if it still did."""
    life.world.brokers.move(is_known=False)
    return True


def _lose_group(life: GroupLife, node: Node) -> bool:
    life.world.brokers.lose()
    return True


def _forget_group(life: GroupLife, node: Node) -> bool:
    return life.world.brokers.forget()


def _freeze_broker(life: GroupLife, node: Node) -> bool:
    brokers = life.world.brokers
    if brokers.frozen:
        brokers.frozen.clear()
        return False
    brokers.frozen.add(life.random.choice(BROKERS))
    return True


def _write_config(life: GroupLife, node: Node) -> bool:
    life.world.config.write()
    return True


def _compact_config(life: GroupLife, node: Node) -> bool:
    return life.world.config.compact()


def _recreate_config(life: GroupLife, node: Node) -> bool:
    return life.world.config.recreate()


def _fail_config(life: GroupLife, node: Node) -> bool:
    if not node.is_running:
        return False
    life.world.member_of(node).config.fail("the broker is gone")
    return True


def _stall_config(life: GroupLife, node: Node) -> bool:
    """Let a node read no more of the config topic, in which something is written; for a while, or until it may again."""
    config = life.world.member_of(node).config
    config.is_stalled = not config.is_stalled
    if config.is_stalled:
        life.world.config.write()
        stall_ms = life.random.choice((0, 300, 600, 2_000))
        if stall_ms:
            life.world.network.after(stall_ms, config.go_on)
    return config.is_stalled


def _plant(callback: str) -> Callable[[GroupLife, Node], bool]:
    def plant(life: GroupLife, node: Node) -> bool:
        life.world.member_of(node).planted = callback
        return True

    return plant


def _request_rejoin(life: GroupLife, node: Node) -> bool:
    member = life.world.member_of(node)
    if not node.is_running or member.is_leaving:
        return False
    member.request_rejoin("somebody wants it")
    return True


def _request_rejoin_while_joining(life: GroupLife, node: Node) -> bool:
    life.world.member_of(node).wishes_while_joining = True
    return True


def _another_takes(life: GroupLife, node: Node) -> bool:
    """Let a node write a checkpoint of a generation far above the group's, as a static node does that an admin starts."""
    return life.take_from_outside()


def _static_instead(life: GroupLife, node: Node) -> bool:
    """Start a static node where no member lives any more."""
    if _has_static(life):
        return False
    (_stop_all if life.random.random() < 0.5 else _kill_all)(life, node)
    life.pass_time(life.random.choice((0, 5_000)))
    if any(life.world.member_of(each).is_alive for each in life.world.nodes):
        return False
    life.world.start_static()
    return True


def _static_beside(life: GroupLife, node: Node) -> bool:
    """Start a static node beside members, as nobody should."""
    if _has_static(life):
        return False
    life.world.start_static()
    return True


def end_static(life: GroupLife, node: Node) -> bool:
    """Stop the static node, or let it crash."""
    static = life.world.static
    if static is None or not static.is_alive or static.log.is_frozen:
        return False
    (static.close if life.random.random() < 0.5 else static.crash)()
    return True


def _has_static(life: GroupLife) -> bool:
    return life.world.static is not None and life.world.static.is_alive


def _report_failed(life: GroupLife, node: Node) -> bool:
    for index, queue in node.log.in_flight.items():
        if any(not append.is_reported for append in queue):
            node.log.report_failed(index)
            return True
    return False


def _lose_append(life: GroupLife, node: Node) -> bool:
    for index, queue in node.log.in_flight.items():
        if queue:
            node.log.lose(index)
            return True
    return False


FAULTS: dict[str, Callable[[GroupLife, Node], bool]] = {
    "crash": _crash,
    "crash and restart": _crash_and_restart,
    "freeze": _freeze,
    "thawed": _thaw,
    "stop": _stop,
    "all stopped": _stop_all,
    "all killed": _kill_all,
    "gone for good": leave_for_good,
    "another node": _start_another,
    "cut off from the coordinator": _cut_from_coordinator,
    "cut off from a broker": _cut_from_broker,
    "cut off from a node": _cut_from_node,
    "cut off from the log": _cut_from_log,
    "isolated": _isolate,
    "healed": _heal,
    "clock jumps": _clock_jumps,
    "messages dawdle": _dawdle,
    "group moves": _move_group,
    "group moves, and the former coordinator does not know": _move_group_unknown,
    "group lost": _lose_group,
    "group forgotten": _forget_group,
    "broker frozen": _freeze_broker,
    "config written": _write_config,
    "config compacted": _compact_config,
    "config recreated": _recreate_config,
    "config unreadable": _fail_config,
    "config stalled": _stall_config,
    "prepare planted": _plant("on_join_prepare"),
    "perform planted": _plant("perform_assignment"),
    "complete planted": _plant("on_join_complete"),
    "rejoin requested": _request_rejoin,
    "rejoin requested while joining": _request_rejoin_while_joining,
    "taken from outside": _another_takes,
    "static node instead of the group": _static_instead,
    "static node beside the group": _static_beside,
    "static node ends": end_static,
    "append reported as failed": _report_failed,
    "append lost": _lose_append,
}
