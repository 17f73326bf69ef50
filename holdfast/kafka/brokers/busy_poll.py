"""Busy polling: an event loop that does not sleep while an answer or a request is about to come.

A thread that sleeps has to be woken, which takes longer than many brokers need for an answer: tens of microseconds on a machine of one's
own, hundreds on a virtual one whose processor was given away meanwhile. Where few requests are in flight, all wait for that: the client
for the broker's answer to its request, and then the broker for the client's next one.
"""

import asyncio
from collections.abc import Callable
from os import sched_yield
from time import perf_counter
from typing import Final, final

from holdfast.kafka.brokers.polling_trials import PollingTrials
from holdfast.metrics.instruments import Counter

#: Whether polling is worth while is judged when turns have taken so many times as long as it lasts at most.
_JUDGED_AFTER: Final = 100
#: The least part of that time which polling takes where it is: where the loop works, or others have the processor, it would sleep little.
_POLLED_MIN: Final = 1 / 5
#: The greatest part of the answers, or of the requests behind them, that may come later than it lasts.
_LATE_MAX: Final = 1 / 2
#: The longest rest: it is as long as the trial before it at first, and each time in a row twice as long.
_REST_MAX_S: Final = 5.0
#: Polling ends after so many times what answers usually take, because whoever is to answer may wait for this very processor:
#: `sched_yield` does not always let it go first, for the kernel looks at what each thread has had; only a thread that sleeps does.
_TIMES_USUAL: Final = 2
#: The weight of each answer's time in the usual one.
_WEIGHT: Final = 1 / 8
#: After a pause of this, what was seen before it says nothing any more.
_FORGOTTEN_S: Final = 1.0
#: A turn of the loop that took no longer than this had next to nothing to do but to poll.
_QUIET_TURN_S: Final = 0.000_03
#: One of no more than so many times the shortest of late had nothing else at all, so that nothing waits for what follows it.
_IDLE_TURN: Final = 2
#: The growth of the shortest turn with each quiet one, so that it follows a processor that becomes slower.
_SHORTEST_GROWTH: Final = 1.01


@final
class _Rest:
    """A part of polling that is left off while it is not worth while."""

    __slots__ = ("_length_s", "until_s")

    def __init__(self) -> None:
        #: When it has ended.
        self.until_s = 0.0
        #: Of the last rest; 0: it was worth while since.
        self._length_s = 0.0

    def judge(self, now_s: float, tried_s: float, *, is_worth_while: bool) -> None:
        """Rest, or end to, behind a trial of so many seconds."""
        if is_worth_while:
            self._length_s = self.until_s = 0.0
        else:
            self._length_s = min(max(tried_s, 2 * self._length_s), _REST_MAX_S)
            self.until_s = now_s + self._length_s


