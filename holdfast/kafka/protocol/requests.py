"""The bytes of the requests the log makes itself: Produce, Fetch, ListOffsets and DeleteRecords.

Most are made once per turn of the loop for many partitions, so they are packed by hand; everything else goes through kio or librdkafka.
Every answer is read to its end, so that one that was cut short is never taken for a shorter one.

Source: Apache Kafka's message schemas Produce v8, Fetch v12, ListOffsets v5, DeleteRecords v1 (all spoken by brokers from 3.1 to 4.x).
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import Final, NamedTuple, TypeVar

from holdfast.kafka.errors import UnreadableAnswer
from holdfast.kafka.protocol import api_keys
from holdfast.kafka.protocol.native import twins
from holdfast.kafka.protocol.primitives import (
    MalformedBody,
    encode_string,
    encode_varint,
    read_count,
    read_string,
    read_tags,
    read_varint,
    skip_tags,
)

T = TypeVar("T")

# API key and version.
PRODUCE: Final = (api_keys.PRODUCE, 8)
FETCH: Final = (api_keys.FETCH, 12)
LIST_OFFSETS: Final = (api_keys.LIST_OFFSETS, 5)
DELETE_RECORDS: Final = (api_keys.DELETE_RECORDS, 1)

EARLIEST: Final = -2
LATEST: Final = -1

#: The tagged field of a fetched partition that says that its log was truncated.
_DIVERGING_EPOCH: Final = 0

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_PRODUCED: Final = Struct(">ihqqqih")  # and, where there are no errors of single records, the length of the message
_TARGET: Final = Struct(">iiq")
_DELETE_TARGET: Final = Struct(">iqi")
_FETCH_HEAD: Final = Struct(">iiiibii")
_FETCH_PARTITION: Final = Struct(">iiqiqi")
_FETCHED_HEAD: Final = Struct(">ihi")
_FETCHED_PARTITION: Final = Struct(">ihqqq")
_OFFSETS_HEAD: Final = Struct(">ii")
_OFFSET_FOUND: Final = Struct(">ihqqi")
_DELETED_TO: Final = Struct(">iqh")


class Produced(NamedTuple):
    """What became of one partition's batch."""

    partition: int
    error_code: int
    #: Of its first record; with error 0 all of it is below the high watermark.
    base_offset: int
    message: str


# Its own constructor is Python's, which takes twice the time.
_make_produced: Final[Callable[[tuple[int, int, int, str]], Produced]] = partial(tuple.__new__, Produced)
# Final, for it is used at every request: docs/decisions/build.md.
_PRODUCED_TYPE: Final = Produced
_encode_produce_in_c: Final = None if twins is None else twins.encode_produce
_decode_produced_in_c: Final = None if twins is None else twins.decode_produced


class FetchTarget(NamedTuple):
    """From where one partition is to be fetched."""

    partition: int
    #: -1: not checked.
    leader_epoch: int
    offset: int
    #: Leader epoch of the batch before; -1: unknown.
    last_fetched_epoch: int


class Fetched(NamedTuple):
    """What a fetch brought of one partition."""

    partition: int
    error_code: int
    high_watermark: int
    log_start_offset: int
    #: The leader's log was truncated below what was fetched.
    is_diverging: bool
    records: bytes


class FetchAnswer(NamedTuple):
    """What a fetch brought."""

    #: Of the session.
    error_code: int
    #: 0: the broker keeps no session.
    session_id: int
    #: For how long the broker reads nothing on this connection, because a quota was exceeded (KIP-219).
    throttle_ms: int
    partitions: list[Fetched]


def read_answer(decode: Callable[[bytes], T], data: bytes) -> T:
    """Return what `decode`, a decoder of this module, makes of a broker's answer.

    Raises:
        UnreadableAnswer: the bytes do not follow the message; whatever else is raised is a bug of ours.
    """
    try:
        return decode(data)
    except (MalformedBody, StructError, UnicodeDecodeError) as error:
        raise UnreadableAnswer(f"a broker sent an answer that cannot be read: {error}") from error


def encode_produce(topic: str, timeout_ms: int, batches: Iterable[tuple[int, bytes]]) -> bytes:
    """Return a request that appends one record batch to each of several partitions, acknowledged by all in sync."""
    if _encode_produce_in_c is not None:
        body = _encode_produce_in_c(topic, timeout_ms, batches)
        if body is not None:
            return body
    return encode_produce_in_python(topic, timeout_ms, batches)


def encode_produce_in_python(topic: str, timeout_ms: int, batches: Iterable[tuple[int, bytes]]) -> bytes:
    """Answer as `encode_produce` does."""
    parts = [b"\xff\xff", _INT16.pack(-1), _INT32.pack(timeout_ms), _INT32.pack(1), _text(topic), b""]
    count = 0
    for partition, batch in batches:
        parts += (_INT32.pack(partition), _INT32.pack(len(batch)), batch)
        count += 1
    parts[5] = _INT32.pack(count)
    return b"".join(parts)


def decode_produced(data: bytes) -> tuple[list[Produced], int]:
    """Return what became of each batch, and for how many ms the broker reads nothing on this connection (KIP-219)."""
    found = []
    topics, at = _read_length(data, 0)
    for _ in range(topics):
        _, at = _read_text(data, at)
        count, at = _read_length(data, at)
        for _ in range(count):
            partition, error_code, base_offset, _, _, errors, length = _PRODUCED.unpack_from(data, at)
            at += _PRODUCED.size
            message = ""
            if errors > 0 or length >= 0:
                at -= 2  # the first message is that of a single record where there are errors of these
                for _ in range(errors):
                    _, at = _read_text(data, at + 4)
                message, at = _read_text(data, at)
            found.append(_make_produced((partition, error_code, base_offset, message)))
    return found, _read_int32(data, at)


