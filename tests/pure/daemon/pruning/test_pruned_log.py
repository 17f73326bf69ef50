"""A log that was pruned: its start may fall back, another program may cut it, and what an admin accepted stays accepted."""

from __future__ import annotations

import pytest

from holdfast.records.log.checkpoint import CHECKPOINT_KEY, decode_checkpoint, encode_checkpoint
from holdfast.records.log.header import encode_header
from tests.simulated.memory_log import MemoryTopic
from tests.world.pruning import (
    DELETING,
    IDLE,
    PrunedNode,
    tick_a_round,
)


@pytest.fixture
def node() -> PrunedNode:
    node = PrunedNode(MemoryTopic())
    node.fill()
    return node


# ---- a log start that falls back -------------------------------------------------------------------------------------


def test_a_log_start_that_fell_back_behind_a_cut_is_no_alarm_and_no_state_changes(node: PrunedNode) -> None:
    node.delete(7)
    tick_a_round(node)
    cut, before = node.log_start, node.states()
    log = node.topic.partitions[0]
    for fallen_back in range(1, cut):
        log.log_start_offset = fallen_back
        successor = PrunedNode(node.topic, generation=1 + fallen_back)
        assert successor.states() == before, f"the log starts at {fallen_back} again"
        assert successor.partition.log_start == cut
        assert successor.notes[1:3] == ["load_restarted_at_cut", "log_partition_loaded"]
    log.log_start_offset = 0
    whole = PrunedNode(node.topic, generation=cut + 1)
    assert whole.states() == before
    assert whole.notes[:2] == ["load_accepted", "log_partition_loaded"], "a log that starts at 0 was never cut"


def test_a_claim_that_lost_the_epoch_does_not_hide_its_owner_where_the_log_start_fell_back(node: PrunedNode) -> None:
    """Read from the claim on, it seems to have won, and nothing of the owner seems to count."""
    log = node.topic.partitions[0]
    owner = node.partition.ownership
    assert owner.winner is not None
    claim = owner.winner._replace(attempt_id=bytes(16), node_id="rival")
    lost = len(log.records)
    node.topic.write_foreign(0, CHECKPOINT_KEY, encode_checkpoint(claim), encode_header(owner.epoch, 0))
    node.settle()
    tick_a_round(node)
    cut, before = node.log_start, node.states()
    assert lost < cut
    log.log_start_offset = lost
    successor = PrunedNode(node.topic, generation=2)
    assert successor.states() == before
    assert successor.partition.log_start == cut


def test_the_log_says_that_it_may_be_cut_before_it_is(node: PrunedNode) -> None:
    node.tick_until(DELETING)
    assert node.pruner.phase is DELETING
    assert node.log_start == 0
    node.tick_until(IDLE)
    records = node.topic.partitions[0].records[node.log_start :]
    named = [decode_checkpoint(record.value or b"").cut_offset for record in records if record.key == CHECKPOINT_KEY]
    assert named == [-1, node.log_start]
    assert node.partition.reading.checkpoint_offset == node.log_start, "what names a cut is nothing to cut to"


def test_a_foreign_cut_above_the_named_one_is_still_an_alarm(node: PrunedNode) -> None:
    tick_a_round(node)
    for turn in range(5):
        node.update(0, 700 + 10 * turn)
    node.topic.partitions[0].log_start_offset = node.partition.committed_offset - 2
    successor = PrunedNode(node.topic, generation=2)
    assert successor.partition.is_alarmed
    assert "and no checkpoint says that it is whole: another program deleted records" in (
        successor.partition.failure or ""
    )


def test_a_cut_that_nothing_at_its_offset_bears_out_is_an_alarm(node: PrunedNode) -> None:
    """A checkpoint names a cut that its owner never came to: the log lost records, and others lie there."""
    log = node.topic.partitions[0]
    for is_refreshed in (False, True):
        if is_refreshed:
            node.runtime.refresh(0)
        node.runtime.refresh(0, cut_offset=9)
        node.settle()
        log.log_start_offset = 3
        successor = PrunedNode(node.topic, generation=2)
        assert successor.partition.is_alarmed
        assert "the log starts at 3 and no checkpoint says that it is whole" in (successor.partition.failure or "")


# ---- what an admin accepted ------------------------------------------------------------------------------------------


def test_a_log_that_an_admin_accepted_stays_so_through_restarts_and_cuts() -> None:
    origin = PrunedNode(MemoryTopic(1), 7)
    origin.initialize(0)
    topic = MemoryTopic(1)
    topic.make()
    for record in origin.topic.partitions[0].records:
        topic.write_foreign(0, record.key, record.value, record.header)
    topic.run_until_quiet()
    node = PrunedNode(topic)
    assert node.partition.is_alarmed
    node.runtime.accept(0, "restored from another cluster")
    node.settle()
    assert node.shard.load.is_accepted
    for generation in (2, 3):
        node = PrunedNode(topic, generation)
        assert node.shard.load.is_accepted
        node.fill(keys=2)
        log_start = node.log_start
        tick_a_round(node)
        assert node.log_start > log_start
        checkpoints = [
            decode_checkpoint(record.value or b"")
            for record in topic.partitions[0].records[node.log_start :]
            if record.key == CHECKPOINT_KEY
        ]
        assert checkpoints
        assert {(one.reason, one.accepted_reason) for one in checkpoints} == {(None, "restored from another cluster")}
    assert PrunedNode(topic, 4).shard.load.is_accepted
    assert not PrunedNode(MemoryTopic(1), 1).shard.load.is_accepted
