"""A source of the page over moments: all views but that of the cluster, which each source has of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

from holdfast.kafka.topic_ids import format_topic_id
from holdfast.page.cursors import cut_cluster
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
from holdfast.page.timeline import UNTOLD, OffsetTimeline, Told
from holdfast.records.share.batches import AVAILABLE, STATE_NAMES

#: Partitions that a refusal names.
_NAMED_MAX: Final = 3
#: The largest offset of a partition.
_OFFSET_MAX: Final = (1 << 63) - 1
#: States in which a consumer may hold the record.
_MAY_BE_HELD: Final = (UNTOLD, STATE_NAMES[AVAILABLE])


class MomentPage(ABC):
    """A `PageSource` whose views are cut from moments."""

    #: The option or the setting that names a history.
    history_option = "--history-dir"

    def __init__(self, looks: Looks, now_ms: Callable[[], int], run_id: str) -> None:
        """Connect to nothing yet.

        Args:
            looks: into the topics of the cluster.
            now_ms: the time, in ms since 1970.
            run_id: marks the cursors of this run.
        """
        self._looks = looks
        self._now_ms = now_ms
        self._run_id = run_id

    @abstractmethod
    async def moment(self) -> Moment:
        """Return what is known now; raises PageRefused."""

    @property
    @abstractmethod
    def log_topic(self) -> str:
        """Return the name of the state topic."""

    @property
    @abstractmethod
    def log_topic_id(self) -> bytes:
        """Return the id of the state topic."""

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
    async def whole_cluster(self) -> ClusterView:
        """Return the cluster with all rows of its lists, in any order; raises PageRefused."""

    def audience(self) -> str:
        """See `PageSource`."""
        return ""

    @abstractmethod
    def changed(self) -> AsyncIterator[None]:
        """See `PageSource`."""

    async def cluster(self, after: str | None = None) -> ClusterView:
        """See `PageSource`."""
        return cut_cluster(await self.whole_cluster(), self._run_id, after)

    async def groups(self, after: str | None = None, name: str | None = None) -> GroupsPage:
        """See `PageSource`."""
        return (await self.moment()).groups(after, name)

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
        wanted = Wanted(log_topic, self.log_topic_id, log_partition, place.key, offset)
        read = await self._looks.timeline(wanted, log_end, self.log_reading(log_partition))
        if read.problem and read.fold.last_ms is not None:
            as_of_ms = min(as_of_ms, read.fold.last_ms)
        told, ends = read.told(), place.end.ends
        changes, history = told.changes, None if read.past is None else read.past.view
        is_read = not read.problem and (history is None or not history.problem)
        if not changes and is_read and not ends.problem and offset < ends.first_offset:
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
            unknown=(*old, *_unknown(read, told, self.history_option)),
            history=history,
            is_old=bool(old),
        )

    async def record(self, topic: str, partition: int, offset: int) -> RecordView:
        """See `PageSource`."""
        moment = await self.moment()
        places = moment.of_topic(topic)
        self.check_records(topic, places)
        if not places:
            moment.check_names(moment.places(), topic)
            text = f"No group has state of a topic {topic!r}; records are shown of topics of which one has."
            raise moment.none_known(text, nearest(topic, moment.topics()))
        place = next((each for each in places if each.key.partition == partition), None)
        if place is None:
            numbers = ", ".join(map(str, sorted({each.key.partition for each in places})[:_NAMED_MAX]))
            raise moment.none_known(
                f"No group has state of partition {partition} of {topic!r}; records are shown of partitions of which one has, as {numbers}."
            )
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


def _lacks_begin(timeline: OffsetTimeline) -> bool:
    """Tell whether something was there before: a share partition that is known has a record, unless all were pruned meanwhile."""
    return timeline.began_before or timeline.first is None


def _unknown(read: TimelineRead, told: Told, history_option: str) -> tuple[str, ...]:
    """Return what a timeline does not know, in sentences."""
    found = list[str]()
    log_topic, _, log_partition, *_ = read.wanted
    past = read.past
    if read.problem:
        found.append(
            f"Log partition {log_partition} of {log_topic} was read up to offset {read.fold.next_offset} only: "
            f"{read.problem.rstrip('.')}."
        )
    elif read.fold.start > 0 and _lacks_begin(read.timeline) and (past is None or past.view.from_ms is None):
        named = f"; where a job keeps a history, name it by {history_option}"
        found.append(
            f"The log begins at offset {read.fold.start}: what happened before that was pruned, and is not known here"
            f"{'' if past is not None or read.fold.is_foreign else named}."
        )
    if past is not None:
        found += past.unknown
    if told.total > CHANGES_MAX:
        found.append(f"It changed {told.total} times, of which the last {CHANGES_MAX} are shown.")
    if not told.changes or told.changes[-1].state in _MAY_BE_HELD:
        found.append("No coordinator writes down who holds a record now: a delivery shows here when it ends.")
    found += [f"In log partition {log_partition} {gap}." for gap in read.fold.gaps()]
    return tuple(found)
