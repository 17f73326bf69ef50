"""Part B.9: how far all is done, as writes tell it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.delivery.group_config import DEFAULT
from holdfast.delivery.share_partition.partition import SharePartition
from holdfast.delivery.share_partition.values import AcquireMode, Condition
from tests.pure.delivery.share_partition.world import acknowledge, acquire, begin_acknowledge, loaded, states

ONCE = replace(DEFAULT, delivery_count_limit=1)


def holding() -> SharePartition:
    partition = loaded()
    acquire(partition, (0, 4), (5, 9), batch_size=5)
    return partition


def test_a_write_has_the_start_offset_that_holds_when_it_succeeds() -> None:
    partition = holding()
    write = begin_acknowledge(partition, (0, 6, [1]))
    assert (write.start_offset_before, write.complete_count_before) == (0, 7), "Kafka's"
    assert partition.join_writes([write]) == (3, 7, 7, 0, ((0, 6, 2, 1),))
    partition.write_done(write, 0)
    assert (partition.start_offset, partition.delivery_complete_count) == (7, 0)


def test_it_does_not_count_on_another_write() -> None:
    partition = holding()
    first = begin_acknowledge(partition, (0, 4, [1]))
    second = begin_acknowledge(partition, (5, 7, [1]))
    assert (first.start_offset, first.delivery_complete_count) == (5, 0)
    assert (second.start_offset, second.delivery_complete_count) == (0, 8)


def test_a_release_moves_no_start() -> None:
    write = begin_acknowledge(holding(), (0, 9, [2]))
    assert (write.start_offset, write.delivery_complete_count) == (0, 0)


def test_several_writes_go_as_one_with_the_start_offset_of_all() -> None:
    partition = holding()
    writes = [begin_acknowledge(partition, (0, 4, [1])), begin_acknowledge(partition, (5, 7, [1]))]
    assert partition.join_writes(writes) == (3, 7, 8, 0, ((0, 4, 2, 1), (5, 7, 2, 1)))
    for write in writes:
        partition.write_done(write, 0)
    assert partition.start_offset == 8


def test_the_start_offset_in_the_log_never_falls() -> None:
    """The gap goes back to what was acquired again, and the start offset with it; what was written before holds as well."""
    partition = loaded(0, [(2, 4, 0, 1), (8, 11, 0, 1)])
    acquire(partition, (2, 4))
    acknowledge(partition, (3, 4, [2]))
    acquire(partition, (8, 11), mode=AcquireMode.RECORD_LIMIT, wanted=1, at=5)
    write = begin_acknowledge(partition, (2, 2, [1]))
    assert write.start_offset == 3
    acquire(partition, (2, 4), mode=AcquireMode.RECORD_LIMIT, wanted=1, at=3)
    partition.write_done(write, 0)
    assert partition.start_offset == 0
    assert begin_acknowledge(partition, (3, 3, [2])).start_offset == 3


def test_a_write_of_the_start_offset_alone_tells_what_ended_without_one() -> None:
    partition = loaded(0, [(0, 4, 0, 1), (5, 9, 0, 1)])
    assert partition.settle() is None
    acquire(partition, (5, 9), at=0)
    write = partition.settle()
    assert write is not None
    assert partition.join_writes([write]) == (3, 7, 5, 0, ())
    assert (partition.start_offset, states(partition)) == (5, [(5, 9, 1, 2, "m1")])
    partition.write_done(write, 0)
    assert partition.settle() is None


def test_a_write_that_failed_is_told_again() -> None:
    partition = holding()
    partition.move_log_start(3)
    write = partition.settle()
    assert write is not None
    assert partition.write_done(write, 7).error_code == -1
    again = partition.settle()
    assert again is not None
    assert again.start_offset == 3


@pytest.mark.parametrize("is_of_locks", [False, True])
def test_records_given_up_by_a_failure_go_with_the_writes_after_it(is_of_locks: bool) -> None:
    """Its member is gone, or its lock over: nobody else would tell the log, and another leader would give it again."""
    partition = loaded(config=ONCE)
    acquire(partition, (0, 4), member="m2", now=20_000)
    acquire(partition, (5, 9))
    given_back = partition.tick(30_000) if is_of_locks else partition.release("m1", is_gone=True)
    assert given_back is not None
    assert partition.is_told
    partition.write_done(given_back, 15)
    assert states(partition)[-1] == (5, 9, 4, 1, "")
    assert not partition.is_told
    for error in (15, 0):
        again = partition.settle()
        assert again is not None
        assert partition.join_writes([again]) == (3, 7, 0, 5, ((5, 9, 4, 1),))
        partition.write_done(again, error)
    assert (partition.is_told, partition.settle()) == (True, None)


def test_a_start_offset_above_what_was_given_up_tells_it() -> None:
    partition = loaded(config=ONCE)
    acquire(partition, (0, 4))
    acquire(partition, (5, 9), member="m2")
    released = partition.release("m1", is_gone=True)
    assert released is not None
    partition.write_done(released, 15)
    write = begin_acknowledge(partition, (5, 6, [1]), member="m2")
    assert partition.join_writes([write]) == (3, 7, 7, 0, ((5, 6, 2, 1),))
    partition.write_done(write, 0)
    assert partition.is_told


def test_a_write_that_told_all_needs_no_other() -> None:
    partition = holding()
    acknowledge(partition, (0, 9, [1]))
    assert partition.settle() is None


def test_a_fenced_share_partition_tells_nothing() -> None:
    partition = holding()
    partition.move_log_start(3)
    partition.fence()
    assert partition.condition is Condition.FENCED
    assert partition.settle() is None
