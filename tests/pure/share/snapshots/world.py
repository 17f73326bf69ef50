"""The follower of the snapshot topic and its verifier over the log in memory, with a job that folds a log, and the owner of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import cast

from holdfast.metrics.registry import Registry
from holdfast.records.share.snapshot_store.folding import NEW, fold
from holdfast.runtime.partition.restore_point import RestorePoint
from holdfast.runtime.partition.states import State
from holdfast.runtime.settings import LogIdentity
from holdfast.share.decisions import ShareShard
from holdfast.share.snapshots.follower import Bounds, SnapshotFollower
from holdfast.share.snapshots.metrics import SnapshotMetrics
from holdfast.share.snapshots.restore import Refusal
from holdfast.share.snapshots.verifier import RemovalRefused, SnapshotHost, SnapshotVerifier
from tests.configs import shard_config
from tests.pure.records.logs import (
    LOG_PARTITION,
    PARTITION_COUNT,
    STATE_TOPIC_ID,
    DictStore,
    LogWriter,
    write_log,
)
from tests.simulated.memory_log import MemoryTopic

READ_TIMEOUT_MS = 1_000


class Owned:
    """A log partition as its owner has it: what the follower looks at."""

    def __init__(self, log: LogWriter) -> None:
        self.index = LOG_PARTITION
        self.state = State.ACTIVE
        self.log_start = log.log_start
        self.committed_offset = len(log.records)
        self.committed_sequence = 0
        self.machine = ShareShard(shard_config())
        for record in log.kept():
            if record.key is not None and record.key[:2] != (1000).to_bytes(2, "big"):
                self.machine.load_record(record.key, record.value, record.offset)
        self.machine.fold_loaded(lambda: False)


class World:
    """A follower, what it was told and what it answered."""

    def __init__(self, bytes_max: int = 1 << 30, removals_per_second_max: int = 1_000_000) -> None:
        self.topic = MemoryTopic(PARTITION_COUNT)
        self.log = self.topic.open_log()
        self.time_ms = 0
        self.tasks: deque[Callable[[], None]] = deque()
        self.lines: list[tuple[str, str, dict[str, object]]] = []
        self.answers: list[tuple[int, int, RestorePoint | None]] = []
        self.removed: list[bytes] = []
        self.gone: set[bytes] = set()  #: other state topics
        self.is_gone = lambda topic_id: topic_id in self.gone
        self.is_known = True
        self.refuses = False
        self.partitions: dict[int, Owned] = {}
        self.log_identity = LogIdentity("cluster", STATE_TOPIC_ID, PARTITION_COUNT)
        self.metrics = SnapshotMetrics(Registry())
        host = cast("SnapshotHost", self)  # its partitions are as much of a partition as is looked at
        self.follower = SnapshotFollower(
            self,
            Bounds(READ_TIMEOUT_MS, bytes_max, 0),
            host,
            self.metrics,
            SnapshotVerifier(host, self.metrics, removals_per_second_max, 1),
        )
        self.log.start(self.follower)
        self.start_reading = self.log.start_reading
        self.stop_reading = self.log.stop_reading

    def has_partition(self, partition: int) -> bool:
        return self.is_known

    def now_ms(self) -> int:
        return self.time_ms

    def continue_soon(self, task: Callable[[], None]) -> None:
        self.tasks.append(task)

    def restore_point_found(self, partition: int, instance: int, point: RestorePoint | None) -> None:
        self.answers.append((partition, instance, point))

    def note(self, level: str, event: str, fields: dict[str, object]) -> None:
        self.lines.append((level, event, fields))

    def remove(self, partition: int, key: bytes) -> bool:
        assert partition == LOG_PARTITION
        if self.refuses:
            raise RemovalRefused("no such partition")
        self.removed.append(key)
        self.topic.write_foreign(partition, key, None, None)
        return True

    def write(self, key: bytes, value: bytes | None) -> None:
        self.topic.write_foreign(LOG_PARTITION, key, value, None)

    def ask(self, log_start: int = 0) -> None:
        self.follower.find_restore_point(LOG_PARTITION, 7, log_start)

    def settle(self) -> None:
        """Let everything happen that can."""
        while self.topic.run_until_quiet() or self.tasks:
            while self.tasks:
                self.tasks.popleft()()

    def pass_time(self, time_ms: int) -> None:
        self.time_ms += time_ms
        self.follower.tick(self.time_ms)
        self.settle()

    def refused(self) -> dict[Refusal, int]:
        return {refusal: counter.value for refusal, counter in self.metrics.refusals.items() if counter.value}


class Job:
    """A job over one log."""

    def __init__(self, world: World, log: LogWriter) -> None:
        self.world = world
        self.log = log
        self.mark, self.store = NEW, DictStore()

    def run(self) -> list[bytes]:
        """Fold what is new and write it; returns the keys."""
        done = self.mark.next_offset or 0
        records = self.log.records[max(done, self.log.log_start) :]
        folded = fold(STATE_TOPIC_ID, LOG_PARTITION, PARTITION_COUNT, self.mark, self.store, records)
        self.mark = folded.mark
        messages = [*folded.entries, *([folded.manifest] if folded.manifest else [])]
        for message in messages:
            self.world.write(*message)
        return [key for key, _ in messages]


def some_log(moves: int = 20) -> LogWriter:
    return write_log(3, ["write"] * moves)


def followed(world: World, log: LogWriter) -> Job:
    """Return a job whose first batch is read, in a world that serves the partition."""
    job = Job(world, log)
    job.run()
    world.ask(log.log_start)
    world.settle()
    world.partitions[LOG_PARTITION] = Owned(log)
    world.pass_time(1_000)
    return job


def grow(world: World, log: LogWriter, job: Job, writes: int = 1) -> None:
    """Let the log grow and the job fold that; the owner has read it all, and looks at it with the time that passes next."""
    for _ in range(writes):
        log.do("write")
    job.run()
    world.settle()
    world.partitions[LOG_PARTITION] = Owned(log)


def go_on(world: World, log: LogWriter, job: Job, writes: int = 1) -> None:
    """Let the log grow, the job fold that, and the owner verify what it wrote."""
    grow(world, log, job, writes)
    world.pass_time(1_000)
