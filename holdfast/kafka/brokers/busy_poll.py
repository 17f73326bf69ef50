"""Busy polling: an event loop that does not sleep while something is about to come.

A thread that sleeps has to be woken, which takes longer than many brokers need for an answer: tens of microseconds on a machine of one's
own, hundreds on a virtual one whose processor was given away meanwhile. Where few requests are in flight, all wait for that: the client
for the broker's answer to its request, and then the broker for the client's next one.
"""

import asyncio
from collections.abc import Callable
from os import sched_yield
from time import perf_counter, thread_time
from typing import Final, final

from holdfast.metrics.instruments import Counter

#: It is judged whether polling is worth while after so many times as long as it lasts.
_JUDGED_AFTER: Final = 100
#: It is while it takes at least so much of the time: where the loop works, or others have the processor, it would sleep little.
_POLLED_MIN: Final = 1 / 5
#: It is not where no answer came in more of the time than this; nor is it behind an answer where no request did.
_IN_VAIN_MAX: Final = 1 / 3
#: What is not worth while rests for so many times as long as it was tried, and so many seconds at most.
_RESTS: Final = 8
_REST_MAX_S: Final = 5.0
#: A turn of the loop that took less of the processor had nothing to do but to poll.
_QUIET_TURN_S: Final = 0.000_03


@final
class BusyPolling:
    """The polling of one event loop: it begins with a request to a broker, and goes on while the next answer or request comes in time."""

    def __init__(
        self,
        max_us: int = 0,
        polled_ms: Counter | None = None,
        clock_s: Callable[[], float] = perf_counter,
        clock_of_thread_s: Callable[[], float] = thread_time,
    ) -> None:
        """Begin before the first request.

        Args:
            max_us: how long to poll behind each request and each answer, in microseconds; 0: never.
            polled_ms: counts the processor time that polling takes.
            clock_s: in seconds; not the loop's clock, which counts in milliseconds.
            clock_of_thread_s: the processor time of this thread, in seconds.
        """
        self._max_s = max_us / 1e6
        self._polled_ms = Counter() if polled_ms is None else polled_ms
        self._clock_s = clock_s
        self._clock_of_thread_s = clock_of_thread_s
        #: The loop that polls; None: none does.
        self._loop: asyncio.AbstractEventLoop | None = None
        #: When it may sleep.
        self._ends_s = 0.0
        #: Before these it does not poll again: at all, and behind an answer.
        self._rests_until_s = 0.0
        self._rests_answered_until_s = 0.0
        #: Whether the last that came or left was an answer.
        self._is_answered = False
        #: The time, and the processor time of this thread, at the last turn.
        self._now_s = 0.0
        self._worked_s = 0.0
        #: Since when it is tried; the time of turns since then, and what of it is polling (processor time).
        self._tried_from_s = clock_s()
        self._passed_s = 0.0
        self._polled_s = 0.0
        #: In what of it no answer came, and no request behind an answer.
        self._unanswered_s = 0.0
        self._unfollowed_s = 0.0
        #: What the metric does not show yet.
        self._uncounted_s = 0.0

    def on_sent(self, loop: asyncio.AbstractEventLoop) -> None:
        """Poll for the answer to a request that leaves now."""
        if self._max_s <= 0:
            return
        now_s = self._clock_s()
        if now_s < self._rests_until_s:
            return
        self._ends_s, self._is_answered = now_s + self._max_s, False
        if self._loop is None:
            self._loop = loop
            self._now_s, self._worked_s = now_s, self._clock_of_thread_s()
            loop.call_soon(self._poll)

    def on_answered(self) -> None:
        """Poll on, if polling has not ended, for the request that may follow an answer."""
        if self._loop is not None:
            now_s = self._clock_s()
            self._is_answered = True
            self._ends_s = now_s if now_s < self._rests_answered_until_s else now_s + self._max_s

    def _poll(self) -> None:
        """Have the loop look for what has come once more, behind whoever else wants this processor."""
        now_s, worked_s = self._clock_s(), self._clock_of_thread_s()
        self._passed_s += now_s - self._now_s
        turn_s = worked_s - self._worked_s
        self._now_s, self._worked_s = now_s, worked_s
        is_quiet = turn_s < _QUIET_TURN_S
        if is_quiet:
            self._polled_s += turn_s
        loop = self._loop
        if loop is None or now_s >= self._ends_s:
            self._loop = None
            if not self._is_answered:
                self._unanswered_s += self._max_s
            elif now_s >= self._rests_answered_until_s:
                self._unfollowed_s += self._max_s
        elif self._passed_s >= _JUDGED_AFTER * self._max_s and not self._is_worth_while(now_s):
            self._loop = None
        else:
            if is_quiet:
                sched_yield()
            loop.call_soon(self._poll)

    def _is_worth_while(self, now_s: float) -> bool:
        """Judge the time that passed since this was last asked, and count what polling took of it."""
        passed_s, polled_s = self._passed_s, self._polled_s
        unanswered_s, unfollowed_s = self._unanswered_s, self._unfollowed_s
        self._passed_s = self._polled_s = self._unanswered_s = self._unfollowed_s = 0.0
        self._uncounted_s += polled_s
        counted_ms = int(self._uncounted_s * 1_000)
        self._uncounted_s -= counted_ms / 1_000
        self._polled_ms.value += counted_ms
        rests_until_s = now_s + min(_RESTS * (now_s - self._tried_from_s), _REST_MAX_S)
        self._tried_from_s = now_s
        if unfollowed_s > _IN_VAIN_MAX * passed_s:
            self._rests_answered_until_s = rests_until_s
        if polled_s >= _POLLED_MIN * passed_s and unanswered_s <= _IN_VAIN_MAX * passed_s:
            return True
        self._rests_until_s = self._tried_from_s = rests_until_s
        return False
