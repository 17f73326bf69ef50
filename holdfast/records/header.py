"""The `hf` record header: under which owner epoch a record was appended, and its place within that epoch.

Layout, big-endian: version int8 (1) | owner epoch int32 | sequence int64. A log whose first record has no such header
is foreign.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Final

from holdfast.records.errors import Undecodable, UnknownVersion
from holdfast.records.native import twins

HEADER_NAME: Final = "hf"

_VERSION: Final = 1
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
        UnknownVersion: the version byte is not 1.
        Undecodable: the length is not 13 bytes.
    """
    if data[:1] not in (b"\x01", b""):
        raise UnknownVersion("header", f"version {data[0]}", data)
    if len(data) != _LAYOUT.size:
        raise Undecodable("header", f"it has {len(data)} bytes in place of {_LAYOUT.size}", data)
    _, owner_epoch, sequence = _LAYOUT.unpack(data)
    return owner_epoch, sequence
