"""When locks end: one heap for a node, and one timer for the earliest."""

from __future__ import annotations

import asyncio
from heapq import heappop, heappush
from typing import Final, Protocol, final


class Timed(Protocol):
    """Something that has deadlines."""

    @property
    def next_deadline_ms(self) -> float | None:
        """Return when it must be called next, by the loop's clock; None: never."""

    def tick(self, now_ms: float) -> None:
        """Do what is due."""


#: One whose call failed is called again so much later.
_RETRY_MS: Final = 1_000


@final
class Deadlines:
    """The next deadline of many; a deadline that moved later costs nothing until the earlier one comes."""

    __slots__ = ("_entries", "_heap", "_loop", "_number", "_timer", "_timer_ms")

    def __init__(self) -> None:
        self._loop: Final = asyncio.get_running_loop()
        #: Deadline, a number that makes entries comparable, and whose it is.
        self._heap: list[tuple[float, int, Timed]] = []
        #: The earliest entry of each in the heap.
        self._entries: dict[Timed, float] = {}
        self._number = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0.0

    def look_at(self, timed: Timed) -> None:
        """Note the next deadline of one."""
        deadline_ms = timed.next_deadline_ms
        if deadline_ms is None:
            return
        self._enter(timed, deadline_ms)

    def _enter(self, timed: Timed, deadline_ms: float) -> None:
        known_ms = self._entries.get(timed)
        if known_ms is not None and known_ms <= deadline_ms:
            return
        self._entries[timed] = deadline_ms
        self._number += 1
        heappush(self._heap, (deadline_ms, self._number, timed))
        self._set_timer()

    def forget(self, timed: Timed) -> None:
        """Call one no more."""
        self._entries.pop(timed, None)

    def close(self) -> None:
        """Call nobody any more."""
        self._heap.clear()
        self._entries.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self) -> None:
        first_ms = self._heap[0][0]
        if self._timer is not None:
            if self._timer_ms <= first_ms:
                return
            self._timer.cancel()
        self._timer_ms = first_ms
        self._timer = self._loop.call_at(first_ms / 1_000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        # In seconds the time may be rounded to just below the deadline.
        now_ms = max(self._loop.time() * 1_000, self._timer_ms)
        due: list[Timed] = []
        while self._heap and self._heap[0][0] <= now_ms:
            deadline_ms, _, timed = heappop(self._heap)
            if self._entries.get(timed) == deadline_ms:
                del self._entries[timed]
                due.append(timed)
        for timed in due:
            try:
                next_ms = timed.next_deadline_ms
                if next_ms is not None and next_ms <= now_ms:
                    timed.tick(now_ms)
                self.look_at(timed)
            except Exception as bug:  # the others would never be called again
                self._enter(timed, now_ms + _RETRY_MS)
                self._loop.call_exception_handler({"message": "a deadline failed", "exception": bug})
        if self._heap and self._timer is None:
            self._set_timer()
