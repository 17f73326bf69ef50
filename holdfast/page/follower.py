"""A state topic followed from its start, and the moments that are made of it; it joins no group, commits and writes nothing.

Each log partition is read by a task of its own. One whose start was pruned before it was read is read from its new start: what was
pruned is in what is left. Brokers are asked for the ends of topics only when somebody looks, at most once a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from holdfast.kafka.brokers.broker_connection import BrokerConnection
from holdfast.kafka.cluster import Cluster
from holdfast.kafka.connection_options import ConnectionOptions
from holdfast.kafka.errors import ConnectionFailed
from holdfast.kafka.metadata import TopicView
from holdfast.kafka.protocol.denials import acl_remedy
from holdfast.kafka.protocol.error_codes import name_and_number
from holdfast.kafka.records.config import ReaderConfig
from holdfast.kafka.records.reader import TopicReader
from holdfast.kafka.topics.record_times import RecordTimes
from holdfast.kafka.topics.topic_ends import TopicEndSource
from holdfast.page.ages import Ages, Wanted
from holdfast.page.book import Book, Described
from holdfast.page.followed_log import FollowedLog
from holdfast.page.moment import End, Moment, Place, Truth, make_place, tell_of_old, true_at_ms
from holdfast.page.source import LogPartitionView, PageRefused, some_of
from holdfast.page.topic_names import TopicNames
from holdfast.records.share.keys import SharePartitionKey

#: How long brokers may take for one look-up.
TIMEOUT_MS: Final = 5_000
#: A moment is shown for so long before another is made.
_MOMENT_S: Final = 1.0
#: And for so long while that is being made: ten thousand groups take a second, and silent brokers some.
_SHOWN_S: Final = 5.0
#: How often it is looked for a state topic where there is none.
_LOOK_EVERY_S: Final = 2.0
#: How often it is looked whether the state topic has more partitions, which only its operator gives it.
_PARTITIONS_EVERY_S: Final = 10.0
_MINUTE_MS: Final = 60_000
#: ShareGroupHeartbeat, which brokers speak that have share groups.
_SHARE_GROUP_HEARTBEAT: Final = 76
_STARTING: Final = (
    "The state topic {topic} is being read, {read} of {all} log partitions to their end; look again in some seconds."
)


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
        self._logs: dict[int, FollowedLog] = {}
        #: All log partitions were read to their ends once, but those that could not be.
        self._has_begun = False
        self._queries = Cluster(options, TIMEOUT_MS, may_lack_ids=False, believes_one=True)
        self._ends = TopicEndSource(self._queries, timeout_ms=TIMEOUT_MS)
        self._ages = Ages(RecordTimes(self._queries, timeout_ms=TIMEOUT_MS))
        self._names = TopicNames()
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
                self._logs.clear()
                await reader.close()
            self.cluster = Cluster(self.options, TIMEOUT_MS, may_lack_ids=False, believes_one=True)
            self.book.clear()
            self._has_begun, self._moment = False, None

    async def moment(self) -> Moment:
        """Return what is known now, or was some seconds ago where the next moment is still being made.

        Raises:
            PageRefused: there is nothing to show, and why.
        """
        making = self._next_moment()
        now_s = asyncio.get_running_loop().time()
        if self._moment is not None and (making is None or now_s - self._moment_s < _SHOWN_S):
            return self._moment
        assert making is not None
        return await asyncio.shield(making)

    def _next_moment(self) -> asyncio.Task[Moment] | None:
        """Return what makes the next moment, None: it is not time for that.

        Raises:
            PageRefused: there is nothing to show, and why.
        """
        if self._refusal is not None:
            raise self._refusal
        if not self._logs:
            raise PageRefused(503, "The state topic is looked for; look again in some seconds.")
        if not self._has_begun:
            ready = sum(log.was_whole or bool(log.problem) for log in self._logs.values())
            if ready < len(self._logs):
                raise PageRefused(503, _STARTING.format(topic=self.topic, read=ready, all=len(self._logs)))
            self._has_begun = True
        now_s = asyncio.get_running_loop().time()
        if self._moment is not None and now_s - self._moment_s < _MOMENT_S:
            return None
        if self._making is None or self._making.done():
            self._making = asyncio.create_task(self._make_moment(), name="holdfast-page-moment")
        return self._making

    async def changed(self) -> AsyncIterator[None]:
        """Yield when a moment is another one than the last, at most once a second."""
        shown: object = None
        while True:
            now: object
            try:
                making = self._next_moment()
                if making is not None:
                    await asyncio.shield(making)
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
        for number, log in sorted(self._logs.items()):
            reader = log.reader
            found.append(
                LogPartitionView(
                    partition=number,
                    leader=leaders.get(number),
                    start_offset=None if reader.log_start_offset < 0 else reader.log_start_offset,
                    end_offset=None if reader.high_watermark < 0 else reader.high_watermark,
                    read_to=self.book.logs[number].next_offset,
                    states=len(self.book.shown(number).states),
                    problem=log.problem,
                    as_of_ms=log.truth().as_of_ms,
                )
            )
        return found

    def problems(self) -> tuple[str, ...]:
        """Return what keeps the state from being whole, in sentences."""
        gaps = [
            f"In log partition {number} of {self.topic} {gap}; what they are about may be missing or wrong here."
            for number, fold in sorted(self.book.logs.items())
            for gap in fold.gaps()
        ]
        return (*tell_of_old(self.topic, self.truths()), *some_of(gaps))

    def truths(self) -> dict[int, Truth]:
        """Return of when the states of each log partition are."""
        return {number: log.truth() for number, log in sorted(self._logs.items())}

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
        if len(self._topics) == 1:
            text = f"There is no topic {self._topics[0]}; name a state topic of this cluster by --topic, or leave that out."
            return PageRefused(404, text)
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
        """Read all log partitions until the topic is gone, and those that come later, too."""
        numbers, tasks = set(view.leader_epochs), list[asyncio.Task[None]]()
        async with asyncio.TaskGroup() as group:
            while True:
                for number in sorted(numbers - self._logs.keys()):
                    log = FollowedLog(number, reader.open(self.topic, number, 0), self.book, self.now_ms)
                    self._logs[number] = log
                    tasks.append(group.create_task(log.follow(), name=f"holdfast-page-log-{number}"))
                done, _ = await asyncio.wait(tasks, timeout=_PARTITIONS_EVERY_S, return_when=asyncio.FIRST_COMPLETED)
                if done:
                    return
                with suppress(ConnectionFailed):
                    await self._queries.look_up([self.topic])
                    now = self._queries.topics.get(self.topic)
                    if now is not None and now.topic_id == view.topic_id:
                        numbers |= now.leader_epochs.keys()

    def _leaders(self) -> dict[int, int]:
        view = self.cluster.topics.get(self.topic)
        return {} if view is None else {number: leader.broker_id for number, leader in view.leaders.items()}

    # ---- moments -----------------------------------------------------------------------------------------------------

    async def _make_moment(self) -> Moment:
        """Make the next moment: the states, and then the ends, so no state of a sound topic lies beyond them."""
        truths, version = self.truths(), self.book.version
        described, unknown = self.book.describe(self._leaders()), self.problems()
        as_of_ms = true_at_ms(truths.values(), self.now_ms())
        ends = await self._look_up_ends(described.keys())
        # Ten thousand groups take a second of a processor; the loop goes on meanwhile.
        places = await asyncio.to_thread(_make_places, described, ends, self._places)
        self._places = {place.key: place for place in places}
        oldest = {each: place for place in places if (each := _oldest(place)) is not None}
        await self._ages.look_up([each for each, place in oldest.items() if not place.end.ends.problem])
        # A time that was found is that of the record also while its partition cannot be asked.
        written = {each: at_ms for each in oldest if (at_ms := self._ages.written.get(each)) is not None}
        moment = await asyncio.to_thread(
            Moment,
            as_of_ms,
            places,
            written,
            partial(self.book.finished_by_minute, now_ms=as_of_ms),
            unknown,
            self._run_id,
            truths,
        )
        self._moment, self._moment_s = moment, asyncio.get_running_loop().time()
        # A sparkline goes on by the minute, though nothing happens.
        self._shown = version, ends, unknown, written, as_of_ms // _MINUTE_MS
        return moment

    async def _look_up_ends(self, keys: Collection[SharePartitionKey]) -> dict[SharePartitionKey, End]:
        wanted: dict[bytes, list[int]] = {}
        for key in keys:
            wanted.setdefault(key.topic_id, []).append(key.partition)
        found = await self._ends.look_up({topic_id: set(numbers) for topic_id, numbers in wanted.items()})
        self._names.take(found)
        return {key: End(self._names.find(key.topic_id), found[key.topic_id].partitions[key.partition]) for key in keys}


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


def _oldest(place: Place) -> Wanted | None:
    """Return the oldest record that is not finished; None: there is none."""
    offset = place.row["oldest_unfinished_offset"]
    return None if offset is None else (place.key.topic_id, place.key.partition, offset)
