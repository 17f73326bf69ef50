"""The log in memory: the twin of `kafka_log`, with all of its faults, for tests and simulations.

Nothing happens by itself. An append stays in flight until somebody makes it land, a record stays above the high watermark until somebody
commits it, and a node learns nothing until somebody tells it. `MemoryTopic.moves` lists what may happen next without any fault, in a fixed
order; the faults are methods beside. There is no clock and no chance in here, so a test decides every interleaving.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from holdfast.runtime.errors import AppendRefused
from holdfast.runtime.log_protocol import LogListener, LogRecord, ReadError
from holdfast.runtime.settings import LogIdentity


class Append:
    """A record as it was handed to a producer; known by identity, for two may hold the same bytes."""

    __slots__ = ("header", "is_reported", "key", "log", "number", "partition", "value")

    def __init__(
        self,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        header: bytes | None,
        log: "MemoryLog | None" = None,
        number: int = 0,
    ) -> None:
        self.log = log  #: of the process that handed it over; None: another program
        self.number = number  #: counts what that process handed over for this log partition
        self.partition = partition
        self.key = key
        self.value = value
        self.header = header
        self.is_reported = False  #: it was told to have failed, yet it may still land


class Move(NamedTuple):
    """Something that may happen next."""

    kind: str
    log: "MemoryLog | None"  #: whose producer or reader it is about; None: the broker's own
    partition: int  #: -1: several
    make: Callable[[], None]


class MemoryPartition:
    """One log partition as the broker holds it."""

    __slots__ = ("high_watermark", "holes", "log_start_offset", "origins", "records")

    def __init__(self) -> None:
        self.records: list[LogRecord] = []  #: by offset; those below the log start are kept for whoever checks
        self.origins: list[Append] = []  #: by offset: where the record came from
        self.holes: set[int] = set()  #: offsets that hold no record for a reader, such as a broker's control records
        self.log_start_offset = 0
        self.high_watermark = 0  #: 0 <= log start <= high watermark <= number of records

    def add(self, append: Append) -> None:
        """Put a record at the end of the log, above the high watermark."""
        self.records.append(LogRecord(len(self.records), append.key, append.value, append.header))
        self.origins.append(append)


class MemoryTopic:
    """The state topic: its log partitions and the logs that nodes opened on it.

    Args:
        partition_count: number of log partitions.
        message_bytes_max: appends of more bytes of key and value are refused.
    """

    def __init__(self, partition_count: int = 1, message_bytes_max: int = 1_048_576) -> None:
        self.message_bytes_max = message_bytes_max
        self.times_made = 0
        self.partitions: list[MemoryPartition] = []
        self.logs: list[MemoryLog] = []
        self.make(partition_count)

    @property
    def identity(self) -> LogIdentity:
        """Return what a node that starts now learns about this topic."""
        return LogIdentity("memory", self.times_made.to_bytes(16, "big"), len(self.partitions))

    def open_log(self, queue_records_max: int = 100_000) -> "MemoryLog":
        """Return the log of one more node process."""
        log = MemoryLog(self, queue_records_max)
        self.logs.append(log)
        return log

    def moves(self) -> list[Move]:
        """Return all that may happen next without a fault: first what moves the log, then what nodes are told."""
        found = self.commits()
        for log in self.logs:
            log.add_moves(found)
        return found

    def commits(self) -> list[Move]:
        """List the moves of high watermarks to the ends of their partitions."""
        return [
            Move("commit", None, index, partial(self.commit, index))
            for index, partition in enumerate(self.partitions)
            if partition.high_watermark < len(partition.records)
        ]

    def run_until_quiet(self, moves_max: int = 100_000) -> int:
        """Make every move in turn until none is left; returns how many there were.

        Raises:
            RuntimeError: the log is still not quiet after `moves_max` moves.
        """
        for count in range(moves_max):
            possible = self.moves()
            if not possible:
                return count
            possible[0].make()
        raise RuntimeError(f"the log is not quiet after {moves_max} moves")

    def commit(self, index: int, high_watermark: int | None = None) -> None:
        """Move the high watermark up to `high_watermark`, or to the end."""
        partition = self.partitions[index]
        end = len(partition.records)
        partition.high_watermark = (
            end if high_watermark is None else min(end, max(partition.high_watermark, high_watermark))
        )

    # ---- faults ----------------------------------------------------------------------------------------------------

    def make(self, partition_count: int | None = None) -> None:
        """Make the topic, again if it exists: empty partitions and another id under the same name.

        What is in flight lands in the new partitions; readers of the old ones fail with an alarm.
        """
        self.times_made += 1
        self.partitions = [MemoryPartition() for _ in range(partition_count or len(self.partitions))]

    def lose_uncommitted(self, index: int) -> list[Append]:
        """Lose what is above the high watermark, as when another broker takes over; returns whose records those were."""
        partition = self.partitions[index]
        lost = partition.origins[partition.high_watermark :]
        del partition.records[partition.high_watermark :], partition.origins[partition.high_watermark :]
        partition.holes -= set(range(partition.high_watermark, partition.high_watermark + len(lost)))
        return lost

    def repeat(self, index: int, offset: int) -> None:
        """Append the record at `offset` once more, as a producer does whose state the broker lost."""
        partition = self.partitions[index]
        partition.add(partition.origins[offset])

    def write_foreign(self, index: int, key: bytes | None, value: bytes | None, header: bytes | None) -> None:
        """Append a record of another program."""
        self.partitions[index].add(Append(index, key, value, header))

    def write_hole(self, index: int) -> None:
        """Use up an offset for something that no reader is told."""
        partition = self.partitions[index]
        partition.holes.add(len(partition.records))
        partition.add(Append(index, None, None, None))

    def cut(self, index: int, before_offset: int) -> None:
        """Delete the records below `before_offset`, at most up to the high watermark."""
        partition = self.partitions[index]
        partition.log_start_offset = max(partition.log_start_offset, min(before_offset, partition.high_watermark))


class _Reader:
    """How far one instance has been read."""

    __slots__ = ("end_offset", "from_offset", "has_caught_up", "instance", "log", "position")

    def __init__(self, instance: int, from_offset: int) -> None:
        self.instance = instance
        self.from_offset = from_offset
        self.log: MemoryPartition | None = None  #: None until reading began
        self.position = 0
        self.end_offset = 0
        self.has_caught_up = False


class MemoryLog:
    """The log as one node process sees it: its producer, its readers and its questions; implements `runtime.log_protocol.Log`."""

    def __init__(self, topic: MemoryTopic, queue_records_max: int) -> None:
        self.queue_records_max = queue_records_max
        self.has_batches = True  #: records of ours that lie together are told as such
        self.in_flight: dict[int, deque[Append]] = {}  #: by partition; they land in this order or not at all
        self.is_frozen = False  #: the process stands still: what it handed over lands, but it is told nothing
        self._topic = topic
        self._appended: dict[int, int] = {}  #: by partition: how many records were handed over
        self._listener: LogListener | None = None
        self._readers: dict[int, _Reader] = {}
        self._former: dict[int, _Reader] = {}  #: stopped, with one thing still in flight to the listener
        self._asked: deque[tuple[int, list[int]]] = deque()
        self._starts_asked: deque[tuple[int, int]] = deque()
        self._deletions: deque[tuple[int, MemoryPartition, int]] = deque()
        self._inbox: deque[Callable[[], None]] = deque()  #: known here, not yet told

    def start(self, listener: LogListener) -> None:
        """Begin to work for this listener."""
        self._listener = listener

    def crash(self) -> None:
        """Lose the process: it is told nothing any more; what it handed over may still land."""
        self._listener = None
        self._asked.clear()
        self._starts_asked.clear()

    def reads(self, partition: int) -> MemoryPartition | None:
        """Return what is being read, which after the topic was recreated is not what it has now; None before reading began."""
        reader = self._readers.get(partition)
        return None if reader is None else reader.log

    def read_offset(self, partition: int) -> int:
        """Return up to where a partition has been read; 0 where it is not."""
        reader = self._readers.get(partition)
        return 0 if reader is None else reader.position

    # ---- Log -------------------------------------------------------------------------------------------------------

    def append(self, partition: int, key: bytes, value: bytes | None, header: bytes) -> None:
        """See `Log.append`."""
        size = len(key) + len(value or b"")
        if size > self._topic.message_bytes_max:
            raise AppendRefused(f"{size} bytes are over {self._topic.message_bytes_max}", is_too_large=True)
        queue = self.in_flight.setdefault(partition, deque())
        if len(queue) >= self.queue_records_max:
            raise AppendRefused(f"{len(queue)} records wait already", is_too_large=False)
        number = self._appended[partition] = self._appended.get(partition, 0) + 1
        queue.append(Append(partition, key, value, header, self, number))

    def start_reading(self, partition: int, instance: int, from_offset: int = 0) -> None:
        """See `Log.start_reading`."""
        self.stop_reading(partition)
        self._readers[partition] = _Reader(instance, from_offset)

    def stop_reading(self, partition: int) -> None:
        """See `Log.stop_reading`."""
        reader = self._readers.pop(partition, None)
        if reader is not None:
            self._former[partition] = reader

    def query_log_start(self, partition: int, instance: int) -> None:
        """See `Log.query_log_start`."""
        self._starts_asked.append((partition, instance))

    def flush_if_all_wait(self) -> None:
        """See `Log.flush_if_all_wait`: nothing waits."""

    def query_latest_offsets(self, round_number: int, partitions: list[int]) -> None:
        """See `Log.query_latest_offsets`."""
        self._asked.append((round_number, partitions))

    def delete_records(self, partition: int, before_offset: int) -> None:
        """See `Log.delete_records`."""
        self._deletions.append((partition, self._topic.partitions[partition], before_offset))

    # ---- moves -----------------------------------------------------------------------------------------------------

    def add_moves(self, found: list[Move]) -> None:
        """Add what may happen next to the appends, questions and readers of this process."""
        for partition, queue in self.in_flight.items():
            if queue:
                found.append(Move("land", self, partition, partial(self.land, partition)))
        if self._deletions:
            found.append(Move("delete", self, self._deletions[0][0], self.delete))
        if self._listener is None:
            return
        if self._asked:
            found.append(Move("look up", self, -1, self.look_up))
        if self._starts_asked:
            found.append(Move("look up start", self, self._starts_asked[0][0], self.look_up_start))
        if self.is_frozen:
            return
        if self._inbox:
            found.append(Move("tell", self, -1, self.tell))
        for partition, reader in self._readers.items():
            self._add_reader_moves(found, partition, reader, "")
        for partition, reader in self._former.items():
            self._add_reader_moves(found, partition, reader, "late ")

    def _add_reader_moves(self, found: list[Move], partition: int, reader: _Reader, prefix: str) -> None:
        log = reader.log
        if log is None:
            found.append(Move(prefix + "begin", self, partition, partial(self._begin, partition, reader)))
        elif log is not self._topic.partitions[partition]:
            text = "the topic was recreated under its name"
            found.append(Move(prefix + "lose", self, partition, partial(self._fail, partition, reader, text, True)))
        elif reader.position < log.log_start_offset:
            text = f"the log starts at {log.log_start_offset} now"
            found.append(Move(prefix + "miss", self, partition, partial(self._fail, partition, reader, text, False)))
        else:
            if reader.position < log.high_watermark:
                found.append(Move(prefix + "read", self, partition, partial(self._read, partition, reader, None)))
            if not reader.has_caught_up and reader.position >= reader.end_offset:
                found.append(Move(prefix + "catch up", self, partition, partial(self._catch_up, partition, reader)))

    def land(self, partition: int, *, is_kept: bool = False) -> None:
        """Let the oldest append in flight land; kept in flight, it lands once more later."""
        queue = self.in_flight[partition]
        self._topic.partitions[partition].add(queue[0] if is_kept else queue.popleft())

    def look_up(self, *, is_known: bool = True) -> None:
        """Find the answer to the oldest question for latest offsets, or that the broker does not say; it waits to be told."""
        round_number, asked = self._asked.popleft()
        offsets = {index: self._topic.partitions[index].high_watermark if is_known else None for index in asked}
        self._later(lambda listener: listener.latest_offsets(round_number, offsets))

    def look_up_start(self, *, is_known: bool = True) -> None:
        """Find the answer to the oldest question for a log start, or that the broker does not say; it waits to be told."""
        partition, instance = self._starts_asked.popleft()
        offset = self._topic.partitions[partition].log_start_offset if is_known else None
        self._later(lambda listener: listener.log_start_found(partition, instance, offset))

    def delete(self, *, is_refused: bool = False) -> None:
        """Carry out the oldest DeleteRecords, or refuse it; the outcome waits to be told."""
        partition, log, before_offset = self._deletions.popleft()
        if is_refused or log is not self._topic.partitions[partition]:
            self._later(lambda listener: listener.records_deleted(partition, None, "the broker refused"))
            return
        self._topic.cut(partition, before_offset)
        log_start_offset = log.log_start_offset
        self._later(lambda listener: listener.records_deleted(partition, log_start_offset, ""))

    def tell(self) -> None:
        """Tell the listener the oldest thing that waits."""
        self._inbox.popleft()()

    def read(self, partition: int, records_max: int) -> None:
        """Tell at most `records_max` of the next records."""
        self._read(partition, self._readers[partition], records_max)

    def take(self, partition: int, instance: int, records_max: int) -> list[LogRecord]:
        """Read the next records of an instance, also of one that was stopped, and leave it to the test how they are reported."""
        readers = [self._readers.get(partition), self._former.get(partition)]
        (reader,) = [reader for reader in readers if reader is not None and reader.instance == instance]
        assert reader.log is not None
        start, reader.position = reader.position, min(reader.position + records_max, reader.log.high_watermark)
        return reader.log.records[start : reader.position]

    # ---- faults ----------------------------------------------------------------------------------------------------

    def report_failed(self, partition: int) -> None:
        """Report the oldest append in flight that was not reported yet as failed; it stays in flight."""
        self.report(next(append for append in self.in_flight[partition] if not append.is_reported))

    def report(self, append: Append) -> None:
        """Report an append as failed, wherever it is."""
        append.is_reported = True
        self._later(lambda listener: listener.append_failed(append.partition, append.header, "it timed out"))

    def lose(self, partition: int) -> Append:
        """Lose the oldest append in flight without a word; later ones may still land."""
        return self.in_flight[partition].popleft()

    def replace_producer(self) -> None:
        """Let the producer die; what it had in flight may still land, in any partition that is read."""

        def tell(listener: LogListener) -> None:
            for partition in list(self._readers):
                listener.append_failed(partition, None, "its producer was fenced")

        self._later(tell)

    def fail_reading(self, partition: int) -> None:
        """End reading with an error that passes."""
        self._fail(partition, self._readers[partition], "the broker is gone", False)

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _later(self, call: Callable[[LogListener], None]) -> None:
        def tell() -> None:
            if self._listener is not None:
                call(self._listener)

        if self._listener is not None:
            self._inbox.append(tell)

    def _told(self, partition: int, reader: _Reader) -> LogListener:
        """Of a former reader one thing is told, then it is gone."""
        if self._former.get(partition) is reader:
            del self._former[partition]
        assert self._listener is not None
        return self._listener

    def _begin(self, partition: int, reader: _Reader) -> None:
        log = reader.log = self._topic.partitions[partition]
        start, end = log.log_start_offset, log.high_watermark
        # Whoever begins behind the end is told what comes next at the end, as in `kafka_log`.
        reader.position, reader.end_offset = max(start, min(reader.from_offset, end)), end
        self._told(partition, reader).read_started(partition, reader.instance, start, end)

    def _read(self, partition: int, reader: _Reader, records_max: int | None) -> None:
        assert reader.log is not None
        end = reader.log.high_watermark
        if records_max is not None:
            end = min(end, reader.position + records_max)
        listener = self._told(partition, reader)
        while reader.position < end:
            self._read_some(partition, reader, end, listener)
            if self._readers.get(partition) is not reader:
                return

    def _read_some(self, partition: int, reader: _Reader, end: int, listener: LogListener) -> None:
        """Tell a run of our own records as such, or else what lies before the next one."""
        log, start = reader.log, reader.position
        assert log is not None
        first = log.origins[start]
        if self.has_batches and first.log is self:
            at = start + 1
            while at < end and log.origins[at].log is self and log.origins[at].number == first.number + at - start:
                at += 1
            end = at
            assert first.header is not None
            reader.position = end
            if listener.own_records_read(partition, reader.instance, start, end - start, first.header):
                return
        elif self.has_batches:
            end = next((at for at in range(start, end) if log.origins[at].log is self), end)
        reader.position = end
        records = [record for record in log.records[start:end] if record.offset not in log.holes]
        if records:
            listener.records_read(partition, reader.instance, records)
        listener.position_reached(partition, reader.instance, end)

    def _catch_up(self, partition: int, reader: _Reader) -> None:
        reader.has_caught_up = True
        self._told(partition, reader).caught_up(partition, reader.instance, reader.position)

    def _fail(self, partition: int, reader: _Reader, text: str, is_alarm: bool) -> None:
        if self._readers.get(partition) is reader:
            del self._readers[partition]
        self._told(partition, reader).read_failed(partition, reader.instance, ReadError(text, is_alarm))
