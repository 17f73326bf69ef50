"""What stands in a simulated node for the parts that are not simulated, and what listens at the doors of those that are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.daemon.pruning.pruner import Pruner
from holdfast.daemon.settings.models import PruningSettings
from holdfast.runtime.log_protocol import LogRecord
from holdfast.runtime.partition.lifecycle import Partition
from holdfast.runtime.partition.ownership import Ownership, Verdict
from holdfast.runtime.partition.restore_point import RestorePoint
from holdfast.runtime.settings import LogIdentity
from holdfast.share.snapshots.follower import SnapshotFollower
from tests.simulated.memory_log import Append, MemoryLog

if TYPE_CHECKING:
    from tests.simulated.parts.node import Node
    from tests.simulated.parts.snapshots import Snapshots

PRUNING = PruningSettings(
    pruning_dead_share=0.05,
    pruning_dead_bytes_min=0,
    pruning_check_interval_ms=100,
)


class NoMetrics:
    """Counts nothing."""

    def write_recorded(self, count: int) -> None:
        """Ignore it."""

    def write_latency(self, latency_ms: float) -> None:
        """Ignore it."""


class EagerPruner(Pruner):
    """The real pruner, for which a short log is worth a round too."""

    def bytes_dead(self) -> tuple[int, int]:
        """Return that all of the log is dead."""
        _, total = super().bytes_dead()
        return total, total


class CountingOwnership(Ownership):
    """The real judge of records, whose verdicts are counted."""

    __slots__ = ("_counts",)

    def __init__(self, counts: Counter[str]) -> None:
        super().__init__()
        self._counts = counts

    def judge(self, record: LogRecord) -> Verdict:
        """Judge and count."""
        verdict = super().judge(record)
        self._counts[f"verdict: {verdict.value}"] += 1
        return verdict


class WatchedSnapshotTopic:
    """The log of the snapshot topic of a node, which may know of no such topic."""

    def __init__(self, log: MemoryLog, snapshots: Snapshots) -> None:
        self._snapshots = snapshots
        self.start_reading = log.start_reading
        self.stop_reading = log.stop_reading

    def has_partition(self, partition: int) -> bool:
        """Tell whether the topic is known."""
        return not self._snapshots.is_missing


class FollowerHost:
    """The node as its follower of the snapshot topic sees it (`SnapshotHost`)."""

    def __init__(self, node: Node, remove: Callable[[int, bytes], bool]) -> None:
        self._node = node
        self.remove = remove
        self.now_ms = node.world.clock_ms
        self.continue_soon = node.continue_soon
        self.note = node.note

    @property
    def log_identity(self) -> LogIdentity:
        """Return which log it is."""
        return self._node.runtime.config.log

    @property
    def partitions(self) -> dict[int, Partition]:
        """Return the log partitions of the node."""
        return self._node.runtime.partitions

    def is_gone(self, topic_id: bytes) -> bool:
        """Tell that of another state topic, for there is one, made anew."""
        return topic_id != self.log_identity.topic_id

    def restore_point_found(self, partition: int, instance: int, point: RestorePoint | None) -> None:
        """Give a load what it restores from."""
        self._node.runtime.restore_point_found(partition, instance, point)


class WatchedRestorePoints:
    """The real finder of restore points, whose success is counted."""

    def __init__(self, follower: SnapshotFollower, count: Callable[[str], None]) -> None:
        self.find_restore_point = follower.find_restore_point
        self._follower = follower
        self._count = count

    def restore_point_judged(self, partition: int, offset: int, refusal: str) -> None:
        """Count what the log said."""
        self._count(f"restore point: {refusal.split(':')[0] or 'loaded'}")
        self._follower.restore_point_judged(partition, offset, refusal)


class WatchedLog:
    """The log of a node, which learns of every append."""

    def __init__(self, log: MemoryLog, on_append: Callable[[Append], None]) -> None:
        self._log = log
        self._on_append = on_append
        self.start_reading = log.start_reading
        self.stop_reading = log.stop_reading
        self.query_log_start = log.query_log_start
        self.query_latest_offsets = log.query_latest_offsets
        self.flush_if_all_wait = log.flush_if_all_wait
        self.delete_records = log.delete_records

    def append(self, partition: int, key: bytes, value: bytes | None, header: bytes) -> None:
        """Append, then tell who watches."""
        self._log.append(partition, key, value, header)
        self._on_append(self._log.in_flight[partition][-1])
