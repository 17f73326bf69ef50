"""One partition as it is read: its position, what was read ahead, and why it is read no more."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from math import inf
from typing import Final, NamedTuple, Protocol

from holdfast.kafka.metadata import NO_TOPIC, TopicRef
from holdfast.kafka.records.batches import Batch
from holdfast.kafka.records.transactions import AbortedTransaction

#: Batches of as many records differ by so much at most: offsets and times take more bytes or fewer.
_EVEN_PART: Final = 128
#: A problem that lasts is told again so much later: its first line may have been left out.
_TELL_AGAIN_S: Final = 60.0


class ReadFailed(Exception):
    """A partition is read no more until its position is set again; the text says why."""


class OffsetOutOfRange(ReadFailed):
    """The log has no such offset: it begins above it, or ends below it."""

    def __init__(self, offset: int, first_offset: int, end_offset: int) -> None:
        super().__init__(f"offset {offset} is not within the log, which has offsets {first_offset} to {end_offset - 1}")
        #: Of the oldest record that is there.
        self.first_offset = first_offset
        #: The high watermark.
        self.end_offset = end_offset


class LogTruncated(ReadFailed):
    """Records that were read are not in the log any more: the leader has others from an offset on."""

    def __init__(self, offset: int, diverges_at: int) -> None:
        super().__init__(f"the log was truncated at offset {diverges_at}, below {offset}")
        #: Where the leader goes on with other records.
        self.diverges_at = diverges_at


class TopicGone(ReadFailed):
    """All brokers say that there is no such topic."""


class TopicRecreated(ReadFailed):
    """The name belongs to another topic now."""


class ReadDenied(ReadFailed):
    """Brokers do not let this client read the topic."""


class RecordsUnreadable(ReadFailed):
    """What lies at the position is no record batch that can be passed on, twice in a row."""


class Chunk(NamedTuple):
    """What one answer has of a partition."""

    #: Whole ones in order, one at least. The first may begin below the position: a broker does not cut batches.
    batches: tuple[Batch, ...]
    #: In no order, see `transactions.mark_aborted`; empty unless committed records alone are read.
    aborted: tuple[AbortedTransaction, ...]
    #: As of this answer.
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all batches."""
        return sum(len(batch.data) for batch in self.batches)


class ReadingOwner(Protocol):
    """What fetches for a partition."""

    def settle(self, reader: "PartitionReader") -> None:
        """Put a partition where its next fetch finds it, or where it waits for room."""

    def drop(self, reader: "PartitionReader") -> None:
        """Fetch a partition no more."""


def _always() -> bool:
    return True


