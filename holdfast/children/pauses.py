"""Pauses before what ended by itself is started again."""

from typing import final


@final
class Pauses:
    """Pauses of which each is twice as long as the one before, up to a longest one."""

    def __init__(self, first_ms: int, longest_ms: int) -> None:
        self._first_ms = first_ms
        self._longest_ms = longest_ms
        self._next_ms = first_ms

    def take(self) -> int:
        """Return the next pause in ms."""
        pause_ms, self._next_ms = self._next_ms, min(2 * self._next_ms, self._longest_ms)
        return pause_ms

    def reset(self) -> None:
        """Begin with the first one again: things went well."""
        self._next_ms = self._first_ms
