"""The faults of a life on the cluster, of brokers, connections, logs and processes; most of them end by themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.simulated import faults
from tests.simulated.cluster import wire
from tests.simulated.cluster.broker import Broker
from tests.simulated.cluster.node import ClusterNode
from tests.simulated.cluster.replicated import Partition
from tests.simulated.cluster.transport import Link
from tests.simulated.parts.node import EVERY_PARTITION

if TYPE_CHECKING:
    from tests.simulated.cluster.life import ClusterLife

Fault = Callable[["ClusterLife", ClusterNode], bool]

DURATIONS_S = (0.02, 0.2, 0.6, 1.2, 2.5, 5.0)


def _broker(life: ClusterLife) -> Broker:
    return life.random.choice([*life.world.cluster.brokers.values()])


def _partition(life: ClusterLife) -> Partition:
    cluster = life.world.cluster
    return cluster.topic.partition(life.random.randrange(len(cluster.topic.partitions)))


# ---- brokers ---------------------------------------------------------------------------------------------------------


def _freeze_broker(life: ClusterLife, node: ClusterNode) -> bool:
    broker, cluster = _broker(life), life.world.cluster
    if not broker.is_well:
        return False
    broker.is_frozen = True
    cluster.lose_sight(broker)

    def thaw() -> None:
        if broker.is_frozen:
            broker.thaw()
            cluster.timeline.after(life.random.choice((0.0, 0.05, 0.3)), lambda: life.mend(broker))

    life.for_a_while(thaw)
    return True


def _kill_broker(life: ClusterLife, node: ClusterNode) -> bool:
    broker, cluster = _broker(life), life.world.cluster
    if not broker.is_up:
        return False
    broker.die()
    cluster.lose_sight(broker)

    def start() -> None:
        broker.is_up, broker.is_cut_off = True, False
        cluster.lead_all()

    life.for_a_while(start)
    return True


def _cut_off(life: ClusterLife, node: ClusterNode) -> bool:
    broker, cluster = _broker(life), life.world.cluster
    if not broker.is_well or len(cluster.brokers) == 1:
        return False
    broker.is_cut_off = True
    cluster.lose_sight(broker)

    def join() -> None:
        broker.is_cut_off = False
        life.mend(broker)

    life.for_a_while(join)
    return True


def _slow_broker(life: ClusterLife, node: ClusterNode) -> bool:
    broker = _broker(life)
    broker.slowness = life.random.choice((5.0, 30.0, 300.0))

    def end() -> None:
        broker.slowness = 1.0

    life.for_a_while(end)
    return True


def _throttle(life: ClusterLife, node: ClusterNode) -> bool:
    broker = _broker(life)
    broker.throttle_ms = life.random.choice((50, 300, 1_500))

    def end() -> None:
        broker.throttle_ms = 0

    life.for_a_while(end)
    return True


def _few_replicas(life: ClusterLife, node: ClusterNode) -> bool:
    broker = _broker(life)
    broker.refuses = life.random.choice((wire.FEW_REPLICAS, wire.FEW_REPLICAS_AFTER_APPEND))
    broker.refusals_left = life.random.choice((1, 1, 3, 20))
    return True


def _evict_sessions(life: ClusterLife, node: ClusterNode) -> bool:
    broker = _broker(life)
    broker.drop_sessions()
    return True


def _keep_no_sessions(life: ClusterLife, node: ClusterNode) -> bool:
    broker = _broker(life)
    broker.keeps_sessions = not broker.keeps_sessions
    broker.drop_sessions()
    return not broker.keeps_sessions


# ---- connections -----------------------------------------------------------------------------------------------------


def _link(life: ClusterLife, node: ClusterNode) -> Link | None:
    links = [link for broker in life.world.cluster.brokers.values() for link in broker.links]
    busy = [link for link in links if link.is_handling]
    return life.random.choice(busy or links) if links else None


def _cut_connection(life: ClusterLife, node: ClusterNode) -> bool:
    link = _link(life, node)
    if link is not None:
        link.cut()
    return link is not None


def _lose_answers(life: ClusterLife, node: ClusterNode) -> bool:
    link = _link(life, node)
    if link is not None:
        link.is_mute = True
    return link is not None


# ---- the log ---------------------------------------------------------------------------------------------------------


def _move_leader(life: ClusterLife, node: ClusterNode) -> bool:
    partition, cluster = _partition(life), life.world.cluster
    if len([broker for broker in cluster.brokers.values() if broker.is_well]) < 2:
        return False
    cluster.elect(partition.index, keeps_all=life.random.random() < 0.5)
    cluster.spread()
    return True


def _stall_replication(life: ClusterLife, node: ClusterNode) -> bool:
    partition, cluster = _partition(life), life.world.cluster
    cluster.stalled.add(partition.index)

    def end() -> None:
        cluster.stalled.discard(partition.index)
        cluster.replicate_soon(cluster.topic.partition(partition.index))

    life.for_a_while(end)
    return True


def _damage_answers(life: ClusterLife, node: ClusterNode) -> bool:
    life.world.cluster.flips_left = life.random.choice((1, 1, 3))
    life.world.alarm_reasons.add(EVERY_PARTITION)
    return True


def _damage_log(life: ClusterLife, node: ClusterNode) -> bool:
    partition = _partition(life)
    if not partition.batches or not life.mends_damage:
        return False
    batch = life.random.choice(partition.batches[-6:])
    partition.damaged.add(batch.base_offset)
    life.world.alarm_reasons.add(partition.index)
    life.for_a_while(lambda: partition.damaged.discard(batch.base_offset))
    return True


def _foreign_record(life: ClusterLife, node: ClusterNode) -> bool:
    partition = _partition(life)
    if partition.leader < 0 or not any(life.world.truth_of(partition, partition.index).counts):
        return False
    partition.append_foreign(b"key", b"value", life.random.choice((None, b"\x01" + bytes(12))))
    life.world.cluster.replicate_soon(partition)
    return True


def _control_batch(life: ClusterLife, node: ClusterNode) -> bool:
    partition = _partition(life)
    if partition.leader < 0:
        return False
    partition.append_control()
    life.world.cluster.replicate_soon(partition)
    return True


def _lose_deletions(life: ClusterLife, node: ClusterNode) -> bool:
    life.world.cluster.deletions_lost += 1
    return True


def _fall_back(life: ClusterLife, node: ClusterNode) -> bool:
    partition = _partition(life)
    if partition.log_start_offset == 0 or not life.has_disasters:
        return False
    life.world.move_start_back(partition.index, life.random.randrange(partition.log_start_offset))
    return True


def _cut_by_others(life: ClusterLife, node: ClusterNode) -> bool:
    partition = _partition(life)
    if partition.high_watermark <= partition.log_start_offset + 1 or not life.has_disasters:
        return False
    cut = life.random.randrange(partition.log_start_offset + 1, partition.high_watermark + 1)
    life.world.cut_by_others(partition.index, cut)
    return True


def _lose_end(life: ClusterLife, node: ClusterNode) -> bool:
    partition = _partition(life)
    ends = [end for end in partition.ends(partition.log_start_offset) if end < partition.high_watermark]
    if not ends or not life.has_disasters or partition.leader < 0:
        return False
    life.world.lose_end(partition.index, life.random.choice(ends[-6:]))
    return True


def _recreate_topic(life: ClusterLife, node: ClusterNode) -> bool:
    if not life.has_disasters or life.world.topic.times_made > 1:
        return False
    life.world.recreate_topic()
    return True


# ---- processes -------------------------------------------------------------------------------------------------------


def _freeze_process(life: ClusterLife, node: ClusterNode) -> bool:
    process = node.process
    if node.is_dead or process.loop.is_frozen:
        return False
    process.freeze()

    def thaw() -> None:
        life.world.count("thaw")
        process.thaw()

    life.for_a_while(thaw)
    return True


def _when_running(fault: Callable[..., bool]) -> Fault:
    return lambda life, node: node.is_running and fault(life, node)


def _crash(life: ClusterLife, node: ClusterNode) -> bool:
    if node.is_dead:
        life.restart(node)
        return False
    node.crash()
    if not life.world.is_static and any(not each.is_dead for each in life.world.nodes):
        life.world.rebalance()
    return True


def _borrowed(name: str) -> Fault:
    return _when_running(faults.FAULTS[name])


FAULTS: dict[str, Fault] = {
    "broker frozen": _freeze_broker,
    "broker killed": _kill_broker,
    "broker cut off": _cut_off,
    "broker slow": _slow_broker,
    "broker throttles": _throttle,
    "too few replicas": _few_replicas,
    "fetch sessions evicted": _evict_sessions,
    "fetch sessions not kept": _keep_no_sessions,
    "connection cut": _cut_connection,
    "answers lost": _lose_answers,
    "leader moved": _move_leader,
    "replication stalled": _stall_replication,
    "answers damaged": _damage_answers,
    "log damaged": _damage_log,
    "foreign record": _foreign_record,
    "control batch": _control_batch,
    "deletion lost": _lose_deletions,
    "log start fell back": _fall_back,
    "cut by others": _cut_by_others,
    "end lost": _lose_end,
    "topic recreated": _recreate_topic,
    "process frozen": _freeze_process,
    "crash": _crash,
    "stop and start": _borrowed("stop and start"),
    "decide planted": _borrowed("decide planted"),
    "replay planted": _borrowed("replay planted"),
    "bug in the tail planted": _borrowed("bug in the tail planted"),
    "twin": _borrowed("twin"),
    "taken by an admin": _borrowed("taken by an admin"),
    "rebalance": _borrowed("rebalance"),
    "clean-up": _borrowed("clean-up"),
    "log distrusted": _borrowed("log distrusted"),
    "new metadata image": _borrowed("new metadata image"),
}
