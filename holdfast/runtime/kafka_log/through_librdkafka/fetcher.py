"""Follows log partitions with a consumer of librdkafka, on a thread of its own, and says on the event loop what was read.

The consumer is given its partitions by hand; it joins no group, and librdkafka only looks up who would coordinate the name that it insists
on. The thread owns the consumer. It takes what should be followed from a queue, and hands over what it reads in slices of bounded
size; it goes on when the loop has taken the slice before the last, so a slow loop makes it wait and librdkafka's own buffer is bounded.

librdkafka may read no more from a broker that was gone, for as long as the consumer lives, and says nothing. So a consumer that does not
go on although the log is known to hold more is replaced.
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from holdfast.kafka.librdkafka import DAMAGE, KafkaClients, Say
from holdfast.kafka.protocol.denials import acl_remedy
from holdfast.records.log.header import find_header
from holdfast.runtime.kafka_log.bug_reports import BugReports
from holdfast.runtime.log_protocol import LogListener, LogRecord, ReadError

#: How long the thread waits for records before it looks what else should be followed.
_POLL_S: Final = 0.02
#: How often it looks where the logs start, which every answer to a fetch says.
_LOG_START_LOOK_S: Final = 0.1
#: Handed to the loop and not taken yet.
_SLICES_MAX: Final = 2
#: A consumer without a group closes in milliseconds; a thread that takes longer ends with the process.
_CLOSE_S: Final = 5.0
#: Times the patience with a consumer, which doubles with each one that is replaced: a slow one must have time to begin.
_PATIENCE_GROWTH_MAX: Final = 16
#: In place of the log partition of a message that concerns none.
_NO_PARTITION: Final = -1


class RecordSource(NamedTuple):
    """A topic, and how it is read."""

    #: Makes the consumer.
    clients: KafkaClients
    #: Properties of the consumer.
    properties: dict[str, Any]
    topic: str
    #: Records that are reported before others have their turn.
    slice_records_max: int
    #: A consumer is replaced that for so long reads nothing of a log partition that is known to hold more.
    patience_s: float


class _Wanted(NamedTuple):
    """A log partition that should be followed from now on, or not any more."""

    partition: int
    #: Tells one following from the next; None: it is not followed any more.
    number: int | None
    offset: int = 0
    #: Leader epoch of the record below the offset; -1: it is not known.
    leader_epoch: int = -1


class _Read(NamedTuple):
    """The records that were read of one log partition."""

    partition: int
    number: int
    records: list[LogRecord]
    next_offset: int
    leader_epoch: int
    error: ReadError | None
    #: As the last fetch showed it; -1: it was not looked at.
    log_start_offset: int = -1


class _Followed:
    """A log partition as the loop sees it."""

    __slots__ = ("end_offset", "instance", "known_offset", "log_start_offset", "number", "offset")

    def __init__(self, number: int, instance: int, offset: int, end_offset: int | None) -> None:
        self.number = number
        self.instance = instance
        self.offset = offset
        #: None: it goes on for ever.
        self.end_offset = end_offset
        #: The log is known to hold what lies below.
        self.known_offset = offset if end_offset is None else end_offset
        #: As the listener knows it; -1: nothing was said of it.
        self.log_start_offset = -1


class LibrdkafkaFetcher:
    """The follower of partitions until their end, or until they are forgotten."""

    def __init__(
        self,
        purpose: str,
        source: RecordSource,
        listener: Callable[[], LogListener],
        on_end: Callable[[int, int, int, int], None],
        bugs: BugReports,
        say: Say,
    ) -> None:
        """Create a follower, whose thread and consumer begin with the first partition.

        Args:
            purpose: names the thread.
            source: the topic, and how it is read.
            listener: takes what was read.
            on_end: gets (partition, instance, next offset, leader epoch of the record below it, -1 if not known) when a
                partition was followed to its end.
            bugs: where bugs of ours go.
            say: takes what concerns no partition.
        """
        self._purpose = purpose
        self._listener = listener
        self._on_end = on_end
        self._bugs = bugs
        self._loop = asyncio.get_running_loop()
        self._followed: dict[int, _Followed] = {}
        self._numbers = 0
        self._reader = _Reader(source, self._loop, self._deliver, say)
        self._patience_s = self._wait_s = source.patience_s
        #: Offsets of those that lagged at the last look, by partition and number.
        self._lagging: dict[tuple[int, int], int] = {}
        #: The next look; None: none lagged at the last one.
        self._next_look: asyncio.TimerHandle | None = None
        self._thread: threading.Thread | None = None

    def follow(
        self, partition: int, instance: int, offset: int, end_offset: int | None = None, last_epoch: int = -1
    ) -> None:
        """Read what lies at and after an offset, and before an end if there is one, for an instance."""
        self._numbers += 1
        self._followed[partition] = _Followed(self._numbers, instance, offset, end_offset)
        self._reader.want(_Wanted(partition, self._numbers, offset, last_epoch))
        if end_offset is not None:
            self._watch()
        if self._thread is None:
            self._thread = threading.Thread(target=self._reader.run, name=f"holdfast-{self._purpose}", daemon=True)
            self._thread.start()

    def forget(self, partition: int) -> None:
        """Follow a partition no more."""
        if self._followed.pop(partition, None) is not None:
            self._reader.want(_Wanted(partition, None))

    def reach(self, partition: int, offset: int) -> None:
        """Learn that the log holds what lies below an offset; a consumer always waits for what comes next."""
        followed = self._followed.get(partition)
        if followed is not None and offset > followed.known_offset:
            followed.known_offset = offset
            if offset > followed.offset:
                self._watch()

    async def close(self) -> None:
        """End the consumer and its thread, which is waited for only so long."""
        self._followed.clear()
        if self._next_look is not None:
            self._next_look.cancel()
        self._reader.close()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, _CLOSE_S)

    # ---- on the loop -----------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Look after a while whether those that lag now have gone on."""
        if self._next_look is None:
            self._lagging = {
                (partition, followed.number): followed.offset
                for partition, followed in self._followed.items()
                if followed.offset < followed.known_offset
            }
            if self._lagging:
                self._next_look = self._loop.call_later(self._wait_s, self._look)

    def _look(self) -> None:
        lagged = self._lagging.items()
        is_stuck = any(
            followed.offset == offset
            for (partition, number), offset in lagged
            if (followed := self._followed.get(partition)) is not None and followed.number == number
        )
        if is_stuck:
            self._reader.replace()
            self._wait_s = min(2 * self._wait_s, _PATIENCE_GROWTH_MAX * self._patience_s)
        else:
            self._wait_s = self._patience_s
        self._next_look = None
        self._watch()

    def _deliver(self, reads: list[_Read]) -> None:
        """Report what was read, partition by partition; a bug over one of them fails it alone."""
        try:
            for read in reads:
                followed = self._followed.get(read.partition)
                if followed is None or followed.number != read.number:
                    continue
                try:
                    self._report(read, followed)
                except Exception as bug:
                    self._bugs.report(bug, f"reading partition {read.partition} failed")
                    self._fail(read.partition, followed, ReadError(repr(bug), is_alarm=False))
        finally:
            self._reader.taken()

    def _report(self, read: _Read, followed: _Followed) -> None:
        partition, listener = read.partition, self._listener()
        if read.log_start_offset > followed.log_start_offset and followed.end_offset is None:
            followed.log_start_offset = read.log_start_offset
            listener.log_start_moved(partition, followed.instance, read.log_start_offset)
        if read.records and self._followed.get(partition) is followed:
            listener.records_read(partition, followed.instance, read.records)
        if self._followed.get(partition) is followed and read.next_offset > followed.offset:
            followed.offset = read.next_offset
            listener.position_reached(partition, followed.instance, read.next_offset)
        if self._followed.get(partition) is not followed:
            return
        if read.error is not None:
            self._fail(partition, followed, read.error)
        elif followed.end_offset is not None and followed.offset >= followed.end_offset:
            self.forget(partition)
            self._on_end(partition, followed.instance, followed.offset, read.leader_epoch)

    def _fail(self, partition: int, followed: _Followed, error: ReadError) -> None:
        if self._followed.get(partition) is followed:
            self.forget(partition)
            self._listener().read_failed(partition, followed.instance, error)


