"""A reader of any topics: gives each partition to the lanes of its leader, and follows leaders that move.

Source: see the room.
"""

import asyncio
from collections import Counter
from collections.abc import Collection, Iterator
from itertools import islice
from typing import Final, NamedTuple

from holdfast.kafka.brokers.throttle import Throttle
from holdfast.kafka.cluster import Cluster
from holdfast.kafka.connection_options import ConnectionOptions
from holdfast.kafka.errors import ConnectionFailed
from holdfast.kafka.metadata import NO_TOPIC, TopicRef, TopicView
from holdfast.kafka.protocol.error_codes import ErrorCode, name_and_number
from holdfast.kafka.records.config import ReaderConfig
from holdfast.kafka.records.lanes import Lane
from holdfast.kafka.records.partition_reader import (
    PartitionReader,
    ReadDenied,
    ReadFailed,
    TopicGone,
    TopicRecreated,
)
from holdfast.kafka.records.request import Request
from holdfast.kafka.records.room import RecordRoom
from holdfast.metrics import instruments

_DEFAULTS: Final = ReaderConfig()
#: The room of a reader that shares none.
_OWN_ROOM_BYTES: Final = 64 << 20


class _Lanes(NamedTuple):
    """The two lanes of a broker."""

    tail: Lane
    catch_up: Lane

    def add(self, reader: PartitionReader) -> None:
        """Have a partition fetched."""
        lane = self.tail if reader.is_at_end else self.catch_up
        lane.ready[reader] = None
        reader.place = lane.ready
        lane.changed.set()
        if self.tail.is_busy:
            self.catch_up.changed.set()


