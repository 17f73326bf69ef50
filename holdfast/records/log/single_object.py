"""Avro single-object encoding: marker C3 01 | schema fingerprint, 8 bytes little-endian | body.

The fingerprint is CRC-64-AVRO over the parsing canonical form, so documentation may change freely and a field may
not. The schema files in `schemas/` are the truth; every schema that was ever released stays there, under a name of
its own.

Source: Apache Avro 1.11 specification, "Single-object encoding".
"""

from __future__ import annotations

import json
from importlib.resources import files
from io import BytesIO
from typing import Any, Final

import fastavro
from fastavro.schema import fingerprint, to_parsing_canonical_form

from holdfast.records.errors import Undecodable, UnknownVersion

MARKER: Final = b"\xc3\x01"
PREFIX_SIZE: Final = 10


class SingleObject:
    """Encode and decode one schema's values, as dictionaries, through fastavro."""

    def __init__(self, schema_name: str) -> None:
        text = files("holdfast.records").joinpath("schemas", f"{schema_name}.avsc").read_text(encoding="utf-8")
        self.schema_name = schema_name
        self.schema: dict[str, Any] = json.loads(text)
        self._parsed = fastavro.parse_schema(self.schema)
        crc = fingerprint(to_parsing_canonical_form(self.schema), "CRC-64-AVRO")
        #: Marker and fingerprint, with which every value of this schema begins.
        self.prefix = MARKER + bytes.fromhex(crc)

    def encode(self, fields: dict[str, Any]) -> bytes:
        """Return the bytes of a value given by its fields."""
        buffer = BytesIO(self.prefix)
        buffer.seek(PREFIX_SIZE)
        fastavro.schemaless_writer(buffer, self._parsed, fields)
        return buffer.getvalue()

    def decode(self, what: str, data: bytes, reader: SingleObject | None = None) -> dict[str, Any]:
        """Return the fields of a value; `what` names it in errors.

        With a reader's schema the value is resolved to it by Avro's rules: fields that this schema lacks have their defaults.

        Raises:
            UnknownVersion: another schema.
            Undecodable: no single object, cut short, or followed by more bytes.
        """
        if data[:PREFIX_SIZE] != self.prefix:
            raise prefix_error(what, data)
        buffer = BytesIO(data)
        buffer.seek(PREFIX_SIZE)
        try:
            fields = fastavro.schemaless_reader(buffer, self._parsed, None if reader is None else reader._parsed)
        except (EOFError, ValueError, IndexError, OverflowError, MemoryError) as error:
            raise Undecodable(what, f"its Avro body is broken ({_why(error)})", data) from error
        if buffer.tell() != len(data):
            raise Undecodable(what, f"{len(data) - buffer.tell()} bytes follow its Avro body", data)
        assert isinstance(fields, dict)
        return fields


def _why(error: Exception) -> str:
    """Return what fastavro found, which has no words of its own for bytes that end in the middle of a number or a text."""
    if isinstance(error, IndexError) or not str(error):
        return "it ends too early" if isinstance(error, (EOFError, IndexError)) else type(error).__name__
    return str(error)


def prefix_error(what: str, data: bytes) -> Undecodable:
    """Return the error for bytes that do not begin with the prefix of any schema expected there."""
    if data[:2] != MARKER:
        return Undecodable(what, "it does not begin with the marker of an Avro single object", data)
    if len(data) < PREFIX_SIZE:
        return Undecodable(what, "it ends within its schema fingerprint", data)
    return UnknownVersion(what, f"schema fingerprint {data[PREFIX_SIZE - 1 : 1 : -1].hex()}", data)