class PartitionReader:
    """A partition that is read from a position on; `TopicReader.open` makes it.

    The attributes are for reading; `seek` sets the position.
    """

    def __init__(self, owner: ReadingOwner, topic: TopicRef, partition: int, offset: int, last_epoch: int = -1) -> None:
        """Begin at an offset; see `TopicReader.open`."""
        self.topic = topic
        self.partition = partition
        #: Of the next record to fetch. What was read ahead lies below.
        self.position = offset
        #: The leader epoch of the record below the position; -1: not known.
        self.last_epoch = last_epoch
        #: The record batch that ends below the position was read, so that none which comes may begin there.
        self.is_at_batch_end = False
        #: As the last answer said; -1: not known.
        self.high_watermark = self.last_stable_offset = self.log_start_offset = -1
        #: The end of what is read: one of the two above.
        self.end_offset = -1
        #: When the last of these answers came, by the loop's clock; -inf: none did yet.
        self._answered_s = -inf
        self._problem = ""
        #: When the caller was told of the problem, by the loop's clock.
        self._told_s = -inf
        #: Why nothing comes any more; None: it does.
        self.failure: ReadFailed | None = None
        #: Of the topic when it was first seen; zeros: not known, or the cluster has no ids.
        self.topic_id = NO_TOPIC
        #: The highest that was seen; -1: none.
        self.leader_epoch = -1
        #: The request that fetches it now; None: none does.
        self._in_flight: object | None = None
        #: It is not fetched before its leader was looked up again.
        self.is_stale = False
        #: Where the records could not be read; -1: they could.
        self.damaged_at = -1
        #: Where it waits; None: nowhere. The owner's.
        self.place: dict[PartitionReader, None] | None = None
        #: Of chunks that were not taken.
        self.ahead_bytes = 0
        #: The size of the record batch that came last.
        self._batch_bytes = 0
        #: It was as large as the one before, and no request was made since.
        self._is_even = False
        #: It gave up what it had, and is not fetched before somebody waits for it.
        self.is_resting = False
        #: It is not fetched before there is room, or somebody waits for it.
        self.waits_for_room = False
        #: Has the caller forget what it took and wants again, and returns what to `seek`; None: it wants nothing again.
        self.on_rest: Callable[[], tuple[int, int]] | None = None
        self._owner = owner
        #: After the last offset that was taken.
        self._taken_to = offset
        self._chunks: deque[Chunk] = deque()
        #: Callers of `take`; all are woken by anything new.
        self._takers: set[asyncio.Future[None]] = set()
        #: Called once by anything new; None: nobody waits so.
        self._on_more: Callable[[], None] | None = None
        self._is_wanted: Callable[[], bool] = _always

    @property
    def in_flight(self) -> object | None:
        """Return the request that fetches it now; None: none does."""
        return self._in_flight

    @in_flight.setter
    def in_flight(self, request: object | None) -> None:
        self._answered_s, self._in_flight = self.answered_s, request

    @property
    def answered_s(self) -> float:
        """Return when a broker last told of it, by the loop's clock."""
        return max(self._answered_s, getattr(self._in_flight, "answered_s", -inf))

    @answered_s.setter
    def answered_s(self, answered_s: float) -> None:
        self._answered_s = answered_s

    @property
    def problem(self) -> str:
        """Return why nothing comes now, which may pass; empty: nothing is wrong."""
        return self._problem

    @problem.setter
    def problem(self, problem: str) -> None:
        is_new, self._problem = problem != self._problem, problem
        if not problem or self._on_more is None:
            return
        now_s = asyncio.get_running_loop().time()
        if is_new or now_s - self._told_s >= _TELL_AGAIN_S:
            self._told_s = now_s
            self.let_ask()

    @property
    def is_at_end(self) -> bool:
        """Tell whether everything below the end was fetched, as far as is known."""
        return 0 <= self.end_offset <= self.position

    @property
    def is_awaited(self) -> bool:
        """Tell whether a caller waits for what comes next."""
        return bool(self._takers) or (self._on_more is not None and self._is_wanted())

    def take_nowait(self) -> Chunk | None:
        """Return what was read ahead, the oldest first; None: nothing.

        Raises:
            ReadFailed: nothing is left of what was read ahead, and nothing more will come.
        """
        if not self._chunks:
            if self.failure is not None:
                raise self.failure
            return None
        chunk = self._chunks.popleft()
        self.ahead_bytes -= chunk.size_bytes
        self._taken_to = chunk.batches[-1].last_offset + 1
        self._owner.settle(self)
        return chunk

    async def take(self) -> Chunk:
        """Return what comes next as soon as it is there; may be cancelled at any time, and nothing is lost by it.

        Raises:
            ReadFailed: nothing more will come.
        """
        while (chunk := self.take_nowait()) is None:
            taker: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._takers.add(taker)
            # It may have waited for room, which one that is awaited does not.
            self._owner.settle(self)
            try:
                await taker
            finally:
                self._takers.discard(taker)
        return chunk

    def call_when_more(self, callback: Callable[[], None], is_wanted: Callable[[], bool] = _always) -> None:
        """Have a callback called once, as soon as the caller must look again; a later call replaces the callback.

        That is when `take_nowait` has something or raises, when there is another `problem` or it has lasted for another minute, and when
        the partition is fetched no more before somebody waits for it.

        Args:
            callback: see above.
            is_wanted: tells whether somebody waits, so that it is fetched although there is no room for what is read ahead.
        """
        is_first = self._on_more is None
        self._on_more, self._is_wanted = callback, is_wanted
        if is_first or self.is_resting or self.waits_for_room:
            # It may have waited for room, which one that is awaited does not.
            self._owner.settle(self)

    def rest(self) -> None:
        """Forget what is at hand, and fetch no more before somebody asks: others need the room."""
        if self.failure is None:
            self.is_resting = True
            self.seek(*((self._taken_to, -1) if self.on_rest is None else self.on_rest()))

    def seek(self, offset: int, last_epoch: int = -1) -> None:
        """Go on at another offset, and forget what was read ahead and what failed."""
        self._chunks.clear()
        self.ahead_bytes = 0
        self.position, self.last_epoch, self.damaged_at = offset, last_epoch, -1
        self._taken_to = offset
        self.is_at_batch_end = False
        if self.failure is not None:
            self.problem = ""
        self.failure, self.in_flight = None, None
        self._owner.settle(self)

    def close(self) -> None:
        """End the reading."""
        self._chunks.clear()
        self._on_more = self.on_rest = None
        self.fail(ReadFailed("the reading was ended"))
        self._owner.drop(self)

    # What its owner calls.

    def whole_batches(self, bytes_max: int) -> int:
        """Return how much of `bytes_max` to ask for: whole batches, where all are about as large as the last two.

        A broker cuts the last batch of an answer where the bytes end, and the part of it that it sends is received for nothing.
        If the next batch is larger, it may send nothing; the request after that asks for all.
        """
        is_even, self._is_even = self._is_even, False
        size = self._batch_bytes + self._batch_bytes // _EVEN_PART
        return bytes_max // size * size or bytes_max if is_even else bytes_max

    def put(self, batches: tuple[Batch, ...], aborted: tuple[AbortedTransaction, ...]) -> None:
        """Add what an answer brought; bounds of the log were set before."""
        chunk = Chunk(batches, aborted, self.high_watermark, self.last_stable_offset, self.log_start_offset)
        self._chunks.append(chunk)
        self.ahead_bytes += chunk.size_bytes
        last = batches[-1]
        before_bytes = self._batch_bytes if len(batches) == 1 else len(batches[-2].data)
        self._batch_bytes = len(last.data)
        self._is_even = abs(self._batch_bytes - before_bytes) <= self._batch_bytes // _EVEN_PART
        self.position, self.last_epoch = last.last_offset + 1, last.leader_epoch
        self.is_at_batch_end = True
        self._wake()

    def fail(self, failure: ReadFailed) -> None:
        """End the reading until the position is set again."""
        self.failure, self._problem = failure, str(failure)
        self.in_flight = None
        self._wake()

    def let_ask(self) -> None:
        """Have the caller look again."""
        on_more, self._on_more = self._on_more, None
        if on_more is not None:
            on_more()

    def _wake(self) -> None:
        takers: Iterable[asyncio.Future[None]] = self._takers
        for taker in takers:
            if not taker.done():
                taker.set_result(None)
        self.let_ask()
