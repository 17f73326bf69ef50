"""The requests to one broker: one lane waits at the ends of logs, the other catches up. Each has a connection and one request in flight.

A partition is in one request at most. One that comes to its end while the waiting request is on its way cannot join that request:
the catching lane asks for it, with a short wait, until the other one is back, which then waits shortly, too, and so takes it in.

While nothing changes, the waiting lane makes the same request again and looks at the answer's bytes alone: what waits costs nearly nothing.
"""

import asyncio
from collections.abc import Collection
from itertools import islice
from typing import Final, Protocol

from holdfast.kafka.brokers.throttle import Throttle
from holdfast.kafka.cluster import Cluster
from holdfast.kafka.connection_options import ConnectionOptions
from holdfast.kafka.errors import ConnectionFailed, UnreadableAnswer
from holdfast.kafka.metadata import NO_TOPIC, TopicRef, TopicView
from holdfast.kafka.protocol import api_keys, requests
from holdfast.kafka.protocol.denials import acl_remedy
from holdfast.kafka.protocol.error_codes import ErrorCode, name_and_number
from holdfast.kafka.records.batches import Batch, DamagedRecords, OldFormat, iter_batches
from holdfast.kafka.records.config import ReaderConfig
from holdfast.kafka.records.connection import RecordConnection
from holdfast.kafka.records.fetch import (
    VERSIONS,
    FetchBounds,
    ReadPartition,
    ReadTarget,
    TopicKey,
    by_topic,
    choose_version,
    encode_fetch,
    has_ids,
    read_fetched,
)
from holdfast.kafka.records.partition_reader import (
    LogTruncated,
    OffsetOutOfRange,
    PartitionReader,
    ReadDenied,
    ReadFailed,
    RecordsUnreadable,
)
from holdfast.kafka.records.request import Request, in_turns
from holdfast.kafka.records.room import BATCH_BYTES, Buffer, RecordRoom

#: The waiting lane's part of the largest answer: its requests are on their way all the time, and bring little.
_WAITING_PART: Final = 8
#: How long the catching lane lets a broker hold a request of partitions at their ends, while the waiting lane is busy.
_NEWCOMERS_WAIT_MS: Final = 50
#: Partitions of one request that catch up: an answer has room for a few of them.
_CATCHING_MAX: Final = 64
#: Partitions of one request that wait. A request has some 30 bytes for each, and a broker looks at each when it begins to wait.
_WAITING_MAX: Final = 10_000
#: Heads of batches that are read before others have their turn: a millisecond or two.
_HEADS_PER_TURN: Final = 1_000
#: A broker that is silent for so much longer than it may hold a request is no reason to wait: its partitions may be led elsewhere.
_SILENCE_S: Final = 1.0
#: The least time between two requests of which the first brought nothing, however soon it was answered.
_PAUSE_S: Final = 0.05


class LaneOwner(Protocol):
    """What has the partitions."""

    config: ReaderConfig
    options: ConnectionOptions
    cluster: Cluster
    throttle: Throttle[int]
    room: RecordRoom
    #: Rises when a partition may have left a request that is on its way.
    changes: int

    def partition_bytes(self) -> int:
        """Return how much of a partition one request asks for."""

    def settle(self, reader: PartitionReader, *, has_room: bool = False) -> None:
        """See `ReadingOwner.settle`; with `has_room` it waits for no room, because its request was promised some."""

    def look_up(self, topics: Collection[TopicRef]) -> None:
        """Look up the leaders of some topics soon."""


