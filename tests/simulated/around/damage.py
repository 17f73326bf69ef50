"""What befalls a log in memory: each fault takes something away, or leaves something that nobody can read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulated.memory_log import MemoryPartition
from tests.simulated.parts.node import EVERY_PARTITION, Node
from tests.simulated.parts.world import UNREADABLE

if TYPE_CHECKING:
    from tests.simulated.life import Life


def _some(life: Life) -> tuple[int, MemoryPartition]:
    index = life.random.randrange(len(life.world.topic.partitions))
    return index, life.world.topic.partitions[index]


def _copy(partition: MemoryPartition, end: int, log_start: int) -> MemoryPartition:
    copy = MemoryPartition()
    copy.records, copy.origins = partition.records[:end], partition.origins[:end]
    copy.holes = {offset for offset in partition.holes if offset < end}
    copy.high_watermark, copy.log_start_offset = min(end, partition.high_watermark), log_start
    return copy


def unreadable_record(life: Life, node: Node) -> bool:
    """Append a record whose header nobody can read."""
    index, partition = _some(life)
    if not life.has_disasters or not any(life.world.truth_of(partition, index).counts):
        return False
    life.world.unreadable.setdefault(index, []).append(len(partition.records))
    header = life.random.choice((b"\x02" + bytes(12), b"\x03" + bytes(15)))
    life.world.topic.write_foreign(index, UNREADABLE, b"value", header)
    return True


def lose_end(life: Life, node: Node) -> bool:
    """Lose committed records at the end."""
    index, partition = _some(life)
    if not life.has_disasters or partition.high_watermark <= partition.log_start_offset:
        return False
    end = life.random.randrange(max(partition.log_start_offset, partition.high_watermark - 6), partition.high_watermark)
    if left := [offset for offset in life.world.unreadable.pop(index, ()) if offset < end]:
        life.world.unreadable[index] = left
    copy = _copy(partition, end, partition.log_start_offset)
    life.world.replace_log(index, copy, is_whole=not copy.log_start_offset)
    life.ends_lost.add(index)
    return True


def cut_by_others(life: Life, node: Node) -> bool:
    """Let another program delete records."""
    index, partition = _some(life)
    if not life.has_disasters or partition.high_watermark <= partition.log_start_offset:
        return False
    log_start = life.random.randint(partition.log_start_offset + 1, partition.high_watermark)
    life.world.foreign_cuts[index] = log_start
    life.world.replace_log(index, _copy(partition, len(partition.records), log_start), is_whole=False)
    return True


def fall_back(life: Life, node: Node) -> bool:
    """Let a log start where it started before; of one that another program cut, nothing says what it needs from there."""
    index, partition = _some(life)
    if not life.has_disasters or not partition.log_start_offset:
        return False
    log_start = life.random.randrange(partition.log_start_offset)
    is_whole = index not in life.world.foreign_cuts
    life.world.replace_log(index, _copy(partition, len(partition.records), log_start), is_whole=is_whole)
    return True


def add_partition(life: Life, node: Node) -> bool:
    """Add a log partition to the topic, which its checkpoints know nothing of."""
    topic = life.world.topic
    if not life.has_disasters or len(topic.partitions) > 2:
        return False
    topic.partitions.append(MemoryPartition())
    if life.world.snapshots is not None:
        life.world.snapshots.topic.partitions.append(MemoryPartition())
    life.world.alarm_reasons.add(EVERY_PARTITION)
    life.world.meet_partition(len(topic.partitions) - 1)
    return True
