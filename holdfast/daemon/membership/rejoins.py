"""When a member joins again because of something that it found itself: after a pause, which doubles while wishes follow each other."""

from collections.abc import Callable


class Rejoins:
    """The wish to join again, and its pause; so no fault makes a group rebalance all the time."""

    def __init__(self, backoff_ms: int, backoff_max_ms: int, jitter: Callable[[], float]) -> None:
        """Wish nothing.

        Args:
            backoff_ms: first pause.
            backoff_max_ms: longest one.
            jitter: returns a number from 0 to 1; a pause is half to all of its length.
        """
        self._backoff_min_ms = backoff_ms
        self._backoff_max_ms = backoff_max_ms
        self._jitter = jitter
        self._backoff_ms = backoff_ms
        self._reason = ""
        self._at_ms = 0
        self._requested_ms: int | None = None

    @property
    def is_requested(self) -> bool:
        """Whether the member wants to join again."""
        return bool(self._reason)

    def request(self, reason: str, now_ms: int) -> None:
        """Wish to join again after the pause; of several reasons at a time the first one is kept."""
        if not self._reason:
            before_ms, self._requested_ms = self._requested_ms, now_ms
            if before_ms is None or now_ms - before_ms > 2 * self._backoff_max_ms:
                self._backoff_ms = self._backoff_min_ms
            self._reason = reason
            self._at_ms = now_ms + int(self._backoff_ms * (0.5 + self._jitter() / 2))
            self._backoff_ms = min(2 * self._backoff_ms, self._backoff_max_ms)

    def take_due(self, now_ms: int) -> str:
        """Return the reason for which it is time to join again, once; empty if it is not."""
        if not self._reason or now_ms < self._at_ms:
            return ""
        reason, self._reason = self._reason, ""
        return reason

    def joining(self) -> None:
        """Forget the wish, because the member begins to join; one that comes later is not covered by that."""
        self._reason = ""
