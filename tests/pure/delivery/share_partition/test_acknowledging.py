"""Part B.5: acknowledgements, releases, and the answers of their writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from holdfast.delivery.group_config import DEFAULT
from holdfast.delivery.share_partition.partition import SharePartition
from holdfast.kafka.protocol.error_codes import ErrorCode
from tests.pure.delivery.share_partition.world import (
    acknowledge,
    acquire,
    begin_acknowledge,
    loaded,
    refusal,
    states,
)


def holding(*ranges: tuple[int, int]) -> SharePartition:
    partition = loaded()
    acquire(partition, *(ranges or ((0, 9),)))
    return partition


@pytest.mark.parametrize(("kind", "state"), [(0, 4), (1, 2), (2, 0), (3, 4)])
def test_a_type_begins_a_transition_that_is_written(kind: int, state: int) -> None:
    partition = holding()
    write = begin_acknowledge(partition, (0, 9, [kind]))
    assert write.batches == [(0, 9, state, 1)]
    assert states(partition) == [(0, 9, state, 1, "")]
    assert partition.start_offset == 0, "it is under way"
    settled = partition.write_done(write, 0)
    assert settled.error_code == 0
    assert settled.may_wake
    assert partition.start_offset == (0 if kind == 2 else 10)


def test_a_type_for_each_offset_is_written_in_runs() -> None:
    partition = holding()
    write = begin_acknowledge(partition, (0, 9, bytes([1, 1, 1, 2, 2, 3, 0, 0, 1, 1])))
    assert write.batches == [(0, 2, 2, 1), (3, 4, 0, 1), (5, 7, 4, 1), (8, 9, 2, 1)]


def test_batches_of_one_request_are_one_write() -> None:
    partition = holding((0, 4), (5, 9))
    write = begin_acknowledge(partition, (0, 1, [1]), (2, 4, [1]), (6, 7, [3]))
    assert write.batches == [(0, 4, 2, 1), (6, 7, 4, 1)]


def test_release_at_the_limit_is_archived() -> None:
    partition = loaded(0, [(0, 0, 0, 4)])
    acquire(partition, (0, 0))
    assert begin_acknowledge(partition, (0, 0, [2])).batches == [(0, 0, 4, 5)]


def test_the_limit_is_the_one_in_force_at_the_release() -> None:
    partition = loaded(0, [(0, 0, 0, 2)])
    acquire(partition, (0, 0))
    partition.config = replace(DEFAULT, delivery_count_limit=3)
    assert begin_acknowledge(partition, (0, 0, [2])).batches == [(0, 0, 4, 3)]


INVALID_STATE, INVALID = ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("batch", "member", "error", "text"),
    [
        ((3, 5, [1]), "m2", INVALID_STATE, "offsets 3 to 5 are not held by member m2"),
        (
            (0, 1, [1]),
            "m1",
            INVALID_STATE,
            "not held by member m1: their lock has ended, or they were acknowledged before",
        ),
        ((8, 10, [1]), "m1", INVALID, "goes beyond what was acquired; it must name only offsets"),
        ((20, 21, [1]), "m1", INVALID, "goes beyond what was acquired; it must name only offsets"),
        ((3, 5, [5]), "m1", INVALID, "has 5; it must be 0 (gap), 1 (accept), 2 (release), 3 (reject) or 4 (renew)"),
        ((3, 5, [1, -1, 1]), "m1", INVALID, "has -1; it must be 0 (gap)"),
        ((3, 5, bytes([1, 255, 1])), "m1", INVALID, "has 255; it must be 0 (gap)"),
        ((3, 5, [1, 1]), "m1", INVALID, "has 2 types; it must have one for all, or one for each offset"),
    ],
)
def test_an_acknowledgement_is_refused_with_the_field_and_the_mend(
    batch: tuple[int, int, Sequence[int]], member: str, error: ErrorCode, text: str
) -> None:
    partition = holding()
    acknowledge(partition, (0, 2, [2]))
    acquire(partition, (0, 2), member="m3")
    refused = refusal(partition, batch, member=member)
    assert refused.error_code is error
    assert text in refused.message


def test_a_reversed_range_is_refused_or_names_nothing() -> None:
    """The caller refuses it before; here Kafka answers in the same way within one batch, and throws otherwise."""
    partition = holding((0, 4), (5, 9))
    acquire(partition, (10, 14))
    refused = refusal(partition, (12, 3, [1]))
    assert refused.error_code is INVALID
    assert "FirstOffset 12 and LastOffset 3; the first must not be above" in refused.message
    assert partition.acknowledge(0, "m1", [(13, 11, [1])]) is None
    assert states(partition) == [(0, 9, 1, 1, "m1"), (10, 14, 1, 1, "m1")]


def test_unknown_offsets_are_refused() -> None:
    refused = refusal(loaded(), (3, 5, [1]))
    assert refused.error_code is INVALID_STATE
    assert "offsets 3 to 5 are not known as acquired" in refused.message


def test_a_refusal_rolls_the_whole_request_back() -> None:
    partition = holding()
    refused = refusal(partition, (0, 2, [1]), (3, 4, [3]), (5, 6, [9]))
    assert refused.error_code is INVALID
    assert states(partition) == [(0, 9, 1, 1, "m1")], "held again, and one run: the batch stays split"
    assert partition.delivery_complete_count == 0
    acknowledge(partition, (0, 9, [1]))
    assert partition.start_offset == 10


def test_a_second_acknowledgement_while_the_first_is_under_way_is_refused() -> None:
    partition = holding()
    begin_acknowledge(partition, (0, 9, [1]))
    assert refusal(partition, (0, 9, [1])).error_code is INVALID_STATE


def test_an_acknowledgement_below_the_start_succeeds_for_anybody() -> None:
    partition = holding()
    acknowledge(partition, (0, 9, [1]))
    assert partition.acknowledge(0, "m2", [(0, 9, [1])]) is None


def test_offsets_below_the_start_are_skipped() -> None:
    partition = holding()
    partition.move_log_start(4)
    write = begin_acknowledge(partition, (0, 9, [1]))
    assert write.batches == [(4, 9, 2, 1)]


def test_renew_begins_the_lock_again_and_writes_nothing() -> None:
    partition = holding()
    assert partition.acknowledge(20_000, "m1", [(0, 4, [4])]) is None
    assert partition.next_deadline_ms() == 30_000
    write = partition.tick(30_000)
    assert write is not None
    assert write.batches == [(5, 9, 0, 1)]
    assert partition.next_deadline_ms() == 50_000


def test_renew_is_refused_where_the_group_does_not_allow_it() -> None:
    partition = holding()
    partition.config = replace(DEFAULT, renew_acknowledge_enable=False)
    refused = refusal(partition, (0, 9, [4]))
    assert refused.error_code is INVALID_STATE
    assert "share.renew.acknowledge.enable" in refused.message


@pytest.mark.parametrize(
    ("code", "error", "is_fenced"),
    [
        (14, 15, False),
        (15, 15, False),
        (16, 15, False),
        (69, 69, True),
        (3, 3, True),
        (74, 6, True),
        (124, 6, True),
        (6, -1, False),
        (7, -1, False),
        (13, -1, False),
        (42, -1, False),
        (-1, -1, False),
    ],
)
def test_a_failed_write_gives_the_records_back_to_the_member(code: int, error: int, is_fenced: bool) -> None:
    partition = holding()
    settled = partition.write_done(begin_acknowledge(partition, (0, 9, [1])), code)
    assert settled == (error, False, False, is_fenced)
    assert states(partition) == [(0, 9, 1, 1, "m1")]
    assert partition.next_deadline_ms() == 30_000


def test_the_start_moves_to_the_next_known_batch() -> None:
    partition = holding((0, 4), (5, 5))
    acquire(partition, (9, 12))
    acknowledge(partition, (0, 5, [1]))
    assert (partition.start_offset, states(partition)) == (9, [(9, 12, 1, 1, "m1")])


def test_a_batch_stays_known_until_all_of_it_is_done_with() -> None:
    partition = holding()
    acknowledge(partition, (0, 3, [1]))
    assert (partition.start_offset, partition.delivery_complete_count) == (4, 0)
    assert states(partition) == [(0, 3, 2, 1, ""), (4, 9, 1, 1, "m1")]


def test_nothing_is_known_when_all_is_done_with() -> None:
    partition = holding()
    acknowledge(partition, (4, 9, [3]))
    assert (partition.start_offset, partition.delivery_complete_count) == (0, 6)
    acknowledge(partition, (0, 3, [1]))
    assert (partition.start_offset, partition.end_offset, partition.next_fetch_offset()) == (10, 10, 10)
    assert (states(partition), partition.delivery_complete_count) == ([], 0)


def test_the_start_does_not_pass_another_write_under_way() -> None:
    partition = holding((0, 4), (5, 9))
    first = begin_acknowledge(partition, (0, 4, [1]))
    second = begin_acknowledge(partition, (5, 9, [1]))
    assert not partition.write_done(second, 0).is_moved
    assert partition.start_offset == 0
    assert partition.write_done(first, 0).is_moved
    assert partition.start_offset == 10


def test_a_member_that_leaves_gives_back_all_that_it_holds() -> None:
    partition = holding((0, 4))
    acquire(partition, (5, 9), member="m2")
    acquire(partition, (10, 14))
    write = partition.release("m1")
    assert write is not None
    assert write.batches == [(0, 4, 0, 1), (10, 14, 0, 1)]
    settled = partition.write_done(write, 0)
    assert (settled.is_moved, settled.is_available, settled.may_wake) == (False, True, True)
    assert states(partition) == [(0, 4, 0, 1, ""), (5, 9, 1, 1, "m2"), (10, 14, 0, 1, "")]
    assert partition.release("m1") is None
