"""One moment of all share groups: the states, and after them the ends of topics; what the views are cut from; pure.

All views of a moment agree with each other, and with what the command line says of the same states and ends.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, Final, NamedTuple

from holdfast.kafka.topic_ids import format_topic_id
from holdfast.kafka.topics.topic_ends import Ends
from holdfast.page.book import Described
from holdfast.page.likeness import nearest
from holdfast.page.source import (
    ROWS_PER_PAGE,
    GroupRow,
    GroupsPage,
    GroupView,
    OldestUnfinished,
    PageRefused,
    StateRange,
    WindowView,
    utc,
)
from holdfast.records.share.batches import STATE_NAMES
from holdfast.records.share.group_lag import LagTotals, Row, TopicEnd, with_lag
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.replay import ShareState

#: Partitions that a refusal names.
_NAMED_MAX: Final = 3
#: Share partitions whose ranges are kept, some megabytes each at most: those that somebody looks at.
_RANGES_KEPT_MAX: Final = 8
_INF: Final = float("inf")
#: Share partitions that are summed up in one step.
_PLACES_PER_STEP: Final = 200


class End(NamedTuple):
    """The log of a partition of a user's topic."""

    topic: str | None
    ends: Ends


class Place(NamedTuple):
    """A share partition of a moment."""

    key: SharePartitionKey
    described: Described
    row: Row  #: with its lag
    end: End


class Truth(NamedTuple):
    """When the states of a log partition were as they are shown, and why that is not now."""

    as_of_ms: int | None  #: in ms since 1970; None: not known
    why_old: str = ""  #: a clause, as in "it is …"; empty: it is now, but for a second or two


#: Returns the minutes of a group and a topic id; the log partitions that have it, and up to which time each was read.
Minutes = Callable[[str, bytes, Mapping[int, int]], tuple[int | None, ...]]
#: When the records at offsets of partitions were written: by topic id, partition and offset.
WrittenTimes = Mapping[tuple[bytes, int, int], int]


