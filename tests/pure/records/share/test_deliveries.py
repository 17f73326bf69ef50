"""The deliveries that a state tells of, compared with a simple count offset by offset."""

from __future__ import annotations

from collections import Counter
from itertools import count

from hypothesis import given

from holdfast.records.share.batches import ACKNOWLEDGED, ARCHIVED, AVAILABLE, StateBatch
from holdfast.records.share.combining import combine
from holdfast.records.share.deliveries import DELIVERY_COUNT_TOP, Deliveries, sum_up_deliveries
from tests.pure.records.strategies import batch_lists, start_offsets


@given(start_offset=start_offsets, batches=batch_lists)
def test_every_offset_is_counted_once(start_offset: int, batches: list[StateBatch]) -> None:
    combined = combine((), batches, start_offset)
    by_offset = {offset: batch for batch in combined for offset in range(batch.first_offset, batch.last_offset + 1)}
    begin = start_offset if start_offset >= 0 else min(by_offset, default=-1)
    end = max((*(offset + 1 for offset in by_offset), begin))
    finished = {offset for offset, batch in by_offset.items() if batch.delivery_state in (ACKNOWLEDGED, ARCHIVED)}
    tried = Counter(batch.delivery_count for offset, batch in by_offset.items() if offset not in finished)
    assert sum_up_deliveries(start_offset, combined) == Deliveries(
        finished=len(finished),
        in_flight=end - begin - len(finished),
        oldest_unfinished_offset=next(offset for offset in count(begin) if offset not in finished),
        end_offset=end,
        delivery_count_max=max(tried, default=0),
        by_delivery_count=tuple(sorted(tried.items())),
        archived=sum(by_offset[offset].delivery_state == ARCHIVED for offset in finished),
    )


def test_undelivered_offsets_are_in_flight_only_below_delivered_ones() -> None:
    batches = (StateBatch(10, 19, ACKNOWLEDGED, 1), StateBatch(25, 29, AVAILABLE, 2), StateBatch(30, 30, ARCHIVED, 5))
    assert sum_up_deliveries(10, batches) == Deliveries(11, 10, 20, 31, 2, ((2, 5),), 1)


def test_without_a_start_offset_there_is_no_oldest_unfinished_one() -> None:
    assert sum_up_deliveries(-1, ()) == Deliveries(0, 0, -1, -1, 0, (), 0)


def test_high_delivery_counts_are_counted_together() -> None:
    batches = [StateBatch(count, count, AVAILABLE, count) for count in range(1, 21)]
    summed = sum_up_deliveries(0, batches)
    assert summed.delivery_count_max == 20
    assert summed.by_delivery_count == (*((count, 1) for count in range(1, 10)), (DELIVERY_COUNT_TOP, 11))
