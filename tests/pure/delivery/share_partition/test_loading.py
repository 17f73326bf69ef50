"""Part B.1 and B.2: the conditions of a share partition, and what a load makes of the state that was read."""

from __future__ import annotations

import pytest

from holdfast.delivery.group_config import DEFAULT
from holdfast.delivery.share_partition.partition import SharePartition
from holdfast.delivery.share_partition.values import Condition, StateWrite
from holdfast.records.share.batches import StateBatch
from tests.pure.delivery.share_partition.world import acknowledge, acquire, loaded, states


def test_nothing_is_acquired_before_a_load_and_after_a_fence() -> None:
    partition = SharePartition(7, DEFAULT)
    assert acquire(partition, (0, 9)) == []
    partition.begin_load()
    conditions = [partition.condition]
    assert acquire(partition, (0, 9)) == []
    partition.loaded(3, 0, [])
    conditions.append(partition.condition)
    assert conditions == [Condition.LOADING, Condition.ACTIVE]
    assert acquire(partition, (0, 9)) == [(0, 9, 1)]
    partition.fence()
    assert acquire(partition, (10, 19)) == []
    # Acquired records can still be settled.
    acknowledge(partition, (0, 9, [1]))
    assert partition.start_offset == 10


def test_a_load_that_failed_ends_there() -> None:
    partition = SharePartition(7, DEFAULT)
    partition.begin_load()
    partition.load_failed()
    assert partition.condition is Condition.FAILED
    assert partition.loaded(3, 0, []) is None
    assert partition.condition is Condition.FAILED


def test_a_load_that_ends_after_a_fence_changes_nothing() -> None:
    partition = SharePartition(7, DEFAULT)
    partition.begin_load()
    partition.fence()
    partition.loaded(3, 5, [])
    partition.load_failed()
    assert (partition.condition, partition.start_offset) == (Condition.FENCED, 0)


def test_a_new_state_is_fetched_from_its_start() -> None:
    partition = loaded(12)
    assert (partition.start_offset, partition.end_offset, partition.next_fetch_offset()) == (12, 12, 12)
    assert partition.can_acquire()


def test_both_epochs_are_in_every_write() -> None:
    partition = loaded()
    acquire(partition, (0, 9))
    write = partition.release("m1")
    assert isinstance(write, StateWrite)
    assert (write.state_epoch, write.leader_epoch) == (3, 7)


def test_loaded_batches_have_no_member_and_the_start_passes_the_settled() -> None:
    partition = loaded(5, [(5, 6, 2, 1), (7, 9, 0, 2), (10, 12, 4, 1)])
    assert states(partition) == [(7, 9, 0, 2, ""), (10, 12, 4, 1, "")]
    assert (partition.start_offset, partition.end_offset, partition.delivery_complete_count) == (7, 12, 3)
    assert partition.next_fetch_offset() == 7


def test_holes_are_fetched_again() -> None:
    """A former leader handed them out, and they were never settled."""
    partition = loaded(0, [(3, 4, 2, 1), (8, 9, 2, 1)])
    assert partition.next_fetch_offset() == 0
    assert acquire(partition, (0, 9)) == [(0, 2, 1), (5, 7, 1)]
    assert partition.next_fetch_offset() == 10


def test_a_hole_after_the_end_of_the_load_is_not_fetched_again() -> None:
    """It is natural: no record is there."""
    partition = loaded(0, [(0, 4, 0, 1)])
    assert acquire(partition, (0, 4)) == [(0, 4, 2)]
    assert partition.next_fetch_offset() == 5
    assert acquire(partition, (8, 9)) == [(8, 9, 1)]
    acknowledge(partition, (0, 4, [2]))
    assert partition.next_fetch_offset() == 0
    assert acquire(partition, (0, 4), (8, 9)) == [(0, 4, 3)]


def test_the_start_does_not_pass_a_hole_that_was_not_fetched() -> None:
    partition = loaded(0, [(0, 2, 2, 1), (5, 6, 2, 1)])
    assert (partition.start_offset, partition.next_fetch_offset()) == (3, 3)
    acquire(partition, (3, 6))
    acknowledge(partition, (3, 4, [1]))
    assert partition.start_offset == 5, "the gap still ends at the end of the load"
    write = partition.settle()
    assert write is not None
    assert write.start_offset == 7


def test_the_count_of_a_loaded_batch_may_be_at_the_limit() -> None:
    """It is delivered once more, alone in its batch."""
    partition = loaded(0, [(0, 0, 0, 5)])
    assert acquire(partition, (0, 0)) == [(0, 0, 6)]


@pytest.mark.parametrize(
    ("batches", "text"),
    [
        ([(5, 4, 0, 1)], "offsets 5 to 4; its last offset must not be below its first"),
        ([(1, 4, 0, 1)], "offsets 1 to 4, which begins below its start offset, 2"),
        ([(2, 4, 0, 1), (4, 5, 0, 1)], "offsets 4 to 5, which begins below the end of the batch before, 5"),
    ],
)
def test_a_state_that_means_nothing_fails_the_load(batches: list[tuple[int, int, int, int]], text: str) -> None:
    partition = SharePartition(7, DEFAULT)
    partition.begin_load()
    wrong = partition.loaded(3, 2, [StateBatch(*batch) for batch in batches])
    assert wrong is not None
    assert text in wrong
    assert partition.condition is Condition.FAILED
    assert acquire(partition, (2, 9), at=2) == []
