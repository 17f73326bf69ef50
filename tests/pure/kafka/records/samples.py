"""Record batches as brokers keep them, with any head."""

from collections.abc import Sequence
from struct import pack

from aiokafka.record.default_records import DefaultRecordBatchBuilder  # type: ignore[import-untyped]

TRANSACTIONAL, CONTROL = 0x10, 0x20
ABORT, COMMIT = 0, 1


def make_batch(
    base_offset: int,
    values: Sequence[bytes] = (b"value",),
    *,
    compression: int = 0,
    leader_epoch: int = 0,
    producer: tuple[int, int] = (-1, -1),
    is_transactional: bool = False,
) -> bytes:
    """Return a batch of these values."""
    builder = DefaultRecordBatchBuilder(2, compression, int(is_transactional), *producer, 0, 1_000_000)
    for number, value in enumerate(values):
        builder.append(number, 1_000, None, value, [])
    data = bytearray(builder.build())
    data[0:8] = base_offset.to_bytes(8, "big")
    data[12:16] = leader_epoch.to_bytes(4, "big")
    return bytes(data)


def make_marker(base_offset: int, producer: tuple[int, int], kind: int, *, key: bytes | None = None) -> bytes:
    """Return the marker that ends a transaction."""
    named = pack(">hh", 0, kind) if key is None else key
    # Attributes, time, offset, length of the key, key, length of the value, value, headers.
    record = b"\x00\x00\x00" + bytes([len(named) * 2]) + named + b"\x0c" + bytes(6) + b"\x00"
    builder = DefaultRecordBatchBuilder(2, 0, 1, *producer, -1, 1_000)
    builder.append(0, 1_000, b"", b"", [])
    data = bytearray(builder.build())[:61] + bytes([len(record) * 2]) + record
    data[0:8] = base_offset.to_bytes(8, "big")
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    data[22] |= TRANSACTIONAL | CONTROL
    return bytes(data)


def with_head(data: bytes, at: int, number: int, size: int) -> bytes:
    """Return a batch with another number in its head."""
    changed = bytearray(data)
    changed[at : at + size] = number.to_bytes(size, "big", signed=True)
    return bytes(changed)
