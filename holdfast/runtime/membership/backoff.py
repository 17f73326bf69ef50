"""Waits between tries: doubling, jittered, with a maximum."""

from collections.abc import Callable
from typing import final

from holdfast.runtime.membership.settings import MembershipSettings


@final
class Backoff:
    """Until when the next try waits."""

    def __init__(self, settings: MembershipSettings, jitter: Callable[[], float]) -> None:
        """Begin without a wait; `jitter` returns from 0 to 1."""
        self._first_ms = settings.retry_backoff_ms
        self._max_ms = settings.retry_backoff_max_ms
        self._jitter = jitter
        self._failures = 0
        self._until_ms = 0

    def fail(self, now_ms: int, *, is_first_free: bool = False) -> int:
        """Wait from now on, twice as long as the last time; returns for how many ms: half to all of the wait in turn.

        With `is_first_free`, the first failure in a row costs no wait.
        """
        wait_ms = 0
        if self._failures or not is_first_free:
            doubled_ms = self._first_ms << min(self._failures, 20)
            wait_ms = int(min(doubled_ms, self._max_ms) * (0.5 + self._jitter() / 2))
        self._failures += 1
        self._until_ms = now_ms + wait_ms
        return wait_ms

    def reset(self) -> None:
        """Forget the failures: things go well."""
        self._failures = 0

    def is_over(self, now_ms: int) -> bool:
        """Whether the next try may be made."""
        return now_ms >= self._until_ms

    def until_ms(self) -> int:
        """Return from when on the next try may be made; that may be past."""
        return self._until_ms
