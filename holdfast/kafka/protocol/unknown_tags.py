"""Tagged fields that a schema of kio's does not know, cut out of a message.

A newer broker may add them to any struct without a new version, and readers skip them; kio fails at the first one.

Source: KIP-482.
"""

from collections.abc import Mapping
from dataclasses import Field, fields, is_dataclass
from types import NoneType
from typing import Any, Final, NamedTuple, get_args, get_origin

from kio.static.protocol import Entity

from holdfast.kafka.protocol.primitives import MalformedBody, encode_tags, read_tags, read_varint

#: Bytes, by kio's name of the type.
FIXED_SIZES: Final[Mapping[str, int]] = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "error_code": 2,
    "int32": 4,
    "timedelta_i32": 4,
    "int64": 8,
    "float64": 8,
    "timedelta_i64": 8,
    "datetime_i64": 8,
    "uuid": 16,
}
#: Types that begin with their length, which is 0 for null and one more than the number of bytes otherwise.
_WITH_LENGTH: Final = frozenset(("string", "bytes", "records"))
#: Bytes before a struct that may be null, which say that it is: negative ones.
_NULL_FROM: Final = 0x80


class _Shape(NamedTuple):
    """How a field is written."""

    is_array: bool
    is_nullable: bool
    #: The type of the struct, or of each in the array; None: it is no struct.
    struct: type[Any] | None


def cut_unknown_tags(entity_type: type[Entity], data: bytes) -> bytes:
    """Return a message of a flexible version with those tagged fields only that its schema knows, in all of its structs.

    Raises:
        MalformedBody: the bytes do not follow the schema.
    """
    message, end = _cut_struct(entity_type, data, 0)
    return message + data[end:]


def _cut_struct(entity_type: type[Any], data: bytes, offset: int) -> tuple[bytes, int]:
    """Return the struct at `offset`, and the offset behind it in `data`."""
    parts: list[bytes] = []
    known: dict[int, Field[Any]] = {}
    for each in fields(entity_type):
        if (tag := each.metadata.get("tag")) is not None:
            known[tag] = each
            continue
        part, offset = _cut_field(each, data, offset, is_tagged=False)
        parts.append(part)
    tags, offset = read_tags(data, offset, f"the tagged fields of {entity_type.__name__}")
    kept = [(tag, _cut_content(known[tag], content)) for tag, content in tags if tag in known]
    return b"".join((*parts, encode_tags(kept))), offset


def _cut_content(field: Field[Any], content: bytes) -> bytes:
    part, end = _cut_field(field, content, 0, is_tagged=True)
    return part + content[end:]


def _cut_field(field: Field[Any], data: bytes, offset: int, *, is_tagged: bool) -> tuple[bytes, int]:
    """Return the field at `offset`, and the offset behind it in `data`."""
    shape, start = shape_of(field.type), offset
    count = 1
    if shape.is_array:
        announced, offset = read_varint(data, offset, field.name)
        count = max(0, announced - 1)
    elif shape.struct is not None and shape.is_nullable and not is_tagged:
        offset = _take(data, offset, 1, field.name)
        count = int(data[offset - 1] < _NULL_FROM)
    if shape.struct is None:
        for _ in range(count):
            offset = _skip_primitive(field, data, offset)
        return data[start:offset], offset
    parts = [data[start:offset]]
    for _ in range(count):
        part, offset = _cut_struct(shape.struct, data, offset)
        parts.append(part)
    return b"".join(parts), offset


def _skip_primitive(field: Field[Any], data: bytes, offset: int) -> int:
    kafka_type: str = field.metadata["kafka_type"]
    if kafka_type not in _WITH_LENGTH:
        return _take(data, offset, FIXED_SIZES[kafka_type], field.name)
    length, offset = read_varint(data, offset, field.name)
    return _take(data, offset, max(0, length - 1), field.name)


def _take(data: bytes, offset: int, size: int, field: str) -> int:
    """Return the offset behind so many bytes, which must be there."""
    if size > len(data) - offset:
        raise MalformedBody(field, offset, f"it has {size} bytes, {len(data) - offset} are left")
    return offset + size


def shape_of(field_type: Any) -> _Shape:  # noqa: ANN401
    """Return how a field of this type is written."""
    is_nullable = NoneType in get_args(field_type)
    if is_nullable:
        (field_type,) = (each for each in get_args(field_type) if each is not NoneType)
    is_array = get_origin(field_type) is tuple
    element = get_args(field_type)[0] if is_array else field_type
    is_struct = isinstance(element, type) and is_dataclass(element)
    return _Shape(is_array, is_nullable, element if is_struct else None)
