"""The rule whether a member must join again, and why."""

from enum import Enum
from typing import final


class RejoinCause(Enum):
    """Why a member joins again."""

    #: A heartbeat said that the group rebalances.
    GROUP = "group"
    #: The program requested it.
    REQUESTED = "requested"
    #: The member lost its generation: its session was over, or the group does not know it.
    LOST = "lost"
    #: The leader's assignment could not be handed in.
    FAILED = "failed"


@final
class Rejoin:
    """The wish to join again.

    It is cleared when an assignment arrives, but only if it was there when the JoinGroup of that assignment took the metadata: a wish
    that came later has not been heard by the group yet.
    """

    def __init__(self) -> None:
        #: None: there is no wish.
        self.cause: RejoinCause | None = None
        #: In words.
        self.reason = ""
        self._is_covered = False

    def request(self, cause: RejoinCause, reason: str) -> None:
        """Wish for a rejoin; of several that wait, the first one gives its reason."""
        if self.cause is None or self._is_covered:
            self.cause, self.reason, self._is_covered = cause, reason, False

    def on_join_sent(self) -> None:
        """Note a JoinGroup that leaves: it covers all wishes until now."""
        self._is_covered = True

    def on_assigned(self) -> None:
        """Note an assignment, before the program learns of it."""
        if self._is_covered:
            self.clear()

    def clear(self) -> None:
        """Forget the wish."""
        self.cause, self.reason, self._is_covered = None, "", False
