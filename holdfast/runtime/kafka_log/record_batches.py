"""Record batches: encoding of records, and checks and decoding of fetched batches.

Source: Apache Kafka's record batch format, magic 2.
"""

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from struct import Struct
from typing import Any, Final, NamedTuple

from holdfast.kafka.aiokafka_parts import MAGIC, make_batch_builder, read_batch
from holdfast.kafka.decompression import TooLarge, decompress
from holdfast.records.log.header import HEADER_NAME, find_header
from holdfast.records.native import twins
from holdfast.runtime.log_protocol import LogRecord, make_log_record

_HEADER_NAME: Final = HEADER_NAME.encode()
#: base offset, length, leader epoch, magic, crc, attributes, last offset delta, …, record count
BATCH_HEAD: Final = Struct(">qiibIhiqqqhii")
BATCH_HEAD_BYTES: Final = 61
#: A batch's length does not count its base offset and itself.
LENGTH_OFFSET: Final = 12
CONTROL: Final = 0x20
#: Bits of the attributes that name the codec of the compression; 0 is none.
_CODEC: Final = 0x07
_LENGTH, _LENGTH_AT = Struct(">i"), 8
#: Shift of the last seven bits of a record's length, a varint of 32 bits.
_LENGTH_SHIFT_MAX: Final = 28
_ATTRIBUTES, _ATTRIBUTES_AT = Struct(">h"), 21

#: Most bytes that a record takes in a batch in addition to key and value: its varints and its `hf` header.
RECORD_FIELDS_BYTES: Final = 25 + 17

Record = tuple[bytes, bytes | None, bytes]  # key, value, `hf` header

# Final, because every batch uses it: docs/decisions/build.md.
_encode_in_c: Final = None if twins is None else twins.encode_records


