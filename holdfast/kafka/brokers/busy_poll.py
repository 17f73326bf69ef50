"""Busy polling: an event loop that does not sleep while a broker's answer is about to come.

A thread that sleeps has to be woken, which takes longer than many brokers need for an answer: tens of microseconds on a machine of one's
own, hundreds on a virtual one whose processor was given away meanwhile. A caller with one request in flight waits for all of that.
"""

import asyncio
from collections.abc import Callable
from os import sched_yield
from time import perf_counter
from typing import Final, final

#: Polling rests when so many of the last eight answers that were polled for came late.
_LATE_MAX: Final = 5
_LAST_ANSWERS: Final = 0xFF
#: How many requests are not polled for then.
_SKIPPED: Final = 56


@final
class BusyPoll:
    """Polling for the answers of one connection.

    Behind a request the event loop polls for a time, and sleeps only then. Where most answers take longer, it sleeps at once behind 56
    requests, then tries again; for five to eight in a row, because whoever is at work is quicker than who has slept.
    The first answer that comes in time without polling ends the rest.
    """

    __slots__ = (
        "_call_soon",
        "_clock_s",
        "_ends_s",
        "_is_polled_for",
        "_is_polling",
        "_late",
        "_max_s",
        "_sent_s",
        "_to_skip",
    )

    def __init__(
        self, loop: asyncio.AbstractEventLoop, max_us: int, clock_s: Callable[[], float] = perf_counter
    ) -> None:
        """Poll behind each request for `max_us` at most; 0: never.

        Args:
            loop: the event loop of the connection.
            max_us: in microseconds.
            clock_s: in seconds; not the loop's clock, which counts in milliseconds.
        """
        self._call_soon = loop.call_soon
        self._max_s = max_us / 1e6
        self._clock_s = clock_s
        #: A turn of the loop is due, so it does not sleep.
        self._is_polling = False
        #: When it may sleep.
        self._ends_s = 0.0
        #: When the last request left.
        self._sent_s = 0.0
        #: The last request was polled for.
        self._is_polled_for = False
        #: Of each of the last eight answers that were polled for, the newest lowest: whether it came late.
        self._late = 0
        #: Requests that are not polled for, and are still to come.
        self._to_skip = 0

    def on_sent(self) -> None:
        """Poll for the answer to a request that leaves now, if answers come in time."""
        if self._max_s <= 0:
            return
        self._sent_s = self._clock_s()
        self._is_polled_for = self._to_skip == 0
        if not self._is_polled_for:
            self._to_skip -= 1
            return
        self._ends_s = self._sent_s + self._max_s
        if not self._is_polling:
            self._is_polling = True
            self._call_soon(self._poll)

    def on_answered(self, in_flight: int) -> None:
        """Take note of an answer, behind which so many requests are in flight; polling ends with the last one."""
        if self._max_s <= 0:
            return
        is_late = self._clock_s() - self._sent_s > self._max_s
        if self._is_polled_for:
            self._late = (self._late << 1 | is_late) & _LAST_ANSWERS
            if self._late.bit_count() >= _LATE_MAX:
                self._late, self._to_skip = 0, _SKIPPED
        elif not is_late:
            self._to_skip = 0
        if not in_flight:
            self._ends_s = 0.0

    def _poll(self) -> None:
        """Have the loop look for answers once more, behind whoever else wants this processor."""
        if self._clock_s() < self._ends_s:
            sched_yield()
            self._call_soon(self._poll)
        else:
            self._is_polling = False
