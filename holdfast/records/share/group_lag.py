"""Share partitions with their lag, and their sums by group: what the command line and the HTTP port show alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from holdfast.records.share.deliveries import find_lag

#: A share partition as `records.share.deliveries.describe_state` gives it.
Row = dict[str, Any]
#: Topic id, as text, and partition.
Place = tuple[str, int]


class TopicEnd(NamedTuple):
    """The end of a partition of a topic."""

    topic: str | None  #: its name; None: not known
    end_offset: int | None = None  #: the high watermark, after the last record; None: not known
    problem: str = ""  #: why it is not known


def with_lag(row: Row, end: TopicEnd) -> Row:
    """Return a share partition with `topic`, `end_offset`, `lag` and `lag_unknown`, the reason why there is none.

    The lag is Kafka's, see `records.share.deliveries.find_lag`.
    """
    end_offset, oldest, unknown = end.end_offset, row["oldest_unfinished_offset"], end.problem
    start_offset = -1 if row["start_offset"] is None else row["start_offset"]
    lag = None
    if start_offset < 0 or end_offset is not None:
        state_end_offset = -1 if row["state_end_offset"] is None else row["state_end_offset"]
        lag, unknown = find_lag(start_offset, state_end_offset, row["finished"], end_offset or 0)
    is_there = row["in_flight"] or (end_offset is not None and oldest is not None and oldest < end_offset)
    known = {"group": row["group"], "topic": end.topic, "topic_id": row["topic_id"], "partition": row["partition"]}
    return (
        known
        | row
        | {
            "oldest_unfinished_offset": oldest if is_there else None,
            "end_offset": end_offset,
            "lag": lag,
            "lag_unknown": unknown or None,
        }
    )


class LagTotals:
    """The sums over some share partitions."""

    def __init__(self) -> None:
        self.topics: set[str] = set()
        self.share_partitions = 0
        self.lag = 0  #: of those whose lag is known
        self.in_flight = 0
        self.delivery_count_max = 0
        self.unknown: Counter[str] = Counter()  #: share partitions whose lag is unknown, by the reason

    def add(self, row: Row) -> None:
        """Add a share partition."""
        self.topics.add(row["topic_id"])
        self.share_partitions += 1
        self.in_flight += row["in_flight"]
        self.delivery_count_max = max(self.delivery_count_max, row["delivery_count_max"])
        if row["lag"] is None:
            self.unknown[row["lag_unknown"]] += 1
        else:
            self.lag += row["lag"]

    def adding(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Add share partitions, and yield each."""
        for row in rows:
            self.add(row)
            yield row

    def data(self) -> dict[str, object]:
        """Return them for JSON; the lag is None where any is unknown, for then the sum is no lag."""
        return {
            "topics": len(self.topics),
            "share_partitions": self.share_partitions,
            "lag": None if self.unknown else self.lag,
            "lag_known": self.lag,
            "lag_unknown": dict(self.unknown),
            "in_flight": self.in_flight,
            "delivery_count_max": self.delivery_count_max,
        }

    def lag_text(self) -> str:
        """Return the lag for people."""
        if not self.unknown:
            return str(self.lag)
        return f"at least {self.lag}" if self.lag else "unknown"


def place_of(row: Row) -> Place:
    """Return the topic id and the partition of a share partition."""
    return row["topic_id"], row["partition"]
