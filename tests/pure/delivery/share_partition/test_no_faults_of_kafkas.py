"""Faults of Apache Kafka's own share partition that ours has not: the eight of `tests/vectors/data/share_partition.md`, and two more."""

from __future__ import annotations

from dataclasses import replace

from holdfast.delivery.group_config import DEFAULT
from holdfast.delivery.share_partition.values import AcquireMode, OffsetRange
from holdfast.kafka.protocol.error_codes import ErrorCode
from tests.pure.delivery.share_partition.world import (
    acknowledge,
    acquire,
    begin_acknowledge,
    loaded,
    refusal,
    states,
)


def test_1_a_release_under_way_stays_so_when_its_batch_is_split() -> None:
    """Kafka forgets the transition, hands the records out at once, and throws at a lock that exists."""
    partition = loaded()
    acquire(partition, (0, 9))
    write = begin_acknowledge(partition, (0, 9, [2]))
    partition.move_log_start(4)
    assert acquire(partition, (0, 9), at=4, member="m2") == []
    partition.write_done(write, 0)
    assert states(partition) == [(0, 3, 4, 1, ""), (4, 9, 0, 1, "")]
    assert acquire(partition, (0, 9), member="m2") == [(4, 9, 2)]
    assert partition.next_deadline_ms() == 30_000


def test_1_when_it_fails_the_member_holds_what_is_left() -> None:
    partition = loaded()
    acquire(partition, (0, 9))
    write = begin_acknowledge(partition, (0, 9, [2]))
    partition.move_log_start(4)
    partition.write_done(write, 15)
    assert states(partition) == [(0, 3, 4, 1, ""), (4, 9, 1, 1, "m1")]


def test_2_compaction_may_have_taken_all_known_at_the_limit_of_locks() -> None:
    """Kafka archives it, then throws at a range that is reversed; after that nothing moves the start offset again."""
    partition = loaded(0, [(0, 9, 0, 1)], replace(DEFAULT, partition_max_record_locks=10))
    assert acquire(partition, (10, 19), at=0) == []
    assert states(partition) == [(0, 9, 4, 1, "")]
    assert partition.can_acquire()
    assert partition.start_offset == 10
    assert acquire(partition, (10, 19)) == [(10, 19, 1)]


def test_3_nothing_known_at_the_start_offset_is_an_invalid_state() -> None:
    """Kafka throws a NullPointerException, and what came before in the request stays under way for ever."""
    partition = loaded(0, [(0, 4, 0, 1), (12, 14, 0, 1)])
    acquire(partition, (0, 4), wanted=5)
    acknowledge(partition, (0, 4, [1]))
    partition.move_log_start(8)
    assert states(partition)[-1][:2] == (12, 14)
    acquire(partition, (12, 14), at=12)
    refused = refusal(partition, (12, 14, [1]), (6, 9, [1]))
    assert refused.error_code is ErrorCode.INVALID_RECORD_STATE
    assert states(partition)[-1] == (12, 14, 1, 2, "m1")
    acknowledge(partition, (12, 14, [1]))


def test_4_an_aborted_batch_may_begin_before_the_first_known_one() -> None:
    """Kafka throws after it acquired the records, which then stay acquired until their lock ends."""
    partition = loaded(5)
    assert acquire(partition, (0, 9), (10, 14), aborted=[OffsetRange(0, 9)]) == [(10, 14, 1)]
    assert states(partition) == [(5, 9, 4, 1, ""), (10, 14, 1, 1, "m1")]


def test_5_the_start_offset_stays_when_the_last_held_record_ends() -> None:
    partition = loaded()
    acquire(partition, (0, 9))
    partition.move_log_start(20)
    write = partition.release("m1")
    assert write is not None
    assert write.batches == [(0, 9, 4, 1)]
    partition.write_done(write, 0)
    assert (partition.start_offset, partition.end_offset, partition.next_fetch_offset()) == (20, 20, 20)


