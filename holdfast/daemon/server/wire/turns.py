"""Which connection is worked for next: clients take turns by the time that they have used, and so do the connections of each.

Work is done in steps. Of the clients that wait, the one that has used least time goes first, with that of its connections
that has used least; one that was silent comes in just before the others, so that a client with few requests is not behind
one that sends them without end, over however many connections. After a slice of time the loop sees to its sockets and to
the log.

A connection whose step took much longer than a slice, because it could not be divided, pauses until the last such step of
any connection has been followed by as much time for the rest; but for no more than some times its own step, which may have
been long because the machine was busy. While no connection waits and little was done, work is begun in the turn of the
loop in which it arrived.

Small requests of several connections that came in one turn are one step, which cannot be divided and makes nobody pause
(`request_batch`); each pays for its part.

Requests that waited for one event go on when it comes, all of them at once; each of them is a step of its client's (`Backlog`).

No step counts for more than a hundred slices: whoever had one when the machine was suspended, or the process stopped, neither
used that time nor pauses for as long.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final

from mypy_extensions import mypyc_attr

#: A worker has at most this share of a slice before the next one's turn.
_TURNS_PER_SLICE: Final = 4
#: A turn of more slices than this is a heavy one.
_HEAVY_SLICES: Final = 2
#: A worker pauses after such a turn for at most so many times as long.
_PAUSE_MAX: Final = 4
#: A turn counts for so many slices at most.
_COUNTED_SLICES_MAX: Final = 100


class Payer:
    """A client, whose workers share its turns; all of it belongs to `Turns`."""

    def __init__(self) -> None:
        #: Time that its workers used, in seconds, on a scale that all payers of one `Turns` share.
        self.used_s = 0.0
        #: Whether it is among those that wait, or one of its workers works.
        self.is_queued = False
        #: (time used, number, worker) of those that wait; the number keeps the order of arrival and workers from being compared.
        self.waiting: list[tuple[float, int, Worker]] = []
        #: What its worker that went last had used before: those that wait have used as much or more, but for charges meanwhile.
        self.floor_s = 0.0


# A base class and no protocol, because compiled code finds the fields of a class by their place, and those of a protocol by name.
@mypyc_attr(allow_interpreted_subclasses=True)
class Worker:
    """A client connection, as far as its work comes in steps."""

    def __init__(self, payer: Payer) -> None:
        """Begin with nothing used; `payer` is the client whose connection it is."""
        self.payer = payer
        #: Whether it waits for its turn; belongs to `Turns`.
        self.is_waiting = False
        #: Until when it may have to pause, because its last turn took much longer than a slice, else 0; belongs to `Turns`.
        self.heavy_until_s = 0.0
        #: Time that it used, in seconds, on a scale that all workers of its payer share; belongs to `Turns`.
        self.used_s = 0.0

    def work(self, ends_s: float) -> bool:
        """Do one step, and more while the clock is below `ends_s`; return whether more is to be done now.

        It must not raise, for others wait for their turn behind it.
        """
        raise NotImplementedError


class Backlog(Worker):
    """The tasks of a client that waited for an event, each of them one step of its turns."""

    def __init__(self, payer: Payer, turns: Turns, report_bug: Callable[[Exception], None]) -> None:
        """Begin without a task; `payer` pays for all of them, and a task that raises is reported."""
        super().__init__(payer)
        self._turns = turns
        self._report_bug = report_bug
        self._tasks: deque[Callable[[], None]] = deque()

    def add(self, task: Callable[[], None]) -> None:
        """Run a task when its turn comes, after those that were added before."""
        self._tasks.append(task)
        self._turns.wait(self)

    def work(self, ends_s: float) -> bool:
        """See `Worker`."""
        tasks, clock = self._tasks, self._turns.clock
        while tasks:
            task = tasks.popleft()
            try:
                task()
            except Exception as bug:  # the others are not to wait for ever
                self._report_bug(bug)
            if clock() >= ends_s:
                break
        return bool(tasks)


class Turns:
    """The workers that wait for time of one event loop, and the order in which they get it."""

    def __init__(self, slice_ms: float, clock: Callable[[], float]) -> None:
        """Begin without a worker; `clock` gives seconds and never goes back."""
        self.clock = clock
        #: Longest time in seconds that one worker, or several together, had at once, since `take_longest_ms` was last called.
        self._longest_s = 0.0
        self.set_slice(slice_ms)
        #: (time used, number, payer) of those with workers that wait; the number keeps payers from being compared.
        self._waiting: list[tuple[float, int, Payer]] = []
        self._number = 0
        #: Workers that wait.
        self._count = 0
        self._is_scheduled = False
        #: The running loop, once it was needed: a look-up for each request takes a system call.
        self._loop: asyncio.AbstractEventLoop | None = None
        #: What the payer that went last had used before: those that wait have used as much or more, but for charges meanwhile.
        self._floor_s = 0.0
        #: Work done lately without a look at the sockets: it grows with work, and time without work takes it away.
        self._busy_s = 0.0
        self._ended_s = 0.0
        #: Time that workers were charged with outside their turns, since the start.
        self._charged_s = 0.0
        #: Until when the workers pause whose last turn was heavy.
        self._heavy_from_s = 0.0

    def set_slice(self, slice_ms: float) -> None:
        """Work for so long before the loop sees to the rest."""
        self._slice_s = slice_ms / 1_000
        self._turn_s = self._slice_s / _TURNS_PER_SLICE

    @property
    def waiting(self) -> int:
        """Number of workers that wait for their turn."""
        return self._count

    def take_longest_ms(self) -> float:
        """Return the longest time in ms that one worker, or several together, had at once since the last call."""
        longest_s, self._longest_s = self._longest_s, 0.0
        return longest_s * 1_000

    def offer(self, worker: Worker, now_s: float) -> None:
        """Let `worker` work: at once if none waits and there is time, else when its turn comes."""
        if worker.is_waiting:
            return
        if self._count:
            self.wait(worker)
            return
        busy_s = max(0.0, self._busy_s - (now_s - self._ended_s))
        if busy_s >= self._slice_s or worker.heavy_until_s > now_s:
            self.wait(worker)
            return
        payer = worker.payer
        payer.used_s = max(payer.used_s, self._floor_s - self._turn_s)
        worker.used_s = max(worker.used_s, payer.floor_s - self._turn_s)
        ended_s = self._work(payer, worker, now_s, now_s + self._slice_s)
        self._busy_s = busy_s + ended_s - now_s

    def note_work(self, began_s: float) -> float:
        """Take note of work for several workers, which began then and has ended; returns the time that they pay for."""
        ended_s = self.clock()
        took_s = ended_s - began_s
        self._busy_s = max(0.0, self._busy_s - (began_s - self._ended_s)) + took_s
        self._ended_s = ended_s
        return self._note_held(took_s)

    def _note_held(self, took_s: float) -> float:
        """Take note of time that the loop was held for at once; returns what of it counts."""
        self._longest_s = max(self._longest_s, took_s)
        return min(took_s, _COUNTED_SLICES_MAX * self._slice_s)

    def charge(self, worker: Worker, took_s: float) -> None:
        """Have a worker and its payer pay for their part of such work; those that wait already keep their places."""
        self._charged_s += took_s
        worker.used_s += took_s
        worker.payer.used_s += took_s

    def wait(self, worker: Worker) -> None:
        """Put `worker` among those that wait, unless it does already."""
        if worker.is_waiting:
            return
        worker.is_waiting = True
        payer = worker.payer
        worker.used_s = max(worker.used_s, payer.floor_s - self._turn_s)
        self._number += 1
        self._count += 1
        heappush(payer.waiting, (worker.used_s, self._number, worker))
        self._queue(payer)
        if not self._is_scheduled:
            self._is_scheduled = True
            self.call_soon(self._run)

    def call_soon(self, task: Callable[[], None]) -> None:
        """Run a task in the next turn of the loop."""
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()
        loop.call_soon(task)

    def _queue(self, payer: Payer) -> None:
        """Put a payer among those that wait, unless it is there or one of its workers works."""
        if not payer.is_queued:
            payer.is_queued = True
            payer.used_s = max(payer.used_s, self._floor_s - self._turn_s)
            # A number of its own: one and the same payer may come in without a worker that has come.
            self._number += 1
            heappush(self._waiting, (payer.used_s, self._number, payer))

    def _resume(self, worker: Worker) -> None:
        """Put a worker that paused among those that wait again."""
        worker.is_waiting = False
        self.wait(worker)

    def _work(self, payer: Payer, worker: Worker, now_s: float, ends_s: float) -> float:
        """Let a worker work at the cost of its payer; return when it ended."""
        self._floor_s = max(self._floor_s, payer.used_s)
        payer.floor_s = max(payer.floor_s, worker.used_s)
        # Until it has paid, no other worker of its puts it among those that wait.
        payer.is_queued = True
        charged_s = self._charged_s
        is_unfinished = worker.work(ends_s)
        ended_s = self.clock()
        took_s = self._note_held(ended_s - now_s - (self._charged_s - charged_s))
        worker.used_s += took_s
        payer.used_s += took_s
        worker.heavy_until_s = 0.0
        if took_s > _HEAVY_SLICES * self._slice_s:
            self._heavy_from_s = ended_s + took_s
            worker.heavy_until_s = ended_s + _PAUSE_MAX * took_s
        self._ended_s = ended_s
        if is_unfinished:
            self.wait(worker)
        payer.is_queued = False
        if payer.waiting:
            self._queue(payer)
        return ended_s

    def _run(self) -> None:
        """Let the workers work that wait, for one slice."""
        self._is_scheduled = False
        waiting = self._waiting
        began_s = now_s = self.clock()
        ends_s = now_s + self._slice_s
        while waiting and now_s < ends_s:
            _, _, payer = heappop(waiting)
            _, _, worker = heappop(payer.waiting)
            self._count -= 1
            pauses_until_s = min(self._heavy_from_s, worker.heavy_until_s)
            if now_s < pauses_until_s:
                asyncio.get_running_loop().call_later(pauses_until_s - now_s, self._resume, worker)
                payer.is_queued = False
                if payer.waiting:
                    self._queue(payer)
                continue
            worker.is_waiting = False
            now_s = self._work(payer, worker, now_s, min(ends_s, now_s + self._turn_s))
        self._busy_s = now_s - began_s
        if waiting and not self._is_scheduled:
            self._is_scheduled = True
            self.call_soon(self._run)
