"""The parts that ShareFetch and ShareAcknowledge have in common: acknowledgements and their rules, leaders and their addresses.

Lengths are compared with the bytes that are left, and counts with their bounds, before anything is made of them.
Kafka's names are used for fields in errors. A rule returns the error code of an answer and a text that names the field and the mend.

Source: KIP-932, KIP-1222, message schemas 78 and 79; Apache Kafka's `KafkaApis.validateAcknowledgementBatches`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import Final, NamedTuple

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
from holdfast.records.native import maker
from holdfast.records.share.keys import GROUP_ID_BYTES_MAX, is_group_id_too_long

#: Topics and partitions that one request may name, each counted once: a node has some ten thousands of share partitions at most.
NAMES_MAX: Final = 100_000
#: Acknowledge types in one request; a range without any counts as one. A client acknowledges what it polled, 500 records by default.
TYPES_MAX: Final = 100_000
#: Topics, partitions and ranges that one step of a large request decodes.
ELEMENTS_PER_STEP: Final = 1_000
#: Characters of a member id, which clients choose; the text of a UUID is that long.
MEMBER_ID_CHARACTERS_MAX: Final = 36

GAP: Final = 0
ACCEPT: Final = 1
RELEASE: Final = 2
REJECT: Final = 3
RENEW: Final = 4

#: Session epochs that begin and end a session.
FIRST_EPOCH: Final = 0
FINAL_EPOCH: Final = -1

#: The characters that an id must have others than: Kafka asks Java's `String.trim`.
TRIMMED: Final = "".join(map(chr, range(0x21)))

#: An error code and a text that says what to send in place of what is wrong.
Fault = tuple[int, str]

_INVALID_REQUEST: Final = int(ErrorCode.INVALID_REQUEST)
_TYPES_WITHOUT_RENEW: Final = bytes((GAP, ACCEPT, RELEASE, REJECT))
_TYPES: Final = bytes((GAP, ACCEPT, RELEASE, REJECT, RENEW))

# A "B" at the end of a layout is the first byte of a varint: the number of tagged fields, or of elements + 1.

TOPIC_SIZE_MIN: Final = 18
_TOPIC_ID_SIZE: Final = 16
_PARTITION_SIZE_MIN: Final = 6
_RANGE: Final = Struct(">qqB")
_RANGE_SIZE_MIN: Final = _RANGE.size + 1
_PACKED_RANGE: Final = Struct(">qq")
_INT32: Final = Struct(">i")
_LEADER: Final = Struct(">iix")
_unpack_int32: Final = _INT32.unpack_from
_unpack_range: Final = _RANGE.unpack_from
#: That byte where there is one element.
_ONE: Final = 2
#: One topic with one partition with one range with one type, from the number of topics to the tags of the topic.
_LONE: Final = Struct(">x16sxixqqxsxxx")
_unpack_lone: Final = _LONE.unpack_from


class AcknowledgedRange(NamedTuple):
    """A range of offsets and what is said of them."""

    first_offset: int
    #: Inclusive.
    last_offset: int
    #: One byte for each offset, or one for all of them; a negative type is 128 or more.
    types: bytes


class NamedPartition(NamedTuple):
    """A partition that a request names: it is fetched, or acknowledged, or both."""

    partition: int
    #: In the order of the wire; a list in a request is no part of its value.
    acknowledgements: tuple[AcknowledgedRange, ...] = ()


class NodeEndpoint(NamedTuple):
    """The address of a leader that an answer names."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


#: Topics of a request in the order of the wire, as (topic id, partitions); both may repeat.
NamedTopics = list[tuple[bytes, list[NamedPartition]]]

_RANGES_FIELD: Final = "Topics.Partitions.AcknowledgementBatches"
_TYPES_FIELD: Final = "Topics.Partitions.AcknowledgementBatches.AcknowledgeTypes"

_make_range: Final[Callable[[tuple[int, int, bytes]], AcknowledgedRange]] = maker(AcknowledgedRange)
_make_partition: Final[Callable[[tuple[int, tuple[AcknowledgedRange, ...]]], NamedPartition]] = maker(NamedPartition)


# ---- rules -----------------------------------------------------------------------------------------------------------


