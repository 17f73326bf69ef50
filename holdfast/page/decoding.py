"""The records of a fetched batch, decompressed and decoded within a bound.

Source: Apache Kafka's record batch format, magic 2.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from holdfast.kafka.aiokafka_parts import read_batch
from holdfast.kafka.decompression import TooLarge, decompress
from holdfast.kafka.records.batches import HEAD_BYTES, Batch

#: The bytes that a batch may have without its compression: as much as a broker's default allows for the compressed one, sixteen times.
BATCH_BYTES_MAX: Final = 16 << 20
#: A batch's length counts neither its base offset nor itself.
_UNCOUNTED_BYTES: Final = 12
_LENGTH, _LENGTH_AT = Struct(">i"), 8
_ATTRIBUTES, _ATTRIBUTES_AT = Struct(">h"), 21
_CODEC: Final = 0x07


class UnreadableBatch(Exception):
    """A batch cannot be decoded; the text says why."""


class TopicRecord(NamedTuple):
    """One record of a topic."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def decode_batch(batch: Batch, from_offset: int = 0) -> Iterator[TopicRecord]:
    """Yield the records of a batch from an offset on; none of a marker.

    Raises:
        UnreadableBatch: its checksum is wrong, it is no batch, or it is larger than `BATCH_BYTES_MAX` without its compression.
    """
    if batch.is_control:
        return
    data = bytes(batch.data)
    try:
        decoded = read_batch(data)
        if decoded is None or not decoded.validate_crc():
            raise UnreadableBatch("its checksum is wrong")
        if batch.compression:
            decoded = read_batch(_without_compression(data, batch))
        for record in decoded:
            if record.offset >= from_offset:
                headers = tuple((str(name), value) for name, value in record.headers)
                yield TopicRecord(record.offset, record.timestamp, record.key, record.value, headers)
    except (UnreadableBatch, TooLarge) as error:
        raise UnreadableBatch(f"the batch at offset {batch.base_offset} cannot be read: {error}") from error
    except Exception as error:  # the libraries raise many classes
        raise UnreadableBatch(f"the batch at offset {batch.base_offset} cannot be read: {error!r}") from error


def _without_compression(data: bytes, batch: Batch) -> bytes:
    """Return a batch whose records are not compressed; its checksum stays that of the compressed ones."""
    records = decompress(batch.compression, data[HEAD_BYTES:], BATCH_BYTES_MAX)
    head = bytearray(data[:HEAD_BYTES])
    _LENGTH.pack_into(head, _LENGTH_AT, HEAD_BYTES - _UNCOUNTED_BYTES + len(records))
    _ATTRIBUTES.pack_into(head, _ATTRIBUTES_AT, batch.attributes & ~_CODEC)
    return bytes(head) + records
