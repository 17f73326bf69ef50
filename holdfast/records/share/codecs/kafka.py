"""Apache Kafka's own codec: byte for byte what its share coordinator writes, so its tools read our topic and we theirs.

All numbers are big-endian. A key is

    record type i16 (0 snapshot, 1 update) | group id (length i16, UTF-8) | topic id, 16 bytes | partition i32

and a value is its version, i16 (0 is the only one), then

    snapshot: snapshot epoch i32 | state epoch i32 | leader epoch i32 | start offset i64
              | creation ms i64 | write ms i64 | batches | tags
    update:   snapshot epoch i32 | leader epoch i32 | start offset i64 | batches | tags
    batch:    first offset i64 | last offset i64 | delivery state i8 | delivery count i16 | tags

with arrays and tags as `kafka.protocol.primitives` describes. Tag 0 of both values is the delivery complete count, i32, absent when
-1. Tag 26726 of a snapshot ("hf" in ASCII, far above what Kafka will ever reach) is ours: both fences, i32 each,
absent when they equal the stored epochs; Kafka skips it.

Bytes after a key or a value are ignored, as Kafka does, and counted. Unknown tags are handed to the caller, who
may give them back.

Source: KIP-932 and KIP-1226, messages ShareSnapshotKey/Value and ShareUpdateKey/Value, version 0, of Apache Kafka
4.3.1.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from holdfast.kafka.protocol.primitives import (
    MalformedBody,
    encode_tags,
    encode_varint,
    read_count,
    read_tags,
)
from holdfast.kafka.topic_ids import TOPIC_ID_SIZE
from holdfast.records.errors import InvalidKey, Undecodable, UnknownRecordType, UnknownVersion
from holdfast.records.native import twins
from holdfast.records.share.batches import StateBatch, make_batch
from holdfast.records.share.keys import GROUP_ID_BYTES_MAX, SharePartitionKey
from holdfast.records.share.values import Snapshot, Update, make_snapshot, make_update

SNAPSHOT_TYPE: Final = 0
UPDATE_TYPE: Final = 1

COUNT_TAG: Final = 0
FENCES_TAG: Final = 26726

Tags: TypeAlias = tuple[tuple[int, bytes], ...]


class UnknownTags(NamedTuple):
    """The tagged fields that this codec does not know, as (tag, bytes) in ascending order of tags."""

    value: Tags = ()
    #: Tags of each batch in order; empty when no batch has any.
    batches: tuple[Tags, ...] = ()


NO_TAGS: Final = UnknownTags()


class DecodedKey(NamedTuple):
    """The content of a key."""

    record_type: int
    key: SharePartitionKey
    #: Bytes after the key, which were ignored.
    bytes_left: int


class DecodedValue(NamedTuple):
    """The content of a value."""

    value: Snapshot | Update
    unknown_tags: UnknownTags
    #: Bytes after the value, which were ignored.
    bytes_left: int


_INT16 = Struct(">h")
_KEY_HEAD = Struct(">hh")
_KEY_TAIL = Struct(f">{TOPIC_ID_SIZE}si")
_SNAPSHOT_HEAD = Struct(">hiiiqqq")
_UPDATE_HEAD = Struct(">hiiq")
_BATCH = Struct(">qqbh")
# The byte at the end says "no tags".
_BATCH_WITHOUT_TAGS = Struct(">qqbhx")
_BATCH_SIZE = _BATCH_WITHOUT_TAGS.size
_COUNT = Struct(">i")
_ONLY_COUNT_START = bytes((1, COUNT_TAG, _COUNT.size))
_FENCES = Struct(">ii")
_VERSION: Final = 0
_NO_COUNT: Final = -1


def encode_key(key: SharePartitionKey, record_type: int) -> bytes:
    """Return the key of a record of `record_type`, `SNAPSHOT_TYPE` or `UPDATE_TYPE`.

    Raises:
        InvalidKey: the group id is too long for this codec.
    """
    group_id = key.group_id.encode()
    if len(group_id) > GROUP_ID_BYTES_MAX:
        raise InvalidKey(key.group_id, f"the group id has more than {GROUP_ID_BYTES_MAX} bytes in UTF-8")
    return _KEY_HEAD.pack(record_type, len(group_id)) + group_id + _KEY_TAIL.pack(key.topic_id, key.partition)


def decode_key(data: bytes) -> DecodedKey:
    """Return the record type and the share partition that a key names.

    Raises:
        UnknownRecordType: the type is none of Kafka's.
        Undecodable: cut short, or a group id that is null or not UTF-8.
    """
    if len(data) < _INT16.size:
        raise Undecodable("key", "it ends within its record type", data)
    (record_type,) = _INT16.unpack_from(data)
    if record_type not in (SNAPSHOT_TYPE, UPDATE_TYPE):
        raise UnknownRecordType(record_type)
    try:
        _, size = _KEY_HEAD.unpack_from(data)
        if size < 0:
            raise Undecodable("key", "its group id is null", data)
        tail = _KEY_HEAD.size + size
        topic_id, partition = _KEY_TAIL.unpack_from(data, tail)
        group_id = data[_KEY_HEAD.size : tail].decode()
    except struct.error as error:
        raise Undecodable("key", f"it ends after {len(data)} bytes", data) from error
    except UnicodeDecodeError as error:
        raise Undecodable("key", "its group id is not UTF-8", data) from error
    return DecodedKey(record_type, SharePartitionKey(group_id, topic_id, partition), len(data) - tail - _KEY_TAIL.size)


def encode_value(value: Snapshot | Update, unknown_tags: UnknownTags = NO_TAGS) -> bytes:
    """Return the bytes of a snapshot or an update, with tags that `decode_value` did not know put back.

    Raises:
        struct.error: a number is beyond the range of its field.
    """
    if type(value) is Update:
        head = _UPDATE_HEAD.pack(_VERSION, *value[:3])
        fences = b""
    else:
        assert type(value) is Snapshot
        head = _SNAPSHOT_HEAD.pack(_VERSION, *value[:4], *value[5:7])
        has_fences = value.leader_epoch_fence != value.leader_epoch or value.state_epoch_fence != value.state_epoch
        fences = _FENCES.pack(value.leader_epoch_fence, value.state_epoch_fence) if has_fences else b""
    count, batches = value.delivery_complete_count, value.state_batches
    parts = [head, encode_varint(len(batches) + 1)]
    if unknown_tags.batches:
        for batch, batch_tags in zip(batches, unknown_tags.batches, strict=True):
            parts += (_BATCH.pack(*batch), encode_tags(batch_tags))
    else:
        packed = None if twins is None else twins.encode_batches(batches)
        parts += [_BATCH_WITHOUT_TAGS.pack(*batch) for batch in batches] if packed is None else [packed]
    if fences or unknown_tags.value:
        tags = [*unknown_tags.value]
        if count != _NO_COUNT:
            tags.append((COUNT_TAG, _COUNT.pack(count)))
        if fences:
            tags.append((FENCES_TAG, fences))
        parts.append(encode_tags(tuple(sorted(tags))))
    else:
        parts.append(b"\x00" if count == _NO_COUNT else _ONLY_COUNT_START + _COUNT.pack(count))
    return b"".join(parts)


def decode_value(record_type: int, data: bytes) -> DecodedValue:
    """Return the snapshot or update in a value, by the `record_type` that its key named.

    Raises:
        UnknownVersion: the version is not 0.
        Undecodable: cut short, or batches that are null.
    """
    if len(data) < _INT16.size:
        raise Undecodable("value", "it ends within its version", data)
    (version,) = _INT16.unpack_from(data)
    if version != _VERSION:
        raise UnknownVersion("value", f"version {version}", data)
    head = _SNAPSHOT_HEAD if record_type == SNAPSHOT_TYPE else _UPDATE_HEAD
    tags: Tags = ()
    try:
        fields = head.unpack_from(data)
        batches, batch_tags, end = _decode_batches(data, head.size)
        if data[end:] == b"\x00":
            count, fences, end = _NO_COUNT, None, end + 1
        else:
            count, fences, tags, end = _decode_tags(data, end, record_type)
    except struct.error as error:
        raise Undecodable("value", f"it ends after {len(data)} bytes", data) from error
    except MalformedBody as error:
        raise Undecodable("value", f"{error.field} at byte {error.offset}: {error.reason}", data) from error
    unknown_tags = UnknownTags(tags, batch_tags) if tags or batch_tags else NO_TAGS
    value: Snapshot | Update
    if record_type == SNAPSHOT_TYPE:
        value = make_snapshot((*fields[1:5], count, *fields[5:], batches, *(fences or (fields[3], fields[2]))))
    else:
        value = make_update((*fields[1:], count, batches))
    return DecodedValue(value, unknown_tags, len(data) - end)


def _decode_batches(data: bytes, offset: int) -> tuple[Sequence[StateBatch], tuple[Tags, ...], int]:
    """Return the batches at `offset`, the tags of each (nothing when none has any) and the offset after them."""
    count, start = read_count(data, offset, _BATCH_SIZE, "StateBatches")
    end = start + count * _BATCH_SIZE
    packed = None if twins is None else twins.decode_batches(data, start, count)
    if packed is not None:
        return packed, (), end
    # Up to the first batch that has tags all lie at equal distances, so its tag count is seen here.
    if not any(data[start + _BATCH.size : end : _BATCH_SIZE]):
        return tuple(map(make_batch, _BATCH_WITHOUT_TAGS.iter_unpack(data[start:end]))), (), end
    batches, tags = [], []
    for _ in range(count):
        batches.append(make_batch(_BATCH.unpack_from(data, start)))
        batch_tags, start = read_tags(data, start + _BATCH.size, "StateBatches.tags", {})
        tags.append(batch_tags)
    return tuple(batches), tuple(tags), start


def _decode_tags(data: bytes, offset: int, record_type: int) -> tuple[int, tuple[int, int] | None, Tags, int]:
    """Return delivery complete count, fences, unknown tags and the offset after the tags of a value."""
    if data.startswith(_ONLY_COUNT_START, offset):
        start = offset + len(_ONLY_COUNT_START)
        return _COUNT.unpack_from(data, start)[0], None, (), start + _COUNT.size
    # Kafka reads a field it knows at the field's own size, and ignores the size that is announced.
    tags, end = read_tags(data, offset, "tags", {COUNT_TAG: _COUNT.size})
    count, fences, unknown = _NO_COUNT, None, []
    for tag, content in tags:
        if tag == COUNT_TAG:
            (count,) = _COUNT.unpack(content)
        elif tag == FENCES_TAG and record_type == SNAPSHOT_TYPE:
            fences = _FENCES.unpack(content)
        else:
            unknown.append((tag, content))
    return count, fences, tuple(unknown), end
