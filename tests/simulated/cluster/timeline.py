"""Virtual time: what is due happens in order, and the clock jumps to it. Each process has an event loop of its own.

A process that stands still is a loop that is not run: what is due for it waits, and happens at once when it goes on.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Coroutine
from typing import Any

from holdfast.kafka.errors import ConnectionFailed
from tests.simulated.checks.invariants import FOUND, Invariant, Violation, violate

#: Turns at one instant, of all loops together; more is a loop that waits for nothing.
TURNS_MAX = 20_000


#: With what a task may end.
EXPECTED = (ConnectionFailed, TimeoutError)


class NumberedTask(asyncio.Task[Any]):
    """A task whose hash does not depend on where it lies in memory, so that sets of tasks have one order."""

    number = 0

    def __hash__(self) -> int:
        return self.number


class ProcessLoop(asyncio.BaseEventLoop):
    """The event loop of one process, without sockets and threads."""

    def __init__(self, timeline: Timeline) -> None:
        super().__init__()
        self.timeline = timeline
        self.is_frozen = False
        self.after_turn: Callable[[], None] = lambda: None  #: called after each turn
        self.tasks: dict[NumberedTask, None] = {}
        self._tasks_made = 0
        self._selector = self
        self.set_task_factory(self._make_task)  # type: ignore[arg-type]  # the stub wants a Future of any kind
        self.set_exception_handler(self._learn_exception)

    def _make_task(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **options: Any) -> Any:
        task = NumberedTask(work, loop=loop, **options)
        self._tasks_made += 1
        task.number = self._tasks_made
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # a process that crashes ends none of its tasks
        self.tasks[task] = None
        task.add_done_callback(self._end_task)
        return task

    def _end_task(self, task: asyncio.Task[Any]) -> None:
        del self.tasks[task]  # type: ignore[arg-type]
        found = None if task.cancelled() else task.exception()
        if isinstance(found, Exception) and not isinstance(found, EXPECTED):
            FOUND.append(Violation(Invariant.BUGS_STAY_AT_HOME, f"{task.get_name()} ends with {found!r}"))

    def _learn_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        found = context.get("exception")
        if context.get("handle") is not None and not isinstance(found, Violation):
            FOUND.append(Violation(Invariant.BUGS_STAY_AT_HOME, f"{context['message']}: {found!r}"))

    # ---- what BaseEventLoop asks of a loop ---------------------------------------------------------------------------

    def time(self) -> float:
        """Return the virtual time."""
        return self.timeline.now_s

    def select(self, timeout_s: float | None) -> list[object]:
        """Wait for nothing: only what is due is run."""
        return []

    def _process_events(self, events: list[object]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    # ---- turns -------------------------------------------------------------------------------------------------------

    def due_s(self) -> float:
        """Return when there is something to do, infinity if never."""
        if self._ready:  # type: ignore[attr-defined]
            return 0
        scheduled: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        return scheduled[0].when() if scheduled else float("inf")

    def turn(self) -> None:
        """Do what is due."""
        asyncio._set_running_loop(self)
        try:
            self._run_once()  # type: ignore[attr-defined]
        finally:
            asyncio._set_running_loop(None)
        if FOUND:
            raise FOUND[0]
        self.after_turn()

    def dispose(self) -> None:
        """Let nothing be left of the process."""
        self.after_turn = lambda: None
        self._scheduled.clear()  # type: ignore[attr-defined]
        cancelled: set[NumberedTask] = set()
        for _ in range(30):
            if not self.tasks:
                break
            for task in [*self.tasks]:
                if task not in cancelled:  # among them those that were made while others ended
                    cancelled.add(task)
                    task.cancel()
            asyncio._set_running_loop(self)
            self._run_once()  # type: ignore[attr-defined]
            asyncio._set_running_loop(None)
        self.close()


class Timeline:
    """One clock for all processes and for the world between them."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.loops: list[ProcessLoop] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._turns = 0
        self._turned_s = -1.0

    def after(self, delay_s: float, call: Callable[[], None]) -> None:
        """Call later, in the order of time and then of these calls."""
        self._count += 1
        heapq.heappush(self._events, (self.now_s + delay_s, self._count, call))

    def make_loop(self) -> ProcessLoop:
        """Return the loop of one more process."""
        loop = ProcessLoop(self)
        self.loops.append(loop)
        return loop

    def end(self, loop: ProcessLoop) -> None:
        """Run a loop no more."""
        if loop in self.loops:
            self.loops.remove(loop)

    def run(self, duration_s: float) -> None:
        """Let time pass."""
        self.run_until(lambda: False, duration_s)

    def run_until(self, condition: Callable[[], bool], duration_s: float) -> bool:
        """Let time pass until a condition holds; returns whether it did."""
        end_s = self.now_s + duration_s
        while not condition():
            due_s, loop = float("inf"), None
            for each in self.loops:
                if not each.is_frozen and (at_s := each.due_s()) < due_s:
                    due_s, loop = at_s, each
            if self._events and self._events[0][0] < due_s:
                due_s, loop = self._events[0][0], None
            if due_s > end_s:
                self.now_s = end_s
                return condition()
            self.now_s = max(self.now_s, due_s)
            self._count_turn()
            if loop is None:
                heapq.heappop(self._events)[2]()
            else:
                loop.turn()
        return True

    def _count_turn(self) -> None:
        if self._turned_s != self.now_s:
            self._turned_s, self._turns = self.now_s, 0
        self._turns += 1
        if self._turns > TURNS_MAX:
            violate(Invariant.NO_BUSY_LOOP, f"{TURNS_MAX} turns at one instant")
