"""Busy polling: an event loop that does not sleep while an answer or a request is about to come.

A thread that sleeps has to be woken. That takes longer than many brokers need for an answer: tens of microseconds on a machine of one's
own, hundreds on a virtual one whose processor was given away meanwhile. Where few requests are in flight, all wait for that: the client
for the broker's answer to its request, and then the broker for the client's next one.

So the loop polls for a fixed time after each request to a broker and after each answer. It does not judge whether that helps: an operator
does, and polling is off by default. It costs up to a whole processor, and next to processes that compute without a pause answers come
later: the kernel preempts such a process for a thread that slept, but not for one that polls.
"""

import asyncio
from collections.abc import Callable
from os import sched_yield
from time import perf_counter
from typing import Final, final

from holdfast.metrics.instruments import Counter

#: A turn of the loop that took no longer than this had next to nothing to do but to poll.
_QUIET_TURN_S: Final = 0.000_03
#: One of no more than so many times the shortest of late had nothing else at all, so that nothing waits for what follows it.
_IDLE_TURN: Final = 2
#: The growth of the shortest turn with each quiet one, so that it follows a processor that becomes slower.
_SHORTEST_GROWTH: Final = 1.01


@final
class BusyPolling:
    """The polling of one event loop: each request to a broker, and each answer, makes it go on for the same time."""

    def __init__(
        self,
        window_us: int = 0,
        polled_ms: Counter | None = None,
        clock_s: Callable[[], float] = perf_counter,
    ) -> None:
        """Prepare; the first request begins it.

        Args:
            window_us: how long to poll after each request and each answer, in microseconds; 0: never.
            polled_ms: counts the time that polling takes.
            clock_s: in seconds; not the loop's clock, which counts in milliseconds, nor one of processor time, which takes a system call.
        """
        self._window_s = window_us / 1e6
        self._polled_ms = Counter() if polled_ms is None else polled_ms
        self._clock_s = clock_s
        #: The loop that polls; None: none does.
        self._loop: asyncio.AbstractEventLoop | None = None
        #: When it may sleep.
        self._ends_s = 0.0
        #: Whether an answer came since the last turn.
        self._is_answered = False
        #: The time of the last turn.
        self._now_s = 0.0
        self._shortest_turn_s = _QUIET_TURN_S
        #: What the metric does not show yet.
        self._uncounted_s = 0.0

    def on_sent(self, loop: asyncio.AbstractEventLoop) -> None:
        """Poll for the answer to a request that leaves now."""
        if self._window_s > 0:
            self._poll_from_now(loop)

    def on_answered(self, loop: asyncio.AbstractEventLoop) -> None:
        """Poll for the request that may follow an answer."""
        if self._window_s > 0:
            self._is_answered = True
            self._poll_from_now(loop)

    def _poll_from_now(self, loop: asyncio.AbstractEventLoop) -> None:
        self._ends_s = self._clock_s() + self._window_s
        if self._loop is not loop:
            self._loop = loop
            loop.call_soon(self._begin_turns, loop)

    def _begin_turns(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin with the next whole turn of the loop."""
        self._now_s = self._clock_s()
        loop.call_soon(self._poll, loop)

    def _poll(self, loop: asyncio.AbstractEventLoop) -> None:
        """Have the loop look once more for what has come; where nothing has, after others that want this processor."""
        now_s = self._clock_s()
        turn_s = now_s - self._now_s
        self._now_s = now_s
        if turn_s < _QUIET_TURN_S:
            self._count(turn_s)
            self._shortest_turn_s = min(_SHORTEST_GROWTH * self._shortest_turn_s, turn_s)
        if self._is_answered:
            # The client has its answer only now: what is done with a broker's answer took the time since it came.
            self._ends_s, self._is_answered = now_s + self._window_s, False
        if now_s >= self._ends_s:
            self._loop = None
        else:
            # A request that has begun goes on first: what is taken off the sockets in one turn is carried out in the next ones.
            if turn_s <= _IDLE_TURN * self._shortest_turn_s:
                sched_yield()
            loop.call_soon(self._poll, loop)

    def _count(self, turn_s: float) -> None:
        self._uncounted_s += turn_s
        if self._uncounted_s >= 0.001:
            counted_ms = int(self._uncounted_s * 1_000)
            self._polled_ms.value += counted_ms
            self._uncounted_s -= counted_ms / 1_000