class TopicReader:
    """Reads partitions of any topics of one cluster; see the room for how."""

    def __init__(
        self,
        options: ConnectionOptions,
        cluster: Cluster,
        config: ReaderConfig = _DEFAULTS,
        throttle_time_ms: instruments.Counter | None = None,
        room: RecordRoom | None = None,
    ) -> None:
        """Prepare; nothing is connected before the first partition is opened.

        Args:
            options: how to connect.
            cluster: who leads what; it is closed with the reader.
            config: bounds.
            throttle_time_ms: counts the pauses that brokers ask for.
            room: for answers, which other readers share; None: it has some of its own.
        """
        self.options = options
        self.cluster = cluster
        self.config = config
        now_s = asyncio.get_running_loop().time
        self.throttle: Throttle[int] = Throttle(
            config.throttle_max_ms, throttle_time_ms or instruments.Counter(), now_s
        )
        self.room = room or RecordRoom(_OWN_ROOM_BYTES)
        self.room.watch(self._on_room)
        self.changes = 0
        self._readers: dict[PartitionReader, None] = {}
        #: How many of them each topic has.
        self._counts: Counter[TopicRef] = Counter()
        self._lanes: dict[int, _Lanes] = {}
        #: Partitions that wait for room.
        self._held_back: dict[PartitionReader, None] = {}
        #: Topics to be looked up.
        self._wanted: set[TopicRef] = set()
        self._search: asyncio.Task[None] | None = None
        self._is_closed = False

    def open(self, topic: TopicRef, partition: int, offset: int, last_epoch: int = -1) -> PartitionReader:
        """Read a partition from an offset on, until the result is closed.

        Readers of one partition share a fetch where they are at one position, and are fetched for one after the other where not.

        Args:
            topic: its id, or its name where it is read by name. Then `TopicRecreated` tells that the name has another topic.
            partition: its number.
            offset: of the first record that is wanted.
            last_epoch: leader epoch of the record below it; with it, a log that was truncated below shows at once. -1: not known.
        """
        reader = PartitionReader(self, topic, partition, offset, last_epoch)
        self._readers[reader] = None
        self.room.reader_count += 1
        self._counts[topic] += 1
        view = self.cluster.topics.get(topic)
        if view is not None and not view.is_missing:  # it may have been made since
            self._compare(reader)
        self.settle(reader)
        return reader

    async def close(self) -> None:
        """End all readings and close all connections."""
        self._is_closed = True
        tasks = [lane.task for lanes in self._lanes.values() for lane in lanes]
        for lanes in self._lanes.values():
            for lane in lanes:
                lane.close()
        if self._search is not None:
            self._search.cancel()
            tasks.append(self._search)
        for reader in list(self._readers):
            reader.close()
        self.room.unwatch(self._on_room)
        if tasks:
            await asyncio.wait(tasks)
        self.cluster.close()

    # What partitions and lanes call.

    def drop(self, reader: PartitionReader) -> None:
        """Fetch a partition no more."""
        if reader not in self._readers:
            return
        self.changes += 1
        del self._readers[reader]
        self.room.reader_count -= 1
        self.room.forget(reader)
        self._take_away(reader)
        self._counts[reader.topic] -= 1
        if not self._counts[reader.topic]:
            del self._counts[reader.topic]
            self.cluster.forget(reader.topic)

    def settle(self, reader: PartitionReader, *, has_room: bool = False) -> None:
        """Put a partition where its next fetch finds it, or where it waits: for its leader, for room or for its caller.

        Args:
            reader: of the partition.
            has_room: its request was promised room.
        """
        if reader.in_flight is not None:
            return
        self.changes += 1
        self._take_away(reader)
        if self._is_closed or reader not in self._readers or reader.failure is not None or reader.is_stale:
            return
        if reader.is_resting and not reader.is_awaited:
            reader.let_ask()
            return
        if reader.ahead_bytes >= min(self.config.ahead_bytes_max, 2 * self.partition_bytes()):
            return
        reader.is_resting = reader.waits_for_room = False
        view = self.cluster.topics.get(reader.topic)
        leader = None if view is None else view.leaders.get(reader.partition)
        if leader is None or leader.broker_id not in self.cluster.addresses:
            self.look_up([reader.topic])
        elif self.room.is_full and not has_room and not reader.is_awaited:
            self._held_back[reader] = None
            reader.place, reader.waits_for_room = self._held_back, True
            reader.let_ask()
        else:
            self._lanes_of(leader.broker_id).add(reader)

    def look_up(self, topics: Collection[TopicRef]) -> None:
        """Look up the leaders of some topics soon."""
        self._wanted.update(topics)
        if self._wanted and not self._is_closed and (self._search is None or self._search.done()):
            self._search = asyncio.get_running_loop().create_task(self._look_up(), name="holdfast-records-leaders")

    def partition_bytes(self) -> int:
        """Return how much of a partition one request asks for."""
        return self.room.partition_bytes(self.config.partition_bytes_max)

    # Inside.

    def _on_room(self, count_max: int) -> bool:
        """Fetch again for some of those who waited for room; returns whether others still wait."""
        for reader in list(islice(self._held_back, count_max)):
            self.settle(reader)
        return bool(self._held_back)

    @staticmethod
    def _take_away(reader: PartitionReader) -> None:
        if reader.place is not None:
            reader.place.pop(reader, None)
            reader.place = None

    def _lanes_of(self, broker_id: int) -> _Lanes:
        lanes = self._lanes.get(broker_id)
        if lanes is None:
            tail = Lane(self, broker_id, None)
            lanes = self._lanes[broker_id] = _Lanes(tail, Lane(self, broker_id, tail))
        return lanes

    def _of_topics(self, topics: Collection[TopicRef]) -> Iterator[PartitionReader]:
        return (reader for reader in list(self._readers) if reader.topic in topics)

    async def _look_up(self) -> None:
        while self._wanted:
            if not self._wanted.isdisjoint(self.cluster.topics):  # one that was never looked up waits for nothing
                await asyncio.sleep(self.config.retry_backoff_ms / 1_000)
            topics, self._wanted = self._wanted, set()
            topics = {reader.topic for reader in self._of_topics(topics)}
            if not topics:
                continue
            try:
                await self.cluster.look_up(topics)
            except ConnectionFailed as failure:
                for reader in self._of_topics(topics):
                    reader.problem = f"Kafka cannot be reached: {failure}"
                self._wanted |= topics
                await asyncio.sleep(self.config.retry_backoff_ms / 1_000)
                continue
            for reader in self._of_topics(topics):
                reader.is_stale = False
                self._compare(reader)
                self.settle(reader)

    def _compare(self, reader: PartitionReader) -> None:
        """Compare a partition with what is known of its topic now."""
        self.changes += 1
        view = self.cluster.topics.get(reader.topic)
        if view is None:
            reader.problem = "brokers do not agree on whether there is such a topic"
            return
        failure = self._failure(reader, view)
        if failure is not None:
            reader.fail(failure)
            return
        if view.error_code:
            reader.problem = f"the brokers answered {name_and_number(view.error_code)}"
            return
        reader.topic_id = view.topic_id
        reader.leader_epoch = view.leader_epochs.get(reader.partition, reader.leader_epoch)
        leader = view.leaders.get(reader.partition)
        if leader is None:
            has_it = reader.partition in view.leader_epochs
            reader.problem = (
                "the partition has no leader" if has_it else f"the topic has no partition {reader.partition}"
            )
        request = reader.in_flight
        if isinstance(request, Request) and (leader is None or leader.broker_id != request.broker_id):
            reader.in_flight = None  # its answer may come, and is not looked at

    @staticmethod
    def _failure(reader: PartitionReader, view: TopicView) -> ReadFailed | None:
        """Return why a partition cannot be read any more."""
        if view.is_missing:
            return TopicGone("there is no such topic")
        if view.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return ReadDenied(f"the brokers answered {name_and_number(view.error_code)}")
        if view.error_code:
            return None
        if reader.topic_id not in (NO_TOPIC, view.topic_id):
            return TopicRecreated(f"the name {view.name} belongs to another topic now")
        # Without ids this alone tells it: the leader epochs of a topic begin at 0.
        if (
            view.topic_id == NO_TOPIC
            and view.leader_epochs.get(reader.partition, reader.leader_epoch) < reader.leader_epoch
        ):
            return TopicRecreated(f"the leader epochs of {view.name} began again")
        return None
