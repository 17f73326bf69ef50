"""Deadlines of operations, and intervals between periodic checks.

Operations that come with their whole time left are in order of deadline without sorting.
A completed operation is dropped as soon as all before it are: memory that is freed early is still in the processor's cache.
"""

from collections import deque
from heapq import heappop, heappush
from typing import Final, final

from holdfast.runtime.state_machine import Operation

#: Shortest pause between two ticks of a node at rest: each tick disturbs the programs that share its processors.
_REST_TICK_MS: Final = 250


def rest_tick_ms(tick_ms: int) -> int:
    """Return the pause between two ticks of a node at rest, in ms; it is never shorter than `tick_ms`."""
    return max(tick_ms, _REST_TICK_MS)


@final
class Interval:
    """An interval that is polled, and reports once each time that it has passed."""

    __slots__ = ("_due_ms", "_length_ms")

    def __init__(self, length_ms: int) -> None:
        self._length_ms = length_ms
        self._due_ms = 0

    def has_passed(self, now_ms: int) -> bool:
        """Return whether the interval has passed; if so, the next one begins now."""
        if now_ms < self._due_ms:
            return False
        self._due_ms = now_ms + self._length_ms
        return True


class Deadlines:
    """The operations that were not completed at once."""

    __slots__ = ("_count", "_shortened", "in_order")

    def __init__(self) -> None:
        #: Operations that came with their whole time left, in order of arrival.
        self.in_order: deque[Operation] = deque()
        #: Operations that had waited elsewhere before: a heap of (deadline, number, operation).
        self._shortened: list[tuple[int, int, Operation]] = []
        self._count = 0

    def __bool__(self) -> bool:
        """Return whether there may be any."""
        return bool(self.in_order or self._shortened)

    def add_shortened(self, operation: Operation) -> None:
        """Add an operation whose deadline may be earlier than those of others."""
        self._count += 1
        heappush(self._shortened, (operation.deadline_ms, self._count, operation))

    def drop_done(self) -> None:
        """Remove operations that are done, up to the first that is not."""
        in_order = self.in_order
        while in_order and in_order[0].is_done:
            in_order.popleft()

    def take_due(self, now_ms: int) -> list[Operation]:
        """Remove operations that are done or overdue, and return the overdue ones."""
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
