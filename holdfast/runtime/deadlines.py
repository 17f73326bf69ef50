"""When time is up: for operations that have waited long enough, and for a slice of what takes long.

Operations that come with all of their time ahead are in order of deadline by themselves.
What is completed is dropped as soon as all before it is: memory that is free again at once is still in the processor's cache.
"""

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush

from holdfast.runtime.state_machine import Operation


class Deadlines:
    """The operations that were not completed at once."""

    __slots__ = ("_count", "_shortened", "in_order")

    def __init__(self) -> None:
        #: Operations with the whole of their time ahead of them, in the order in which they came.
        self.in_order: deque[Operation] = deque()
        #: Those that had waited elsewhere before: (deadline, number, operation), a heap.
        self._shortened: list[tuple[int, int, Operation]] = []
        self._count = 0

    def add_shortened(self, operation: Operation) -> None:
        """Take an operation whose deadline may lie before those of others."""
        self._count += 1
        heappush(self._shortened, (operation.deadline_ms, self._count, operation))

    def drop_done(self) -> None:
        """Forget those that are done, up to the first that is not."""
        in_order = self.in_order
        while in_order and in_order[0].is_done:
            in_order.popleft()

    def take_due(self, now_ms: int) -> list[Operation]:
        """Remove those that are done or whose time is up, and return those that are not done."""
        due = []
        in_order, shortened = self.in_order, self._shortened
        while in_order and (in_order[0].is_done or in_order[0].deadline_ms <= now_ms):
            operation = in_order.popleft()
            if not operation.is_done:
                due.append(operation)
        while shortened and (shortened[0][2].is_done or shortened[0][0] <= now_ms):
            operation = heappop(shortened)[2]
            if not operation.is_done:
                due.append(operation)
        return due

    def clear(self) -> None:
        """Remove all."""
        self.in_order.clear()
        self._shortened.clear()


def begin_slice(clock_ms: Callable[[], int], slice_ms: int) -> Callable[[], bool]:
    """Begin a slice of time; returns what tells whether it is over."""
    ends_ms = clock_ms() + slice_ms
    return lambda: clock_ms() >= ends_ms
