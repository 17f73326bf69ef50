"""The five calls, row by row: validation in order, records, answers, state (share-coordinator.md §6)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.api.results import DeleteResult, InitializeResult, ReadResult, SummaryResult, WriteResult
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.records.share.codecs.codec import Codec
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.replay import ShareState
from holdfast.records.share.values import Snapshot, Update
from holdfast.runtime.state_machine import Decision
from holdfast.share.decisions import ShareShard
from tests.configs import shard_config
from tests.world.samples import KEY, TOPIC, UNKNOWN_TOPIC, Image, batch
from tests.world.shard import World

Call = Callable[[ShareShard, SharePartitionKey], Decision]

NOW_MS = 1_735_689_600_000


def initialize(state_epoch: int = 3) -> Call:
    return lambda shard, key: shard.decide_initialize(key, state_epoch, 100, NOW_MS)


def read(leader_epoch: int = 5) -> Call:
    return lambda shard, key: shard.decide_read(key, leader_epoch, NOW_MS)


def write(state_epoch: int = 3, leader_epoch: int = 5) -> Call:
    return lambda shard, key: shard.decide_write(key, state_epoch, leader_epoch, 100, 0, (), NOW_MS)


def summarize() -> Call:
    return lambda shard, key: shard.decide_summary(key)


def delete() -> Call:
    return lambda shard, key: shard.decide_delete(key)


ALL_CALLS = [initialize(), read(), write(), summarize(), delete()]


def known_world(**config: Any) -> World:
    """Return a world where KEY has state epoch 3, leader epoch 5 and start offset 100."""
    world = World(**config)
    world.initialize(state_epoch=3, start_offset=100)
    world.read(leader_epoch=5)
    return world


# ---- validation (§6.1) -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ALL_CALLS)
def test_a_negative_partition_is_malformed_before_anything_else(call: Call) -> None:
    shard = ShareShard(shard_config())
    decision = call(shard, KEY._replace(partition=-1, topic_id=UNKNOWN_TOPIC))
    assert decision.response.error_code == ErrorCode.INVALID_REQUEST
    assert decision.is_malformed
    assert decision.records == ()


@pytest.mark.parametrize("call", [read(leader_epoch=0), write(state_epoch=0, leader_epoch=0)])
def test_read_and_write_need_an_initialize_before_they_look_at_the_topic(call: Call) -> None:
    world = known_world()
    world.shard.on_new_metadata_image(Image({}))
    decision = call(world.shard, KEY._replace(partition=6))
    assert decision.response.error_code == ErrorCode.INVALID_REQUEST
    assert not decision.is_malformed
    assert decision.records == ()


@pytest.mark.parametrize(
    ("call", "error_code"),
    [
        (write(state_epoch=2, leader_epoch=4), ErrorCode.FENCED_LEADER_EPOCH),
        (write(state_epoch=2, leader_epoch=5), ErrorCode.FENCED_STATE_EPOCH),
        (write(state_epoch=2, leader_epoch=9), ErrorCode.FENCED_STATE_EPOCH),
        (read(leader_epoch=4), ErrorCode.FENCED_LEADER_EPOCH),
        (initialize(state_epoch=2), ErrorCode.FENCED_STATE_EPOCH),
    ],
)
def test_an_epoch_below_its_fence_is_refused_before_the_topic_is_looked_at(call: Call, error_code: ErrorCode) -> None:
    world = known_world()
    world.shard.on_new_metadata_image(Image({}))
    decision = call(world.shard, KEY)
    assert decision.response.error_code == error_code
    assert decision.records == ()
    assert not decision.is_malformed


@pytest.mark.parametrize("epoch", [-1, -2, -(1 << 31)])
@pytest.mark.parametrize("partition", [7, 6], ids=["with state", "without"])
def test_a_negative_epoch_is_refused_before_the_state_is_looked_at(epoch: int, partition: int) -> None:
    world = known_world()
    world.shard.on_new_metadata_image(Image({}))
    for call, which in (
        (write(state_epoch=epoch), "state"),
        (write(leader_epoch=epoch), "leader"),
        (write(state_epoch=epoch, leader_epoch=epoch), "leader"),
        (read(leader_epoch=epoch), "leader"),
        (initialize(state_epoch=epoch), "state"),
    ):
        decision = call(world.shard, KEY._replace(partition=partition))
        assert decision.response.error_code == ErrorCode.INVALID_REQUEST
        assert decision.response.error_message == f"The {which} epoch is {epoch}; it must be 0 or more."
        assert decision.records == ()
        assert decision.is_malformed


@pytest.mark.parametrize("call", ALL_CALLS)
@pytest.mark.parametrize("image", [None, Image({}), Image({TOPIC: 7})], ids=["no image", "no topic", "too few"])
def test_a_partition_that_metadata_does_not_hold_is_unknown(call: Call, image: Image | None) -> None:
    world = known_world()
    world.shard.on_new_metadata_image(image)
    decision = call(world.shard, KEY)
    assert decision.response.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert decision.records == ()


@pytest.mark.parametrize(
    "call",
    [
        *ALL_CALLS,
        write(state_epoch=9, leader_epoch=9),
        read(leader_epoch=9),
        initialize(state_epoch=9),
    ],
)
def test_epochs_at_or_above_the_fence_pass(call: Call) -> None:
    assert call(known_world().shard, KEY).response.error_code == ErrorCode.NONE


def test_a_failed_result_carries_kafkas_defaults() -> None:
    world = World()
    assert world.read(1)[2:] == ReadResult()[2:] == (0, 0, ())
    world.shard.on_new_metadata_image(None)
    assert world.summarize()[2:] == SummaryResult()[2:] == (0, 0, 0, -1)


@pytest.mark.parametrize("call", ALL_CALLS)
def test_a_refusal_says_why_in_one_sentence(call: Call) -> None:
    world = known_world()
    world.shard.on_new_metadata_image(None)
    text = call(world.shard, KEY).response.error_message
    assert text == "The topic has no partition 7 that this node knows of, or Kafka does not let it Describe the topic."


# ---- Initialize (§6.5) -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("start_offset", "delivery_complete_count"), [(-1, -1), (0, 0), (50, 0)])
def test_initialize_writes_a_first_snapshot(start_offset: int, delivery_complete_count: int) -> None:
    world = World()
    assert world.initialize(2, start_offset) == InitializeResult()
    snapshot = Snapshot(0, 2, 0, start_offset, delivery_complete_count, NOW_MS, NOW_MS, (), 0, 2)
    assert world.last_record() == (KEY, snapshot)
    assert world.state() == ShareState(*snapshot, 0)


def test_initialize_again_wipes_progress_and_keeps_both_fences() -> None:
    world = known_world()
    world.write(batch(100, 109, 2, 1), delivery_complete_count=10)
    world.now_ms += 5
    assert world.initialize(3, 50) == InitializeResult()
    assert world.last_record() == (KEY, Snapshot(1, 3, 0, 50, 0, NOW_MS + 5, NOW_MS + 5, (), 5, 3))


@pytest.mark.parametrize("is_reloaded", [False, True])
def test_the_leader_fence_outlives_an_initialize(is_reloaded: bool) -> None:
    world = known_world()
    world.initialize(4, 50)
    if is_reloaded:
        # Only the newest snapshot is left of the log, as after a round of pruning.
        world.log, world.log_start = world.log[-1:], world.log_end - 1
        world = world.loaded()
    assert world.write(leader_epoch=4).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert world.read(leader_epoch=4).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert world.write(leader_epoch=5).error_code == ErrorCode.NONE


def test_snapshot_of_a_write_names_the_fence_above_its_stored_epoch() -> None:
    """A reader that begins at the newest snapshot knows no other fence."""
    world = known_world(snapshot_update_records_per_snapshot=0)
    world.initialize(4, 50)
    world.write(batch(50, 59, 2, 1), leader_epoch=-1)
    _, snapshot = world.last_record()
    assert isinstance(snapshot, Snapshot)
    assert (snapshot.leader_epoch, snapshot.leader_epoch_fence, snapshot.state_epoch_fence) == (0, 5, 4)


# ---- Write (§6.2) ----------------------------------------------------------------------------------------------------


def test_a_write_becomes_an_update_that_repeats_the_stored_epochs() -> None:
    world = known_world()
    response = world.write(
        batch(100, 109, 2, 1), state_epoch=9, leader_epoch=7, start_offset=100, delivery_complete_count=10
    )
    assert response == WriteResult()
    assert world.last_record() == (KEY, Update(0, 5, 100, 10, (batch(100, 109, 2, 1),)))
    state = world.state()
    assert state is not None
    assert (state.state_epoch, state.leader_epoch, state.leader_epoch_fence, state.state_epoch_fence) == (3, 5, 5, 3)


def test_the_batches_of_an_update_are_in_order_and_above_its_start_offset() -> None:
    world = known_world()
    world.write(batch(130, 139, 0, 2), batch(95, 119, 0, 1), batch(110, 119, 2, 1), start_offset=100)
    assert world.last_record() == (
        KEY,
        Update(0, 5, 100, 0, (batch(100, 109, 0, 1), batch(110, 119, 2, 1), batch(130, 139, 0, 2))),
    )


def test_a_lone_batch_is_cut_at_the_start_offset_of_its_write() -> None:
    world = known_world()
    world.write(batch(90, 119, 0, 1), start_offset=110)
    assert world.last_record() == (KEY, Update(0, 5, 110, -1, (batch(110, 119, 0, 1),)))
    world.write(batch(90, 109, 0, 1), start_offset=110)
    assert world.last_record() == (KEY, Update(0, 5, 110, -1, ()))


@pytest.mark.parametrize("start_offset", [-1, 0, 99])
@pytest.mark.parametrize("limit", [500, 0])
def test_a_start_offset_never_goes_back_and_a_late_write_leaves_the_count(limit: int, start_offset: int) -> None:
    world = known_world(snapshot_update_records_per_snapshot=limit)
    world.write(delivery_complete_count=7)
    world.write(batch(90, 104, 0, 1), start_offset=start_offset, delivery_complete_count=9)
    value = world.last_record()[1]
    assert value is not None
    assert (value.start_offset, value.delivery_complete_count) == (100, 7)
    assert value.state_batches == (batch(100, 104, 0, 1),)
    state = world.state()
    assert state is not None
    assert (state.start_offset, state.delivery_complete_count) == (100, 7)
    assert state.state_batches == (batch(100, 104, 0, 1),)


@pytest.mark.parametrize("start_offset", [-1, 0, 120])
def test_any_start_offset_is_larger_than_an_undecided_one(start_offset: int) -> None:
    world = World()
    world.initialize(0, -1)
    world.write(batch(90, 104, 0, 1), start_offset=start_offset, delivery_complete_count=3)
    kept = (batch(90, 104, 0, 1),) if start_offset < 90 else ()
    assert world.last_record() == (KEY, Update(0, 0, start_offset, 3, kept))


@pytest.mark.parametrize("limit", [500, 0])
@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize(
    "given", [[batch(100, 109, 2, 1)], [[100, 109, 2, 1]], [batch(105, 109, 2, 1), (100, 104, 2, 1)]]
)
def test_state_batches_may_come_as_a_list(codec: Codec, limit: int, given: Any) -> None:
    world = World(codec=codec, snapshot_update_records_per_snapshot=limit)
    world.initialize(3, 100)
    assert world.run(world.shard.decide_write(KEY, 3, 5, 100, 10, given, NOW_MS)) == WriteResult()
    assert world.loaded().read().state_batches == (batch(100, 109, 2, 1),)


def test_a_write_with_nothing_new_is_still_written() -> None:
    world = known_world()
    before = len(world.log)
    assert world.write() == WriteResult()
    assert len(world.log) == before + 1


@pytest.mark.parametrize(
    ("start_offset", "given", "stored"),
    [
        (-1, 9, 7),
        (99, 9, 7),
        (99, -1, 7),
        (100, 9, 9),
        (100, 5, 7),
        (100, -1, 7),
        (101, 9, 9),
        (101, 5, 5),
        (101, -1, -1),
    ],
)
@pytest.mark.parametrize("limit", [500, 0])
def test_the_count_of_finished_deliveries_belongs_to_its_start_offset(
    limit: int, start_offset: int, given: int, stored: int
) -> None:
    world = known_world(snapshot_update_records_per_snapshot=limit)
    world.write(delivery_complete_count=7)
    world.write(start_offset=start_offset, delivery_complete_count=given)
    assert world.summarize().delivery_complete_count == stored
    assert world.loaded().summarize().delivery_complete_count == stored


@pytest.mark.parametrize("limit", [0, 1, 3, 500])
def test_limit_updates_lie_between_two_snapshots(limit: int) -> None:
    world = World(snapshot_update_records_per_snapshot=limit)
    world.initialize(0, 100)
    kinds = []
    for number in range(2 * (limit + 1)):
        world.write(batch(100 + number, 100 + number, 2, 1))
        kinds.append(type(world.last_record()[1]))
    assert kinds == ([Update] * limit + [Snapshot]) * 2


def test_a_snapshot_holds_old_and_new_batches_under_the_stored_epochs() -> None:
    world = World(snapshot_update_records_per_snapshot=1)
    world.initialize(3, 100)
    world.read(5)
    world.now_ms += 1
    world.write(batch(100, 109, 2, 1), state_epoch=9, leader_epoch=7, delivery_complete_count=10)
    assert world.last_record() == (
        KEY,
        Snapshot(1, 3, 5, 100, 10, NOW_MS + 1, NOW_MS + 1, (batch(100, 109, 2, 1),), 5, 3),
    )


@pytest.mark.parametrize("limit", [0, 500])
def test_a_share_partition_that_would_outgrow_its_snapshot_may_only_shrink(limit: int) -> None:
    world = World(snapshot_update_records_per_snapshot=limit, state_batches_max=3)
    world.initialize(0, 100)
    world.write(batch(100, 109, 2, 1), batch(120, 129, 2, 1), batch(140, 149, 2, 1))
    before = world.state()
    assert world.write(batch(160, 169, 2, 1)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert world.state() == before
    # A batch that joins is taken, and so is one with a start offset that makes room.
    assert world.write(batch(110, 119, 2, 1)) == WriteResult()
    assert world.write(batch(160, 169, 2, 1), batch(180, 189, 2, 1), start_offset=150) == WriteResult()
    assert world.read().state_batches == (batch(160, 169, 2, 1), batch(180, 189, 2, 1))
    # A state that a larger setting let grow is still served.
    small = world.loaded(snapshot_update_records_per_snapshot=limit, state_batches_max=1)
    assert small.write(batch(160, 164, 2, 1), batch(165, 169, 2, 1)) == WriteResult()
    assert small.write(batch(200, 209, 2, 1)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert small.write(start_offset=170) == WriteResult()


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("count", [1, 32_767])
@pytest.mark.parametrize("first", [0, 1 << 40, 1 << 62, (1 << 63) - 200_000])
@pytest.mark.parametrize("group_id", ["g", "g" * 32_767])
def test_largest_share_partition_always_fits_into_one_record(
    codec: Codec, count: int, first: int, group_id: str
) -> None:
    bytes_max = 60_000
    world = World(codec=codec, snapshot_bytes_max=bytes_max, snapshot_update_records_per_snapshot=500)
    key = KEY._replace(group_id=group_id)
    extreme = (1 << 31) - 1
    world.run(world.shard.decide_initialize(key, extreme, first, NOW_MS))
    refused = None
    for turn in range(1_000):
        batches = tuple(batch(first + 2 * n, first + 2 * n, 2, count) for n in range(turn * 30, turn * 30 + 30))
        decision = world.shard.decide_write(key, extreme, extreme, first, extreme, batches, NOW_MS)
        if not decision.records:
            refused = decision.response
            break
        world.run(decision)
    assert isinstance(refused, WriteResult)
    assert refused.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert refused.error_message is not None
    assert "bytes more than one record of the log can have; move its start offset" in refused.error_message
    below = world.log_end
    ((_, snapshot),) = world.shard.decide_pruning_slice(below, 10, 1 << 30).records
    widest = snapshot._replace(snapshot_epoch=extreme, leader_epoch=extreme, leader_epoch_fence=extreme)
    raw_key, raw_value = world.shard.encode(key, widest)
    assert raw_value is not None
    room = bytes_max - len(raw_key) - len(raw_value)
    assert 0 <= room <= 30 * 25 + 60, "the bound is no estimate"
    # A write that makes room is taken.
    assert world.shard.decide_write(key, extreme, extreme, first + 1_000, -1, (), NOW_MS).records


def test_a_write_whose_own_batches_fit_into_no_record_is_refused_by_name() -> None:
    world = World(snapshot_bytes_max=40_000)
    world.initialize(0, 0)
    world.write(batch(0, 1 << 50, 2, 9))
    answer = world.write(*(batch((1 << 49) + 2 * n, (1 << 49) + 2 * n, 2, 1) for n in range(3_000)))
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert answer.error_message is not None
    assert "is given state batches that take" in answer.error_message


def test_state_from_a_larger_bound_is_written_as_updates_until_it_shrinks() -> None:
    world = World(snapshot_update_records_per_snapshot=0)
    world.initialize(0, 0)
    world.write(*(batch(2 * n, 2 * n, 2, 1) for n in range(3_000)))
    small = world.loaded(snapshot_update_records_per_snapshot=0, snapshot_bytes_max=10_000)
    assert small.write(start_offset=100) == WriteResult()
    assert type(small.last_record()[1]) is Update
    assert small.write(batch(1 << 40, 1 << 40, 2, 1)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert small.write(start_offset=5_900) == WriteResult()
    assert type(small.last_record()[1]) is Snapshot


# ---- Read (§6.3) -----------------------------------------------------------------------------------------------------


def test_a_read_without_a_new_leader_epoch_writes_nothing() -> None:
    world = known_world()
    world.write(batch(100, 109, 2, 1), delivery_complete_count=10)
    before = len(world.log)
    assert world.read(5) == ReadResult(0, None, 3, 100, (batch(100, 109, 2, 1),))
    assert len(world.log) == before


def test_a_read_with_a_new_leader_epoch_writes_it() -> None:
    world = known_world()
    world.write(batch(100, 109, 2, 1), delivery_complete_count=10)
    assert world.read(6) == ReadResult(0, None, 3, 100, (batch(100, 109, 2, 1),))
    assert world.last_record() == (KEY, Update(0, 6, 100, 10, ()))
    assert world.write(leader_epoch=5).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert world.loaded().write(leader_epoch=5).error_code == ErrorCode.FENCED_LEADER_EPOCH


def test_a_read_of_an_undecided_start_offset_writes_minus_one() -> None:
    world = World()
    world.initialize(0, -1)
    assert world.read(5) == ReadResult(0, None, 0, -1, ())
    assert world.last_record() == (KEY, Update(0, 5, -1, -1, ()))


def test_a_read_that_is_due_for_a_snapshot_writes_one() -> None:
    world = World(snapshot_update_records_per_snapshot=0)
    world.initialize(3, 100)
    world.write(batch(100, 109, 2, 1), delivery_complete_count=10)
    world.read(6)
    assert world.last_record() == (KEY, Snapshot(2, 3, 6, 100, 10, NOW_MS, NOW_MS, (batch(100, 109, 2, 1),), 6, 3))


# ---- Summary and Delete (§6.4, §6.6) ---------------------------------------------------------------------------------


def test_the_summary_of_an_uninitialized_share_partition_is_a_success() -> None:
    world = World()
    assert world.summarize() == SummaryResult(0, None, 0, 0, -1, -1)
    assert world.log == []


def test_a_summary_returns_what_is_stored_and_writes_nothing() -> None:
    world = known_world()
    world.write(batch(100, 109, 2, 1), delivery_complete_count=10)
    before = len(world.log)
    assert world.summarize() == SummaryResult(0, None, 3, 5, 100, 10)
    assert len(world.log) == before


def test_delete_writes_one_tombstone_and_starts_everything_over() -> None:
    world = known_world()
    assert world.delete() == DeleteResult()
    assert world.last_record() == (KEY, None)
    assert world.state() is None
    before = len(world.log)
    assert world.delete() == DeleteResult()
    assert len(world.log) == before
    assert world.initialize(0, 5) == InitializeResult()
    assert world.last_record() == (KEY, Snapshot(0, 0, 0, 5, 0, NOW_MS, NOW_MS, (), 0, 0))
