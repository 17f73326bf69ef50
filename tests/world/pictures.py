"""PNG files that carry what they show as text, so that a picture in a page can be compared with a fresh one."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
_KEYWORD: Final = b"Description\0"


class Size(NamedTuple):
    """Width and height in pixels."""

    width: int
    height: int


def with_shown(png: bytes, shown: Any) -> bytes:
    """Return a picture that says what it shows."""
    data = b"tEXt" + _KEYWORD + json.dumps(shown, ensure_ascii=True).encode()
    chunk = struct.pack(">I", len(data) - 4) + data + struct.pack(">I", zlib.crc32(data))
    head, end = png[:-12], png[-12:]
    assert end[4:8] == b"IEND"
    return head + chunk + end


def shown_in(png: bytes) -> Any:
    """Return what a picture says that it shows."""
    [text] = [data for kind, data in _chunks(png) if kind == b"tEXt" and data.startswith(_KEYWORD)]
    return json.loads(text.removeprefix(_KEYWORD))


def size_of(png: bytes) -> Size:
    """Return the size of a picture."""
    kind, data = next(_chunks(png))
    assert kind == b"IHDR"
    return Size(*struct.unpack(">II", data[:8]))


def _chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    assert png.startswith(_SIGNATURE)
    place = len(_SIGNATURE)
    while place < len(png):
        (length,) = struct.unpack(">I", png[place : place + 4])
        yield png[place + 4 : place + 8], png[place + 8 : place + 8 + length]
        place += length + 12
