"""The bytes of the requests the log makes itself: Produce, Fetch, ListOffsets, Metadata and DeleteRecords.

Most are made once per turn of the loop for many partitions, so they are packed by hand; everything else goes through kio or librdkafka.

Source: Apache Kafka's message schemas Produce v8, Fetch v12, ListOffsets v5, Metadata v12, DeleteRecords v1 (all spoken by brokers
from 3.1 to 4.x).
"""

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final, NamedTuple

PRODUCE: Final = (0, 8)
FETCH: Final = (1, 12)  #: flexible
LIST_OFFSETS: Final = (2, 5)
METADATA: Final = (3, 12)  #: flexible
DELETE_RECORDS: Final = (21, 1)

EARLIEST: Final = -2
LATEST: Final = -1

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_PRODUCED = Struct(">ihqqq")
_FETCH_HEAD = Struct(">iiiibii")
_FETCH_PARTITION = Struct(">iiqiqi")
_FETCHED_HEAD = Struct(">ihi")
_FETCHED_PARTITION = Struct(">ihqqq")
_OFFSET_FOUND = Struct(">ihqqi")
_LED = Struct(">hiii")
_DELETED_TO = Struct(">iqh")


class Produced(NamedTuple):
    """What became of one partition's batch."""

    partition: int
    error_code: int
    base_offset: int  #: of its first record; with error 0 all of it is below the high watermark
    message: str


class FetchTarget(NamedTuple):
    """From where one partition is to be fetched."""

    partition: int
    leader_epoch: int  #: -1: not checked
    offset: int
    last_fetched_epoch: int  #: leader epoch of the batch before; -1: unknown


class Fetched(NamedTuple):
    """What a fetch brought of one partition."""

    partition: int
    error_code: int
    high_watermark: int
    log_start_offset: int
    is_diverging: bool  #: the leader's log was truncated below what was fetched
    records: bytes


class Leaders(NamedTuple):
    """The brokers, and who leads each partition of the topic, as one of them knows it."""

    brokers: dict[int, tuple[str, int]]
    topic_id: bytes  #: zeros: there is no such topic
    leaders: dict[int, tuple[int, int]]  #: partition to (broker id, leader epoch); without those that have no leader
    leader_epochs: dict[int, int]  #: of all partitions


def _text(value: str) -> bytes:
    data = value.encode()
    return _INT16.pack(len(data)) + data


def encode_produce(topic: str, timeout_ms: int, batches: Iterable[tuple[int, bytes]]) -> bytes:
    """Return a request that appends one record batch to each of several partitions, acknowledged by all in sync."""
    parts = [b"\xff\xff", _INT16.pack(-1), _INT32.pack(timeout_ms), _INT32.pack(1), _text(topic), b""]
    count = 0
    for partition, batch in batches:
        parts += (_INT32.pack(partition), _INT32.pack(len(batch)), batch)
        count += 1
    parts[5] = _INT32.pack(count)
    return b"".join(parts)


def decode_produced(data: bytes) -> list[Produced]:
    """Return what became of each batch."""
    at = 4
    (length,) = _INT16.unpack_from(data, at)
    at += 2 + length
    (count,) = _INT32.unpack_from(data, at)
    at += 4
    found = []
    for _ in range(count):
        partition, error_code, base_offset, _, _ = _PRODUCED.unpack_from(data, at)
        at += _PRODUCED.size
        (errors,) = _INT32.unpack_from(data, at)
        at += 4
        for _ in range(errors):
            _, at = _nullable(data, at + 4)
        message, at = _nullable(data, at)
        found.append(Produced(partition, error_code, base_offset, message))
    return found


def throttle_ms(api: tuple[int, int], data: bytes) -> int:
    """Return for how long the broker reads nothing on the connection of this answer, because a quota was exceeded.

    Source: KIP-219; ThrottleTimeMs ends the answer to Produce v8 and begins those to Fetch v12 and ListOffsets v5.
    """
    (found,) = _INT32.unpack_from(data, len(data) - _INT32.size if api == PRODUCE else 0)
    return int(found)


def encode_fetch(
    topic: str,
    session: tuple[int, int],
    wait_ms: int,
    bytes_max: int,
    partition_bytes_max: int,
    targets: Sequence[FetchTarget],
    forgotten: Sequence[int],
) -> bytes:
    """Return a fetch within a session (id, epoch): partitions that are new or moved, and those to leave out from now on."""
    named = _compact_text(topic)
    parts = [_FETCH_HEAD.pack(-1, wait_ms, 1, bytes_max, 0, *session)]
    if targets:
        parts += (b"\x02", named, _uvarint(len(targets) + 1))
        for partition, leader_epoch, offset, last_epoch in targets:
            parts += (
                _FETCH_PARTITION.pack(partition, leader_epoch, offset, last_epoch, -1, partition_bytes_max),
                b"\x00",
            )
        parts.append(b"\x00")
    else:
        parts.append(b"\x01")
    if forgotten:
        parts += (b"\x02", named, _uvarint(len(forgotten) + 1), *map(_INT32.pack, forgotten), b"\x00")
    else:
        parts.append(b"\x01")
    parts.append(b"\x01\x00")
    return b"".join(parts)


