"""The state that was read from the coordinator, as the known offsets of a share partition."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.delivery.share_partition.batches import DeliveryBatch
from holdfast.delivery.share_partition.window import Window
from holdfast.records.share.batches import StateBatch


def load(window: Window, start_offset: int, batches: Sequence[StateBatch]) -> str | None:
    """Fill an empty window; return what is wrong with the state, or None.

    Holes between the batches, and before the first, were acquired by a former leader and never settled: they are a gap.
    """
    window.start_offset = start_offset
    next_offset, gap_start = start_offset, -1
    for first, last, state, count in batches:
        if first > last:
            return f"The state has a batch of offsets {first} to {last}; its last offset must not be below its first."
        if first < next_offset:
            what = "its start offset" if next_offset == start_offset else "the end of the batch before"
            return f"The state has a batch of offsets {first} to {last}, which begins below {what}, {next_offset}."
        if first > next_offset and gap_start < 0:
            gap_start = next_offset
        batch = DeliveryBatch(first, last, state, count)
        window.add(batch)
        if batch.runs[0].is_terminal():
            window.complete_count += last - first + 1
        next_offset = last + 1
    if not batches:
        window.end_offset = start_offset
        return None
    window.has_available = True
    window.end_offset = next_offset - 1
    if gap_start >= 0:
        window.open_gap(gap_start)
    window.move_start()
    return None