class Lane:
    """Requests to one broker, one after the other, until the task is cancelled."""

    def __init__(self, owner: LaneOwner, broker_id: int, other: "Lane | None") -> None:
        """Begin; nothing is requested while no partition is ready.

        Args:
            owner: has the partitions.
            broker_id: of the broker.
            other: the waiting lane, if this is the one that catches up.
        """
        self.broker_id = broker_id
        #: Partitions for the next request, those that got nothing for longest first.
        self.ready: dict[PartitionReader, None] = {}
        #: There is something to be requested.
        self.changed = asyncio.Event()
        #: A request is on its way.
        self.is_busy = False
        #: That request is back soon, to take in partitions that the catching lane asks for: else the two would miss each other for ever.
        self.is_short = False
        #: The catching lane asks for some of the waiting ones.
        self.lacks_newcomers = False
        self._owner = owner
        self._other = other
        #: The lane that catches up, if this is the one that waits.
        self._catching: Lane | None = None
        if other is not None:
            other._catching = self
        self._connection: RecordConnection | None = None
        largest_bytes = min(owner.config.answer_bytes_max, owner.room.answer_bytes_max)
        #: Room that a request is promised.
        self._answer_bytes = largest_bytes if other is not None else -(-largest_bytes // _WAITING_PART)
        self._promised_bytes = 0
        #: There is room for what is read ahead, too.
        self._has_room = True
        #: Memory that an answer took for each of its bytes, the last time; of the first one it is a guess.
        self._weight = 2.0
        self._loop = asyncio.get_running_loop()
        self._now_s = self._loop.time
        name = f"holdfast-records-{'tail' if other is None else 'catch-up'}-{broker_id}"
        self.task = self._loop.create_task(self._run(), name=name)

    def close(self) -> None:
        """End all requests."""
        self.task.cancel()
        if self._connection is not None:
            self._connection.close()

    async def _run(self) -> None:
        owner = self._owner
        while True:
            chosen, wait_ms = self._choose()
            if not chosen:
                self.changed.clear()
                await self.changed.wait()
                continue
            if (throttled_s := owner.throttle.wait_s(self.broker_id)) > 0:
                for reader in chosen:
                    reader.problem = (
                        f"broker {self.broker_id} asks for a pause, because this client has used up its quota"
                    )
                await asyncio.sleep(throttled_s)
                continue
            self._has_room = not owner.room.is_full
            is_awaited = any(reader.is_awaited for reader in chosen)
            if not owner.room.promise(self._answer_bytes, is_awaited=is_awaited):
                if is_awaited:
                    await owner.room.wait()
                else:
                    # Held back, for here they would keep one that is awaited from its turn.
                    for reader in chosen:
                        owner.settle(reader)
                continue
            self._promised_bytes = self._answer_bytes
            request, began_s = Request(self.broker_id), self._now_s()
            is_idle = False
            silence_s = wait_ms / 1_000 + _SILENCE_S
            self._silence = self._loop.call_later(silence_s, self._look_again, request, chosen)
            try:
                is_idle = not await self._fetch(request, chosen, wait_ms)
                while is_idle and self._other is None:
                    self._silence.cancel()
                    await asyncio.sleep(began_s + _PAUSE_S - self._now_s())
                    if not self._may_repeat(request):
                        break
                    began_s = self._now_s()
                    self._silence = self._loop.call_later(silence_s, self._look_again, request, chosen)
                    is_idle = not await self._exchange(await self._connected(), request, wait_ms)
            except ConnectionFailed as failure:
                if self._connection is not None and isinstance(failure, UnreadableAnswer):
                    self._connection.close()
                self._set_aside([reader for reader in chosen if self._is_of(reader, request)], str(failure))
            except Exception as bug:  # it ends the reading of these partitions, never the lane
                context = {"message": "reading records failed", "exception": bug}
                self._loop.call_exception_handler(context)
                for reader in chosen:
                    if self._is_of(reader, request):
                        reader.fail(ReadFailed(repr(bug)))
                        owner.settle(reader)
            finally:
                self._silence.cancel()
                self._end_promise()
            self.is_busy = False
            # A broker fills an answer in the order of the request, so those that got nothing come first in the next one.
            async for reader in in_turns(sorted(request.all_readers(), key=lambda reader: reader in request.fed)):
                if reader.in_flight is request:
                    reader.in_flight = None
                    owner.settle(reader)
            if is_idle:
                await asyncio.sleep(began_s + _PAUSE_S - self._now_s())
            elif self._other is None:
                await asyncio.sleep(0)  # those who wait get their records before more are asked for

    def _choose(self) -> tuple[list[PartitionReader], int]:
        """Return the partitions of the next request, and for how long a broker may hold it."""
        tail, wait_ms = self._other, self._owner.config.wait_ms
        if tail is None:
            self.is_short = self.lacks_newcomers
            return self._choose_waiting(), min(wait_ms, _NEWCOMERS_WAIT_MS) if self.is_short else wait_ms
        chosen = list(islice(self.ready, _CATCHING_MAX))
        # A broker answers at least one whole batch of the first partition.
        chosen.sort(key=lambda reader: reader.damaged_at != reader.position)
        wait_ms = 0 if chosen else _NEWCOMERS_WAIT_MS
        newcomers = list(islice(tail.ready, _WAITING_MAX)) if tail.is_busy and not tail.is_short else []
        tail.lacks_newcomers = bool(newcomers)
        return chosen + newcomers, wait_ms

    def _choose_waiting(self) -> list[PartitionReader]:
        if len(self.ready) <= _WAITING_MAX:
            return list(self.ready)
        chosen, places = list[PartitionReader](), set[tuple[TopicRef, int]]()
        for reader in self.ready:
            places.add((reader.topic, reader.partition))  # its readers share a fetch
            if len(places) > _WAITING_MAX:
                break
            chosen.append(reader)
        return chosen

    def _may_repeat(self, request: Request) -> bool:
        """Tell whether a request that brought nothing would be the same now; then its answer has room."""
        owner, connection = self._owner, self._connection
        if self.ready or self.lacks_newcomers or self.is_short or connection is None or not connection.is_open:
            return False
        if owner.room.is_full or owner.throttle.wait_s(self.broker_id) > 0:
            return False
        is_same = request.partition_bytes == owner.partition_bytes() and request.may_repeat(owner.changes)
        if not is_same or not owner.room.promise(self._answer_bytes, is_awaited=False):
            return False
        self._promised_bytes = self._answer_bytes
        return True

    def _is_of(self, reader: PartitionReader, request: Request) -> bool:
        """Tell whether a partition still waits for a request, or for being in one of this lane."""
        return reader.in_flight is request or (reader.in_flight is None and self._is_ready(reader))

    def _is_ready(self, reader: PartitionReader) -> bool:
        """Tell whether the next request of this lane may ask for a partition."""
        place = reader.place
        return place is not None and (place is self.ready or (self._other is not None and place is self._other.ready))

    async def _fetch(self, request: Request, chosen: list[PartitionReader], wait_ms: int) -> bool:
        """Make one request and deliver what it brought; returns whether that was anything new.

        Raises:
            ConnectionFailed: there is no answer that can be read.
        """
        connection = await self._connected()
        request.version, targets = await self._aim(request, chosen, choose_version(connection.versions))
        if not targets:
            return False
        bounds = FetchBounds(wait_ms, int(self._answer_bytes / self._weight))
        request.body = encode_fetch(request.version, bounds, self._owner.config.is_committed, targets)
        return await self._exchange(connection, request, wait_ms)

    async def _exchange(self, connection: RecordConnection, request: Request, wait_ms: int) -> bool:
        """Send a request and deliver what it brought; returns whether that was anything new.

        Raises:
            ConnectionFailed: there is no answer that can be read.
        """
        self.is_busy = True
        if self.ready and self._catching is not None:
            self._catching.changed.set()
        owner, version = self._owner, request.version
        timeout_ms = wait_ms + owner.config.timeout_ms
        data = await connection.exchange(api_keys.FETCH, version, request.body, timeout_ms=timeout_ms, is_flexible=True)
        if request.has_answered(data):
            request.answered_s = self._now_s()
            return False
        answer = read_fetched(version, data)
        owner.throttle.on_answer(self.broker_id, answer.throttle_ms)
        if answer.error_code:
            why = f"broker {self.broker_id} answered {name_and_number(answer.error_code)}"
            self._set_aside([each for each in request.all_readers() if each.in_flight is request], why)
            return False
        has_news = False
        async for partition in in_turns(answer.partitions):
            for reader in request.readers.get((partition.topic, partition.partition), ()):
                if reader.in_flight is request:
                    has_news |= await self._deliver(connection, request, reader, partition)
        if has_news and isinstance(data.obj, Buffer):
            self._weight = data.obj.weight
        elif not has_news and self._other is None and not answer.throttle_ms:
            request.note_nothing_new(data, owner.changes)
        return has_news

    async def _connected(self) -> RecordConnection:
        connection = self._connection
        if connection is None or not connection.is_open:
            owner = self._owner
            address = owner.cluster.addresses.get(self.broker_id)
            if address is None:
                raise ConnectionFailed(f"broker {self.broker_id} is not known")
            connection = await RecordConnection.open(address, owner.options, owner.config.timeout_ms, self._make_buffer)
            self._connection = connection
        return connection

    def _make_buffer(self, size: int) -> bytearray:
        """Return the buffer of an answer, in the room that its request was promised."""
        self._end_promise()
        return self._owner.room.make_buffer(size)

    def _end_promise(self) -> None:
        promised, self._promised_bytes = self._promised_bytes, 0
        self._owner.room.give_back(promised)

    async def _aim(self, request: Request, chosen: list[PartitionReader], version: int) -> tuple[int, list[ReadTarget]]:
        """Return what a request asks for, and the version that can say it; partitions that were taken away are left out.

        Readers of one partition at one position share its fetch; one at another position waits for the next request.
        """
        owner, led = self._owner, list[tuple[PartitionReader, TopicView]]()
        bytes_max = request.partition_bytes = owner.partition_bytes()
        async for reader in in_turns(chosen):
            owner.settle(reader, has_room=self._has_room)  # its leader, or the room, may have changed since
            if self._is_ready(reader):
                led.append((reader, owner.cluster.topics[reader.topic]))
        if any(view.topic_id == NO_TOPIC for _, view in led):
            version = VERSIONS[0]
        targets = []
        for reader, view in led:
            if not self._is_ready(reader):  # others had a turn
                continue
            topic: TopicKey = view.topic_id if has_ids(version) else view.name
            key = topic, reader.partition
            is_first = key not in request.readers
            if is_first:
                request.readers[key] = [reader]
            elif not request.join(key, reader):
                continue
            if reader.place is not None:
                reader.place.pop(reader, None)
            reader.place, reader.in_flight = None, request
            if not is_first:
                continue
            leader_epoch = view.leaders[reader.partition].epoch
            wanted_bytes = reader.whole_batches(bytes_max)
            targets.append(ReadTarget(*key, leader_epoch, reader.position, reader.last_epoch, wanted_bytes))
        return version, by_topic(targets)

    def _look_again(self, request: Request, chosen: list[PartitionReader]) -> None:
        """Look up who leads the partitions of a request, again and again while the broker is silent."""
        self._owner.look_up({reader.topic for reader in chosen if self._is_of(reader, request)})
        self._silence = self._loop.call_later(_SILENCE_S, self._look_again, request, chosen)

    def _set_aside(self, readers: Collection[PartitionReader], why: str) -> None:
        """Fetch some partitions no more before their leaders were looked up."""
        for reader in readers:
            reader.problem, reader.is_stale = why, True
            reader.in_flight = None
            self._owner.settle(reader)
        self._owner.look_up({reader.topic for reader in readers})

    # ---- what an answer has of one partition ---------------------------------------------------------------------------

    async def _deliver(
        self, connection: RecordConnection, request: Request, reader: PartitionReader, found: ReadPartition
    ) -> bool:
        """Hand over what came; returns whether that was anything new."""
        code = found.error_code
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._compare_bounds(connection, request, reader)
        elif code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            view = self._owner.cluster.topics.get(reader.topic)
            topic = "this one" if view is None else view.name
            remedy = acl_remedy(code, "Read", f"topic {topic}", self._owner.options.who())
            reader.fail(ReadDenied(f"the broker answered {name_and_number(code)}{remedy}"))
        elif code == ErrorCode.CORRUPT_MESSAGE:
            self._note_damage(reader, "the broker cannot read it")
        elif code:
            self._set_aside([reader], f"broker {self.broker_id} answered {name_and_number(code)}")
        elif found.diverges_at is not None and reader.last_epoch < 0:
            self._set_aside([reader], "another reader's records were truncated")
        elif found.diverges_at is not None:
            reader.fail(LogTruncated(reader.position, found.diverges_at))
        else:
            return await self._deliver_records(request, reader, found)
        return True

    async def _deliver_records(self, request: Request, reader: PartitionReader, found: ReadPartition) -> bool:
        config, batches, damage = self._owner.config, list[Batch](), None
        try:
            for batch in iter_batches(found.records, reader.position):
                batches.append(batch)
                if len(batches) % _HEADS_PER_TURN == 0:
                    await asyncio.sleep(0)
        except DamagedRecords as why:  # what came before it counts
            damage = why
        if isinstance(found.records.obj, Buffer):
            found.records.obj.count_more(len(batches) * BATCH_BYTES)
        if reader.in_flight is not request:
            return False
        if batches and reader.is_at_batch_end and batches[0].base_offset < reader.position:
            # A broker that compares leader epochs says so itself, but some records have none.
            reader.fail(LogTruncated(reader.position, batches[0].base_offset))
            return True
        reader.problem, reader.answered_s = "", self._loop.time()
        reader.high_watermark, reader.last_stable_offset = found.high_watermark, found.last_stable_offset
        reader.log_start_offset = found.log_start_offset
        stable = found.last_stable_offset
        reader.end_offset = stable if config.is_committed and stable >= 0 else found.high_watermark
        if batches:
            request.fed.add(reader)
            reader.put(tuple(batches), found.aborted)
            self._owner.room.note_filled(reader)
        if isinstance(damage, OldFormat):
            reader.fail(RecordsUnreadable(str(damage)))
        elif damage is not None:
            self._note_damage(reader, str(damage))
        return bool(batches)

    def _note_damage(self, reader: PartitionReader, why: str) -> None:
        """Have a damaged batch fetched once more: it may have been damaged on its way, or in one broker's copy."""
        if reader.damaged_at == reader.position:
            reader.fail(RecordsUnreadable(f"at offset {reader.position}: {why}"))
            return
        reader.damaged_at = reader.position
        self._set_aside([reader], why)

    async def _compare_bounds(self, connection: RecordConnection, request: Request, reader: PartitionReader) -> None:
        """Tell why a broker has no such offset; it may be that the name belongs to another topic now.

        Raises:
            ConnectionFailed: the broker does not say.
        """
        cluster = self._owner.cluster
        await cluster.look_up([reader.topic])
        view = cluster.topics.get(reader.topic)
        why = f"offset {reader.position} is out of range"
        if reader.in_flight is request and view is not None and view.topic_id == reader.topic_id:
            first = await self._offset(connection, view.name, reader, requests.EARLIEST)
            end = await self._offset(connection, view.name, reader, requests.LATEST)
            if reader.in_flight is request and -1 not in (first, end) and not first <= reader.position <= end:
                reader.fail(OffsetOutOfRange(reader.position, first, end))
        if reader.in_flight is request:
            self._set_aside([reader], why)

    async def _offset(self, connection: RecordConnection, topic: str, reader: PartitionReader, which: int) -> int:
        """Return where the log of a partition begins or ends; -1: the broker does not say."""
        api_key, version = requests.LIST_OFFSETS
        body = requests.encode_list_offsets(topic, [(reader.partition, -1, which)])
        timeout_ms = self._owner.config.timeout_ms
        data = await connection.exchange(api_key, version, body, timeout_ms=timeout_ms, is_flexible=False)
        found, _ = requests.read_answer(requests.decode_offsets, bytes(data))
        error_code, offset = found.get(reader.partition, (int(ErrorCode.UNKNOWN_SERVER_ERROR), -1))
        return -1 if error_code else offset
