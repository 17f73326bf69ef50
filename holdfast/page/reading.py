"""Single looks into topics: what became of an offset, and a record of a user's topic; each over connections that last for it."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

from holdfast.kafka.cluster import Cluster
from holdfast.kafka.connection_options import ConnectionOptions
from holdfast.kafka.metadata import TopicRef
from holdfast.kafka.records.batches import Batch
from holdfast.kafka.records.config import ReaderConfig
from holdfast.kafka.records.partition_reader import (
    LogTruncated,
    OffsetOutOfRange,
    PartitionReader,
    ReadDenied,
    ReadFailed,
    TopicGone,
)
from holdfast.kafka.records.reader import TopicReader
from holdfast.page.decoding import TopicRecord, UnreadableBatch, decode_batch
from holdfast.page.log_fold import LogFold
from holdfast.page.past import Asked, History, PastTimeline
from holdfast.page.source import RECORD_BYTES_MAX, PageRefused, Part, RecordView
from holdfast.page.timeline import OffsetTimeline, Told, tell
from holdfast.records.share.keys import SharePartitionKey

_TIMEOUT_MS: Final = 5_000
#: How long one look may take in all.
_LOOK_S: Final = 15.0
_RECORD_S: Final = 5.0
#: Looks at once: each may hold some megabytes.
_LOOKS_MAX: Final = 4
#: How long one waits for the others.
_TURN_S: Final = 5.0
#: Timelines that are kept, so that an open page reads only what is new: each has the changes, and the state of one share partition.
_TIMELINES_MAX: Final = 16
#: A history that could not be read is left alone for so long.
_PAUSE_S: Final = 10.0
#: How long records are taken before others have their turn: one of a state with many ranges takes milliseconds.
_SLICE_S: Final = 0.005
#: Headers of a record that are given, and characters of the name of each.
_HEADERS_MAX: Final = 100
_HEADER_NAME_MAX: Final = 1_000


Rest = Callable[[], Awaitable[None]]


async def _turn_once() -> None:
    await asyncio.sleep(0)


class Wanted(NamedTuple):
    """An offset whose changes are told."""

    topic: str  #: of the log
    topic_id: bytes
    log_partition: int
    key: SharePartitionKey
    offset: int  #: of the user's topic


class TimelineRead:
    """The result of a look at a log partition, which later looks go on with."""

    def __init__(self, wanted: Wanted, reading: object) -> None:
        """Take the offset, and the reading of the log that counts; the start of the log is where it begins."""
        self.wanted = wanted
        self.reading = reading
        #: When others had their turn, by the clock of the slices: most batches of a node have few records.
        self.rested_s = 0.0
        #: Leader epoch of the last record that was read; -1: not known.
        self.last_epoch = -1
        #: Why it was not read to its end; empty: it was.
        self.problem = ""
        #: The history's answer about the time before the log, and when it was asked, by the loop's clock; None: it was not asked.
        self.past: PastTimeline | None = None
        self.past_asked_s = 0.0
        self.begin(0)

    def begin(self, start: int) -> None:
        """Forget what was found: the log is read from another start."""
        _, _, log_partition, key, offset = self.wanted
        self.timeline = OffsetTimeline(key, offset, log_partition)
        self.fold = LogFold(start, key)
        self.last_epoch = -1

    def told(self) -> Told:
        """Return the changes that both tell."""
        past = self.past
        if past is None or past.view.to_offset != self.fold.counts_from:
            return tell(self.timeline)
        return tell(past.timeline, self.timeline)

    def lacks_past(self, now_s: float) -> bool:
        """Tell whether the history can tell what the log does not; one with a problem is asked again after a pause."""
        fold, past = self.fold, self.past
        if self.problem or fold.start == 0 or fold.is_foreign is None:
            return False
        if past is None or past.view.to_offset != fold.counts_from:
            return True
        return bool(past.view.problem) and now_s - self.past_asked_s > _PAUSE_S


class _Reading(NamedTuple):
    """A timeline, and the task that reads it up to an offset."""

    read: TimelineRead
    end: int
    task: asyncio.Task[None]


class Looks:
    """Single looks into the topics of a cluster."""

    def __init__(self, options: ConnectionOptions, rest: Rest = _turn_once, history: History | None = None) -> None:
        """Connect to nothing yet.

        Args:
            options: how to connect.
            rest: lets others have their turn, after some records.
            history: of the log; None: none is named.
        """
        self._options = options
        self._history = history
        self._rest = rest
        self._turns = asyncio.Semaphore(_LOOKS_MAX)
        #: The last timelines, which all readers of an offset share.
        self._timelines: OrderedDict[Wanted, _Reading] = OrderedDict()

    async def timeline(self, wanted: Wanted, end: int, reading: object = None) -> TimelineRead:
        """Return what a log partition tells of an offset of a share partition.

        Args:
            wanted: the offset.
            end: offset of the log partition before which it is read.
            reading: what was read of the log for another one does not count; see `MomentPage.log_reading`.

        Raises:
            PageRefused: too many others look.
        """
        while True:
            known = self._timelines.get(wanted)
            if known is None or known.read.reading is not reading:
                known = self._begin(TimelineRead(wanted, reading), end)
            elif known.task.done() and (known.end < end or known.read.problem or self._lacks_past(known.read)):
                # It goes on where it ended, so that a log which takes longer than one look comes to its end.
                known = self._begin(known.read, end)
            self._timelines.move_to_end(wanted)
            try:
                # A reader that goes away takes it from no other.
                await asyncio.shield(known.task)
            except PageRefused:
                if self._timelines.get(wanted) is known:
                    del self._timelines[wanted]
                raise
            if known.end >= end or known.read.problem:
                return known.read

    async def close(self) -> None:
        """End all timelines that are read."""
        tasks = [each.task for each in self._timelines.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, read: TimelineRead, end: int) -> _Reading:
        task = asyncio.create_task(self._read_on(read, end), name="holdfast-page-timeline")
        # All readers may have gone away.
        task.add_done_callback(lambda task: task.cancelled() or task.exception())
        known = self._timelines[read.wanted] = _Reading(read, end, task)
        if len(self._timelines) > _TIMELINES_MAX:
            done = next((wanted for wanted, each in self._timelines.items() if each.task.done()), None)
            if done is not None:
                del self._timelines[done]
        return known

    def _lacks_past(self, read: TimelineRead) -> bool:
        return self._history is not None and read.lacks_past(asyncio.get_running_loop().time())

    async def _read_on(self, read: TimelineRead, end: int) -> None:
        read.problem = ""
        if read.fold.next_offset < end:
            await self._read_log(read, end)
        if self._history is not None and self._lacks_past(read):
            _, topic_id, log_partition, key, offset = read.wanted
            # Read after the log: what was pruned by then is in the history, or never was.
            asked = Asked(topic_id, key, offset, log_partition, read.fold.counts_from)
            read.past = await self._history.timeline(asked, self._rest)
            read.past_asked_s = asyncio.get_running_loop().time()
            self._pay(read.past.worked_s)

    def _pay(self, worked_s: float) -> None:
        """Pay for the time that a thread has worked, where anybody wants it."""

    async def _read_log(self, read: TimelineRead, end: int) -> None:
        topic, _, log_partition, _, _ = read.wanted
        async with self._turn(), self._opened(topic, log_partition, read.fold.next_offset, read.last_epoch) as reader:
            try:
                async with asyncio.timeout(_LOOK_S):
                    await _read_timeline(reader, end, read, self._rest)
            except TimeoutError:
                read.problem = reader.problem or f"reading it takes longer than {_LOOK_S:.0f} s"
            except (ReadFailed, UnreadableBatch) as failure:
                read.problem = str(failure)

    async def record(self, name: str, topic_id: bytes, partition: int, offset: int, now_ms: int) -> RecordView:
        """Return a record of a user's topic.

        Raises:
            PageRefused: it is not there, or may not be read.
        """
        where = f"partition {partition} of {name}"
        async with self._turn(), self._opened(topic_id, partition, offset) as reader:
            try:
                async with asyncio.timeout(_RECORD_S):
                    record = await _first_record(reader, offset, self._rest)
            except TimeoutError:
                why = reader.problem or f"no broker gave the record within {_RECORD_S:.0f} s"
                raise PageRefused(502, f"Offset {offset} of {where} cannot be read now: {why.rstrip('.')}.") from None
            except OffsetOutOfRange as beyond:
                raise outside(where, offset, beyond.first_offset, beyond.end_offset) from None
            except ReadDenied as denial:
                raise PageRefused(403, f"Records of {name} may not be read: {str(denial).rstrip('.')}.") from None
            except TopicGone:
                raise PageRefused(410, f"The topic {name} was deleted.") from None
            except (ReadFailed, UnreadableBatch) as failure:
                text = f"Offset {offset} of {where} cannot be read: {str(failure).rstrip('.')}."
                raise PageRefused(502, text) from None
        if record is None or record.offset != offset:
            raise PageRefused(
                404,
                f"There is no record at offset {offset} of {where}, though it lies within the log: it was compacted away, or is "
                "the marker of a transaction.",
            )
        return _view(record, name, partition, now_ms)

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Have one of the turns, while a block runs."""
        try:
            async with asyncio.timeout(_TURN_S):
                await self._turns.acquire()
        except TimeoutError:
            text = f"{_LOOKS_MAX} other questions are being read from the topics, and none was done within {_TURN_S:.0f} s; ask again."
            raise PageRefused(503, text) from None
        try:
            yield
        finally:
            self._turns.release()

    @asynccontextmanager
    async def _opened(
        self, topic: TopicRef, partition: int, offset: int, last_epoch: int = -1
    ) -> AsyncIterator[PartitionReader]:
        cluster = Cluster(self._options, _TIMEOUT_MS, may_lack_ids=False, believes_one=True)
        readers = TopicReader(self._options, cluster, ReaderConfig(timeout_ms=_TIMEOUT_MS))
        try:
            yield readers.open(topic, partition, offset, last_epoch)
        finally:
            await readers.close()