def find_malformed_group_id(group_id: str | None) -> Fault | None:
    """Return why no share group can have this id, None if one can; it is looked at before rights are."""
    if group_id is None:
        return _INVALID_REQUEST, "GroupId is null; set the consumer's group.id."
    if not group_id.strip(TRIMMED):
        return _INVALID_REQUEST, "GroupId is empty; set the consumer's group.id."
    if is_group_id_too_long(group_id):
        text = f"GroupId has {len(group_id.encode())} bytes, at most {GROUP_ID_BYTES_MAX} are taken; use a shorter group.id."
        return _INVALID_REQUEST, text
    return None


def find_malformed_member_id(member_id: str | None) -> Fault | None:
    """Return why no member can have this id, None if one can."""
    if not member_id:
        state = "null" if member_id is None else "empty"
        return _INVALID_REQUEST, f"MemberId is {state}; send the UUID that the consumer made for itself."
    if len(member_id) > MEMBER_ID_CHARACTERS_MAX:
        length = len(member_id)
        text = f"MemberId has {length} characters, at most {MEMBER_ID_CHARACTERS_MAX} are taken; send a UUID."
        return _INVALID_REQUEST, text
    return None


def find_malformed_batches(batches: Sequence[AcknowledgedRange], is_renew: bool) -> Fault | None:
    """Return why the acknowledgements of one partition are refused, None if they may be applied.

    Ranges ascend and share no offset; Kafka lets one begin at the last offset of the one before.

    Args:
        batches: of one partition, in the order of the wire.
        is_renew: IsRenewAck of the request.
    """
    last_before = -1
    for first_offset, last_offset, types in batches:
        if first_offset > last_offset or first_offset <= last_before:
            return _INVALID_REQUEST, _misplaced(first_offset, last_offset, last_before)
        count = len(types)
        if count != 1 and count != last_offset - first_offset + 1:
            return _INVALID_REQUEST, (
                f"AcknowledgeTypes has {count} types for offsets {first_offset} to {last_offset};"
                " send one for all of them, or one for each."
            )
        wrong = types.translate(None, _TYPES if is_renew else _TYPES_WITHOUT_RENEW)
        if wrong:
            return _INVALID_REQUEST, _wrong_type(wrong[0], first_offset, last_offset)
        last_before = last_offset
    return None


def _misplaced(first_offset: int, last_offset: int, last_before: int) -> str:
    if first_offset > last_offset:
        return f"AcknowledgementBatches has FirstOffset {first_offset} above LastOffset {last_offset}; send the lower one first."
    if first_offset < 0:
        return f"AcknowledgementBatches has FirstOffset {first_offset}; send 0 or more."
    return (
        f"AcknowledgementBatches has offsets {first_offset} to {last_offset} after a range that ends at {last_before};"
        " send ranges in ascending order that share no offset."
    )


def _wrong_type(unsigned: int, first_offset: int, last_offset: int) -> str:
    where = f"for offsets {first_offset} to {last_offset}"
    if unsigned == RENEW:
        return f"AcknowledgeTypes has 4 (renew) {where}; set IsRenewAck, or send 1 (accept), 2 (release) or 3 (reject)."
    kind = unsigned if unsigned < 0x80 else unsigned - 0x100
    return f"AcknowledgeTypes has {kind} {where}; send 0 (gap), 1 (accept), 2 (release), 3 (reject) or 4 (renew)."


# ---- requests --------------------------------------------------------------------------------------------------------


