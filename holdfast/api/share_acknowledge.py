"""ShareAcknowledge (API key 79), versions 1 and 2: acknowledgements without a wish for records, and the end of a session.

Source: KIP-932, KIP-1222, message schema 79; Apache Kafka's `KafkaApis.handleShareAcknowledgeRequest` for the order of the rules.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import Any, Final, NamedTuple

from holdfast.api.share_consumer import (
    FIRST_EPOCH,
    NO_ENDPOINTS,
    TOPIC_SIZE_MIN,
    Fault,
    NamedTopics,
    NodeEndpoint,
    append_topics,
    encode_endpoints,
    find_malformed_group_id,
    find_malformed_member_id,
    read_endpoints,
    read_topics,
    read_topics_in_steps,
)
from holdfast.api.share_errors import acknowledge_code, request_code
from holdfast.api.share_state import expect_end
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.kafka.protocol.primitives import (
    MalformedBody,
    encode_string,
    encode_varint,
    read_count,
    read_nullable_string,
    skip_tags,
)
from holdfast.records.native import maker

#: Inclusive.
VERSIONS: Final = (1, 2)
#: From here on a request renews locks, and an answer has their duration.
_RENEW_FROM: Final = 2

_EPOCH: Final = Struct(">i")
_EPOCH_AND_RENEW: Final = Struct(">i?")
_HEAD: Final = Struct(">ih")
_INT32: Final = Struct(">i")
_PARTITION: Final = Struct(">ih")
_LEADER: Final = Struct(">iix")
_SETTLED_SIZE_MIN: Final = 17
#: No error: partition, leader and its tags, the tags of the partition.
_pack_clean_partition: Final = Struct(">ixxxiixx").pack


class ShareAcknowledgeRequest(NamedTuple):
    """Acknowledgements of records, or the end of a session."""

    group_id: str | None
    member_id: str | None
    #: The epoch of the session, -1 ends it.
    session_epoch: int
    topics: NamedTopics
    #: Whether types may be 4.
    is_renew: bool = False


class SettledPartition(NamedTuple):
    """The answer about one partition."""

    partition: int
    #: Any code: `share_errors.acknowledge_code` says what leaves.
    error_code: int = 0
    error_message: str | None = None
    #: Told with an error that means another leader; -1: unknown. Clients believe 0.
    leader_id: int = -1
    leader_epoch: int = -1


#: Partitions of an answer by topic: every partition of the request, once.
SettledTopics = Sequence[tuple[bytes, Sequence[SettledPartition]]]


class ShareAcknowledgeResponse(NamedTuple):
    """The answer to a ShareAcknowledge."""

    topics: SettledTopics
    #: Duration of the group's locks; version 1 does not tell.
    lock_timeout_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    #: The addresses of the leaders that partitions name.
    endpoints: Sequence[NodeEndpoint] = ()
    throttle_ms: int = 0


_make_request: Final[Callable[[tuple[Any, ...]], ShareAcknowledgeRequest]] = maker(ShareAcknowledgeRequest)


def find_malformed_acknowledge(request: ShareAcknowledgeRequest) -> Fault | None:
    """Return the error code and text of an answer that refuses a whole request, None if it is one that may be carried out.

    Kafka looks at rights after the group id (`find_malformed_group_id`) and before all else; the session comes after this.
    """
    fault = find_malformed_group_id(request.group_id) or find_malformed_member_id(request.member_id)
    if fault is not None:
        return fault
    if request.session_epoch == FIRST_EPOCH:
        text = "ShareSessionEpoch is 0, which begins a session; begin it with a ShareFetch."
        return int(ErrorCode.INVALID_SHARE_SESSION_EPOCH), text
    return None


def decode_request(version: int, data: bytes, offset: int = 0) -> ShareAcknowledgeRequest:
    """Return the request whose body reaches from `offset` to the end of `data`.

    Raises:
        MalformedBody: the body is cut off, holds a null or a length that cannot be, has bytes after its end, or holds more
            than one request may.
    """
    group_id, member_id, session_epoch, is_renew, offset = _read_head(version, data, offset)
    topics, offset, _ = read_topics(data, offset)
    if offset + 1 != len(data) or data[offset]:
        expect_end(data, offset)
    return _make_request((group_id, member_id, session_epoch, topics, is_renew))


def decode_in_steps(version: int, data: bytes, offset: int = 0) -> Generator[bool, None, ShareAcknowledgeRequest]:
    """Do what `decode_request` does, in steps of a millisecond or so, for a large request; each yields True."""
    group_id, member_id, session_epoch, is_renew, offset = _read_head(version, data, offset)
    topics, offset, _ = yield from read_topics_in_steps(data, offset)
    expect_end(data, offset)
    return _make_request((group_id, member_id, session_epoch, topics, is_renew))


def _read_head(version: int, data: bytes, offset: int) -> tuple[str | None, str | None, int, bool, int]:
    """Return the ids, the session epoch and whether locks are renewed, and where the topics begin."""
    group_id, offset = read_nullable_string(data, offset, "GroupId")
    member_id, offset = read_nullable_string(data, offset, "MemberId")
    try:
        if version < _RENEW_FROM:
            (session_epoch,) = _EPOCH.unpack_from(data, offset)
            return group_id, member_id, session_epoch, False, offset + _EPOCH.size
        session_epoch, is_renew = _EPOCH_AND_RENEW.unpack_from(data, offset)
        return group_id, member_id, session_epoch, is_renew, offset + _EPOCH_AND_RENEW.size
    except StructError as error:
        raise MalformedBody("ShareSessionEpoch", offset, "the bytes end in the middle of it or soon after") from error


def encode_request(version: int, request: ShareAcknowledgeRequest) -> bytes:
    """Return the body of a request; version 1 leaves out the renewal.

    Raises:
        ValueError: a topic id is not 16 bytes, or a number does not fit its field.
    """
    parts = [encode_string(request.group_id), encode_string(request.member_id)]
    try:
        if version < _RENEW_FROM:
            parts.append(_EPOCH.pack(request.session_epoch))
        else:
            parts.append(_EPOCH_AND_RENEW.pack(request.session_epoch, request.is_renew))
        append_topics(parts, request.topics)
    except StructError as error:
        raise ValueError(f"A number does not fit its field: {error}.") from error
    parts.append(b"\x00")
    return b"".join(parts)


def encode_response(version: int, response: ShareAcknowledgeResponse) -> bytes:
    """Return the body of an answer; version 1 leaves out the duration of locks.

    Raises:
        StructError: a number does not fit its field.
    """
    topics, lock_timeout_ms, error_code, error_message, endpoints, throttle_ms = response
    parts = [_HEAD.pack(throttle_ms, request_code(error_code)), encode_string(error_message)]
    if version >= _RENEW_FROM:
        parts.append(_INT32.pack(lock_timeout_ms))
    parts.append(encode_varint(len(topics) + 1))
    for topic_id, partitions in topics:
        parts.append(topic_id)
        parts.append(encode_varint(len(partitions) + 1))
        for partition, code, message, leader_id, leader_epoch in partitions:
            if code or message is not None:
                parts.append(_PARTITION.pack(partition, acknowledge_code(code)))
                parts.append(encode_string(message))
                parts.append(_LEADER.pack(leader_id, leader_epoch))
                parts.append(b"\x00")
            else:
                parts.append(_pack_clean_partition(partition, leader_id, leader_epoch))
        parts.append(b"\x00")
    parts.append(NO_ENDPOINTS if not endpoints else encode_endpoints(endpoints))
    return b"".join(parts)


def decode_response(version: int, data: bytes, offset: int = 0) -> ShareAcknowledgeResponse:
    """Return the answer whose body reaches from `offset` to the end of `data`.

    Raises:
        MalformedBody: the body is cut off, holds a null or a length that cannot be, or has bytes after its end.
    """
    topics: list[tuple[bytes, list[SettledPartition]]] = []
    lock_timeout_ms = 0
    try:
        throttle_ms, error_code = _HEAD.unpack_from(data, offset)
        error_message, offset = read_nullable_string(data, offset + _HEAD.size, "ErrorMessage")
        if version >= _RENEW_FROM:
            (lock_timeout_ms,) = _INT32.unpack_from(data, offset)
            offset += 4
        count, offset = read_count(data, offset, TOPIC_SIZE_MIN, "Responses")
        for _ in range(count):
            topic_id = data[offset : offset + 16]
            partition_count, offset = read_count(data, offset + 16, _SETTLED_SIZE_MIN, "Responses.Partitions")
            partitions = []
            for _ in range(partition_count):
                partition, code = _PARTITION.unpack_from(data, offset)
                message, offset = read_nullable_string(data, offset + 6, "Responses.Partitions.ErrorMessage")
                leader_id, leader_epoch = _LEADER.unpack_from(data, offset)
                offset = skip_tags(data, offset + 8, "Responses.Partitions.CurrentLeader")
                offset = skip_tags(data, offset, "Responses.Partitions")
                partitions.append(SettledPartition(partition, code, message, leader_id, leader_epoch))
            offset = skip_tags(data, offset, "Responses")
            topics.append((topic_id, partitions))
    except StructError as error:
        raise MalformedBody("Responses", offset, "the bytes end in the middle of it") from error
    endpoints, offset = read_endpoints(data, offset)
    expect_end(data, offset)
    return ShareAcknowledgeResponse(topics, lock_timeout_ms, error_code, error_message, endpoints, throttle_ms)