class FetchedBatch(NamedTuple):
    """One whole record batch of a fetch."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    data: bytes


class DamagedBatch(Exception):
    """A record batch cannot be decoded; the text says why."""


class LargeBatch(DamagedBatch):
    """A record batch is larger without its compression than allowed; it may be sound."""


def encode(records: list[Record], timestamp_ms: int, compression: int, bytes_max: int) -> tuple[bytes, int, int]:
    """Build a batch of the first records, as many as fit, but at least one.

    Args:
        records: in their order, at least one.
        timestamp_ms: the time of all of them.
        compression: Kafka's number of the codec.
        bytes_max: size of the batch before compression; the first record alone may be larger.

    Returns:
        The batch, its number of records, and the bytes of their keys and values.

    Raises:
        Exception: one of them is not a record.
    """
    if _encode_in_c is None or compression:
        return encode_in_python(records, timestamp_ms, compression, bytes_max)
    return _encode_in_c(records, _HEADER_NAME, timestamp_ms, bytes_max - BATCH_HEAD_BYTES, RECORD_FIELDS_BYTES)


def encode_in_python(
    records: list[Record], timestamp_ms: int, compression: int, bytes_max: int
) -> tuple[bytes, int, int]:
    """Build the same batch as `encode`."""
    builder = make_batch_builder(compression, bytes_max)
    append, count, size, room = builder.append, 0, 0, bytes_max - BATCH_HEAD_BYTES
    for key, value, header in records:
        record_bytes = len(key) + (len(value) if value is not None else 0)
        room -= record_bytes + RECORD_FIELDS_BYTES
        if room < 0 and count:
            break
        append(count, timestamp_ms, key, value, [(HEADER_NAME, header)])
        size += record_bytes
        count += 1
    return bytes(builder.build()), count, size


def iter_batches(data: bytes, from_offset: int, *, begins_there: bool) -> Iterator[FetchedBatch]:
    """Yield the whole batches of a fetch from an offset; a batch that is cut short ends them, and is fetched again.

    Args:
        data: the batches as fetched.
        from_offset: the offset of the fetch.
        begins_there: a batch begins at that offset; otherwise the first one may begin below.

    Raises:
        DamagedBatch: a head is impossible, or the first batch is not whole.
    """
    at, end, next_offset, is_after_batch = 0, len(data), from_offset, begins_there
    while at < end:
        # A broker sends the first batch whole or not at all.
        head = BATCH_HEAD.unpack_from(data, at) if at + BATCH_HEAD_BYTES <= end else None
        size = LENGTH_OFFSET + head[1] if head is not None else BATCH_HEAD_BYTES
        stop = at + size
        if head is None or stop > end:
            if at == 0:
                raise DamagedBatch(f"its head says {size} bytes, and {end} came")
            return
        base_offset, last_offset = head[0], head[0] + head[6]
        if size < BATCH_HEAD_BYTES or last_offset < next_offset or (is_after_batch and base_offset < next_offset):
            raise DamagedBatch(
                f"its head says {size} bytes and offsets {base_offset} to {last_offset}, after offset {next_offset}"
            )
        yield FetchedBatch(base_offset, last_offset, head[2], data[at:stop])
        at, next_offset, is_after_batch = stop, last_offset + 1, True


def decode(batch: bytes, from_offset: int, bytes_max: int, records_max: int) -> Iterator[LogRecord]:
    """Return the records of one whole batch from an offset on, for use with `take`; none of a control batch.

    Args:
        batch: the batch.
        from_offset: records below it are skipped.
        bytes_max: bounds the batch without its compression.
        records_max: the number of records decoded at a time, when they are taken.

    Raises:
        DamagedBatch: it is not as it was written.
        LargeBatch: it has more than `bytes_max` bytes without its compression.
    """
    head = BATCH_HEAD.unpack_from(batch)
    if head[3] != MAGIC:
        raise DamagedBatch(f"its magic is {head[3]}")
    try:
        decoded = read_batch(batch)
        is_whole = decoded is not None and decoded.validate_crc()
        if is_whole and not head[5] & CONTROL:
            if head[5] & _CODEC:
                batch = _decompress(batch, head[5], bytes_max)
                decoded = read_batch(batch)
            return chain.from_iterable(_decode_by_few(batch, decoded, head[0], head[12], from_offset, records_max))
    except TooLarge as error:
        raise LargeBatch(repr(error)) from error
    except Exception as error:  # the libraries raise many classes
        raise DamagedBatch(repr(error)) from error
    if not is_whole:
        raise DamagedBatch("its checksum is wrong")
    return iter(())


def _decode_by_few(
    batch: bytes, decoded: Iterable[Any], base_offset: int, count: int, from_offset: int, records_max: int
) -> Iterator[Iterable[LogRecord]]:
    """Yield the records of an uncompressed batch, a few at a time; `decoded` yields them all if the fast way cannot."""
    at, done = BATCH_HEAD_BYTES, 0
    while twins is not None:
        few = min(records_max, count - done)
        stop = len(batch) if done + few == count else _skip_records(batch, at, few)
        if stop < 0:
            break
        records = twins.decode_records(LogRecord, _HEADER_NAME, batch[at:stop], 0, few, base_offset, from_offset)
        if records is None:
            break
        yield records
        at, done = stop, done + few
        if done == count:
            return
    left = islice(decoded, done, None)
    while found := list(islice(left, records_max)):
        yield [
            make_log_record((record.offset, record.key, record.value, find_header(record.headers)))
            for record in found
            if record.offset >= from_offset
        ]


def _skip_records(batch: bytes, at: int, count: int) -> int:
    """Return the end of `count` records that begin at `at`; -1 if a length is unusual."""
    end = len(batch)
    for _ in range(count):
        length, shift, byte = 0, 0, 0x80
        while byte & 0x80:
            if at >= end or shift > _LENGTH_SHIFT_MAX:
                return -1
            byte = batch[at]
            length |= (byte & 0x7F) << shift
            at, shift = at + 1, shift + 7
        at += length >> 1
        if length & 1 or at > end:  # the length is negative or too large
            return -1
    return at


def _decompress(batch: bytes, attributes: int, bytes_max: int) -> bytes:
    """Return a batch without its compression; its checksum stays that of the compressed one."""
    records = decompress(attributes & _CODEC, batch[BATCH_HEAD_BYTES:], bytes_max)
    head = bytearray(batch[:BATCH_HEAD_BYTES])
    _LENGTH.pack_into(head, _LENGTH_AT, BATCH_HEAD_BYTES - LENGTH_OFFSET + len(records))
    _ATTRIBUTES.pack_into(head, _ATTRIBUTES_AT, attributes & ~_CODEC)
    return bytes(head) + records


def take(records: Iterator[LogRecord], count: int, last_offset: int) -> list[LogRecord]:
    """Return the next records of a batch, at most `count`.

    Raises:
        DamagedBatch: they cannot be decoded, or one is above the batch's last offset.
    """
    try:
        found = list(islice(records, count))
        # Only the end shows whether the batch has more records than its head says, so check that before the last one is reported.
        found += islice(records, 1 if found and found[-1].offset == last_offset else 0)
    except Exception as error:  # as above
        raise DamagedBatch(repr(error)) from error
    if found and found[-1].offset > last_offset:
        raise DamagedBatch(f"it ends at offset {last_offset} and holds offset {found[-1].offset}")
    return found
