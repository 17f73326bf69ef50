"""Properties of a shard after any sequence of calls: decisions are pure, and every way to a state leads to the same one."""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.records.share.batches import StateBatch
from holdfast.records.share.codecs.codec import Codec, decode_record
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.values import Snapshot, Update
from holdfast.runtime.state_machine import Decision
from holdfast.share.decisions import ShareShard
from tests.pure.records.strategies import batch_lists, start_offsets
from tests.shards import summarize
from tests.vectors.parity import decide_cold_snapshots
from tests.world.samples import OTHER_TOPIC, TOPIC, UNKNOWN_TOPIC
from tests.world.shard import LOG_START, World, without_counts

Decide = Callable[[ShareShard, int], Decision]


class Step(NamedTuple):
    """One thing that happens to a shard."""

    name: str
    decide: Decide
    #: The codec its records are written in.
    codec: Codec
    is_refused: bool
    elapsed_ms: int


keys = st.builds(
    SharePartitionKey,
    st.sampled_from(("a", "ä:b")),
    st.sampled_from((TOPIC, OTHER_TOPIC, UNKNOWN_TOPIC)),
    st.integers(-1, 2),
)
epochs = st.integers(-1, 4)
topic_sets = st.frozensets(st.sampled_from((TOPIC, OTHER_TOPIC)))


def _initialize(key: SharePartitionKey, state_epoch: int, start_offset: int) -> tuple[str, Decide]:
    return "initialize", lambda shard, now_ms: shard.decide_initialize(key, state_epoch, start_offset, now_ms)


def _read(key: SharePartitionKey, leader_epoch: int) -> tuple[str, Decide]:
    return "read", lambda shard, now_ms: shard.decide_read(key, leader_epoch, now_ms)


def _write(
    key: SharePartitionKey,
    state_epoch: int,
    leader_epoch: int,
    start_offset: int,
    delivery_complete_count: int,
    state_batches: list[StateBatch],
) -> tuple[str, Decide]:
    return "write", lambda shard, now_ms: shard.decide_write(
        key, state_epoch, leader_epoch, start_offset, delivery_complete_count, tuple(state_batches), now_ms
    )


def _delete(key: SharePartitionKey) -> tuple[str, Decide]:
    return "delete", lambda shard, now_ms: shard.decide_delete(key)


def _summarize(key: SharePartitionKey) -> tuple[str, Decide]:
    return "summary", lambda shard, now_ms: shard.decide_summary(key)


def _clean_up(topic_ids: frozenset[bytes], records_max: int) -> tuple[str, Decide]:
    return "clean up", lambda shard, now_ms: shard.decide_topic_cleanup(topic_ids, records_max)


def _compact(depth: int) -> tuple[str, Decide]:
    return "prune", lambda shard, now_ms: shard.decide_pruning_slice(LOG_START + depth, 3, 1000)


def _cool() -> tuple[str, Decide]:
    return "cool", lambda shard, now_ms: decide_cold_snapshots(shard, now_ms, 300_000)


writes = st.builds(_write, keys, epochs, epochs, start_offsets, st.integers(-1, 9), batch_lists)
initializes = st.builds(_initialize, keys, epochs, start_offsets)
actions = st.one_of(
    initializes,
    initializes,
    writes,
    writes,
    writes,
    st.builds(_read, keys, epochs),
    st.builds(_delete, keys),
    st.builds(_summarize, keys),
    st.builds(_clean_up, topic_sets, st.integers(1, 3)),
    st.builds(_compact, st.integers(0, 60)),
    st.builds(_cool),
)


@st.composite
def _steps(draw: st.DrawFn) -> Step:
    name, decide = draw(actions)
    return Step(
        name,
        decide,
        draw(st.sampled_from(Codec)),
        is_refused=draw(st.integers(0, 5)) == 0,
        elapsed_ms=draw(st.sampled_from((0, 1, 400_000))),
    )


steps = st.lists(_steps(), max_size=60)
limits = st.sampled_from((0, 1, 2, 5, 500))


def play(world: World, script: list[Step]) -> None:
    for step in script:
        world.now_ms += step.elapsed_ms
        decision = step.decide(world.shard, world.now_ms)
        if step.is_refused:
            world.run_and_refuse(decision)
        else:
            world.run(decision, step.codec)


def decoded(world: World) -> list[tuple[SharePartitionKey, Snapshot | Update | None]]:
    records = []
    for raw_key, raw_value in world.log:
        key, value, trailing_bytes = decode_record(raw_key, raw_value)
        assert value is None or isinstance(value, Snapshot | Update)
        assert trailing_bytes == 0
        records.append((key, value))
    return records


# ---- decisions are pure ----------------------------------------------------------------------------------------------


def check_purity(world: World, script: list[Step]) -> None:
    """Fail when a decision of `script` changes anything."""
    for step in script:
        before = pickle.dumps(world.shard)
        decision = step.decide(world.shard, world.now_ms)
        assert pickle.dumps(world.shard) == before, step.name
        assert step.decide(world.shard, world.now_ms) == decision
        world.run(decision, step.codec)


@given(limits, steps)
def test_deciding_changes_nothing(limit: int, script: list[Step]) -> None:
    check_purity(World(snapshot_update_records_per_snapshot=limit), script)


class Mutant(ShareShard):
    """Raises the leader epoch in memory only, as early share coordinators did."""

    def decide_read(self, key: SharePartitionKey, leader_epoch: int, now_ms: int) -> Decision:
        decision = super().decide_read(key, leader_epoch, now_ms)
        for record_key, value in decision.records:
            self.replay(record_key, value, 1_000_000)
        return decision


