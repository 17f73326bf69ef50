"""What people are shown of the log partitions of a node, in `holdfast partitions`, `/ready` and `holdfast status`."""

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from holdfast.daemon.brokers.silence import named
from holdfast.daemon.partitions.own_view import find_winner
from holdfast.daemon.pruning.pruner import Pruner
from holdfast.daemon.server.cluster_view import Node
from holdfast.daemon.shards import Shards
from holdfast.kafka.addresses import format_address
from holdfast.runtime.partition.lifecycle import Partition
from holdfast.runtime.partition.states import State

_CUT_OFF: Final = "no broker that leads it answers"
#: What is said of every log partition, in this order.
_FIELDS: Final = (
    "partition",
    "state",
    "owner",
    "owner_address",
    "owner_epoch",
    "generation",
    "written",
    "committed",
    "log_start",
    "keys",
    "parked",
    "load_ms",
    "records_loaded",
    "void_records",
    "log_bytes",
    "dead_bytes",
    "oldest_key",
    "oldest_snapshot_offset",
    "why_not_pruned",
    "failure",
    "is_alarmed",
)


def describe_partition(partition: Partition, pruner: Pruner | None, shards: Shards, state: str) -> dict[str, Any]:
    """Return a log partition for people: owner, epoch, state, offsets, keys and what keeps the log from being pruned.

    `state` is its state as people see it, `pruner` None before it has served.
    """
    winner = partition.ownership.winner
    shard = shards.shard_of(partition.machine) if partition.state is State.ACTIVE else None
    oldest = None if shard is None else shard.oldest_snapshot()
    dead, total = pruner.bytes_dead() if pruner is not None else (0, 0)
    return {
        "partition": partition.index,
        "state": state,
        "owner": None if winner is None else winner.node_id,
        "owner_address": None if winner is None else winner.advertised_address,
        "owner_epoch": None if winner is None else winner.owner_epoch,
        "generation": None if winner is None else winner.generation,
        "written": partition.committed_offset + len(partition.parking.records),
        "committed": partition.committed_offset,
        "log_start": partition.log_start,
        "keys": None if shard is None else shard.key_count(),
        "parked": len(partition.parking),
        "load_ms": partition.reading.load_ended_ms - partition.reading.load_began_ms if shard is not None else None,
        "records_loaded": partition.reading.records_loaded,
        "void_records": partition.reading.void_records,
        "log_bytes": total,
        "dead_bytes": dead,
        "oldest_key": None if oldest is None else shards.format_key(oldest[0]),
        "oldest_snapshot_offset": None if oldest is None else oldest[1],
        "why_not_pruned": None if pruner is None else pruner.why_not_pruned(),
        "failure": partition.failure,
        "is_alarmed": partition.is_alarmed,
    }


def describe_readiness(
    index: int, partition: Partition | None, is_waiting: bool, *, is_cut_off: bool = False
) -> dict[str, Any]:
    """Return whether a log partition serves, for probes: its state, how far its load has read, and why it does not serve.

    The state is `serving`, `cut off` (it would serve, and no broker that leads it answers), `loading`, `waiting` (for its turn to load),
    `alarmed` (until an admin accepts), `failed` (and it loads again), `elsewhere` (another node took it) or `unloaded`.
    One that nothing was done for yet is None, and waits.
    """
    if partition is None:
        return {"partition": index, "state": "waiting", "records_read": None, "next_offset": None, "why": None}
    state, loading = partition.state, partition.state is State.LOADING
    reading = partition.reading
    if state is State.ACTIVE or loading:
        shown = "loading" if loading else "cut off" if is_cut_off else "serving"
    elif partition.is_alarmed:
        shown = "alarmed"
    elif is_waiting:
        shown = "waiting"
    elif state is State.FAILED:
        shown = "failed"
    else:
        shown = "unloaded" if find_winner(partition) is None else "elsewhere"
    return {
        "partition": index,
        "state": shown,
        "records_read": reading.records_read if loading else None,
        "next_offset": reading.position if loading else None,
        "why": partition.failure or (_CUT_OFF if shown == "cut off" else None),
    }


def describe_elsewhere(index: int, owner: Node | None, this_node: Node, generation: int) -> dict[str, Any]:
    """Return a log partition that is not this node's, in the form of `describe_partition`, by the map of the group.

    Its state is `elsewhere`; `unassigned` where no member has it, and `waiting` where this node is to have it and has not begun.
    What only its owner knows is None.
    """
    state = "unassigned" if owner is None else "waiting" if owner == this_node else "elsewhere"
    return {
        **dict.fromkeys(_FIELDS),
        "partition": index,
        "state": state,
        "owner": None if owner is None else str(owner.node_id),
        "owner_address": None if owner is None else format_address(owner.host, owner.port),
        "generation": generation,
        "is_alarmed": False,
    }


def superseded_by(partitions: Iterable[Partition]) -> list[dict[str, Any]]:
    """Return the nodes that took log partitions over: node id, advertised address, log partitions."""
    taken: dict[tuple[str, str], list[int]] = {}
    for partition in partitions:
        if (winner := find_winner(partition)) is not None:
            taken.setdefault((winner.node_id, winner.advertised_address), []).append(partition.index)
    return [
        {"node_id": node_id, "advertised_address": address or None, "log_partitions": indexes}
        for (node_id, address), indexes in sorted(taken.items())
    ]


def why_not_loaded(partitions: Iterable[Partition]) -> str:
    """Return how many log partitions do not serve, in which states, what the first failure says, and who took some over."""
    known = list(partitions)
    not_serving = [each for each in known if each.state is not State.ACTIVE]
    counts = Counter(each.state for each in not_serving)
    states = ", ".join(f"{count} {state.value}" for state, count in counts.items())
    failures = [each for each in not_serving if each.failure and find_winner(each) is None]
    failed = min(failures, key=lambda each: each.state is not State.FAILED, default=None)
    why = "" if failed is None else f"; log partition {failed.index}: {failed.failure}"
    for winner in superseded_by(known):
        where = f" at {winner['advertised_address']}" if winner["advertised_address"] else ""
        why += f"; node {winner['node_id']}{where} serves log partitions {named(winner['log_partitions'])}"
    return f"not every log partition serves ({states or 'none is known'}){why}"
