"""The microscope applies the one rule of who counts, decodes both codecs, and says why where it cannot."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Message

from holdfast.console.commands.dump import entry_data, entry_text, of_coordinator
from holdfast.console.outcomes import Exit, Failure
from holdfast.console.sources.kafka_reader import LogCut, OffsetRange
from holdfast.console.sources.log_reader import LogEntry, LogReader, PartitionReading, find_placement
from holdfast.records.log.checkpoint import CHECKPOINT_KEY, Checkpoint, Placement, encode_checkpoint
from holdfast.records.log.header import HEADER_NAME, encode_header
from holdfast.records.share.batches import ACKNOWLEDGED, AVAILABLE, StateBatch
from holdfast.records.share.codecs.codec import Codec
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.values import Snapshot, Update, Value
from tests.world.records import encode_record

KEY = SharePartitionKey("g:1", bytes(range(16)), 2)
BATCHES = (StateBatch(0, 9, ACKNOWLEDGED, 1), StateBatch(10, 10, AVAILABLE, 2))
SNAPSHOT = Snapshot(0, 1, 0, 0, -1, 5, 5, BATCHES, 0, 1)
UPDATE = Update(0, 3, -1, 7, BATCHES)


class Log:
    """Messages as a consumer would give them, and the entries that a reading makes of them."""

    def __init__(self) -> None:
        self.entries: list[LogEntry] = []
        self._reading = PartitionReading()

    def put(self, key: bytes | None, value: bytes | None, header: bytes | None = None) -> LogEntry:
        headers: list[tuple[str, str | bytes | None]] = [] if header is None else [(HEADER_NAME, header)]
        message = Message("t", 4, len(self.entries), key, value, headers, timestamp=(1, 1_000))
        entry = self._reading.take(message, is_wanted=True)
        assert entry is not None
        self.entries.append(entry)
        return entry

    def put_record(self, value: Value, header: bytes | None, codec: Codec = Codec.AVRO) -> LogEntry:
        return self.put(*encode_record(codec, KEY, value), header)

    def put_checkpoint(self, epoch: int, sequence: int = 0) -> LogEntry:
        checkpoint = Checkpoint(epoch, bytes([epoch] * 16), "7", 3, "cluster", bytes(16), 1, None)
        return self.put(CHECKPOINT_KEY, encode_checkpoint(checkpoint), encode_header(epoch, sequence))


def test_only_what_counts_is_said_to_count() -> None:
    log = Log()
    log.put_record(SNAPSHOT, encode_header(1, 0))  # before any checkpoint
    log.put_checkpoint(1)
    log.put_record(SNAPSHOT, encode_header(1, 1))
    log.put_record(UPDATE, encode_header(1, 3))  # after a gap
    log.put_checkpoint(2)
    log.put_record(UPDATE, encode_header(1, 2))  # a zombie's
    log.put_record(UPDATE, None)
    log.put_record(UPDATE, encode_header(2, 1))
    assert [entry.counts for entry in log.entries] == [False, True, True, False, True, False, False, True]
    assert [entry.kind for entry in log.entries[:4]] == ["snapshot", "checkpoint", "snapshot", "update"]
    assert (log.entries[-1].owner_epoch, log.entries[-1].sequence) == (2, 1)


@pytest.mark.parametrize("codec", Codec)
def test_both_codecs_are_read_and_named(codec: Codec) -> None:
    log = Log()
    read = [log.put_record(value, None, codec) for value in (SNAPSHOT, UPDATE, None)]
    assert [(entry.kind, entry.codec, entry.key) for entry in read] == [
        (kind, codec.value, KEY) for kind in ("snapshot", "update", "tombstone")
    ]
    assert read[1].value == UPDATE


def test_every_record_of_a_foreign_topic_counts() -> None:
    log = Log()
    log.put_record(SNAPSHOT, None, Codec.KAFKA)
    log.put_record(UPDATE, None, Codec.KAFKA)
    assert all(entry.counts for entry in log.entries)


@pytest.mark.parametrize(
    ("key", "value", "header", "kind", "problem"),
    [
        (b"\x00\x63", b"", None, "unknown", None),
        (b"\x00\x00\x00", b"", None, "undecodable", "The key cannot be decoded"),
        (None, b"", None, "undecodable", "The key cannot be decoded: there is none."),
        (CHECKPOINT_KEY, b"?", encode_header(1, 0), "undecodable", "The checkpoint cannot be decoded"),
        (b"\x00\x63", b"", b"\x02" * 13, "undecodable", "The header cannot be decoded"),
    ],
)
def test_what_cannot_be_decoded_is_shown_with_the_reason(
    key: bytes | None, value: bytes, header: bytes | None, kind: str, problem: str | None
) -> None:
    entry = Log().put(key, value, header)
    assert (entry.kind, entry.value) == (kind, None)
    assert (entry.problem or "").startswith(problem or "")
    assert bool(entry.problem) == bool(problem)
    assert json.loads(json.dumps(entry_data(entry)))["kind"] == kind


def test_records_read_well_as_text_and_as_json() -> None:
    log = Log()
    assert entry_text(log.put_checkpoint(1)) == "node 7, generation 3, attempt 01010101"
    assert entry_text(log.put_record(SNAPSHOT, encode_header(1, 1))) == (
        "snapshot epoch 0, state epoch 1, leader epoch 0, start 0, 0-9:acknowledged:1, 10-10:available:2"
    )
    update = log.put_record(UPDATE, encode_header(1, 2))
    assert entry_text(update) == "snapshot epoch 0, leader epoch 3, complete 7, 0-9:acknowledged:1, 10-10:available:2"
    many = UPDATE._replace(state_batches=tuple(StateBatch(first, first, 0, first) for first in range(20)))
    assert entry_text(log.put_record(many, encode_header(1, 3))).endswith("7-7:available:7, and 12 batches more")
    assert json.loads(json.dumps(entry_data(update))) == {
        "partition": 4,
        "offset": 2,
        "timestamp_ms": 1_000,
        "kind": "update",
        "codec": "avro",
        "counts": True,
        "owner_epoch": 1,
        "sequence": 2,
        "size_bytes": update.size_bytes,
        "group_id": "g:1",
        "topic_id": "AAECAwQFBgcICQoLDA0ODw",
        "share_partition": 2,
        "value": {
            "snapshot_epoch": 0,
            "leader_epoch": 3,
            "start_offset": -1,
            "delivery_complete_count": 7,
            "state_batches": [
                {"first_offset": 0, "last_offset": 9, "delivery_state": "acknowledged", "delivery_count": 1},
                {"first_offset": 10, "last_offset": 10, "delivery_state": "available", "delivery_count": 2},
            ],
        },
        "problem": None,
    }


class CutTopic:
    """A topic of a broker's own in place of a `KafkaReader`, whose one partition loses its start while it is read."""

    def __init__(self, cuts: int, behind: int = 0) -> None:
        self.start = 0
        self._cuts = cuts
        #: How many records are read before each cut.
        self._behind = behind

    def partitions(self, topic: str) -> list[int]:
        return [0]

    def bounds(self, topic: str, partition: int) -> OffsetRange:
        return OffsetRange(self.start, 20)

    def read(self, topic: str, partition: int, end: int, from_offset: int) -> Iterator[tuple[int, Message]]:
        for offset in range(max(self.start, from_offset), end):
            if self._cuts and offset - self.start == self._behind:
                self._cuts -= 1
                self.start += self._behind + 1
                raise LogCut("t partition 0 was cut while it was read; run the command again.")
            yield offset, Message("t", 0, offset, *encode_record(Codec.KAFKA, KEY, SNAPSHOT), [], timestamp=(1, 1_000))


