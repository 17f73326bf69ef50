"""ShareGroupHeartbeat (API key 76), version 1: a consumer says that it lives and learns its partitions.

Source: KIP-932, message schema 76; Apache Kafka's `GroupCoordinatorService.throwIfShareGroupHeartbeatRequestIsInvalid`.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import Final, NamedTuple

from holdfast.api.share_consumer import (
    TOPIC_SIZE_MIN,
    TRIMMED,
    Fault,
    checked_topic_id,
    find_malformed_group_id,
    find_malformed_member_id,
    read_int32s,
)
from holdfast.api.share_errors import heartbeat_code
from holdfast.api.share_state import expect_end
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.kafka.protocol.primitives import (
    MalformedBody,
    encode_string,
    encode_varint,
    read_count,
    read_nullable_string,
    read_string,
    skip_tags,
)

#: Inclusive.
VERSIONS: Final = (1, 1)

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1

_INVALID_REQUEST: Final = int(ErrorCode.INVALID_REQUEST)
_INT32: Final = Struct(">i")
_HEAD: Final = Struct(">ih")
_MEMBER: Final = Struct(">iib")
_NO_ASSIGNMENT: Final = -1
_ASSIGNMENT: Final = 1


class HeartbeatRequest(NamedTuple):
    """A member's sign of life."""

    group_id: str
    #: Chosen by the client.
    member_id: str
    #: 0 joins, -1 leaves, else the one that the member had last.
    member_epoch: int
    rack_id: str | None = None
    #: None: as before.
    topic_names: list[str] | None = None


#: Partitions by topic id.
AssignedTopics = Sequence[tuple[bytes, Sequence[int]]]


class HeartbeatResponse(NamedTuple):
    """The answer to a heartbeat."""

    #: Any code: `share_errors.heartbeat_code` says what leaves.
    error_code: int = 0
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    #: None: as before.
    assignment: AssignedTopics | None = None
    throttle_ms: int = 0


def find_malformed_heartbeat(request: HeartbeatRequest) -> Fault | None:
    """Return the error code and text of an answer that refuses a heartbeat, None if it is one that the group can answer."""
    fault = find_malformed_member_id(request.member_id.strip(TRIMMED)) or find_malformed_group_id(request.group_id)
    if fault is not None:
        return fault
    if request.rack_id is not None and not request.rack_id.strip(TRIMMED):
        return _INVALID_REQUEST, "RackId is empty; set the consumer's client.rack, or send null."
    if request.member_epoch < LEAVE_EPOCH:
        text = f"MemberEpoch is {request.member_epoch}; send 0 to join, -1 to leave, else the epoch of the last answer."
        return _INVALID_REQUEST, text
    if request.member_epoch == JOIN_EPOCH and not request.topic_names:
        state = "null" if request.topic_names is None else "empty"
        return _INVALID_REQUEST, f"SubscribedTopicNames is {state} with MemberEpoch 0; name a topic to join."
    return None


def decode_request(data: bytes, offset: int = 0) -> HeartbeatRequest:
    """Return the request whose body reaches from `offset` to the end of `data`.

    Raises:
        MalformedBody: the body is cut off, holds a null or a length that cannot be, or has bytes after its end.
    """
    group_id, offset = read_string(data, offset, "GroupId")
    member_id, offset = read_string(data, offset, "MemberId")
    if len(data) < offset + 4:
        raise MalformedBody("MemberEpoch", offset, "the bytes end in the middle of it")
    (member_epoch,) = _INT32.unpack_from(data, offset)
    rack_id, offset = read_nullable_string(data, offset + 4, "RackId")
    topic_names: list[str] | None = None
    if offset < len(data) and not data[offset]:  # null, as nearly always
        offset += 1
    else:
        count, offset = read_count(data, offset, 1, "SubscribedTopicNames")
        topic_names = []
        for _ in range(count):
            name, offset = read_string(data, offset, "SubscribedTopicNames")
            topic_names.append(name)
    expect_end(data, offset)
    return HeartbeatRequest(group_id, member_id, member_epoch, rack_id, topic_names)


def encode_request(request: HeartbeatRequest) -> bytes:
    """Return the body of a request.

    Raises:
        ValueError: a number does not fit its field.
    """
    group_id, member_id, member_epoch, rack_id, topic_names = request
    try:
        epoch = _INT32.pack(member_epoch)
    except StructError as error:
        raise ValueError(f"A number does not fit its field: {error}.") from error
    parts = [encode_string(group_id), encode_string(member_id), epoch, encode_string(rack_id)]
    if topic_names is None:
        parts.append(b"\x00")
    else:
        parts.append(encode_varint(len(topic_names) + 1))
        parts += map(encode_string, topic_names)
    parts.append(b"\x00")
    return b"".join(parts)


def encode_response(response: HeartbeatResponse) -> bytes:
    """Return the body of an answer.

    Raises:
        ValueError: a topic id is not 16 bytes.
        StructError: a number does not fit its field.
    """
    error_code, error_message, member_id, member_epoch, interval_ms, assignment, throttle_ms = response
    kind = _NO_ASSIGNMENT if assignment is None else _ASSIGNMENT
    parts = [
        _HEAD.pack(throttle_ms, heartbeat_code(error_code)),
        encode_string(error_message),
        encode_string(member_id),
        _MEMBER.pack(member_epoch, interval_ms, kind),
    ]
    if assignment is not None:
        parts.append(encode_varint(len(assignment) + 1))
        for topic_id, partitions in assignment:
            count = len(partitions)
            parts += (checked_topic_id(topic_id), encode_varint(count + 1), Struct(f">{count}ix").pack(*partitions))
        parts.append(b"\x00")
    parts.append(b"\x00")
    return b"".join(parts)


def decode_response(data: bytes, offset: int = 0) -> HeartbeatResponse:
    """Return the answer whose body reaches from `offset` to the end of `data`.

    Raises:
        MalformedBody: the body is cut off, holds a null or a length that cannot be, or has bytes after its end.
    """
    assignment: list[tuple[bytes, list[int]]] | None = None
    try:
        throttle_ms, error_code = _HEAD.unpack_from(data, offset)
        error_message, offset = read_nullable_string(data, offset + _HEAD.size, "ErrorMessage")
        member_id, offset = read_nullable_string(data, offset, "MemberId")
        member_epoch, interval_ms, kind = _MEMBER.unpack_from(data, offset)
    except StructError as error:
        raise MalformedBody("MemberEpoch", offset, "the bytes end in the middle of it or before") from error
    offset += _MEMBER.size
    if kind >= 0:
        field = "Assignment.TopicPartitions"
        assignment = []
        count, offset = read_count(data, offset, TOPIC_SIZE_MIN, field)
        for _ in range(count):
            topic_id = data[offset : offset + 16]
            partitions, offset = read_int32s(data, offset + 16, f"{field}.Partitions")
            offset = skip_tags(data, offset, field)
            assignment.append((topic_id, partitions))
        offset = skip_tags(data, offset, "Assignment")
    expect_end(data, offset)
    return HeartbeatResponse(error_code, error_message, member_id, member_epoch, interval_ms, assignment, throttle_ms)
