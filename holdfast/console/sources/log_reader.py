"""Any state topic read as a list of records, each with the result of the rule that says which records count.

It reads what is there now and changes nothing: no consumer group is joined, no offset is committed.
A log partition is always read from its start, because whether a record counts depends on all before it.
If the log start fell back after pruning, no record below the pruned offset counts.
If the log is cut before any record of it was shown, it is read from its new start.
If the first record has no `hf` header, the topic is a broker's own, and every record counts.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from threading import Event
from typing import Any, Final, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Message

from holdfast.console.outcomes import Exit, Failure
from holdfast.console.sources.kafka_reader import KafkaReader, LogCut
from holdfast.records.errors import RecordError
from holdfast.records.log.checkpoint import Checkpoint, Placement, decode_checkpoint, is_checkpoint_key
from holdfast.records.log.fencing import START, Position, step
from holdfast.records.log.header import decode_header, find_header, is_foreign
from holdfast.records.log.log_start import Beginning
from holdfast.records.log.single_object import MARKER
from holdfast.records.share.codecs.codec import Kind, decode_record, peek_kind
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.values import Noop, Snapshot, Update

#: How often a log partition is begun whose start is pruned before anything of it was shown.
_BEGINNINGS_MAX: Final = 10


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


class LogSelection(NamedTuple):
    """Which part of a state topic to read."""

    partitions: Collection[int] = ()  #: none means all
    from_offset: int = 0
    from_time_ms: int = 0
    entries_max: int | None = None


class _Header(NamedTuple):
    """Whether a record counts, by its headers, and by its value if it is a checkpoint."""

    counts: bool
    owner_epoch: int | None = None
    sequence: int | None = None
    checkpoint: Checkpoint | None = None
    problem: str | None = None  #: why it could not be decoded


class PartitionReading:
    """A place in one log partition, and what decides whether the record there counts."""

    def __init__(self) -> None:
        self.position: Position = START
        self.next_offset = OFFSET_BEGINNING
        self.is_foreign: bool | None = None  #: None before the first record
        self.begins_at = 0  #: what lies below does not count, for the log was pruned up to there

    def take(self, message: Message, is_wanted: bool) -> LogEntry | None:
        """Take the next record; returns it where it is wanted."""
        if self.is_foreign is None:
            self.is_foreign = is_foreign(find_header(message.headers()))
        header = self._judge(message)
        return _make_entry(message, header) if is_wanted else None

    def _judge(self, message: Message) -> _Header:
        counts, found = bool(self.is_foreign), find_header(message.headers())
        if found is None or is_foreign(found):
            return _Header(counts)
        owner_epoch = sequence = None
        try:
            owner_epoch, sequence = decode_header(found)
            checkpoint = _find_checkpoint(message)
        except RecordError as error:
            return _Header(counts, owner_epoch, sequence, problem=str(error))
        if _known(message.offset()) >= self.begins_at:
            self.position, counts = step(self.position, owner_epoch, sequence, checkpoint)
        return _Header(counts, owner_epoch, sequence, checkpoint)


class LogReader:
    """A reader of a state topic, one partition after the other; to be closed in the end."""

    def __init__(self, properties: Mapping[str, Any], topic: str, is_stopped: Event | None = None) -> None:
        """Connect lazily.

        Args:
            properties: librdkafka's; `bootstrap.servers` at least.
            topic: any state topic, in either codec.
            is_stopped: when it is set, reading ends where it is.
        """
        self.topic = topic
        self.kafka = KafkaReader(properties, is_stopped)
        self._readings: dict[int, PartitionReading] = {}

    def close(self) -> None:
        """Close the connections to the brokers."""
        self.kafka.close()

    def begin(self, partitions: Iterable[int]) -> dict[int, int]:
        """Return where log partitions start; `read` begins there, and fails if that was pruned in between.

        Raises:
            Failure: no broker answers.
        """
        starts = {partition: self.kafka.bounds(self.topic, partition).start for partition in partitions}
        for partition, start in starts.items():
            self._readings.setdefault(partition, PartitionReading()).next_offset = start
        return starts

    def read(self, wanted: LogSelection = LogSelection()) -> Iterator[LogEntry]:  # noqa: B008
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

    def _read_partition(self, partition: int, wanted: LogSelection) -> Iterator[LogEntry]:
        reading = self._readings.setdefault(partition, PartitionReading())
        for beginning in range(1, _BEGINNINGS_MAX + 1):
            try:
                yield from self._read_on(reading, partition, wanted)
                return
            except LogCut:
                # Records that were shown, or read from a promised start, have a gap after them now.
                if reading.next_offset != OFFSET_BEGINNING or beginning == _BEGINNINGS_MAX:
                    raise

    def _read_on(self, reading: PartitionReading, partition: int, wanted: LogSelection) -> Iterator[LogEntry]:
        start, end = self.kafka.bounds(self.topic, partition)
        if end <= max(start, reading.next_offset):
            return
        if reading.is_foreign is None:
            reading.begins_at = find_beginning(
                message for _, message in self.kafka.read(self.topic, partition, end, reading.next_offset)
            )
        for offset, message in self.kafka.read(self.topic, partition, end, reading.next_offset):
            is_wanted = offset >= wanted.from_offset and message.timestamp()[1] >= wanted.from_time_ms
            reading.next_offset = offset + 1
            if (entry := reading.take(message, is_wanted)) is not None:
                yield entry
        reading.next_offset = end


def find_beginning(messages: Iterable[Message]) -> int:
    """Return the offset from which a log partition is whole, given its records from its start; 0: there is no telling."""
    position, beginning = START, None
    for message in messages:
        header, offset = find_header(message.headers()), _known(message.offset())
        if beginning is None:
            if offset == 0 or is_foreign(header):
                return 0
            beginning = Beginning(offset)
        try:
            owner_epoch, sequence = decode_header(header or b"")
            checkpoint = _find_checkpoint(message)
        except RecordError:
            continue  # a record that cannot be decoded counts for no reader, and is shown with its problem
        if checkpoint is None:
            position, _ = step(position, owner_epoch, sequence, None)
        else:
            position, _ = beginning.step(position, offset, owner_epoch, sequence, checkpoint)
        if beginning.is_found:
            return beginning.offset
    return 0


def find_placement(kafka: KafkaReader, topic: str) -> Placement:
    """Return the placement of the share partitions of a state topic, by the first checkpoint in it.

    A topic without any is a broker's own, or is empty: by group.

    Raises:
        Failure: the topic does not exist, or the brokers are silent.
    """
    for partition in kafka.partitions(topic):
        start, end = kafka.bounds(topic, partition)
        if end <= start:
            continue
        for _, message in kafka.read(topic, partition, end, start):
            if is_foreign(find_header(message.headers())):
                return Placement.BY_GROUP
            with suppress(RecordError):  # it is shown where records are
                if (checkpoint := _find_checkpoint(message)) is not None:
                    return checkpoint.placement
    return Placement.BY_GROUP


def _make_entry(message: Message, header: _Header) -> LogEntry:
    """Return a record, decoded as far as possible."""
    key_bytes, value_bytes = _key_and_value(message)
    kind, key, value, problem = "undecodable", None, None, header.problem
    if problem is None:
        try:
            kind, key, value = _decode(key_bytes, value_bytes, header.checkpoint)
        except RecordError as error:
            problem = str(error)
    is_avro = any((part or b"").startswith(MARKER) for part in (key_bytes, value_bytes))
    return LogEntry(
        partition=_known(message.partition()),
        offset=_known(message.offset()),
        timestamp_ms=message.timestamp()[1],
        kind=kind,
        codec="" if problem or kind == "unknown" else "avro" if is_avro else "kafka",
        counts=header.counts,
        owner_epoch=header.owner_epoch,
        sequence=header.sequence,
        size_bytes=len(key_bytes or b"") + len(value_bytes or b""),
        key=key,
        value=value,
        problem=problem,
    )


def _decode(
    key_bytes: bytes | None, value_bytes: bytes | None, checkpoint: Checkpoint | None
) -> tuple[str, SharePartitionKey | None, Snapshot | Update | Checkpoint | None]:
    """Return kind, key and value of a record.

    Args:
        key_bytes: its key.
        value_bytes: its value.
        checkpoint: the value, where it was decoded as a checkpoint already.

    Raises:
        RecordError: it cannot be decoded.
    """
    kind = peek_kind(key_bytes, value_bytes)
    if kind is Kind.CHECKPOINT:
        return kind.name.lower(), None, checkpoint or decode_checkpoint(value_bytes or b"")
    if kind is Kind.UNKNOWN:
        return kind.name.lower(), None, None
    record = decode_record(key_bytes, value_bytes)
    return kind.name.lower(), record.key, None if isinstance(record.value, Noop) else record.value


def _find_checkpoint(message: Message) -> Checkpoint | None:
    """Return the value of a checkpoint, None where a record is something else; raises RecordError."""
    key, value = _key_and_value(message)
    return decode_checkpoint(value or b"") if is_checkpoint_key(key or b"") else None


def _key_and_value(message: Message) -> tuple[bytes | None, bytes | None]:
    key, value = message.key(), message.value()
    assert not isinstance(key, str)
    assert not isinstance(value, str)
    return key, value


def _known(number: int | None) -> int:
    assert number is not None, "a record that a consumer returns has a partition and an offset"
    return number