class Moment:
    """All share partitions at one time."""

    def __init__(
        self,
        as_of_ms: int,
        places: Sequence[Place],
        written: WrittenTimes,
        minutes: Minutes,
        unknown: tuple[str, ...],
        run_id: str,
        truths: Mapping[int, Truth],
    ) -> None:
        """Sum up.

        Args:
            as_of_ms: when the states were as they are here, in ms since 1970, but for those in old log partitions.
            places: all share partitions.
            written: when records were written, as far as it is known.
            minutes: how many records a group finished in each of the last minutes.
            unknown: what keeps it from being whole, in sentences.
            run_id: cursors of another one are refused.
            truths: of the log partitions; one without is of that time.
        """
        self.as_of_ms = as_of_ms
        self._truths = truths
        self.unknown = unknown
        self._run_id = run_id
        self._groups: dict[str, list[Place]] = {}
        self._rows: list[GroupRow] = []
        for _ in self._sum_up(places, written, minutes):
            pass

    @classmethod
    def in_steps(
        cls,
        as_of_ms: int,
        places: Sequence[Place],
        written: WrittenTimes,
        minutes: Minutes,
        unknown: tuple[str, ...],
        run_id: str,
    ) -> Generator[None, None, Moment]:
        """Return a moment, made in steps of a millisecond or two; see `__init__`."""
        moment = cls(as_of_ms, (), written, minutes, unknown, run_id, {})
        yield from moment._sum_up(places, written, minutes)
        return moment

    def _sum_up(self, places: Sequence[Place], written: WrittenTimes, minutes: Minutes) -> Iterator[None]:
        for place in sorted(places, key=lambda place: place.key):
            self._groups.setdefault(place.key.group_id, []).append(place)
        work = 0
        for group, found in self._groups.items():
            self._rows += self._topic_rows(group, found, written, minutes)
            work += len(found)
            if work >= _PLACES_PER_STEP:
                work = 0
                yield
        self._rows.sort(key=_attention)

    def group_names(self) -> Collection[str]:
        """Return the names of all groups."""
        return self._groups.keys()

    def only(self, shown: Collection[str], unknown: str) -> Moment:
        """Return the same moment with some groups alone, and a sentence that says why."""
        seen = Moment(self.as_of_ms, (), {}, _no_minutes, (*self.unknown, unknown), self._run_id, self._truths)
        seen._groups = {group: found for group, found in self._groups.items() if group in shown}
        seen._rows = [row for row in self._rows if row.group in seen._groups]
        return seen

    def topics(self) -> dict[str, None]:
        """Return the names of topics of which a group has state."""
        return {
            name: None for found in self._groups.values() for place in found if (name := place.end.topic) is not None
        }

    def of_topic(self, topic: str) -> list[Place]:
        """Return all share partitions of a topic, by its name or its id."""
        return [
            place
            for found in self._groups.values()
            for place in found
            if topic in (place.end.topic, format_topic_id(place.key.topic_id))
        ]

    def groups(self, after: str | None) -> GroupsPage:
        """Return a page of groups; raises PageRefused."""
        rows = self._rows
        if after is not None:
            last = self._read_cursor(after, (int, int, int, str, str))
            rows = [row for row in rows if [*_attention(row)] > last]
        shown = rows[:ROWS_PER_PAGE]
        more = self._cursor(_attention(shown[-1])) if len(rows) > len(shown) else None
        return GroupsPage(self.as_of_ms, tuple(shown), more, len(self._rows), self.unknown)

    def group(self, group: str, after: str | None) -> GroupView:
        """Return a group; raises PageRefused."""
        found = self._of_group(group)
        totals = LagTotals()
        for place in found:
            totals.add(place.row)
        left = found
        if after is not None:
            last = self._read_cursor(after, (str, int))
            left = [place for place in found if [*_in_group(place)] > last]
        topics = tuple(islice((row for row in self._rows if row.group == group), ROWS_PER_PAGE))
        shown = left[:ROWS_PER_PAGE]
        more = None
        if len(left) > len(shown):
            more = self._cursor(_in_group(shown[-1]))
        states = tuple(place.row for place in shown)
        return GroupView(self.as_of_ms, group, totals.data(), topics, states, more, self.unknown)

    def window(self, group: str, topic: str, partition: int) -> WindowView:
        """Return a share partition; raises PageRefused."""
        key, (state, _, _, _), row, (name, ends) = self.find(group, topic, partition)
        number = int(row["log_partition"])
        as_of_ms, unknown = when_true(number, self.truth(number))
        return WindowView(
            as_of_ms=as_of_ms,
            group=group,
            topic=name,
            topic_id=format_topic_id(key.topic_id),
            partition=partition,
            row=row,
            start_offset=row["start_offset"],
            state_end_offset=row["state_end_offset"],
            ranges=ranges_of(state),
            log_start=None if ends.problem else ends.first_offset,
            log_end=None if ends.problem else ends.end_offset,
            log_unknown=ends.problem,
            unknown=unknown,
        )

    def truth(self, log_partition: int) -> Truth:
        """Return of when the states of a log partition are."""
        return self._truths.get(log_partition, Truth(self.as_of_ms))

    def find(self, group: str, topic: str, partition: int) -> Place:
        """Return a share partition; the topic by its name or its id.

        Raises:
            PageRefused: there is none.
        """
        found = self._of_group(group)
        of_topic = [each for each in found if topic in (each.end.topic, format_topic_id(each.key.topic_id))]
        if not of_topic:
            names = dict.fromkeys(each.end.topic or format_topic_id(each.key.topic_id) for each in found)
            text = f"The group {group!r} has no state of a topic {topic!r}; its page lists those that it has."
            raise self.none_known(text, nearest(topic, names))
        of_partition = [each for each in of_topic if each.key.partition == partition]
        if not of_partition:
            numbers = ", ".join(str(each.key.partition) for each in of_topic[:_NAMED_MAX])
            raise self.none_known(
                f"The group {group!r} has no state of partition {partition} of {topic!r}; it has some of {numbers}"
                f"{' and others' if len(of_topic) > _NAMED_MAX else ''}."
            )
        return of_partition[0]

    def none_known(self, text: str, alike: tuple[str, ...] = ()) -> PageRefused:
        """Return the refusal of what there is no state of; as long as a log partition is old, it is not known whether there is."""
        if any(why_old for _, why_old in self._truths.values()):
            return PageRefused(503, f"It is not known whether this is so now: {text} {self.unknown[0]}", alike)
        return PageRefused(404, text, alike)

    def _topic_rows(
        self, group: str, places: Sequence[Place], written: WrittenTimes, minutes: Minutes
    ) -> Iterator[GroupRow]:
        by_topic: dict[bytes, list[Place]] = {}
        for place in places:
            by_topic.setdefault(place.key.topic_id, []).append(place)
        for topic_id, found in by_topic.items():
            numbers = {int(place.row["log_partition"]) for place in found}
            read_to = {number: self.truth(number).as_of_ms or 0 for number in numbers}
            yield _sum_up(group, topic_id, found, written, minutes(group, topic_id, read_to))

    def _of_group(self, group: str) -> list[Place]:
        found = self._groups.get(group)
        if found is None:
            text = f"There is no state of the group {group!r}; the first page lists all groups that have some."
            raise self.none_known(text, nearest(group, self._groups))
        return found

    def _cursor(self, last: tuple[object, ...]) -> str:
        return urlsafe_b64encode(json.dumps([self._run_id, *last]).encode()).decode()

    def _read_cursor(self, text: str, kinds: tuple[type, ...]) -> list[Any]:
        try:
            last: list[Any]
            run_id, *last = json.loads(urlsafe_b64decode(text.encode()))
        except (ValueError, TypeError, RecursionError):
            raise PageRefused(400, "The cursor is none of ours; begin with the first page.") from None
        if run_id != self._run_id:
            raise PageRefused(400, "The cursor is one of another run of this page; begin with the first page.")
        if tuple(map(type, last)) != kinds:
            raise PageRefused(400, "The cursor is one of another list; begin with the first page.")
        return last


