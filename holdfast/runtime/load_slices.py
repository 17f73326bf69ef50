"""What takes long is done in slices of the loop's turns: loads are, and what loads and partitions held is freed in the same slices."""

from collections import deque
from collections.abc import Callable
from functools import partial

from holdfast.runtime.state_machine import StateMachine


class Slices:
    """The time that loads have in one turn of the loop: all that begins in a turn shares one slice.

    Folding stops at four fifths of it; the last fifth is for records that were read, which are filed so many at a time.
    """

    __slots__ = ("_begin_turn", "_clock_ms", "_ends_ms", "_work_ms")

    def __init__(
        self, clock_ms: Callable[[], int], slice_ms: int, begin_turn: Callable[[Callable[[], None]], None]
    ) -> None:
        """Begin in a turn without a slice; `begin_turn` learns of one, and takes what is to be called when the turn ends."""
        self._clock_ms = clock_ms
        self._work_ms = -(-4 * slice_ms // 5)
        self._begin_turn = begin_turn
        #: None: nothing has begun in this turn.
        self._ends_ms: int | None = None

    def begin(self) -> Callable[[], bool]:
        """Begin, or go on with the slice of this turn; returns what tells whether work that can stop is to do so."""
        ends_ms = self._ends_ms
        if ends_ms is None:
            ends_ms = self._ends_ms = self._clock_ms() + self._work_ms
            self._begin_turn(self._end)
        clock_ms = self._clock_ms
        return lambda: clock_ms() >= ends_ms

    def _end(self) -> None:
        self._ends_ms = None


class Discards:
    """The machines that are done and still hold what they loaded: to free much of it at once would hold the loop.

    What fits into the slice of this turn is freed at once, the rest in the next turns.
    The further slices of loads that have claimed nothing yet wait until that is done: they take memory.
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
        """Begin with none; the arguments are `Slices.begin`, `Host.continue_soon` and `Host.note`."""
        self._begin_slice = begin_slice
        self._continue_soon = continue_soon
        self._note = note
        self._machines: deque[tuple[int, StateMachine]] = deque()
        self._is_scheduled = False
        #: Claimed loads that go on in a later turn: the slices are theirs before anything is freed.
        self._claimed_count = 0
        #: The first machine has failed once; the second time it is dropped.
        self._has_failed = False

    def add(self, partition: int, machine: StateMachine) -> None:
        """Free what the machine of a partition holds, which sees nothing but this from now on."""
        self._machines.append((partition, machine))
        if not self._is_scheduled:
            self._free_slice()

    def continue_load(self, task: Callable[[], None], *, is_claimed: bool) -> None:
        """Run a task in a later turn; unless the partition is claimed already, in one in which every machine is freed."""
        if is_claimed:
            self._claimed_count += 1
        self._continue_soon(partial(self._run_claimed if is_claimed else self._run_behind, task))

    def _run_claimed(self, task: Callable[[], None]) -> None:
        self._claimed_count -= 1
        task()

    def _run_behind(self, task: Callable[[], None]) -> None:
        if self._machines:
            self.continue_load(task, is_claimed=False)
        else:
            task()

    def _free_slice(self) -> None:
        self._is_scheduled = False
        try:
            if not self._claimed_count:
                self._free_until(self._begin_slice())
        finally:  # whatever fails, the others are freed, and loads go on behind them
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
        except Exception as bug:  # what it holds elsewhere may still be freed, step by step; then the rest goes at once
            if self._has_failed:
                self._machines.popleft()
            self._has_failed = not self._has_failed
            self._note("error", "discard_failed", {"partition": partition, "error": repr(bug), "exc_info": bug})
