"""Our own codec: Avro single objects, one schema per kind of record.

The schema files are the truth and fastavro reads and writes them. For the schemas of today, whose bodies are nothing
but variable-length integers, this module does the same by hand in less than half the time; any value that does not look as we
would have written it goes to fastavro, which knows all of Avro. Snapshots and updates have the same key; a tombstone
has that key and a null value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from holdfast.kafka.topic_ids import TOPIC_ID_SIZE
from holdfast.records.errors import Undecodable
from holdfast.records.log.single_object import PREFIX_SIZE, SingleObject, prefix_error
from holdfast.records.native import twins
from holdfast.records.share.batches import StateBatch, make_batch
from holdfast.records.share.codecs.numbers import decode_numbers, encode_numbers
from holdfast.records.share.combining import pack
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.values import Snapshot, Update, make_snapshot, make_update

_KEY: Final = SingleObject("share_partition")
_SNAPSHOT: Final = SingleObject("share_snapshot")
_UPDATE: Final = SingleObject("share_update")

KEY_PREFIX: Final[bytes] = _KEY.prefix
SNAPSHOT_PREFIX: Final[bytes] = _SNAPSHOT.prefix
UPDATE_PREFIX: Final[bytes] = _UPDATE.prefix

_encode_in_c: Final = None if twins is None else twins.encode_value


def encode_key(key: SharePartitionKey) -> bytes:
    """Return the bytes of a record's key."""
    group_id = key.group_id.encode()
    return b"".join(
        (encode_numbers((len(group_id),), _KEY.prefix), group_id, encode_numbers((key.partition,), key.topic_id))
    )


def decode_key(data: bytes) -> SharePartitionKey:
    """Return the share partition that a key names.

    Raises:
        UnknownVersion: another schema.
        Undecodable: cut short, trailing bytes, not UTF-8.
    """
    if (
        data[:PREFIX_SIZE] == _KEY.prefix
        and len(data) > PREFIX_SIZE
        and (size := data[PREFIX_SIZE]) < 0x80
        and not size & 1
    ):
        topic = PREFIX_SIZE + 1 + (size >> 1)
        numbers = decode_numbers(data[topic + TOPIC_ID_SIZE :])
        if len(numbers) == 1:
            try:
                group_id = data[PREFIX_SIZE + 1 : topic].decode()
            except UnicodeDecodeError as error:
                raise Undecodable("key", "its group id is not UTF-8", data) from error
            return SharePartitionKey(group_id, data[topic : topic + TOPIC_ID_SIZE], numbers[0])
    return SharePartitionKey(**_KEY.decode("key", data))


def encode_value(value: Snapshot | Update) -> bytes:
    """Return the bytes of a snapshot or an update, whose numbers are within the range of their fields."""
    is_update = type(value) is Update
    if _encode_in_c is not None:
        return _encode_in_c(value, 4 if is_update else 7, UPDATE_PREFIX if is_update else SNAPSHOT_PREFIX)
    return encode_value_in_python(value)


def encode_value_in_python(value: Snapshot | Update) -> bytes:
    """Answer as `encode_value` does."""
    if type(value) is Update:
        numbers = [*value[:4]]
        _flatten(value[4], numbers)
        return encode_numbers(numbers, UPDATE_PREFIX)
    assert type(value) is Snapshot
    return encode_numbers(snapshot_numbers(value), SNAPSHOT_PREFIX)


def snapshot_numbers(snapshot: Snapshot) -> list[int]:
    """Return the numbers that the body of a snapshot consists of."""
    numbers: list[int] = [*snapshot[:7]]
    _flatten(snapshot[7], numbers)
    numbers += snapshot[8:]
    return numbers


def snapshot_of_numbers(numbers: list[int]) -> Snapshot | None:
    """Return the snapshot whose body these numbers are, or None when it is not written as `snapshot_numbers` does."""
    batches = _unflatten(numbers[7:-2])
    return None if batches is None else make_snapshot((*numbers[:7], batches, *numbers[-2:]))


def decode_value(data: bytes) -> Snapshot | Update:
    """Return the snapshot or update that a value holds.

    Raises:
        UnknownVersion: another schema.
        Undecodable: cut short, trailing bytes, no single object.
    """
    decode = _DECODERS.get(data[:PREFIX_SIZE])
    if decode is None:
        raise prefix_error("value", data)
    return decode(data)


def _decode_update(data: bytes) -> Update:
    update = None if twins is None else twins.decode_update(data, PREFIX_SIZE)
    return decode_update_in_python(data) if update is None else update


def decode_update_in_python(data: bytes) -> Update:
    """Return the update that a value of any form holds."""
    numbers = decode_numbers(data[PREFIX_SIZE:])
    batches = _unflatten(numbers[4:])
    if batches is not None:
        return make_update((*numbers[:4], batches))
    fields = _UPDATE.decode("value", data)
    return Update(**fields | {"state_batches": _batches(fields)})


def _decode_snapshot(data: bytes) -> Snapshot:
    snapshot = None if twins is None else twins.decode_snapshot(data, PREFIX_SIZE)
    return decode_snapshot_in_python(data) if snapshot is None else snapshot


def decode_snapshot_in_python(data: bytes) -> Snapshot:
    """Return the snapshot that a value of any form holds."""
    snapshot = snapshot_of_numbers(decode_numbers(data[PREFIX_SIZE:]))
    return snapshot or snapshot_of_fields(_SNAPSHOT.decode("value", data))


def snapshot_of_fields(fields: dict[str, Any]) -> Snapshot:
    """Return the snapshot with the fields that fastavro read."""
    return Snapshot(**fields | {"state_batches": _batches(fields)})


#: Every schema of values ever released.
_DECODERS: Final[dict[bytes, Callable[[bytes], Snapshot | Update]]] = {
    SNAPSHOT_PREFIX: _decode_snapshot,
    UPDATE_PREFIX: _decode_update,
}


def _batches(fields: dict[str, Any]) -> Sequence[StateBatch]:
    return pack(tuple(StateBatch(**batch) for batch in fields["state_batches"]))


def _flatten(batches: Sequence[StateBatch], numbers: list[int]) -> None:
    """Append the numbers of an Avro array of batches: one block of all items, then the block of none that ends it."""
    if batches:
        numbers.append(len(batches))
        for batch in batches:
            numbers += batch
    numbers.append(0)


def _unflatten(numbers: list[int]) -> Sequence[StateBatch] | None:
    """Return the batches of an Avro array given by its numbers, or None when it is not written as `_flatten` does."""
    if numbers == [0]:
        return ()
    if len(numbers) < 6 or numbers[0] * 4 + 2 != len(numbers) or numbers[-1]:
        return None
    fields = numbers[1:-1:4], numbers[2:-1:4], numbers[3:-1:4], numbers[4:-1:4]
    return pack(tuple(map(make_batch, zip(*fields, strict=True))))
