"""Busy polling: an event loop that does not sleep while a broker's answer is about to come.

A thread that sleeps has to be woken, which takes longer than many brokers need for an answer: tens of microseconds on a machine of one's
own, hundreds on a virtual one whose processor was given away meanwhile. A caller with one request in flight waits for all of that.
"""

import asyncio
from collections.abc import Callable
from os import sched_yield
from time import perf_counter, thread_time
from typing import Final, final

from holdfast.metrics.instruments import Counter

#: Most answers are late when so many of the last eight are.
_LATE_MAX: Final = 5
_LAST_ANSWERS: Final = 0xFF
#: Then so many of 64 requests are polled for, in a row.
_TRIES: Final = 8
_TRIES_OF: Final = 64
#: A turn of the loop that took less of the processor had nothing to do but to poll.
_QUIET_TURN_S: Final = 0.000_03


@final
class BusyPolling:
    """The polling of one event loop, for all connections whose answers are about to come."""

    def __init__(
        self,
        max_us: int = 0,
        polled_ms: Counter | None = None,
        clock_s: Callable[[], float] = perf_counter,
        clock_of_thread_s: Callable[[], float] = thread_time,
    ) -> None:
        """Begin before the first request.

        Args:
            max_us: how long to poll behind each request, in microseconds; 0: never.
            polled_ms: counts the processor time that polling takes.
            clock_s: in seconds; not the loop's clock, which counts in milliseconds.
            clock_of_thread_s: the processor time of this thread, in seconds.
        """
        self.max_s = max_us / 1e6
        self.clock_s = clock_s
        self._polled_ms = Counter() if polled_ms is None else polled_ms
        self._clock_of_thread_s = clock_of_thread_s
        #: Connections that expect an answer.
        self._expecting = 0
        #: When the loop may sleep, whoever expects one.
        self._ends_s = 0.0
        #: Has the loop take another turn; None: none is due, so it may sleep.
        self._call_soon: Callable[[Callable[[], None]], object] | None = None
        #: The processor time of this thread at the last look for answers, and what of it is polling that was not counted yet.
        self._worked_s = 0.0
        self._polled_s = 0.0

    def expect(self, loop: asyncio.AbstractEventLoop, ends_s: float) -> None:
        """Poll for the answer to one connection, until a time at most."""
        self._expecting += 1
        self._ends_s = max(self._ends_s, ends_s)
        if self._call_soon is None:
            self._worked_s = self._clock_of_thread_s()
            self._call_soon = loop.call_soon
            self._call_soon(self._poll)

    def expect_no_more(self) -> None:
        """Take note that one connection has its answer, or gets none."""
        self._expecting -= 1

    def _poll(self) -> None:
        """Have the loop look for answers once more, behind whoever else wants this processor."""
        worked_s = self._clock_of_thread_s()
        turn_s, self._worked_s = worked_s - self._worked_s, worked_s
        is_quiet = turn_s < _QUIET_TURN_S
        if is_quiet:
            self._polled_s += turn_s
            if self._polled_s >= 0.001:
                polled_ms = int(self._polled_s * 1_000)
                self._polled_ms.value += polled_ms
                self._polled_s -= polled_ms / 1_000
        if self._expecting and self._call_soon is not None and self.clock_s() < self._ends_s:
            if is_quiet:
                sched_yield()
            self._call_soon(self._poll)
        else:
            self._call_soon = None
            self._ends_s = 0.0


@final
class BusyPoll:
    """Whether the answers of one connection are polled for.

    They are, unless five of the last eight came later than polling lasts. Then eight of 64 are, in a row, because whoever is at work is
    quicker than who has slept.
    """

    __slots__ = ("_is_expecting", "_late", "_loop", "_polling", "_sent_s", "_unpolled")

    def __init__(self, loop: asyncio.AbstractEventLoop, polling: BusyPolling) -> None:
        """Begin before the first request on a connection of this event loop."""
        self._loop = loop
        self._polling = polling
        #: An answer is polled for.
        self._is_expecting = False
        #: When the last request left.
        self._sent_s = 0.0
        #: Of each of the last eight answers, the newest lowest: whether it came late.
        self._late = 0
        #: The place of the next request among 64, while most answers are late; the last eight are polled for.
        self._unpolled = 0

    def on_sent(self) -> None:
        """Poll for the answer to a request that leaves now, if answers come in time."""
        polling = self._polling
        if polling.max_s <= 0:
            return
        self._sent_s = polling.clock_s()
        if self._late.bit_count() >= _LATE_MAX:
            place, self._unpolled = self._unpolled, (self._unpolled + 1) % _TRIES_OF
            if place < _TRIES_OF - _TRIES:
                return
        else:
            self._unpolled = 0
        self.stop()
        self._is_expecting = True
        polling.expect(self._loop, self._sent_s + polling.max_s)

    def on_answered(self, in_flight: int) -> None:
        """Take note of an answer, behind which so many requests are in flight; polling ends with the last one."""
        polling = self._polling
        if polling.max_s <= 0:
            return
        is_late = polling.clock_s() - self._sent_s > polling.max_s
        self._late = (self._late << 1 | is_late) & _LAST_ANSWERS
        if not in_flight:
            self.stop()

    def stop(self) -> None:
        """Poll no more for what was sent."""
        if self._is_expecting:
            self._is_expecting = False
            self._polling.expect_no_more()
