"""Part B.3, B.4 and the throttling of B.6: where to fetch, and what of it is acquired."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.delivery.group_config import DEFAULT
from holdfast.delivery.share_partition.record_batches import find_aborted
from holdfast.delivery.share_partition.values import NOTHING_ACQUIRED, AcquireMode, OffsetRange
from tests.pure.delivery.share_partition.world import (
    Head,
    acknowledge,
    acquire,
    acquire_all,
    heads,
    loaded,
    states,
)

LIMITED = AcquireMode.RECORD_LIMIT


def test_the_next_fetch_is_after_the_end_until_something_is_available() -> None:
    partition = loaded()
    acquire(partition, (0, 4), (5, 9))
    assert partition.next_fetch_offset() == 10
    acknowledge(partition, (3, 5, [2]))
    assert partition.next_fetch_offset() == 3
    assert acquire(partition, (0, 4), (5, 9), at=3, member="m2") == [(3, 5, 2)]
    assert partition.next_fetch_offset() == 10


def test_a_record_under_way_is_not_fetched() -> None:
    partition = loaded()
    acquire(partition, (0, 4))
    write = partition.release("m1")
    assert write is not None
    assert partition.next_fetch_offset() == 5
    assert acquire(partition, (0, 4), at=0, member="m2") == []
    partition.write_done(write, 0)
    assert partition.next_fetch_offset() == 0


@pytest.mark.parametrize(
    ("wanted", "last"),
    [(1, 4), (5, 4), (6, 9), (500, 14)],
)
def test_new_records_are_acquired_up_to_the_end_of_a_record_batch(wanted: int, last: int) -> None:
    assert acquire(loaded(), (0, 4), (5, 9), (10, 14), wanted=wanted) == [(0, last, 1)]


def test_a_hole_that_compaction_left_has_no_end_to_be_aligned_to() -> None:
    assert acquire(loaded(), (0, 2), (9, 11), wanted=5) == [(0, 4, 1)]


def test_ranges_end_where_a_record_batch_does_once_they_are_large() -> None:
    partition = loaded()
    assert acquire(partition, (0, 3), (4, 5), (6, 20), (21, 21), batch_size=5) == [(0, 5, 1), (6, 20, 1), (21, 21, 1)]
    assert [batch.first for batch in partition.window.batches] == [0, 6, 21]


def test_record_limit_keeps_the_rest_of_the_record_batch_available() -> None:
    partition = loaded()
    assert acquire(partition, (0, 9), mode=LIMITED, wanted=3) == [(0, 2, 1)]
    assert states(partition) == [(0, 2, 1, 1, "m1"), (3, 9, 0, 0, "")]
    assert partition.next_fetch_offset() == 3
    assert acquire(partition, (0, 9), mode=LIMITED, wanted=4, member="m2") == [(3, 6, 1)]


def test_a_known_batch_is_acquired_whole_though_less_is_wanted() -> None:
    partition = loaded(0, [(0, 4, 0, 1), (5, 9, 0, 1)])
    assert acquire(partition, (0, 9), wanted=2) == [(0, 4, 2)]


def test_record_limit_takes_exactly_what_is_wanted_of_a_known_batch() -> None:
    partition = loaded(0, [(0, 4, 0, 1), (5, 9, 0, 1)])
    assert acquire(partition, (0, 9), mode=LIMITED, wanted=7) == [(0, 4, 2), (5, 6, 2)]


def test_only_what_was_fetched_of_a_known_batch_is_acquired() -> None:
    partition = loaded(0, [(0, 9, 0, 1)])
    assert acquire(partition, (4, 6), at=4) == [(4, 6, 2)]
    assert states(partition) == [(0, 3, 0, 1, ""), (4, 6, 1, 2, "m1"), (7, 9, 0, 1, "")]


def test_available_and_new_records_are_acquired_together() -> None:
    partition = loaded()
    acquire(partition, (0, 4))
    acknowledge(partition, (0, 4, [2]))
    assert acquire(partition, (0, 4), (5, 9)) == [(0, 4, 2), (5, 9, 1)]


def test_neighbours_of_a_split_batch_with_one_count_are_one_range() -> None:
    partition = loaded()
    acquire(partition, (0, 9))
    acknowledge(partition, (0, 9, [2, 2, 1, 2, 2, 2, 2, 1, 2, 2]))
    acquire(partition, (0, 9), wanted=2, mode=LIMITED)
    acknowledge(partition, (0, 1, [2]))
    assert acquire(partition, (0, 9)) == [(0, 1, 3), (3, 6, 2), (8, 9, 2)]


def test_the_record_batches_that_are_sent_are_those_of_what_was_acquired() -> None:
    partition = loaded(4)
    batches = heads((0, 2), (3, 5), (6, 9), (10, 12))
    acquired = partition.acquire(0, "m1", AcquireMode.BATCH_OPTIMIZED, 500, 4, 4, batches)
    assert acquired.ranges == [(4, 9, 1)]
    assert batches[acquired.first_index : acquired.end_index] == heads((3, 5), (6, 9))


def test_a_range_in_a_hole_is_sent_with_the_record_batch_before_it() -> None:
    partition = loaded(0, [(0, 4, 0, 1)])
    acquire(partition, (0, 4))
    acquired = acquire_all(partition, (0, 4), (9, 9), wanted=1, at=3)
    assert (acquired.ranges, acquired.first_index, acquired.end_index) == ([(5, 5, 1)], 0, 1)


def test_a_fetch_from_below_all_known_acquires_what_lies_after_it() -> None:
    partition = loaded(7, [(7, 9, 0, 1)])
    acquire(partition, (7, 9))
    partition.move_log_start(12)
    assert acquire(partition, (0, 20), member="m2") == [(12, 20, 1)]
    assert states(partition) == [(7, 9, 1, 2, "m1"), (10, 20, 1, 1, "m2")]


def test_nothing_is_acquired_of_what_lies_below_the_start() -> None:
    assert acquire_all(loaded(10), (0, 9)) is NOTHING_ACQUIRED
    assert acquire(loaded(10), (8, 12)) == [(10, 12, 1)]


def test_the_start_jumps_to_the_first_record_of_an_empty_share_partition() -> None:
    partition = loaded(3)
    assert acquire(partition, (7, 9)) == [(7, 9, 1)]
    assert partition.start_offset == 7


def test_no_more_is_acquired_than_there_are_locks() -> None:
    partition = loaded(config=replace(DEFAULT, partition_max_record_locks=12))
    assert acquire(partition, (0, 4), (5, 9), (10, 14), (15, 19)) == [(0, 14, 1)]
    assert not partition.can_acquire()
    assert acquire(partition, (15, 19)) == []


def test_at_the_limit_of_locks_what_is_known_is_acquired_again() -> None:
    partition = loaded(config=replace(DEFAULT, partition_max_record_locks=10))
    acquire(partition, (0, 4), (5, 9))
    acknowledge(partition, (5, 9, [2]))
    assert partition.can_acquire()
    assert acquire(partition, (5, 9), (10, 14)) == [(5, 9, 2)]
    assert not partition.can_acquire()


@pytest.mark.parametrize(
    ("limit", "count", "taken"),
    # From max(2, limit / 2 rounded up) deliveries on: half, a quarter, and one at the last delivery.
    [(5, 2, 16), (5, 3, 8), (5, 4, 1), (10, 4, 16), (10, 5, 8), (10, 8, 1), (2, 1, 16), (3, 2, 1), (6, 4, 4)],
)
def test_records_that_were_delivered_often_come_in_smaller_parts(limit: int, count: int, taken: int) -> None:
    partition = loaded(0, [(0, 15, 0, count)], replace(DEFAULT, delivery_count_limit=limit))
    assert acquire(partition, (0, 15)) == [(0, taken - 1, count + 1)]


def test_records_before_a_throttled_one_in_its_batch_count_for_its_limit() -> None:
    partition = loaded(0, [(0, 7, 0, 1)], replace(DEFAULT, delivery_count_limit=4))
    acquire(partition, (6, 7), at=6)
    acknowledge(partition, (6, 7, [2]))
    assert acquire(partition, (0, 7)) == [(0, 5, 2), (6, 7, 3)], "four are the limit, and six came before"
    partition = loaded(0, [(0, 7, 0, 1)], replace(DEFAULT, delivery_count_limit=4))
    acquire(partition, (2, 7), at=2)
    acknowledge(partition, (2, 7, [2]))
    assert acquire(partition, (0, 7)) == [(0, 1, 2), (2, 3, 3)]


def test_throttled_records_come_without_others() -> None:
    partition = loaded(0, [(0, 3, 0, 1), (4, 7, 0, 3), (8, 9, 0, 1)])
    assert acquire(partition, (0, 9)) == [(0, 3, 2)]
    assert acquire(partition, (0, 9), at=4) == [(4, 5, 4)]


def test_the_last_delivery_is_of_one_record_alone() -> None:
    partition = loaded(0, [(0, 3, 0, 4)])
    for offset in range(4):
        assert acquire(partition, (0, 3)) == [(offset, offset, 5)]
    assert acquire(partition, (0, 3), at=0) == []


def test_records_removed_by_compaction_are_archived_and_not_written() -> None:
    partition = loaded(0, [(0, 4, 0, 1), (5, 9, 0, 1)])
    assert acquire(partition, (5, 9), at=0) == [(5, 9, 2)]
    assert states(partition) == [(0, 4, 4, 1, ""), (5, 9, 1, 2, "m1")]
    assert partition.delivery_complete_count == 5
    acknowledge(partition, (5, 9, [1]))
    assert partition.start_offset == 10


def test_a_fetch_from_a_hole_that_brings_nothing_twice_is_not_made_again() -> None:
    """All that lay in the hole was removed, and what follows it is held by others."""
    partition = loaded(0, [(2, 4, 0, 1), (8, 9, 2, 1)])
    assert acquire(partition, (2, 4), at=2) == [(2, 4, 2)]
    acknowledge(partition, (2, 4, [1]))
    assert partition.next_fetch_offset() == 5
    assert acquire(partition, (8, 9)) == []
    assert acquire(partition, (8, 9)) == []
    assert partition.next_fetch_offset() == 10


def test_aborted_records_are_archived_and_taken_out_of_the_ranges() -> None:
    partition = loaded()
    aborted = [OffsetRange(3, 4), OffsetRange(8, 9)]
    acquired = acquire_all(partition, (0, 2), (3, 4), (5, 7), (8, 9), (10, 10), aborted=aborted)
    assert acquired.ranges == [(0, 2, 1), (5, 7, 1), (10, 10, 1)]
    assert acquired.offset_count == 7
    assert (3, 4, 4, 1, "") in states(partition)
    assert partition.delivery_complete_count == 4


def test_nothing_is_left_where_all_was_aborted() -> None:
    partition = loaded()
    assert acquire_all(partition, (0, 4), aborted=[OffsetRange(0, 4)]) is NOTHING_ACQUIRED
    assert partition.next_deadline_ms() is None


def test_aborted_batches_end_at_the_marker_of_their_producer() -> None:
    def txn(first: int, last: int, producer_id: int) -> Head:
        return Head(first, last, producer_id, is_transactional=True)

    def marker(at: int, producer_id: int, *, is_abort: bool) -> Head:
        return Head(at, at, producer_id, is_transactional=True, is_control=True, is_abort=is_abort)

    batches = [
        txn(0, 1, 1),  # before the aborted transaction: an earlier one, of which the fetch brought the end
        marker(2, 1, is_abort=False),
        txn(3, 4, 1),
        txn(5, 6, 2),
        Head(7, 8),
        Head(9, 9, 1),  # idempotent, of no transaction
        txn(10, 11, 1),
        marker(12, 1, is_abort=True),
        txn(13, 14, 1),
        marker(15, 1, is_abort=False),
    ]
    aborted = [(1, 3)]
    assert find_aborted(batches, aborted, lambda batch: batch.is_abort) == [(3, 4), (10, 11)]
    assert find_aborted(batches, [], lambda batch: batch.is_abort) == []
    assert find_aborted(batches, [(2, 5), (1, 3)], lambda batch: batch.is_abort) == [(3, 4), (5, 6), (10, 11)]