def decode_fetched(data: bytes) -> tuple[int, int, list[Fetched]]:
    """Return (error code of the session, session id, what came of each partition)."""
    _, error_code, session_id = _FETCHED_HEAD.unpack_from(data)
    topics, at = _read_uvarint(data, _FETCHED_HEAD.size)
    found = []
    for _ in range(topics - 1):
        length, at = _read_uvarint(data, at)
        at += length - 1
        partitions, at = _read_uvarint(data, at)
        for _ in range(partitions - 1):
            partition, partition_error, high_watermark, _, log_start = _FETCHED_PARTITION.unpack_from(data, at)
            at += _FETCHED_PARTITION.size
            aborted, at = _read_uvarint(data, at)
            for _ in range(aborted - 1):
                _, at = _read_tags(data, at + 16)
            size, at = _read_uvarint(data, at + 4)
            records = data[at : at + size - 1] if size > 1 else b""
            tags, at = _read_tags(data, at + max(0, size - 1))
            found.append(Fetched(partition, partition_error, high_watermark, log_start, 0 in tags, records))
        _, at = _read_tags(data, at)
    return error_code, session_id, found


def encode_list_offsets(topic: str, asked: Sequence[tuple[int, int, int]]) -> bytes:
    """Return a request for offsets: (partition, leader epoch or -1, EARLIEST or LATEST); latest is the high watermark."""
    parts = [b"\xff\xff\xff\xff\x00", _INT32.pack(1), _text(topic), _INT32.pack(len(asked))]
    parts += [Struct(">iiq").pack(*target) for target in asked]
    return b"".join(parts)


def decode_offsets(data: bytes) -> dict[int, tuple[int, int]]:
    """Return (error code, offset) by partition."""
    (length,) = _INT16.unpack_from(data, 8)
    at = 10 + length
    (count,) = _INT32.unpack_from(data, at)
    at += 4
    found = {}
    for number in range(count):
        partition, error_code, _, offset, _ = _OFFSET_FOUND.unpack_from(data, at + number * _OFFSET_FOUND.size)
        found[partition] = (error_code, offset)
    return found


def encode_delete_records(topic: str, timeout_ms: int, partition: int, before_offset: int) -> bytes:
    """Return a request to delete what lies below an offset of one partition."""
    named = _INT32.pack(1) + _text(topic) + _INT32.pack(1)
    return named + Struct(">iqi").pack(partition, before_offset, timeout_ms)


def decode_deleted(data: bytes) -> tuple[int, int]:
    """Return (error code, where the log starts now) of the one partition that was named."""
    (length,) = _INT16.unpack_from(data, 8)
    _, log_start_offset, error_code = _DELETED_TO.unpack_from(data, 14 + length)
    return error_code, log_start_offset


def encode_metadata(topic: str) -> bytes:
    """Return a request for the leaders of one topic, which is not created."""
    return b"\x02" + bytes(16) + _compact_text(topic) + b"\x00" + b"\x00\x00\x00"


def decode_metadata(data: bytes) -> Leaders:
    """Return the brokers and leaders."""
    count, at = _read_uvarint(data, 4)
    brokers = {}
    for _ in range(count - 1):
        (broker_id,) = _INT32.unpack_from(data, at)
        host, at = _read_compact_text(data, at + 4)
        (port,) = _INT32.unpack_from(data, at)
        brokers[broker_id] = (host, port)
        _, at = _read_compact_text(data, at + 4)
        _, at = _read_tags(data, at)
    _, at = _read_compact_text(data, at)
    topics, at = _read_uvarint(data, at + 4)
    assert topics == 2, "one topic was asked for"
    _, at = _read_compact_text(data, at + 2)
    topic_id = data[at : at + 16]
    count, at = _read_uvarint(data, at + 17)
    leaders, leader_epochs = {}, {}
    for _ in range(count - 1):
        _, partition, leader, leader_epoch = _LED.unpack_from(data, at)
        at += _LED.size
        for _ in range(3):
            replicas, at = _read_uvarint(data, at)
            at += 4 * max(0, replicas - 1)
        _, at = _read_tags(data, at)
        leader_epochs[partition] = leader_epoch
        if leader in brokers:
            leaders[partition] = (leader, leader_epoch)
    return Leaders(brokers, topic_id, leaders, leader_epochs)


def _compact_text(value: str) -> bytes:
    data = value.encode()
    return _uvarint(len(data) + 1) + data


def _read_compact_text(data: bytes, at: int) -> tuple[str, int]:
    length, at = _read_uvarint(data, at)
    end = at + max(0, length - 1)
    return data[at:end].decode(), end


def _nullable(data: bytes, at: int) -> tuple[str, int]:
    (length,) = _INT16.unpack_from(data, at)
    if length < 0:
        return "", at + 2
    return data[at + 2 : at + 2 + length].decode(), at + 2 + length


def _uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_uvarint(data: bytes, at: int) -> tuple[int, int]:
    value = data[at]
    if value < 128:
        return value, at + 1
    value &= 127
    shift = 7
    while True:
        at += 1
        byte = data[at]
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at + 1
        shift += 7


def _read_tags(data: bytes, at: int) -> tuple[list[int], int]:
    count, at = _read_uvarint(data, at)
    tags = []
    for _ in range(count):
        tag, at = _read_uvarint(data, at)
        size, at = _read_uvarint(data, at)
        at += size
        tags.append(tag)
    return tags, at
