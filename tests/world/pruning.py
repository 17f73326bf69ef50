"""One log partition under the real runtime, shard and pruner, over the log in memory; time stands until `tick` moves it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

from holdfast.daemon.pruning.log_readers import LogReaders
from holdfast.daemon.pruning.pruner import Phase, Pruner
from holdfast.daemon.settings.models import PruningSettings
from holdfast.daemon.share.decisions import ShareShard
from holdfast.metrics.registry import Registry
from holdfast.records.checkpoint import CHECKPOINT_KEY, Checkpoint, decode_checkpoint
from holdfast.records.keys import SharePartitionKey
from holdfast.records.replay import ShareState
from holdfast.runtime.coordinator import CoordinatorRuntime
from holdfast.runtime.errors import CoordinatorError, RecordTooLarge
from holdfast.runtime.metrics import RuntimeMetrics
from holdfast.runtime.partition.lifecycle import Partition
from holdfast.runtime.partition.states import State
from holdfast.runtime.state_machine import Decision
from tests.configs import partition_config, shard_config
from tests.shards import states_at
from tests.simulated.memory_log import MemoryTopic
from tests.world.samples import TOPIC, Image, batch, key_of

TICK_MS = 50
IDLE, REFRESHING, WRITING, DELETING = Phase.IDLE, Phase.REFRESHING, Phase.WRITING, Phase.DELETING
SETTINGS: dict[str, Any] = {
    "pruning_dead_share": 0.5,
    "pruning_dead_bytes_min": 1,
    "pruning_check_interval_ms": 1_000,
    "pruning_records_per_slice_max": 3,
    "pruning_timeout_ms": 10_000,
}


class Call:
    """An operation that decides by a function."""

    name = "call"

    def __init__(self, decide: Callable[[ShareShard, int], Decision]) -> None:
        self.deadline_ms = 0
        self.is_done = False
        self.outcome: object = None
        self.decide = decide

    def complete(self, outcome: object) -> None:
        assert not isinstance(outcome, CoordinatorError), outcome
        self.outcome = outcome


class AnyCall(Call):
    """An operation that may fail."""

    def complete(self, outcome: object) -> None:
        self.outcome = outcome


class PrunedNode:
    """One process over `topic`: log partition 0, loaded, and its pruner."""

    def __init__(self, topic: MemoryTopic, generation: int = 1, readers: tuple[str, ...] = (), **settings: Any) -> None:
        config = {
            name: settings.pop(name) for name in ("codec", "snapshot_update_records_per_snapshot") if name in settings
        }
        self.topic = topic
        self.now_ms = 1_735_689_600_000
        self.notes: list[str] = []
        self.alarms: list[tuple[str, int]] = []
        self._tasks: deque[Callable[[], None]] = deque()
        random = Random(generation)
        self.log = topic.open_log()
        self.runtime = CoordinatorRuntime(
            partition_config(node_id=f"node-{generation}", log=topic.identity),
            self.log,
            self,
            lambda _: ShareShard(shard_config(**config)),
            lambda: self.now_ms,
            random.randbytes,
            lambda: 0.5,
            RuntimeMetrics(Registry(lambda: self.now_ms)),
            write_timeout_ms=5_000,
            slice_ms=5,
        )
        self.runtime.new_metadata_image(Image({TOPIC: 1_000_000}))
        self.log.start(self.runtime)
        self.readers = LogReaders(
            readers, 5_000, lambda: self.now_ms, lambda _, group, silent_ms: self.alarms.append((group, silent_ms))
        )
        self.runtime.load(0, generation)
        self.settle()
        self.pruner = Pruner(
            self.partition,
            self.runtime,
            PruningSettings(**(SETTINGS | settings)),
            self.readers,
        )

    # ---- the runtime's host ----------------------------------------------------------------------------------------

    def note(self, level: str, event: str, fields: dict[str, object]) -> None:
        self.notes.append(event)

    def continue_soon(self, task: Callable[[], None]) -> None:
        self._tasks.append(task)

    def partition_changed(self, partition: Partition) -> None:
        pass

    def superseded(self, partition: Partition, winner: Checkpoint, offset: int) -> None:
        pass

    # ---- what a test does ------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Let everything happen that can without time."""
        while self.topic.run_until_quiet() or self._tasks:
            while self._tasks:
                self._tasks.popleft()()

    def tick(self, count: int = 1) -> None:
        """Let time pass, and with it everything settle."""
        for _ in range(count):
            self.tick_only()
            self.settle()

    def tick_only(self) -> None:
        self.now_ms += TICK_MS
        self.runtime.tick()
        self.pruner.tick(self.now_ms)

    def tick_until(self, phase: Phase, ticks_max: int = 1_000) -> None:
        """Let time pass until the pruner is in a phase, with nothing of that phase done yet but what it did at once."""
        for _ in range(ticks_max):
            self.tick_only()
            if self.pruner.phase is phase:
                return
            self.settle()
        raise AssertionError(f"it is {self.pruner.phase} after {ticks_max} ticks: {self.pruner.why_not_pruned()}")

    def call(self, decide: Callable[[ShareShard, int], Decision]) -> None:
        """Run an operation to its end."""
        call = Call(decide)
        self.runtime.write(0, call)
        self.settle()
        assert call.outcome is not None

    def initialize(self, number: int) -> None:
        self.call(lambda shard, now_ms: shard.decide_initialize(key_of(number), 1, 0, now_ms))

    def update(self, number: int, first: int, start_offset: int = -1) -> None:
        """Write a batch of ten at `first`."""
        batches = (batch(first, first + 9, 2, 1),)
        self.call(lambda shard, now_ms: shard.decide_write(key_of(number), 1, 0, start_offset, 0, batches, now_ms))

    def refused_update(self, number: int) -> None:
        """Write a batch that the log does not take."""
        call = AnyCall(
            lambda shard, now_ms: shard.decide_write(key_of(number), 1, 0, -1, 0, (batch(1, 9, 2, 1),), now_ms)
        )
        self.runtime.write(0, call)
        self.settle()
        assert isinstance(call.outcome, RecordTooLarge)

    def delete(self, number: int) -> None:
        self.call(lambda shard, _: shard.decide_delete(key_of(number)))

    def fill(self, keys: int = 10, updates: int = 60) -> None:
        """Initialize so many share partitions and write to the first one, until more than half of the log is dead."""
        for number in range(keys):
            self.initialize(number)
        for turn in range(updates):
            self.update(0, turn * 10, turn * 10)

    # ---- what a test looks at --------------------------------------------------------------------------------------

    @property
    def partition(self) -> Partition:
        return self.runtime.partitions[0]

    @property
    def shard(self) -> ShareShard:
        machine = self.partition.machine
        assert self.partition.state is State.ACTIVE
        assert isinstance(machine, ShareShard)
        return machine

    @property
    def log_start(self) -> int:
        return self.topic.partitions[0].log_start_offset

    @property
    def refreshes(self) -> int:
        """How many checkpoints of ours lie in the log, but for the first and those that name a cut."""
        checkpoints = [record for record in self.topic.partitions[0].records if record.key == CHECKPOINT_KEY]
        return sum(decode_checkpoint(record.value or b"").cut_offset < 0 for record in checkpoints) - 1

    @property
    def bytes_landed(self) -> int:
        """Bytes of keys and values that were ever appended."""
        return sum(len(record.key or b"") + len(record.value or b"") for record in self.topic.partitions[0].records)

    def states(self) -> dict[SharePartitionKey, ShareState]:
        """Return every share partition, its snapshot epoch and update count aside."""
        committed = self.runtime.read(0, states_at)
        assert isinstance(committed, dict)
        return {key: state._replace(snapshot_epoch=0, update_count=0) for key, state in committed.items()}


def tick_a_round(node: PrunedNode) -> None:
    """Let a whole round pass."""
    node.tick_until(REFRESHING)
    node.settle()
    for _ in range(1_000):
        node.tick()
        if node.pruner.phase is IDLE:
            return
    raise AssertionError(node.pruner.why_not_pruned())
