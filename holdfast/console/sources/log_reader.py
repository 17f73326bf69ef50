"""Any state topic read as a list of records, with the one rule of who counts applied to each.

It reads what is there now and changes nothing: no consumer group is joined, no offset is committed.
A log partition is read from its start, whatever part of it is wanted, because whether a record counts depends on all
before it. Where the log start fell back behind a cut, nothing below the cut counts.
Where the first record has no `hf` header, the topic is a broker's own, and every record counts.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from threading import Event
from typing import Any, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Message

from holdfast.console.outcomes import Exit, Failure
from holdfast.console.sources.kafka_reader import KafkaReader
from holdfast.records.checkpoint import Checkpoint, decode_checkpoint, is_checkpoint_key
from holdfast.records.codecs.codec import Kind, decode_record, peek_kind
from holdfast.records.errors import RecordError
from holdfast.records.fencing import START, Position, step
from holdfast.records.header import decode_header, find_header
from holdfast.records.keys import SharePartitionKey
from holdfast.records.log_start import Beginning
from holdfast.records.single_object import MARKER
from holdfast.records.values import Noop, Snapshot, Update


class LogEntry(NamedTuple):
    """One record of a state topic."""

    partition: int  #: the log partition
    offset: int
    timestamp_ms: int
    kind: str  #: snapshot, update, tombstone, checkpoint, noop, unknown, or undecodable
    codec: str  #: avro or kafka; empty where there is no telling
    counts: bool  #: False: void, it changes nothing for anyone
    owner_epoch: int | None  #: None: it has no header
    sequence: int | None
    size_bytes: int  #: key and value
    key: SharePartitionKey | None  #: None: not about a share partition, or undecodable
    value: Snapshot | Update | Checkpoint | None
    problem: str | None  #: why it could not be decoded


class Wanted(NamedTuple):
    """Which part of a state topic to read."""

    partitions: Collection[int] = ()  #: none means all
    from_offset: int = 0
    from_time_ms: int = 0
    entries_max: int | None = None


class Reading:
    """The rule of who counts, on its way through one log partition."""

    def __init__(self) -> None:
        self.position: Position = START
        self.next_offset = OFFSET_BEGINNING
        self.is_foreign: bool | None = None  #: None before the first record
        self.begins_at = 0  #: what lies below does not count, for the log was cut there

    def meet(self, message: Message, is_wanted: bool) -> LogEntry | None:
        """Take the next record; returns it where it is wanted."""
        key_bytes, value_bytes, header = message.key(), message.value(), find_header(message.headers())
        assert not isinstance(key_bytes, str)
        assert not isinstance(value_bytes, str)
        if self.is_foreign is None:
            self.is_foreign = header is None
        owner_epoch = sequence = checkpoint = problem = None
        counts = self.is_foreign
        try:
            if header is not None:
                owner_epoch, sequence = decode_header(header)
                checkpoint = decode_checkpoint(value_bytes or b"") if is_checkpoint_key(key_bytes or b"") else None
                if _known(message.offset()) >= self.begins_at:
                    self.position, counts = step(self.position, owner_epoch, sequence, checkpoint)
        except RecordError as error:
            problem = str(error)
        if not is_wanted:
            return None
        kind, key, value = "undecodable", None, None
        if problem is None:
            try:
                kind, key, value = _decode(key_bytes, value_bytes, checkpoint)
            except RecordError as error:
                problem = str(error)
        is_avro = any((part or b"").startswith(MARKER) for part in (key_bytes, value_bytes))
        return LogEntry(
            partition=_known(message.partition()),
            offset=_known(message.offset()),
            timestamp_ms=message.timestamp()[1],
            kind=kind,
            codec="" if problem or kind == "unknown" else "avro" if is_avro else "kafka",
            counts=counts,
            owner_epoch=owner_epoch,
            sequence=sequence,
            size_bytes=len(key_bytes or b"") + len(value_bytes or b""),
            key=key,
            value=value,
            problem=problem,
        )


class LogReader:
    """Reads a state topic, one partition after the other; `close` it in the end."""

    def __init__(self, properties: Mapping[str, Any], topic: str, is_stopped: Event | None = None) -> None:
        """Connect lazily.

        Args:
            properties: librdkafka's; `bootstrap.servers` at least.
            topic: any state topic, in either codec.
            is_stopped: when it is set, reading ends where it is.
        """
        self.topic = topic
        self.kafka = KafkaReader(properties, is_stopped)
        self._readings: dict[int, Reading] = {}

    def close(self) -> None:
        """Let go of the brokers."""
        self.kafka.close()

    def begin(self, partitions: Iterable[int]) -> dict[int, int]:
        """Return where log partitions start; `read` begins there, and says so if that was cut off in between.

        Raises:
            Failure: no broker answers.
        """
        starts = {partition: self.kafka.bounds(self.topic, partition).start for partition in partitions}
        for partition, start in starts.items():
            self._readings.setdefault(partition, Reading()).next_offset = start
        return starts

    def read(self, wanted: Wanted = Wanted()) -> Iterator[LogEntry]:  # noqa: B008
        """Yield what is wanted of the log as it is now, by partition and offset; a second call goes on where the first ended.

        Raises:
            Failure: the topic or a partition does not exist, or the brokers are silent.
        """
        existing = self.kafka.partitions(self.topic)
        if absent := sorted(set(wanted.partitions) - set(existing)):
            raise Failure(
                f"The topic {self.topic} has no partition {absent[0]}; it has {existing[0]} to {existing[-1]}.",
                Exit.NOT_FOUND,
            )
        left = wanted.entries_max
        for partition in sorted(wanted.partitions or existing):
            for entry in self._read_partition(partition, wanted):
                if left is not None:
                    if left == 0:
                        return
                    left -= 1
                yield entry

    def _read_partition(self, partition: int, wanted: Wanted) -> Iterator[LogEntry]:
        start, end = self.kafka.bounds(self.topic, partition)
        reading = self._readings.setdefault(partition, Reading())
        if end <= max(start, reading.next_offset):
            return
        if reading.is_foreign is None:
            reading.begins_at = find_beginning(
                message for _, message in self.kafka.read(self.topic, partition, end, reading.next_offset)
            )
        for offset, message in self.kafka.read(self.topic, partition, end, reading.next_offset):
            is_wanted = offset >= wanted.from_offset and message.timestamp()[1] >= wanted.from_time_ms
            reading.next_offset = offset + 1
            if (entry := reading.meet(message, is_wanted)) is not None:
                yield entry
        reading.next_offset = end


def find_beginning(messages: Iterable[Message]) -> int:
    """Return the offset from which a log partition is whole, given its records from its start; 0: there is no telling."""
    position, beginning = START, None
    for message in messages:
        key, value, header, offset = (
            message.key(),
            message.value(),
            find_header(message.headers()),
            _known(message.offset()),
        )
        assert not isinstance(key, str)
        assert not isinstance(value, str)
        if beginning is None:
            if offset == 0 or header is None:
                return 0
            beginning = Beginning(offset)
        try:
            owner_epoch, sequence = decode_header(header or b"")
            if is_checkpoint_key(key or b""):
                checkpoint = decode_checkpoint(value or b"")
                position, _ = beginning.step(position, offset, owner_epoch, sequence, checkpoint)
            else:
                position, _ = step(position, owner_epoch, sequence, None)
        except RecordError:
            continue  # it counts for nobody here, and whoever reads it says so
        if beginning.is_found:
            return beginning.offset
    return 0


def _decode(
    key_bytes: bytes | None, value_bytes: bytes | None, checkpoint: Checkpoint | None
) -> tuple[str, SharePartitionKey | None, Snapshot | Update | Checkpoint | None]:
    kind = peek_kind(key_bytes, value_bytes)
    if kind is Kind.CHECKPOINT:
        return kind.name.lower(), None, checkpoint or decode_checkpoint(value_bytes or b"")
    if kind is Kind.UNKNOWN:
        return kind.name.lower(), None, None
    record = decode_record(key_bytes, value_bytes)
    return kind.name.lower(), record.key, None if isinstance(record.value, Noop) else record.value


def _known(number: int | None) -> int:
    assert number is not None, "a record met by a consumer has its place"
    return number
