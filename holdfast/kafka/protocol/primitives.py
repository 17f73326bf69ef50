"""Kafka's flexible wire types: unsigned varints, compact strings and arrays, tagged fields.

Bytes here come from the other side. Whatever they are, the outcome is a value or `MalformedBody`, and nothing is allocated by
a length that is only announced. Lengths are unsigned varints of the length + 1; 0 means null.

Source: KIP-482.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

#: Longest varint of 32 bits.
_VARINT_SIZE_MAX: Final = 5
_INT32_MAX: Final = (1 << 31) - 1
#: Tagged fields of one struct; Kafka's messages have three at most.
_TAGS_MAX: Final = 100
#: Of tagged fields none of which is known.
NO_SIZES: Final[Mapping[int, int]] = {}
_ONE_BYTE: Final = [bytes((value,)) for value in range(0x80)]


class MalformedBody(ValueError):
    """Bytes from the other side that do not follow the message they claim to be."""

    def __init__(self, field: str, offset: int, reason: str) -> None:
        super().__init__(f"The field {field} at byte {offset} is malformed: {reason}.")
        #: Path of the field with Kafka's names, such as `Topics.Partitions`.
        self.field = field
        #: Of the first byte of the field, counted from the start of the frame.
        self.offset = offset
        self.reason = reason


def encode_varint(value: int) -> bytes:
    """Return `value`, 0 ≤ value < 2^32, as an unsigned varint."""
    if value < 0x80:
        return _ONE_BYTE[value]
    groups = []
    while value >= 0x80:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)


def encode_string(text: str | None) -> bytes:
    """Return a compact string; None is null."""
    if text is None:
        return b"\x00"
    data = text.encode()
    return encode_varint(len(data) + 1) + data


def encode_legacy_string(text: str | None) -> bytes:
    """Return a string of the older form, its length in two bytes; None becomes an empty one."""
    data = (text or "").encode()
    return len(data).to_bytes(2, "big") + data


def read_varint(data: bytes | memoryview, offset: int, field: str) -> tuple[int, int]:
    """Return the varint at `offset`, 0 ≤ value < 2^31, and the offset behind it.

    Raises:
        MalformedBody: it is cut off, too long or too large.
    """
    if offset < len(data) and data[offset] < 0x80:
        return data[offset], offset + 1
    value = 0
    for index in range(_VARINT_SIZE_MAX):
        if offset + index >= len(data):
            raise MalformedBody(field, offset, "the bytes end in the middle of it")
        byte = data[offset + index]
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            if value > _INT32_MAX:
                raise MalformedBody(field, offset, f"the number {value} is above {_INT32_MAX}")
            return value, offset + index + 1
    raise MalformedBody(field, offset, f"a number has more than {_VARINT_SIZE_MAX} bytes")


def read_string(data: bytes | memoryview, offset: int, field: str) -> tuple[str, int]:
    """Return the compact string at `offset`, and the offset behind it.

    Raises:
        MalformedBody: it is null, cut off or not UTF-8.
    """
    text, end = read_nullable_string(data, offset, field)
    if text is None:
        raise MalformedBody(field, offset, "it must not be null")
    return text, end


def read_nullable_string(data: bytes | memoryview, offset: int, field: str) -> tuple[str | None, int]:
    """Return the compact string at `offset`, None for null, and the offset behind it.

    Raises:
        MalformedBody: it is cut off or not UTF-8.
    """
    if offset < len(data) and data[offset] < 0x80:
        length, start = data[offset], offset + 1
    else:
        length, start = read_varint(data, offset, field)
    if not length:
        return None, start
    end = start + length - 1
    if end > len(data):
        raise MalformedBody(field, offset, f"{length - 1} bytes are announced and {len(data) - start} are left")
    try:
        return str(data[start:end], "utf-8"), end
    except UnicodeDecodeError as error:
        raise MalformedBody(field, offset, "it is not UTF-8") from error


def read_count(data: bytes | memoryview, offset: int, element_size_min: int, field: str) -> tuple[int, int]:
    """Return the number of elements of the compact array at `offset`, and the offset of the first.

    Args:
        data: the whole frame.
        offset: where the array begins.
        element_size_min: bytes of the smallest element; the bytes left must hold as many as are announced.
        field: its name.

    Raises:
        MalformedBody: it is null, cut off, or announces more than the bytes left can hold.
    """
    length, start = read_varint(data, offset, field)
    if not length:
        raise MalformedBody(field, offset, "it must not be null")
    if (length - 1) * element_size_min > len(data) - start:
        raise MalformedBody(
            field, offset, f"{length - 1} elements are announced and {len(data) - start} bytes are left"
        )
    return length - 1, start


def encode_tags(tags: Iterable[tuple[int, bytes]]) -> bytes:
    """Return tagged fields, each a number and its content, in the order of their numbers."""
    count, parts = 0, [b""]
    for tag, content in tags:
        parts += (encode_varint(tag), encode_varint(len(content)), content)
        count += 1
    parts[0] = encode_varint(count)
    return b"".join(parts)


def read_tags(
    data: bytes, offset: int, field: str, known_sizes: Mapping[int, int] = NO_SIZES
) -> tuple[tuple[tuple[int, bytes], ...], int]:
    """Return the tagged fields at `offset`, each its number and content, and the offset behind them.

    Args:
        data: the whole frame.
        offset: where they begin.
        field: their name.
        known_sizes: bytes of the content of some, by number, in place of the size that they announce, as Kafka reads those it knows.

    Raises:
        MalformedBody: they are cut off.
    """
    count, position = read_varint(data, offset, field)
    tags = []
    for _ in range(count):
        tag, position = read_varint(data, position, field)
        size, position = read_varint(data, position, field)
        end = position + known_sizes.get(tag, size)
        if end > len(data):
            raise MalformedBody(field, offset, "the bytes end in the middle of a tagged field")
        tags.append((tag, data[position:end]))
        position = end
    return tuple(tags), position


def skip_tags(data: bytes | memoryview, offset: int, field: str) -> int:
    """Return the offset behind the tagged fields at `offset`; we know none of them.

    Raises:
        MalformedBody: they are cut off, or too many.
    """
    count, position = read_varint(data, offset, field)
    if count > _TAGS_MAX:
        raise MalformedBody(field, offset, f"it has {count} tagged fields, at most {_TAGS_MAX} are taken")
    for _ in range(count):
        _, position = read_varint(data, position, field)
        size, position = read_varint(data, position, field)
        position += size
        if position > len(data):
            raise MalformedBody(field, offset, "the bytes end in the middle of a tagged field")
    return position
