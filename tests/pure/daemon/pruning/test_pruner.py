"""Pruning of one log partition, with the real runtime and shard over the log in memory."""

from __future__ import annotations

from random import Random

import pytest

from holdfast.daemon.pruning.pruner import Phase
from holdfast.records.log.checkpoint import CHECKPOINT_KEY
from holdfast.records.share.codecs.codec import Codec
from holdfast.runtime.partition.states import State
from tests.simulated.memory_log import MemoryTopic
from tests.world.process import TICK_MS
from tests.world.pruning import (
    DELETING,
    IDLE,
    PRUNING_TIMEOUT_MS,
    REFRESHING,
    SETTINGS,
    WRITING,
    PrunedNode,
    tick_a_round,
)
from tests.world.samples import key_of

CHECK_TICKS = SETTINGS["pruning_check_interval_ms"] // TICK_MS
TIMEOUT_TICKS = PRUNING_TIMEOUT_MS // TICK_MS


@pytest.fixture
def node() -> PrunedNode:
    node = PrunedNode(MemoryTopic())
    node.fill()
    return node


# ---- a round ---------------------------------------------------------------------------------------------------------


def test_a_round_refreshes_writes_snapshots_and_cuts(node: PrunedNode) -> None:
    seen: list[Phase] = []
    for _ in range(1_000):
        node.tick()
        if not seen or seen[-1] is not node.pruner.phase:
            seen.append(node.pruner.phase)
        if seen[1:] and seen[-1] is IDLE:
            break
    assert seen == [IDLE, REFRESHING, WRITING, DELETING, IDLE]
    # One record of the key that was busy, the other nine were cold: all have their snapshot above the checkpoint.
    assert node.pruner.snapshots_written == 10
    assert node.log_start == node.partition.reading.checkpoint_offset == node.partition.log_start


def test_a_cut_log_begins_with_our_checkpoint_and_holds_a_snapshot_of_every_live_key(node: PrunedNode) -> None:
    node.delete(7)
    tick_a_round(node)
    log = node.topic.partitions[0]
    assert log.records[node.log_start].key == CHECKPOINT_KEY
    assert node.shard.is_prunable_to(node.log_start)
    live = [key_of(number) for number in range(10) if number != 7]
    assert sorted(node.states()) == live
    newest = {key: node.shard.state.offsets.newest_snapshot_offset(key) for key in live}
    assert all(offset is not None and offset > node.log_start for offset in newest.values())


def test_a_load_of_the_cut_log_gives_the_same_states(node: PrunedNode) -> None:
    tick_a_round(node)
    node.update(3, 500)
    before = node.states()
    successor = PrunedNode(node.topic, generation=2)
    assert successor.states() == before
    assert successor.partition.reading.records_loaded < 20


def test_a_log_of_which_little_is_dead_is_left_alone() -> None:
    node = PrunedNode(MemoryTopic())
    node.fill(updates=0)
    node.tick(3 * CHECK_TICKS)
    assert (node.pruner.phase, node.refreshes) == (IDLE, 0)
    dead, total = node.pruner.bytes_dead()
    assert node.pruner.why_not_pruned() == f"{dead} of {total} bytes are dead; a round begins at 50% and 1 bytes"


def test_a_log_with_few_dead_bytes_is_left_alone() -> None:
    node = PrunedNode(MemoryTopic(), pruning_dead_bytes_min=1_000_000)
    node.fill()
    node.tick(3 * CHECK_TICKS)
    assert node.refreshes == 0


def test_no_refresh_comes_before_a_round_is_done(node: PrunedNode) -> None:
    tick_a_round(node)
    assert node.refreshes == 1
    node.tick(3 * CHECK_TICKS)
    assert node.refreshes == 1, "nothing is dead after a cut"
    for turn in range(100):
        node.update(0, turn * 10 + 10_000, turn * 10 + 10_000)
    tick_a_round(node)
    assert node.refreshes == 2


def test_busy_keys_write_their_own_snapshots_meanwhile() -> None:
    node = PrunedNode(MemoryTopic(), snapshot_update_records_per_snapshot=0)
    node.fill(keys=2)
    node.tick_until(WRITING)
    node.update(0, 10_000, 10_000)
    node.settle()
    node.tick(20)
    assert node.pruner.snapshots_written == 1, "only the cold one"
    assert node.log_start > 0


