"""The work of a shard without a client's request: pruning, clean-up of deleted topics, cold snapshots, its accounts."""

from __future__ import annotations

import pytest

from holdfast.records.share.batches import StateBatch
from holdfast.records.share.codecs.codec import Codec
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.values import Snapshot, Update
from holdfast.runtime.state_machine import Decision
from tests.shards import states_at, summarize
from tests.vectors.parity import decide_cold_snapshots
from tests.world.samples import EPOCH_MAX, KEY, OTHER_KEY, OTHER_TOPIC, TOPIC, UNKNOWN_TOPIC, batch
from tests.world.shard import LOG_START, World, without_counts

KEYS = [KEY._replace(partition=partition) for partition in range(5)]


def world_of_five(**config: object) -> World:
    """Return a world with five share partitions, their first snapshots at the log's first five offsets."""
    world = World(**config)
    for key in KEYS:
        world.initialize(3, 100, key)
    return world


def keys_of(decision: Decision) -> list[SharePartitionKey]:
    return [key for key, _ in decision.records]


# ---- pruning ---------------------------------------------------------------------------------------------------------


def test_pruning_writes_the_oldest_first_and_ends_when_none_is_left() -> None:
    world = world_of_five()
    world.initialize(4, 100, KEYS[1])
    below = world.log_end
    slices = []
    while (decision := world.shard.decide_pruning_slice(below, records_max=2, bytes_max=1_000_000)).records:
        assert not world.shard.is_prunable_to(below)
        slices.append(keys_of(decision))
        world.run(decision)
    assert slices == [[KEYS[0], KEYS[2]], [KEYS[3], KEYS[4]], [KEYS[1]]]
    assert world.shard.is_prunable_to(below)
    assert not world.shard.is_prunable_to(below + 1)


def test_pruning_snapshot_keeps_timestamps_and_fences_under_the_next_epoch() -> None:
    world = World()
    world.initialize(3, 100)
    world.read(5)
    world.now_ms += 1
    world.initialize(4, 50)
    created_ms = world.now_ms
    world.now_ms += 1000
    world.write(batch(50, 59, 2, 1), delivery_complete_count=10)
    world.run(world.shard.decide_pruning_slice(world.log_end, 10, 1_000_000))
    value = Snapshot(2, 4, 0, 50, 10, created_ms, created_ms, (batch(50, 59, 2, 1),), 5, 4)
    assert world.last_record() == (KEY, value)


def test_keys_that_snapshot_themselves_are_left_alone() -> None:
    world = world_of_five(snapshot_update_records_per_snapshot=0)
    below = world.log_end
    for key in KEYS[:3]:
        world.write(key=key)
    assert keys_of(world.shard.decide_pruning_slice(below, 10, 1_000_000)) == KEYS[3:]


def test_a_snapshot_on_its_way_is_not_written_twice() -> None:
    world = world_of_five()
    below = world.log_end
    first = world.shard.decide_pruning_slice(below, 2, 1_000_000)
    for position, (key, value) in enumerate(first.records, start=world.position + 1):
        world.shard.replay(key, value, position)
    assert keys_of(world.shard.decide_pruning_slice(below, 10, 1_000_000)) == KEYS[2:]
    world.shard.revert(world.position)
    assert keys_of(world.shard.decide_pruning_slice(below, 10, 1_000_000)) == KEYS
    world.run(first)
    assert keys_of(world.shard.decide_pruning_slice(below, 10, 1_000_000)) == KEYS[2:]


def test_a_key_whose_tombstone_is_on_its_way_is_passed_over() -> None:
    world = world_of_five()
    below = world.log_end
    for key, value in world.shard.decide_delete(KEYS[0]).records:
        world.shard.replay(key, value, world.position + 1)
    assert keys_of(world.shard.decide_pruning_slice(below, 10, 1_000_000)) == KEYS[1:]
    assert not world.shard.is_prunable_to(below)


