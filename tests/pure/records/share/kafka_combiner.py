"""A literal and slow form of the combining algorithm, against which the fast one is tested.

It goes over the ends of all batches as Apache Kafka 4.4.0's `PersisterStateBatchCombiner` does: between two of them the highest
(delivery count, delivery state) of the batches that cover these offsets wins.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from holdfast.records.share.batches import StateBatch
from tests.vectors.parity import join


def combine_literally(
    current: Sequence[StateBatch], incoming: Sequence[StateBatch], start_offset: int
) -> list[StateBatch]:
    """Return the batches of both, combined; a lone one stays as it is."""
    batches = [*current, *incoming]
    if start_offset != -1:
        batches = [
            batch._replace(first_offset=max(batch.first_offset, start_offset))
            for batch in batches
            if batch.last_offset >= start_offset
        ]
    if len(batches) < 2:
        return batches
    ends = sorted({batch.first_offset for batch in batches} | {batch.last_offset + 1 for batch in batches})
    combined: list[StateBatch] = []
    for begin, end in pairwise(ends):
        covering = [(count, state) for first, last, state, count in batches if first <= begin <= last]
        if covering:
            count, state = max(covering)
            combined.append(StateBatch(begin, end - 1, state, count))
    return [*join(combined)]
