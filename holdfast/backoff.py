"""Pauses between attempts: they double up to a longest one, with jitter, so that callers that failed together do not retry together."""

from collections.abc import Callable
from typing import Final, final

#: Number of pauses after which they do not double any more, for any longest pause.
_DOUBLINGS_MAX: Final = 20


@final
class Backoff:
    """The length of the next pause, and the end of the last one."""

    def __init__(self, first_ms: int, longest_ms: int, jitter: Callable[[], float]) -> None:
        """Set the bounds.

        Args:
            first_ms: first pause.
            longest_ms: longest one.
            jitter: returns a number from 0 to 1; a pause is half to all of its length.
        """
        self._first_ms = first_ms
        self._longest_ms = longest_ms
        self._jitter = jitter
        self._failures = 0
        self._until_ms = 0

    def fail(self, now_ms: int, *, is_first_free: bool = False) -> int:
        """Begin a pause, for `is_over` and `until_ms`; returns its length in ms, see `next_pause_ms`."""
        pause_ms = self.next_pause_ms(is_first_free=is_first_free)
        self._until_ms = now_ms + pause_ms
        return pause_ms

    def next_pause_ms(self, *, is_first_free: bool = False) -> int:
        """Return the length of the pause after a failure, twice that of the last one, for a caller that keeps the time itself.

        With `is_first_free`, the first failure in a row costs no pause.
        """
        pause_ms = 0
        if self._failures or not is_first_free:
            doubled_ms = self._first_ms << min(self._failures, _DOUBLINGS_MAX)
            pause_ms = int(min(doubled_ms, self._longest_ms) * (0.5 + self._jitter() / 2))
        self._failures += 1
        return pause_ms

    def reset(self) -> None:
        """Forget the failures, after a success."""
        self._failures = 0

    def is_over(self, now_ms: int) -> bool:
        """Tell whether the next attempt may be made."""
        return now_ms >= self._until_ms

    def until_ms(self) -> int:
        """Return the time of the next attempt; it may be in the past."""
        return self._until_ms
