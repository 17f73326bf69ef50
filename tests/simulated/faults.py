"""The faults of a life: each does something to a node or to the log and returns True, or returns False where it cannot."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.runtime.errors import Alarm
from tests.simulated.around import damage
from tests.simulated.around.readers import Groups
from tests.simulated.around.topics import Topics
from tests.simulated.memory_log import MemoryLog
from tests.simulated.parts.node import EVERY_PARTITION, Node
from tests.simulated.parts.requests import CleanUp
from tests.simulated.parts.snapshots import Snapshots

if TYPE_CHECKING:
    from tests.simulated.life import Life


def _crash(life: Life, node: Node) -> bool:
    if node.is_dead:
        life.restart(node)
        return False
    node.crash()
    if not life.world.is_static and len([n for n in life.world.nodes if not n.is_dead]) > 0:
        life.world.rebalance()
    return True


def _freeze(life: Life, node: Node) -> bool:
    if node.is_dead:
        return False
    node.log.is_frozen = not node.log.is_frozen
    if not node.log.is_frozen:
        life.world.count("thaw")
    return node.log.is_frozen


def _stop(life: Life, node: Node) -> bool:
    if not node.is_running:
        return False
    node.close()
    life.restart(node)
    return True


def _in_flight(life: Life, node: Node) -> tuple[MemoryLog, int] | None:
    """Return a producer with something in flight, dead ones included."""
    logs = [(log, index) for log in life.world.topic.logs for index, queue in log.in_flight.items() if queue]
    return life.random.choice(logs) if logs else None


def _report_failed(life: Life, node: Node) -> bool:
    for index, queue in node.log.in_flight.items():
        if any(not append.is_reported for append in queue):
            node.log.report_failed(index)
            return True
    return False


def _lose_append(life: Life, node: Node) -> bool:
    found = _in_flight(life, node)
    if found is not None:
        found[0].lose(found[1])
    return found is not None


def _double_append(life: Life, node: Node) -> bool:
    found = _in_flight(life, node)
    if found is not None:
        found[0].land(found[1], is_kept=True)
    return found is not None


def _partition(life: Life) -> int:
    return life.random.randrange(len(life.world.topic.partitions))


def _repeat(life: Life, node: Node) -> bool:
    index = _partition(life)
    partition = life.world.topic.partitions[index]
    offsets = [
        at for at in range(max(0, len(partition.records) - 10), len(partition.records)) if partition.records[at].header
    ]
    if offsets:
        life.world.topic.repeat(index, life.random.choice(offsets))
    return bool(offsets)


def _lose_uncommitted(life: Life, node: Node) -> bool:
    return bool(life.world.topic.lose_uncommitted(_partition(life)))


def _foreign(life: Life, node: Node) -> bool:
    index = _partition(life)
    partition = life.world.topic.partitions[index]
    # In front of the first checkpoint it would be an alarm for an admin.
    if not any(life.world.truth_of(partition, index).counts):
        return False
    life.world.topic.write_foreign(index, b"key", b"value", life.random.choice((None, b"\x01" + bytes(12))))
    return True


def _hole(life: Life, node: Node) -> bool:
    life.world.topic.write_hole(_partition(life))
    return True


def _replace_producer(life: Life, node: Node) -> bool:
    if not node.is_dead:
        node.log.replace_producer()
    return not node.is_dead


def _fail_reading(life: Life, node: Node) -> bool:
    index = _partition(life)
    if not node.is_running or node.log.reads(index) is None:
        return False
    node.log.fail_reading(index)
    return True


def _unknown_offsets(life: Life, node: Node) -> bool:
    if not node.is_running or not any(
        move.kind == "look up" and move.log is node.log for move in life.world.topic.moves()
    ):
        return False
    node.log.look_up(is_known=False)
    return True


def _refuse_deletion(life: Life, node: Node) -> bool:
    life.deletions_refused += 1
    return True


def _plant_decide(life: Life, node: Node) -> bool:
    node.plant("decide", 0)
    return True


def _plant_committed(life: Life, node: Node) -> bool:
    node.plant("committed", life.random.choice((0, 2)))
    return True


def _plant_replay(life: Life, node: Node) -> bool:
    node.plant("replay", life.random.choice((0, 0, 1)))
    return True


def _fill_queue(life: Life, node: Node) -> bool:
    is_full = node.log.queue_records_max == 0
    node.log.queue_records_max = life.world.queue_records_max if is_full else 0
    return not is_full


def _recreate_topic(life: Life, node: Node) -> bool:
    if life.world.topic.times_made > 1:
        return False
    life.world.recreate_topic()
    return True


def _twin(life: Life, node: Node) -> bool:
    if not life.world.is_static or len(life.world.nodes) > 3:
        return False
    life.world.start(node.name)
    return True


def _take(life: Life, node: Node) -> bool:
    index = _partition(life)
    if not life.world.is_static or not node.is_running or node.serves(index):
        return False
    node.runtime.take(index)
    return True


def _rebalance(life: Life, node: Node) -> bool:
    if life.world.is_static or all(node.is_dead for node in life.world.nodes):
        return False
    life.world.rebalance()
    return True


def _generation_falls(life: Life, node: Node) -> bool:
    """Let the group be forgotten by its coordinator, so that its generations begin again."""
    if life.world.is_static or life.world.generation < 3 or all(node.is_dead for node in life.world.nodes):
        return False
    life.world.generation = 0
    life.world.rebalance()
    return True


def _distrust(life: Life, node: Node) -> bool:
    if not node.is_running:
        return False
    if node.runtime.log_alarm is not None:
        node.runtime.trust_log()
        return False
    life.world.alarm_reasons.add(EVERY_PARTITION)
    node.runtime.distrust_log(Alarm("the topic's settings are not safe"))
    return True


def _new_image(life: Life, node: Node) -> bool:
    if node.is_running:
        node.learn_image()
    return node.is_running


def _clean_up(life: Life, node: Node) -> bool:
    index = _partition(life)
    if not node.is_running or not node.serves(index):
        return False
    node.write(index, CleanUp())
    return True


def _snapshots(fault: Callable[[Snapshots], bool]) -> Callable[[Life, Node], bool]:
    return lambda life, node: life.world.snapshots is not None and fault(life.world.snapshots)


def _fail_reading_snapshots(life: Life, node: Node) -> bool:
    index = _partition(life)
    if not node.is_running or node.snapshot_log is None or node.snapshot_log.reads(index) is None:
        return False
    node.snapshot_log.fail_reading(index)
    return True


def _topics(fault: Callable[[Topics], bool]) -> Callable[[Life, Node], bool]:
    return lambda life, node: fault(life.world.topics)


def _groups(fault: Callable[[Groups], bool]) -> Callable[[Life, Node], bool]:
    return lambda life, node: fault(life.world.groups)


FAULTS: dict[str, Callable[[Life, Node], bool]] = {
    "crash": _crash,
    "freeze": _freeze,
    "stop and start": _stop,
    "append reported as failed": _report_failed,
    "append lost": _lose_append,
    "append landed twice": _double_append,
    "record repeated": _repeat,
    "uncommitted records lost": _lose_uncommitted,
    "foreign record": _foreign,
    "hole": _hole,
    "producer died": _replace_producer,
    "reading failed": _fail_reading,
    "latest offset unknown": _unknown_offsets,
    "deletion refused": _refuse_deletion,
    "decide planted": _plant_decide,
    "replay planted": _plant_replay,
    "bug in the tail planted": _plant_committed,
    "queue full": _fill_queue,
    "topic recreated": _recreate_topic,
    "twin": _twin,
    "taken by an admin": _take,
    "rebalance": _rebalance,
    "generation fell": _generation_falls,
    "clean-up": _clean_up,
    "topic deleted": _topics(Topics.delete),
    "topic unclear": _topics(Topics.blur),
    "topics asked of another cluster": _topics(Topics.answer_elsewhere),
    "reader silent": _groups(Groups.fall_silent),
    "reader went back": _groups(Groups.go_back),
    "unreadable record": damage.unreadable_record,
    "end lost": damage.lose_end,
    "cut by others": damage.cut_by_others,
    "log start fell back": damage.fall_back,
    "partition added": damage.add_partition,
    "log distrusted": _distrust,
    "new metadata image": _new_image,
    "job killed": _snapshots(Snapshots.kill_job),
    "state of a job lost": _snapshots(Snapshots.lose_job_state),
    "snapshot topic compacted": _snapshots(Snapshots.compact),
    "entry corrupted": _snapshots(Snapshots.corrupt),
    "manifest forged": _snapshots(Snapshots.forge),
    "snapshot topic scribbled on": _snapshots(Snapshots.scribble),
    "snapshot topic unknown": _snapshots(Snapshots.vanish),
    "reading of snapshots failed": _fail_reading_snapshots,
}
