"""Operations on share partitions of a process, each run to its end."""

from __future__ import annotations

from holdfast.records.share.keys import SharePartitionKey
from tests.world.process import Process
from tests.world.samples import batch


def initialize(process: Process, index: int, key: SharePartitionKey) -> None:
    """Initialize a share partition on a log partition, with a state epoch of 1 and a start offset of 0."""
    process.succeed(index, lambda shard, now_ms: shard.decide_initialize(key, 1, 0, now_ms))


def write_ten(process: Process, index: int, key: SharePartitionKey, first: int, start_offset: int = -1) -> object:
    """Write a batch of ten acknowledged records at `first`; returns the outcome, whatever it is."""
    batches = (batch(first, first + 9, 2, 1),)
    return process.call(index, lambda shard, now_ms: shard.decide_write(key, 1, 0, start_offset, 0, batches, now_ms))
