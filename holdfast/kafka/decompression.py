"""The records of a batch without their compression, within a bound: few bytes may stand for gigabytes.

Source: Apache Kafka's `CompressionType`; snappy is raw or in the blocks of xerial's library, as its Java client writes it.
"""

import zlib
from collections.abc import Callable
from struct import Struct
from typing import Any, Final

import cramjam

_GZIP, _SNAPPY, _LZ4, _ZSTD = 1, 2, 3, 4
_GZIP_WINDOW: Final = 31
_XERIAL: Final = b"\x82SNAPPY\x00"
_XERIAL_HEAD_BYTES: Final = 16
_BLOCK_SIZE: Final = Struct(">i")
#: The first room for what has no size in front, which doubles until the bound.
_ROOM_BYTES: Final = 256 * 1024

_Into = Callable[[bytes, bytearray], Any]


class TooLarge(Exception):
    """The data would exceed the bound."""

    def __init__(self, bytes_max: int) -> None:
        super().__init__(f"without its compression it has more than {bytes_max} bytes, or it is no data of its codec")


def decompress(codec: int, data: bytes, bytes_max: int) -> bytes:
    """Return what was compressed by the codec of this number of Kafka's.

    Raises:
        TooLarge: it has more bytes than that.
        Exception: it is damaged; the libraries raise what they like.
    """
    if codec == _GZIP:
        return _gunzip(data, bytes_max)
    if codec == _SNAPPY:
        return _unsnap(data, bytes_max)
    if codec == _LZ4:
        return _grow(cramjam.lz4.decompress_into, data, bytes_max)
    if codec == _ZSTD:
        return _grow(cramjam.zstd.decompress_into, data, bytes_max)
    raise ValueError(f"there is no codec {codec}")


def _gunzip(data: bytes, bytes_max: int) -> bytes:
    inflater = zlib.decompressobj(_GZIP_WINDOW)
    found = inflater.decompress(data, bytes_max + 1)
    if len(found) > bytes_max:
        raise TooLarge(bytes_max)
    if not inflater.eof:
        raise ValueError("it is cut short")
    return found


def _unsnap(data: bytes, bytes_max: int) -> bytes:
    blocks = list(_xerial_blocks(data)) if data.startswith(_XERIAL) else [data]
    # A block begins with its size.
    if sum(cramjam.snappy.decompress_raw_len(block) for block in blocks) > bytes_max:
        raise TooLarge(bytes_max)
    return b"".join(bytes(cramjam.snappy.decompress_raw(block)) for block in blocks)


def _xerial_blocks(data: bytes) -> list[bytes]:
    blocks, at = [], _XERIAL_HEAD_BYTES
    while at < len(data):
        (size,) = _BLOCK_SIZE.unpack_from(data, at)
        at += _BLOCK_SIZE.size
        if not 0 < size <= len(data) - at:
            raise ValueError(f"a block says that it has {size} bytes")
        blocks.append(data[at : at + size])
        at += size
    return blocks


def _grow(into: _Into, data: bytes, bytes_max: int) -> bytes:
    """Decompress into more and more room: one that is too small is reported like any damage."""
    room_bytes = min(max(_ROOM_BYTES, 4 * len(data)), bytes_max)
    while True:
        room = bytearray(room_bytes)
        try:
            size = into(data, room)
        except cramjam.DecompressionError:
            if room_bytes >= bytes_max:
                raise TooLarge(bytes_max) from None
            room_bytes = min(2 * room_bytes, bytes_max)
            continue
        return bytes(memoryview(room)[:size])