def read_topics(data: bytes, offset: int) -> tuple[NamedTopics, int, int]:
    """Return the topics whose number is at `offset`, the offset after them, and how many names the request may still have.

    Raises:
        MalformedBody: they are cut off or more than a request may name, or have more acknowledge types than it may have.
    """
    end = offset + _LONE.size
    if (
        end <= len(data)
        and data[offset] == _ONE
        and data[offset + 17] == _ONE
        and data[offset + 22] == _ONE
        and data[offset + 39] == _ONE
        and not (data[end - 3] or data[end - 2] or data[end - 1])
    ):  # as from a consumer that polls one partition without pause
        topic_id, number, first_offset, last_offset, types = _unpack_lone(data, offset)
        lone = _make_partition((number, (_make_range((first_offset, last_offset, types)),)))
        return [(topic_id, [lone])], end, NAMES_MAX - 2
    count, offset = read_count(data, offset, TOPIC_SIZE_MIN, "Topics")
    names_left, types_left = NAMES_MAX - count, TYPES_MAX
    if names_left < 0:
        raise too_many_names("Topics", offset)
    topics: NamedTopics = []
    try:
        for _ in range(count):
            topic_id = data[offset : offset + _TOPIC_ID_SIZE]
            partition_count, offset = read_count(
                data, offset + _TOPIC_ID_SIZE, _PARTITION_SIZE_MIN, "Topics.Partitions"
            )
            names_left -= partition_count
            if names_left < 0:
                raise too_many_names("Topics.Partitions", offset)
            partitions: list[NamedPartition] = []
            for _ in range(partition_count):
                (number,) = _unpack_int32(data, offset)
                range_count, offset = read_count(data, offset + 4, _RANGE_SIZE_MIN, _RANGES_FIELD)
                ranges: list[AcknowledgedRange] = []
                if range_count:
                    types_left -= range_count
                    if types_left < 0:
                        raise _too_many_types(_RANGES_FIELD, offset)
                    offset, types_left = _read_ranges(data, offset, range_count, types_left, ranges)
                offset = skip_tags(data, offset, "Topics.Partitions") if data[offset] else offset + 1
                partitions.append(_make_partition((number, tuple(ranges))))
            offset = skip_tags(data, offset, "Topics") if data[offset] else offset + 1
            topics.append((topic_id, partitions))
    except (StructError, IndexError) as error:
        raise MalformedBody("Topics", offset, "the bytes end in the middle of it") from error
    return topics, offset, names_left


def read_topics_in_steps(data: bytes, offset: int) -> Generator[bool, None, tuple[NamedTopics, int, int]]:
    """Do what `read_topics` does, in steps of a millisecond or so; each yields True, and a small request has none."""
    count, offset = read_count(data, offset, TOPIC_SIZE_MIN, "Topics")
    names_left, types_left, done = NAMES_MAX - count, TYPES_MAX, 0
    if names_left < 0:
        raise too_many_names("Topics", offset)
    topics: NamedTopics = []
    try:
        for _ in range(count):
            topic_id = data[offset : offset + _TOPIC_ID_SIZE]
            partition_count, offset = read_count(
                data, offset + _TOPIC_ID_SIZE, _PARTITION_SIZE_MIN, "Topics.Partitions"
            )
            names_left -= partition_count
            if names_left < 0:
                raise too_many_names("Topics.Partitions", offset)
            partitions: list[NamedPartition] = []
            for _ in range(partition_count):
                (number,) = _unpack_int32(data, offset)
                range_count, offset = read_count(data, offset + 4, _RANGE_SIZE_MIN, _RANGES_FIELD)
                types_left -= range_count
                if types_left < 0:
                    raise _too_many_types(_RANGES_FIELD, offset)
                ranges: list[AcknowledgedRange] = []
                while range_count:
                    size = min(range_count, ELEMENTS_PER_STEP)
                    offset, types_left = _read_ranges(data, offset, size, types_left, ranges)
                    range_count -= size
                    done += size
                    if done >= ELEMENTS_PER_STEP:
                        done = 0
                        yield True
                offset = skip_tags(data, offset, "Topics.Partitions") if data[offset] else offset + 1
                partitions.append(_make_partition((number, tuple(ranges))))
                done += 1
                if done >= ELEMENTS_PER_STEP:
                    done = 0
                    yield True
            offset = skip_tags(data, offset, "Topics") if data[offset] else offset + 1
            topics.append((topic_id, partitions))
            done += 1
            if done >= ELEMENTS_PER_STEP:  # topics may name no partition
                done = 0
                yield True
    except (StructError, IndexError) as error:
        raise MalformedBody("Topics", offset, "the bytes end in the middle of it") from error
    return topics, offset, names_left


def _read_ranges(
    data: bytes, offset: int, count: int, types_left: int, ranges: list[AcknowledgedRange]
) -> tuple[int, int]:
    """Append the ranges at `offset`; returns the offset after them, and how many types may follow, ranges being counted already."""
    for _ in range(count):
        first_offset, last_offset, length = _unpack_range(data, offset)
        if length == _ONE:
            start = offset + 17
            offset = start + 1
        else:
            types_count, start = read_count(data, offset + 16, 1, _TYPES_FIELD)
            if types_count:
                types_left -= types_count - 1
                if types_left < 0:
                    raise _too_many_types(_TYPES_FIELD, start)
            offset = start + types_count
        ranges.append(_make_range((first_offset, last_offset, data[start:offset])))
        offset = skip_tags(data, offset, _RANGES_FIELD) if data[offset] else offset + 1
    return offset, types_left


