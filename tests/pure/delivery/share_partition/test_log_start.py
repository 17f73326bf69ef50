"""Part B.7: the log begins later than it did."""

from __future__ import annotations

from tests.pure.delivery.share_partition.world import acknowledge, acquire, begin_acknowledge, loaded, states


def test_available_records_below_are_archived_and_nothing_is_written() -> None:
    partition = loaded(0, [(0, 4, 0, 1), (5, 9, 0, 1)])
    assert partition.move_log_start(7)
    assert states(partition) == [(0, 4, 4, 1, ""), (5, 6, 4, 1, ""), (7, 9, 0, 1, "")]
    assert (partition.start_offset, partition.end_offset, partition.delivery_complete_count) == (7, 9, 0)
    assert partition.next_fetch_offset() == 7


def test_a_log_start_below_the_start_changes_nothing() -> None:
    partition = loaded(5)
    assert not partition.move_log_start(5)
    assert not partition.move_log_start(2)
    assert partition.start_offset == 5


def test_held_records_below_are_archived_when_their_lock_ends() -> None:
    partition = loaded()
    acquire(partition, (0, 9))
    partition.move_log_start(4)
    assert states(partition) == [(0, 9, 1, 1, "m1")]
    write = partition.tick(30_000)
    assert write is not None
    assert write.batches == [(0, 3, 4, 1), (4, 9, 0, 1)]
    assert partition.delivery_complete_count == 0


def test_held_records_below_are_archived_when_their_member_leaves() -> None:
    partition = loaded()
    acquire(partition, (0, 9))
    partition.move_log_start(4)
    write = partition.release("m1")
    assert write is not None
    assert write.batches == [(0, 3, 4, 1), (4, 9, 0, 1)]


def test_the_count_of_what_is_done_with_loses_what_is_gone() -> None:
    partition = loaded()
    acquire(partition, (0, 4), (5, 9))
    acknowledge(partition, (1, 2, [1]), (7, 7, [1]))
    assert partition.delivery_complete_count == 3
    partition.move_log_start(2)
    assert partition.delivery_complete_count == 2
    partition.move_log_start(6)
    assert partition.delivery_complete_count == 1


def test_all_is_below() -> None:
    partition = loaded(0, [(0, 9, 0, 1)])
    partition.move_log_start(50)
    assert (partition.start_offset, partition.end_offset, partition.next_fetch_offset()) == (50, 50, 50)
    assert acquire(partition, (50, 59)) == [(50, 59, 1)]
    acknowledge(partition, (50, 59, [1]))
    assert (partition.start_offset, states(partition)) == (60, [])


def test_the_next_write_tells_of_it() -> None:
    partition = loaded()
    acquire(partition, (0, 9))
    partition.move_log_start(4)
    assert begin_acknowledge(partition, (8, 9, [1])).start_offset == 4