def _no_minutes(group: str, topic_id: bytes, reached: Mapping[int, int]) -> tuple[int | None, ...]:
    return ()


def ranges_of(state: ShareState) -> tuple[StateRange, ...]:
    """Return ranges of offsets of a state, from its start offset on."""
    return _ranges(_Same(state))


def make_place(key: SharePartitionKey, described: Described, end: End) -> Place:
    """Return a share partition with its lag."""
    ends = end.ends
    topic_end = TopicEnd(end.topic, None if ends.problem else ends.end_offset, ends.problem)
    return Place(key, described, with_lag(described.row, topic_end), end)


def when_true(log_partition: int, truth: Truth) -> tuple[int, tuple[str, ...]]:
    """Return when the states of a log partition were as they are shown, and why that is long ago, in sentences."""
    as_of_ms = truth.as_of_ms or 0
    if not truth.why_old:
        return as_of_ms, ()
    return as_of_ms, (
        f"Log partition {log_partition}, which has its state, is {truth.why_old}. This is how it was at {utc(as_of_ms)}.",
    )


def _sum_up(
    group: str, topic_id: bytes, places: Sequence[Place], written: WrittenTimes, finished: tuple[int | None, ...]
) -> GroupRow:
    totals = LagTotals()
    for place in places:
        totals.add(place.row)
    last_whole = finished[-2]
    return GroupRow(
        group=group,
        topic=next((place.end.topic for place in places if place.end.topic is not None), None),
        topic_id=format_topic_id(topic_id),
        share_partitions=totals.share_partitions,
        lag=None if totals.unknown else totals.lag,
        lag_known=totals.lag,
        lag_unknown=dict(totals.unknown),
        in_flight=totals.in_flight,
        given_up=sum(place.described.given_up for place in places),
        delivery_count_max=totals.delivery_count_max,
        oldest=_oldest(places, written),
        rate_per_s=None if last_whole is None else round(last_whole / 60, 2),
        finished_by_minute=finished,
    )


def _oldest(places: Sequence[Place], written: WrittenTimes) -> OldestUnfinished | None:
    found = [
        OldestUnfinished(place.key.partition, offset, written.get((place.key.topic_id, place.key.partition, offset)))
        for place in places
        if (offset := place.row["oldest_unfinished_offset"]) is not None
    ]
    if not found:
        return None
    oldest = min(found, key=lambda each: (_INF if each.written_ms is None else each.written_ms, each.partition))
    return oldest._replace(unknown=sum(each.written_ms is None for each in found))


def _in_group(place: Place) -> tuple[str, int]:
    """Return what the share partitions of a group are sorted by, as the command line does."""
    return place.key.topic_id.hex(), place.key.partition


def _attention(row: GroupRow) -> tuple[Any, ...]:
    """Return what groups are sorted by: those first whose records are tried again and again, wait longest, and are most.

    A record that is tried for the first time is no trouble. One whose age is not known may have waited longest.
    """
    # JSON has no infinity.
    written_ms = 1 << 62
    if row.oldest is not None:
        written_ms = -(1 << 62) if row.oldest.unknown or row.oldest.written_ms is None else row.oldest.written_ms
    return -max(1, row.delivery_count_max), written_ms, -row.lag_known, row.group, row.topic_id


class _Same(NamedTuple):
    """A state that equals none but itself: to compare fifty thousand batches takes longer than to look at them."""

    state: ShareState

    def __hash__(self) -> int:
        return id(self.state)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.state is self.state


@lru_cache(maxsize=_RANGES_KEPT_MAX)
def _ranges(same: _Same) -> tuple[StateRange, ...]:
    """Return what a state says of offsets from its start offset on."""
    state = same.state
    found, next_offset = [], state.start_offset
    for first, last, delivery_state, delivery_count in state.state_batches:
        if last < next_offset:
            continue
        name = STATE_NAMES.get(delivery_state, str(delivery_state))
        found.append(StateRange(max(first, next_offset), last, name, delivery_count))
        next_offset = last + 1
    return tuple(found)
