"""The twins in C of functions that every write and every load goes through; `native.c` says why each is there.

They are part of the build that ships. Without them the functions in Python that each names serve alone, and answer the same.
"""

from collections.abc import Sequence
from typing import TypeVar

from holdfast.records.batches import SettledBatches, StateBatch
from holdfast.records.replay import ShareState
from holdfast.records.values import Snapshot, Update

R = TypeVar("R", bound=tuple[int, bytes | None, bytes | None, bytes | None])

def untrack(value: tuple[object, ...], /) -> None:
    """Have Python's collector not look at a tuple, if it looks at none of its items; such a tuple is part of no cycle."""

def encode_value(value: Snapshot | Update, batches_at: int, prefix: bytes, /) -> bytes:
    """Twin of `codecs.avro.encode_value`, told where among the fields the batches are."""

def decode_update(data: bytes, numbers_at: int, /) -> Update | None:
    """Return the update whose numbers begin at a place; None where it is not written as `encode_value` does."""

def decode_snapshot(data: bytes, numbers_at: int, /) -> Snapshot | None:
    """Return the snapshot whose numbers begin at a place; None where it is not written as `encode_value` does."""

def combine(
    current: Sequence[StateBatch], incoming: Sequence[StateBatch], start_offset: int, /
) -> SettledBatches | None:
    """Twin of `combining.combine`; None where the case is unusual: many batches, or such as cover no offset or do not settle."""

def fold_updates(
    state: ShareState,
    records: list[tuple[bytes, bytes, int]],
    begin: int,
    key_prefix: bytes,
    update_prefix: bytes,
    /,
) -> tuple[ShareState, int]:
    """Replay the updates among (raw key, raw value, offset) from a place on, as long as they are usual.

    Returns:
        The state behind them, and the place of the first record that is left to Python.
    """

def decode_records(
    record_type: type[R],
    header_name: bytes,
    batch: bytes,
    begin: int,
    count: int,
    base_offset: int,
    from_offset: int,
    /,
) -> list[R] | None:
    """Return the records of a batch that is not compressed, each as (offset, key, value, the last header of the name), from an offset on.

    None where anything is unusual; whether the batch is whole is for the caller to know.
    """
