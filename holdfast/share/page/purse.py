"""The part of the loop's time that readers of the page may take: it is saved up to a bound, and a reader waits while nothing is left.

So any number of readers costs the node no more than this part in the long run, and one that looks now and then need not wait.
Each principal has an account, and the time that comes is divided among those that are not full: none takes what another needs.
Moments are made for all of them, and are paid first.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final, Generic, NamedTuple, TypeVar

#: Less than half of what the page may cost writes; the rest is for what is not counted, such as the connections.
PART: Final = 0.0075
#: Seconds of the loop that can be saved: one reader who goes through some pages of 10,000 groups, each of which takes nearly one.
SAVED_MAX_S: Final = 3.0
#: Principals with an account of their own at a time; all others share one.
ACCOUNTS_MAX: Final = 16

#: Pause between two slices of a look that is in debt already.
_REST_S: Final = 0.05
#: How long one waits before it looks again: others that come and go change its share.
_WAIT_MAX_S: Final = 1.0
#: The name of the account that many share; no principal has it.
_OTHERS: Final = ""

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
        self._seen_s = now_s()
        #: Spent for all readers together, and not paid yet.
        self._owed_s = 0.0
        #: By account; one that is full is not there.
        self._left_s: dict[str, float] = {}

    @property
    def is_empty(self) -> bool:
        """Tell whether something that was made for all readers is not paid yet."""
        self._share_out()
        return self._owed_s > 0

    def account(self, principal: str) -> Account:
        """Return the account of a principal."""
        self._share_out()
        has_place = principal in self._left_s or len(self._left_s) < ACCOUNTS_MAX
        return Account(self, principal if has_place else _OTHERS)

    def pay(self, spent_s: float, account: str | None = None) -> None:
        """Count time that was spent by an account; None: for all readers together."""
        if account is None:
            self._share_out()
            self._owed_s += spent_s
        else:
            self._left_s[account] = self.left_s(account) - spent_s

    def left_s(self, account: str) -> float:
        """Return what an account has; less than 0: it has spent more than was there."""
        self._share_out()
        if account in self._left_s:
            return self._left_s[account]
        return SAVED_MAX_S / (len(self._left_s) + 1)

    def wait_s(self, account: str) -> float:
        """Return after which time an account has something again, if nobody comes or goes."""
        return max(0.0, -self.left_s(account)) * len(self._left_s) / PART

    def timed(self, work: Coroutine[Any, Any, _Result], account: str | None = None) -> Timed[_Result]:
        """Return what does the same work and pays for its turns of the loop."""
        return Timed(self, account, work, self._used_s)

    def _share_out(self) -> None:
        """Divide the time that has come since this was done last; what is full needs no more."""
        now_s = self._now_s()
        came_s, self._seen_s = PART * (now_s - self._seen_s), now_s
        paid_s = min(came_s, self._owed_s)
        self._owed_s -= paid_s
        if self._left_s:
            each_s, full_s = (whole_s / len(self._left_s) for whole_s in (came_s - paid_s, SAVED_MAX_S))
            self._left_s = {name: more for name, left in self._left_s.items() if (more := left + each_s) < full_s}


class Account(NamedTuple):
    """The time that a principal may spend."""

    purse: Purse
    name: str

    @property
    def is_empty(self) -> bool:
        """Tell whether more was spent than was there."""
        return self.purse.left_s(self.name) < 0

    def pay(self, spent_s: float) -> None:
        """Count time that was spent."""
        self.purse.pay(spent_s, self.name)

    async def wait(self) -> None:
        """Wait until there is some left."""
        while (wait_s := self.purse.wait_s(self.name)) > 0:  # noqa: ASYNC110 - no event tells of time that goes by
            await asyncio.sleep(min(wait_s, _WAIT_MAX_S))

    async def rest(self) -> None:
        """Let others have their turn, and for longer where nothing is left."""
        await asyncio.sleep(_REST_S if self.is_empty else 0)

    def timed(self, work: Coroutine[Any, Any, _Result]) -> Timed[_Result]:
        """Return what does the same work and pays for its turns of the loop."""
        return self.purse.timed(work, self.name)


class Timed(Generic[_Result]):
    """An awaitable that pays for each turn of the loop that its work takes."""

    def __init__(
        self, purse: Purse, account: str | None, work: Coroutine[Any, Any, _Result], used_s: Callable[[], float]
    ) -> None:
        self._purse = purse
        self._account = account
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
                self._purse.pay(spent_s, self._account)
            error = None
            try:
                yield awaited
            except GeneratorExit:
                work.close()
                raise
            except BaseException as thrown:  # a cancellation, above all: it is the work's
                error = thrown
