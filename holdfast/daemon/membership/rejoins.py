"""When a member joins again because of something that it found itself: after a pause, which doubles while wishes follow each other."""

from holdfast.backoff import Backoff


class Rejoins:
    """The wish to join again, and its pause; so no fault makes a group rebalance all the time."""

    def __init__(self, backoff: Backoff, rest_ms: int) -> None:
        """Wish nothing.

        Args:
            backoff: its pauses.
            rest_ms: after so long without a wish the pauses are short again.
        """
        self._backoff = backoff
        self._rest_ms = rest_ms
        self._reason = ""
        self._requested_ms: int | None = None

    @property
    def is_requested(self) -> bool:
        """Whether the member wants to join again."""
        return bool(self._reason)

    def request(self, reason: str, now_ms: int) -> None:
        """Wish to join again after the pause; of several reasons at a time the first one is kept."""
        if not self._reason:
            before_ms, self._requested_ms = self._requested_ms, now_ms
            if before_ms is not None and now_ms - before_ms > self._rest_ms:
                self._backoff.reset()
            self._reason = reason
            self._backoff.fail(now_ms)

    def take_due(self, now_ms: int) -> str:
        """Return the reason for which it is time to join again, once; empty if it is not."""
        if not self._reason or not self._backoff.is_over(now_ms):
            return ""
        reason, self._reason = self._reason, ""
        return reason

    def joining(self) -> None:
        """Forget the wish, because the member begins to join; one that comes later is not covered by that."""
        self._reason = ""
