"""One log partition under the real runtime, shard and pruner, over the log in memory; time stands until `tick` moves it."""

from __future__ import annotations

from typing import Any

from holdfast.api.results import WriteResult
from holdfast.daemon.pruning.log_readers import LogReaders
from holdfast.daemon.pruning.pruner import Phase, Pruner
from holdfast.daemon.settings.models import PruningSettings
from holdfast.records.log.checkpoint import CHECKPOINT_KEY, decode_checkpoint
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.replay import ShareState
from holdfast.runtime.errors import RecordTooLarge
from holdfast.runtime.partition.lifecycle import Partition
from holdfast.runtime.partition.states import State
from holdfast.share.decisions import ShareShard
from tests.configs import partition_config, shard_config
from tests.shards import states_at
from tests.simulated.memory_log import MemoryTopic
from tests.world.process import Process
from tests.world.samples import TOPIC, Image, key_of
from tests.world.share_calls import initialize, write_ten
from tests.world.tenants import SHARDS

IDLE, REFRESHING, WRITING, DELETING = Phase.IDLE, Phase.REFRESHING, Phase.WRITING, Phase.DELETING
SETTINGS: dict[str, Any] = {
    "pruning_dead_share": 0.5,
    "pruning_dead_bytes_min": 1,
    "pruning_check_interval_ms": 1_000,
}
PRUNING_TIMEOUT_MS = 10_000


class PrunedNode:
    """One process over `topic`: log partition 0, loaded, and its pruner."""

    def __init__(
        self,
        topic: MemoryTopic,
        generation: int = 1,
        readers: tuple[str, ...] = (),
        *,
        records_max: int = 3,
        **settings: Any,
    ) -> None:
        config = {
            name: settings.pop(name) for name in ("codec", "snapshot_update_records_per_snapshot") if name in settings
        }
        self.topic = topic
        self.process = Process(
            topic,
            partition_config(node_id=f"node-{generation}", log=topic.identity),
            lambda _: ShareShard(shard_config(**config)),
        )
        self.log, self.runtime = self.process.log, self.process.runtime
        self.runtime.new_metadata_image(Image({TOPIC: 1_000_000}))
        self.readers = LogReaders(readers, 5_000, self.process.clock, lambda *_: None)
        self.process.start()
        self.process.load(generation)
        self.pruner = Pruner(
            self.partition,
            self.runtime,
            PruningSettings(**(SETTINGS | settings)),
            self.readers,
            SHARDS,
            records_per_slice_max=records_max,
            timeout_ms=PRUNING_TIMEOUT_MS,
        )
        self.process.at_tick.append(lambda: self.pruner.tick(self.process.clock()))
        self.settle, self.tick, self.tick_only = self.process.settle, self.process.tick, self.process.tick_only

    # ---- what a test does ------------------------------------------------------------------------------------------

    def tick_until(self, phase: Phase, ticks_max: int = 1_000) -> None:
        """Let time pass until the pruner is in a phase, with nothing of that phase done yet but what it did at once."""
        for _ in range(ticks_max):
            self.tick_only()
            if self.pruner.phase is phase:
                return
            self.settle()
        raise AssertionError(f"it is {self.pruner.phase} after {ticks_max} ticks: {self.pruner.why_not_pruned()}")

    def initialize(self, number: int) -> None:
        initialize(self.process, 0, key_of(number))

    def update(self, number: int, first: int, start_offset: int = -1) -> None:
        """Write a batch of ten at `first`."""
        outcome = write_ten(self.process, 0, key_of(number), first, start_offset)
        assert outcome == WriteResult(), outcome

    def refused_update(self, number: int) -> None:
        """Write a batch that the log does not take."""
        assert isinstance(write_ten(self.process, 0, key_of(number), 1), RecordTooLarge)

    def delete(self, number: int) -> None:
        self.process.succeed(0, lambda shard, _: shard.decide_delete(key_of(number)))

    def fill(self, keys: int = 10, updates: int = 60) -> None:
        """Initialize so many share partitions and write to the first one, until more than half of the log is dead."""
        for number in range(keys):
            self.initialize(number)
        for turn in range(updates):
            self.update(0, turn * 10, turn * 10)

    # ---- what a test looks at --------------------------------------------------------------------------------------

    @property
    def notes(self) -> list[str]:
        """Return the events of all log lines."""
        return [event for _, event in self.process.notes]

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
