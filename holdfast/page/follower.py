"""A state topic followed from its start, and the moments that are made of it; it joins no group, commits and writes nothing.

Each log partition is read by a task of its own. One whose start was pruned before it was read is read from its new start: what was
pruned is in what is left. Brokers are asked for the ends of topics only when somebody looks, at most once a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

from holdfast.kafka.brokers.broker_connection import BrokerConnection
from holdfast.kafka.cluster import Cluster
from holdfast.kafka.connection_options import ConnectionOptions
from holdfast.kafka.errors import ConnectionFailed
from holdfast.kafka.metadata import TopicView
from holdfast.kafka.protocol.denials import acl_remedy
from holdfast.kafka.protocol.error_codes import name_and_number
from holdfast.kafka.records.lanes import ReaderConfig
from holdfast.kafka.records.partition_reader import (
    LogTruncated,
    OffsetOutOfRange,
    PartitionReader,
    ReadFailed,
    TopicGone,
    TopicRecreated,
)
from holdfast.kafka.records.reader import TopicReader
from holdfast.kafka.topics.record_times import RecordTimes
from holdfast.kafka.topics.topic_ends import TopicEndSource
from holdfast.page.book import Book, Described
from holdfast.page.decoding import UnreadableBatch, decode_batch
from holdfast.page.moment import End, Moment, Place, make_place
from holdfast.page.source import LogPartitionView, PageRefused
from holdfast.records.share.keys import SharePartitionKey

#: How long brokers may take for one look-up.
TIMEOUT_MS: Final = 5_000
#: A moment is shown for so long.
_MOMENT_S: Final = 1.0
#: How often it is looked for a state topic where there is none, and for partitions that cannot be read.
_LOOK_EVERY_S: Final = 2.0
#: Records that are folded before others have their turn: some milliseconds.
_RECORDS_PER_TURN: Final = 200
#: Records whose times are looked up for one moment; each takes a request.
_TIMES_PER_MOMENT: Final = 100
#: Times that are kept.
_TIMES_MAX: Final = 20_000
#: ShareGroupHeartbeat, which brokers speak that have share groups.
_SHARE_GROUP_HEARTBEAT: Final = 76
_STARTING: Final = (
    "The state topic {topic} is being read, {read} of {all} log partitions to their end; look again in some seconds."
)


class _Following(NamedTuple):
    """A log partition that is followed."""

    reader: PartitionReader
    task: asyncio.Task[None]


class Follower:
    """The reader of a state topic; `run` works until it is cancelled."""

    def __init__(
        self, options: ConnectionOptions, topics: Sequence[str], now_ms: Callable[[], int], run_id: str
    ) -> None:
        """Connect to nothing yet.

        Args:
            options: how to connect.
            topics: names that the state topic may have; the first one that is there is read.
            now_ms: the time, in ms since 1970.
            run_id: marks the cursors of this run.
        """
        self.options = options
        self.now_ms = now_ms
        self.cluster = Cluster(options, TIMEOUT_MS, may_lack_ids=False, believes_one=True)
        self.book = Book()
        #: The name of the state topic; empty: none was found yet.
        self.topic = ""
        #: Why there is nothing to show; None: there is, or it is not known yet.
        self._refusal: PageRefused | None = None
        self._topics = topics
        self._run_id = run_id
        self._following: dict[int, _Following] = {}
        self._problems: dict[int, str] = {}
        #: Log partitions that were read to their end once.
        self._seen_whole: set[int] = set()
        self._queries = Cluster(options, TIMEOUT_MS, may_lack_ids=False, believes_one=True)
        self._ends = TopicEndSource(self._queries, timeout_ms=TIMEOUT_MS)
        self._times = RecordTimes(self._queries, timeout_ms=TIMEOUT_MS)
        self._written: dict[tuple[bytes, int, int], int] = {}
        #: Those of the moment.
        self._places: dict[SharePartitionKey, Place] = {}
        self._moment: Moment | None = None
        self._moment_s = 0.0
        #: All that the moment shows: a moment of an equal one shows the same.
        self._shown: object = None
        self._making: asyncio.Task[Moment] | None = None

    async def run(self) -> None:
        """Follow the topic, and the next one where it is deleted and made again."""
        while True:
            view = await self._find_topic()
            reader = TopicReader(self.options, self.cluster, ReaderConfig(timeout_ms=TIMEOUT_MS))
            try:
                await self._follow_all(reader, view)
            finally:
                self._following.clear()
                await reader.close()
            self.cluster = Cluster(self.options, TIMEOUT_MS, may_lack_ids=False, believes_one=True)
            self.book.clear()
            self._seen_whole.clear()
            self._moment = None

    async def moment(self) -> Moment:
        """Return what is known now, or was within the last second.

        Raises:
            PageRefused: there is nothing to show, and why.
        """
        if self._refusal is not None:
            raise self._refusal
        if not self._following:
            raise PageRefused(503, "The state topic is looked for; look again in some seconds.")
        whole = self._read_whole()
        if len(whole) < len(self._following):
            raise PageRefused(503, _STARTING.format(topic=self.topic, read=len(whole), all=len(self._following)))
        now_s = asyncio.get_running_loop().time()
        if self._moment is not None and now_s - self._moment_s < _MOMENT_S:
            return self._moment
        if self._making is None or self._making.done():
            self._making = asyncio.create_task(self._make_moment(), name="holdfast-page-moment")
        return await asyncio.shield(self._making)

    async def changed(self) -> AsyncIterator[None]:
        """Yield when a moment is another one than the last, at most once a second."""
        shown: object = None
        while True:
            now: object
            try:
                await self.moment()
                now = self._shown
            except PageRefused as refusal:
                now = refusal.text
            if now != shown:
                shown = now
                yield
            await asyncio.sleep(_MOMENT_S)

    def log_partitions(self) -> list[LogPartitionView]:
        """Return the partitions of the state topic, and how far each is read."""
        leaders = self._leaders()
        found = []
        for number, (reader, _) in sorted(self._following.items()):
            fold = self.book.logs[number]
            found.append(
                LogPartitionView(
                    partition=number,
                    leader=leaders.get(number),
                    start_offset=None if reader.log_start_offset < 0 else reader.log_start_offset,
                    end_offset=None if reader.high_watermark < 0 else reader.high_watermark,
                    read_to=fold.next_offset,
                    states=len(fold.states),
                    problem=self._problem(number),
                )
            )
        return found

    def problems(self) -> tuple[str, ...]:
        """Return what keeps the state from being whole, in sentences."""
        found = [
            f"Log partition {number} of {self.topic} is not read on: {why}. Share groups in it may be missing or as they were."
            for number in sorted(self._following)
            if (why := self._problem(number).rstrip("."))
        ]
        for number, fold in sorted(self.book.logs.items()):
            found += [
                f"In log partition {number} of {self.topic} {gap}; what they are about may be missing or wrong here."
                for gap in fold.gaps()
            ]
        return tuple(found)

    # ---- the topic ---------------------------------------------------------------------------------------------------

    async def _find_topic(self) -> TopicView:
        """Return the state topic as soon as there is one, and say why there is none until then."""
        while True:
            try:
                await self.cluster.look_up(list(self._topics))
            except ConnectionFailed as failure:
                self._refusal = PageRefused(502, f"Kafka cannot be reached ({failure}); it is tried on.")
            else:
                for topic in self._topics:
                    view = self.cluster.topics.get(topic)
                    if view is not None and not view.error_code:
                        self.topic, self._refusal = topic, None
                        return view
                self._refusal = await self._why_none()
            await asyncio.sleep(_LOOK_EVERY_S)

    async def _why_none(self) -> PageRefused:
        for topic in self._topics:
            view = self.cluster.topics.get(topic)
            code = 0 if view is None else view.error_code
            if remedy := acl_remedy(code, "Describe", f"topic {topic}", self.options.who()):
                return PageRefused(403, f"The state topic may not be read ({name_and_number(code)}){remedy}.")
        if not await self._has_share_groups():
            return PageRefused(
                404, "This Kafka is too old for share groups: brokers of Apache Kafka 4.1 and newer have them."
            )
        return PageRefused(
            404,
            f"This cluster has no share groups yet: there is no topic {self._topics[0]}, which brokers make when a share group is "
            "first used. It is looked for, so this page shows the first one.",
        )

    async def _has_share_groups(self) -> bool:
        for address in self.cluster.addresses.values():
            with suppress(ConnectionFailed):
                connection = await BrokerConnection.open(address, self.options, TIMEOUT_MS)
                connection.close()
                return _SHARE_GROUP_HEARTBEAT in connection.versions
        return True

    # ---- its log partitions ------------------------------------------------------------------------------------------

    async def _follow_all(self, reader: TopicReader, view: TopicView) -> None:
        """Read all log partitions until the topic is gone."""
        async with asyncio.TaskGroup() as group:
            for number in sorted(view.leader_epochs):
                self.book.begin(number, 0)
                opened = reader.open(self.topic, number, 0)
                task = group.create_task(self._follow(number, opened), name=f"holdfast-page-log-{number}")
                self._following[number] = _Following(opened, task)

    async def _follow(self, number: int, reader: PartitionReader) -> None:
        """Read a log partition until the topic is gone."""
        while True:
            try:
                await self._read(number, reader)
            except (TopicGone, TopicRecreated):
                return
            except OffsetOutOfRange as cut:
                # Pruned, or truncated as a whole: the states are those of what is there now.
                self.book.begin(number, cut.first_offset)
                reader.seek(cut.first_offset)
            except LogTruncated:
                start = max(0, reader.log_start_offset)
                self.book.begin(number, start)
                reader.seek(start)
            except (ReadFailed, UnreadableBatch) as failure:
                self._problems[number] = str(failure)
                self.book.version += 1
                await asyncio.sleep(_LOOK_EVERY_S)
                reader.seek(self.book.logs[number].next_offset)

    async def _read(self, number: int, reader: PartitionReader) -> None:
        """Fold what comes; it ends by a failure."""
        while True:
            chunk = await reader.take()
            fold, count = self.book.logs[number], 0
            for batch in chunk.batches:
                for record in decode_batch(batch, fold.next_offset):
                    self.book.take(number, record)
                    count += 1
                    if count % _RECORDS_PER_TURN == 0:
                        await asyncio.sleep(0)
                fold.next_offset = batch.last_offset + 1
            if fold.wrong_topic:
                self._problems[number] = f"it is no state topic: {fold.wrong_topic}"
            else:
                self._problems.pop(number, None)
            if fold.read_again(is_at_end=fold.next_offset >= chunk.high_watermark):
                reader.seek(fold.start)

    def _read_whole(self) -> set[int]:
        """Return the log partitions that were read to their end once, and those that cannot be."""
        for number, (reader, _) in self._following.items():
            fold = self.book.logs[number]
            if 0 <= reader.end_offset <= fold.next_offset and not (fold.is_looking and fold.is_foreign is not None):
                self._seen_whole.add(number)
        return self._seen_whole | {number for number in self._following if self._problem(number)}

    def _problem(self, number: int) -> str:
        return self._problems.get(number) or self._following[number].reader.problem

    def _leaders(self) -> dict[int, int]:
        view = self.cluster.topics.get(self.topic)
        return {} if view is None else {number: leader.broker_id for number, leader in view.leaders.items()}

    # ---- moments -----------------------------------------------------------------------------------------------------

    async def _make_moment(self) -> Moment:
        """Make the next moment: the states, and then the ends, so no state of a sound topic lies beyond them."""
        as_of_ms, version = self.now_ms(), self.book.version
        described, unknown = self.book.describe(self._leaders()), self.problems()
        ends = await self._look_up_ends(described.keys())
        # Ten thousand groups take a second of a processor; the loop goes on meanwhile.
        places = await asyncio.to_thread(_make_places, described, ends, self._places)
        self._places = {place.key: place for place in places}
        await self._look_up_times([each for place in places if (each := _oldest(place)) is not None])
        moment = await asyncio.to_thread(
            Moment,
            as_of_ms,
            places,
            self._written,
            partial(self.book.finished_by_minute, now_ms=as_of_ms),
            unknown,
            self._run_id,
        )
        self._moment, self._moment_s = moment, asyncio.get_running_loop().time()
        self._shown = version, ends, unknown
        return moment

    async def _look_up_ends(self, keys: Collection[SharePartitionKey]) -> dict[SharePartitionKey, End]:
        wanted: dict[bytes, list[int]] = {}
        for key in keys:
            wanted.setdefault(key.topic_id, []).append(key.partition)
        found = await self._ends.look_up({topic_id: set(numbers) for topic_id, numbers in wanted.items()})
        return {key: End(found[key.topic_id].name, found[key.topic_id].partitions[key.partition]) for key in keys}

    async def _look_up_times(self, oldest: list[tuple[bytes, int, int]]) -> None:
        missing = [each for each in oldest if each not in self._written][:_TIMES_PER_MOMENT]
        by_place = {(topic_id, partition): offset for topic_id, partition, offset in missing}
        if by_place:
            found = await self._times.look_up(by_place)
            self._written |= {(*place, by_place[place]): at_ms for place, at_ms in found.items()}
        if len(self._written) > _TIMES_MAX:
            self._written = {each: self._written[each] for each in oldest if each in self._written}


def _make_places(
    described: Mapping[SharePartitionKey, Described],
    ends: Mapping[SharePartitionKey, End],
    former: Mapping[SharePartitionKey, Place],
) -> list[Place]:
    """Return share partitions with their lag, those first that were tried most; the former ones where nothing changed."""
    places = []
    for key, each in described.items():
        place = former.get(key)
        if place is None or place.described is not each or place.end != ends[key]:
            place = make_place(key, each, ends[key])
        places.append(place)
    return sorted(places, key=lambda place: -place.row["delivery_count_max"])


def _oldest(place: Place) -> tuple[bytes, int, int] | None:
    """Return the topic id, the partition and the offset of the oldest record that is not finished; None: there is none."""
    offset = place.row["oldest_unfinished_offset"]
    return None if offset is None else (place.key.topic_id, place.key.partition, offset)