def test_the_check_of_purity_finds_a_read_that_raises_the_fence_in_memory() -> None:
    world = World()
    world.shard = Mutant(world.config)
    world.shard.on_loaded(world.image)
    key = SharePartitionKey("a", TOPIC, 0)
    script = [Step(*action, Codec.AVRO, False, 0) for action in (_initialize(key, 0, 0), _read(key, 3))]
    with pytest.raises(AssertionError, match="read"):
        check_purity(world, script)


# ---- one state, however it was come by -------------------------------------------------------------------------------


@given(limits, steps)
def test_a_load_gives_the_live_state_in_any_mixture_of_codecs(limit: int, script: list[Step]) -> None:
    world = World(snapshot_update_records_per_snapshot=limit)
    play(world, script)
    loaded = world.loaded()
    assert without_counts(loaded.states()) == without_counts(world.states())
    assert summarize(loaded.shard) == summarize(world.shard)
    assert loaded.shard.state.topic_ids() == world.shard.state.topic_ids()
    assert all(state.update_count <= limit for state in loaded.states().values())


@given(limits, steps, st.lists(_steps().filter(lambda step: step.name != "clean up"), max_size=10))
def test_a_loaded_shard_answers_as_the_live_one(limit: int, script: list[Step], further: list[Step]) -> None:
    world = World(snapshot_update_records_per_snapshot=limit)
    play(world, script)
    loaded = world.loaded()
    for step in further:
        live_decision = step.decide(world.shard, world.now_ms)
        loaded_decision = step.decide(loaded.shard, world.now_ms)
        assert loaded_decision.response == live_decision.response
        assert loaded_decision.is_malformed == live_decision.is_malformed
        world.run(live_decision)
        loaded.run(loaded_decision)


@given(limits, steps)
def test_a_replay_in_another_life_gives_the_live_state(limit: int, script: list[Step]) -> None:
    world, other = World(snapshot_update_records_per_snapshot=limit), World(snapshot_update_records_per_snapshot=limit)
    play(world, script)
    for offset, (key, value) in enumerate(decoded(world), start=LOG_START):
        other.position += 1
        other.shard.replay(key, value, other.position)
        other.shard.committed(key, value, offset, other.position, 0)
    assert other.states() == world.states()
    assert list(other.shard.state.offsets.below(1 << 62)) == list(world.shard.state.offsets.below(1 << 62))
    assert other.shard.state.offsets.oldest() == world.shard.state.offsets.oldest()


@given(limits, steps)
def test_a_pruned_log_gives_the_live_state(limit: int, script: list[Step]) -> None:
    world = World(snapshot_update_records_per_snapshot=limit)
    play(world, script)
    below = world.log_end
    while (decision := world.shard.decide_pruning_slice(below, 2, 500)).records:
        world.run(decision)
    world.log, world.log_start = world.log[below - LOG_START :], below
    assert without_counts(world.loaded().states()) == without_counts(world.states())
    assert world.shard.is_prunable_to(below)


@given(limits, steps)
def test_an_undone_operation_leaves_no_trace(limit: int, script: list[Step]) -> None:
    world = World(snapshot_update_records_per_snapshot=limit)
    for step in script:
        world.now_ms += step.elapsed_ms
        decision = step.decide(world.shard, world.now_ms)
        states, summary = world.states(), summarize(world.shard)
        world.run_and_refuse(decision)
        assert world.states() == states
        assert summarize(world.shard) == summary
        assert step.decide(world.shard, world.now_ms).response == decision.response
        world.run(decision)


# ---- the log ---------------------------------------------------------------------------------------------------------


@given(limits, steps)
def test_snapshot_epochs_rise_by_one_and_at_most_limit_updates_lie_between(limit: int, script: list[Step]) -> None:
    world = World(snapshot_update_records_per_snapshot=limit)
    play(world, script)
    epochs: dict[SharePartitionKey, int] = {}
    updates: defaultdict[SharePartitionKey, int] = defaultdict(int)
    for key, value in decoded(world):
        if value is None:
            del epochs[key]
            updates.pop(key, None)
        elif isinstance(value, Snapshot):
            assert value.snapshot_epoch == epochs.get(key, -1) + 1
            epochs[key] = value.snapshot_epoch
            updates[key] = 0
        else:
            assert value.snapshot_epoch == epochs[key]
            updates[key] += 1
            assert updates[key] <= limit


@given(limits, steps)
def test_fences_never_fall_while_a_share_partition_lives(limit: int, script: list[Step]) -> None:
    world = World(snapshot_update_records_per_snapshot=limit)
    for step in script:
        before = world.states()
        play(world, [step])
        for key, state in world.states().items():
            if key in before:
                assert state.leader_epoch_fence >= before[key].leader_epoch_fence >= before[key].leader_epoch
                assert state.state_epoch_fence >= before[key].state_epoch_fence >= before[key].state_epoch


@given(limits, steps)
def test_the_accounts_agree_with_the_states(limit: int, script: list[Step]) -> None:
    world = World(snapshot_update_records_per_snapshot=limit)
    play(world, script)
    states = world.states()
    assert world.shard.state.live_bytes == sum(
        world.shard.state.estimate_size(key, state) for key, state in states.items()
    )
    assert world.shard.state.topic_ids() == {key.topic_id for key in states}
    assert world.shard.state.share_partition_count() == len(states)
    assert {key for key in states if world.shard.state.offsets.newest_snapshot_offset(key) is None} == set()
    assert len(world.shard.state.offsets) == len(states)
