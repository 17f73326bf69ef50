"""The rule by which the batches of a state and of a write become one list.

The rule is simple: for every offset at or above the start offset, the highest (delivery count, delivery state) of all
batches that cover it wins; there is no notion of "newer". Equal batches that touch are one batch, so the winners have
one *shape*, which is that of Apache Kafka 4.4.0: snapshots must be equal byte by byte. (4.3.1 joined most of them.)

    Put all batches in order of (first, last, count, state). Take the lowest, p, and look at the next, c.

    p ────────          same count and state, overlapping or touching: joined, go on with the joined batch
        c ────────
    p ────────          p has priority: the rest of c after p goes back into the order, go on with p
        c ────────
    p ────────          c has priority: p's head is final, p's tail goes back into the order, go on with c
        c ───
    p ───               neither overlap nor join: p is final, go on with c
            c ───

Final batches that touch and are equal are joined at the end. A list in this shape is *settled*. The time is quadratic in
how many batches overlap at one offset. Batches of a broker hardly overlap; where a client sends thousands that all do,
`_sweep` finds the same.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from heapq import heapify, heappop, heappush, heapreplace
from operator import itemgetter
from typing import Final

from holdfast.records.native import twins
from holdfast.records.share.batches import SettledBatches, StateBatch, make_batch

if twins is not None:
    Sequence.register(twins.PackedBatches)

_combine_in_c: Final = None if twins is None else twins.combine

#: How often a batch may on average be cut and put back before `_sweep` takes over; recorded cases need less than 2.
_PUT_BACK_PER_BATCH_MAX: Final = 16
#: And how often in all, beside once for each batch, so that a Write of thousands of batches takes no longer than sorting.
_PUT_BACK_MAX: Final = 8_000

_FIRST_OFFSET: Final = itemgetter(0)
_LAST_OFFSET: Final = itemgetter(1)


def combine(current: Sequence[StateBatch], incoming: Sequence[StateBatch], start_offset: int) -> Sequence[StateBatch]:
    """Return the batches of a state after a write, ascending by offset and without overlaps.

    The usual writes go short ways (`_append`, `_splice`); every other write goes through `_settle`.

    A lone batch is returned as it is; among several, one with last < first covers no offset and vanishes. It takes
    the time of copying `current` and of sorting what `incoming` touches.

    Args:
        current: the batches of the state, in any order; quickest when they come from `combine`.
        incoming: the batches of the write, in any order.
        start_offset: offsets below it are cut off; -1 cuts nothing.
    """
    if _combine_in_c is not None:
        combined = _combine_in_c(current, incoming, start_offset)
        if combined is not None:
            return combined
    return pack(combine_in_python(current, incoming, start_offset))


def pack(batches: tuple[StateBatch, ...]) -> Sequence[StateBatch]:
    """Return the same batches in as little memory as they can have."""
    packed = None if twins is None else twins.pack(batches)
    return batches if packed is None else packed


def combine_in_python(
    current: Sequence[StateBatch], incoming: Sequence[StateBatch], start_offset: int
) -> tuple[StateBatch, ...]:
    """Answer as `combine` does, in every case."""
    if twins is not None and type(current) is twins.PackedBatches:
        current = SettledBatches(current)
    is_settled = type(current) is SettledBatches
    if start_offset != -1:
        if not is_settled:
            current = _cut(current, start_offset)
        elif current and current[0][0] < start_offset:
            current = _cut_settled(current, start_offset)
        if len(incoming) != 1 or incoming[0][0] < start_offset:
            incoming = _cut(incoming, start_offset)
    if not is_settled and not _is_settled(current):
        return _settle([*current, *incoming])
    if not incoming:
        return current if type(current) is SettledBatches else SettledBatches(current)
    if _is_settled(incoming):
        if not current:
            return SettledBatches(incoming)
        if incoming[0][0] > current[-1][1]:
            return _append(current, incoming)
        if _replaces_last(current, incoming):
            return SettledBatches((*current[:-1], *incoming))
        return _splice(current, incoming, incoming[0][0], incoming[-1][1])
    if any(last < first for first, last, _, _ in incoming):
        return _settle([*current, *incoming])
    return _splice(current, incoming, min(incoming)[0], max(map(_LAST_OFFSET, incoming)))


def _append(current: Sequence[StateBatch], incoming: Sequence[StateBatch]) -> SettledBatches:
    """Return settled batches followed by later settled batches: the usual write, which touches the last batch of a state at most.

    current   ──── ────               what touches and is equal is joined: ──── ────────
    incoming           ──── ────
    """
    tail_offset, tail_end, state, count = current[-1]
    first_offset, end, next_state, next_count = incoming[0]
    if first_offset > tail_end + 1 or next_state != state or next_count != count:
        return SettledBatches((*current, *incoming))
    return SettledBatches((*current[:-1], make_batch((tail_offset, end, state, count)), *incoming[1:]))


def _replaces_last(current: Sequence[StateBatch], incoming: Sequence[StateBatch]) -> bool:
    """Tell whether settled batches touch nothing of settled ones but the last, which the first of them covers and outranks.

    current   ──── ────               the usual write that acknowledges what was released
    incoming       ──── ────
    """
    first, last, state, count = current[-1]
    next_first, next_last, next_state, next_count = incoming[0]
    if next_first > first or next_last < last or (next_count, next_state) < (count, state):
        return False
    return len(current) == 1 or current[-2][1] + 1 < next_first


def _splice(
    current: Sequence[StateBatch], incoming: Sequence[StateBatch], first_offset: int, last_offset: int
) -> SettledBatches:
    """Return settled batches with others that cover no more than these offsets, both inclusive.

    current   ──── ──── ──── ────     what `incoming` neither overlaps nor touches stays what it is
    incoming          ───
    """
    low = bisect_left(current, first_offset - 1, key=_LAST_OFFSET)
    high = bisect_right(current, last_offset + 1, low, key=_FIRST_OFFSET)
    return SettledBatches((*current[:low], *_settle([*current[low:high], *incoming]), *current[high:]))


def _cut(batches: Sequence[StateBatch], start_offset: int) -> Sequence[StateBatch]:
    """Return `batches`, in any order, without the offsets below `start_offset`."""
    for batch in batches:
        if batch[0] < start_offset:
            return [
                StateBatch(max(first, start_offset), last, state, count)
                for first, last, state, count in batches
                if last >= start_offset
            ]
    return batches


def _cut_settled(batches: Sequence[StateBatch], start_offset: int) -> Sequence[StateBatch]:
    """Return what is left of settled `batches`, which stay settled, without the offsets below `start_offset`."""
    index = 0 if batches[0][1] >= start_offset else bisect_left(batches, start_offset, 1, key=_LAST_OFFSET)
    if index < len(batches):
        first, last, state, count = batches[index]
        if first < start_offset:
            return (make_batch((start_offset, last, state, count)), *batches[index + 1 :])
    return batches[index:]


def _is_settled(batches: Sequence[StateBatch]) -> bool:
    """Tell whether `batches` are ascending, free of overlaps and joined where they can be."""
    if len(batches) == 1:
        return batches[0][0] <= batches[0][1]
    end, end_state, end_count = None, -1, -1
    for first, last, state, count in batches:
        if last < first:
            return False
        if end is not None and (first < end or (first == end and state == end_state and count == end_count)):
            return False
        end, end_state, end_count = last + 1, state, count
    return True


def _settle(batches: list[StateBatch]) -> tuple[StateBatch, ...]:
    """Return `batches` in the shape that the head of this module describes; a lone one that covers no offset stays as it is."""
    if len(batches) < 2:
        return SettledBatches(batches) if _is_settled(batches) else tuple(batches)
    # Kafka's order puts the count before the state, which is also the order of priority.
    waiting = [(first, last, count, state) for first, last, state, count in batches if first <= last]
    if not waiting:
        return SettledBatches()
    heapify(waiting)
    final: list[StateBatch] = []
    first, last, count, state = heappop(waiting)
    put_back_left = min(_PUT_BACK_PER_BATCH_MAX * len(batches), _PUT_BACK_MAX + len(batches))
    while waiting:
        next_first, next_last, next_count, next_state = waiting[0]
        is_same = next_count == count and next_state == state
        if next_first > last + is_same:
            final.append(make_batch((first, last, state, count)))
            first, last, count, state = heappop(waiting)
        elif is_same:
            heappop(waiting)
            last = max(last, next_last)
        elif (next_count, next_state) < (count, state):
            if next_last > last:
                heapreplace(waiting, (last + 1, next_last, next_count, next_state))
                put_back_left -= 1
                if not put_back_left:
                    return _sweep(batches)
            else:
                heappop(waiting)
        else:
            if next_first > first:
                final.append(make_batch((first, next_first - 1, state, count)))
            heappop(waiting)
            if last > next_last:
                heappush(waiting, (next_last + 1, last, count, state))
            first, last, count, state = next_first, next_last, next_count, next_state
    final.append(make_batch((first, last, state, count)))
    return SettledBatches(final if _is_settled(final) else _join(final))


def _join(batches: list[StateBatch]) -> list[StateBatch]:
    """Return ascending batches without overlaps, those joined that touch and are equal."""
    joined = batches[:1]
    for batch in batches[1:]:
        first, last, state, count = batch
        if joined[-1][1:] == (first - 1, state, count):
            joined[-1] = make_batch((joined[-1][0], last, state, count))
        else:
            joined.append(batch)
    return joined


def _sweep(batches: list[StateBatch]) -> SettledBatches:
    """Return the same as `_settle`, in O(n log n) for any batches; at least one of them covers an offset."""
    coming = sorted((batch for batch in batches if batch[0] <= batch[1]), reverse=True)
    # As (-count, -state, last): those that cover `offset` or ended before it, the one of highest priority first.
    covering: list[tuple[int, int, int]] = []
    swept: list[StateBatch] = []
    offset = coming[-1][0]
    while coming or covering:
        while coming and coming[-1][0] <= offset:
            _, last, state, count = coming.pop()
            heappush(covering, (-count, -state, last))
        if not covering:
            offset = coming[-1][0]
        elif covering[0][2] < offset:
            heappop(covering)
        else:
            count, state, last = -covering[0][0], -covering[0][1], covering[0][2]
            if coming:
                last = min(last, coming[-1][0] - 1)
            if swept and swept[-1][1:] == (offset - 1, state, count):
                offset = swept.pop()[0]
            swept.append(make_batch((offset, last, state, count)))
            offset = last + 1
    return SettledBatches(swept)
