"""Bytes that a node holds for each share partition, and how long Python's collector looks through them.

    python -m benchmarks.micro.memory [--share-partitions N]

The states are loaded from snapshots as a node does it, of one update each, into log partitions of their own; what was loaded is
held, and nothing else: no socket, no log. The bytes are what the process has grown by.
"""

from __future__ import annotations

import argparse
import gc
import os
import time
from pathlib import Path
from typing import Final

from benchmarks.micro.hot_path import SETTINGS
from holdfast.console.commands.serve import COLLECTOR_THRESHOLDS
from holdfast.daemon.topics.state_topic import StateTopic
from holdfast.records.share.batches import StateBatch
from holdfast.records.share.codecs.codec import Codec
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.values import Snapshot
from holdfast.share.components import shard_config, state_bounds
from holdfast.share.decisions import ShareShard
from holdfast.share.state_bounds import StateTotals
from tests.world.records import encode_record

LOG_PARTITIONS: Final = 50
BATCHES: Final = 5
_GROUPS: Final = 1_000
_TOPICS: Final = 100


def make_record(number: int) -> tuple[bytes, bytes | None]:
    """Return the key and the value of the snapshot of one share partition."""
    start = 1_000_000 + number
    batches = tuple(StateBatch(start + 20 * each, start + 20 * each + 9, 2 * (each % 3), 1) for each in range(BATCHES))
    key = SharePartitionKey(f"orders-service-{number % _GROUPS}", bytes([number % _TOPICS]) * 16, number // _GROUPS)
    now_ms = 1_700_000_000_000 + number
    return encode_record(Codec.AVRO, key, Snapshot(3, 1, 7, start, 50, now_ms, now_ms, batches, 7, 1))


def resident_bytes() -> int:
    """Return how much memory the process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--share-partitions", type=int, default=1_000_000)
    count: int = parser.parse_args().share_partitions
    gc.set_threshold(*COLLECTOR_THRESHOLDS)
    topic = StateTopic("state", bytes(16), LOG_PARTITIONS, 1, 1_048_588)
    config = shard_config(SETTINGS, topic, StateTotals(state_bounds(SETTINGS)))
    gc.collect()
    before, began_s, shards = resident_bytes(), time.monotonic(), []
    for index in range(LOG_PARTITIONS):
        shards.append(shard := ShareShard(config))
        for number in range(index, count, LOG_PARTITIONS):
            shard.load_record(*make_record(number), number)
        shard.fold_loaded(lambda: False)
        shard.on_loaded(None)
    took_s, held = time.monotonic() - began_s, resident_bytes() - before
    began_s = time.monotonic()
    gc.collect()
    pause_ms = (time.monotonic() - began_s) * 1e3
    assert sum(each.state.share_partition_count() for each in shards) == count
    print(f"{count:,} share partitions of {BATCHES} state batches, loaded in {took_s:.1f} s")
    print(f"{held / count:,.0f} bytes each, {held / 2**20:,.0f} MiB in all")
    print(f"{pause_ms:,.0f} ms for a full collection of {len(gc.get_objects()):,} objects")


if __name__ == "__main__":
    main()
