"""The part of the loop's time that readers of the page may take: it is saved up to a bound, and a reader waits while nothing is left.

So any number of readers costs the node no more than this part in the long run, and one that looks now and then need not wait.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final, Generic, TypeVar

#: Half of what the page may cost writes; the rest is for what is not counted, such as the connections.
PART: Final = 0.01
#: Seconds of the loop that can be saved: one reader who goes through some pages of 10,000 groups, each of which takes nearly one.
SAVED_MAX_S: Final = 3.0

#: Pause between two slices of a look that is in debt already.
_REST_S: Final = 0.05

_Result = TypeVar("_Result")


class Purse:
    """Time that may be spent."""

    def __init__(
        self, now_s: Callable[[], float] = time.perf_counter, used_s: Callable[[], float] = time.thread_time
    ) -> None:
        """Have as much as can be saved.

        Args:
            now_s: the time, by which more is saved.
            used_s: the time that the thread of the loop has worked.
        """
        self._now_s = now_s
        self._used_s = used_s
        self._left_s = SAVED_MAX_S
        self._seen_s = now_s()

    @property
    def is_empty(self) -> bool:
        """Tell whether more was spent than was there."""
        return self._count() < 0

    def pay(self, spent_s: float) -> None:
        """Count time that was spent."""
        self._left_s = self._count() - spent_s

    async def wait(self) -> None:
        """Wait until there is some left."""
        while (left_s := self._count()) < 0:  # noqa: ASYNC110 - no event tells of time that goes by
            await asyncio.sleep(-left_s / PART)

    async def rest(self) -> None:
        """Let others have their turn, and for longer where nothing is left."""
        await asyncio.sleep(_REST_S if self.is_empty else 0)

    def timed(self, work: Coroutine[Any, Any, _Result]) -> Timed[_Result]:
        """Return what does the same work and pays for its turns of the loop."""
        return Timed(self, work, self._used_s)

    def _count(self) -> float:
        now_s = self._now_s()
        self._left_s = min(SAVED_MAX_S, self._left_s + PART * (now_s - self._seen_s))
        self._seen_s = now_s
        return self._left_s


class Timed(Generic[_Result]):
    """An awaitable that pays for each turn of the loop that its work takes."""

    def __init__(self, purse: Purse, work: Coroutine[Any, Any, _Result], used_s: Callable[[], float]) -> None:
        self._purse = purse
        self._work = work
        self._used_s = used_s
        #: Paid until now, in seconds.
        self.paid_s = 0.0

    def __await__(self) -> Generator[Any, Any, _Result]:
        """Do the work."""
        work, error = self._work, None
        while True:
            began_s = self._used_s()
            try:
                awaited = work.send(None) if error is None else work.throw(error)
            except StopIteration as end:
                result: _Result = end.value
                return result
            finally:
                spent_s = self._used_s() - began_s
                self.paid_s += spent_s
                self._purse.pay(spent_s)
            error = None
            try:
                yield awaited
            except GeneratorExit:
                work.close()
                raise
            except BaseException as thrown:  # a cancellation, above all: it is the work's
                error = thrown
