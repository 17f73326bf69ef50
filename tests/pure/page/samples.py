"""Records of state topics as they are fetched, and places of share partitions."""

from __future__ import annotations

from aiokafka.record.default_records import DefaultRecordBatchBuilder  # type: ignore[import-untyped]

from holdfast.kafka.topics.topic_ends import Ends
from holdfast.page.book import Book
from holdfast.page.decoding import TopicRecord
from holdfast.page.moment import End, Moment, Truth, WrittenTimes, make_place
from holdfast.records.log.checkpoint import CHECKPOINT_KEY, Checkpoint, encode_checkpoint
from holdfast.records.log.header import HEADER_NAME, encode_header
from holdfast.records.share.batches import ACKNOWLEDGED, AVAILABLE, StateBatch
from holdfast.records.share.codecs.codec import Codec
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.values import Snapshot, Update, Value
from tests.world.records import encode_record

TOPIC_ID = bytes(range(16))
KEY = SharePartitionKey("workers", TOPIC_ID, 0)
NOW_MS = 1_800_000_030_000


def snapshot(start: int = 0, *batches: StateBatch, complete: int = 0, epoch: int = 0) -> Snapshot:
    """Return a snapshot of state epoch 1."""
    return Snapshot(epoch, 1, 0, start, complete, 5, 5, batches, 0, 1)


def update(start: int, *batches: StateBatch, complete: int = 0) -> Update:
    """Return an update."""
    return Update(0, 0, start, complete, batches)


def acknowledged(first: int, last: int) -> StateBatch:
    """Return records that were acknowledged when they were given out first."""
    return StateBatch(first, last, ACKNOWLEDGED, 1)


def available(offset: int, count: int) -> StateBatch:
    """Return a record that was tried and is not finished."""
    return StateBatch(offset, offset, AVAILABLE, count)


def batch_of(*records: TopicRecord, base_offset: int | None = None, leader_epoch: int = 0) -> bytes:
    """Return records as one batch."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, 0, 1_000_000)
    for place, record in enumerate(records):
        builder.append(place, record.timestamp_ms, record.key, record.value, list(record.headers))
    data = bytearray(builder.build())
    data[0:8] = (records[0].offset if base_offset is None else base_offset).to_bytes(8, "big")
    data[12:16] = leader_epoch.to_bytes(4, "big")
    return bytes(data)


class Log:
    """A log partition that a test writes."""

    def __init__(self, start: int = 0) -> None:
        self.records: list[TopicRecord] = []
        self.start = start
        self.at_ms = NOW_MS

    def put(self, key: SharePartitionKey, value: Value, *, hf: tuple[int, int] | None = None) -> TopicRecord:
        """Write a record, as a broker does without `hf`, the owner epoch and the sequence."""
        codec = Codec.KAFKA if hf is None else Codec.AVRO
        return self.put_bytes(*encode_record(codec, key, value), hf=hf)

    def put_checkpoint(self, epoch: int, sequence: int, cut_offset: int = -1) -> TopicRecord:
        """Write a checkpoint of node "7"."""
        checkpoint = Checkpoint(
            epoch, bytes([epoch] * 16), "7", 3, "cluster", bytes(16), 1, None, cut_offset=cut_offset
        )
        return self.put_bytes(CHECKPOINT_KEY, encode_checkpoint(checkpoint), hf=(epoch, sequence))

    def put_bytes(self, key: bytes | None, value: bytes | None, *, hf: tuple[int, int] | None = None) -> TopicRecord:
        """Write any record."""
        headers = () if hf is None else ((HEADER_NAME, encode_header(*hf)),)
        record = TopicRecord(self.start + len(self.records), self.at_ms, key, value, headers)
        self.records.append(record)
        return record


def book_of(log: Log) -> Book:
    """Return a book that has read one log partition."""
    book = Book()
    book.begin(0, log.start)
    for record in log.records:
        book.take(0, record)
    return book


def moment_of(
    book: Book,
    ends: dict[SharePartitionKey, Ends],
    written: WrittenTimes | None = None,
    run_id: str = "run",
    truth: Truth = Truth(NOW_MS),  # noqa: B008  # it is frozen
) -> Moment:
    """Return a moment of a book, the topic called orders, and of its one log partition's truth."""
    places = [
        make_place(key, described, End("orders", ends.get(key, Ends(-1, -1, "its leader is silent"))))
        for key, described in book.describe({0: 3}).items()
    ]
    return Moment(
        NOW_MS,
        places,
        written or {},
        lambda group, topic_id, read_to: book.finished_by_minute(group, topic_id, read_to, NOW_MS),
        (f"Log partition 0 is {truth.why_old}.",) if truth.why_old else (),
        run_id,
        {0: truth},
    )
