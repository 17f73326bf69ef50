"""The brokers' side of the protocol: requests taken apart, answers put together. Written from Kafka's schemas, apart from the shipped code.

Source: Apache Kafka's message schemas Produce v8, Fetch v12, ListOffsets v5, Metadata v12, DeleteRecords v1.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

PRODUCE, FETCH, LIST_OFFSETS, METADATA, DELETE_RECORDS = 0, 1, 2, 3, 21
EARLIEST, LATEST = -2, -1

NONE, OUT_OF_RANGE, NOT_LEADER, TIMED_OUT = 0, 1, 6, 7
TOO_LARGE = 10
FEW_REPLICAS, FEW_REPLICAS_AFTER_APPEND = 19, 20
SESSION_UNKNOWN, SESSION_EPOCH_WRONG = 70, 71
FENCED_EPOCH, UNKNOWN_EPOCH, OFFSET_NOT_AVAILABLE = 74, 75, 78
UNKNOWN_TOPIC = 3

VERSIONS = {PRODUCE: (0, 11), FETCH: (4, 17), LIST_OFFSETS: (1, 10), METADATA: (0, 13), DELETE_RECORDS: (0, 2)}
FLEXIBLE = {(FETCH, 12), (METADATA, 12)}


class Target(NamedTuple):
    """A partition of a Fetch."""

    leader_epoch: int
    offset: int
    last_epoch: int
    bytes_max: int


class FetchRequest(NamedTuple):
    """What a Fetch asks."""

    wait_ms: int
    bytes_max: int
    session_id: int
    session_epoch: int
    targets: dict[int, Target]
    forgotten: list[int]


class Found(NamedTuple):
    """What a Fetch answers of a partition."""

    error_code: int
    high_watermark: int
    log_start: int
    records: bytes = b""
    diverging: tuple[int, int] | None = None


_FETCH_HEAD = Struct(">iiiibii")
_TARGET = Struct(">iiqiqi")
_FOUND = Struct(">ihqqq")
_ASKED = Struct(">iiq")


def _uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes((*out, value))


def _read_uvarint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


def _int32(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "big", signed=True)


def decode_produce(body: bytes) -> tuple[int, dict[int, bytes]]:
    """Return (time-out in ms, batch by partition)."""
    assert body[:4] == b"\xff\xff\xff\xff", "no transaction, acknowledged by all"
    timeout_ms = _int32(body, 4)
    at = 14 + int.from_bytes(body[12:14], "big")
    count, at = _int32(body, at), at + 4
    batches = {}
    for _ in range(count):
        partition, size = _int32(body, at), _int32(body, at + 4)
        assert partition not in batches, "a partition stands twice in a Produce"
        batches[partition] = body[at + 8 : at + 8 + size]
        at += 8 + size
    assert at == len(body)
    return timeout_ms, batches


def encode_produced(topic: str, outcomes: Iterable[tuple[int, int, int]], throttle_ms: int) -> bytes:
    """Return the answer to a Produce: (partition, error code, base offset) of each batch."""
    parts = [b"".join((partition.to_bytes(4, "big"), error.to_bytes(2, "big"), base.to_bytes(8, "big", signed=True),
             b"\xff" * 8, bytes(8), bytes(4), b"\xff\xff")) for partition, error, base in outcomes]  # fmt: skip
    name = topic.encode()
    head = (1).to_bytes(4, "big") + len(name).to_bytes(2, "big") + name + len(parts).to_bytes(4, "big")
    return head + b"".join(parts) + throttle_ms.to_bytes(4, "big")


def decode_produced(body: bytes) -> list[tuple[int, int, int]]:
    """Return (partition, error code, base offset) of each batch, of an answer that `encode_produced` made."""
    at = 6 + int.from_bytes(body[4:6], "big")
    count, at = _int32(body, at), at + 4
    return [
        (partition, error_code, base_offset)
        for partition, error_code, base_offset, _, _ in (
            Struct(">ihqqq").unpack_from(body, at + 36 * number) for number in range(count)
        )
    ]


def decode_fetch(body: bytes) -> FetchRequest:
    """Return what a Fetch asks."""
    _, wait_ms, _, bytes_max, _, session_id, session_epoch = _FETCH_HEAD.unpack_from(body)
    count, at = _read_uvarint(body, _FETCH_HEAD.size)
    targets: dict[int, Target] = {}
    for _ in range(count - 1):
        length, at = _read_uvarint(body, at)
        partitions, at = _read_uvarint(body, at + length - 1)
        for _ in range(partitions - 1):
            partition, leader_epoch, offset, last_epoch, _, bytes_of_one = _TARGET.unpack_from(body, at)
            targets[partition] = Target(leader_epoch, offset, last_epoch, bytes_of_one)
            at += _TARGET.size + 1
        at += 1
    count, at = _read_uvarint(body, at)
    forgotten: list[int] = []
    for _ in range(count - 1):
        length, at = _read_uvarint(body, at)
        partitions, at = _read_uvarint(body, at + length - 1)
        forgotten += (_int32(body, at + 4 * number) for number in range(partitions - 1))
        at += 4 * (partitions - 1) + 1
    assert body[at:] == b"\x01\x00"
    return FetchRequest(wait_ms, bytes_max, session_id, session_epoch, targets, forgotten)


def encode_fetched(
    topic: str, session_id: int, found: dict[int, Found], throttle_ms: int, error_code: int = 0
) -> bytes:
    """Return the answer to a Fetch."""
    head = throttle_ms.to_bytes(4, "big") + error_code.to_bytes(2, "big") + session_id.to_bytes(4, "big")
    if not found:
        return head + b"\x01\x00"
    name = topic.encode()
    parts = [head, b"\x02", _uvarint(len(name) + 1), name, _uvarint(len(found) + 1)]
    for partition, (error, high_watermark, log_start, records, diverging) in found.items():
        parts += (
            _FOUND.pack(partition, error, high_watermark, high_watermark, log_start),
            b"\x00\xff\xff\xff\xff",
            _uvarint(len(records) + 1),
            records,
        )
        if diverging is None:
            parts.append(b"\x00")
        else:
            value = Struct(">iq").pack(*diverging) + b"\x00"
            parts += (b"\x01\x00", _uvarint(len(value)), value)
    return b"".join((*parts, b"\x00\x00"))


def decode_list_offsets(body: bytes) -> dict[int, tuple[int, int]]:
    """Return (leader epoch, EARLIEST or LATEST) by partition."""
    at = 11 + int.from_bytes(body[9:11], "big")
    count, at = _int32(body, at), at + 4
    found = {}
    for number in range(count):
        partition, leader_epoch, which = _ASKED.unpack_from(body, at + number * _ASKED.size)
        found[partition] = (leader_epoch, which)
    return found


def encode_offsets(topic: str, found: dict[int, tuple[int, int, int]], throttle_ms: int) -> bytes:
    """Return the answer to a ListOffsets: (error code, offset, leader epoch) by partition."""
    name = topic.encode()
    parts = [throttle_ms.to_bytes(4, "big"), (1).to_bytes(4, "big"), len(name).to_bytes(2, "big"), name]
    parts.append(len(found).to_bytes(4, "big"))
    for partition, (error, offset, leader_epoch) in found.items():
        parts.append(Struct(">ihqqi").pack(partition, error, -1, offset, leader_epoch))
    return b"".join(parts)


def decode_delete(body: bytes) -> tuple[int, int]:
    """Return (partition, before which offset) of a DeleteRecords."""
    at = 10 + int.from_bytes(body[4:6], "big")
    return Struct(">iq").unpack_from(body, at)


def encode_deleted(topic: str, partition: int, error_code: int, log_start: int, throttle_ms: int) -> bytes:
    """Return the answer to a DeleteRecords."""
    name = topic.encode()
    head = throttle_ms.to_bytes(4, "big") + (1).to_bytes(4, "big") + len(name).to_bytes(2, "big") + name
    return head + (1).to_bytes(4, "big") + Struct(">iqh").pack(partition, log_start, error_code)


def encode_metadata(
    topic: str, topic_id: bytes, brokers: dict[int, tuple[str, int]], leaders: dict[int, tuple[int, int]]
) -> bytes:
    """Return the answer to a Metadata: brokers by id, and (leader or -1, leader epoch) by partition."""
    name = topic.encode()
    parts = [bytes(4), _uvarint(len(brokers) + 1)]
    for broker_id, (host, port) in brokers.items():
        address = _uvarint(len(host) + 1) + host.encode() + port.to_bytes(4, "big")
        parts.append(broker_id.to_bytes(4, "big") + address + b"\x00\x00")
    parts += (_uvarint(8), b"cluster", (1).to_bytes(4, "big"), b"\x02", bytes(2), _uvarint(len(name) + 1), name)
    parts += (topic_id, b"\x00", _uvarint(len(leaders) + 1))
    for partition, (leader, leader_epoch) in leaders.items():
        parts.append(
            Struct(">hiii").pack(5 if leader < 0 else 0, partition, leader, leader_epoch) + b"\x01\x01\x01\x00"
        )
    return b"".join((*parts, bytes(4), b"\x00\x00"))


class Request(NamedTuple):
    """A request as it came."""

    api_key: int
    correlation_id: int
    is_flexible: bool
    body: bytes


def decode_request(frame: bytes) -> Request:
    """Return the request of a whole frame."""
    size, api_key, version, correlation_id, name_size = Struct(">ihhih").unpack_from(frame)
    assert size == len(frame) - 4, "a frame is written at once"
    is_flexible = (api_key, version) in FLEXIBLE
    return Request(api_key, correlation_id, is_flexible, frame[14 + name_size + is_flexible :])


def encode_answer(request: Request, body: bytes) -> bytes:
    """Return the frame of an answer."""
    tags = b"\x00" if request.is_flexible else b""
    size = 4 + len(tags) + len(body)
    return b"".join((size.to_bytes(4, "big"), request.correlation_id.to_bytes(4, "big"), tags, body))