def test_a_slice_keeps_to_its_bytes_but_always_holds_a_record() -> None:
    world = world_of_five()
    below = world.log_end
    each = world.shard.state.live_bytes // len(KEYS)
    assert keys_of(world.shard.decide_pruning_slice(below, 10, 3 * each)) == KEYS[:3]
    assert keys_of(world.shard.decide_pruning_slice(below, 10, 3 * each - 1)) == KEYS[:2]
    assert keys_of(world.shard.decide_pruning_slice(below, 10, 1)) == KEYS[:1]


@pytest.mark.parametrize("codec", Codec)
def test_a_pruned_log_loads_to_the_same_state(codec: Codec) -> None:
    world = world_of_five(codec=codec, snapshot_update_records_per_snapshot=3)
    for number in range(20):
        key = KEYS[number % 4]
        world.read(number, key)
        world.write(batch(100 + number, 100 + number, 2, 1), key=key)
    world.initialize(9, 7, KEYS[2])
    world.delete(KEYS[3])
    below = world.log_end
    while (decision := world.shard.decide_pruning_slice(below, 2, 1_000_000)).records:
        world.run(decision)
        world.write(batch(300, 310, 0, 1), key=KEYS[0])
    world.log, world.log_start = world.log[below - LOG_START :], below
    assert without_counts(world.loaded().states()) == without_counts(world.states())


# ---- deleted topics --------------------------------------------------------------------------------------------------


def test_clean_up_deletes_the_share_partitions_of_the_topics_in_slices() -> None:
    world = world_of_five()
    world.initialize(0, 0, OTHER_KEY)
    world.initialize(0, 0, OTHER_KEY._replace(partition=1))
    assert world.shard.state.topic_ids() == {TOPIC, OTHER_TOPIC}
    assert world.shard.state.share_partition_count([TOPIC, UNKNOWN_TOPIC]) == 5
    slices = []
    while (decision := world.shard.decide_topic_cleanup({TOPIC, UNKNOWN_TOPIC}, records_max=2)).records:
        assert all(value is None for _, value in decision.records)
        slices.append(keys_of(decision))
        world.run(decision)
    assert slices == [KEYS[:2], KEYS[2:4], KEYS[4:]]
    assert world.shard.state.topic_ids() == {OTHER_TOPIC}
    assert world.shard.state.share_partition_count() == 2


def test_clean_up_without_a_bound_takes_all_topics_in_order() -> None:
    world = World()
    world.initialize(0, 0, OTHER_KEY)
    world.initialize(0, 0, KEY)
    assert keys_of(world.shard.decide_topic_cleanup(frozenset((OTHER_TOPIC, TOPIC)))) == [KEY, OTHER_KEY]
    assert world.shard.decide_topic_cleanup(frozenset((UNKNOWN_TOPIC,))).records == ()


# ---- cold snapshots --------------------------------------------------------------------------------------------------


def test_cold_snapshots_keep_the_creation_and_take_the_time_of_writing() -> None:
    world = World()
    world.initialize(3, 100, KEYS[0])
    world.now_ms += 1
    world.initialize(3, 100, KEYS[1])
    created_ms = world.now_ms - 1
    decision = decide_cold_snapshots(world.shard, created_ms + 1000, 1000)
    expected = Snapshot(1, 3, 0, 100, 0, created_ms, created_ms + 1000, (), 0, 3)
    assert decision.records == ((KEYS[0], expected),)
    world.run(decision)
    # One is cold already, the other one is due now; both are written.
    decision = decide_cold_snapshots(world.shard, created_ms + 2000, 1000)
    assert keys_of(decision) == KEYS[:2]
    world.run(decision)
    assert decide_cold_snapshots(world.shard, created_ms + 9000, 1000).records == ()


def test_an_empty_shard_has_no_cold_snapshots() -> None:
    assert decide_cold_snapshots(World().shard, 0, 1000).records == ()


