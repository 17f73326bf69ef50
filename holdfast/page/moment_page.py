"""A source of the page over moments: all views but that of the cluster, which each source has of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

from holdfast.kafka.topic_ids import format_topic_id
from holdfast.page.likeness import nearest
from holdfast.page.moment import Moment, Place, Truth, when_true
from holdfast.page.reading import Looks, TimelineRead, Wanted, outside
from holdfast.page.source import (
    CHANGES_MAX,
    ClusterView,
    GroupsPage,
    GroupView,
    PageRefused,
    RecordView,
    TimelineView,
    WindowView,
)
from holdfast.page.timeline import UNTOLD
from holdfast.records.share.batches import AVAILABLE, STATE_NAMES

#: The largest offset of a partition.
_OFFSET_MAX: Final = (1 << 63) - 1
#: States in which a consumer may hold the record.
_MAY_BE_HELD: Final = (UNTOLD, STATE_NAMES[AVAILABLE])


class MomentPage(ABC):
    """A `PageSource` whose views are cut from moments."""

    def __init__(self, looks: Looks, now_ms: Callable[[], int]) -> None:
        """Connect to nothing yet.

        Args:
            looks: into the topics of the cluster.
            now_ms: the time, in ms since 1970.
        """
        self._looks = looks
        self._now_ms = now_ms

    @abstractmethod
    async def moment(self) -> Moment:
        """Return what is known now; raises PageRefused."""

    @property
    @abstractmethod
    def log_topic(self) -> str:
        """Return the name of the state topic."""

    @abstractmethod
    def log_end(self, log_partition: int) -> int | None:
        """Return the offset up to which a log partition made the moment; None: it is not known now."""

    def truth(self, log_partition: int, moment: Moment) -> Truth:
        """Return of when a log partition is, up to `log_end`."""
        return moment.truth(log_partition)

    def log_reading(self, log_partition: int) -> object:
        """Return what is another object as soon as a log partition may have other records than it had."""
        return None

    def check_records(self, topic: str, places: Sequence[Place]) -> None:
        """Refuse records of what a text means, by name or by id, to a reader who may not have them."""
        return

    @abstractmethod
    async def cluster(self) -> ClusterView:
        """See `PageSource`."""

    @abstractmethod
    def changed(self) -> AsyncIterator[None]:
        """See `PageSource`."""

    async def groups(self, after: str | None = None) -> GroupsPage:
        """See `PageSource`."""
        return (await self.moment()).groups(after)

    async def group(self, group: str, after: str | None = None) -> GroupView:
        """See `PageSource`."""
        return (await self.moment()).group(group, after)

    async def window(self, group: str, topic: str, partition: int) -> WindowView:
        """See `PageSource`."""
        return (await self.moment()).window(group, topic, partition)

    async def timeline(self, group: str, topic: str, partition: int, offset: int) -> TimelineView:
        """See `PageSource`."""
        moment = await self.moment()
        place = moment.find(group, topic, partition)
        _check_within(offset, place, may_be_old=True)
        log_partition, log_topic = int(place.row["log_partition"]), self.log_topic
        log_end = self.log_end(log_partition)
        if log_end is None:
            raise PageRefused(503, "The state topic was made again and is read now; look again in some seconds.")
        as_of_ms, old = when_true(log_partition, self.truth(log_partition, moment))
        wanted = Wanted(log_topic, log_partition, place.key, offset)
        read = await self._looks.timeline(wanted, log_end, self.log_reading(log_partition))
        if read.problem and read.fold.last_ms is not None:
            as_of_ms = min(as_of_ms, read.fold.last_ms)
        changes = tuple(read.timeline.changes)
        ends = place.end.ends
        if not changes and not read.problem and not ends.problem and offset < ends.first_offset:
            raise outside(_where(place), offset, ends.first_offset, ends.end_offset)
        return TimelineView(
            as_of_ms=as_of_ms,
            group=group,
            topic=place.end.topic,
            topic_id=format_topic_id(place.key.topic_id),
            partition=partition,
            offset=offset,
            now=changes[-1] if changes else None,
            changes=changes,
            log_topic=log_topic,
            log_partition=log_partition,
            reaches_to_offset=read.fold.start,
            reaches_to_ms=read.fold.first_ms,
            unknown=(*old, *_unknown(read, log_topic, log_partition)),
        )

    async def record(self, topic: str, partition: int, offset: int) -> RecordView:
        """See `PageSource`."""
        moment = await self.moment()
        places = moment.of_topic(topic)
        self.check_records(topic, places)
        if not places:
            text = f"No group has state of a topic {topic!r}; records are shown of topics of which one has."
            raise moment.none_known(text, nearest(topic, moment.topics()))
        place = next((each for each in places if each.key.partition == partition), None)
        if place is None:
            raise moment.none_known(f"No group has state of partition {partition} of {topic!r}.")
        _check_within(offset, place, may_be_old=False)
        name = place.end.topic or format_topic_id(place.key.topic_id)
        return await self._looks.record(name, place.key.topic_id, partition, offset, self._now_ms())


def _check_within(offset: int, place: Place, *, may_be_old: bool) -> None:
    """Refuse an offset that the log of a topic's partition does not have, where it is known which it has."""
    ends = place.end.ends
    if not 0 <= offset <= _OFFSET_MAX:
        raise PageRefused(400, f"{offset} is no offset; they begin at 0.")
    if ends.problem:
        return
    if offset >= ends.end_offset or (offset < ends.first_offset and not may_be_old):
        raise outside(_where(place), offset, ends.first_offset, ends.end_offset)


def _where(place: Place) -> str:
    return f"partition {place.key.partition} of {place.end.topic or format_topic_id(place.key.topic_id)}"


def _unknown(read: TimelineRead, log_topic: str, log_partition: int) -> tuple[str, ...]:
    """Return what a timeline does not know, in sentences."""
    found = []
    if read.problem:
        found.append(
            f"Log partition {log_partition} of {log_topic} was read up to offset {read.fold.next_offset} only: "
            f"{read.problem.rstrip('.')}."
        )
    elif read.fold.start > 0 and read.timeline.began_before:
        found.append(
            f"The log begins at offset {read.fold.start}: what happened before that was pruned, and is not known here"
            f"{'' if read.fold.is_foreign else '; `holdfast history` tells it where a job keeps a history'}."
        )
    if read.timeline.count > CHANGES_MAX:
        found.append(f"It changed {read.timeline.count} times, of which the last {CHANGES_MAX} are shown.")
    changes = read.timeline.changes
    if not changes or changes[-1].state in _MAY_BE_HELD:
        found.append("No coordinator writes down who holds a record now: a delivery shows here when it ends.")
    found += [f"In log partition {log_partition} {gap}." for gap in read.fold.gaps()]
    return tuple(found)
