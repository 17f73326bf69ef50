"""What Apache Kafka's coordinator does and a node never asks for; the recorded answers need it to be compared with ours."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from holdfast.records.share.batches import StateBatch
from holdfast.records.share.redundant_offsets import RedundantOffsetTracker
from holdfast.records.share.values import Snapshot
from holdfast.runtime.state_machine import Decision
from holdfast.share.decisions import ShareShard


def decide_cold_snapshots(shard: ShareShard, now_ms: int, interval_ms: int) -> Decision:
    """Decide snapshots of all share partitions that were not written for `interval_ms`.

    None when every one was snapshotted so before.
    """
    keys = shard.state.keys()
    states = {key: state for key in keys if (state := shard.state.newest(key)) is not None}
    if all(state.create_timestamp_ms != state.write_timestamp_ms for state in states.values()):
        return Decision((), None)
    return Decision(
        tuple(
            (key, Snapshot(state.snapshot_epoch + 1, *state[1:6], now_ms, *state[7:10]))
            for key, state in states.items()
            if state.write_timestamp_ms <= now_ms - interval_ms
        ),
        None,
    )


def last_redundant_offset(offsets: RedundantOffsetTracker, offset: int) -> int | None:
    """Return the offset below which no record is needed after a snapshot or a tombstone at `offset`, or None when nothing can go.

    In Kafka a tombstone holds the offset back until the next snapshot or tombstone.
    """
    oldest = offsets.oldest()
    return (offset if oldest is None else oldest[1]) or None


def join(batches: Iterable[StateBatch]) -> tuple[StateBatch, ...]:
    """Return ascending batches, those joined that touch and are equal: Apache Kafka 4.3.1 left some of them as they were."""
    joined: list[StateBatch] = []
    for batch in batches:
        if joined and joined[-1][1:] == (batch.first_offset - 1, *batch[2:]):
            batch = batch._replace(first_offset=joined.pop().first_offset)
        joined.append(batch)
    return tuple(joined)


def join_neighbours(batches: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return batches in their order, each joined with the one before it where both touch and are equal."""
    joined: list[tuple[Any, ...]] = []
    for batch in batches:
        if joined and joined[-1][1] + 1 == batch[0] and joined[-1][2:] == batch[2:]:
            joined[-1] = (joined[-1][0], *batch[1:])
        else:
            joined.append(tuple(batch))
    return joined
