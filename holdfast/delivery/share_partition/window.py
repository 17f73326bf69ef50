"""Which offsets are known, where the first of interest is, and how many of them are done with.

The start offset is the first offset still of interest, the end offset the last that was ever acquired. Batches below the start
offset stay known while a member holds something of them.

After a load some offsets may be unknown that an earlier leader acquired and never settled. The *gap* begins at the first of them, and
ends at the end offset of the load: until the end offset moves beyond it, holes are fetched again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from holdfast.delivery.share_partition.batches import DeliveryBatch, DeliveryRun
from holdfast.delivery.share_partition.values import StateWrite
from holdfast.records.share.batches import ARCHIVED, AVAILABLE, StateBatch


class Window:
    """The known offsets of one share partition."""

    __slots__ = (
        "_empty_hole",
        "_gap_end",
        "_gap_start",
        "batches",
        "complete_count",
        "end_offset",
        "firsts",
        "given_up",
        "has_available",
        "start_offset",
        "written_start",
    )

    def __init__(self) -> None:
        #: Ascending, without overlaps.
        self.batches: list[DeliveryBatch] = []
        #: Their first offsets.
        self.firsts: list[int] = []
        self.start_offset = 0
        #: Archived by a failure, when nobody held them any more at the limit of deliveries: the log is not told yet.
        self.given_up: list[StateBatch] = []
        #: The highest start offset that a write brought into the log.
        self.written_start = 0
        #: Inclusive; where nothing is known it is the next offset to fetch.
        self.end_offset = 0
        #: Known offsets from the start offset on that are in a terminal state.
        self.complete_count = 0
        #: Something below the end may be available, so it is searched.
        self.has_available = False
        #: -1: there is no gap.
        self._gap_start = -1
        self._gap_end = -1
        #: A hole of the gap from which a fetch brought nothing.
        self._empty_hole = -1

    # Batches

    def find(self, first: int) -> DeliveryBatch | None:
        """Return the batch that begins with an offset."""
        index = bisect_left(self.firsts, first)
        if index < len(self.firsts) and self.firsts[index] == first:
            return self.batches[index]
        return None

    def floor(self, offset: int) -> int:
        """Return the index of the last batch that begins at an offset or before it, or -1."""
        return bisect_right(self.firsts, offset) - 1

    def ceiling(self, offset: int) -> int:
        """Return the index of the first batch that ends at an offset or after it."""
        index = bisect_right(self.firsts, offset) - 1
        return index if index >= 0 and self.batches[index].last >= offset else index + 1

    def first_of_interest(self, offset: int) -> int:
        """Return the first offset from one on, below the start offset, that is known or not below the start offset."""
        if not self.firsts:
            return self.start_offset
        return max(offset, min(self.start_offset, self.firsts[0]))

    def is_known(self, offset: int) -> bool:
        """Tell whether an offset is in a batch."""
        index = self.floor(offset)
        return index >= 0 and self.batches[index].last >= offset

    def add(self, batch: DeliveryBatch) -> None:
        """Add a batch where nothing is known."""
        firsts = self.firsts
        if not firsts or firsts[-1] < batch.first:
            firsts.append(batch.first)
            self.batches.append(batch)
            return
        index = bisect_left(firsts, batch.first)
        firsts.insert(index, batch.first)
        self.batches.insert(index, batch)

    def is_past_all(self) -> bool:
        """Tell whether nothing is known from the start offset on."""
        batches = self.batches
        return not batches or self.start_offset > batches[-1].last

    # States

    def count_of_interest(self, first: int, last: int) -> int:
        """Return how many offsets of a range are not below the start offset."""
        return max(0, last + 1 - max(first, self.start_offset))

    def make_available(self, run: DeliveryRun, delivery_count_limit: int) -> None:
        """Give offsets back, or archive them at the limit of deliveries or below the start offset."""
        if run.last < self.start_offset:
            run.state = ARCHIVED
        elif run.count >= delivery_count_limit:
            run.state = ARCHIVED
            self.complete_count += self.count_of_interest(run.first, run.last)
        else:
            run.state = AVAILABLE
            self.has_available = True

    # The gap

    def gap_start(self) -> int:
        """Return the first offset of the gap, or -1 where there is none."""
        return self._gap_start if self._gap_end == self.end_offset else -1

    def open_gap(self, first: int) -> None:
        """Let holes from an offset on up to the end offset be fetched again."""
        self._gap_start, self._gap_end = first, self.end_offset

    def move_gap(self, offset: int) -> None:
        """Let the gap begin at an offset; it is closed once the end offset has moved."""
        if self._gap_start < 0:
            return
        if self._gap_end == self.end_offset and offset <= self._gap_end:
            self._gap_start = max(offset, self.start_offset)
        else:
            self._gap_start = self._gap_end = -1

    def pass_hole(self, fetch_offset: int, offset: int) -> None:
        """Note that a fetch brought nothing up to an offset; the second time from one hole the gap begins there.

        Compaction may have removed all of it. A fetch that brings more moves the gap by itself, so the first time it is let be.
        """
        if not 0 <= self.gap_start() <= fetch_offset <= self.end_offset or self.is_known(fetch_offset):
            return
        if self._empty_hole == fetch_offset:
            self.move_gap(offset)
        self._empty_hole = fetch_offset

    # The next fetch, and how far all is done

    def next_fetch_offset(self) -> int:
        """Return where to fetch, and note when nothing below the end is available."""
        if self.is_past_all():
            self.has_available = False
            return self.end_offset
        if not self.has_available:
            return self.end_offset + 1
        hole = self.gap_start()
        start_offset = self.start_offset
        for batch in self.batches:
            if batch.last < start_offset:
                continue
            if 0 <= hole < batch.first:
                return hole
            for run in batch.runs:
                if run.last >= start_offset and run.is_available():
                    return max(run.first, start_offset)
            if hole >= 0:
                hole = max(hole, batch.last + 1)
        self.has_available = False
        return self.end_offset + 1

    def _settled_prefix(self, writes: Sequence[StateWrite]) -> tuple[int, int]:
        """Return the last offset up to which all known offsets are done with, or -1, and the index of its batch.

        The offsets that a given write changes count as done with; those of others do not.
        """
        last, index = -1, -1
        gap_start = self.gap_start()
        for batch in self.batches:
            if 0 <= gap_start <= batch.last:
                break
            index += 1
            for run in batch.runs:
                if run.write is not None:
                    is_done = run.is_terminal() and run.write in writes
                else:
                    # Below the start offset an offset that nobody holds is never acquired.
                    is_done = run.is_terminal() or (run.state == AVAILABLE and run.last < self.start_offset)
                if not is_done:
                    return (last, index) if last >= batch.first else (last, index - 1)
                last = run.last
        return last, index

    def _is_start_settled(self) -> bool:
        """Tell whether the start offset is done with, or in a hole after a whole batch that is.

        In another hole it stays, as Kafka's does, until `pass_settled` passes it.
        """
        index = self.floor(self.start_offset)
        if index < 0:
            return False
        batch = self.batches[index]
        if batch.is_split and batch.last < self.start_offset:
            return False
        run = batch.runs[batch.index_at(self.start_offset)]
        return run.is_terminal() and run.write is None

    def _start_after(self, last: int, index: int) -> int:
        """Return the start offset when all is done with up to an offset, in the batch at `index`."""
        batches = self.batches
        if last < batches[index].last or index + 1 == len(batches):
            return max(self.start_offset, last + 1)
        # No record lies between two known batches, unless there is a gap.
        next_start = batches[index + 1].first
        gap_start = self.gap_start()
        if gap_start >= 0:
            next_start = min(next_start, gap_start)
        return max(self.start_offset, next_start)

    def start_offset_after(self, writes: Sequence[StateWrite]) -> int:
        """Return the start offset that holds once some writes have succeeded, if no other one does."""
        last, index = self._settled_prefix(writes)
        return self.start_offset if last < self.start_offset else self._start_after(last, index)

    def move_start(self) -> bool:
        """Move the start offset over all that is done with, and forget batches below it; tell whether it moved."""
        return self._is_start_settled() and self._pass_prefix()

    def _pass_prefix(self) -> bool:
        last, index = self._settled_prefix(())
        if last < 0:
            return False
        batches = self.batches
        before, start_offset = self.start_offset, self._start_after(last, index)
        self.start_offset = start_offset
        if index + 1 == len(batches) and last == batches[index].last:
            self.end_offset = start_offset
            self.complete_count = 0
            batches.clear()
            self.firsts.clear()
            return start_offset > before
        if start_offset > before:
            self.complete_count -= self.count_complete(before, start_offset)
        below = index + 1 if last == batches[index].last else index
        del batches[:below]
        del self.firsts[:below]
        return start_offset > before

    def is_all_settled(self) -> bool:
        """Tell whether no known offset is held, under way or available."""
        for batch in self.batches:
            for run in batch.runs:
                if run.write is not None or not (run.is_terminal() or run.last < self.start_offset):
                    return False
        return True

    def pass_settled(self) -> None:
        """Move the start offset as far as all is done with, also over what no member told of."""
        if self.next_fetch_offset() == self.end_offset + 1:
            # Nothing is available, and the gap has no hole that could be fetched.
            self._gap_start = self._gap_end = -1
        self._pass_prefix()

    def count_complete(self, first: int, end: int) -> int:
        """Return how many known offsets in a range, its end exclusive, are in a terminal state."""
        count = 0
        batches = self.batches
        for index in range(self.ceiling(first), len(batches)):
            batch = batches[index]
            if batch.first >= end:
                break
            for run in batch.runs:
                if run.is_terminal():
                    count += max(0, min(run.last + 1, end) - max(run.first, first))
        return count
