"""When time is up: for operations that have waited long enough, and for what is looked at now and then.

Operations that come with all of their time ahead are in order of deadline by themselves.
What is completed is dropped as soon as all before it is: memory that is free again at once is still in the processor's cache.
"""

from collections import deque
from heapq import heappop, heappush
from typing import Final, final

from holdfast.runtime.state_machine import Operation

#: A node of which nothing is due soon ticks no more often than this: whoever shares its processors notices each tick.
_REST_TICK_MS: Final = 250


def rest_tick_ms(tick_ms: int) -> int:
    """Return the pause between two looks at what is due, in ms, of a node at rest; it never looks more often than every `tick_ms`."""
    return max(tick_ms, _REST_TICK_MS)


@final
class Interval:
    """Tells once each time that it has passed, to whoever looks now and then."""

    __slots__ = ("_due_ms", "_length_ms")

    def __init__(self, length_ms: int) -> None:
        """Begin so that the first look finds it passed."""
        self._length_ms = length_ms
        self._due_ms = 0

    def has_passed(self, now_ms: int) -> bool:
        """Return whether it has; then the next one begins now."""
        if now_ms < self._due_ms:
            return False
        self._due_ms = now_ms + self._length_ms
        return True


class Deadlines:
    """The operations that were not completed at once."""

    __slots__ = ("_count", "_shortened", "in_order")

    def __init__(self) -> None:
        #: Operations with the whole of their time ahead of them, in the order in which they came.
        self.in_order: deque[Operation] = deque()
        #: Those that had waited elsewhere before: (deadline, number, operation), a heap.
        self._shortened: list[tuple[int, int, Operation]] = []
        self._count = 0

    def __bool__(self) -> bool:
        """Whether there may be any."""
        return bool(self.in_order or self._shortened)

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