def outside(where: str, offset: int, first_offset: int, end_offset: int) -> PageRefused:
    """Return the refusal of an offset that the log does not have, or not any more."""
    if offset >= end_offset:
        text = (
            f"No record has offset {offset} of {where} yet: the next one to be written there gets offset {end_offset}."
        )
        return PageRefused(404, text)
    text = (
        f"Offset {offset} of {where} was deleted with what was old there: the oldest record has offset {first_offset}."
    )
    return PageRefused(410, text)


async def _read_timeline(reader: PartitionReader, end: int, found: TimelineRead, rest: Rest) -> None:
    while True:
        fold = found.fold
        try:
            while fold.next_offset < end:
                for batch in (await reader.take()).batches:
                    await _take_batch(batch, end, found, rest)
                    fold.next_offset, found.last_epoch = batch.last_offset + 1, batch.leader_epoch
                if fold.read_again(is_at_end=fold.next_offset >= end):
                    reader.seek(fold.start)
            return
        except OffsetOutOfRange as cut:
            # Its start was pruned, perhaps while it was read: it is told what is in it now.
            found.begin(cut.first_offset)
            reader.seek(cut.first_offset)
        except LogTruncated:
            found.begin(max(0, reader.log_start_offset))
            reader.seek(found.fold.start)


