"""Pauses between tries: doubling up to a longest one, and shortened by chance, so those who failed together do not come back together."""

from collections.abc import Callable
from typing import Final, final

#: After so many pauses they double no more, however long the longest may be.
_DOUBLINGS_MAX: Final = 20


@final
class Backoff:
    """How long the next pause is, and until when the last one goes."""

    def __init__(self, first_ms: int, longest_ms: int, jitter: Callable[[], float]) -> None:
        """Begin without a pause.

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
        """Pause from now on, as `is_over` and `until_ms` tell; returns for how many ms, see `next_pause_ms`."""
        pause_ms = self.next_pause_ms(is_first_free=is_first_free)
        self._until_ms = now_ms + pause_ms
        return pause_ms

    def next_pause_ms(self, *, is_first_free: bool = False) -> int:
        """Return how long a caller that keeps the time itself is to pause after a failure: twice as long as after the last one.

        With `is_first_free`, the first failure in a row costs no pause.
        """
        pause_ms = 0
        if self._failures or not is_first_free:
            doubled_ms = self._first_ms << min(self._failures, _DOUBLINGS_MAX)
            pause_ms = int(min(doubled_ms, self._longest_ms) * (0.5 + self._jitter() / 2))
        self._failures += 1
        return pause_ms

    def reset(self) -> None:
        """Forget the failures: things go well."""
        self._failures = 0

    def is_over(self, now_ms: int) -> bool:
        """Whether the next try may be made."""
        return now_ms >= self._until_ms

    def until_ms(self) -> int:
        """Return from when on the next try may be made; that may be past."""
        return self._until_ms
