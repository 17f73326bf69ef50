"""Lengths in a message of kio's, checked before kio reads it.

kio makes room for as many elements as an array says it has, and a process that cannot get so much memory is gone at once.
So no array may say that it has more elements than there are bytes left.
kio also reads an array that is missing as None, whatever the schema says; whoever goes through it would fail in the middle of its work.

Source: KIP-482, and Apache Kafka's protocol guide for what is not flexible.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final, NamedTuple

from kio.static.protocol import Entity

from holdfast.kafka.protocol.primitives import MalformedBody, read_varint
from holdfast.kafka.protocol.unknown_tags import FIXED_SIZES, shape_of

#: Of a legacy length: strings have a short one.
_SHORT, _LONG = 2, 4


class _Field(NamedTuple):
    """How a field is written; those of fixed size side by side are one."""

    name: str
    #: Bytes of one, without arrays; -1: it begins with its length.
    size: int
    #: Bytes of a legacy length, if it has one.
    length_size: int
    is_array: bool
    #: Whether an array may be missing; for a struct, whether one byte says that it is there.
    is_nullable: bool
    struct: "_Struct | None"


class _Struct(NamedTuple):
    fields: tuple[_Field, ...]
    #: By the number of the tag.
    tagged: Mapping[int, _Field]
    is_flexible: bool


#: By the class of the message or of a struct in one; there are as many as schemas.
_PLANS: Final[dict[Any, _Struct]] = {}


def check_lengths(entity_type: type[Entity], data: bytes) -> int:
    """Look at all lengths in a message; returns the offset behind its end.

    Raises:
        MalformedBody: one says more than there is.
    """
    return _check_struct(_plan_of(entity_type), data, 0)


def _check_struct(struct: _Struct, data: bytes, offset: int) -> int:
    for field in struct.fields:
        offset = _check_field(field, data, offset, is_flexible=struct.is_flexible)
    if not struct.is_flexible:
        return offset
    count, offset = read_varint(data, offset, "tagged fields")
    for _ in range(count):
        tag, offset = read_varint(data, offset, "a tag")
        size, offset = read_varint(data, offset, "the size of a tagged field")
        end = _take(data, offset, size, "a tagged field")
        known = struct.tagged.get(tag)
        if known is not None:
            if not known.is_array:
                known = known._replace(is_nullable=False)
            _check_field(known, data[:end], offset, is_flexible=True)
        offset = end
    return offset


def _check_field(field: _Field, data: bytes, offset: int, *, is_flexible: bool) -> int:
    """Return the offset behind a field."""
    count = 1
    if field.is_array:
        start = offset
        length, offset = _read_length(data, offset, _LONG, field.name, is_flexible=is_flexible)
        if length < 0 and not (length == -1 and field.is_nullable):
            raise MalformedBody(field.name, start, "it must not be null" if length == -1 else f"its length is {length}")
        count = max(0, length)
        if count > len(data) - offset:
            raise MalformedBody(field.name, offset, f"it has {count} elements, {len(data) - offset} bytes are left")
    elif field.is_nullable:
        offset = _take(data, offset, 1, field.name)
        count = int(data[offset - 1] < 0x80)
    if field.struct is not None:
        for _ in range(count):
            offset = _check_struct(field.struct, data, offset)
    elif field.size >= 0:
        offset = _take(data, offset, count * field.size, field.name)
    else:
        for _ in range(count):
            size, offset = _read_length(data, offset, field.length_size, field.name, is_flexible=is_flexible)
            offset = _take(data, offset, max(0, size), field.name)
    return offset


def _read_length(data: bytes, offset: int, size: int, field: str, *, is_flexible: bool) -> tuple[int, int]:
    """Return a length, -1 for null, and the offset behind it."""
    if is_flexible:
        length, offset = read_varint(data, offset, field)
        return length - 1, offset
    end = _take(data, offset, size, field)
    return int.from_bytes(data[offset:end], "big", signed=True), end


def _take(data: bytes, offset: int, size: int, field: str) -> int:
    """Return the offset behind so many bytes, which must be there."""
    if size > len(data) - offset:
        raise MalformedBody(field, offset, f"it has {size} bytes, {len(data) - offset} are left")
    return offset + size


def _plan_of(entity_type: Any) -> _Struct:  # noqa: ANN401
    plan = _PLANS.get(entity_type)
    if plan is None:
        plan = _PLANS[entity_type] = _make_plan(entity_type)
    return plan


def _make_plan(entity_type: Any) -> _Struct:  # noqa: ANN401
    plain: list[_Field] = []
    tagged: dict[int, _Field] = {}
    is_flexible: bool = entity_type.__flexible__
    for each in fields(entity_type):
        shape = shape_of(each.type)
        struct = None if shape.struct is None else _plan_of(shape.struct)
        kafka_type: str = each.metadata.get("kafka_type", "")
        size = FIXED_SIZES.get(kafka_type, -1)
        length_size = _SHORT if kafka_type == "string" else _LONG
        field = _Field(
            each.name,
            size,
            length_size,
            shape.is_array,
            shape.is_nullable and (struct is not None or shape.is_array),
            struct,
        )
        tag = each.metadata.get("tag")
        if tag is not None:
            tagged[tag] = field
        elif plain and _is_fixed(plain[-1]) and _is_fixed(field):
            plain[-1] = plain[-1]._replace(size=plain[-1].size + size)
        else:
            plain.append(field)
    return _Struct(tuple(plain), tagged, is_flexible)


def _is_fixed(field: _Field) -> bool:
    return field.size >= 0 and not field.is_array and field.struct is None
