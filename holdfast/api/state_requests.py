"""Requests of the five share-state calls in all their versions: decoded by the daemon, encoded by the client."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import Any, Final, NamedTuple

from holdfast.api.results import (
    PATIENT_CALLER,
    Caller,
    DeletePartition,
    InitializePartition,
    PartitionRequest,
    ReadPartition,
    StateRequest,
    SummaryPartition,
    WritePartition,
)
from holdfast.api.share_state import (
    BATCHES_PER_STEP,
    COUNT_MAX,
    DELETE,
    INITIALIZE,
    ONE,
    PARTITIONS_PER_STEP,
    READ,
    SUMMARY,
    TOPIC,
    TOPIC_SIZE_MIN,
    WRITE,
    Buffer,
    expect_end,
    pack_batches,
    read_batches,
)
from holdfast.kafka.protocol.primitives import (
    MalformedBody,
    encode_string,
    encode_varint,
    read_count,
    read_string,
    skip_tags,
)
from holdfast.records.native import twins
from holdfast.records.share.batches import StateBatch, make_batch

_ONE_BATCH: Final = Struct(">qqbhBB")  # and the tags of the share partition behind it
_PARTITION_SIZE_MIN: Final = 5

_unpack_topic: Final = TOPIC.unpack_from
_unpack_one_batch: Final = _ONE_BATCH.unpack_from

# `tuple.__new__` skips the constructor that a named tuple has in Python; the argument is one tuple of all fields.
_make_request: Final[Callable[[tuple[str, list[Any], Caller]], StateRequest]] = partial(tuple.__new__, StateRequest)
_make_write: Final[Callable[[tuple[Any, ...]], WritePartition]] = partial(tuple.__new__, WritePartition)


class Bounds(NamedTuple):
    """How much one request may hold."""

    share_partitions: int = COUNT_MAX
    #: For one share partition.
    state_batches: int = COUNT_MAX
    #: For all of them.
    state_batches_in_all: int = COUNT_MAX


UNBOUNDED: Final = Bounds()


def decode_request(
    api_key: int,
    version: int,
    data: Buffer,
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
    decode_in_c = _DECODERS_IN_C.get((api_key, version))
    if decode_in_c is not None:
        request = decode_in_c(data, offset, bounds, caller)
        if request is not None:
            return request
    return decode_in_python(api_key, version, data, offset, bounds, caller)


def decode_in_python(
    api_key: int, version: int, data: Buffer, offset: int, bounds: Bounds, caller: Caller
) -> StateRequest:
    """Answer as `decode_request` does, in every case."""
    _, _, read_partitions = _PARTITIONS[api_key, version]
    group_id, offset = read_string(data, offset, "GroupId")
    topics: list[tuple[bytes, list[PartitionRequest]]] = []
    partitions_left, batches_max, _ = bounds
    try:
        if data[offset] == ONE:
            count, offset = 1, offset + 1
        else:
            count, offset = read_count(data, offset, TOPIC_SIZE_MIN, "Topics")
        for _ in range(count):
            topic_id, length = _unpack_topic(data, offset)
            if length == ONE:
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
            expect_end(data, offset)
    except (StructError, IndexError) as error:
        raise MalformedBody("Topics", offset, "the bytes end in the middle of it") from error
    return _make_request((group_id, topics, caller))


def decode_in_steps(
    api_key: int, version: int, data: Buffer, offset: int, bounds: Bounds, caller: Caller
) -> Generator[bool, None, StateRequest]:
    """Do what `decode_request` does, in steps of a millisecond or so, for a large request; each yields True."""
    _, _, read_partitions = _PARTITIONS[api_key, version]
    group_id, offset = read_string(data, offset, "GroupId")
    topics: list[tuple[bytes, list[PartitionRequest]]] = []
    partitions_left, batches_max, batches_left = bounds
    done, done_batches = 0, 0
    try:
        count, offset = read_count(data, offset, TOPIC_SIZE_MIN, "Topics")
        if count > bounds.share_partitions:  # each has one at least, in a request for anything
            raise _too_many_partitions(offset, bounds)
        for _ in range(count):
            topic_id, _ = _unpack_topic(data, offset)
            partition_count, offset = read_count(data, offset + 16, _PARTITION_SIZE_MIN, "Topics.Partitions")
            partitions_left -= partition_count
            if partitions_left < 0:
                raise _too_many_partitions(offset, bounds)
            partitions: list[PartitionRequest] = []
            while partition_count:
                size = min(partition_count, PARTITIONS_PER_STEP if api_key != WRITE else 1)
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
                if done >= PARTITIONS_PER_STEP or done_batches >= BATCHES_PER_STEP:
                    done = done_batches = 0
                    yield True
            offset = skip_tags(data, offset, "Topics")
            topics.append((topic_id, partitions))
            done += 1
            if done >= PARTITIONS_PER_STEP:  # topics may name no partition
                done = done_batches = 0
                yield True
        expect_end(data, offset)
    except (StructError, IndexError) as error:
        raise MalformedBody("Topics", offset, "the bytes end in the middle of it") from error
    return _make_request((group_id, topics, caller))


def _too_many_partitions(offset: int, bounds: Bounds) -> MalformedBody:
    reason = f"one request may name at most {bounds.share_partitions} share partitions"
    return MalformedBody("Topics.Partitions", offset, reason)


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


# ---- one share partition at a time ------------------------------------------------------------------------------------

_PartitionsReader = Callable[[Buffer, int, int, int], tuple[list[PartitionRequest], int]]
#: The type of a share partition and its layout, as the twin in C is told them, and the reader in Python.
_Partitions = tuple[type[PartitionRequest], str, _PartitionsReader]


def _fixed(layout: str, kind: type[PartitionRequest]) -> _Partitions:
    """Return how share partitions are read that are the numbers of `layout` and nothing else."""
    struct = Struct(f">{layout}B")
    unpack, size, field_count = struct.unpack_from, struct.size, len(layout)
    make: Callable[[tuple[int, ...]], PartitionRequest] = partial(tuple.__new__, kind)

    def read_partitions(data: Buffer, offset: int, count: int, _batches_max: int) -> tuple[list[PartitionRequest], int]:
        partitions = []
        for _ in range(count):
            fields = unpack(data, offset)
            offset = skip_tags(data, offset + size - 1, "Topics.Partitions") if fields[field_count] else offset + size
            partitions.append(make(fields[:field_count]))
        return partitions, offset

    return kind, layout, read_partitions


def _writes(layout: str, absent: tuple[int, ...]) -> _Partitions:
    """Return how the share partitions of a Write are read; `absent` is what `layout` lacks before the batches, each a -1."""
    struct = Struct(f">{layout}B")
    unpack, size = struct.unpack_from, struct.size
    field_count = len(layout)

    def read_partitions(data: Buffer, offset: int, count: int, batches_max: int) -> tuple[list[PartitionRequest], int]:
        partitions: list[PartitionRequest] = []
        for _ in range(count):
            fields = unpack(data, offset)
            offset += size
            if fields[field_count] == ONE:
                first_offset, last_offset, delivery_state, delivery_count, batch_tags, tags = _unpack_one_batch(
                    data, offset
                )
                if not batch_tags and not tags:
                    batch = make_batch((first_offset, last_offset, delivery_state, delivery_count))
                    partitions.append(_make_write((*fields[:field_count], *absent, (batch,))))
                    offset += 21
                    continue
            batches, offset = read_batches(data, offset - 1, batches_max)
            offset = skip_tags(data, offset, "Topics.Partitions") if data[offset] else offset + 1
            partitions.append(_make_write((*fields[:field_count], *absent, batches)))
        return partitions, offset

    return WritePartition, layout + "-" * len(absent) + "B", read_partitions


_PARTITIONS: Final[dict[tuple[int, int], _Partitions]] = {
    (INITIALIZE, 0): _fixed("iiq", InitializePartition),
    (READ, 0): _fixed("ii", ReadPartition),
    (WRITE, 0): _writes("iiiq", absent=(-1,)),
    (WRITE, 1): _writes("iiiqi", absent=()),
    (DELETE, 0): _fixed("i", DeletePartition),
    (SUMMARY, 0): _fixed("ii", SummaryPartition),
    (SUMMARY, 1): _fixed("ii", SummaryPartition),
}

_DECODERS_IN_C: Final[dict[tuple[int, int], Callable[[Buffer, int, Bounds, Caller], StateRequest | None]]] = (
    {}
    if twins is None
    else {
        call: partial(twins.decode_request, StateRequest, partition_type, layout)
        for call, (partition_type, layout, _) in _PARTITIONS.items()
    }
)


def _encode_batches(batches: Sequence[StateBatch]) -> bytes:
    return encode_varint(len(batches) + 1) + pack_batches(batches)


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
