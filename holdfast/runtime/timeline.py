"""State that can be read at an earlier position, reverted to one, and trimmed up to one.

A position is the sequence of a record within its owner epoch.
The map holds the newest values; an undo log holds the value that each change replaced, oldest first.
A trimmed change can no longer be reverted. The state at the last trimmed position, which is the last committed one, can still be read.
"""

from collections import deque
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class TimelineMap(Generic[K, V]):
    """A map with an undo log; values are immutable and never None."""

    __slots__ = ("_undo", "current")

    def __init__(self) -> None:
        #: The newest values, uncommitted ones included; read freely, change through `put` only.
        self.current: dict[K, V] = {}
        #: (position, key, value before), positions ascending, all above the last trimmed position
        self._undo: deque[tuple[int, K, V | None]] = deque()

    def put(self, position: int, key: K, value: V | None) -> None:
        """Set `key` at `position`, or remove it where `value` is None."""
        current = self.current
        self._undo.append((position, key, current.get(key)))
        if value is None:
            current.pop(key, None)
        else:
            current[key] = value

    def get_at(self, position: int, key: K) -> V | None:
        """Return the value of `key` at `position`: after all records up to and including it."""
        for at, changed, before in self._undo:
            if at > position and changed == key:
                return before
        return self.current.get(key)

    def revert(self, position: int) -> list[tuple[K, V | None, V | None]]:
        """Undo every change above `position`, newest first; returns (key, value undone, value restored) of each."""
        undo, current = self._undo, self.current
        undone = []
        while undo and undo[-1][0] > position:
            _, key, before = undo.pop()
            undone.append((key, current.get(key), before))
            if before is None:
                current.pop(key, None)
            else:
                current[key] = before
        return undone

    def trim(self, position: int) -> None:
        """Drop the undo log up to `position`, inclusive."""
        undo = self._undo
        while undo and undo[0][0] <= position:
            undo.popleft()

    def pop(self) -> tuple[K, V]:
        """Remove any one key for good, when no change will be reverted any more; returns it with its newest value."""
        if self._undo:
            self._undo.clear()
        return self.current.popitem()
