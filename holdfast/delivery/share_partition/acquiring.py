"""Which of the offsets that a fetch brought a member acquires.

Known batches that are available are acquired again, and what nobody acquired yet becomes new batches. In batch-optimized mode more
offsets than wanted may be acquired, up to the end of a record batch, so that no client decodes a record batch for nothing.

Records that were delivered often are *throttled*, so that one bad record is found: they are acquired without others, fewer each time,
and alone at their last delivery.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from holdfast.delivery.group_config import GroupConfig
from holdfast.delivery.share_partition.archiving import archive
from holdfast.delivery.share_partition.batches import DeliveryBatch, DeliveryRun
from holdfast.delivery.share_partition.locks import Locks
from holdfast.delivery.share_partition.record_batches import find_sent, index_at
from holdfast.delivery.share_partition.values import (
    ACQUIRED,
    NOTHING_ACQUIRED,
    Acquired,
    AcquiredRange,
    OffsetRange,
    RecordBatch,
)
from holdfast.delivery.share_partition.window import Window
from holdfast.records.share.batches import AVAILABLE


class Acquisition:
    """One acquisition under way."""

    __slots__ = (
        "_batch_size",
        "_batches",
        "_count",
        "_delivery_limit",
        "_is_limited",
        "_lock_until_ms",
        "_locks",
        "_member_id",
        "_ranges",
        "_throttle_count",
        "_window",
    )

    def __init__(
        self,
        window: Window,
        locks: Locks,
        config: GroupConfig,
        batches: Sequence[RecordBatch],
        now_ms: float,
        member_id: str,
        batch_size: int,
        *,
        is_limited: bool,
    ) -> None:
        self._window: Final = window
        self._locks: Final = locks
        self._batches: Final = batches
        self._member_id: Final = member_id
        self._batch_size: Final = batch_size
        #: No more than wanted is acquired.
        self._is_limited: Final = is_limited
        self._lock_until_ms: Final = now_ms + config.record_lock_duration_ms
        limit = config.delivery_count_limit
        self._delivery_limit: Final = limit
        #: From this number of deliveries on a record is throttled.
        self._throttle_count: Final = max(2, (limit + 1) // 2)
        self._ranges: list[AcquiredRange] = []
        self._count = 0

    def run(self, wanted: int, fetch_offset: int, last: int, aborted: Sequence[OffsetRange]) -> Acquired:
        """Acquire from what is between the first record batch and `last`."""
        window, batches = self._window, self._batches
        first = batches[0].base_offset
        if fetch_offset < first and window.batches:
            # Between the fetch offset and the first record batch there is no record: compaction removed what was known there.
            archive(window, fetch_offset, first, AVAILABLE)
        if first < window.start_offset:
            first = window.first_of_interest(first)
        if first > last:
            window.pass_hole(fetch_offset, first)
            return NOTHING_ACQUIRED
        index = window.ceiling(first)
        known = window.batches
        if index == len(known) or known[index].first > last:
            self._acquire_new(first, last, wanted)
        else:
            self._acquire_known(first, last, wanted, index)
        ranges = self._ranges
        if not ranges:
            window.pass_hole(fetch_offset, last + 1)
            return NOTHING_ACQUIRED
        window.move_gap(ranges[-1].last_offset + 1)
        if aborted:
            self._cut_out(aborted)
        if self._ranges and self._ranges[0].first_offset < window.start_offset:
            self._leave_out_below(window.start_offset)
        if not self._ranges:
            return NOTHING_ACQUIRED
        start, end = find_sent(batches, self._ranges[0].first_offset, self._ranges[-1].last_offset)
        return Acquired(self._ranges, self._count, start, end)

    def _acquire_known(self, first: int, last: int, wanted: int, index: int) -> None:
        """Acquire from known batches, from holes between them while there is a gap, and from what lies after them."""
        window = self._window
        # New batches come in while this goes on, so it goes over a copy.
        end = window.floor(last) + 1
        known = window.batches[index:end]
        next_offset = min(first, known[0].first)
        # Nothing below the start offset is acquired again.
        first = max(first, window.start_offset)
        throttle_count = self._throttle_count
        for batch in known:
            if self._count >= wanted:
                return
            if window.gap_start() >= 0:
                if next_offset < batch.first:
                    self._acquire_new(next_offset, batch.first - 1, wanted - self._count)
                next_offset = batch.last + 1
                if self._count >= wanted:
                    return
            is_inside = batch.first >= first and batch.last <= last
            if not batch.is_split:
                run = batch.runs[0]
                if not run.is_available():
                    continue
                count = run.count
            else:
                count = self._highest_count(batch, first, last)
                if count < 0:
                    continue
            is_throttled = count >= throttle_count
            if is_throttled and self._count:
                return
            size = batch.last - batch.first + 1
            if (
                is_inside
                and not batch.is_split
                and not is_throttled
                and (not self._is_limited or size <= wanted - self._count)
            ):
                self._acquire_run(run)
                self._locks.add(self._lock_until_ms, batch)
                self._ranges.append(AcquiredRange(run.first, run.last, run.count))
                self._count += size
                continue
            self._acquire_part(batch, first, last, wanted - self._count)
            if is_throttled:
                return
        last_known = known[-1].last
        if self._count < wanted and last_known < last:
            self._acquire_new(last_known + 1, last, wanted - self._count)

    def _highest_count(self, batch: DeliveryBatch, first: int, last: int) -> int:
        """Return the highest delivery count of the available offsets of a range, or -1 where there is none."""
        highest = -1
        for run in batch.runs:
            if run.last >= first and run.first <= last and run.count > highest and run.is_available():
                highest = run.count
        return highest

    def _acquire_part(self, batch: DeliveryBatch, first: int, last: int, wanted: int) -> None:
        """Acquire what is available of a batch, offset by offset."""
        limit, count, most = self._delivery_limit, 0, -1
        start, _ = batch.take(max(first, batch.first), min(last, batch.last))
        index, runs = start, batch.runs
        ranges, own_ranges = self._ranges, len(self._ranges)
        while index < len(runs) and runs[index].first <= last:
            run = runs[index]
            index += 1
            if not run.is_available():
                continue
            size = run.last - run.first + 1
            is_last_delivery = limit > 2 and run.count == limit - 1
            if is_last_delivery:
                if count:
                    break
                size = 1
            if most < 0 and run.count >= self._throttle_count:
                most = max(1, (batch.last - batch.first + 1) >> (run.count - self._throttle_count + 1))
                if most <= count:
                    # As in Kafka, offsets that were delivered less often have used the limit up, and it does not count any more.
                    most = batch.last - batch.first + 1
            if most >= 0:
                size = min(size, most - count)
            if self._is_limited:
                size = min(size, wanted - count)
            if size <= 0:
                break
            if size < run.last - run.first + 1:
                runs.insert(index, run.cut(run.first + size))
            self._acquire_run(run)
            count += size
            if (
                len(ranges) > own_ranges
                and ranges[-1].last_offset + 1 == run.first
                and ranges[-1].delivery_count == run.count
            ):
                ranges[-1] = AcquiredRange(ranges[-1].first_offset, run.last, run.count)
            else:
                ranges.append(AcquiredRange(run.first, run.last, run.count))
            if is_last_delivery:
                break
        if count:
            self._locks.add(self._lock_until_ms, batch)
            self._count += count
        batch.join(start, len(runs))

    def _acquire_run(self, run: DeliveryRun) -> None:
        run.state = ACQUIRED
        run.count += 1
        run.member_id = self._member_id
        run.lock_until_ms = self._lock_until_ms
        run.is_lock_over = False

    def _acquire_new(self, first: int, last: int, wanted: int) -> None:
        """Acquire offsets that are not known, up to the end of the record batch that has the last one that is wanted."""
        window, batches = self._window, self._batches
        if not window.batches and window.end_offset > first:
            first = window.end_offset
        if first > last:
            return
        is_first = not window.batches or first < window.firsts[0]
        if wanted < last - first + 1:
            # In a hole that compaction left there is nothing to be aligned to.
            aligned = max(first + wanted - 1, batches[index_at(batches, first + wanted - 1)].last_offset)
            if window.gap_start() < 0 or aligned < last:
                last = aligned
        if self._is_limited:
            self._add(first, last, min(wanted, last - first + 1))
        elif last - first + 1 <= self._batch_size:
            self._add(first, last, last - first + 1)
        else:
            begin = first
            for index in range(index_at(batches, first), len(batches)):
                base = batches[index].base_offset
                if base > last:
                    break
                if base - begin >= self._batch_size:
                    self._add(begin, base - 1, base - begin)
                    begin = base
            self._add(begin, last, last - begin + 1)
        if is_first:
            window.start_offset = max(window.start_offset, first)
        if last > window.end_offset:
            window.end_offset = last
        window.move_gap(last + 1)

    def _add(self, first: int, last: int, count: int) -> None:
        """Add a batch of which the first `count` offsets are acquired."""
        batch = DeliveryBatch(first, last, AVAILABLE, 0)
        if first + count <= last:
            batch.take(first, first + count - 1)
            self._window.has_available = True
        self._acquire_run(batch.runs[0])
        self._window.add(batch)
        self._locks.add(self._lock_until_ms, batch)
        self._ranges.append(AcquiredRange(first, first + count - 1, 1))
        self._count += count

    def _leave_out_below(self, start_offset: int) -> None:
        """Take out of the answer what is below the start offset: it is locked with its batch, but nobody gets it."""
        self._ranges = [
            AcquiredRange(max(each.first_offset, start_offset), each.last_offset, each.delivery_count)
            for each in self._ranges
            if each.last_offset >= start_offset
        ]
        self._count = sum(each.last_offset - each.first_offset + 1 for each in self._ranges)

    def _cut_out(self, aborted: Sequence[OffsetRange]) -> None:
        """Archive what aborted transactions wrote, and take it out of what was acquired."""
        for first, last in aborted:
            archive(self._window, first, last + 1, ACQUIRED)
        ranges: list[AcquiredRange] = []
        count, index = 0, 0
        for first, last, delivery_count in self._ranges:
            while index < len(aborted) and aborted[index].last_offset < first:
                index += 1
            cut = index
            while cut < len(aborted) and aborted[cut].first_offset <= last:
                if aborted[cut].first_offset > first:
                    ranges.append(AcquiredRange(first, aborted[cut].first_offset - 1, delivery_count))
                    count += aborted[cut].first_offset - first
                first = aborted[cut].last_offset + 1
                cut += 1
            if first <= last:
                ranges.append(AcquiredRange(first, last, delivery_count))
                count += last - first + 1
        self._ranges, self._count = ranges, count
