"""ShareFetch (API key 78), versions 1 and 2: acknowledgements and a wish for records in, records and their locks out.

An answer is a list of pieces: heads that are packed here, and the views of records as they were given, which are never joined.
The daemon decodes requests and encodes answers; a client, as the tests have one, does the reverse.

Source: KIP-932, KIP-1206, KIP-1222, message schema 78; Apache Kafka's `KafkaApis.handleShareFetchRequest` for the order of the rules.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import Any, Final, NamedTuple

from holdfast.api.share_consumer import (
    ELEMENTS_PER_STEP,
    NO_ENDPOINTS,
    TOPIC_SIZE_MIN,
    Fault,
    NamedTopics,
    NodeEndpoint,
    append_topics,
    checked_topic_id,
    encode_endpoints,
    find_malformed_group_id,
    find_malformed_member_id,
    read_endpoints,
    read_int32s,
    read_topics,
    read_topics_in_steps,
    too_many_names,
)
from holdfast.api.share_errors import acknowledge_code, fetch_code, request_code
from holdfast.api.share_state import expect_end
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.kafka.protocol.primitives import (
    MalformedBody,
    encode_string,
    encode_varint,
    read_count,
    read_nullable_string,
    read_varint,
    skip_tags,
)
from holdfast.records.native import maker

#: Inclusive.
VERSIONS: Final = (1, 2)
#: From here on a request has an acquire mode, and renews locks.
_MODE_FROM: Final = 2

BATCH_OPTIMIZED: Final = 0
RECORD_LIMIT: Final = 1

Piece = bytes | memoryview

_INVALID_REQUEST: Final = int(ErrorCode.INVALID_REQUEST)

_LIMITS: Final = Struct(">iiiiii")
_LIMITS_AND_MODE: Final = Struct(">iiiiiib?")
_HEAD: Final = Struct(">ih")
_CLEAN_HEAD: Final = Struct(">ihxi")
_CLEAN_PARTITION: Final = Struct(">ixxxxxxiix")
_CODE: Final = Struct(">h")
_INT32: Final = Struct(">i")
_PARTITION: Final = Struct(">ih")
_LEADER: Final = Struct(">iix")
_ACQUIRED: Final = Struct(">qqhx")
_ACQUIRED_SIZE_MIN: Final = _ACQUIRED.size
#: Partition, codes, texts, leader with its tags, no records, no ranges, tags.
_FETCHED_SIZE_MIN: Final = 22
_pack_clean_head: Final = _CLEAN_HEAD.pack
_pack_clean_partition: Final = _CLEAN_PARTITION.pack
_pack_acquired: Final = _ACQUIRED.pack
#: One range or two, as nearly always, with their number before them and the tags of the partition after them.
_pack_one_acquired: Final = Struct(">BqqhxB").pack
_pack_two_acquired: Final = Struct(">BqqhxqqhxB").pack


class ShareFetchRequest(NamedTuple):
    """A wish for records, with acknowledgements of others."""

    group_id: str | None
    member_id: str | None
    #: 0 begins a session, -1 ends it.
    session_epoch: int
    topics: NamedTopics
    #: Topics and partitions that leave the session, in the order of the wire.
    forgotten: list[tuple[bytes, list[int]]]
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    max_records: int
    batch_size: int
    acquire_mode: int = BATCH_OPTIMIZED
    #: Whether types may be 4, and nothing is fetched.
    is_renew: bool = False


class LockedRange(NamedTuple):
    """Offsets that belong to the client until their lock ends."""

    first_offset: int
    #: Inclusive.
    last_offset: int
    delivery_count: int


class FetchedPartition(NamedTuple):
    """The answer about one partition."""

    partition: int
    #: Whole record batches as the broker stored them, in pieces of any size.
    records: Sequence[Piece] = ()
    acquired: Sequence[tuple[int, int, int]] = ()
    #: Any code: `share_errors.fetch_code` says what leaves.
    error_code: int = 0
    error_message: str | None = None
    #: Any code: `share_errors.acknowledge_code` says what leaves.
    acknowledge_error_code: int = 0
    acknowledge_error_message: str | None = None
    #: Told with an error that means another leader; -1: unknown. Clients believe 0.
    leader_id: int = -1
    leader_epoch: int = -1


#: Partitions of an answer by topic; each topic id and each partition of it once.
FetchedTopics = Sequence[tuple[bytes, Sequence[FetchedPartition]]]


class ShareFetchResponse(NamedTuple):
    """The answer to a ShareFetch."""

    topics: FetchedTopics
    #: Duration of the group's locks.
    lock_timeout_ms: int
    error_code: int = 0
    error_message: str | None = None
    #: The addresses of the leaders that partitions name.
    endpoints: Sequence[NodeEndpoint] = ()
    throttle_ms: int = 0


_make_request: Final[Callable[[tuple[object, ...]], ShareFetchRequest]] = maker(ShareFetchRequest)


# ---- requests --------------------------------------------------------------------------------------------------------


def find_malformed_fetch(request: ShareFetchRequest) -> Fault | None:
    """Return the error code and text of an answer that refuses a whole request, None if it is one that may be carried out.

    Kafka looks at rights after the group id (`find_malformed_group_id`) and before all else; the session comes after this.
    """
    fault = find_malformed_group_id(request.group_id) or find_malformed_member_id(request.member_id)
    if fault is not None:
        return fault
    if request.is_renew:
        limits = (request.max_wait_ms, request.min_bytes, request.max_bytes, request.max_records)
        for name, limit in zip(("MaxWaitMs", "MinBytes", "MaxBytes", "MaxRecords"), limits, strict=True):
            if limit:
                text = f"{name} is {limit} in a request with IsRenewAck, which fetches nothing; send 0."
                return _INVALID_REQUEST, text
    if request.acquire_mode not in (BATCH_OPTIMIZED, RECORD_LIMIT):
        text = f"ShareAcquireMode is {request.acquire_mode}; send 0 (batch_optimized) or 1 (record_limit)."
        return _INVALID_REQUEST, text
    return None


def decode_request(version: int, data: bytes, offset: int = 0) -> ShareFetchRequest:
    """Return the request whose body reaches from `offset` to the end of `data`.

    Raises:
        MalformedBody: the body is cut off, holds a null or a length that cannot be, has bytes after its end, or holds more
            than one request may.
    """
    fields, offset = _read_head(version, data, offset)
    topics, offset, names_left = read_topics(data, offset)
    forgotten: list[tuple[bytes, list[int]]] = []
    if offset + 2 != len(data) or data[offset] != 1 or data[offset + 1]:  # nearly always nothing, and no tags
        count, names_left, offset = _read_forgotten_count(data, offset, names_left)
        for _ in range(count):
            names_left, offset = _read_forgotten(data, offset, names_left, forgotten)
        expect_end(data, offset)
    return _make_request((*fields[:3], topics, forgotten, *fields[3:]))


def decode_in_steps(version: int, data: bytes, offset: int = 0) -> Generator[bool, None, ShareFetchRequest]:
    """Do what `decode_request` does, in steps of a millisecond or so, for a large request; each yields True."""
    fields, offset = _read_head(version, data, offset)
    topics, offset, names_left = yield from read_topics_in_steps(data, offset)
    forgotten: list[tuple[bytes, list[int]]] = []
    count, names_left, offset = _read_forgotten_count(data, offset, names_left)
    for number in range(1, count + 1):
        names_left, offset = _read_forgotten(data, offset, names_left, forgotten)
        if number % ELEMENTS_PER_STEP == 0:
            yield True
    expect_end(data, offset)
    return _make_request((*fields[:3], topics, forgotten, *fields[3:]))


def _read_head(version: int, data: bytes, offset: int) -> tuple[tuple[Any, ...], int]:
    """Return the fields of a request without its topics, in the order that its value has, and where the topics begin."""
    group_id, offset = read_nullable_string(data, offset, "GroupId")
    member_id, offset = read_nullable_string(data, offset, "MemberId")
    try:
        if version < _MODE_FROM:
            limits = _LIMITS.unpack_from(data, offset)
            return (group_id, member_id, *limits, BATCH_OPTIMIZED, False), offset + _LIMITS.size
        limits = _LIMITS_AND_MODE.unpack_from(data, offset)
        return (group_id, member_id, *limits), offset + _LIMITS_AND_MODE.size
    except StructError as error:
        raise MalformedBody("ShareSessionEpoch", offset, "the bytes end in the middle of it or soon after") from error


def _read_forgotten_count(data: bytes, offset: int, names_left: int) -> tuple[int, int, int]:
    """Return the number of topics that leave a session, how many names may follow, and the offset of the first."""
    count, offset = read_count(data, offset, TOPIC_SIZE_MIN, "ForgottenTopicsData")
    if count > names_left:
        raise too_many_names("ForgottenTopicsData", offset)
    return count, names_left - count, offset


def _read_forgotten(
    data: bytes, offset: int, names_left: int, forgotten: list[tuple[bytes, list[int]]]
) -> tuple[int, int]:
    """Append the topic at `offset`; returns how many names may follow, and the offset after it."""
    count, _ = read_count(data, offset + 16, 4, "ForgottenTopicsData.Partitions")
    if count > names_left:
        raise too_many_names("ForgottenTopicsData", offset)
    partitions, end = read_int32s(data, offset + 16, "ForgottenTopicsData.Partitions")
    forgotten.append((data[offset : offset + 16], partitions))
    return names_left - count, skip_tags(data, end, "ForgottenTopicsData")


def encode_request(version: int, request: ShareFetchRequest) -> bytes:
    """Return the body of a request; version 1 leaves out the mode and the renewal.

    Raises:
        ValueError: a topic id is not 16 bytes, or a number does not fit its field.
    """
    parts = [encode_string(request.group_id), encode_string(request.member_id)]
    limits = (
        request.session_epoch,
        request.max_wait_ms,
        request.min_bytes,
        request.max_bytes,
        request.max_records,
        request.batch_size,
    )
    try:
        if version < _MODE_FROM:
            parts.append(_LIMITS.pack(*limits))
        else:
            parts.append(_LIMITS_AND_MODE.pack(*limits, request.acquire_mode, request.is_renew))
        append_topics(parts, request.topics)
        parts.append(encode_varint(len(request.forgotten) + 1))
        for topic_id, partitions in request.forgotten:
            parts += (checked_topic_id(topic_id), encode_varint(len(partitions) + 1))
            parts += map(_INT32.pack, partitions)
            parts.append(b"\x00")
    except StructError as error:
        raise ValueError(f"A number does not fit its field: {error}.") from error
    parts.append(b"\x00")
    return b"".join(parts)


# ---- answers ---------------------------------------------------------------------------------------------------------


def encode_response(response: ShareFetchResponse) -> list[Piece]:
    """Return the body of an answer in pieces, which is the same in both versions; the records are those given.

    Raises:
        StructError: a number does not fit its field.
    """
    topics, lock_timeout_ms, error_code, error_message, endpoints, throttle_ms = response
    if error_code or error_message is not None:
        head = b"%b%b%b" % (
            _HEAD.pack(throttle_ms, request_code(error_code)),
            encode_string(error_message),
            _INT32.pack(lock_timeout_ms),
        )
    else:
        head = _pack_clean_head(throttle_ms, 0, lock_timeout_ms)
    pieces: list[Piece] = []
    # Bytes that come before the next records.
    parts: list[bytes] = [head, encode_varint(len(topics) + 1)]
    for topic_id, partitions in topics:
        parts.append(topic_id)
        parts.append(encode_varint(len(partitions) + 1))
        for fetched in partitions:
            partition, records, acquired, code, message, acknowledge_error, acknowledge_message, leader, epoch = fetched
            if code or acknowledge_error or message is not None or acknowledge_message is not None:
                parts.append(_PARTITION.pack(partition, fetch_code(code)))
                parts.append(encode_string(message))
                parts.append(_CODE.pack(acknowledge_code(acknowledge_error)))
                parts.append(encode_string(acknowledge_message))
                parts.append(_LEADER.pack(leader, epoch))
            else:
                parts.append(_pack_clean_partition(partition, leader, epoch))
            size = 0
            for view in records:
                size += len(view)
            parts.append(encode_varint(size + 1))
            if size:
                pieces.append(b"".join(parts))
                pieces.extend(records)
                parts = []
            parts.append(_encode_acquired(acquired))
        parts.append(b"\x00")
    parts.append(NO_ENDPOINTS if not endpoints else encode_endpoints(endpoints))
    pieces.append(b"".join(parts))
    return pieces


def _encode_acquired(acquired: Sequence[tuple[int, int, int]]) -> bytes:
    """Return the ranges that were acquired, and the tagged fields of their partition."""
    count = len(acquired)
    if count == 0:
        return b"\x01\x00"
    if count == 1:
        first_offset, last_offset, delivery_count = acquired[0]
        return _pack_one_acquired(2, first_offset, last_offset, delivery_count, 0)
    if count == 2:
        return _pack_two_acquired(3, *acquired[0], *acquired[1], 0)
    ranges = [
        _pack_acquired(first_offset, last_offset, delivery_count)
        for first_offset, last_offset, delivery_count in acquired
    ]
    return b"%b%b\x00" % (encode_varint(count + 1), b"".join(ranges))


def decode_response(data: bytes, offset: int = 0) -> ShareFetchResponse:
    """Return the answer whose body reaches from `offset` to the end of `data`; its records are one view of `data` each, or none.

    Raises:
        MalformedBody: the body is cut off, holds a null or a length that cannot be, or has bytes after its end.
    """
    view = memoryview(data)
    topics: list[tuple[bytes, list[FetchedPartition]]] = []
    try:
        throttle_ms, error_code = _HEAD.unpack_from(data, offset)
        error_message, offset = read_nullable_string(data, offset + _HEAD.size, "ErrorMessage")
        (lock_timeout_ms,) = _INT32.unpack_from(data, offset)
        count, offset = read_count(data, offset + 4, TOPIC_SIZE_MIN, "Responses")
        for _ in range(count):
            topic_id = data[offset : offset + 16]
            partition_count, offset = read_count(data, offset + 16, _FETCHED_SIZE_MIN, "Responses.Partitions")
            partitions = []
            for _ in range(partition_count):
                partition, offset = _read_fetched(data, view, offset)
                partitions.append(partition)
            offset = skip_tags(data, offset, "Responses")
            topics.append((topic_id, partitions))
    except StructError as error:
        raise MalformedBody("Responses", offset, "the bytes end in the middle of it") from error
    endpoints, offset = read_endpoints(data, offset)
    expect_end(data, offset)
    return ShareFetchResponse(topics, lock_timeout_ms, error_code, error_message, endpoints, throttle_ms)


def _read_fetched(data: bytes, view: memoryview, offset: int) -> tuple[FetchedPartition, int]:
    """Return the partition at `offset`, and the offset after it."""
    field = "Responses.Partitions"
    partition, error_code = _PARTITION.unpack_from(data, offset)
    error_message, offset = read_nullable_string(data, offset + _PARTITION.size, f"{field}.ErrorMessage")
    (acknowledge_error_code,) = _CODE.unpack_from(data, offset)
    acknowledge_message, offset = read_nullable_string(data, offset + 2, f"{field}.AcknowledgeErrorMessage")
    leader_id, leader_epoch = _LEADER.unpack_from(data, offset)
    offset = skip_tags(data, offset + 8, f"{field}.CurrentLeader")
    length, start = read_varint(data, offset, f"{field}.Records")
    if not length:
        raise MalformedBody(f"{field}.Records", offset, "it must not be null")
    offset = start + length - 1
    if offset > len(data):
        left = len(data) - start
        raise MalformedBody(f"{field}.Records", start, f"{length - 1} bytes are announced and {left} are left")
    records = (view[start:offset],) if length > 1 else ()
    count, offset = read_count(data, offset, _ACQUIRED_SIZE_MIN, f"{field}.AcquiredRecords")
    acquired: list[tuple[int, int, int]] = []
    for _ in range(count):
        acquired.append(LockedRange(*_ACQUIRED.unpack_from(data, offset)))
        offset = skip_tags(data, offset + _ACQUIRED.size - 1, f"{field}.AcquiredRecords")
    offset = skip_tags(data, offset, field)
    fetched = FetchedPartition(
        partition,
        records,
        acquired,
        error_code,
        error_message,
        acknowledge_error_code,
        acknowledge_message,
        leader_id,
        leader_epoch,
    )
    return fetched, offset
