"""An event loop of asyncio whose clock jumps to the next timer when nothing is ready, so that a life in it takes no time."""

import asyncio
from heapq import heappop
from typing import Any, Final

#: Time moves on beyond each timer, so whoever counts in whole ms finds it due.
_STEP_S: Final = 1e-6


class VirtualLoop(asyncio.SelectorEventLoop):
    """The loop; nothing in it may wait for a socket or another thread."""

    def __init__(self) -> None:
        self._now_s = 0.0
        super().__init__()

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._now_s

    def _run_once(self) -> None:
        inner: Any = self  # the timers of asyncio's loop are its own
        while inner._scheduled and inner._scheduled[0]._cancelled:
            heappop(inner._scheduled)._scheduled = False
            inner._timer_cancelled_count = max(0, inner._timer_cancelled_count - 1)
        if not inner._ready and inner._scheduled:
            self._now_s = max(self._now_s, inner._scheduled[0].when()) + _STEP_S
        super()._run_once()  # type: ignore[misc]  # as above
