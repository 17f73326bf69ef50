"""What tests look up in a share shard and production does not."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.replay import ShareState
from holdfast.share.decisions import ShareShard
from tests.timelines import items_at


class ShardSummary(NamedTuple):
    """What two shards with the same log agree on, beside their states."""

    share_partitions: int
    topics: int
    live_bytes: int
    #: The live share partition whose newest snapshot lies lowest, and that offset; both None without a committed snapshot.
    oldest_key: SharePartitionKey | None
    oldest_snapshot_offset: int | None


def summarize(shard: ShareShard) -> ShardSummary:
    """Return the summary of a shard."""
    key, offset = shard.state.offsets.oldest() or (None, None)
    return ShardSummary(
        shard.state.share_partition_count(), len(shard.state.topic_ids()), shard.state.live_bytes, key, offset
    )


def states_at(shard: ShareShard, position: int) -> dict[SharePartitionKey, ShareState]:
    """Return every share partition and its state as they were at `position`."""
    return items_at(shard.state.timeline, position)