def too_many_names(field: str, offset: int) -> MalformedBody:
    """Return the refusal of a request that names too much."""
    return MalformedBody(field, offset, f"one request may name at most {NAMES_MAX} topics and partitions")


def _too_many_types(field: str, offset: int) -> MalformedBody:
    return MalformedBody(field, offset, f"one request may have at most {TYPES_MAX} acknowledge types, send several")


def append_topics(parts: list[bytes], topics: Sequence[tuple[bytes, Sequence[NamedPartition]]]) -> None:
    """Append the bytes of topics to those of a request.

    Raises:
        ValueError: a topic id is not 16 bytes.
        StructError: a number does not fit its field.
    """
    parts.append(encode_varint(len(topics) + 1))
    for topic_id, partitions in topics:
        parts.append(checked_topic_id(topic_id))
        parts.append(encode_varint(len(partitions) + 1))
        for partition, batches in partitions:
            parts.append(_INT32.pack(partition))
            parts.append(encode_varint(len(batches) + 1))
            for first_offset, last_offset, types in batches:
                parts += (_PACKED_RANGE.pack(first_offset, last_offset), encode_varint(len(types) + 1), types, b"\x00")
            parts.append(b"\x00")
        parts.append(b"\x00")


def checked_topic_id(topic_id: bytes) -> bytes:
    """Return the bytes of a topic id.

    Raises:
        ValueError: they are not 16.
    """
    if len(topic_id) != _TOPIC_ID_SIZE:
        raise ValueError(f"A topic id has {_TOPIC_ID_SIZE} bytes, not {len(topic_id)}.")
    return topic_id


# ---- answers ---------------------------------------------------------------------------------------------------------

#: No endpoints, and no tagged fields of the body.
NO_ENDPOINTS: Final = b"\x01\x00"

pack_leader: Final = _LEADER.pack


def encode_endpoints(endpoints: Sequence[NodeEndpoint]) -> bytes:
    """Return the end of an answer: the addresses of the leaders in it, and the tagged fields of the body."""
    if not endpoints:
        return NO_ENDPOINTS
    parts = [encode_varint(len(endpoints) + 1)]
    for node_id, host, port, rack in endpoints:
        parts += (_INT32.pack(node_id), encode_string(host), _INT32.pack(port), encode_string(rack), b"\x00")
    parts.append(b"\x00")
    return b"".join(parts)


def read_endpoints(data: bytes, offset: int) -> tuple[list[NodeEndpoint], int]:
    """Return the addresses whose number is at `offset`, and the offset after them.

    Raises:
        MalformedBody: they are cut off.
    """
    count, offset = read_count(data, offset, 11, "NodeEndpoints")
    endpoints = []
    for _ in range(count):
        node_id, offset = read_int32(data, offset, "NodeEndpoints.NodeId")
        host, offset = read_string(data, offset, "NodeEndpoints.Host")
        port, offset = read_int32(data, offset, "NodeEndpoints.Port")
        rack, offset = read_nullable_string(data, offset, "NodeEndpoints.Rack")
        offset = skip_tags(data, offset, "NodeEndpoints")
        endpoints.append(NodeEndpoint(node_id, host, port, rack))
    return endpoints, offset


def read_int32(data: bytes, offset: int, field: str) -> tuple[int, int]:
    """Return the signed number of four bytes at `offset`, and the offset after it.

    Raises:
        MalformedBody: it is cut off.
    """
    try:
        (number,) = _INT32.unpack_from(data, offset)
    except StructError as error:
        raise MalformedBody(field, offset, "the bytes end in the middle of it") from error
    return number, offset + 4


def read_int32s(data: bytes, offset: int, field: str) -> tuple[list[int], int]:
    """Return the signed numbers of four bytes whose number is at `offset`, and the offset after them.

    Raises:
        MalformedBody: they are cut off.
    """
    count, start = read_count(data, offset, 4, field)
    offset = start + 4 * count
    return list(Struct(f">{count}i").unpack(data[start:offset])), offset
