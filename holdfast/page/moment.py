"""One moment of all share groups: the states, and after them the ends of topics; what the views are cut from; pure.

All views of a moment agree with each other, and with what the command line says of the same states and ends.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from operator import itemgetter
from typing import Any, Final, NamedTuple

from holdfast.kafka.topic_ids import format_topic_id
from holdfast.kafka.topics.topic_ends import NO_SUCH_ID, Ends
from holdfast.page.book import Described
from holdfast.page.cursors import Listed, cut
from holdfast.page.likeness import nearest
from holdfast.page.source import (
    GroupRow,
    GroupsPage,
    GroupView,
    OldestUnfinished,
    PageRefused,
    StateRange,
    WindowView,
    some_of,
    utc,
)
from holdfast.records.share.batches import STATE_NAMES
from holdfast.records.share.group_lag import LagTotals, Row, TopicEnd, with_lag
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.replay import ShareState

#: Partitions that a sentence names.
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
        truths: Mapping[int, Truth],
    ) -> Generator[None, None, Moment]:
        """Return a moment, made in steps of a millisecond or two; see `__init__`."""
        moment = cls(as_of_ms, (), written, minutes, unknown, run_id, truths)
        yield from moment._sum_up(places, written, minutes)
        return moment

    def _sum_up(self, places: Sequence[Place], written: WrittenTimes, minutes: Minutes) -> Iterator[None]:
        for count, place in enumerate(places, start=1):
            self._groups.setdefault(place.key.group_id, []).append(place)
            if count % _PLACES_PER_STEP == 0:
                yield
        # To sort all of them at once takes too long for one step.
        ranked: list[tuple[tuple[Any, ...], GroupRow]] = []
        work = 0
        for group, found in self._groups.items():
            found.sort(key=lambda place: place.key)
            for row in self._topic_rows(group, found, written, minutes):
                insort(ranked, (_attention(row), row), key=itemgetter(0))
            work += len(found)
            if work >= _PLACES_PER_STEP:
                work = 0
                yield
        self._rows = [row for _, row in ranked]

    def group_names(self) -> Collection[str]:
        """Return the names of all groups."""
        return self._groups.keys()

    def only(self, shown: Collection[str], unknown: str) -> Moment:
        """Return the same moment with some groups alone, and a sentence that says why."""
        seen = Moment(self.as_of_ms, (), {}, _no_minutes, (*self.unknown, unknown), self._run_id, self._truths)
        seen._groups = {group: found for group, found in self._groups.items() if group in shown}
        seen._rows = [row for row in self._rows if row.group in seen._groups]
        return seen

    def shows_same(self, other: Moment) -> bool:
        """Tell whether the other one shows the same; a share partition that has not changed is the same object in both."""
        return (self._groups, self._rows, self.unknown) == (other._groups, other._rows, other.unknown)

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

    def groups(self, after: str | None, name: str | None = None) -> GroupsPage:
        """Return a page of groups, see `PageSource`; raises PageRefused."""
        rows = self._rows
        if name is not None:
            part = name.lower()
            rows = [row for row in rows if part in row.group.lower() or (row.topic and part in row.topic.lower())]
        [shown], more = cut(self._run_id, after, Listed(rows, _attention, (int, int, int, str, str)))
        return GroupsPage(self.as_of_ms, tuple(shown), more, len(rows), self.unknown)

    def group(self, group: str, after: str | None) -> GroupView:
        """Return a group; raises PageRefused."""
        found = self._of_group(group)
        totals = LagTotals()
        for place in found:
            totals.add(place.row)
        rows = [row for row in self._rows if row.group == group]
        (topics, shown), more = cut(
            self._run_id,
            after,
            Listed(rows, _attention_in_group, (int, int, int, str)),
            Listed(found, _in_group, (str, int)),
        )
        states = tuple(place.row for place in shown)
        old = tuple(sorted({number for row in states if self.truth(number := row["log_partition"]).why_old}))
        is_old = any(row.is_old for row in rows)
        return GroupView(
            self.as_of_ms, group, totals.data(), tuple(topics), states, more, self.unknown, old=old, is_old=is_old
        )

    def topic_names(self, group: str) -> dict[str, str | None]:
        """Return the names of the topics of a group by their ids; None: not known."""
        return {place.row["topic_id"]: place.end.topic for place in self._groups.get(group, ())}

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
            self.check_names(found, topic)
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

    def check_names(self, places: Iterable[Place], topic: str) -> None:
        """Refuse to say that nothing is of a topic while the name of one of these is not known; one that was deleted has none."""
        problem = next(
            (end.ends.problem for *_, end in places if end.topic is None and end.ends.problem != NO_SUCH_ID), ""
        )
        if problem:
            text = f"It is not known now which topic {topic!r} is, for the names of topics cannot be asked for ({problem.rstrip('.')})"
            raise PageRefused(503, f"{text}; look again in a minute, or name it by its id, which the group's page has.")

    def places(self) -> Iterator[Place]:
        """Return all share partitions."""
        return chain.from_iterable(self._groups.values())

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
            row = _sum_up(group, topic_id, found, written, minutes(group, topic_id, read_to))
            yield row._replace(is_old=any(self.truth(number).why_old for number in numbers))

    def _of_group(self, group: str) -> list[Place]:
        found = self._groups.get(group)
        if found is None:
            text = f"There is no state of the group {group!r}; the first page lists all groups that have some."
            raise self.none_known(text, nearest(group, self._groups))
        return found


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


def true_at_ms(truths: Collection[Truth], now_ms: int) -> int:
    """Return the earliest moment of all that is not old, or of all that is where everything is."""
    known = [truth for truth in truths if truth.as_of_ms is not None]
    new = [truth for truth in known if not truth.why_old]
    return min((truth.as_of_ms or 0 for truth in new or known), default=now_ms)


def tell_of_old(topic: str, truths: Mapping[int, Truth]) -> tuple[str, ...]:
    """Return a sentence for each reason for which log partitions are old."""
    by_why: dict[str, list[int]] = {}
    for number, (_, why_old) in truths.items():
        if why_old:
            by_why.setdefault(why_old, []).append(number)
    found = []
    for why, numbers in by_why.items():
        known = [at_ms for number in numbers if (at_ms := truths[number].as_of_ms) is not None]
        if len(numbers) == len(truths) > 1 and known:
            # Nothing is new.
            text = f"All {len(numbers)} log partitions of {topic} are {why}. Everything is shown as it was at {utc(min(known))}."
            return (text,)
        named, more = ", ".join(map(str, numbers[:_NAMED_MAX])), len(numbers) - _NAMED_MAX
        subject = (
            f"Log partition {named} of {topic} is" if len(numbers) == 1 else f"Log partitions {named} of {topic} are"
        )
        if more > 0:
            subject = f"Log partitions {named} and {more} more of {topic} are"
        it = "it" if len(numbers) == 1 else "them"
        shown = f" or are as they were at {utc(min(known))}" if known else ""
        found.append(f"{subject} {why}. Share groups in {it} may be missing{shown}.")
    return some_of(found)


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


def _attention_in_group(row: GroupRow) -> tuple[Any, ...]:
    """Return what the topics of one group are sorted by: as all are, without the group's name, which may be longer than a cursor."""
    *needs, _, topic_id = _attention(row)
    return *needs, topic_id


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