class _Reader:
    """The part that runs on the thread."""

    def __init__(
        self,
        source: RecordSource,
        loop: asyncio.AbstractEventLoop,
        deliver: Callable[[list[_Read]], None],
        say: Say,
    ) -> None:
        self._clients, self._properties, self._topic, self._slice_max, _ = source
        self._loop = loop
        self._deliver = deliver
        self._say = say
        self._wanted: deque[_Wanted] = deque()
        self._is_closed = False
        #: Replacements of its consumer that were wanted; written on the loop alone.
        self._replacements = 0
        #: Guards what is wanted and the close, and tells of them.
        self._changed = threading.Condition()
        self._room = threading.Semaphore(_SLICES_MAX)
        #: Partitions that the consumer is given, with where to go on; used by this thread alone.
        self._places: dict[int, _Wanted] = {}
        #: Log starts that were handed over, by partition, and when they are looked at again; used by this thread alone.
        self._log_starts: dict[int, int] = {}
        self._look_s = 0.0

    # ---- called on the loop ----------------------------------------------------------------------------------------

    def want(self, wanted: _Wanted) -> None:
        """Follow a log partition soon, or not any more."""
        with self._changed:
            self._wanted.append(wanted)
            self._changed.notify()

    def replace(self) -> None:
        """Read on with another consumer soon."""
        self._replacements += 1

    def taken(self) -> None:
        """Learn that a slice was taken."""
        self._room.release()

    def close(self) -> None:
        """End soon."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._room.release()

    # ---- the thread ------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Read until it is closed; where credentials are renewed or a consumer is stuck, with another one."""
        while not self._is_closed:
            made_as = self._clients.renewals, self._replacements
            try:
                consumer = self._clients.consumer(f"holdfast-{self._topic}", self._properties)
            except KafkaException as refusal:
                self._fail_all(f"librdkafka makes no consumer: {refusal.args[0].str()}")
                continue
            try:
                self._assign(consumer, list(self._places.values()))
                while (self._clients.renewals, self._replacements) == made_as and self._await_work():
                    self._read(consumer)
            except Exception as bug:  # its log partitions load again, with another consumer
                self._fail_all(f"reading through librdkafka failed: {bug!r}")
            finally:
                consumer.close()

    def _await_work(self) -> bool:
        """Wait while nothing is followed, or until it is closed; returns whether there is work."""
        with self._changed:
            while not (self._is_closed or self._wanted or self._places):
                self._changed.wait()
            return not self._is_closed

    def _read(self, consumer: Consumer) -> None:
        while self._wanted:
            self._change(consumer, self._wanted.popleft())
        first = consumer.poll(_POLL_S) if self._places else None
        if time.monotonic() >= self._look_s:
            self._look_s = time.monotonic() + _LOG_START_LOOK_S
            self._hand_over(self._find_log_starts(consumer))
        if first is None:
            return
        rest = consumer.consume(self._slice_max - 1, 0) if self._slice_max > 1 else []
        self._hand_over(self._sort([first, *rest]))

    def _change(self, consumer: Consumer, wanted: _Wanted) -> None:
        self._log_starts.pop(wanted.partition, None)
        if self._places.pop(wanted.partition, None) is not None:
            consumer.incremental_unassign([TopicPartition(self._topic, wanted.partition)])
        if wanted.number is not None:
            self._places[wanted.partition] = wanted
            self._assign(consumer, [wanted])

    def _assign(self, consumer: Consumer, places: list[_Wanted]) -> None:
        if places:
            consumer.incremental_assign([self._place(*place) for place in places])

    def _place(self, partition: int, _: int | None, offset: int, leader_epoch: int) -> TopicPartition:
        if leader_epoch < 0:
            return TopicPartition(self._topic, partition, offset)
        return TopicPartition(self._topic, partition, offset, leader_epoch=leader_epoch)

    def _sort(self, messages: list[Message]) -> list[_Read]:
        """Return what came by log partition, and keep where each goes on."""
        records: dict[int, list[LogRecord]] = {}
        errors: dict[int, ReadError] = {}
        for message in messages:
            partition, error = message.partition(), message.error()
            place = self._places.get(_NO_PARTITION if partition is None else partition)
            if place is None:
                if error is not None:
                    self._say(logging.WARNING, "ERROR", self._topic, error.str())
                continue
            if place.partition in errors:
                continue  # librdkafka goes on after what it could not read, and we do not
            records.setdefault(place.partition, [])
            offset = message.offset() or 0
            if error is None:
                key, value, epoch = message.key(), message.value(), message.leader_epoch()
                assert not isinstance(key, str)
                assert not isinstance(value, str)
                records[place.partition].append(LogRecord(offset, key, value, find_header(message.headers())))
                self._places[place.partition] = place._replace(
                    offset=offset + 1, leader_epoch=-1 if epoch is None else epoch
                )
            elif error.code() == KafkaError._PARTITION_EOF:
                self._places[place.partition] = place._replace(offset=max(place.offset, offset))
            else:
                errors[place.partition] = self._explain(error, place.offset)
        reads = []
        for partition, found in records.items():
            place = self._places[partition]
            assert place.number is not None
            reads.append(_Read(partition, place.number, found, place.offset, place.leader_epoch, errors.get(partition)))
        return reads

    def _find_log_starts(self, consumer: Consumer) -> list[_Read]:
        """Return where logs start now, as the last fetch of each showed it, where that was not handed over."""
        moved = []
        for place in self._places.values():
            bounds = consumer.get_watermark_offsets(TopicPartition(self._topic, place.partition), cached=True)
            if bounds is None or place.number is None or bounds[0] <= self._log_starts.get(place.partition, -1):
                continue
            self._log_starts[place.partition] = bounds[0]
            moved.append(_Read(place.partition, place.number, [], place.offset, place.leader_epoch, None, bounds[0]))
        return moved

    def _explain(self, error: KafkaError, offset: int) -> ReadError:
        code, text = error.code(), error.str()
        if code in DAMAGE:
            return ReadError(f"the record batch at offset {offset} is damaged: {text}", is_alarm=True)
        if code == KafkaError._AUTO_OFFSET_RESET:
            if "truncat" in text:
                return ReadError(f"the log was truncated below offset {offset}", is_alarm=True)
            # Pruned or lost: the next load compares the log's bounds with what was committed, and knows.
            return ReadError(f"offset {offset} is out of range", is_alarm=False)
        remedy = acl_remedy(code, "Read", f"topic {self._topic}", self._clients.principal)
        return ReadError(f"the broker answered {error.name()}: {text}{remedy}", is_alarm=False)

    def _hand_over(self, reads: list[_Read]) -> None:
        if not reads:
            return
        self._room.acquire()  # until the loop has taken a slice, or this is closed
        if not self._is_closed:
            try:
                self._loop.call_soon_threadsafe(self._deliver, reads)
            except RuntimeError:  # the loop has ended without us
                self._is_closed = True

    def _fail_all(self, why: str) -> None:
        """End the reading of all that is followed, which loads again."""
        with self._changed:
            while self._wanted:
                wanted = self._wanted.popleft()
                self._places[wanted.partition] = wanted
        error = ReadError(why, is_alarm=False)
        places, self._places = self._places, {}
        self._hand_over(
            [
                _Read(place.partition, place.number, [], place.offset, -1, error)
                for place in places.values()
                if place.number is not None
            ]
        )
        with self._changed:
            if not self._is_closed and not self._wanted:
                self._changed.wait(1.0)
