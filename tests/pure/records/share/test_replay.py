"""Replay: what each record does to the state of its share partition."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.records.share.batches import StateBatch
from holdfast.records.share.combining import combine
from holdfast.records.share.replay import ShareState, fold_without_snapshot, replay
from holdfast.records.share.values import Snapshot, Update, Value
from tests.pure.records.strategies import batch_lists

LIMIT = 2
BATCH = StateBatch(100, 109, 0, 2)
SNAPSHOT = Snapshot(3, 2, 5, 100, -1, 1000, 2000, (BATCH,), 5, 2)
UPDATE = Update(3, 6, 105, 4, (StateBatch(110, 119, 2, 1),))
STATE = ShareState(*SNAPSHOT, update_count=0)

epochs = st.integers(-1, 9)
small_snapshots = st.builds(
    Snapshot,
    st.integers(0, 9),
    epochs,
    epochs,
    st.integers(-1, 30),
    st.integers(-1, 9),
    st.integers(0, 9),
    st.integers(0, 9),
    batch_lists.map(lambda batches: combine((), batches, -1)),
    epochs,
    epochs,
)
small_updates = st.builds(
    Update, st.integers(0, 9), epochs, st.integers(-1, 30), st.integers(-1, 9), batch_lists.map(tuple)
)
small_values = small_snapshots | small_updates | st.none()


def test_a_snapshot_of_an_unknown_share_partition_is_its_state() -> None:
    assert replay(None, SNAPSHOT, LIMIT) == STATE


def test_a_snapshot_replaces_everything_but_the_fences() -> None:
    old = STATE._replace(leader_epoch_fence=9, state_epoch_fence=8)
    fresh = Snapshot(4, 3, 0, 50, 0, 3000, 3000, (), 7, 3)
    assert replay(old, fresh, LIMIT) == ShareState(4, 3, 0, 50, 0, 3000, 3000, (), 9, 8, 0)


def test_the_fences_of_a_snapshot_raise_those_of_the_state() -> None:
    after = replay(
        STATE, SNAPSHOT._replace(leader_epoch=0, state_epoch=0, leader_epoch_fence=8, state_epoch_fence=7), LIMIT
    )
    assert after is not None
    assert (after.leader_epoch, after.leader_epoch_fence) == (0, 8)
    assert (after.state_epoch, after.state_epoch_fence) == (0, 7)


@pytest.mark.parametrize(("before", "after"), [(0, 0), (1, 1), (2, 0), (3, 0)])
def test_a_snapshot_sets_the_update_count_back_only_at_the_limit(before: int, after: int) -> None:
    state = replay(STATE._replace(update_count=before), SNAPSHOT, LIMIT)
    assert state is not None
    assert state.update_count == after


def test_an_update_moves_what_it_names_and_counts() -> None:
    assert replay(STATE, UPDATE, LIMIT) == ShareState(
        3, 2, 6, 105, 4, 1000, 2000, (StateBatch(105, 109, 0, 2), StateBatch(110, 119, 2, 1)), 6, 2, 1
    )


def test_an_update_leaves_fields_of_minus_one_but_for_the_finished_count() -> None:
    state = STATE._replace(delivery_complete_count=7)
    assert replay(state, Update(3, -1, -1, -1, ()), LIMIT) == STATE._replace(delivery_complete_count=-1, update_count=1)


def test_an_older_leader_epoch_is_stored_and_the_fence_stays() -> None:
    after = replay(STATE, UPDATE._replace(leader_epoch=4), LIMIT)
    assert after is not None
    assert (after.leader_epoch, after.leader_epoch_fence) == (4, 5)


def test_an_update_of_an_unknown_share_partition_leaves_it_unknown() -> None:
    assert replay(None, UPDATE, LIMIT) is None


def test_without_its_base_an_update_can_be_folded_as_kafka_does() -> None:
    assert fold_without_snapshot(UPDATE) == ShareState(3, 0, 6, 105, 4, 0, 0, UPDATE.state_batches, 6, -1, 1)


def test_a_tombstone_forgets_everything() -> None:
    assert replay(STATE, None, LIMIT) is None
    assert replay(None, None, LIMIT) is None


def kafkas_fold(values: list[Value], limit: int) -> tuple[object, ...]:
    """Fold values by a simple model: Kafka's four maps of one key, each kept on its own."""
    state: tuple[object, ...] | None = None
    leader_fence = state_fence = count = None
    for value in values:
        if value is None:
            state = leader_fence = state_fence = count = None
        elif isinstance(value, Snapshot):
            leader_fence = highest(leader_fence, value.leader_epoch, value.leader_epoch_fence)
            state_fence = highest(state_fence, value.state_epoch, value.state_epoch_fence)
            state = tuple(value[:8])
            count = 0 if count is not None and count >= limit else count
        elif state is not None:
            leader_fence = highest(leader_fence, value.leader_epoch)
            count = (count or 0) + 1
            start = state[3] if value.start_offset == -1 else value.start_offset
            leader_epoch = state[2] if value.leader_epoch == -1 else value.leader_epoch
            batches = combine(state[7], value.state_batches, start)  # type: ignore[arg-type] # a row of many types
            state = (*state[:2], leader_epoch, start, value.delivery_complete_count, *state[5:7], batches)
    return state, leader_fence, state_fence, count or 0


def highest(*epochs: int | None) -> int:
    return max(epoch for epoch in epochs if epoch is not None)


@given(st.lists(small_values, max_size=12), st.integers(0, 4))
def test_replay_agrees_with_four_separate_maps(values: list[Value], limit: int) -> None:
    state: ShareState | None = None
    for value in values:
        state = replay(state, value, limit)
    ours = (None, None, None, 0) if state is None else (tuple(state[:8]), *state[8:])
    assert ours == kafkas_fold(values, limit)


@given(st.lists(small_values, min_size=1, max_size=12), st.data())
def test_a_cut_log_gives_the_same_state_wherever_it_knows_one(values: list[Value], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(values)))
    whole: ShareState | None = None
    after_cut: ShareState | None = None
    for index, value in enumerate(values):
        whole = replay(whole, value, LIMIT)
        if index >= cut:
            after_cut = replay(after_cut, value, LIMIT)
            if after_cut is not None:
                assert whole is not None
                assert after_cut[:8] == whole[:8]
                assert after_cut.leader_epoch_fence <= whole.leader_epoch_fence
            else:
                assert whole is None or not any(isinstance(value, Snapshot) for value in values[cut : index + 1])
