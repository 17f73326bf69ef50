"""When locks end: a heap of deadlines, each with the batch in which something is locked until then.

A deadline stays in the heap when its lock is taken away, and is passed over later; the heap is made again when most of it is stale.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final

from holdfast.delivery.share_partition.batches import DeliveryBatch
from holdfast.delivery.share_partition.values import ACQUIRED, StateWrite
from holdfast.delivery.share_partition.window import Window

#: Stale deadlines that are kept before the heap is made again, beside as many as there are batches.
_STALE_MAX: Final = 256


class Locks:
    """The deadlines of one share partition."""

    __slots__ = ("_deadlines", "_window")

    def __init__(self, window: Window) -> None:
        self._window: Final = window
        #: (deadline, first offset of the batch), a heap.
        self._deadlines: list[tuple[float, int]] = []

    def add(self, until_ms: float, batch: DeliveryBatch) -> None:
        """Remember that something in a batch is locked."""
        deadlines = self._deadlines
        heappush(deadlines, (until_ms, batch.first))
        if len(deadlines) > _STALE_MAX + 2 * len(self._window.batches):
            self._drop_stale()

    def next_ms(self) -> float | None:
        """Return when the next lock ends, or None."""
        deadlines = self._deadlines
        while deadlines:
            until_ms, first = deadlines[0]
            if self._is_locked(until_ms, first):
                return until_ms
            heappop(deadlines)
        return None

    def pop_ended(self, now_ms: float) -> list[DeliveryBatch]:
        """Return each batch in which a lock ends by now, in the order of their ends."""
        deadlines = self._deadlines
        ended: list[DeliveryBatch] = []
        while deadlines and deadlines[0][0] <= now_ms:
            batch = self._window.find(heappop(deadlines)[1])
            if batch is not None and batch not in ended[-1:]:
                ended.append(batch)
        return ended

    def _is_locked(self, until_ms: float, first: int) -> bool:
        batch = self._window.find(first)
        if batch is None:
            return False
        return any(run.lock_until_ms == until_ms and not run.is_lock_over for run in batch.runs)

    def _drop_stale(self) -> None:
        live = set()
        for batch in self._window.batches:
            for run in batch.runs:
                if run.lock_until_ms >= 0 and not run.is_lock_over:
                    live.add((run.lock_until_ms, batch.first))
        self._deadlines = list(live)
        heapify(self._deadlines)


def end_locks(window: Window, batch: DeliveryBatch, now_ms: float, write: StateWrite) -> None:
    """End the locks of a batch whose time is over: what was acquired is available again, or archived.

    It is archived at the limit of deliveries, and below the start offset. A record under way keeps its state: only a failure of
    its write asks whether the lock is over.
    """
    start_offset = window.start_offset
    if batch.first < start_offset <= batch.last:
        whole = batch.runs[0]
        if not batch.is_split and (whole.state != ACQUIRED or whole.write is not None or whole.lock_until_ms > now_ms):
            if whole.write is not None and whole.lock_until_ms <= now_ms:
                whole.is_lock_over = True
            return
        batch.take(start_offset, batch.last)
    runs, is_changed = batch.runs, False
    for run in runs:
        if run.lock_until_ms < 0 or run.lock_until_ms > now_ms:
            continue
        if run.write is not None:
            run.is_lock_over = True
        elif run.state == ACQUIRED:
            run.unlock()
            run.member_id = ""
            window.make_available(run, write.delivery_count_limit)
            write.add(run.first, run.last, run.state, run.count)
            is_changed = True
    if is_changed and batch.is_split:
        batch.join(0, len(runs))


def end_locks_under_way(window: Window, member_id: str) -> None:
    """End the locks of what a member has under way: it holds none of it again."""
    for batch in window.batches:
        for run in batch.runs:
            if run.write is not None and run.write.member_id == member_id:
                run.is_lock_over = True
