"""The record batches that a fetch brought: where they end, which are sent, which belong to aborted transactions.

Record batches ascend, without overlaps; between two of them offsets may be missing, which compaction removed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from holdfast.delivery.share_partition.values import OffsetRange, RecordBatch

_Batch = TypeVar("_Batch", bound=RecordBatch)


def index_at(batches: Sequence[RecordBatch], offset: int) -> int:
    """Return the index of the last record batch that begins at an offset or before it; 0 where all begin after it."""
    low, high = 0, len(batches) - 1
    while low < high:
        middle = (low + high + 1) // 2
        if batches[middle].base_offset <= offset:
            low = middle
        else:
            high = middle - 1
    return low


def find_sent(batches: Sequence[RecordBatch], first: int, last: int) -> tuple[int, int]:
    """Return the indexes of the first record batch that is sent with a range, and of the one after the last."""
    return index_at(batches, first), index_at(batches, last) + 1


def find_aborted(
    batches: Sequence[_Batch],
    aborted: Sequence[tuple[int, int]],
    is_abort_marker: Callable[[_Batch], bool],
) -> list[OffsetRange]:
    """Return the ranges of record batches that aborted transactions wrote.

    Args:
        batches: what the fetch brought.
        aborted: (producer id, first offset) of each aborted transaction, as the broker told beside the batches.
        is_abort_marker: tells whether a control batch ends a transaction as aborted.
    """
    if not aborted:
        return []
    pending = sorted(aborted, key=_first_offset, reverse=True)
    producers: set[int] = set()
    ranges = []
    for batch in batches:
        producer_id = batch.producer_id
        if producer_id < 0:
            continue
        while pending and pending[-1][1] <= batch.last_offset:
            producers.add(pending.pop()[0])
        if batch.is_control and producer_id in producers and is_abort_marker(batch):
            producers.discard(producer_id)
        elif batch.is_transactional and producer_id in producers:
            ranges.append(OffsetRange(batch.base_offset, batch.last_offset))
    return ranges


def _first_offset(transaction: tuple[int, int]) -> int:
    return transaction[1]
