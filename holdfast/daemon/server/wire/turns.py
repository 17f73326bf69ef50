"""Which connection is worked for next: connections take turns by the time that they have used.

Work is done in steps. Of the connections that wait, the one that has used least time goes first; one that was silent
comes in just before the others, so that a client with few requests is not behind one that sends them without end. After
a slice of time the loop sees to its sockets and to the log.

A connection that took much longer than a slice for one step, because that could not be divided, pauses for as long,
with all others that did so: then the loop is free for the rest. Whatever those others do, it pauses for no more than
some times its own step, which may have been long because the machine was busy. While no connection waits and little was
done, work is begun in the turn of the loop in which it arrived.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Protocol

#: A worker has at most this share of a slice before the next one's turn.
_TURNS_PER_SLICE = 4
#: A turn of more slices than this is a heavy one.
_HEAVY_SLICES = 2
#: A worker pauses after such a turn for at most so many times as long.
_PAUSE_MAX = 4


class Worker(Protocol):
    """A client connection, as far as its work comes in steps."""

    #: Whether it waits for its turn; belongs to `Turns`.
    is_waiting: bool
    #: Until when it may have to pause, because its last turn took much longer than a slice, else 0; belongs to `Turns`.
    heavy_until_s: float
    #: Time that it used, in seconds, on a scale that all workers of one `Turns` share; belongs to `Turns`.
    used_s: float

    def work(self, ends_s: float) -> bool:
        """Do one step, and more while the clock is below `ends_s`; return whether more is to be done now."""


class Turns:
    """The workers that wait for time of one event loop, and the order in which they get it."""

    def __init__(self, slice_ms: float, clock: Callable[[], float]) -> None:
        """Begin without a worker; `clock` gives seconds and never goes back."""
        self.clock = clock
        #: Longest time in seconds that one worker had at once, since `take_longest` was last called.
        self._longest_s = 0.0
        self.set_slice(slice_ms)
        #: (time used, number, worker); the number keeps the order of arrival and workers from being compared.
        self._waiting: list[tuple[float, int, Worker]] = []
        self._number = 0
        self._is_scheduled = False
        #: What the worker that went last had used before: those that wait have used as much or more.
        self._floor_s = 0.0
        #: Work done lately without a look at the sockets: it grows with work, and time without work takes it away.
        self._busy_s = 0.0
        self._ended_s = 0.0
        #: Until when the workers pause whose last turn was heavy.
        self._heavy_from_s = 0.0

    def set_slice(self, slice_ms: float) -> None:
        """Work for so long before the loop sees to the rest."""
        self._slice_s = slice_ms / 1_000
        self._turn_s = self._slice_s / _TURNS_PER_SLICE

    @property
    def waiting(self) -> int:
        """Number of workers that wait for their turn."""
        return len(self._waiting)

    def take_longest_ms(self) -> float:
        """Return the longest time in ms that one worker had at once since the last call."""
        longest_s, self._longest_s = self._longest_s, 0.0
        return longest_s * 1_000

    def offer(self, worker: Worker, now_s: float) -> None:
        """Let `worker` work: at once if none waits and there is time, else when its turn comes."""
        if worker.is_waiting:
            return
        if self._waiting:
            self.wait(worker)
            return
        busy_s = max(0.0, self._busy_s - (now_s - self._ended_s))
        if busy_s >= self._slice_s or worker.heavy_until_s > now_s:
            self.wait(worker)
            return
        used_s = worker.used_s
        if used_s > self._floor_s:
            self._floor_s = used_s
        elif used_s < self._floor_s - self._turn_s:
            worker.used_s = self._floor_s - self._turn_s
        ended_s = self._work(worker, now_s, now_s + self._slice_s)
        self._busy_s = busy_s + ended_s - now_s

    def wait(self, worker: Worker) -> None:
        """Put `worker` among those that wait, unless it does already."""
        if worker.is_waiting:
            return
        worker.is_waiting = True
        worker.used_s = max(worker.used_s, self._floor_s - self._turn_s)
        self._number += 1
        heappush(self._waiting, (worker.used_s, self._number, worker))
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._run)

    def _resume(self, worker: Worker) -> None:
        """Put a worker that paused among those that wait again."""
        worker.is_waiting = False
        self.wait(worker)

    def _work(self, worker: Worker, now_s: float, ends_s: float) -> float:
        """Let a worker work; return when it ended."""
        is_unfinished = worker.work(ends_s)
        ended_s = self.clock()
        took_s = ended_s - now_s
        worker.used_s += took_s
        if took_s > self._longest_s:
            self._longest_s = took_s
        worker.heavy_until_s = 0.0
        if took_s > _HEAVY_SLICES * self._slice_s:
            self._heavy_from_s = ended_s + took_s
            worker.heavy_until_s = ended_s + _PAUSE_MAX * took_s
        self._ended_s = ended_s
        if is_unfinished:
            self.wait(worker)
        return ended_s

    def _run(self) -> None:
        """Let the workers work that wait, for one slice."""
        self._is_scheduled = False
        waiting = self._waiting
        began_s = now_s = self.clock()
        ends_s = now_s + self._slice_s
        while waiting and now_s < ends_s:
            used_s, _, worker = heappop(waiting)
            pauses_until_s = min(self._heavy_from_s, worker.heavy_until_s)
            if now_s < pauses_until_s:
                asyncio.get_running_loop().call_later(pauses_until_s - now_s, self._resume, worker)
                continue
            worker.is_waiting = False
            if used_s > self._floor_s:
                self._floor_s = used_s
            now_s = self._work(worker, now_s, min(ends_s, now_s + self._turn_s))
        self._busy_s = now_s - began_s
        if waiting and not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._run)
