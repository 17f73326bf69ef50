"""Single looks into topics: what became of an offset, and a record of a user's topic; each over connections that last for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from holdfast.kafka.cluster import Cluster
from holdfast.kafka.connection_options import ConnectionOptions
from holdfast.kafka.metadata import TopicRef
from holdfast.kafka.records.batches import Batch
from holdfast.kafka.records.lanes import ReaderConfig
from holdfast.kafka.records.partition_reader import (
    OffsetOutOfRange,
    PartitionReader,
    ReadDenied,
    ReadFailed,
    TopicGone,
)
from holdfast.kafka.records.reader import TopicReader
from holdfast.page.decoding import TopicRecord, UnreadableBatch, decode_batch
from holdfast.page.log_fold import LogFold
from holdfast.page.source import RECORD_BYTES_MAX, PageRefused, Part, RecordView
from holdfast.page.timeline import OffsetTimeline
from holdfast.records.share.keys import SharePartitionKey

_TIMEOUT_MS: Final = 5_000
#: How long one look may take in all.
_LOOK_S: Final = 15.0
_RECORD_S: Final = 5.0
#: Looks at once: each may hold some megabytes.
_LOOKS_MAX: Final = 4
_RECORDS_PER_TURN: Final = 200
#: Headers of a record that are given, and characters of the name of each.
_HEADERS_MAX: Final = 100
_HEADER_NAME_MAX: Final = 1_000


class TimelineRead:
    """The result of a look at a log partition."""

    def __init__(self, log_partition: int, key: SharePartitionKey, offset: int) -> None:
        self._named = key, offset, log_partition
        self.timeline = OffsetTimeline(*self._named)
        self.fold = LogFold(0)
        #: Why it was not read to its end; empty: it was.
        self.problem = ""

    def begin(self, start: int) -> None:
        """Forget what was found: the log is read from another start."""
        self.timeline = OffsetTimeline(*self._named)
        self.fold = LogFold(start)


class Looks:
    """Single looks into the topics of a cluster."""

    def __init__(self, options: ConnectionOptions) -> None:
        """Connect to nothing yet."""
        self._options = options
        self._turns = asyncio.Semaphore(_LOOKS_MAX)

    async def timeline(
        self, topic: str, log_partition: int, end: int, key: SharePartitionKey, offset: int
    ) -> TimelineRead:
        """Return what a log partition tells of an offset of a share partition.

        Args:
            topic: the state topic.
            log_partition: that has the share partition.
            end: offset of the log partition before which it is read.
            key: the share partition.
            offset: of the user's topic.
        """
        found = TimelineRead(log_partition, key, offset)
        async with self._turns, self._opened(topic, log_partition, 0) as reader:
            try:
                async with asyncio.timeout(_LOOK_S):
                    await _read_timeline(reader, end, found)
            except TimeoutError:
                found.problem = reader.problem or f"reading it takes longer than {_LOOK_S:.0f} s"
            except (ReadFailed, UnreadableBatch) as failure:
                found.problem = str(failure)
        return found

    async def record(self, name: str, topic_id: bytes, partition: int, offset: int, now_ms: int) -> RecordView:
        """Return a record of a user's topic.

        Raises:
            PageRefused: it is not there, or may not be read.
        """
        where = f"partition {partition} of {name}"
        async with self._turns, self._opened(topic_id, partition, offset) as reader:
            try:
                async with asyncio.timeout(_RECORD_S):
                    record = await _first_record(reader, offset)
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
    async def _opened(self, topic: TopicRef, partition: int, offset: int) -> AsyncIterator[PartitionReader]:
        cluster = Cluster(self._options, _TIMEOUT_MS, may_lack_ids=False, believes_one=True)
        readers = TopicReader(self._options, cluster, ReaderConfig(timeout_ms=_TIMEOUT_MS))
        try:
            yield readers.open(topic, partition, offset)
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


async def _read_timeline(reader: PartitionReader, end: int, found: TimelineRead) -> None:
    while True:
        fold = found.fold
        try:
            while fold.next_offset < end:
                for batch in (await reader.take()).batches:
                    await _take_batch(batch, end, found)
                    fold.next_offset = batch.last_offset + 1
                if fold.read_again(is_at_end=fold.next_offset >= end):
                    reader.seek(fold.start)
            return
        except OffsetOutOfRange as cut:
            # Its start was pruned, perhaps while it was read: it is told what is in it now.
            found.begin(cut.first_offset)
            reader.seek(cut.first_offset)


async def _take_batch(batch: Batch, end: int, found: TimelineRead) -> None:
    for count, record in enumerate(decode_batch(batch, found.fold.next_offset), start=1):
        if record.offset >= end:
            return
        folded = found.fold.take(record)
        if folded is not None:
            found.timeline.take(folded)
        if count % _RECORDS_PER_TURN == 0:
            await asyncio.sleep(0)


async def _first_record(reader: PartitionReader, offset: int) -> TopicRecord | None:
    """Return the first record from an offset on that its batch has; None: the batch has none there."""
    while True:
        # A chunk may lie below it as a whole, so that more than one is needed.
        for batch in (await reader.take()).batches:
            if batch.last_offset >= offset:
                return next(decode_batch(batch, offset), None)


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
