"""A request for records that is on its way, or is made again because nothing has changed."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from hashlib import blake2b
from math import inf
from typing import Final, TypeVar

from holdfast.kafka.records.fetch import TopicKey
from holdfast.kafka.records.partition_reader import PartitionReader

_DIGEST_BYTES: Final = 16
#: Partitions that are looked at before others have their turn: a millisecond.
_PER_TURN: Final = 200

_T = TypeVar("_T")


class Request:
    """A request on its way, and the partitions that it asks for."""

    def __init__(self, broker_id: int) -> None:
        #: The broker that it goes to.
        self.broker_id = broker_id
        #: Those of one partition are at one position, and share what comes.
        self.readers: dict[tuple[TopicKey, int], list[PartitionReader]] = {}
        #: Those that got records.
        self.fed: set[PartitionReader] = set()
        self.version = -1
        self.body = b""
        #: For so much of each partition it asks.
        self.partition_bytes = 0
        #: When the same answer came again, by the loop's clock: it tells of all of its partitions.
        self.answered_s = -inf
        #: The last answer, if it had nothing new and all partitions are asked for still; empty: otherwise.
        self._digest = b""
        #: `LaneOwner.changes` at that answer.
        self._changes = -1

    def all_readers(self) -> list[PartitionReader]:
        """Return its partitions, in order; one that has several readers more than once."""
        return [reader for readers in self.readers.values() for reader in readers]

    def join(self, key: tuple[TopicKey, int], reader: PartitionReader) -> bool:
        """Let a reader share the fetch of another one of its partition; return whether it can."""
        readers = self.readers[key]
        first = readers[0]
        # A reader that knows the epoch of the record before has the broker compare it, with another one's question or its own.
        if reader.position != first.position or reader.last_epoch not in (-1, first.last_epoch):
            return False
        readers.append(reader)
        return True

    def may_repeat(self, changes: int) -> bool:
        """Tell whether it had nothing new, and would be the same now.

        Args:
            changes: see `LaneOwner.changes`.
        """
        if not self._digest or (changes != self._changes and not self._is_whole()):
            return False
        self._changes = changes
        return True

    def note_nothing_new(self, answer: memoryview, changes: int) -> None:
        """Note an answer that had nothing new, for the same may come again."""
        self._digest, self._changes = _digest(answer) if self._is_whole() else b"", changes

    def _is_whole(self) -> bool:
        """Tell whether it has all of its partitions still."""
        return all(reader.in_flight is self for readers in self.readers.values() for reader in readers)

    def has_answered(self, answer: memoryview) -> bool:
        """Tell whether an answer is the one before, byte for byte, so that it has nothing new either."""
        was, self._digest = self._digest, b""
        if not was or _digest(answer) != was:
            return False
        self._digest = was
        return True


def _digest(answer: memoryview) -> bytes:
    """Return what tells an answer from others without keeping its memory."""
    return blake2b(answer, digest_size=_DIGEST_BYTES).digest()


async def in_turns(things: Iterable[_T]) -> AsyncIterator[_T]:
    """Give one after the other, and others a turn between."""
    for number, thing in enumerate(things, 1):
        yield thing
        if number % _PER_TURN == 0:
            await asyncio.sleep(0)