def reader_of(topic: CutTopic) -> LogReader:
    reader = LogReader({"bootstrap.servers": "b:1"}, "t")
    reader.close()
    reader.kafka = topic  # type: ignore[assignment]
    return reader


@pytest.mark.parametrize("cuts", [0, 1, 9])
def test_a_log_that_is_pruned_before_any_of_it_was_shown_is_read_from_its_new_start(cuts: int) -> None:
    reader = reader_of(CutTopic(cuts))
    assert [entry.offset for entry in reader.read()] == list(range(cuts, 20))
    assert [entry.offset for entry in reader.read()] == []


@pytest.mark.parametrize(("cuts", "behind"), [(10, 0), (1, 2)], ids=["again and again", "behind what was shown"])
def test_a_log_that_is_pruned_all_the_same_is_said_to_be(cuts: int, behind: int) -> None:
    entries = reader_of(CutTopic(cuts, behind)).read()
    with pytest.raises(LogCut, match="run the command again"):
        list(entries)


def test_a_log_that_is_to_be_read_from_a_start_that_was_told_is_read_from_no_other() -> None:
    topic = CutTopic(1)
    reader = reader_of(topic)
    assert reader.begin([0]) == {0: 0}
    with pytest.raises(LogCut):
        list(reader.read())


def entry_of(kind: str, owner_epoch: int | None) -> LogEntry:
    return LogEntry(2, 7, 0, kind, "", True, owner_epoch, None, 0, None, None, "what it is is not known")