def test_snapshots_leave_at_a_bounded_rate(node: PrunedNode) -> None:
    node.tick_until(WRITING)
    counts = []
    while node.pruner.phase is WRITING:
        node.tick(2)  # 100 ms
        counts.append(node.pruner.snapshots_written)
    assert counts == [3, 6, 9, 10, 10]


# ---- what holds a round up -------------------------------------------------------------------------------------------


def test_a_slice_that_fails_is_tried_again_without_another_refresh(node: PrunedNode) -> None:
    node.tick_until(WRITING)
    node.log.queue_records_max = 0
    node.tick(2)
    assert node.pruner.phase is WRITING
    assert node.pruner.why_not_pruned().endswith(
        "; writing the next ones failed: the log takes no more now: 0 records wait already"
    )
    node.tick(3 * CHECK_TICKS)
    assert (node.pruner.phase, node.refreshes) == (WRITING, 1)
    node.log.queue_records_max = 100_000
    node.tick(4 * CHECK_TICKS)
    assert (node.pruner.phase, node.refreshes) == (IDLE, 1)
    assert node.log_start == node.partition.reading.checkpoint_offset


def test_the_key_in_the_way_is_named(node: PrunedNode) -> None:
    node.tick_until(WRITING)
    offset = node.partition.reading.checkpoint_offset
    oldest = node.shard.state.offsets.oldest()
    assert oldest is not None
    assert node.pruner.why_not_pruned() == (
        f"key group:AAECAwQFBgcICQoLDA0ODw:0 has its newest snapshot at {oldest[1]}, below {offset}"
    )


def test_a_round_without_progress_is_given_up_and_the_next_one_waits_for_new_bytes(node: PrunedNode) -> None:
    node.tick_until(WRITING)
    node.tick(2)
    node.log.queue_records_max = 0
    node.tick(TIMEOUT_TICKS + 2 * CHECK_TICKS)
    assert (node.pruner.phase, node.log_start) == (IDLE, 0)
    node.log.queue_records_max = 100_000
    node.tick(10 * CHECK_TICKS)
    assert (node.pruner.phase, node.refreshes) == (IDLE, 1), "what the first round wrote is not paid for again"
    for turn in range(60):
        node.update(0, turn * 10 + 10_000, turn * 10 + 10_000)
    tick_a_round(node)
    assert node.refreshes == 2
    assert node.log_start == node.partition.reading.checkpoint_offset


def test_a_refresh_that_is_not_read_back_is_given_up(node: PrunedNode) -> None:
    node.tick_until(REFRESHING)
    for _ in range(TIMEOUT_TICKS + 1):
        node.tick_only()  # nothing of the log moves
    assert node.pruner.phase is IDLE
    assert node.pruner.snapshots_written == 0
    tick_a_round(node)
    assert node.log_start == node.partition.reading.checkpoint_offset


def test_a_round_that_wrote_no_snapshot_is_begun_again_without_new_bytes(node: PrunedNode) -> None:
    node.tick_until(REFRESHING)
    for _ in range(TIMEOUT_TICKS - 1):
        node.tick_only()
    node.settle()  # the checkpoint is read back in the last moment
    node.tick_only()
    assert (node.pruner.phase, node.refreshes) == (IDLE, 1)
    assert node.partition.reading.checkpoint_bytes > 0
    tick_a_round(node)
    assert node.log_start == node.partition.reading.checkpoint_offset


def test_a_cut_that_fails_is_requested_again(node: PrunedNode) -> None:
    node.tick_until(DELETING)
    node.settle()
    node.tick_only()
    node.log.delete(is_refused=True)
    node.settle()
    assert node.log_start == 0
    assert "record_deletion_failed" in node.notes
    written = node.pruner.snapshots_written
    node.tick(2 * CHECK_TICKS)
    assert node.log_start == node.partition.reading.checkpoint_offset
    assert (node.pruner.phase, node.refreshes, node.pruner.snapshots_written) == (IDLE, 1, written)


def test_a_cut_whose_answer_is_lost_is_known_at_the_next_try(node: PrunedNode) -> None:
    node.tick_until(DELETING)
    node.settle()
    node.topic.cut(0, node.partition.reading.checkpoint_offset)
    assert node.pruner.phase is DELETING
    node.tick(CHECK_TICKS + 1)
    assert node.pruner.phase is IDLE
    assert node.partition.reading.bytes_cut == node.partition.reading.checkpoint_bytes