async def _take_batch(batch: Batch, end: int, found: TimelineRead, rest: Rest) -> None:
    for record in decode_batch(batch, found.fold.next_offset):
        if record.offset >= end:
            return
        folded = found.fold.take(record)
        if folded is not None:
            found.timeline.take(folded)
        if time.perf_counter() - found.rested_s > _SLICE_S:
            await rest()
            found.rested_s = time.perf_counter()


async def _first_record(reader: PartitionReader, offset: int, rest: Rest) -> TopicRecord | None:
    """Return the first record from an offset on that its batch has; None: the batch has none there."""
    rested_s = time.perf_counter()
    while True:
        # A chunk may lie below it as a whole, so that more than one is needed.
        for batch in (await reader.take()).batches:
            if batch.last_offset < offset:
                continue
            for record in decode_batch(batch):
                if record.offset >= offset:
                    return record
                if time.perf_counter() - rested_s > _SLICE_S:
                    await rest()
                    rested_s = time.perf_counter()
            return None


def _view(record: TopicRecord, topic: str, partition: int, now_ms: int) -> RecordView:
    room, headers = RECORD_BYTES_MAX, []
    for name, value in record.headers[:_HEADERS_MAX]:
        cut = None if value is None else _cut(value, room)
        headers.append((name[:_HEADER_NAME_MAX], cut))
        room -= min(len(name), _HEADER_NAME_MAX) + (0 if cut is None else len(cut.data))
        if room <= 0:
            break
    return RecordView(
        as_of_ms=now_ms,
        topic=topic,
        partition=partition,
        offset=record.offset,
        written_ms=record.timestamp_ms,
        key=None if record.key is None else _cut(record.key, RECORD_BYTES_MAX),
        value=None if record.value is None else _cut(record.value, RECORD_BYTES_MAX),
        headers=tuple(headers),
        headers_in_all=len(record.headers),
    )


def _cut(data: bytes, room: int) -> Part:
    return Part(data[: max(0, room)], len(data))
