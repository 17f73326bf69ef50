"""The heads of record batches in what a fetch brought; the records themselves stay as they are.

Source: Apache Kafka's record batch format, magic 2. Formats 0 and 1 have their magic at the same place.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from struct import Struct
from typing import Final, NamedTuple

#: Base offset, length, leader epoch, magic, checksum, attributes, last offset delta, first and last timestamp, producer id and epoch,
#: first sequence, number of records.
_HEAD: Final = Struct(">qiibIhiqqqhii")
HEAD_BYTES: Final = 61
#: The length counts neither itself nor the base offset.
_UNCOUNTED_BYTES: Final = 12
_MAGIC: Final = 2
#: In all formats.
_MAGIC_AT: Final = 16

_CODEC: Final = 0x07
_CODEC_MAX: Final = 4
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20
#: Of a record's length and of its other numbers.
_VARINT_SHIFT_MAX: Final = 63
_VERSION_AND_TYPE: Final = Struct(">hh")
_ABORT: Final = 0

_unpack_head: Final = _HEAD.unpack_from


class DamagedRecords(Exception):
    """A record batch is not what its format says; the text says why."""


class OldFormat(DamagedRecords):
    """Records have format 0 or 1, which brokers before 0.11 wrote; it cannot be passed on as it is."""


class Batch(NamedTuple):
    """One whole record batch."""

    base_offset: int
    #: Inclusive; compaction may have removed the record there, and any other one.
    last_offset: int
    #: Of the leader that appended it.
    leader_epoch: int
    attributes: int
    #: -1: none.
    producer_id: int
    #: -1: none.
    producer_epoch: int
    #: How many are there; compaction may leave none.
    record_count: int
    #: All of it, its head included: a view of the answer that brought it.
    data: memoryview

    @property
    def compression(self) -> int:
        """Return Kafka's number of the codec; 0 is none."""
        return self.attributes & _CODEC

    @property
    def is_transactional(self) -> bool:
        """Tell whether a transaction wrote it."""
        return self.attributes & _TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        """Tell whether a broker wrote it, as a marker; it has no record for a consumer."""
        return self.attributes & _CONTROL != 0


# Its own constructor is Python's, which takes twice the time.
_make_batch: Final[Callable[[Iterable[object]], Batch]] = partial(tuple.__new__, Batch)


def iter_batches(data: memoryview, from_offset: int) -> Iterator[Batch]:
    """Yield the whole batches that a fetch from an offset brought, in order; the first one may begin below that offset.

    A batch at the end that is cut short is left out: the next fetch brings it. Checksums are not computed, because those who
    decode the records do that.

    Raises:
        OldFormat: see there.
        DamagedRecords: a head says something impossible, or the first batch is not whole.
    """
    at, end, next_offset = 0, len(data), from_offset
    while at < end:
        left = end - at
        if left > _MAGIC_AT and (magic := data[at + _MAGIC_AT]) != _MAGIC:
            raise _wrong_magic(magic, next_offset)
        if left < HEAD_BYTES:
            break
        head = _unpack_head(data, at)
        base_offset, size, last_offset = head[0], head[1] + _UNCOUNTED_BYTES, head[0] + head[6]
        if size < HEAD_BYTES:
            raise DamagedRecords(f"the batch at offset {base_offset} says that it has {size} bytes")
        if size > left:
            break
        if base_offset < 0 or head[6] < 0 or last_offset < next_offset or (at and base_offset < next_offset):
            raise DamagedRecords(
                f"a batch says that it has offsets {base_offset} to {last_offset}, after {next_offset - 1}"
            )
        if head[12] < 0 or head[12] > head[6] + 1:
            raise DamagedRecords(f"the batch at offset {base_offset} says that it has {head[12]} records")
        if head[5] & _CODEC > _CODEC_MAX:
            raise DamagedRecords(
                f"the batch at offset {base_offset} has codec {head[5] & _CODEC}, which is none of Kafka's"
            )
        stop = at + size
        yield _make_batch((base_offset, last_offset, head[2], head[5], head[9], head[10], head[12], data[at:stop]))
        at, next_offset = stop, last_offset + 1
    # A broker sends all of the first batch, or nothing.
    if at == 0 and end:
        raise DamagedRecords(f"the batch at offset {from_offset} is cut short: {end} bytes came")


def _wrong_magic(magic: int, offset: int) -> DamagedRecords:
    if magic < _MAGIC:
        return OldFormat(
            f"the records at offset {offset} have format {magic}, as from before Kafka 0.11; format {_MAGIC} is needed, so copy them to "
            "another topic"
        )
    return DamagedRecords(f"the records at offset {offset} have format {magic}, which is not known")


def is_abort_marker(batch: Batch) -> bool:
    """Tell whether a batch is a marker that ends a transaction of its producer as aborted.

    Raises:
        DamagedRecords: it is a marker whose record cannot be read.
    """
    if not batch.is_control or not batch.record_count:
        return False
    if batch.compression:
        raise _wrong_marker(batch, "is compressed")
    data, at = batch.data, HEAD_BYTES
    length, at = _read_varint(batch, at)
    if not 0 <= length <= len(data) - at:
        raise _wrong_marker(batch, f"says that its record has {length} bytes")
    # One byte of attributes, then time and offset.
    _, at = _read_varint(batch, at + 1)
    _, at = _read_varint(batch, at)
    key_bytes, at = _read_varint(batch, at)
    if not _VERSION_AND_TYPE.size <= key_bytes <= len(data) - at:
        raise _wrong_marker(batch, f"says that its key has {key_bytes} bytes")
    return bool(_VERSION_AND_TYPE.unpack_from(data, at)[1] == _ABORT)


def _read_varint(batch: Batch, at: int) -> tuple[int, int]:
    """Return the signed number of a record at a place, and the place after it."""
    data, value = batch.data, 0
    for shift in range(0, _VARINT_SHIFT_MAX + 1, 7):
        if at >= len(data):
            break
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
    raise _wrong_marker(batch, "has a number that does not end")


def _wrong_marker(batch: Batch, why: str) -> DamagedRecords:
    return DamagedRecords(f"the marker at offset {batch.base_offset} {why}")
