"""Faults of bytes from the log, and of a coordinator key.

One class per reaction of the reader: an unknown record *type* is counted and skipped, everything else stops the load
of that log partition and says why. `InvalidKey` is about text a client sent, never about the log.
"""

from __future__ import annotations


class RecordError(Exception):
    """A record of the log that cannot be used."""


class UnknownRecordType(RecordError):
    """A record of a kind that this version does not know; the reader counts it, warns once and skips it."""

    def __init__(self, record_type: int) -> None:
        super().__init__(f"The record type {record_type} is unknown; a newer version may have written it.")
        #: int16 at the start of the key.
        self.record_type = record_type


class Undecodable(RecordError):
    """Bytes that do not follow the format they claim; the load fails."""

    def __init__(self, what: str, reason: str, data: bytes | None = None) -> None:
        super().__init__(f"The {what} cannot be decoded: {reason}.")
        #: Which part: "key", "value", "header", "checkpoint", …
        self.what = what
        self.reason = reason
        #: The bytes at fault, None when there were none.
        self.data = data


class UnknownVersion(Undecodable):
    """Bytes that name a value version or a schema fingerprint which this version does not know; the load fails."""

    def __init__(self, what: str, version: str, data: bytes | None = None) -> None:
        super().__init__(what, f"{version} is unknown, upgrade Holdfast to read it", data)
        #: As a person reads it: "version 1" or "schema fingerprint 0123456789abcdef".
        self.version = version


class ForeignHeader(Undecodable):
    """A header that no Holdfast has written, as of another program: its record is void."""


class InvalidKey(ValueError):
    """A text that is not a coordinator key or not a topic id."""

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(f"The key {text!r} is not valid: {reason}.")
        self.text = text
        self.reason = reason
