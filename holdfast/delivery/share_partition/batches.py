"""A batch of known offsets, and the runs of equal ones in it.

A batch begins with one run. It is *split* when something touches a part of it, and stays so: a split batch is acquired offset by
offset, a whole one at once. Offsets that are alike share a run either way, so 500 records cost what one does.
"""

from __future__ import annotations

from typing import Final

from holdfast.delivery.share_partition.values import StateWrite
from holdfast.records.share.batches import ACKNOWLEDGED, ARCHIVED, AVAILABLE


class DeliveryRun:
    """Neighbouring offsets of one batch that have all in common."""

    __slots__ = ("count", "first", "is_lock_over", "last", "lock_until_ms", "member_id", "state", "write")

    def __init__(self, first: int, last: int, state: int, count: int) -> None:
        self.first = first
        #: Inclusive.
        self.last = last
        self.state = state
        #: How often they were delivered.
        self.count = count
        #: The member that acquired them; empty: none, or their acknowledgement is being written.
        self.member_id = ""
        #: When their lock ends; -1: there is none.
        self.lock_until_ms = -1.0
        #: The lock ended while a write was under way, so its failure makes them available.
        self.is_lock_over = False
        #: The write under way that changes them; their state is already the new one.
        self.write: StateWrite | None = None

    def is_available(self) -> bool:
        """Tell whether the offsets can be acquired."""
        return self.state == AVAILABLE and self.write is None

    def is_terminal(self) -> bool:
        """Tell whether the offsets are never delivered again, if the write under way succeeds."""
        return self.state == ACKNOWLEDGED or self.state == ARCHIVED

    def unlock(self) -> None:
        """Take the lock away."""
        self.lock_until_ms = -1.0
        self.is_lock_over = False

    def cut(self, offset: int) -> DeliveryRun:
        """Return a run of the offsets from `offset` on, and keep those below it."""
        rest = DeliveryRun(offset, self.last, self.state, self.count)
        rest.member_id, rest.write = self.member_id, self.write
        rest.lock_until_ms, rest.is_lock_over = self.lock_until_ms, self.is_lock_over
        self.last = offset - 1
        return rest

    def is_like(self, other: DeliveryRun) -> bool:
        """Tell whether the offsets of both have all in common."""
        return (
            self.state == other.state
            and self.count == other.count
            and self.write is other.write
            and self.lock_until_ms == other.lock_until_ms
            and self.is_lock_over == other.is_lock_over
            and self.member_id == other.member_id
        )


class DeliveryBatch:
    """Known offsets without a hole, in runs."""

    __slots__ = ("first", "is_split", "last", "runs")

    def __init__(self, first: int, last: int, state: int, count: int) -> None:
        self.first: Final = first
        #: Inclusive.
        self.last: Final = last
        #: Whether each offset may have its own state.
        self.is_split = False
        #: Ascending, without holes; one where the batch is not split.
        self.runs = [DeliveryRun(first, last, state, count)]

    def index_at(self, offset: int) -> int:
        """Return the index of the run that has an offset of this batch."""
        runs = self.runs
        low, high = 0, len(runs) - 1
        while low < high:
            middle = (low + high) // 2
            if runs[middle].last < offset:
                low = middle + 1
            else:
                high = middle
        return low

    def take(self, first: int, last: int) -> tuple[int, int]:
        """Split the batch, so that runs end at both ends of a range that overlaps it; return the indexes of the runs within.

        The second index is the one after the last. Both ends may lie outside the batch.
        """
        self.is_split = True
        start = 0
        if first > self.first:
            start = self.index_at(first)
            run = self.runs[start]
            if run.first < first:
                start += 1
                self.runs.insert(start, run.cut(first))
        if last >= self.last:
            return start, len(self.runs)
        end = self.index_at(last)
        run = self.runs[end]
        if run.last > last:
            self.runs.insert(end + 1, run.cut(last + 1))
        return start, end + 1

    def join(self, start: int, end: int) -> None:
        """Join runs with their neighbours that are like them, from the one before index `start` to the one at `end`."""
        runs = self.runs
        if len(runs) == 1:
            return
        index = min(end, len(runs) - 1)
        floor = max(start, 1)
        while index >= floor:
            run, before = runs[index], runs[index - 1]
            if before.is_like(run):
                before.last = run.last
                del runs[index]
            index -= 1
