"""The five share-state calls (API keys 83 to 87), and what their requests and responses have in common.

The daemon decodes requests and encodes responses; the client does the reverse. Each share partition passes through `api.state_requests`
and `api.state_responses` once, so what has a fixed layout is one precompiled `Struct`, a varint of one byte is read in place, and named
tuples are made without their Python constructor.

Source: KIP-932, message schemas 83 to 87; Kafka's names are used for fields in errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from holdfast.kafka.protocol import api_keys
from holdfast.kafka.protocol.primitives import MalformedBody, read_count, skip_tags
from holdfast.records.native import twins
from holdfast.records.share.batches import StateBatch, make_batch

INITIALIZE: Final = api_keys.INITIALIZE_SHARE_GROUP_STATE
READ: Final = api_keys.READ_SHARE_GROUP_STATE
WRITE: Final = api_keys.WRITE_SHARE_GROUP_STATE
DELETE: Final = api_keys.DELETE_SHARE_GROUP_STATE
SUMMARY: Final = api_keys.READ_SHARE_GROUP_STATE_SUMMARY

#: API key to (lowest version, highest version), both inclusive.
VERSIONS: Final = {INITIALIZE: (0, 0), READ: (0, 0), WRITE: (0, 1), DELETE: (0, 0), SUMMARY: (0, 1)}

Buffer = bytes | memoryview

# A "B" at the end of a layout is the first byte of a varint: the number of tagged fields, or of elements + 1.

#: That byte where there is one element.
ONE: Final = 2
TOPIC: Final = Struct(">16sB")
TOPIC_SIZE_MIN: Final = TOPIC.size + 1
_BATCH: Final = Struct(">qqbhB")
_BATCH_WITHOUT_TAGS: Final = Struct(">qqbhx")
_pack_batch: Final = _BATCH_WITHOUT_TAGS.pack
_unpack_batch: Final = _BATCH.unpack_from
#: Up to so many are quickest read one by one.
_FEW_BATCHES: Final = 4

#: Bytes of a state batch in a request or an answer.
BATCH_SIZE: Final = _BATCH.size
#: How much a step decodes or encodes: share partitions, and about as many state batches as take the same time.
PARTITIONS_PER_STEP: Final = 200
BATCHES_PER_STEP: Final = 2_000
#: No bound of a request is higher.
COUNT_MAX: Final = (1 << 31) - 1


def read_batches(data: Buffer, offset: int, batches_max: int = COUNT_MAX) -> tuple[Sequence[StateBatch], int]:
    """Return the state batches whose number is at `offset`, and the offset behind them.

    Raises:
        MalformedBody: they are cut off, or more than `batches_max`.
    """
    count, offset = read_count(data, offset, _BATCH.size, "StateBatches")
    if count > batches_max:
        reason = f"one share partition has {count} state batches, at most {batches_max} are taken"
        raise MalformedBody("StateBatches", offset, reason)
    if twins is not None:
        packed = twins.decode_batches(data, offset, count)
        if packed is not None:
            return packed, offset + count * _BATCH.size
    if count <= _FEW_BATCHES:
        few = []
        for _ in range(count):
            first_offset, last_offset, delivery_state, delivery_count, tags = _unpack_batch(data, offset)
            few.append(make_batch((first_offset, last_offset, delivery_state, delivery_count)))
            offset += _BATCH.size
            if tags:
                offset = skip_tags(data, offset - 1, "StateBatches")
        return tuple(few), offset
    end = offset + count * _BATCH.size
    if not any(data[offset + _BATCH.size - 1 : end : _BATCH.size]):
        return tuple(map(make_batch, _BATCH_WITHOUT_TAGS.iter_unpack(data[offset:end]))), end
    batches = []
    for _ in range(count):
        *fields, _ = _BATCH.unpack_from(data, offset)
        offset = skip_tags(data, offset + _BATCH.size - 1, "StateBatches")
        batches.append(StateBatch(*fields))
    return tuple(batches), offset


def pack_batches(batches: Sequence[StateBatch]) -> bytes:
    """Return the bytes of state batches, without their number."""
    packed = None if twins is None else twins.encode_batches(batches)
    return b"".join([_pack_batch(*batch) for batch in batches]) if packed is None else packed


def expect_end(data: Buffer, offset: int) -> None:
    """Pass over the tagged fields of the body.

    Raises:
        MalformedBody: bytes follow.
    """
    end = skip_tags(data, offset, "the tagged fields of the body")
    if end != len(data):
        raise MalformedBody("the end of the body", end, f"{len(data) - end} more bytes follow")
