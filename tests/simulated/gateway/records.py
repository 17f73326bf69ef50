"""The log of a topic partition as its broker has it, and the readers of one process."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from holdfast.kafka.records.batches import Batch, iter_batches
from holdfast.kafka.records.partition_reader import (
    LogTruncated,
    OffsetOutOfRange,
    PartitionReader,
    ReadFailed,
    RecordsUnreadable,
)
from holdfast.kafka.records.transactions import AbortedTransaction
from tests.pure.kafka.records.samples import ABORT, COMMIT, make_batch, make_marker, with_head

if TYPE_CHECKING:
    from tests.simulated.gateway.node import GatewayNode

#: So much lies ready of a partition that nobody waits for.
AHEAD_BYTES = 1_500
_LEADER_EPOCH_AT = 12
_LAST_OFFSET_DELTA_AT = 23


class RecordLog:
    """The log of one partition."""

    def __init__(self, random: Random, start: int) -> None:
        self._random = random
        self.start = self.end = start
        self.batches: list[Batch] = []
        #: Offsets that have a record, and the transaction that it is of, if any.
        self.records: dict[int, int] = {}
        #: First and last offset of transactions that were aborted, by producer.
        self.aborted: list[tuple[int, int, int]] = []
        #: Those that are open: first offset by producer.
        self.open: dict[int, int] = {}
        #: Offsets below were lost once, and may have been used again.
        self.tainted: set[int] = set()
        #: Called once when there is something new.
        self.tailers: list[Callable[[], None]] = []
        self._producers = 100
        #: Leader epochs of its broker and where each began, as a broker keeps them.
        self._epochs: list[tuple[int, int]] = [(0, start)]

    @property
    def last_stable_offset(self) -> int:
        """Return the offset below which all transactions have ended."""
        return min(self.open.values(), default=self.end)

    def is_wanted(self, offset: int, *, is_committed: bool) -> bool:
        """Tell whether there is a record at an offset that consumers must get."""
        if offset < self.start or offset not in self.records:
            return False
        if not is_committed or self.records[offset] < 0:
            return True
        producer = self.records[offset]
        return offset < self.last_stable_offset and not any(
            producer == of and first <= offset <= last for of, first, last in self.aborted
        )

    def produce(self) -> None:
        """Append a batch: of records, of a transaction, or the end of one."""
        random = self._random
        chance = random.random()
        if self.open and chance < 0.25:
            self.end_transaction(random.choice([*self.open]), is_aborted=random.random() < 0.5)
            return
        producer = -1
        if chance < 0.4:
            if self.open and random.random() < 0.5:
                producer = random.choice([*self.open])
            else:
                self._producers += 1
                producer = self._producers
                self.open[producer] = self.end
        self.end += random.choice((0, 0, 0, 0, 1, 4))
        if producer in self.open and self.open[producer] > self.end:
            self.open[producer] = self.end
        count = random.choice((1, 1, 2, 5, 10, 20))
        holes = random.choice((0, 0, 0, 1, 3))
        values = [b"x" * random.choice((5, 40))] * count
        data = make_batch(
            self.end, values, producer=(producer, 0 if producer >= 0 else -1), is_transactional=producer >= 0
        )
        data = with_head(data, _LAST_OFFSET_DELTA_AT, count + holes - 1, 4)
        self.records.update(dict.fromkeys(range(self.end, self.end + count), producer))
        self._append(data)

    def end_transaction(self, producer: int, *, is_aborted: bool) -> None:
        """Append the marker that ends a transaction."""
        first = self.open.pop(producer)
        if is_aborted:
            self.aborted.append((producer, first, self.end))
        self._append(make_marker(self.end, (producer, 0), ABORT if is_aborted else COMMIT))

    def end_transactions(self) -> None:
        """End all transactions."""
        for producer in [*self.open]:
            self.end_transaction(producer, is_aborted=self._random.random() < 0.5)

    def _append(self, data: bytes) -> None:
        data = with_head(data, _LEADER_EPOCH_AT, self._epochs[-1][0], 4)
        [batch] = iter_batches(memoryview(data), self.end)
        self.batches.append(batch)
        self.end = batch.last_offset + 1
        self._tell()

    def _tell(self) -> None:
        tailers, self.tailers = self.tailers, []
        for tailer in tailers:
            tailer()

    def move_start(self) -> None:
        """Delete records from the start on."""
        self.start = self._random.randint(self.start, self.end)
        while self.batches and self.batches[0].last_offset < self.start:
            del self.batches[0]
        self._tell()

    def compact(self) -> None:
        """Remove a batch that is no marker, and of no transaction."""
        removable = [batch for batch in self.batches if not batch.is_transactional]
        if removable:
            gone = self._random.choice(removable)
            self.batches.remove(gone)
            for offset in range(gone.base_offset, gone.last_offset + 1):
                self.records.pop(offset, None)

    def lose_end(self) -> None:
        """Lose some batches at the end, as a broker that leads after an unclean election; the next ones have their offsets again."""
        for _ in range(self._random.randint(1, 3)):
            if not self.batches or self.batches[-1].is_transactional or self.batches[-1].base_offset < self.start:
                break
            gone = self.batches.pop()
            self.tainted.update(range(gone.base_offset, self.end))
            for offset in range(gone.base_offset, self.end):
                self.records.pop(offset, None)
            self.end = gone.base_offset
        epoch = self._epochs[-1][0] + 1
        self._epochs = [each for each in self._epochs if each[1] < self.end]
        self._epochs.append((epoch, self.end))
        self._tell()

    def _compare(self, position: int, last_epoch: int) -> None:
        """Compare as a broker what a reader read last: the end of its leader epoch lies at its position or above it.

        Raises:
            LogTruncated: it does not.
        """
        later = [start for epoch, start in self._epochs if epoch > last_epoch]
        end = later[0] if later else self.end
        known = max((epoch for epoch, _ in self._epochs if epoch <= last_epoch), default=last_epoch)
        if known < last_epoch or end < position:
            raise LogTruncated(position, end)

    def fetch(
        self, position: int, last_epoch: int, *, is_committed: bool
    ) -> tuple[tuple[Batch, ...], tuple[AbortedTransaction, ...]]:
        """Return what a broker answers.

        Raises:
            LogTruncated: the records that the reader read last are others now.
            OffsetOutOfRange: see there.
        """
        if last_epoch >= 0 and position >= self.start:
            self._compare(position, last_epoch)
        if not self.start <= position <= self.end:
            raise OffsetOutOfRange(position, self.start, self.end)
        end = self.last_stable_offset if is_committed else self.end
        found = [batch for batch in self.batches if batch.last_offset >= position and batch.last_offset < end]
        found = found[: self._random.choice((1, 2, 5, 20))]
        if not found:
            return (), ()
        first, last = found[0].base_offset, found[-1].last_offset
        aborted = [AbortedTransaction(of, at) for of, at, until in self.aborted if at <= last and until >= first]
        return tuple(found), tuple(aborted) if is_committed else ()


class SimulatedReader:
    """The readers of one process (`gateway.leading.leader.Reader`), which fetch from the logs."""

    def __init__(self, node: GatewayNode, *, is_committed: bool) -> None:
        self._node = node
        self._is_committed = is_committed
        self.open_readers: dict[PartitionReader, None] = {}

    def open(self, topic: bytes, partition: int, offset: int, last_epoch: int) -> PartitionReader:
        """Read a partition from an offset on."""
        reader = PartitionReader(self, topic, partition, offset, last_epoch)
        self.open_readers[reader] = None
        self.settle(reader)
        return reader

    def settle(self, reader: PartitionReader) -> None:
        """See `ReadingOwner.settle`."""
        is_full = (reader.is_resting or reader.ahead_bytes >= AHEAD_BYTES) and not reader.is_awaited
        if reader not in self.open_readers or reader.in_flight is not None or reader.failure is not None:
            return
        if is_full:
            reader.let_ask()
            return
        reader.is_resting = False
        reader.in_flight = token = object()
        world = self._node.world
        world.timeline.after(
            world.random_of("fetch").choice((0.0, 0.001, 0.02, 0.3)), lambda: self._answer(reader, token)
        )

    def drop(self, reader: PartitionReader) -> None:
        """See `ReadingOwner.drop`."""
        self.open_readers.pop(reader, None)

    def need_room(self) -> bool:
        """Have all that nobody waits for forget what they have; tell whether there was any."""
        resting = [reader for reader in self.open_readers if reader.failure is None and not reader.is_awaited]
        for reader in resting:
            self._node.run(partial(self._rest, reader))
        return bool(resting)

    def _rest(self, reader: PartitionReader) -> None:
        if reader in self.open_readers and not reader.is_awaited:
            reader.rest()

    def fail_one(self, random: Random) -> bool:
        """Let the reading of a partition fail."""
        readers = [reader for reader in self.open_readers if reader.failure is None]
        if not readers:
            return False
        reader = random.choice(readers)
        kinds = (LogTruncated(reader.position, reader.position), RecordsUnreadable("damaged"))
        failure = random.choice(kinds)
        self._node.run(lambda: self._fail(reader, failure))
        return True

    def _fail(self, reader: PartitionReader, failure: ReadFailed) -> None:
        if reader in self.open_readers:
            reader.fail(failure)

    def _answer(self, reader: PartitionReader, token: object) -> None:
        """Answer as the broker."""
        if reader.in_flight is not token or self._node.is_dead:
            return
        log = self._node.world.logs[reader.partition]
        try:
            batches, aborted = log.fetch(reader.position, reader.last_epoch, is_committed=self._is_committed)
        except (OffsetOutOfRange, LogTruncated) as failure:
            if isinstance(failure, LogTruncated):
                self._node.world.count("truncation told")
            self._node.run(partial(self._take_failure, reader, token, failure))
            return
        if not batches:
            log.tailers.append(lambda: self._answer(reader, token))
            return
        bounds = log.start, log.end, log.last_stable_offset
        self._node.run(lambda: self._take(reader, token, batches, aborted, bounds))

    def _take_failure(self, reader: PartitionReader, token: object, failure: ReadFailed) -> None:
        if reader.in_flight is token:
            reader.fail(failure)

    def _take(
        self,
        reader: PartitionReader,
        token: object,
        batches: tuple[Batch, ...],
        aborted: tuple[AbortedTransaction, ...],
        bounds: tuple[int, int, int],
    ) -> None:
        if reader.in_flight is not token:
            return
        reader.in_flight = None
        reader.log_start_offset, reader.high_watermark, reader.last_stable_offset = bounds
        reader.end_offset = bounds[2] if self._is_committed else bounds[1]
        reader.put(batches, aborted)
        self.settle(reader)
