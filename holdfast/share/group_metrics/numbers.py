"""The sums over the share partitions of one group and topic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast.kafka.topics.topic_ends import Ends, Place, TopicEnds
from holdfast.records.share.deliveries import Deliveries, find_lag


class Pair(NamedTuple):
    """A group, and a topic that it reads."""

    group: str
    topic_id: bytes


class Standing(NamedTuple):
    """One share partition, as the log has committed it."""

    pair: Pair
    partition: int
    #: -1: not decided yet.
    start_offset: int
    deliveries: Deliveries

    @property
    def place(self) -> Place:
        """Return the partition of the topic."""
        return self.pair.topic_id, self.partition

    def oldest_offset(self, ends: Ends) -> int | None:
        """Return the first offset that has a record and is not finished; None: there is none, or it is not known."""
        oldest = max(self.deliveries.oldest_unfinished_offset, ends.first_offset)
        is_known = self.start_offset >= 0 and not ends.problem
        return oldest if is_known and oldest < ends.end_offset else None


@dataclass(slots=True)
class GroupNumbers:
    """The sums over the share partitions of a pair."""

    #: The topic's name, or its id where that is not known.
    topic: str
    share_partitions: int = 0
    in_flight: int = 0
    archived: int = 0
    #: Sum over the share partitions whose lag is known.
    lag: int = 0
    lag_unknown: int = 0
    #: Records that are not finished by their delivery counts; the last one counts higher ones, too.
    by_delivery_count: dict[int, int] = field(default_factory=dict)
    #: When the oldest record that is not finished was written, in ms since 1970; None: there is none, or it is not known.
    oldest_ms: int | None = None

    def add(self, standing: Standing, ends: Ends, oldest_ms: int | None) -> None:
        """Add a share partition.

        Args:
            standing: its state.
            ends: of the topic's partition.
            oldest_ms: when its oldest record that is not finished was written; None: it is not known, or there is none.
        """
        deliveries = standing.deliveries
        self.share_partitions += 1
        self.in_flight += deliveries.in_flight
        self.archived += deliveries.archived
        for count, records in deliveries.by_delivery_count:
            self.by_delivery_count[count] = self.by_delivery_count.get(count, 0) + records
        lag = None
        if not ends.problem:
            lag, _ = find_lag(standing.start_offset, deliveries.end_offset, deliveries.finished, ends.end_offset)
        if lag is None:
            self.lag_unknown += 1
        else:
            self.lag += lag
        if oldest_ms is not None:
            self.oldest_ms = oldest_ms if self.oldest_ms is None else min(self.oldest_ms, oldest_ms)


def ends_of(found: Mapping[bytes, TopicEnds], place: Place) -> Ends:
    """Return where the partition of a topic begins and ends."""
    topic = found.get(place[0])
    return Ends(-1, -1, "it was not looked up") if topic is None else topic.partitions[place[1]]
