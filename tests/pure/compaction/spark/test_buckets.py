"""Buckets hold what a dictionary holds, however often they are written and grow."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.compaction.spark import buckets
from holdfast.compaction.spark.buckets import BucketStore, decode_bucket, encode_bucket
from holdfast.records.share.snapshot_store.folding import NEW, Held, fold
from tests.pure.records.logs import LOG_PARTITION, PARTITION_COUNT, STATE_TOPIC_ID, DictStore, LogWriter, logs

helds = st.builds(Held, st.integers(0, 1 << 48), st.none() | st.binary(max_size=300))


class DictState(dict[int, bytes]):
    """A `BucketState` in memory that counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def read(self, number: int) -> bytes | None:
        self.calls += 1
        return self.get(number)

    def write(self, number: int, data: bytes) -> None:
        self.calls += 1
        self[number] = data


@given(st.dictionaries(st.binary(max_size=80), helds, max_size=20))
def test_a_bucket_survives_its_bytes(bucket: dict[bytes, Held]) -> None:
    assert decode_bucket(encode_bucket(bucket)) == bucket


@given(st.lists(st.dictionaries(st.binary(max_size=2), st.none() | helds, min_size=1), max_size=8), st.booleans())
def test_buckets_hold_what_a_dictionary_holds(rounds: list[dict[bytes, Held | None]], is_cleared: bool) -> None:
    state, expected = DictState(), DictStore()
    bucket_count = 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(buckets, "SIZE_MAX", 4)
        patch.setattr(buckets, "SIZE_AFTER_GROWTH", 2)
        for number, changes in enumerate(rounds):
            store = BucketStore(state, bucket_count)
            if is_cleared and number == len(rounds) // 2:
                store.clear()
                expected.clear()
            for key, held in changes.items():
                assert store.get(key) == expected.get(key)
                if held is not None:
                    store.put(key, held)
                    expected.put(key, held)
                elif key in expected:
                    store.remove(key)
                    expected.remove(key)
            bucket_count = store.flush(len(expected))
            assert bucket_count >= len(expected) / 4
    kept = BucketStore(state, bucket_count)
    assert {key: kept.get(key) for key in expected} == expected


@given(logs(), st.integers(1, 20))
def test_a_fold_over_buckets_comes_to_what_it_comes_to_over_a_dictionary(log: LogWriter, size: int) -> None:
    state, expected = DictState(), DictStore()
    mark, bucket_count = NEW, 1
    for start in range(0, len(log.records), size):
        records = log.records[start : start + size]
        store = BucketStore(state, bucket_count)
        folded = fold(STATE_TOPIC_ID, LOG_PARTITION, PARTITION_COUNT, mark, expected, records)
        assert fold(STATE_TOPIC_ID, LOG_PARTITION, PARTITION_COUNT, mark, store, records) == folded
        mark, bucket_count = folded.mark, store.flush(len(expected))


def test_many_share_partitions_cost_few_calls() -> None:
    state = DictState()
    store = BucketStore(state, 1)
    keys = [f"key {number}".encode() for number in range(1_000)]
    for key in keys:
        store.put(key, Held(1, b"entry"))
    bucket_count = store.flush(len(keys))
    state.calls = 0
    store = BucketStore(state, bucket_count)
    for key in keys:
        store.put(key, Held(2, b"entry"))
    store.flush(len(keys))
    assert state.calls <= 2 * bucket_count <= 256