def read_produced(data: bytes) -> tuple[list[Produced], int]:
    """Return what `decode_produced` makes of a broker's answer; it decodes what its twin leaves to it.

    Raises:
        UnreadableAnswer: as `read_answer`.
    """
    if _decode_produced_in_c is not None:  # each batch has such an answer, so it takes the shortest way
        answer = _decode_produced_in_c(_PRODUCED_TYPE, data)
        if answer is not None:
            return answer
    return read_answer(decode_produced, data)


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
    named = encode_string(topic)
    parts = [_FETCH_HEAD.pack(-1, wait_ms, 1, bytes_max, 0, *session)]
    if targets:
        parts += (b"\x02", named, encode_varint(len(targets) + 1))
        for partition, leader_epoch, offset, last_epoch in targets:
            parts += (
                _FETCH_PARTITION.pack(partition, leader_epoch, offset, last_epoch, -1, partition_bytes_max),
                b"\x00",
            )
        parts.append(b"\x00")
    else:
        parts.append(b"\x01")
    if forgotten:
        parts += (b"\x02", named, encode_varint(len(forgotten) + 1), *map(_INT32.pack, forgotten), b"\x00")
    else:
        parts.append(b"\x01")
    parts.append(b"\x01\x00")
    return b"".join(parts)


def decode_fetched(data: bytes) -> FetchAnswer:
    """Return what came of each partition, and what became of the session."""
    throttle_ms, error_code, session_id = _FETCHED_HEAD.unpack_from(data)
    topics, at = read_count(data, _FETCHED_HEAD.size, 3, "Responses")
    found = []
    for _ in range(topics):
        _, at = read_string(data, at, "Responses.Topic")
        partitions, at = read_count(data, at, _FETCHED_PARTITION.size, "Responses.Partitions")
        for _ in range(partitions):
            partition, partition_error, high_watermark, _, log_start = _FETCHED_PARTITION.unpack_from(data, at)
            aborted, at = read_varint(data, at + _FETCHED_PARTITION.size, "Responses.Partitions.AbortedTransactions")
            for _ in range(aborted - 1):
                at = skip_tags(data, at + 16, "Responses.Partitions.AbortedTransactions")
            # The preferred read replica lies between.
            size, at = read_varint(data, at + 4, "Responses.Partitions.Records")
            end = at + max(0, size - 1)
            records = data[at:end]
            tags, at = read_tags(data, end, "Responses.Partitions.tags")
            is_diverging = any(tag == _DIVERGING_EPOCH for tag, _ in tags)
            found.append(Fetched(partition, partition_error, high_watermark, log_start, is_diverging, records))
        at = skip_tags(data, at, "Responses.tags")
    skip_tags(data, at, "tags")
    return FetchAnswer(error_code, session_id, throttle_ms, found)


def encode_list_offsets(topic: str, targets: Sequence[tuple[int, int, int]]) -> bytes:
    """Return a request for offsets: (partition, leader epoch or -1, EARLIEST or LATEST); latest is the high watermark."""
    # Replica -1, isolation level 0, one topic.
    parts = [b"\xff\xff\xff\xff\x00\x00\x00\x00\x01", _text(topic), _INT32.pack(len(targets))]
    parts += [_TARGET.pack(*target) for target in targets]
    return b"".join(parts)


def decode_offsets(data: bytes) -> tuple[dict[int, tuple[int, int]], int]:
    """Return (error code, offset) by partition, and for how many ms the broker reads nothing on this connection (KIP-219)."""
    found = {}
    throttle_ms, topics = _OFFSETS_HEAD.unpack_from(data)
    at = _OFFSETS_HEAD.size
    for _ in range(topics):
        _, at = _read_text(data, at)
        count, at = _read_length(data, at)
        ends_at = at + count * _OFFSET_FOUND.size
        if ends_at > len(data):
            raise MalformedBody("Topics.Partitions", at, f"{count} are announced, in {len(data) - at} bytes")
        for partition, error_code, _, offset, _ in _OFFSET_FOUND.iter_unpack(data[at:ends_at]):
            found[partition] = (error_code, offset)
        at = ends_at
    return found, throttle_ms


def encode_delete_records(topic: str, timeout_ms: int, partition: int, before_offset: int) -> bytes:
    """Return a request to delete what lies below an offset of one partition."""
    named = _INT32.pack(1) + _text(topic) + _INT32.pack(1)
    return named + _DELETE_TARGET.pack(partition, before_offset, timeout_ms)


def decode_deleted(data: bytes) -> tuple[int, int]:
    """Return (error code, where the log starts now) of the one partition that was named."""
    _, at = _read_length(data, 4)
    _, at = _read_text(data, at)
    _, at = _read_length(data, at)
    _, log_start_offset, error_code = _DELETED_TO.unpack_from(data, at)
    return error_code, log_start_offset


# The forms before KIP-482, which `primitives` has not.


def _text(value: str) -> bytes:
    data = value.encode()
    return _INT16.pack(len(data)) + data


def _read_text(data: bytes, at: int) -> tuple[str, int]:
    """Return a string, empty for null, and the offset behind it."""
    (length,) = _INT16.unpack_from(data, at)
    end = at + 2 + max(0, length)
    if end > len(data):
        raise MalformedBody("a string", at, f"{length} bytes are announced and {len(data) - at - 2} are left")
    return data[at + 2 : end].decode(), end


def _read_length(data: bytes, at: int) -> tuple[int, int]:
    """Return the number of elements of an array, 0 for null, and the offset of the first."""
    return max(0, _read_int32(data, at)), at + 4


def _read_int32(data: bytes, at: int) -> int:
    number: int = _INT32.unpack_from(data, at)[0]
    return number
