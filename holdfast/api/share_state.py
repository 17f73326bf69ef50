"""Bodies of the five share-state calls (API keys 83 to 87) in all their versions, in both directions.

The daemon decodes requests and encodes responses; the client does the reverse. Each share partition passes through
here twice, so what has a fixed layout is one precompiled `Struct`, a varint of one byte is read in place, and named
tuples are made without their Python constructor.

Source: KIP-932, message schemas 83 to 87; Kafka's names are used for fields in errors.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import Any, Final, NamedTuple

from holdfast.api.results import (
    PATIENT_CALLER,
    Caller,
    DeletePartition,
    DeleteResult,
    InitializePartition,
    InitializeResult,
    PartitionRequest,
    PartitionResult,
    ReadPartition,
    ReadResult,
    StateRequest,
    StateResponse,
    SummaryPartition,
    SummaryResult,
    WritePartition,
    WriteResult,
)
from holdfast.kafka.protocol.api_keys import DELETE_SHARE_GROUP_STATE as DELETE
from holdfast.kafka.protocol.api_keys import INITIALIZE_SHARE_GROUP_STATE as INITIALIZE
from holdfast.kafka.protocol.api_keys import READ_SHARE_GROUP_STATE as READ
from holdfast.kafka.protocol.api_keys import READ_SHARE_GROUP_STATE_SUMMARY as SUMMARY
from holdfast.kafka.protocol.api_keys import WRITE_SHARE_GROUP_STATE as WRITE
from holdfast.kafka.protocol.primitives import (
    MalformedBody,
    encode_string,
    encode_varint,
    read_count,
    read_nullable_string,
    read_string,
    skip_tags,
)
from holdfast.records.batches import StateBatch

__all__ = [
    "BATCH_SIZE",
    "DELETE",
    "INITIALIZE",
    "READ",
    "SUMMARY",
    "UNBOUNDED",
    "VERSIONS",
    "WRITE",
    "Bounds",
    "MalformedBody",
    "decode_in_steps",
    "decode_request",
    "decode_response",
    "encode_in_steps",
    "encode_request",
    "encode_response",
]

#: API key to (lowest version, highest version), both inclusive.
VERSIONS: Final = {INITIALIZE: (0, 0), READ: (0, 0), WRITE: (0, 1), DELETE: (0, 0), SUMMARY: (0, 1)}

_Buffer = bytes | memoryview

# A "B" at the end of a layout is the first byte of a varint: the number of tagged fields, or of elements + 1.
_ONE: Final = 2
_TOPIC: Final = Struct(">16sB")
_BATCH: Final = Struct(">qqbhB")
_BATCH_WITHOUT_TAGS: Final = Struct(">qqbhx")
_ONE_BATCH: Final = Struct(">qqbhBB")  # and the tags of the share partition behind it
_RESULT: Final = Struct(">ih")
_TOPIC_SIZE_MIN: Final = _TOPIC.size + 1
_PARTITION_SIZE_MIN: Final = 5
_INT32_MAX: Final = (1 << 31) - 1

_unpack_topic = _TOPIC.unpack_from
_unpack_one_batch = _ONE_BATCH.unpack_from
_pack_topic = Struct(">16s").pack
_pack_batch = _BATCH_WITHOUT_TAGS.pack
_pack_result = _RESULT.pack

# `tuple.__new__` skips the constructor that a named tuple has in Python; the argument is one tuple of all fields.
_make_batch: Callable[[tuple[int, int, int, int]], StateBatch] = partial(tuple.__new__, StateBatch)
_make_request: Callable[[tuple[str, list[Any], Caller]], StateRequest] = partial(tuple.__new__, StateRequest)
_make_write: Callable[[tuple[Any, ...]], WritePartition] = partial(tuple.__new__, WritePartition)

#: Bytes of a state batch in a request or an answer.
BATCH_SIZE: Final = _BATCH.size
#: How much a step decodes or encodes: share partitions, and about as many state batches as take the same time.
_PARTITIONS_PER_STEP: Final = 200
_BATCHES_PER_STEP: Final = 2_000


class Bounds(NamedTuple):
    """How much one request may hold."""

    share_partitions: int = _INT32_MAX
    #: For one share partition.
    state_batches: int = _INT32_MAX
    #: For all of them.
    state_batches_in_all: int = _INT32_MAX


UNBOUNDED: Final = Bounds()


def decode_request(
    api_key: int,
    version: int,
    data: _Buffer,
    offset: int = 0,
    bounds: Bounds = UNBOUNDED,
    caller: Caller = PATIENT_CALLER,
) -> StateRequest:
    """Return the request whose body reaches from `offset` to the end of `data`.

    Args:
        api_key: 83 to 87.
        version: of the request.
        data: the whole frame.
        offset: where the body begins.
        bounds: how much it may hold; state batches in all are not counted here, but by `decode_in_steps`.
        caller: becomes part of the request.

    Raises:
        MalformedBody: the body is cut off, holds a null or a length that cannot be, has bytes behind its end, or holds
            more than `bounds` allow.
        KeyError: the version is not in `VERSIONS`.
    """
    read_partitions = _REQUEST_READERS[api_key, version]
    group_id, offset = read_string(data, offset, "GroupId")
    topics: list[tuple[bytes, list[PartitionRequest]]] = []
    partitions_left, batches_max, _ = bounds
    try:
        if data[offset] == _ONE:
            count, offset = 1, offset + 1
        else:
            count, offset = read_count(data, offset, _TOPIC_SIZE_MIN, "Topics")
        for _ in range(count):
            topic_id, length = _unpack_topic(data, offset)
            if length == _ONE:
                partition_count, offset = 1, offset + 17
            else:
                partition_count, offset = read_count(data, offset + 16, _PARTITION_SIZE_MIN, "Topics.Partitions")
            partitions_left -= partition_count
            if partitions_left < 0:
                raise _too_many_partitions(offset, bounds)
            partitions, offset = read_partitions(data, offset, partition_count, batches_max)
            offset = skip_tags(data, offset, "Topics") if data[offset] else offset + 1
            topics.append((topic_id, partitions))
        if data[offset] or offset + 1 != len(data):
            _end(data, offset)
    except (StructError, IndexError) as error:
        raise MalformedBody("Topics", offset, "the bytes end in the middle of it") from error
    return _make_request((group_id, topics, caller))


def decode_in_steps(
    api_key: int, version: int, data: _Buffer, offset: int, bounds: Bounds, caller: Caller
) -> Generator[bool, None, StateRequest]:
    """Do what `decode_request` does, in steps of a millisecond or so, for a large request; each yields True."""
    read_partitions = _REQUEST_READERS[api_key, version]
    group_id, offset = read_string(data, offset, "GroupId")
    topics: list[tuple[bytes, list[PartitionRequest]]] = []
    partitions_left, batches_max, batches_left = bounds
    done, done_batches = 0, 0
    try:
        count, offset = read_count(data, offset, _TOPIC_SIZE_MIN, "Topics")
        if count > bounds.share_partitions:  # each has one at least, in a request that asks for anything
            raise _too_many_partitions(offset, bounds)
        for _ in range(count):
            topic_id, _ = _unpack_topic(data, offset)
            partition_count, offset = read_count(data, offset + 16, _PARTITION_SIZE_MIN, "Topics.Partitions")
            partitions_left -= partition_count
            if partitions_left < 0:
                raise _too_many_partitions(offset, bounds)
            partitions: list[PartitionRequest] = []
            while partition_count:
                size = min(partition_count, _PARTITIONS_PER_STEP if api_key != WRITE else 1)
                read, offset = read_partitions(data, offset, size, batches_max)
                partitions += read
                partition_count -= size
                done += size
                if api_key == WRITE:
                    batches = len(read[0].state_batches)  # type: ignore[union-attr]  # a Write has them
                    batches_left -= batches
                    done_batches += batches
                    if batches_left < 0:
                        reason = f"one request may write at most {bounds.state_batches_in_all} state batches"
                        raise MalformedBody("StateBatches", offset, reason)
                if done >= _PARTITIONS_PER_STEP or done_batches >= _BATCHES_PER_STEP:
                    done = done_batches = 0
                    yield True
            offset = skip_tags(data, offset, "Topics")
            topics.append((topic_id, partitions))
            done += 1
            if done >= _PARTITIONS_PER_STEP:  # topics may name no partition
                done = done_batches = 0
                yield True
        _end(data, offset)
    except (StructError, IndexError) as error:
        raise MalformedBody("Topics", offset, "the bytes end in the middle of it") from error
    return _make_request((group_id, topics, caller))


def _too_many_partitions(offset: int, bounds: Bounds) -> MalformedBody:
    reason = f"one request may name at most {bounds.share_partitions} share partitions"
    return MalformedBody("Topics.Partitions", offset, reason)


def encode_response(api_key: int, version: int, response: StateResponse) -> bytes:
    """Return the body of a response."""
    encode_result = _RESULT_WRITERS[api_key, version]
    parts = [encode_varint(len(response) + 1)]
    append = parts.append
    for topic_id, results in response:
        append(topic_id)
        append(encode_varint(len(results) + 1))
        for partition, result in results:
            append(encode_result(partition, result))
        append(b"\x00")
    append(b"\x00")
    return b"".join(parts)


def encode_in_steps(api_key: int, version: int, response: StateResponse) -> Iterator[bytes]:
    """Do what `encode_response` does, in steps of a millisecond or so, for a large response; each yields a piece."""
    encode_result = _RESULT_WRITERS[api_key, version]
    parts = [encode_varint(len(response) + 1)]
    done = 0
    for topic_id, results in response:
        parts.append(topic_id)
        parts.append(encode_varint(len(results) + 1))
        for partition, result in results:
            batches = result.state_batches if isinstance(result, ReadResult) else ()
            if len(batches) > _BATCHES_PER_STEP:
                parts.append(_encode_read_head(partition, result))
                for start in range(0, len(batches), _BATCHES_PER_STEP):
                    parts.append(_pack_batches(batches[start : start + _BATCHES_PER_STEP]))
                    yield b"".join(parts)
                    parts.clear()
                parts.append(b"\x00")
                continue
            parts.append(encode_result(partition, result))
            done += 1 + len(batches) * _PARTITIONS_PER_STEP // _BATCHES_PER_STEP
            if done >= _PARTITIONS_PER_STEP:
                done = 0
                yield b"".join(parts)
                parts.clear()
        parts.append(b"\x00")
        done += 1
    parts.append(b"\x00")
    yield b"".join(parts)


def encode_request(api_key: int, version: int, request: StateRequest) -> bytes:
    """Return the body of a request; what `version` cannot carry (a delivery complete count in Write 0) is left out.

    Raises:
        ValueError: a topic id is not 16 bytes, or a number does not fit its field.
    """
    encode_partition = _PARTITION_WRITERS[api_key, version]
    group_id, topics, _ = request
    parts = [encode_string(group_id), encode_varint(len(topics) + 1)]
    append = parts.append
    try:
        for topic_id, partitions in topics:
            if len(topic_id) != 16:
                raise ValueError(f"A topic id has 16 bytes, not {len(topic_id)}.")
            append(topic_id)
            append(encode_varint(len(partitions) + 1))
            for partition in partitions:
                append(encode_partition(partition))
            append(b"\x00")
    except StructError as error:
        raise ValueError(f"A number does not fit its field: {error}.") from error
    append(b"\x00")
    return b"".join(parts)


def decode_response(api_key: int, version: int, data: _Buffer, offset: int = 0) -> StateResponse:
    """Return the response whose body reaches from `offset` to the end of `data`.

    Raises:
        MalformedBody: the body is cut off, holds a null or a length that cannot be, or has bytes behind its end.
        KeyError: the version is not in `VERSIONS`.
    """
    read_result = _RESULT_READERS[api_key, version]
    count, offset = read_count(data, offset, _TOPIC_SIZE_MIN, "Results")
    response: StateResponse = []
    try:
        for _ in range(count):
            topic_id, _ = _unpack_topic(data, offset)
            partition_count, offset = read_count(data, offset + 16, _RESULT.size + 2, "Results.Partitions")
            results: list[tuple[int, PartitionResult]] = []
            for _ in range(partition_count):
                partition, error_code = _RESULT.unpack_from(data, offset)
                error_message, offset = read_nullable_string(
                    data, offset + _RESULT.size, "Results.Partitions.ErrorMessage"
                )
                result, offset = read_result(error_code, error_message, data, offset)
                offset = skip_tags(data, offset, "Results.Partitions")
                results.append((partition, result))
            offset = skip_tags(data, offset, "Results")
            response.append((topic_id, results))
    except StructError as error:
        raise MalformedBody("Results", offset, "the bytes end in the middle of it") from error
    _end(data, offset)
    return response


def _end(data: _Buffer, offset: int) -> None:
    end = skip_tags(data, offset, "the tagged fields of the body")
    if end != len(data):
        raise MalformedBody("the end of the body", end, f"{len(data) - end} more bytes follow")


# Requests, one share partition at a time.

_PartitionsReader = Callable[[_Buffer, int, int, int], tuple[list[PartitionRequest], int]]


def _reader_of_fixed(layout: str, kind: type[PartitionRequest]) -> _PartitionsReader:
    """Return a reader of share partitions that are the numbers of `layout` and nothing else."""
    struct = Struct(f">{layout}B")
    unpack, size, field_count = struct.unpack_from, struct.size, len(layout)
    make: Callable[[tuple[int, ...]], PartitionRequest] = partial(tuple.__new__, kind)

    def read_partitions(
        data: _Buffer, offset: int, count: int, _batches_max: int
    ) -> tuple[list[PartitionRequest], int]:
        partitions = []
        for _ in range(count):
            fields = unpack(data, offset)
            offset = skip_tags(data, offset + size - 1, "Topics.Partitions") if fields[field_count] else offset + size
            partitions.append(make(fields[:field_count]))
        return partitions, offset

    return read_partitions


def _reader_of_writes(layout: str, absent: tuple[int, ...]) -> _PartitionsReader:
    """Return a reader of the share partitions of a Write; `absent` is what `layout` lacks before the batches."""
    struct = Struct(f">{layout}B")
    unpack, size = struct.unpack_from, struct.size
    field_count = len(layout)

    def read_partitions(data: _Buffer, offset: int, count: int, batches_max: int) -> tuple[list[PartitionRequest], int]:
        partitions: list[PartitionRequest] = []
        for _ in range(count):
            fields = unpack(data, offset)
            offset += size
            if fields[field_count] == _ONE:
                first_offset, last_offset, delivery_state, delivery_count, batch_tags, tags = _unpack_one_batch(
                    data, offset
                )
                if not batch_tags and not tags:
                    batch = _make_batch((first_offset, last_offset, delivery_state, delivery_count))
                    partitions.append(_make_write((*fields[:field_count], *absent, (batch,))))
                    offset += 21
                    continue
            batches, offset = _read_batches(data, offset - 1, batches_max)
            offset = skip_tags(data, offset, "Topics.Partitions") if data[offset] else offset + 1
            partitions.append(_make_write((*fields[:field_count], *absent, batches)))
        return partitions, offset

    return read_partitions


def _read_batches(data: _Buffer, offset: int, batches_max: int = _INT32_MAX) -> tuple[tuple[StateBatch, ...], int]:
    count, offset = read_count(data, offset, _BATCH.size, "StateBatches")
    if count > batches_max:
        reason = f"one share partition has {count} state batches, at most {batches_max} are taken"
        raise MalformedBody("StateBatches", offset, reason)
    end = offset + count * _BATCH.size
    if not any(data[offset + _BATCH.size - 1 : end : _BATCH.size]):
        return tuple(map(_make_batch, _BATCH_WITHOUT_TAGS.iter_unpack(data[offset:end]))), end
    batches = []
    for _ in range(count):
        *fields, _ = _BATCH.unpack_from(data, offset)
        offset = skip_tags(data, offset + _BATCH.size - 1, "StateBatches")
        batches.append(StateBatch(*fields))
    return tuple(batches), offset


_REQUEST_READERS: Final[dict[tuple[int, int], _PartitionsReader]] = {
    (INITIALIZE, 0): _reader_of_fixed("iiq", InitializePartition),
    (READ, 0): _reader_of_fixed("ii", ReadPartition),
    (WRITE, 0): _reader_of_writes("iiiq", absent=(-1,)),
    (WRITE, 1): _reader_of_writes("iiiqi", absent=()),
    (DELETE, 0): _reader_of_fixed("i", DeletePartition),
    (SUMMARY, 0): _reader_of_fixed("ii", SummaryPartition),
    (SUMMARY, 1): _reader_of_fixed("ii", SummaryPartition),
}


def _encode_batches(batches: Sequence[StateBatch]) -> bytes:
    return encode_varint(len(batches) + 1) + _pack_batches(batches)


def _pack_batches(batches: Sequence[StateBatch]) -> bytes:
    return b"".join([_pack_batch(*batch) for batch in batches])


def _writer_of_fixed(layout: str) -> Callable[[Any], bytes]:
    pack = Struct(f">{layout}x").pack
    return lambda partition: pack(*partition)


def _writer_of_writes(layout: str) -> Callable[[Any], bytes]:
    pack, field_count = Struct(f">{layout}").pack, len(layout)
    return lambda partition: pack(*partition[:field_count]) + _encode_batches(partition[5]) + b"\x00"


_PARTITION_WRITERS: Final[dict[tuple[int, int], Callable[[Any], bytes]]] = {
    (INITIALIZE, 0): _writer_of_fixed("iiq"),
    (READ, 0): _writer_of_fixed("ii"),
    (WRITE, 0): _writer_of_writes("iiiq"),
    (WRITE, 1): _writer_of_writes("iiiqi"),
    (DELETE, 0): _writer_of_fixed("i"),
    (SUMMARY, 0): _writer_of_fixed("ii"),
    (SUMMARY, 1): _writer_of_fixed("ii"),
}


# Responses, one share partition at a time. Partition, error code and error message come first in all of them.

_pack_success = Struct(">ihxx").pack


def _encode_outcome(partition: int, result: Any) -> bytes:  # noqa: ANN401
    if result[1] is None:
        return _pack_success(partition, result[0])
    return b"%b%b\x00" % (_pack_result(partition, result[0]), encode_string(result[1]))


def _encode_read(partition: int, result: Any) -> bytes:  # noqa: ANN401
    return b"%b%b\x00" % (_encode_read_head(partition, result), _pack_batches(result[4]))


def _encode_read_head(partition: int, result: Any) -> bytes:  # noqa: ANN401
    """Return all that stands before the state batches."""
    error_code, error_message, state_epoch, start_offset, batches = result
    return b"%b%b%b%b" % (
        _pack_result(partition, error_code),
        encode_string(error_message),
        _READ_FIELDS.pack(state_epoch, start_offset),
        encode_varint(len(batches) + 1),
    )


def _writer_of_summaries(layout: str) -> Callable[[int, Any], bytes]:
    pack, end = Struct(f">{layout}x").pack, 2 + len(layout)
    return lambda partition, result: (
        b"%b%b%b" % (_pack_result(partition, result[0]), encode_string(result[1]), pack(*result[2:end]))
    )


_READ_FIELDS: Final = Struct(">iq")

_RESULT_WRITERS: Final[dict[tuple[int, int], Callable[[int, Any], bytes]]] = {
    (INITIALIZE, 0): _encode_outcome,
    (READ, 0): _encode_read,
    (WRITE, 0): _encode_outcome,
    (WRITE, 1): _encode_outcome,
    (DELETE, 0): _encode_outcome,
    (SUMMARY, 0): _writer_of_summaries("iiq"),
    (SUMMARY, 1): _writer_of_summaries("iiqi"),
}

_ResultReader = Callable[[int, str | None, _Buffer, int], tuple[PartitionResult, int]]


def _reader_of_outcomes(kind: type[InitializeResult | WriteResult | DeleteResult]) -> _ResultReader:
    return lambda error_code, error_message, data, offset: (kind(error_code, error_message), offset)


def _reader_of_summaries(layout: str) -> _ResultReader:
    struct = Struct(f">{layout}")

    def read_summary(
        error_code: int, error_message: str | None, data: _Buffer, offset: int
    ) -> tuple[PartitionResult, int]:
        return SummaryResult(error_code, error_message, *struct.unpack_from(data, offset)), offset + struct.size

    return read_summary


def _read_read(code: int, message: str | None, data: _Buffer, offset: int) -> tuple[PartitionResult, int]:
    state_epoch, start_offset = _READ_FIELDS.unpack_from(data, offset)
    batches, offset = _read_batches(data, offset + _READ_FIELDS.size)
    return ReadResult(code, message, state_epoch, start_offset, batches), offset


_RESULT_READERS: Final[dict[tuple[int, int], _ResultReader]] = {
    (INITIALIZE, 0): _reader_of_outcomes(InitializeResult),
    (READ, 0): _read_read,
    (WRITE, 0): _reader_of_outcomes(WriteResult),
    (WRITE, 1): _reader_of_outcomes(WriteResult),
    (DELETE, 0): _reader_of_outcomes(DeleteResult),
    (SUMMARY, 0): _reader_of_summaries("iiq"),
    (SUMMARY, 1): _reader_of_summaries("iiqi"),
}
