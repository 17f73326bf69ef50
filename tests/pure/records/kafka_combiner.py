"""A literal and slow form of the combining algorithm, against which the fast one is tested.

It follows the prose of the share coordinator's specification, section 7, step by step, and starts again after each pair it resolves.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from holdfast.records.batches import StateBatch


class Entry(NamedTuple):
    """One batch in the order of Kafka's set: first, last, delivery count, delivery state."""

    first: int
    last: int
    deliveries: int
    state: int


def combine_literally(
    current: Sequence[StateBatch], incoming: Sequence[StateBatch], start_offset: int
) -> list[StateBatch]:
    """Return the batches of both, combined."""
    batches = [*current, *incoming]
    if start_offset != -1:
        batches = [
            batch._replace(first_offset=max(batch.first_offset, start_offset))
            for batch in batches
            if batch.last_offset >= start_offset
        ]
    if len(batches) < 2:
        return batches
    entries = {Entry(first, last, count, state) for first, last, state, count in batches}
    final: list[Entry] = []
    while (pair := _first_pair(entries, final)) is not None:
        entries -= set(pair)
        entries |= set(_resolve(*pair))
    return [StateBatch(first, last, state, deliveries) for first, last, deliveries, state in [*final, *sorted(entries)]]


def _first_pair(entries: set[Entry], final: list[Entry]) -> tuple[Entry, Entry] | None:
    """Return the first two neighbours to be resolved, and move all that lie before them to `final`."""
    for previous, entry in pairwise(sorted(entries)):
        is_same = previous[2:] == entry[2:]
        if entry.first <= previous.last or (entry.first == previous.last + 1 and is_same):
            return previous, entry
        entries.remove(previous)
        final.append(previous)
    return None


def _resolve(p: Entry, c: Entry) -> list[Entry]:
    """Return what becomes of two neighbours; one case of the table after the other."""
    if p[2:] == c[2:]:
        return [p._replace(last=max(p.last, c.last))]
    c_wins = c[2:] > p[2:]
    if (p.first, p.last) == (c.first, c.last):
        assert c_wins
        return [c]
    if p.first == c.first:
        return [c] if c_wins else [p, c._replace(first=p.last + 1)]
    head = p._replace(last=c.first - 1)
    if c.last < p.last:
        return [head, c, p._replace(first=c.last + 1)] if c_wins else [p]
    if c.last == p.last:
        return [head, c] if c_wins else [p]
    return [head, c] if c_wins else [p, c._replace(first=p.last + 1)]
