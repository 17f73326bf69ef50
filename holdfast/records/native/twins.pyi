"""The twins in C of functions that every write and every load goes through; the head of the package says when they serve.

They are part of the build that ships. Without them the functions in Python that each names serve alone, and answer the same.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar, final, overload

from holdfast.records.share.batches import StateBatch
from holdfast.records.share.replay import ShareState
from holdfast.records.share.values import Snapshot, Update

@final
class PackedBatches(Sequence[StateBatch]):
    """Twin of `batches.SettledBatches`: 24 bytes a batch, of which whoever asks is given a `StateBatch` made for him.

    Equal to tuples of the same batches, with the same hash; a copy and what is pickled is a `SettledBatches`.
    Of a tuple it has neither `+` nor a form in JSON.
    """

    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, index: int) -> StateBatch: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[StateBatch, ...]: ...
    def __iter__(self) -> Iterator[StateBatch]: ...
    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...

T = TypeVar("T", bound=tuple[Any, ...])
Q = TypeVar("Q", bound=tuple[object, ...])
R = TypeVar("R", bound=tuple[int, bytes | None, bytes | None, bytes | None])

def untrack(value: tuple[object, ...], /) -> None:
    """Have Python's collector not look at a tuple, if it looks at none of its items; such a tuple is part of no cycle."""

def untrack_map(values: dict[Any, Any], /) -> None:
    """Have Python's collector not look through a dictionary that is part of no cycle; whatever is put into it undoes that."""

def maker(kind: type[T], /) -> Callable[[tuple[Any, ...]], T]:
    """Twin of what `native.maker` does, for a type that adds nothing to tuple but names."""

def encode_value(value: Snapshot | Update, batches_at: int, prefix: bytes, /) -> bytes:
    """Twin of `codecs.avro.encode_value`, told where among the fields the batches are."""

def decode_update(data: bytes, numbers_at: int, /) -> Update | None:
    """Return the update whose numbers begin at a place; None where it is not written as `encode_value` does."""

def decode_snapshot(data: bytes, numbers_at: int, /) -> Snapshot | None:
    """Return the snapshot whose numbers begin at a place; None where it is not written as `encode_value` does."""

def pack(batches: Sequence[StateBatch], /) -> PackedBatches | None:
    """Return the batches of a tuple packed; None where they are not settled, or a number is beyond what a log has."""

def are_well_formed(batches: Sequence[StateBatch], /) -> bool:
    """Tell whether batches are packed, and each has offsets from 0 on, a delivery state that is persisted, and a count from 0 on."""

def encode_batches(batches: Sequence[StateBatch], /) -> bytes | None:
    """Twin of `api.share_state.pack_batches`; None where a number is beyond its field, or the batches are a list."""

def encode_outcomes(response: Sequence[tuple[bytes, Sequence[tuple[int, object]]]], /) -> bytes | None:
    """Return the answer to a call that reads no state; None where a share partition has an error, or anything is unusual.

    Args:
        response: (topic id, [(partition, (error code, error message))]) in lists, as `api.state_responses.encode_response` takes it.
    """

def encode_states(response: Sequence[tuple[bytes, Sequence[tuple[int, object]]]], /) -> bytes | None:
    """Return the answer to a Read, as `encode_outcomes` does; None also where batches are not packed or beyond their fields.

    Args:
        response: as above; results go on with the state epoch, the start offset and the batches.
    """

def decode_batches(data: bytes | memoryview, begin: int, count: int, /) -> PackedBatches | None:
    """Return so many batches in Kafka's form; None where they are not settled, or one has tags."""

def decode_request(
    request_type: type[Q],
    partition_type: type[tuple[object, ...]],
    layout: str,
    data: bytes | memoryview,
    offset: int,
    bounds: tuple[int, int, int],
    caller: object,
    /,
) -> Q | None:
    """Twin of `api.state_requests.decode_in_python`, for bytes; None where there are tags, or it would raise `MalformedBody`.

    Args:
        request_type: made of the group id, the topics and the caller.
        partition_type: made of the fields of a share partition.
        layout: of a share partition, a character for each field: "i" and "q" as for `Struct`, "-" for a -1 that is not among the bytes,
            "B" for state batches.
        data: see there.
        offset: see there.
        bounds: see there.
        caller: see there.
    """

def combine(
    current: Sequence[StateBatch], incoming: Sequence[StateBatch], start_offset: int, /
) -> PackedBatches | None:
    """Twin of `combining.combine`; None where the case is unusual: many batches, or such as cover no offset or do not settle."""

def replay_update(state: ShareState, update: Update, /) -> ShareState | None:
    """Twin of `replay.replay_update_in_python`, whose state the collector does not look at; None where `combine` says None."""

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

def encode_header(owner_epoch: int, sequence: int, /) -> bytes | None:
    """Twin of `header.encode_in_python`; None where a number is beyond its field."""

def encode_records(
    records: list[tuple[bytes, bytes | None, bytes]],
    header_name: bytes,
    timestamp_ms: int,
    room: int,
    overhead: int,
    /,
) -> tuple[bytes, int, int]:
    """Twin of `runtime.kafka_log.record_batches.encode_in_python`, for batches that are not compressed.

    Args:
        records: (key, value, header), at least one.
        header_name: of the one header that each record has.
        timestamp_ms: of all of them.
        room: bytes that keys and values may take, with `overhead` for each record; the first record may take more.
        overhead: see there.

    Returns:
        The batch, how many records it holds, and the bytes of their keys and values.
    """
