"""A shard that is done frees what it holds in steps, none of which frees more than one share partition."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast.records.share.codecs.codec import Codec
from holdfast.records.share.values import Snapshot, Update
from holdfast.share.decisions import ShareShard
from holdfast.share.state_bounds import StateTotals
from tests.configs import shard_config, state_bounds
from tests.world.records import encode_record
from tests.world.samples import KEY, batch

KEYS = [KEY._replace(group_id=f"group-{number % 2}", partition=number) for number in range(5)]
SNAPSHOT = Snapshot(0, 3, 0, 100, 0, 1, 1, (), 5, 3)
UPDATE = Update(0, 5, -1, 7, (batch(100, 109, 2, 1),))


def never() -> bool:
    return False


def always() -> bool:
    return True


def load(totals: StateTotals) -> ShareShard:
    """Return a shard that has read a snapshot and an update of each share partition."""
    shard = ShareShard(shard_config(totals=totals))
    log = [encode_record(Codec.AVRO, key, value) for value in (SNAPSHOT, UPDATE) for key in KEYS]
    for offset, (key, value) in enumerate(log):
        shard.load_record(key, value, offset)
    return shard


def serve(totals: StateTotals) -> ShareShard:
    """Return a shard that serves, with a write that is not committed."""
    shard = load(totals)
    assert shard.fold_loaded(never)
    shard.on_loaded(None)
    for sequence, key in enumerate(KEYS, start=1):
        shard.encode(key, UPDATE)
        shard.replay(key, UPDATE, sequence)
    shard.encode(KEYS[0], SNAPSHOT)
    shard.replay(KEYS[0], SNAPSHOT, len(KEYS) + 1)
    return shard


def sizes(shard: ShareShard) -> list[int]:
    """Return how much of each kind it holds."""
    state, load = shard.state, shard.load
    return [
        len(state.timeline.current),
        len(state.topics),
        len(state.offsets),
        len(state.pending_snapshots),
        len(state._encoded_keys),
        len(load._unfolded),
        len(load._pending),
        len(load._pending._runs_by_raw_key),
        len(load._pending._names),
    ]


@pytest.mark.parametrize(
    ("make", "slices"),
    [
        pytest.param(load, 5 + 5 + 3 + 5, id="loading: runs, their raw keys, names, offsets of snapshots"),
        pytest.param(
            serve, 5 + 5 + 5 + 5 + 1, id="serving: states, keys of a topic, bytes of keys, snapshots: old, new"
        ),
    ],
)
def test_a_slice_frees_one_share_partition_and_no_more_when_its_time_is_up(
    make: Callable[[StateTotals], ShareShard], slices: int
) -> None:
    totals = StateTotals(state_bounds())
    shard = make(totals)
    shard.on_unloaded()
    before, count = sizes(shard), 0
    while not shard.discard(always):
        count += 1
        now = sizes(shard)
        assert all(was - is_ in (0, 1) for was, is_ in zip(before, now, strict=True))
        assert totals.share_partitions == shard.state.share_partition_count()
        before = now
    assert count == slices
    assert not any(before)
    assert not shard.state.timeline._undo


def test_freed_states_are_counted_no_longer() -> None:
    totals = StateTotals(state_bounds())
    other = serve(totals)
    other_bytes = totals.state_bytes
    shard = serve(totals)
    assert totals.state_bytes == 2 * other_bytes
    shard.on_unloaded()
    assert shard.discard(never)
    assert totals.share_partitions == other.state.share_partition_count() == len(KEYS)
    assert totals.state_bytes == other_bytes
    assert totals._groups == {"group-0": 3, "group-1": 2}


def test_a_load_that_ends_in_the_middle_of_its_fold_is_freed_as_a_whole() -> None:
    totals = StateTotals(state_bounds())
    shard = load(totals)
    assert not shard.fold_loaded(always)
    shard.on_unloaded()
    assert shard.discard(never)
    assert not any(sizes(shard))
    assert totals.used() == {"share_partitions_max": 0, "state_bytes_max": 0}