# ---- registered readers ----------------------------------------------------------------------------------------------


def learn(node: PrunedNode, offset: int | None) -> None:
    offsets = {} if offset is None else {0: offset}
    node.readers.learn("reader", offsets, {0: node.partition.committed_offset})


@pytest.mark.parametrize("offset", [None, 0, 1, 70])
def test_the_log_is_not_cut_past_a_reader(offset: int | None) -> None:
    node = PrunedNode(MemoryTopic(), readers=("reader",))
    node.fill()
    learn(node, offset)
    node.tick_until(DELETING)
    node.settle()
    node.tick(2 * TIMEOUT_TICKS)
    cut_offset = node.partition.reading.checkpoint_offset
    assert (node.log_start, node.pruner.phase, node.refreshes) == (0, DELETING, 1), "a held round is not given up"
    stands = "has committed nothing" if offset is None else f"is at {offset}"
    assert (
        node.pruner.why_not_pruned()
        == f"reader reader {stands}; the log is pruned to {cut_offset} when it has read that offset"
    )
    learn(node, cut_offset)
    node.tick(2)
    assert node.log_start == 0, "the record that it read last would be cut off, by which it knows the log again"
    learn(node, cut_offset + 1)
    node.tick(2)
    assert node.log_start == cut_offset


def test_a_held_round_costs_nothing_more_however_long_it_is_held() -> None:
    node = PrunedNode(MemoryTopic(), readers=("reader",))
    node.fill()
    node.tick_until(DELETING)
    node.settle()
    cut_offset = node.partition.reading.checkpoint_offset
    assert (
        node.pruner.why_not_pruned()
        == f"reader reader is not looked up yet; the log is pruned to {cut_offset} when it has read that offset"
    )
    written, landed = node.pruner.snapshots_written, node.bytes_landed
    for turn in range(100):
        node.update(0, turn * 10 + 10_000, turn * 10 + 10_000)
    landed = node.bytes_landed
    node.tick(3 * TIMEOUT_TICKS)
    assert (node.pruner.snapshots_written, node.bytes_landed) == (written, landed)


# ---- the partition stops ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", [REFRESHING, WRITING, DELETING])
@pytest.mark.parametrize("is_settled", [False, True])
def test_a_partition_that_loads_again_in_any_phase_starts_over(phase: Phase, is_settled: bool) -> None:
    node = PrunedNode(MemoryTopic())
    node.fill()
    node.tick_until(phase)
    if is_settled:
        node.settle()
    before = node.states()
    node.runtime.unload(0, 2)
    node.tick()
    assert node.pruner.phase is IDLE
    assert node.pruner.why_not_pruned() == "the partition is closed"
    node.runtime.load(0, 3)
    node.settle()
    node.tick()
    assert node.states() == before
    assert node.pruner.phase is IDLE
    log_start = node.log_start
    tick_a_round(node)
    assert node.log_start == node.partition.reading.checkpoint_offset > log_start
    assert node.states() == before


@pytest.mark.parametrize("phase", [REFRESHING, WRITING, DELETING])
def test_an_instance_that_came_and_went_between_two_ticks_is_noticed(phase: Phase) -> None:
    node = PrunedNode(MemoryTopic())
    node.fill()
    node.tick_until(phase)
    node.runtime.unload(0, 2)
    node.runtime.load(0, 3)
    node.settle()
    log_start = node.log_start
    node.tick()
    assert (node.partition.state, node.pruner.phase, node.log_start) == (State.ACTIVE, IDLE, log_start)


@pytest.mark.parametrize("phase", [REFRESHING, WRITING, DELETING])
def test_a_node_that_lost_the_partition_cuts_nothing_more(phase: Phase) -> None:
    node = PrunedNode(MemoryTopic())
    node.fill()
    node.tick_until(phase)
    successor = PrunedNode(node.topic, generation=2)
    log_start, landed = node.log_start, node.bytes_landed
    node.tick(3 * CHECK_TICKS)
    assert (node.partition.state, node.pruner.phase) == (State.CLOSED, IDLE)
    assert (node.log_start, node.bytes_landed) == (log_start, landed)
    tick_a_round(successor)
    assert successor.log_start == successor.partition.reading.checkpoint_offset