@final
class BusyPolling:
    """The polling of one event loop: it begins with a request to a broker or its answer, and goes on while the next one comes in time."""

    def __init__(
        self,
        max_us: int = 0,
        polled_ms: Counter | None = None,
        clock_s: Callable[[], float] = perf_counter,
    ) -> None:
        """Begin before the first request.

        Args:
            max_us: how long to poll at most behind each request and each answer, in microseconds; 0: never.
            polled_ms: counts the time that polling takes.
            clock_s: in seconds; not the loop's clock, which counts in milliseconds, nor one of processor time, which takes a system call.
        """
        self._max_s = max_us / 1e6
        self._polled_ms = Counter() if polled_ms is None else polled_ms
        self._clock_s = clock_s
        #: The loop that polls; None: none does.
        self._loop: asyncio.AbstractEventLoop | None = None
        #: The one that does, or did last.
        self._known_loop: asyncio.AbstractEventLoop | None = None
        #: What answers usually take; 0 before the first one.
        self._usual_s = 0.0
        #: When it may sleep.
        self._ends_s = 0.0
        #: While these last it does not poll: at all, and behind an answer.
        self._rest = _Rest()
        self._answered_rest = _Rest()
        self._trials = PollingTrials()
        self._in_flight = 0
        #: When the last request in flight was answered, and whether the loop has yet to poll behind that.
        self._answered_s = 0.0
        self._is_answered = False
        #: The time of the last turn.
        self._now_s = 0.0
        #: What the metric does not show yet.
        self._uncounted_s = 0.0
        self._try(0.0)

    def _try(self, now_s: float) -> None:
        """Look from now on how much polling is worth."""
        self._tried_from_s = now_s
        #: The time of turns since then, and what of it is polling.
        self._passed_s = 0.0
        self._polled_s = 0.0
        self._shortest_turn_s = _QUIET_TURN_S
        #: Answers, and requests behind them, and how many of both came late.
        self._answers = 0
        self._late_answers = 0
        self._requests = 0
        self._late_requests = 0

    def on_sent(self, loop: asyncio.AbstractEventLoop) -> float:
        """Poll for the answer to a request that leaves now; returns when that is, in seconds, or 0 where nothing is polled for."""
        if self._max_s <= 0:
            return 0.0
        now_s = self._clock_s()
        self._in_flight += 1
        if now_s < self._rest.until_s or not self._trials.is_polled:
            return now_s
        is_asleep, window_s = self._loop is not loop, self._window_s()
        if is_asleep and now_s - max(self._now_s, self._rest.until_s) > _FORGOTTEN_S:
            self._rest, self._answered_rest = _Rest(), _Rest()
            self._try(now_s)
        elif self._in_flight == 1:
            self._requests += 1
            self._late_requests += now_s - self._answered_s > window_s
        self._ends_s, self._is_answered = now_s + window_s, False
        if is_asleep:
            self._begin(loop)
        return now_s

    def _window_s(self) -> float:
        """Return how long to poll behind a request, or behind an answer."""
        return min(self._max_s, _TIMES_USUAL * self._usual_s) if self._usual_s else self._max_s

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to poll, with the next whole turn of the loop."""
        self._loop = self._known_loop = loop
        loop.call_soon(self._begin_turns, loop)

    def on_answered(self, sent_s: float) -> None:
        """Poll behind the last answer, if it came while the loop polled or not much later: another request may follow.

        Args:
            sent_s: what `on_sent` returned, once for each request, also where it gets no answer; 0: it was not polled for.
        """
        if not sent_s:
            return
        now_s = self._clock_s()
        took_s = now_s - sent_s
        self._usual_s += (min(took_s, self._max_s) - self._usual_s) * (_WEIGHT if self._usual_s else 1)
        self._in_flight -= 1
        is_late = took_s > self._max_s
        is_polled = self._trials.is_polled
        if now_s >= self._rest.until_s:
            self._trials.record(took_s)
            if is_polled:
                self._answers += 1
                self._late_answers += is_late
        if not self._in_flight:
            self._answered_s, self._is_answered = now_s, is_polled
            loop, rests_until_s = self._known_loop, max(self._rest.until_s, self._answered_rest.until_s)
            if is_polled and self._loop is None and loop is not None and now_s >= rests_until_s and not is_late:
                self._begin(loop)

    def _begin_turns(self, loop: asyncio.AbstractEventLoop) -> None:
        self._now_s = self._clock_s()
        loop.call_soon(self._poll, loop)

    def _poll(self, loop: asyncio.AbstractEventLoop) -> None:
        """Have the loop look for what has come once more; where nothing has, behind whoever else wants this processor."""
        now_s = self._clock_s()
        turn_s = now_s - self._now_s
        self._passed_s += turn_s
        self._now_s = now_s
        if turn_s < _QUIET_TURN_S:
            self._count(turn_s)
            self._shortest_turn_s = min(_SHORTEST_GROWTH * self._shortest_turn_s, turn_s)
        if self._is_answered:
            # The client has its answer only now: what is done with a broker's answer took the time since it came.
            self._answered_s, self._is_answered = now_s, False
            self._ends_s = now_s if now_s < self._answered_rest.until_s else now_s + self._window_s()
        if self._passed_s >= _JUDGED_AFTER * self._max_s:
            self._judge(now_s)
        if now_s >= self._ends_s:
            self._loop = None
        else:
            # Whoever has begun with a request goes on first: what is taken off the sockets in one turn is carried out in the next ones.
            if turn_s <= _IDLE_TURN * self._shortest_turn_s:
                sched_yield()
            loop.call_soon(self._poll, loop)

    def _judge(self, now_s: float) -> None:
        """Rest, or rest behind answers, if that was not worth while since it was last judged."""
        tried_s = now_s - self._tried_from_s
        if self._requests:
            self._answered_rest.judge(now_s, tried_s, is_worth_while=self._late_requests <= _LATE_MAX * self._requests)
        self._rest.judge(
            now_s,
            tried_s,
            is_worth_while=self._polled_s >= _POLLED_MIN * self._passed_s
            and self._late_answers <= _LATE_MAX * self._answers,
        )
        if now_s < self._rest.until_s:
            self._ends_s = now_s
        self._try(max(now_s, self._rest.until_s))

    def _count(self, turn_s: float) -> None:
        self._polled_s += turn_s
        self._uncounted_s += turn_s
        if self._uncounted_s >= 0.001:
            counted_ms = int(self._uncounted_s * 1_000)
            self._polled_ms.value += counted_ms
            self._uncounted_s -= counted_ms / 1_000
