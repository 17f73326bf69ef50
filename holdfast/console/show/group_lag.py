"""Share partitions with their lag, from a source of states, and their sums by group."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from time import monotonic
from typing import Any, Final, NamedTuple, Protocol

from holdfast.console.show.output import counted, say
from holdfast.records.deliveries import find_lag

#: A share partition as `records.deliveries.describe_state` gives it.
Row = dict[str, Any]
#: Topic id, as text, and partition.
Place = tuple[str, int]

#: If the ends of a page take longer than this and none is known then, those of the next pages are not requested.
_SILENCE_S: Final = 2.0
#: How many different reasons are printed, for there may be as many as topics.
_REASONS_PRINTED: Final = 5


class GroupFilter(NamedTuple):
    """Which share partitions to list."""

    group: str | None = None  #: None: of all groups
    topic: str | None = None  #: by its name or its id; None: of all topics


class TopicEnd(NamedTuple):
    """Where a partition of a topic ends."""

    topic: str | None  #: its name; None: not known
    end_offset: int | None = None  #: the high watermark, behind the last record; None: not known
    problem: str = ""  #: why it is not known


class Source(Protocol):
    """A source of the states of share partitions: a node or a log."""

    def pages(self, wanted: GroupFilter) -> Iterator[list[Row]]:
        """Yield share partitions in the order of group, topic id and partition."""

    def ends(self, places: Collection[Place]) -> Mapping[Place, TopicEnd]:
        """Return where partitions of topics end, by now."""

    def gaps(self) -> Sequence[str]:
        """Return, when all pages were given, what keeps the list from being complete, in sentences."""


def list_with_lag(source: Source, wanted: GroupFilter) -> Iterator[list[Row]]:
    """Yield pages of share partitions with the names of their topics, their lag, and why that is unknown where it is.

    Ends are requested after the states are known, page by page: then no state of a sound topic lies beyond them.
    """
    silence = ""
    for page in source.pages(wanted):
        places = {_place(row) for row in page}
        if silence:
            ends: Mapping[Place, TopicEnd] = dict.fromkeys(places, TopicEnd(None, None, silence))
        else:
            began_s = monotonic()
            ends = source.ends(places)
            if places and monotonic() - began_s > _SILENCE_S and all(end.problem for end in ends.values()):
                silence = next(iter(ends.values())).problem
        yield [with_lag(row, ends[_place(row)]) for row in page]


def with_lag(row: Row, end: TopicEnd) -> Row:
    """Return a share partition with `topic`, `end_offset`, `lag` and `lag_unknown`, the reason why there is none.

    The lag is Kafka's, see `records.deliveries.find_lag`.
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


def say_unknown(unknown: Counter[str]) -> None:
    """Print why lags are unknown."""
    for reason, count in unknown.most_common(_REASONS_PRINTED):
        say(f"The lag of {counted(count, 'share partition')} is unknown: {reason}.")
    if more := unknown.total() - sum(count for _, count in unknown.most_common(_REASONS_PRINTED)):
        say(f"The lag of {counted(more, 'more share partition')} is unknown; --json has each with its reason.")


def share_partition_text(row: Row) -> str:
    """Return a share partition as `holdfast find` takes it, its topic by its name where that is known."""
    return f"{row['group']}:{row['topic'] or row['topic_id']}:{row['partition']}"


def _place(row: Row) -> Place:
    return row["topic_id"], row["partition"]
