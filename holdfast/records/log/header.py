"""The `hf` record header: under which owner epoch a record was appended, and its place within that epoch.

Layout, big-endian: version int8 (1) | owner epoch int32 | sequence int64. A log whose first record has no such header
is foreign.

A header of ours has 13 bytes in version 1, and at least as many in any later one, whose records this version must not pass over.
Any other header is another program's, and its record is void, as without one.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Final

from holdfast.records.errors import ForeignHeader, UnknownVersion
from holdfast.records.native import twins

HEADER_NAME: Final = "hf"

_VERSION: Final = 1
#: As an int8 has it.
_VERSION_MAX: Final = 127
_LAYOUT: Final = Struct(">biq")
_pack: Final = _LAYOUT.pack

_encode_in_c: Final = None if twins is None else twins.encode_header


def find_header(headers: Any) -> bytes | None:  # noqa: ANN401 - librdkafka's stubs say less than is true
    """Return the `hf` header among (name, value) of a record, None where there is none; of several the last, as Kafka's clients do."""
    if not headers:
        return None
    if len(headers) == 1 and headers[0][0] == HEADER_NAME:
        only: bytes | None = headers[0][1]
        return only
    return next((value for name, value in reversed(headers) if name == HEADER_NAME), None)


def encode_header(owner_epoch: int, sequence: int) -> bytes:
    """Return the 13 bytes that say "record number `sequence` (from 0) of owner epoch `owner_epoch`"."""
    header = None if _encode_in_c is None else _encode_in_c(owner_epoch, sequence)
    return encode_in_python(owner_epoch, sequence) if header is None else header


def encode_in_python(owner_epoch: int, sequence: int) -> bytes:
    """Answer as `encode_header` does."""
    return _pack(_VERSION, owner_epoch, sequence)


def decode_header(data: bytes) -> tuple[int, int]:
    """Return (owner epoch, sequence).

    Raises:
        UnknownVersion: a newer Holdfast wrote it.
        ForeignHeader: no Holdfast wrote it.
    """
    if len(data) != _LAYOUT.size or data[0] != _VERSION:
        raise _error_of(data)
    _, owner_epoch, sequence = _LAYOUT.unpack(data)
    return owner_epoch, sequence


def is_foreign(data: bytes | None) -> bool:
    """Tell whether a record with this header, or without one, is another program's."""
    if data is None:
        return True
    is_ours = len(data) == _LAYOUT.size and data[0] == _VERSION
    return not is_ours and isinstance(_error_of(data), ForeignHeader)


def _error_of(data: bytes) -> ForeignHeader | UnknownVersion:
    if len(data) >= _LAYOUT.size and _VERSION < data[0] <= _VERSION_MAX:
        return UnknownVersion("header", f"version {data[0]}", data)
    return ForeignHeader(
        "header", f"no Holdfast writes one of {len(data)} bytes that begins with {data[:1].hex() or 'none'}", data
    )
