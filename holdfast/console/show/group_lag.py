"""Share partitions with their lag, from a source of states, and their sums by group."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from time import monotonic
from typing import Final, NamedTuple, Protocol

from holdfast.console.show.output import counted, say
from holdfast.records.share.group_lag import Place, Row, TopicEnd, place_of, with_lag

#: If the ends of a page take longer than this and none is known then, those of the next pages are not requested.
_SILENCE_S: Final = 2.0
#: How many different reasons are printed, for there may be as many as topics.
_REASONS_PRINTED: Final = 5


class GroupFilter(NamedTuple):
    """Which share partitions to list."""

    group: str | None = None  #: None: of all groups
    topic: str | None = None  #: by its name or its id; None: of all topics


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
        places = {place_of(row) for row in page}
        if silence:
            ends: Mapping[Place, TopicEnd] = dict.fromkeys(places, TopicEnd(None, None, silence))
        else:
            began_s = monotonic()
            ends = source.ends(places)
            if places and monotonic() - began_s > _SILENCE_S and all(end.problem for end in ends.values()):
                silence = next(iter(ends.values())).problem
        yield [with_lag(row, ends[place_of(row)]) for row in page]


def unknown_lines(unknown: Counter[str]) -> Iterator[str]:
    """Yield why lags are unknown, in sentences."""
    for reason, count in unknown.most_common(_REASONS_PRINTED):
        yield f"The lag of {counted(count, 'share partition')} is unknown: {reason}."
    if more := unknown.total() - sum(count for _, count in unknown.most_common(_REASONS_PRINTED)):
        yield f"The lag of {counted(more, 'more share partition')} is unknown; --json has each with its reason."


def say_unknown(unknown: Counter[str]) -> None:
    """Print why lags are unknown."""
    for line in unknown_lines(unknown):
        say(line)


def share_partition_text(row: Row) -> str:
    """Return a share partition as `holdfast find` takes it, its topic by its name where that is known."""
    return f"{row['group']}:{row['topic'] or row['topic_id']}:{row['partition']}"
