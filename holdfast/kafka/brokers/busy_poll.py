"""Busy polling: an event loop that does not sleep while a broker's answer is about to come.

A thread that sleeps has to be woken, which takes longer than many brokers need for an answer: tens of microseconds on a machine of one's
own, hundreds on a virtual one whose processor was given away meanwhile. A caller with one request in flight waits for all of that.
"""

import asyncio
from collections.abc import Callable
from os import sched_yield
from time import perf_counter, thread_time
from typing import Final, final

from holdfast.kafka.connection_options import BusyPolling

#: Polling rests when so many of the last eight answers that were polled for came late.
_LATE_MAX: Final = 5
_LAST_ANSWERS: Final = 0xFF
#: How many requests are not polled for then.
_SKIPPED: Final = 56
#: A turn of the loop that took less of the processor had nothing to do but to poll.
_QUIET_TURN_S: Final = 0.000_03


@final
class BusyPoll:
    """Polling for the answers of one connection.

    Behind a request the event loop polls for a time, and sleeps only then. Where most answers take longer, it sleeps at once behind 56
    requests, then tries again; for five to eight in a row, because whoever is at work is quicker than who has slept.
    The first answer that comes in time without polling ends the rest.
    """

    __slots__ = (
        "_call_soon",
        "_clock_of_thread_s",
        "_clock_s",
        "_ends_s",
        "_is_polled_for",
        "_is_polling",
        "_late",
        "_max_s",
        "_polled_ms",
        "_polled_s",
        "_sent_s",
        "_to_skip",
        "_worked_s",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        polling: BusyPolling,
        clock_s: Callable[[], float] = perf_counter,
        clock_of_thread_s: Callable[[], float] = thread_time,
    ) -> None:
        """Begin before the first request.

        Args:
            loop: the event loop of the connection.
            polling: for how long to poll, and where it is counted.
            clock_s: in seconds; not the loop's clock, which counts in milliseconds.
            clock_of_thread_s: the processor time of this thread, in seconds.
        """
        self._call_soon = loop.call_soon
        self._max_s = polling.max_us / 1e6
        self._polled_ms = polling.polled_ms
        self._clock_s = clock_s
        self._clock_of_thread_s = clock_of_thread_s
        #: The processor time of this thread at the last look for answers, and what of it is polling that was not counted yet.
        self._worked_s = 0.0
        self._polled_s = 0.0
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
            self._worked_s = self._clock_of_thread_s()
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
        worked_s = self._clock_of_thread_s()
        turn_s, self._worked_s = worked_s - self._worked_s, worked_s
        if turn_s < _QUIET_TURN_S:
            self._polled_s += turn_s
        if self._clock_s() < self._ends_s:
            sched_yield()
            self._call_soon(self._poll)
        else:
            self._is_polling = False
            polled_ms = int(self._polled_s * 1_000)
            self._polled_ms.value += polled_ms
            self._polled_s -= polled_ms / 1_000
