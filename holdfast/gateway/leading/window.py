"""The records that a share partition has at hand: read ahead of what was acquired, and read again where something was released.

One strand reads ahead and only ever moves forward. Released records lie below it: a second strand reads them again, and is
closed when the share partition is ahead again. A strand that would have to read records that nobody wants before those that are wanted
begins again there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Final, NamedTuple, final

from holdfast.delivery.share_partition.record_batches import find_aborted
from holdfast.delivery.share_partition.values import OffsetRange
from holdfast.gateway.leading.epochs import LeaderEpochs
from holdfast.kafka.records.batches import Batch, DamagedRecords, is_abort_marker
from holdfast.kafka.records.partition_reader import (
    Chunk,
    LogTruncated,
    OffsetOutOfRange,
    PartitionReader,
    RecordsUnreadable,
)

#: Opens a reader of the partition at an offset, with the leader epoch of the record below it; -1: not known.
OpenReader = Callable[[int, int], PartitionReader]


class Read(NamedTuple):
    """Records from an offset on, as they lie in the log."""

    #: In order; empty: nothing is at hand yet.
    batches: list[Batch]
    #: Offsets among them, and maybe others, that aborted transactions wrote; only where committed records alone are read.
    aborted: list[OffsetRange]


class _Part(NamedTuple):
    """The batches of one answer."""

    batches: tuple[Batch, ...]
    #: Found when the answer came: whether a batch was aborted may be told by one before it.
    aborted: list[OffsetRange]


@final
class Strand:
    """Batches that one reader brought, from an offset on without a gap."""

    __slots__ = ("_epochs", "_first_index", "_parts", "from_offset", "reader")

    def __init__(self, reader: PartitionReader, offset: int, epochs: LeaderEpochs) -> None:
        self.reader: Final = reader
        reader.on_rest = self._rest
        #: All that the log has from here on was brought, or will be.
        self.from_offset = offset
        self._epochs: Final = epochs
        self._parts: deque[_Part] = deque()
        #: Index of the first batch of the first part that is still wanted.
        self._first_index = 0

    def is_below(self, offset: int) -> bool:
        """Tell whether all that it has, and what it would read next, lies below an offset."""
        return self.reader.position < offset and self.reader.failure is None

    def read(self, offset: int, records_max: int, bytes_max: int) -> Read:
        """Return batches from an offset on, at least one where one is at hand, and forget those below the offset.

        Raises:
            ReadFailed: nothing is at hand, and nothing will come; or what is at hand may not be in the log any more.
        """
        if isinstance(self.reader.failure, LogTruncated):
            raise self.reader.failure
        self._forget_below(offset)
        self.from_offset = offset
        batches: list[Batch] = []
        aborted: list[OffsetRange] = []
        index, at, size = 0, self._first_index, 0
        last_wanted = offset + records_max - 1
        while True:
            if index == len(self._parts):
                chunk = None if batches and batches[-1].last_offset >= last_wanted else self._take(bool(batches))
                if chunk is None:
                    return Read(batches, aborted)
                self._epochs.learn(chunk.batches)
                self._parts.append(_Part(chunk.batches, _find_aborted(chunk)))
            part = self._parts[index]
            aborted += part.aborted
            for batch in islice(part.batches, at, None):
                if batch.last_offset < offset:
                    continue
                size += len(batch.data)
                if batches and (size > bytes_max or batches[-1].last_offset >= last_wanted):
                    return Read(batches, aborted)
                batches.append(batch)
            index, at = index + 1, 0

    def _take(self, has_some: bool) -> Chunk | None:
        """Return what was read ahead next; None: nothing, which is no failure while there is something to give."""
        if has_some and self.reader.failure is not None and not self.reader.ahead_bytes:
            return None
        return self.reader.take_nowait()

    def _rest(self) -> tuple[int, int]:
        """Forget all that is at hand, for others need the room; returns from where on it is read again, and the epoch before."""
        self._parts.clear()
        self._first_index = 0
        return self.from_offset, self._epochs.before(self.from_offset)

    def _forget_below(self, offset: int) -> None:
        parts = self._parts
        while parts and parts[0].batches[-1].last_offset < offset:
            parts.popleft()
            self._first_index = 0
        if parts:
            batches, at = parts[0].batches, self._first_index
            while batches[at].last_offset < offset:
                at += 1
            self._first_index = at


@final
class RecordWindow:
    """The records of one share partition that are at hand.

    Args:
        open_reader: opens a reader of the partition.
        on_more: called when `read`, which had nothing, has something or fails.
        is_wanted: tells whether somebody waits for that.
    """

    __slots__ = ("_again", "_ahead", "_epochs", "_is_wanted", "_on_more", "_open_reader")

    def __init__(self, open_reader: OpenReader, on_more: Callable[[], None], is_wanted: Callable[[], bool]) -> None:
        self._open_reader = open_reader
        self._on_more = on_more
        self._is_wanted = is_wanted
        #: Those of all that the strands brought.
        self._epochs: Final = LeaderEpochs()
        self._ahead: Strand | None = None
        #: Reads what was released; None: nothing is read again.
        self._again: Strand | None = None

    def read(self, offset: int, records_max: int, bytes_max: int) -> Read:
        """Return batches from an offset on; the first one may begin below it.

        Args:
            offset: of the first record that is wanted.
            records_max: of offsets; the batch that holds the last of them comes whole.
            bytes_max: of the batches; a first one that is larger comes whole.

        Raises:
            ReadFailed: nothing will come. `seek` begins again.
        """
        strand = self._strand(offset)
        if self._ahead is not None and isinstance(self._ahead.reader.failure, LogTruncated | OffsetOutOfRange):
            # The records below, which another reader may still bring, are lost or others, too.
            raise self._ahead.reader.failure
        found = strand.read(offset, records_max, bytes_max)
        if not found.batches:
            strand.reader.call_when_more(self._on_more, self._is_wanted)
        return found

    @property
    def problem(self) -> str:
        """Return why `read` had nothing, which may pass; empty: nothing is wrong."""
        strand = self._again or self._ahead
        return "" if strand is None or strand.reader.failure is not None else strand.reader.problem

    def seek(self, offset: int, diverges_at: int | None = None) -> None:
        """Forget all that is at hand, and go on at an offset.

        Args:
            offset: of the next record.
            diverges_at: the log has others from here on than were brought; None: it has not.
        """
        if diverges_at is not None:
            self._epochs.cut(diverges_at)
        self.close()
        self._ahead = self._begin(None, offset)

    def close(self) -> None:
        """Read no more."""
        for strand in (self._ahead, self._again):
            if strand is not None:
                strand.reader.close()
        self._ahead = self._again = None

    def _strand(self, offset: int) -> Strand:
        ahead, again = self._ahead, self._again
        if ahead is None or (offset >= ahead.from_offset and ahead.is_below(offset)):
            ahead = self._ahead = self._begin(ahead, offset)
        if offset >= ahead.from_offset:
            if again is not None:
                again.reader.close()
                self._again = None
            return ahead
        # Released records may lie anywhere; those between are held or done with.
        if again is None or offset < again.from_offset or again.is_below(offset):
            again = self._again = self._begin(again, offset)
        return again

    def _begin(self, before: Strand | None, offset: int) -> Strand:
        """Read from an offset on, in the place of another strand."""
        if before is not None:
            before.reader.close()
        return Strand(self._open_reader(offset, self._epochs.before(offset)), offset, self._epochs)


def _find_aborted(chunk: Chunk) -> list[OffsetRange]:
    """Return what of a chunk aborted transactions wrote.

    Raises:
        RecordsUnreadable: a marker cannot be read.
    """
    try:
        return find_aborted(chunk.batches, chunk.aborted, is_abort_marker)
    except DamagedRecords as damage:
        raise RecordsUnreadable(str(damage)) from None
