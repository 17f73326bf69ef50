"""One log partition of a state topic that is followed, and when its states were as they are shown."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from typing import Final

from holdfast.kafka.records.partition_reader import (
    LogTruncated,
    OffsetOutOfRange,
    PartitionReader,
    ReadFailed,
    TopicGone,
    TopicRecreated,
)
from holdfast.page.book import Book
from holdfast.page.decoding import UnreadableBatch, decode_batch
from holdfast.page.moment import Truth

#: How long one that cannot be read is left alone.
_PAUSE_S: Final = 2.0
#: Records that are folded before others have their turn: some milliseconds.
_RECORDS_PER_TURN: Final = 200
#: A log partition that was at its end so long ago is an old one: brokers answer twice a second.
_OLD_MS: Final = 3_000


class FollowedLog:
    """A log partition that is read from its start, and on."""

    def __init__(self, number: int, reader: PartitionReader, book: Book, now_ms: Callable[[], int]) -> None:
        """Have the book begin with it.

        Args:
            number: of the log partition.
            reader: reads it from offset 0.
            book: keeps what is read.
            now_ms: the time, in ms since 1970.
        """
        self.number = number
        self.reader = reader
        self._book = book
        self._now_ms = now_ms
        #: Why its reading ended, until it goes on; empty: it did not.
        self._failure = ""
        self._failed_s = -inf
        #: When the states that are shown were all that was in the log; None: never yet.
        self._whole_ms: int | None = None
        #: The loop's time at which its reading began: earlier answers were about another one.
        self._begun_s = -inf
        self._begin(0)

    async def follow(self) -> None:
        """Read until the topic is gone."""
        reader = self.reader
        while True:
            try:
                await self._read()
            except (TopicGone, TopicRecreated):
                return
            except OffsetOutOfRange as cut:
                # Pruned, or truncated as a whole: the states are those of what is there now.
                self._begin(cut.first_offset, cut.end_offset)
                reader.seek(cut.first_offset)
            except LogTruncated as cut:
                start = max(0, reader.log_start_offset)
                self._begin(start, cut.diverges_at)
                reader.seek(start)
            except (ReadFailed, UnreadableBatch) as failure:
                self._failure, self._failed_s = str(failure), asyncio.get_running_loop().time()
                await asyncio.sleep(_PAUSE_S)
                reader.seek(self._book.logs[self.number].next_offset)

    @property
    def problem(self) -> str:
        """Return why it is not read on now; empty: nothing is wrong."""
        if self._is_at_end() and self.reader.answered_s > self._failed_s:
            self._failure = ""
        if wrong_topic := self._book.logs[self.number].wrong_topic:
            return self._failure or f"it is no state topic: {wrong_topic}"
        # A failure that `follow` has not seen yet may be one after which it reads on.
        return self._failure or ("" if self.reader.failure is not None else self.reader.problem)

    @property
    def was_whole(self) -> bool:
        """Tell whether it was read to its end, once at least."""
        self._note_whole()
        return self._whole_ms is not None

    def truth(self) -> Truth:
        """Return of when its states are, and why they are old."""
        self._note_whole()
        book, reader = self._book, self.reader
        fold, shown = book.logs[self.number], book.shown(self.number)
        as_of_ms = self._whole_ms
        if shown is fold and fold.last_ms is not None and not self._is_at_end():
            # Each record that was read is a later moment of the same log.
            as_of_ms = min(self._now_ms(), max(fold.last_ms, as_of_ms or 0))
        if problem := self.problem.rstrip("."):
            return Truth(as_of_ms, f"not read on: {problem}")
        if not fold.was_whole:
            again = "" if shown is fold else " once more, for its start was pruned or it was truncated"
            end = f" of {reader.end_offset}" if reader.answered_s > self._begun_s else ""
            return Truth(as_of_ms, f"being read{again}, up to offset {fold.next_offset}{end}")
        if as_of_ms is None or self._now_ms() - as_of_ms > _OLD_MS:
            return Truth(as_of_ms, "not read to its end: its leader is silent, or the log grows faster than it is read")
        return Truth(as_of_ms)

    async def _read(self) -> None:
        """Fold what comes; it ends by a failure."""
        book, number, reader = self._book, self.number, self.reader
        while True:
            chunk = await reader.take()
            fold, count = book.logs[number], 0
            for batch in chunk.batches:
                for record in decode_batch(batch, fold.next_offset):
                    book.take(number, record)
                    count += 1
                    if count % _RECORDS_PER_TURN == 0:
                        await asyncio.sleep(0)
                fold.next_offset = batch.last_offset + 1
            self._failure = ""
            if fold.read_again(is_at_end=fold.next_offset >= chunk.high_watermark):
                reader.seek(fold.start)
            self._note_whole()

    def _begin(self, start: int, diverges_at: int | None = None) -> None:
        self._note_whole()
        fold = self._book.logs.get(self.number)
        is_truncated = fold is not None and diverges_at is not None and diverges_at < fold.next_offset
        self._book.begin(self.number, start, diverges_at if is_truncated else None)
        self._failure = ""
        self._begun_s = asyncio.get_running_loop().time()

    def _is_at_end(self) -> bool:
        """Tell whether all that its last answer knew of was folded."""
        reader, fold = self.reader, self._book.logs[self.number]
        is_looking = fold.is_looking and fold.is_foreign is not None
        return reader.answered_s > self._begun_s and 0 <= reader.end_offset <= fold.next_offset and not is_looking

    def _note_whole(self) -> None:
        if self.number in self._book.logs and self._is_at_end():
            self._book.note_whole(self.number)
            age_s = asyncio.get_running_loop().time() - self.reader.answered_s
            self._whole_ms = self._now_ms() - round(1_000 * age_s)
