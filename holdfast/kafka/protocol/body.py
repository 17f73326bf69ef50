"""Read a body field by field, in the flexible or the older form of Kafka's types.

This is for the calls of which few are made. It is also the reason why kio decodes nothing that comes from a client: its
reader allocates an array by its announced length, and a request of twenty bytes can end the process.

Source: KIP-482.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import Final

from holdfast.kafka.protocol import primitives
from holdfast.kafka.protocol.primitives import MalformedBody

_INT8: Final = Struct(">b")
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")


class BodyReader:
    """The fields of a message, taken one after the other.

    Every method takes the field's name and raises MalformedBody when the bytes do not hold it.
    """

    def __init__(self, data: bytes, offset: int, is_flexible: bool) -> None:
        self._data = data
        self._is_flexible = is_flexible
        #: Of the next field.
        self.offset = offset

    def int8(self, field: str) -> int:
        """Take a signed byte."""
        return self._number(_INT8, field)

    def int16(self, field: str) -> int:
        """Take a signed number of two bytes."""
        return self._number(_INT16, field)

    def int32(self, field: str) -> int:
        """Take a signed number of four bytes."""
        return self._number(_INT32, field)

    def int64(self, field: str) -> int:
        """Take a signed number of eight bytes."""
        return self._number(_INT64, field)

    def boolean(self, field: str) -> bool:
        """Take a truth value; any byte but 0 is true, as in Kafka."""
        return self._number(_INT8, field) != 0

    def raw(self, size: int, field: str) -> bytes:
        """Take `size` bytes."""
        start = self.offset
        if size > len(self._data) - start:
            raise MalformedBody(field, start, f"it has {size} bytes, {len(self._data) - start} are left")
        self.offset = start + size
        return self._data[start : self.offset]

    def skip_bytes(self, field: str) -> None:
        """Pass over bytes that begin with their length, or null."""
        start = self.offset
        if self._is_flexible:
            size, self.offset = primitives.read_varint(self._data, start, field)
            size -= 1
        else:
            size = self.int32(field)
        left = len(self._data) - self.offset
        if not -1 <= size <= left:
            raise MalformedBody(field, start, f"{size} bytes are announced and {left} are left")
        self.offset += max(size, 0)

    def string(self, field: str) -> str:
        """Take a string that is not null."""
        start = self.offset
        text = self.nullable_string(field)
        if text is None:
            raise MalformedBody(field, start, "it must not be null")
        return text

    def nullable_string(self, field: str) -> str | None:
        """Take a string; None is null."""
        start = self.offset
        if self._is_flexible:
            text, self.offset = primitives.read_nullable_string(self._data, start, field)
            return text
        length = self.int16(field)
        if length < -1:
            raise MalformedBody(field, start, f"its length is {length}")
        if length == -1:
            return None
        try:
            return str(self.raw(length, field), "utf-8")
        except UnicodeDecodeError as error:
            raise MalformedBody(field, start, "it is not UTF-8") from error

    def count(self, field: str) -> int:
        """Take the length of an array that is not null; each element has one byte at least."""
        start = self.offset
        count = self.nullable_count(field)
        if count is None:
            raise MalformedBody(field, start, "it must not be null")
        return count

    def nullable_count(self, field: str) -> int | None:
        """Take the length of an array, None for null; it is not above the number of bytes left."""
        start = self.offset
        if self._is_flexible:
            length, self.offset = primitives.read_varint(self._data, start, field)
            length -= 1
        else:
            length = self.int32(field)
        if length == -1:
            return None
        left = len(self._data) - self.offset
        if not 0 <= length <= left:
            raise MalformedBody(field, start, f"{length} elements are announced and {left} bytes are left")
        return length

    def tags(self, field: str) -> None:
        """Pass over the tagged fields of a struct, which only the flexible form has."""
        if self._is_flexible:
            self.offset = primitives.skip_tags(self._data, self.offset, field)

    def lenient_end(self) -> None:
        """Take the tagged fields of the body and leave what follows alone.

        Apache Kafka does so, and librdkafka relies on it: it ends a Metadata request for all topics with three bytes
        too many.
        """
        self.tags("the tagged fields of the body")

    def end_with_tags(self) -> Mapping[int, bytes]:
        """Take the tagged fields of a flexible body, by number, and check that nothing follows."""
        tags, self.offset = primitives.read_tags(self._data, self.offset, "the tagged fields of the body")
        self._check_end()
        return dict(tags)

    def end(self) -> None:
        """Take the tagged fields of the body and check that nothing follows."""
        self.tags("the tagged fields of the body")
        self._check_end()

    def _check_end(self) -> None:
        left = len(self._data) - self.offset
        if left:
            raise MalformedBody("the end of the body", self.offset, f"{left} more bytes follow")

    def _number(self, layout: Struct, field: str) -> int:
        number: int = layout.unpack(self.raw(layout.size, field))[0]
        return number
