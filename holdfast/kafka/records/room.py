"""The room that answers of brokers have in memory: one bound for all readers of a process that share it.

A request is made when there is room for the largest answer that it may bring. If there is none and somebody waits, partitions that
nobody waits for give up their records that were read ahead, and read them again when somebody asks. The others are on their way to
clients, and their end is waited for. Only a record batch that is larger than the largest answer goes beyond the bound: it comes whole.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from threading import get_ident
from typing import Final, Protocol

from holdfast.kafka.records.heap import Heap

#: Memory that a record batch takes beside its bytes: its numbers, its view and its place.
BATCH_BYTES: Final = 400
#: An answer has this part of the room at most, so that one which is kept alive by a few of its batches is no great part of it.
_ANSWERS: Final = 16
#: Partitions that waited for room and are looked at in one turn of the loop.
_HELD_BACK_PER_TURN: Final = 200
#: A request without room looks so often whether it is awaited by now, and whether others have ceased to wait: nobody tells it.
_LOOK_AGAIN_S: Final = 0.1
#: Parts of the room for each reader: what is read ahead twice, what is taken, and what is on its way.
_PARTS: Final = 4
#: The least that a partition is asked for: some batches as producers make them.
_PARTITION_BYTES_MIN: Final = 128 << 10


class Filled(Protocol):
    """A reader that has records at hand, maybe."""

    @property
    def is_awaited(self) -> bool:
        """Tell whether a caller waits for what comes next."""

    def rest(self) -> None:
        """Forget what is at hand, and read nothing before somebody asks."""


class Buffer(bytearray):
    """The buffer of an answer, which is counted while it is alive: each view of it keeps it so."""

    __slots__ = ("_counted_bytes", "_room")

    def __init__(self, size: int, room: "RecordRoom") -> None:
        super().__init__(size)
        self._room = room
        self._counted_bytes = size
        room.hold(size)

    def count_more(self, size: int) -> None:
        """Count what was made of it."""
        self._counted_bytes += size
        self._room.hold(size)

    @property
    def weight(self) -> float:
        """Return the memory that it takes, with what was made of it, for each of its bytes."""
        return self._counted_bytes / max(1, len(self))

    def __del__(self) -> None:
        self._room.free(self._counted_bytes)


class RecordRoom:
    """The bytes of answers that are alive, and of those that requests may bring."""

    def __init__(self, bytes_max: int) -> None:
        """Count answers on the running event loop.

        Args:
            bytes_max: of all answers.
        """
        self.held_bytes = 0
        self.answer_bytes_max: Final = bytes_max // _ANSWERS
        #: Readers that share the room.
        self.reader_count = 0
        self._bytes_max = bytes_max
        self._heap = Heap(bytes_max)
        self._promised_bytes = 0
        #: Readers that were fed, the one that was fed longest ago first.
        self._filled: dict[Filled, None] = {}
        #: Requests that wait for room.
        self._waiting: set[asyncio.Future[None]] = set()
        #: Each takes how many partitions that wait for room it may look at, and returns whether more are left.
        self._listeners: dict[Callable[[int], bool], None] = {}
        self._is_told = False
        self._loop = asyncio.get_running_loop()
        self._thread_id = get_ident()

    @property
    def is_full(self) -> bool:
        """Tell whether nothing more may be read ahead: what is left of the room is for those who wait."""
        return self.held_bytes + self._promised_bytes + self.answer_bytes_max > self._bytes_max

    def partition_bytes(self, most: int) -> int:
        """Return how much of a partition is asked for at a time: less than `most` where many readers share the room."""
        share = self._bytes_max // _PARTS // max(1, self.reader_count)
        return min(most, max(share, _PARTITION_BYTES_MIN))

    def make_buffer(self, size: int) -> Buffer:
        """Return the buffer of an answer."""
        return Buffer(size, self)

    def promise(self, size: int, *, is_awaited: bool) -> bool:
        """Promise room for an answer; returns whether there is any.

        Args:
            size: of the largest answer.
            is_awaited: somebody waits for it, so others give up what nobody waits for.
        """
        if is_awaited and not self._has_room(size):
            for reader in list(self._filled):
                if not reader.is_awaited:
                    del self._filled[reader]
                    reader.rest()
                    if self._has_room(size):
                        break
        if not self._has_room(size):
            return False
        self._promised_bytes += size
        return True

    def give_back(self, size: int) -> None:
        """End a promise: the answer has its buffer, or does not come."""
        if size:
            self._promised_bytes -= size
            self._tell_soon()

    async def wait(self) -> None:
        """Wait until something was freed, or for a moment."""
        freed: asyncio.Future[None] = self._loop.create_future()
        self._waiting.add(freed)
        try:
            await asyncio.wait((freed,), timeout=_LOOK_AGAIN_S)
        finally:
            self._waiting.discard(freed)

    def note_filled(self, reader: Filled) -> None:
        """Note that a reader was fed."""
        self._filled.pop(reader, None)
        self._filled[reader] = None

    def forget(self, reader: Filled) -> None:
        """Note that a reader has nothing at hand."""
        self._filled.pop(reader, None)

    def watch(self, on_room: Callable[[int], bool]) -> None:
        """Have a listener called when there is room for what is read ahead."""
        self._listeners[on_room] = None

    def unwatch(self, on_room: Callable[[int], bool]) -> None:
        """Call a listener no more."""
        self._listeners.pop(on_room, None)

    def hold(self, size: int) -> None:
        """Count bytes."""
        self.held_bytes += size
        self._heap.grow(self.held_bytes)

    def free(self, size: int) -> None:
        """Count bytes no more; any thread may let go of the last view."""
        self.held_bytes -= size
        self._heap.shrink(self.held_bytes)
        self._tell_soon()

    def _has_room(self, size: int) -> bool:
        taken = self.held_bytes + self._promised_bytes
        return taken + size <= self._bytes_max or not taken

    def _tell_soon(self) -> None:
        if not self._is_told:
            self._is_told = True
            # To wake the loop from another thread costs two calls of the system, and another turn of the loop.
            call = self._loop.call_soon if get_ident() == self._thread_id else self._loop.call_soon_threadsafe
            with suppress(RuntimeError):  # the loop is closed, and all readers with it
                call(self._tell)

    def _tell(self) -> None:
        self._is_told = False
        for freed in self._waiting:
            if not freed.done():
                freed.set_result(None)
        if not self.is_full:
            are_left = False
            for on_room in list(self._listeners):
                are_left |= on_room(_HELD_BACK_PER_TURN)
            if are_left:
                self._tell_soon()