def test_6_the_gap_does_not_stay_below_the_log_start() -> None:
    """In Kafka the next fetch stays below the log start, so that no fetch succeeds; a later success sets the start offset back."""
    partition = loaded(0, [(10, 14, 0, 1)])
    assert partition.next_fetch_offset() == 0
    partition.move_log_start(5)
    assert partition.next_fetch_offset() == 5
    assert acquire(partition, (5, 9), (10, 14)) == [(5, 9, 1), (10, 14, 2)]
    acknowledge(partition, (5, 14, [1]))
    assert partition.start_offset == 15


def test_6_a_log_start_beyond_the_gap_closes_it() -> None:
    partition = loaded(0, [(3, 4, 0, 1), (10, 14, 0, 1)])
    partition.move_log_start(12)
    assert partition.next_fetch_offset() == 12
    assert acquire(partition, (12, 14)) == [(12, 14, 2)]


def test_7_a_failed_write_makes_nothing_available_below_the_start() -> None:
    """In Kafka it would be the next fetch offset from then on, and hold the start offset as well."""
    partition = loaded()
    acquire(partition, (0, 4), (5, 9))
    write = begin_acknowledge(partition, (0, 9, [1]))
    partition.tick(30_000)
    partition.move_log_start(7)
    partition.write_done(write, 15)
    assert states(partition) == [(0, 6, 4, 1, ""), (7, 9, 0, 1, "")]
    assert partition.next_fetch_offset() == 7
    assert partition.delivery_complete_count == 0


def test_8_offsets_below_the_start_offset_are_handed_out_to_nobody() -> None:
    """Kafka hands them out while an older batch is known; ours locks them with their record batch, and no more."""
    partition = loaded()
    acquire(partition, (0, 4))
    partition.move_log_start(8)
    assert acquire(partition, (5, 9), (10, 14), member="m2") == [(8, 14, 1)]
    acknowledge(partition, (8, 14, [1]), member="m2")
    for _ in range(2):
        write = partition.tick(30_000)
        if write is not None:
            assert write.batches == [(0, 7, 4, 1)]
            partition.write_done(write, 0)
    assert (partition.start_offset, states(partition)) == (15, [])


def test_8_with_record_limit_too() -> None:
    partition = loaded()
    acquire(partition, (0, 4))
    partition.move_log_start(8)
    assert acquire(partition, (5, 9), mode=AcquireMode.RECORD_LIMIT, wanted=2, member="m2") == []
    assert partition.next_fetch_offset() == 8
    assert acquire(partition, (5, 9), mode=AcquireMode.RECORD_LIMIT, wanted=2, member="m2") == [(8, 9, 1)]


def test_locks_of_records_that_compaction_removed_are_free_again() -> None:
    """In Kafka nothing moves the start offset over them, so at the limit of locks no fetch is made any more."""
    partition = loaded(config=replace(DEFAULT, partition_max_record_locks=10))
    acquire(partition, (0, 4), (5, 9))
    acknowledge(partition, (0, 4, [2]), (5, 9, [1]))
    assert acquire(partition, (5, 9), at=0) == []
    assert partition.can_acquire()
    assert partition.start_offset == 10


def test_a_start_offset_in_a_hole_does_not_stay_there() -> None:
    """In Kafka nothing passes a hole before all that is known, or after a split batch: all locks are held by what was done with."""
    partition = loaded(0, [(3, 4, 0, 1)], replace(DEFAULT, partition_max_record_locks=6))
    acquire(partition, (3, 4), at=0)
    acquire(partition, (5, 7), at=5)
    acknowledge(partition, (3, 7, [1]))
    assert partition.start_offset == 0
    assert partition.can_acquire()
    assert (partition.start_offset, states(partition), partition.next_fetch_offset()) == (8, [], 8)


def test_a_gap_without_records_does_not_hold_the_start_offset() -> None:
    """In Kafka the fetch from it is made again and again, and all locks are held by what was done with."""
    partition = loaded(0, [(0, 1, 2, 1), (5, 9, 2, 1)], replace(DEFAULT, partition_max_record_locks=5))
    for _ in range(2):
        assert partition.next_fetch_offset() == 2
        assert acquire(partition, (5, 9), (10, 14)) == []
    assert partition.can_acquire()
    assert (partition.start_offset, partition.next_fetch_offset()) == (10, 10)
