"""Microseconds of processor time per record that a load and a batch of the Spark job cost: no broker, no Spark.

    python -m benchmarks.micro.lazy_fold [--share-partitions N]

Ten records follow the first snapshot of each share partition, every fifth of them a snapshot. The job folds the log in batches in which
each share partition has one record, which is the worst case for it. A number is the least of all rounds.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Callable
from time import process_time

from holdfast.records.log.checkpoint import CHECKPOINT_KEY, Checkpoint, encode_checkpoint
from holdfast.records.log.header import encode_header
from holdfast.records.share.batches import StateBatch
from holdfast.records.share.codecs.codec import Codec, Kind, encode_key, value_encoder
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.redundant_offsets import RedundantOffsetTracker
from holdfast.records.share.replay import ShareState
from holdfast.records.share.snapshot_store.folding import NEW, Held, RawRecord, fold
from holdfast.records.share.values import Snapshot, Update
from holdfast.share.load import ShareLoad

ROUNDS = 5
RECORDS_PER_SHARE_PARTITION = 10
_TOPIC_ID = bytes(16)


class _Store(dict[bytes, Held]):
    """What the job holds between two batches."""

    def put(self, key: bytes, held: Held) -> None:
        """See `folding.Store`."""
        self[key] = held

    def remove(self, key: bytes) -> None:
        """See `folding.Store`."""
        del self[key]


def make_log(share_partitions: int) -> list[RawRecord]:
    """Return a log of one owner."""
    checkpoint = Checkpoint(1, bytes(16), "node", 1, "cluster", _TOPIC_ID, 50, None)
    records = [RawRecord(0, CHECKPOINT_KEY, encode_checkpoint(checkpoint), encode_header(1, 0))]
    keys = [SharePartitionKey(f"group-{n % 100}", bytes([n % 7]) * 16, n) for n in range(share_partitions)]
    for number in range(RECORDS_PER_SHARE_PARTITION + 1):
        start = 10 * number
        batches = (StateBatch(start, start + 9, 2, 1),)
        for index, key in enumerate(keys):
            is_update = number > 0 and (index + number) % 5 > 0
            kind = Kind.UPDATE if is_update else Kind.SNAPSHOT
            value = (
                Update(0, 1, start, 5, batches) if is_update else Snapshot(number, 0, 1, start, 5, 1, 1, batches, 1, 0)
            )
            raw_key, raw_value = encode_key(Codec.AVRO, key, kind), value_encoder(Codec.AVRO)(value)
            offset = len(records)
            records.append(RawRecord(offset, raw_key, raw_value, encode_header(1, offset)))
    return records


def load(records: list[RawRecord], share_partitions: int) -> None:
    """Load the log as a node does, who counts left aside."""
    share_load, folded = ShareLoad(500, RedundantOffsetTracker()), dict[SharePartitionKey, ShareState]()
    for offset, key, value, _ in records[1:]:
        assert key is not None
        share_load.take(key, value, offset)
    assert sum(1 for _ in share_load.fold(folded.get, lambda: False)) == share_partitions


def fold_in_batches(records: list[RawRecord], share_partitions: int) -> None:
    """Fold the log as the Spark job does."""
    mark, store = NEW, _Store()
    for start in range(0, len(records), share_partitions):
        mark = fold(_TOPIC_ID, 0, 50, mark, store, records[start : start + share_partitions]).mark
    assert len(store) == mark.live_count == share_partitions


def time_us(run: Callable[[list[RawRecord], int], None], records: list[RawRecord], share_partitions: int) -> float:
    """Return the microseconds per record."""
    least_s = float("inf")
    for _ in range(ROUNDS):
        gc.collect()
        gc.disable()
        began_s = process_time()
        run(records, share_partitions)
        least_s = min(least_s, process_time() - began_s)
        gc.enable()
    return least_s / len(records) * 1e6


def main() -> None:
    """Measure and print both."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--share-partitions", type=int, default=20_000)
    count: int = parser.parse_args().share_partitions
    records = make_log(count)
    print(f"a load: {time_us(load, records, count):.2f} µs per record")
    print(f"the Spark job: {time_us(fold_in_batches, records, count):.2f} µs per record")


if __name__ == "__main__":
    main()
