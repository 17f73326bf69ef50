"""The records by which a fold knows, before it goes on, that the log is still the one that it has read.

A log that loses its end, as by an unclean election, may grow beyond the place of a fold before the fold reads on. Offsets go on
without a gap then, and the next checkpoint counts as always; but the fold holds what was lost, and lacks what took its place.
So a fold goes on only if the log still holds the record that it read last, and its newest checkpoint unless that was cut off.
The record alone is not enough, for another attempt may have the same epoch and write the same again.

The record that counted last is not enough either: records after it that did not count may have made way for some that do.

Source: `may_go_on` in tests/model/manifests.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from holdfast.records.share.snapshot_store.folding import RawRecord

_DIGEST_SIZE: Final = 16
_LENGTH_SIZE: Final = 4


class LastRead(NamedTuple):
    """The records that the log must still hold."""

    #: Offset of the record that was read last.
    offset: int
    digest: bytes
    #: Offset of the newest checkpoint that counted; -1: there was none.
    checkpoint_offset: int
    #: Value of that checkpoint.
    checkpoint: bytes

    def offsets(self) -> list[int]:
        """Return the offsets of the records to be compared."""
        is_one = self.checkpoint_offset in (-1, self.offset)
        return [self.offset] if is_one else [self.offset, self.checkpoint_offset]

    def refusal(self, log_start: int, found: Mapping[int, RawRecord]) -> str:
        """Return why a fold must not go on, as a clause; empty if it may.

        Args:
            log_start: looked up after the records were read, so that what is missing from above it was not cut off meanwhile.
            found: by offset, the records of `offsets` that the log holds.
        """
        last = found.get(self.offset)
        if last is None:
            return "is not there any more"
        if digest_record(last.key, last.value, last.header) != self.digest:
            return "is another one now"
        if self.checkpoint_offset < log_start:
            return ""
        checkpoint = found.get(self.checkpoint_offset)
        if checkpoint is None or checkpoint.value != self.checkpoint:
            return f"follows another checkpoint now than the one at offset {self.checkpoint_offset}"
        return ""


def digest_record(key: bytes | None, value: bytes | None, header: bytes | None) -> bytes:
    """Return by which a record is known again; a field that is missing differs from an empty one."""
    hashed = blake2b(digest_size=_DIGEST_SIZE)
    for field in (key, value, header):
        length = -1 if field is None else len(field)
        hashed.update(length.to_bytes(_LENGTH_SIZE, "big", signed=True) + (field or b""))
    return hashed.digest()
