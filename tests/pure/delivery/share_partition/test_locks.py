"""Part B.6: locks, and when they end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.delivery.group_config import DEFAULT
from holdfast.delivery.share_partition.partition import SharePartition
from tests.pure.delivery.share_partition.world import acknowledge, acquire, begin_acknowledge, loaded, states


def holding() -> SharePartition:
    partition = loaded()
    acquire(partition, (0, 9))
    return partition


def test_a_lock_ends_with_one_write_of_all_that_ended() -> None:
    partition = loaded()
    acquire(partition, (0, 4), now=0)
    acquire(partition, (5, 9), now=10, member="m2")
    acknowledge(partition, (2, 2, [1]))
    assert partition.next_deadline_ms() == 30_000
    assert partition.tick(29_999) is None
    write = partition.tick(30_010)
    assert write is not None
    assert write.batches == [(0, 1, 0, 1), (3, 9, 0, 1)]
    assert states(partition) == [(0, 1, 0, 1, ""), (2, 2, 2, 1, ""), (3, 4, 0, 1, ""), (5, 9, 0, 1, "")]
    assert partition.next_deadline_ms() is None
    assert partition.next_fetch_offset() == 0


@pytest.mark.parametrize("code", [0, 7, 15, 124])
def test_the_answer_of_that_write_changes_no_state(code: int) -> None:
    partition = loaded(config=replace(DEFAULT, delivery_count_limit=1))
    acquire(partition, (0, 9))
    write = partition.tick(30_000)
    assert write is not None
    assert write.batches == [(0, 9, 4, 1)]
    assert partition.start_offset == 0
    assert partition.write_done(write, code).is_moved
    assert partition.start_offset == 10


def test_a_lock_that_ends_while_a_write_is_under_way_waits_for_its_answer() -> None:
    partition = holding()
    write = begin_acknowledge(partition, (0, 9, [1]))
    assert partition.tick(30_000) is None
    assert partition.next_deadline_ms() is None
    assert not partition.write_done(write, 0).error_code
    assert partition.start_offset == 10


def test_a_failure_after_the_end_of_the_lock_makes_the_records_available() -> None:
    partition = holding()
    write = begin_acknowledge(partition, (0, 9, [1]))
    partition.tick(30_000)
    settled = partition.write_done(write, 15)
    assert (settled.error_code, settled.is_available) == (15, True)
    assert states(partition) == [(0, 9, 0, 1, "")]
    assert partition.next_fetch_offset() == 0


def test_that_failure_archives_at_the_limit_of_when_the_write_was_made() -> None:
    partition = loaded(config=replace(DEFAULT, delivery_count_limit=1))
    acquire(partition, (0, 9))
    write = begin_acknowledge(partition, (0, 9, [1]))
    partition.config = DEFAULT
    partition.tick(30_000)
    partition.write_done(write, 15)
    assert states(partition) == [(0, 9, 4, 1, "")]


@pytest.mark.parametrize("is_gone", [False, True])
def test_failed_writes_of_a_member_that_is_gone_lock_nothing(is_gone: bool) -> None:
    """Neither what it gave back nor what it had acknowledged before; as in Kafka it holds both again where it may come again."""
    partition = holding()
    acquire(partition, (10, 19), member="m2")
    acknowledged = [begin_acknowledge(partition, (0, 3, [1])), begin_acknowledge(partition, (10, 19, [1]), member="m2")]
    released = partition.release("m1", is_gone=is_gone)
    assert released is not None
    assert partition.tick(29_999) is None
    for write in (*acknowledged, released):
        settled = partition.write_done(write, 15)
        assert (settled.error_code, settled.is_available) == (15, is_gone and write.member_id == "m1")
    mine = (0, 9, 0, 1, "") if is_gone else (0, 9, 1, 1, "m1")
    assert states(partition) == [mine, (10, 19, 1, 1, "m2")]
    assert partition.next_fetch_offset() == (0 if is_gone else 20)


def test_splitting_keeps_the_time_that_is_left() -> None:
    partition = holding()
    acknowledge(partition, (3, 3, [1]), now=1_000)
    assert partition.next_deadline_ms() == 30_000
    write = partition.tick(30_000)
    assert write is not None
    assert write.batches == [(0, 2, 0, 1), (4, 9, 0, 1)]


def test_a_changed_duration_counts_for_new_locks() -> None:
    partition = holding()
    partition.config = replace(DEFAULT, record_lock_duration_ms=15_000)
    acquire(partition, (10, 10))
    assert partition.next_deadline_ms() == 15_000
    partition.tick(15_000)
    assert states(partition) == [(0, 9, 1, 1, "m1"), (10, 10, 0, 1, "")]


def test_deadlines_of_what_was_settled_are_forgotten() -> None:
    """One record is held for long, while a million others pass."""
    partition = loaded(config=replace(DEFAULT, partition_max_record_locks=10_000))
    acquire(partition, (0, 0))
    for offset in range(1, 2_001):
        acquire(partition, (offset, offset), member="m2", now=offset)
        acknowledge(partition, (offset, offset, [3]), member="m2", now=offset)
    assert partition.next_deadline_ms() == 30_000
    assert len(partition._locks._deadlines) <= 2 * 2_001 + 257
    acknowledge(partition, (0, 0, [1]), now=2_000)
    acquire(partition, (2_001, 2_001), now=2_000)
    assert partition.next_deadline_ms() == 32_000
    assert len(partition._locks._deadlines) == 1
