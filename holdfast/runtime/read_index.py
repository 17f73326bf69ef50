"""The requests for read indexes; each partition has at most one in flight."""

from collections.abc import Iterable
from typing import final


@final
class ReadIndexes:
    """The rounds of requests for the read indexes of all partitions of a node."""

    def __init__(self) -> None:
        #: Number of the newest round that was sent.
        self.round = 0
        #: Partitions that need a newer read index than the one in flight.
        self.wanted: set[int] = set()
        self._in_flight: set[int] = set()
        #: The next round begins at the end of this turn; it has one request to each broker, for all partitions wanted by then.
        self._is_round_due = False
        #: Partitions whose leader did not answer; they are requested again with the next tick.
        self._unanswered: set[int] = set()

    def want(self, partition: int) -> int:
        """Request a read index of a partition from now on; returns the round that will bring it."""
        self.wanted.add(partition)
        return self.round + 1

    def plan_round(self) -> bool:
        """Plan a round for the end of this turn if one is needed; returns whether it was not planned before."""
        is_new = bool(self.wanted) and not self._is_round_due
        self._is_round_due |= is_new
        return is_new

    def begin_round(self) -> list[int]:
        """Return the partitions of the next round, ascending; there is no round if it is empty."""
        self._is_round_due = False
        if not self.wanted:
            return []
        free = self.wanted - self._in_flight
        if free:
            self.round += 1
            self.wanted -= free
            self._in_flight |= free
        return sorted(free)

    def end(self, partitions: Iterable[int]) -> None:
        """Remove partitions from flight whose requests were answered or failed."""
        self._in_flight.difference_update(partitions)

    def not_answered(self, partition: int) -> None:
        """Request the read index of a partition again with the next tick."""
        self._unanswered.add(partition)

    def tick(self) -> None:
        """Request again the read indexes that were not answered."""
        self.wanted |= self._unanswered
        self._unanswered.clear()