def test_after_a_restart_the_bytes_in_the_log_count_again(node: PrunedNode) -> None:
    node.tick(1)
    dead, total = node.pruner.bytes_dead()
    successor = PrunedNode(node.topic, generation=2)
    assert successor.pruner.bytes_dead() == (dead, total)
    tick_a_round(successor)
    dead, total = successor.pruner.bytes_dead()
    assert dead == 0
    assert total == successor.bytes_landed - sum(
        len(record.key or b"") + len(record.value or b"")
        for record in successor.topic.partitions[0].records[: successor.log_start + 1]
    )


# ---- what it costs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("dead_share", [0.2, 0.5, 0.8])
def test_snapshot_bytes_stay_below_the_bound_with_ninety_percent_cold_keys(codec: Codec, dead_share: float) -> None:
    """In encoded bytes: what pruning writes over what calls write, over many rounds."""
    node = PrunedNode(MemoryTopic(), codec=codec, pruning_dead_share=dead_share, records_max=50)
    random = Random(1)
    keys, hot = 100, 10
    starts = [0] * keys
    for number in range(keys):
        node.initialize(number)
        node.update(number, 0)
    called_bytes = node.bytes_landed
    snapshot_bytes = rounds = longest_bytes = 0
    landed = called_bytes
    while rounds < 4:
        for _ in range(20):
            number = random.randrange(hot)
            starts[number] += random.choice((0, 10, 10, 10, 20))
            node.update(number, starts[number] + random.choice((0, 10, 20)), starts[number])
        called_bytes += node.bytes_landed - landed
        landed = node.bytes_landed
        log_start = node.log_start
        node.tick(CHECK_TICKS)
        snapshot_bytes += node.bytes_landed - landed
        landed = node.bytes_landed
        rounds += node.log_start > log_start
        longest_bytes = max(longest_bytes, node.pruner.bytes_dead()[1])
    amplification = snapshot_bytes / called_bytes
    live_bytes = sum(
        len(record.key or b"") + len(record.value or b"")
        for record in node.topic.partitions[0].records[node.log_start :][: keys + 1]
    )
    bound = 1 / dead_share - 1
    print(
        f"\n{codec.value}, dead share {dead_share}: {snapshot_bytes} snapshot bytes over {called_bytes} bytes of calls = "
        f"{amplification:.3f}, bound {bound:.3f}; log at most {longest_bytes / live_bytes:.2f} times its live bytes"
    )
    assert 0 < amplification <= bound * 1.1


# ---- a snapshot that does not fit ----------------------------------------------------------------------------------------


def test_a_key_whose_snapshot_the_log_refuses_is_named_and_keeps_no_other_from_being_written() -> None:
    node = PrunedNode(MemoryTopic())
    node.fill()
    for first in range(0, 2_000, 20):
        node.update(5, first)
    node.topic.message_bytes_max = 400
    node.tick_until(WRITING)
    node.tick(2 * TIMEOUT_TICKS)
    assert node.pruner.phase is WRITING, "a new round would write all of it again"
    assert node.pruner.why_not_pruned().startswith("key group:")
    assert ":5 alone blocks it: a record of" in node.pruner.why_not_pruned()
    assert {key.partition for key in node.shard.state.offsets.below(node.partition.reading.checkpoint_offset)} == {5}
    assert node.refreshes == 1
    landed = node.bytes_landed
    node.tick(2 * TIMEOUT_TICKS)
    assert node.bytes_landed == landed, "waiting costs nothing"
    assert node.notes.count("record_refused") <= 1 + 4 * TIMEOUT_TICKS * TICK_MS // 60_000
    node.update(5, 2_000, start_offset=2_000)
    node.tick_until(IDLE)
    assert node.log_start == node.partition.reading.checkpoint_offset


def test_lines_about_records_that_are_too_large_come_at_most_once_a_minute_and_count_the_others() -> None:
    node = PrunedNode(MemoryTopic(), snapshot_update_records_per_snapshot=0)
    node.initialize(0)
    node.topic.message_bytes_max = 10
    for _ in range(100):
        node.refused_update(0)
    assert node.notes.count("record_refused") == 1
    node.tick(60_000 // TICK_MS)
    node.refused_update(0)
    assert node.notes.count("record_refused") == 2