def test_a_topic_that_holds_no_states_is_said_to_be_none_once() -> None:
    with pytest.raises(
        Failure, match=r"orders is no state topic: its record at offset 7 of partition 2 is none"
    ) as said:
        list(of_coordinator(iter([entry_of("undecodable", None)] * 3), "orders"))
    assert said.value.exit_code == Exit.WRONG_USAGE


@pytest.mark.parametrize(
    ("first", "topic"),
    [
        (entry_of("undecodable", 3), "orders"),
        (entry_of("unknown", None), "orders"),
        (entry_of("undecodable", None), "__share_group_state"),
    ],
    ids=["a node wrote it", "a kind that is new", "brokers alone write there"],
)
def test_a_state_topic_is_shown_however_damaged_its_first_record_is(first: LogEntry, topic: str) -> None:
    entries = [first, entry_of("undecodable", None)]
    assert list(of_coordinator(iter(entries), topic)) == entries


class PlacedTopic:
    """A topic in place of a `KafkaReader`: the records of its partitions as (key, value, header)."""

    def __init__(self, *records: list[tuple[bytes, bytes | None, bytes | None]]) -> None:
        self._records = records

    def partitions(self, topic: str) -> list[int]:
        return list(range(len(self._records)))

    def bounds(self, topic: str, partition: int) -> OffsetRange:
        return OffsetRange(0, len(self._records[partition]))

    def read(self, topic: str, partition: int, end: int, from_offset: int) -> Iterator[tuple[int, Message]]:
        for offset, (key, value, header) in enumerate(self._records[partition]):
            headers: list[tuple[str, str | bytes | None]] = [] if header is None else [(HEADER_NAME, header)]
            yield offset, Message("t", partition, offset, key, value, headers, timestamp=(1, 1_000))


CHECKPOINT = Checkpoint(1, bytes(16), "7", 3, "cluster", bytes(16), 2, None)
BY_GROUP, BY_TOPIC_PARTITION = (
    (CHECKPOINT_KEY, encode_checkpoint(CHECKPOINT._replace(placement=placement)), encode_header(1, 0))
    for placement in Placement
)


@pytest.mark.parametrize(
    ("records", "placement"),
    [
        ([[], [BY_TOPIC_PARTITION]], Placement.BY_TOPIC_PARTITION),
        ([[BY_GROUP], []], Placement.BY_GROUP),
        ([[(CHECKPOINT_KEY, b"?", encode_header(1, 0)), BY_TOPIC_PARTITION]], Placement.BY_TOPIC_PARTITION),
        (
            [[(*encode_record(Codec.AVRO, KEY, SNAPSHOT), encode_header(1, 7)), BY_TOPIC_PARTITION]],
            Placement.BY_TOPIC_PARTITION,
        ),
        ([[(*encode_record(Codec.KAFKA, KEY, SNAPSHOT), None)], [BY_TOPIC_PARTITION]], Placement.BY_GROUP),
        ([[], []], Placement.BY_GROUP),
    ],
    ids=["by topic partition", "by group", "after a broken one", "after a cut", "a broker's own", "empty"],
)
def test_placement_is_that_of_the_first_checkpoint(records: Any, placement: Placement) -> None:
    assert find_placement(PlacedTopic(*records), "t") is placement  # type: ignore[arg-type]


def test_placement_is_shown_with_its_checkpoint() -> None:
    entry = Log().put(*BY_TOPIC_PARTITION)
    assert json.loads(json.dumps(entry_data(entry)))["value"]["placement"] == "BY_TOPIC_PARTITION"
