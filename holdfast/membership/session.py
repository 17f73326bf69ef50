"""When heartbeats are due, and when the group has given the member up."""

from collections.abc import Callable
from typing import final

from holdfast.backoff import Backoff
from holdfast.membership.settings import MembershipSettings


@final
class Session:
    """The two clocks of a session.

    It is over when its time-out has passed since the *sending* of the last heartbeat that was answered.
    The coordinator got it later than that, so it never gives the member up before the member knows.
    """

    def __init__(self, settings: MembershipSettings, jitter: Callable[[], float]) -> None:
        """Create no session yet; `jitter` returns a number from 0 to 1."""
        self._backoff = Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms, jitter)
        self._timeout_ms = settings.session_timeout_ms
        self._interval_ms = settings.heartbeat_interval_ms
        self._sent_ms = 0
        #: When the next heartbeat is due.
        self.due_ms = 0
        #: When the session is over, unless a heartbeat is answered before.
        self.expires_ms = 0

    def renew(self, now_ms: int) -> None:
        """Begin again: the coordinator has just answered JoinGroup or SyncGroup."""
        self.expires_ms = now_ms + self._timeout_ms
        self.due_ms = now_ms + self._interval_ms

    def on_sent(self, now_ms: int) -> int:
        """Note a heartbeat that leaves; return how late it is, in ms."""
        late_ms = now_ms - self.due_ms
        self._sent_ms = now_ms
        self.due_ms = now_ms + self._interval_ms
        return late_ms

    def on_answered(self) -> None:
        """Note an answer to the last heartbeat that left."""
        self.expires_ms = max(self.expires_ms, self._sent_ms + self._timeout_ms)
        self._backoff.reset()

    def on_failed(self, now_ms: int) -> int:
        """Have the next heartbeat sooner, because the last one came to nothing; returns in how many ms."""
        wait_ms = self._backoff.next_pause_ms()
        self.due_ms = min(self.due_ms, now_ms + wait_ms)
        return wait_ms

    def age_ms(self, now_ms: int) -> int:
        """Return for how long the coordinator has answered nothing."""
        return max(0, now_ms - (self.expires_ms - self._timeout_ms))
