"""Time slices for long work in the turns of the loop: loads, and freeing the memory of machines that are done."""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from holdfast.runtime.state_machine import StateMachine

#: How long all loads together, or the reader of the snapshot topic, may hold the event loop before others get their turn: a request
#: that waits for it is late by no more than a broker's answer. Folding, and freeing what was given up, stop at four fifths of it.
SLICE_MS: Final = 5


class Slices:
    """The time that loads have in one turn of the loop; all loads of a turn share one slice.

    Folding stops after four fifths of it. The last fifth is for handling a portion of records that were read, which does not stop early.
    """

    __slots__ = ("_begin_turn", "_clock_ms", "_ends_ms", "_work_ms")

    def __init__(
        self, clock_ms: Callable[[], int], slice_ms: int, begin_turn: Callable[[Callable[[], None]], None]
    ) -> None:
        self._clock_ms = clock_ms
        self._work_ms = -(-4 * slice_ms // 5)
        self._begin_turn = begin_turn
        #: End of the slice; None: no slice has begun in this turn.
        self._ends_ms: int | None = None

    def begin(self) -> Callable[[], bool]:
        """Begin the slice of this turn, or continue it; returns a function that tells whether work that can stop should do so."""
        ends_ms = self._ends_ms
        if ends_ms is None:
            ends_ms = self._ends_ms = self._clock_ms() + self._work_ms
            self._begin_turn(self._end)
        clock_ms = self._clock_ms
        return lambda: clock_ms() >= ends_ms

    def _end(self) -> None:
        self._ends_ms = None


class Discards:
    """The machines that are done and still hold memory; to free much of it at once would block the loop.

    As much as fits into the slice of this turn is freed at once, and the rest in the next turns.
    Loads that have not claimed their partition continue only when all machines are freed, because they take more memory.
    """

    __slots__ = (
        "_begin_slice",
        "_claimed_count",
        "_continue_soon",
        "_has_failed",
        "_is_scheduled",
        "_machines",
        "_note",
    )

    def __init__(
        self,
        begin_slice: Callable[[], Callable[[], bool]],
        continue_soon: Callable[[Callable[[], None]], None],
        note: Callable[[str, str, dict[str, object]], None],
    ) -> None:
        """Keep `Slices.begin`, `Host.continue_soon` and `Host.note`."""
        self._begin_slice = begin_slice
        self._continue_soon = continue_soon
        self._note = note
        self._machines: deque[tuple[int, StateMachine]] = deque()
        self._is_scheduled = False
        #: Claimed loads that continue in a later turn; they have the slices before any machine is freed.
        self._claimed_count = 0
        #: The first machine has raised once; it is dropped if it raises a second time.
        self._has_failed = False

    def add(self, partition: int, machine: StateMachine) -> None:
        """Free the memory of a partition's machine; from now on only `discard` is called on it."""
        self._machines.append((partition, machine))
        if not self._is_scheduled:
            self._free_slice()

    def continue_load(self, task: Callable[[], None], *, is_claimed: bool) -> None:
        """Run a task in a later turn; unless the partition is claimed, in a turn in which all machines are freed."""
        if is_claimed:
            self._claimed_count += 1
        self._continue_soon(partial(self._run_claimed if is_claimed else self._run_when_freed, task))

    def _run_claimed(self, task: Callable[[], None]) -> None:
        self._claimed_count -= 1
        task()

    def _run_when_freed(self, task: Callable[[], None]) -> None:
        if self._machines:
            self.continue_load(task, is_claimed=False)
        else:
            task()

    def _free_slice(self) -> None:
        self._is_scheduled = False
        try:
            if not self._claimed_count:
                self._free_until(self._begin_slice())
        finally:  # also after a failure the others are freed, and loads continue after them
            if self._machines:
                self._is_scheduled = True
                self._continue_soon(self._free_slice)

    def _free_until(self, is_time_up: Callable[[], bool]) -> None:
        while self._machines:
            self._free_first(is_time_up)
            if is_time_up():
                break

    def _free_first(self, is_time_up: Callable[[], bool]) -> None:
        partition, machine = self._machines[0]
        try:
            if machine.discard(is_time_up):
                self._machines.popleft()
                self._has_failed = False
        except Exception as bug:  # the next step may still free a part; after a second failure the rest goes at once
            if self._has_failed:
                self._machines.popleft()
            self._has_failed = not self._has_failed
            self._note("error", "discard_failed", {"partition": partition, "error": repr(bug), "exc_info": bug})
