"""The page of a Kafka cluster: what the web side asks, answered from the state topic and the topics of users."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

from holdfast.kafka.addresses import format_address
from holdfast.kafka.connection_options import ConnectionOptions
from holdfast.kafka.topic_ids import format_topic_id
from holdfast.page.follower import Follower
from holdfast.page.moment import Place, nearest
from holdfast.page.reading import Looks, TimelineRead, outside
from holdfast.page.source import (
    CHANGES_MAX,
    BrokerView,
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


class KafkaPage:
    """A `PageSource` of a cluster; `run` works until it is cancelled."""

    def __init__(
        self,
        options: ConnectionOptions,
        topics: Sequence[str],
        *,
        bootstrap: str,
        now_ms: Callable[[], int],
        run_id: str,
    ) -> None:
        """Connect to nothing yet.

        Args:
            options: how to connect.
            topics: names that the state topic may have; the first one that is there is read.
            bootstrap: the brokers as the user named them.
            now_ms: the time, in ms since 1970.
            run_id: marks the cursors of this run.
        """
        self._follower = Follower(options, topics, now_ms, run_id)
        self._looks = Looks(options)
        self._bootstrap = bootstrap
        self._now_ms = now_ms

    async def run(self) -> None:
        """Follow the state topic."""
        await self._follower.run()

    async def groups(self, after: str | None = None) -> GroupsPage:
        """See `PageSource`."""
        return (await self._follower.moment()).groups(after)

    async def group(self, group: str, after: str | None = None) -> GroupView:
        """See `PageSource`."""
        return (await self._follower.moment()).group(group, after)

    async def window(self, group: str, topic: str, partition: int) -> WindowView:
        """See `PageSource`."""
        return (await self._follower.moment()).window(group, topic, partition)

    async def timeline(self, group: str, topic: str, partition: int, offset: int) -> TimelineView:
        """See `PageSource`."""
        place = (await self._follower.moment()).find(group, topic, partition)
        _check_within(offset, place, may_be_old=True)
        log_partition = int(place.row["log_partition"])
        as_of_ms, log_topic = self._now_ms(), self._follower.topic
        fold = self._follower.book.logs.get(log_partition)
        if fold is None:
            raise PageRefused(503, "The state topic was made again and is read now; look again in some seconds.")
        read = await self._looks.timeline(log_topic, log_partition, fold.next_offset, place.key, offset)
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
            unknown=_unknown(read, log_topic, log_partition),
        )

    async def record(self, topic: str, partition: int, offset: int) -> RecordView:
        """See `PageSource`."""
        moment = await self._follower.moment()
        places = moment.of_topic(topic)
        if not places:
            text = f"No group has state of a topic {topic!r}; records are shown of topics of which one has."
            raise PageRefused(404, text, nearest(topic, moment.topics()))
        place = next((each for each in places if each.key.partition == partition), None)
        if place is None:
            raise PageRefused(404, f"No group has state of partition {partition} of {topic!r}.")
        _check_within(offset, place, may_be_old=False)
        name = place.end.topic or format_topic_id(place.key.topic_id)
        return await self._looks.record(name, place.key.topic_id, partition, offset, self._now_ms())

    async def cluster(self) -> ClusterView:
        """See `PageSource`."""
        follower = self._follower
        problems = follower.problems()
        try:
            await follower.moment()
        except PageRefused as refusal:
            problems = (refusal.text, *problems)
        return ClusterView(
            as_of_ms=self._now_ms(),
            bootstrap=self._bootstrap,
            cluster_id=follower.cluster.cluster_id,
            state_topic=follower.topic,
            brokers=tuple(
                BrokerView(broker_id, format_address(*address))
                for broker_id, address in sorted(follower.cluster.addresses.items())
            ),
            log_partitions=tuple(follower.log_partitions()),
            problems=problems,
        )

    def changed(self) -> AsyncIterator[None]:
        """See `PageSource`."""
        return self._follower.changed()


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
            f"The log begins at offset {read.fold.start}: what happened before that was pruned, and is not known here."
        )
    if read.timeline.count > CHANGES_MAX:
        found.append(f"It changed {read.timeline.count} times, of which the last {CHANGES_MAX} are shown.")
    changes = read.timeline.changes
    if not changes or changes[-1].state in _MAY_BE_HELD:
        found.append("No coordinator writes down who holds a record now: a delivery shows here when it ends.")
    found += [f"In log partition {log_partition} {gap}." for gap in read.fold.gaps()]
    return tuple(found)
