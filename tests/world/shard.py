"""A share shard over a log that is a list: every decision is replayed, encoded, appended and committed at once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from holdfast.records.share.batches import StateBatch
from holdfast.records.share.codecs.codec import Codec, decode_record
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.replay import ShareState
from holdfast.records.share.values import Snapshot, Update
from holdfast.runtime.state_machine import Decision
from holdfast.share.config import ShardConfig
from holdfast.share.decisions import ShareShard
from tests.configs import shard_config
from tests.shards import states_at
from tests.world.records import encode_record
from tests.world.samples import EPOCH_MAX, KEY, OTHER_TOPIC, TOPIC, Image

#: Offset of the log's first record; nothing may depend on a log that begins at 0.
LOG_START = 1000


class World:
    """One shard, its clock and its log."""

    def __init__(self, **config: Any) -> None:
        self.config = shard_config(**config)
        self.image = Image({TOPIC: 8, OTHER_TOPIC: 2})
        self.now_ms = 1_735_689_600_000
        self.log: list[tuple[bytes, bytes | None]] = []
        self.log_start = LOG_START
        self.shard = ShareShard(self.config)
        self.shard.on_loaded(self.image)
        self.position = 0

    @property
    def log_end(self) -> int:
        return self.log_start + len(self.log)

    def run(self, decision: Decision, codec: Codec | None = None) -> Any:
        """Carry a decision out, all the way to its commit; `codec` writes its records in another one."""
        before = self.position
        for key, value in decision.records:
            self.position += 1
            encoded = self.shard.encode(key, value)
            self.log.append(encoded if codec is None else encode_record(codec, key, value))
            self.shard.replay(key, value, self.position)
        for index, (key, value) in enumerate(decision.records, start=1):
            raw_key, raw_value = self.log[index - len(decision.records) - 1]
            offset = self.log_end - len(decision.records) + index - 1
            size_bytes = len(raw_key) + len(raw_value or b"")
            self.shard.committed(key, value, offset, before + index, size_bytes)
        return decision.response

    def run_and_refuse(self, decision: Decision) -> None:
        """Carry a decision out as far as its replay, then undo it."""
        for index, (key, value) in enumerate(decision.records, start=1):
            self.shard.encode(key, value)
            self.shard.replay(key, value, self.position + index)
        self.shard.revert(self.position)

    def initialize(self, state_epoch: int = 0, start_offset: int = -1, key: SharePartitionKey = KEY) -> Any:
        return self.run(self.shard.decide_initialize(key, state_epoch, start_offset, self.now_ms))

    def read(self, leader_epoch: int | None = None, key: SharePartitionKey = KEY) -> Any:
        if leader_epoch is None:  # the one that is known already, which raises nothing
            newest = self.shard.state.newest(key)
            leader_epoch = 0 if newest is None else newest.leader_epoch_fence
        return self.run(self.shard.decide_read(key, leader_epoch, self.now_ms))

    def write(
        self,
        *state_batches: StateBatch,
        state_epoch: int = EPOCH_MAX,
        leader_epoch: int = EPOCH_MAX,
        start_offset: int | None = None,
        delivery_complete_count: int = -1,
        key: SharePartitionKey = KEY,
    ) -> Any:
        if start_offset is None:  # the stored one, as a leader repeats it
            newest = self.shard.state.newest(key)
            start_offset = -1 if newest is None else newest.start_offset
        return self.run(
            self.shard.decide_write(
                key, state_epoch, leader_epoch, start_offset, delivery_complete_count, state_batches, self.now_ms
            )
        )

    def summarize(self, key: SharePartitionKey = KEY) -> Any:
        return self.run(self.shard.decide_summary(key))

    def delete(self, key: SharePartitionKey = KEY) -> Any:
        return self.run(self.shard.decide_delete(key))

    def state(self, key: SharePartitionKey = KEY) -> ShareState | None:
        return self.shard.state.at(self.position, key)

    def states(self) -> dict[SharePartitionKey, ShareState]:
        return states_at(self.shard, self.position)

    def last_record(self) -> tuple[SharePartitionKey, Snapshot | Update | None]:
        key, value, _ = decode_record(*self.log[-1])
        assert value is None or isinstance(value, Snapshot | Update)
        return key, value

    def loaded(self, **config: Any) -> World:
        """Return a world whose shard loaded this one's log."""
        world = World(**config) if config else World(**{name: getattr(self.config, name) for name in _SETTINGS})
        world.image, world.now_ms = self.image, self.now_ms
        world.log, world.log_start = list(self.log), self.log_start
        world.shard = load(world.config, self.log, self.log_start)
        world.shard.on_loaded(world.image)
        world.position = self.position
        return world


_SETTINGS = (
    "snapshot_update_records_per_snapshot",
    "state_batches_max",
    "codec",
)


def load(config: ShardConfig, log: Iterable[tuple[bytes, bytes | None]], log_start: int = LOG_START) -> ShareShard:
    """Return a shard that loaded `log`, folding one share partition per slice."""
    shard = ShareShard(config)
    for offset, (key, value) in enumerate(log, start=log_start):
        shard.load_record(key, value, offset)
    while not shard.fold_loaded(lambda: True):
        pass
    return shard


def without_counts(states: dict[SharePartitionKey, ShareState]) -> dict[SharePartitionKey, tuple[Any, ...]]:
    """Return what two replays are compared on: all but the update counts."""
    return {key: state[:-1] for key, state in states.items()}