# ---- accounts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("batch_count", [0, 1, 30])
def test_estimate_of_live_bytes_is_slightly_above_the_bytes_of_pruning(codec: Codec, batch_count: int) -> None:
    world = World(codec=codec)
    for group in ("g", "größe🚀" * 10):
        for partition in range(4):
            key = SharePartitionKey(group, TOPIC, partition)
            world.initialize(1_000, 1 << 40, key)
            world.read(1_000, key)
            batches = [StateBatch((1 << 40) + 20 * n, (1 << 40) + 20 * n + 9, 2, 100) for n in range(batch_count)]
            world.write(*batches, delivery_complete_count=1_000_000, key=key)
    live_bytes, below = world.shard.state.live_bytes, world.log_end
    while (decision := world.shard.decide_pruning_slice(below, 1, 1_000_000)).records:
        world.run(decision)
    written = sum(len(key) + len(value or b"") for key, value in world.log[below - LOG_START :])
    assert written <= live_bytes <= 2 * written


@pytest.mark.parametrize("codec", Codec)
def test_a_snapshot_of_the_most_batches_fits_into_kafkas_default_message(codec: Codec) -> None:
    world = World(codec=codec)
    first, most, huge = 1 << 40, world.config.state_batches_max, (1 << 31) - 1
    batches = tuple(StateBatch(first + 2 * n, first + 2 * n, 4, 32767) for n in range(most))
    value = Snapshot(huge, huge, huge, first, huge, first, first, batches, huge, huge)
    raw_key, raw_value = world.shard.encode(KEY._replace(group_id="g" * 32767), value)
    assert raw_value is not None
    assert len(raw_key) + len(raw_value) + 100 <= 1_048_588


def test_the_summary_names_the_share_partition_in_the_way() -> None:
    world = world_of_five()
    summary = summarize(world.shard)
    assert (summary.oldest_key, summary.oldest_snapshot_offset) == (KEYS[0], LOG_START)
    world.initialize(4, 0, KEYS[0])
    summary = summarize(world.shard)
    assert (summary.share_partitions, summary.topics, summary.live_bytes) == (5, 1, world.shard.state.live_bytes)
    assert (summary.oldest_key, summary.oldest_snapshot_offset) == (KEYS[1], LOG_START + 1)
    assert summarize(World().shard) == (0, 0, 0, None, None)


def test_queries_see_the_state_at_their_position() -> None:
    world = World()
    world.initialize(3, 100)
    committed = world.position
    pending = world.shard.decide_write(KEY, EPOCH_MAX, EPOCH_MAX, 110, 5, (), world.now_ms)
    for key, value in pending.records:
        world.shard.replay(key, value, committed + 1)
    before, after = world.shard.state.at(committed, KEY), world.shard.state.at(committed + 1, KEY)
    assert before is not None
    assert after is not None
    assert (before.start_offset, after.start_offset) == (100, 110)
    assert states_at(world.shard, committed) == {KEY: before}


def test_encoded_keys_stay_bounded_when_initializes_are_undone() -> None:
    world = World()
    for number in range(3000):
        key = KEY._replace(group_id=f"group-{number}")
        world.run_and_refuse(world.shard.decide_initialize(key, 0, 0, 0))
    assert len(world.shard.state._encoded_keys) <= 1001
    world.initialize(0, 0)
    assert world.loaded().state() == world.state()


@pytest.mark.parametrize("codec", Codec)
def test_a_kind_of_record_has_the_key_its_codec_gives_it(codec: Codec) -> None:
    world = World(codec=codec)
    world.initialize(0, 0)
    world.write()
    world.write()
    assert isinstance(world.last_record()[1], Update)
    world.delete()
    keys = [key for key, _ in world.log]
    assert keys[1] == keys[2]
    assert keys[0] == keys[3]
    assert (keys[0] == keys[1]) is (codec is Codec.AVRO)
