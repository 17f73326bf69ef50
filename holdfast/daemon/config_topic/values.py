"""What is in the config topic: the newest value of each setting, whether this version knows it or not.

It has one partition. The key of a record is the name of a setting, the value its text as behind `--set NAME=`, both in UTF-8; a
tombstone unsets it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

#: The only one of the config topic.
PARTITION: Final = 0

#: Bytes of names and values that a node keeps: a hundred times what all settings take.
VALUES_BYTES_MAX: Final = 1 << 20


class ClusterValue(NamedTuple):
    """The value of one setting."""

    text: str
    #: Of the record that set it.
    offset: int


class TooManyValues(Exception):
    """Names and values take more bytes than they may; the text says how many."""


class ClusterValues:
    """The values that hold at one place in the config topic, folded from its records."""

    def __init__(self, bytes_max: int) -> None:
        """Hold nothing.

        Args:
            bytes_max: bound of all names and values.
        """
        self._bytes_max = bytes_max
        self._size_bytes = 0
        self._values: dict[str, ClusterValue] = {}
        #: Up to which the topic was read, inclusive; -1: nothing.
        self.offset = -1

    @property
    def values(self) -> Mapping[str, ClusterValue]:
        """Each value by the name of its setting."""
        return self._values

    def texts(self) -> dict[str, str]:
        """Return each value's text by the name of its setting, names ascending."""
        return {name: value.text for name, value in sorted(self._values.items())}

    def add(self, records: Iterable[tuple[int, bytes | None, bytes | None]]) -> list[int]:
        """Take the next records, each as offset, key and value; returns the offsets of those that are no settings.

        Raises:
            TooManyValues: there are more than may be kept.
        """
        foreign = []
        for offset, key, value in records:
            self.offset = offset
            try:
                name = (key or b"").decode()
                text = None if value is None else value.decode()
            except UnicodeDecodeError:
                name, text = "", None
            if not name:
                foreign.append(offset)
                continue
            size_bytes = self._size_bytes
            if name in self._values:
                size_bytes -= _size(name, self._values[name].text)
            if text is not None:
                size_bytes += _size(name, text)
            if size_bytes > self._bytes_max:
                raise TooManyValues(f"the settings in it take more than {self._bytes_max} bytes")
            self._size_bytes = size_bytes
            if text is None:
                self._values.pop(name, None)
            else:
                self._values[name] = ClusterValue(text, offset)
        return foreign

    def reached(self, next_offset: int) -> None:
        """Learn that all below an offset was read, or is no record."""
        self.offset = max(self.offset, next_offset - 1)


def _size(name: str, text: str) -> int:
    return len(name.encode()) + len(text.encode())
