"""A key, a value or a header's value as text that a person reads: JSON in lines, other text as it is, all else in hexadecimal."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from holdfast.page.source import Part

_BYTES_PER_LINE: Final = 16
#: Bytes shown in hexadecimal, which takes five times the room.
_HEX_MAX: Final = 16 << 10
#: Characters of JSON in lines, for each of its own and besides: an indentation may be as long as the rest of a value.
_JSON_GROWTH_MAX: Final = 16
_JSON_MORE_MAX: Final = 4_096
_PRINTED: Final = frozenset("\t\n\r")


class Content(NamedTuple):
    """Bytes as text."""

    form: str  #: JSON, text, hexadecimal, or empty
    text: str
    size_bytes: int
    cut: str  #: what is left out, in words; empty: nothing


def present(part: Part) -> Content:
    """Return a part of a record as text."""
    cut = "" if part.is_whole else f"the first {len(part.data):,} of {part.size_bytes:,} bytes"
    if not part.size_bytes:
        return Content("empty", "", 0, "")
    text = _as_text(part)
    if text is None:
        shown = part.data[:_HEX_MAX]
        if len(shown) < part.size_bytes:
            cut = f"the first {len(shown):,} of {part.size_bytes:,} bytes"
        return Content("hexadecimal", "\n".join(_hex_lines(shown)), part.size_bytes, cut)
    pretty = _as_json(text) if part.is_whole else None
    return Content("text" if pretty is None else "JSON", text if pretty is None else pretty, part.size_bytes, cut)


def _as_text(part: Part) -> str | None:
    data = part.data
    for dropped in range(1 if part.is_whole else 4):
        # A cut may be within a character.
        try:
            text = data[: len(data) - dropped].decode()
        except UnicodeDecodeError:
            continue
        return text if all(map(_is_printed, text)) else None
    return None


def _is_printed(character: str) -> bool:
    return character in _PRINTED or unicodedata.category(character) not in ("Cc", "Cs", "Cn")


def _as_json(text: str) -> str | None:
    """Return JSON with a line for each value; None where it is none, or where that would say anything else than it does."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        value = json.loads(
            text, parse_float=_same_float, parse_constant=_refuse_constant, object_pairs_hook=_without_repetition
        )
        return _in_lines(value, _JSON_GROWTH_MAX * len(text) + _JSON_MORE_MAX)
    except (ValueError, RecursionError):
        return None


def _in_lines(value: object, room: int) -> str:
    """Return JSON with a line for each value.

    Raises:
        ValueError: it has more characters than there is room for.
    """
    pieces = []
    for piece in json.JSONEncoder(indent=2, ensure_ascii=False).iterencode(value):
        pieces.append(piece)
        room -= len(piece)
        if room < 0:
            raise ValueError("it is nested too deeply")
    lines = "".join(pieces)
    lines.encode()  # half a character, which JSON can name, is none of a page
    return lines


def _same_float(text: str) -> float:
    value = float(text)
    if repr(value) != text:
        raise ValueError("it would be printed in another way")
    return value


def _refuse_constant(text: str) -> float:
    raise ValueError(f"{text} is no JSON")


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name stands there twice")
    return found


def _hex_lines(data: bytes) -> Iterator[str]:
    for first in range(0, len(data), _BYTES_PER_LINE):
        line = data[first : first + _BYTES_PER_LINE]
        letters = "".join(chr(each) if 0x20 <= each < 0x7F else "." for each in line)
        yield f"{first:06x}  {line.hex(' '):<{3 * _BYTES_PER_LINE - 1}}  {letters}"
