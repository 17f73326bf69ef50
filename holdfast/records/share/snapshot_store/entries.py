"""The snapshot topic: entries that hold the state of share partitions, and manifests that say which of them belong together.

An entry's key names the covered offset, so an entry is never replaced but by itself, and any number of jobs may write it.
A manifest depends on the log alone: all jobs that folded the log to its offset agree on its bytes.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final, NamedTuple, TypeAlias

from holdfast.kafka.topic_ids import TOPIC_ID_SIZE
from holdfast.records.errors import Undecodable
from holdfast.records.log.fencing import Position
from holdfast.records.log.single_object import PREFIX_SIZE, SingleObject, prefix_error
from holdfast.records.share.codecs import avro
from holdfast.records.share.codecs.numbers import decode_numbers, encode_numbers
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.values import Snapshot

DIGEST_SIZE: Final = 16
#: Sums of digests are taken modulo this.
DIGEST_MODULUS: Final = 1 << 8 * DIGEST_SIZE

_ENTRY_KEY = SingleObject("share_entry_key")
_ENTRY = SingleObject("share_entry")
_MANIFEST_KEY = SingleObject("share_manifest_key")
#: Is written; what was written with an older one is resolved to it by Avro's rules.
_MANIFEST = SingleObject("share_manifest")
_MANIFESTS: Final = {schema.prefix: schema for schema in (_MANIFEST, SingleObject("share_manifest_1"))}
_KEY_SIZE_MIN: Final = PREFIX_SIZE + TOPIC_ID_SIZE


class EntryKey(NamedTuple):
    """Name the state of a share partition at an offset."""

    #: 16 bytes, of the topic whose log was folded.
    state_topic_id: bytes
    key: SharePartitionKey
    #: Offset of the last record about the share partition that is folded in.
    covered_offset: int


class Entry(NamedTuple):
    """All that a shard rebuilds from the log for one share partition."""

    #: None: deleted. Otherwise epochs and timestamps are those of the log, never raised.
    snapshot: Snapshot | None
    #: Updates since the newest snapshot in the log.
    update_count: int
    #: Offset of that snapshot; -1 where the share partition is deleted.
    snapshot_offset: int


class ManifestKey(NamedTuple):
    """Name a log partition at an offset."""

    #: 16 bytes, of the topic whose log was folded.
    state_topic_id: bytes
    log_partition: int
    #: Offset of the last counting record that is folded in.
    covered_offset: int


class Manifest(NamedTuple):
    """The entries that make up a log partition at an offset, and how to read on after it."""

    partition_count: int
    #: After the covered offset.
    position: Position
    #: Value of the newest checkpoint of that epoch, which says who owns the log partition.
    checkpoint: bytes
    live_count: int
    #: Sum of the digests of the entries of all live share partitions, modulo `DIGEST_MODULUS`.
    digest_sum: int
    #: Offset of the checkpoint in the log; -1: not known.
    checkpoint_offset: int = -1


DELETED: Final = Entry(None, 0, -1)

Key: TypeAlias = EntryKey | ManifestKey


def digest(key_bytes: bytes, value_bytes: bytes) -> int:
    """Return what an entry with these bytes adds to the sum of a manifest."""
    return int.from_bytes(blake2b(key_bytes + value_bytes, digest_size=DIGEST_SIZE).digest(), "big")


def encode_entry_key(state_topic_id: bytes, share_key_bytes: bytes, covered_offset: int) -> bytes:
    """Return the key of an entry; `share_key_bytes` are those of `avro.encode_key`."""
    return b"".join(
        (
            _ENTRY_KEY.prefix,
            state_topic_id,
            share_key_bytes[PREFIX_SIZE:],
            encode_numbers((covered_offset,)),
        )
    )


def encode_entry(entry: Entry) -> bytes:
    """Return the value of an entry."""
    numbers = [0] if entry.snapshot is None else [1, *avro.snapshot_numbers(entry.snapshot)]
    return encode_numbers([*numbers, entry.update_count, entry.snapshot_offset], _ENTRY.prefix)


def encode_manifest_key(key: ManifestKey) -> bytes:
    """Return the key of a manifest."""
    return _MANIFEST_KEY.encode(key._asdict())


def encode_manifest(key: ManifestKey, manifest: Manifest) -> tuple[bytes, bytes]:
    """Return the key and the value of a manifest, whose position has an attempt id."""
    owner_epoch, attempt_id, next_sequence = manifest.position
    return encode_manifest_key(key), _MANIFEST.encode(
        {
            "partition_count": manifest.partition_count,
            "owner_epoch": owner_epoch,
            "attempt_id": attempt_id,
            "next_sequence": next_sequence,
            "checkpoint": manifest.checkpoint,
            "checkpoint_offset": manifest.checkpoint_offset,
            "live_count": manifest.live_count,
            "digest_sum": manifest.digest_sum.to_bytes(DIGEST_SIZE, "big"),
        }
    )


def decode_key(data: bytes | None) -> Key:
    """Return what a record of the snapshot topic is about.

    Raises:
        UnknownVersion: another schema.
        Undecodable: no key, cut short, trailing bytes, not UTF-8.
    """
    if data is None:
        raise Undecodable("key", "there is none")
    if data.startswith(_MANIFEST_KEY.prefix):
        return ManifestKey(**_MANIFEST_KEY.decode("key", data))
    if not data.startswith(_ENTRY_KEY.prefix):
        raise prefix_error("key", data)
    if len(data) > _KEY_SIZE_MIN and (size := data[_KEY_SIZE_MIN]) < 0x80 and not size & 1:
        topic = _KEY_SIZE_MIN + 1 + (size >> 1)
        numbers = decode_numbers(data[topic + TOPIC_ID_SIZE :])
        if len(numbers) == 2:
            try:
                group_id = data[_KEY_SIZE_MIN + 1 : topic].decode()
            except UnicodeDecodeError as error:
                raise Undecodable("key", "its group id is not UTF-8", data) from error
            key = SharePartitionKey(group_id, data[topic : topic + TOPIC_ID_SIZE], numbers[0])
            return EntryKey(data[PREFIX_SIZE:_KEY_SIZE_MIN], key, numbers[1])
    fields = _ENTRY_KEY.decode("key", data)
    state_topic_id, covered_offset = fields.pop("state_topic_id"), fields.pop("covered_offset")
    return EntryKey(state_topic_id, SharePartitionKey(**fields), covered_offset)


def decode_entry(data: bytes) -> Entry:
    """Return the entry that a value holds.

    Raises:
        UnknownVersion: another schema.
        Undecodable: cut short, trailing bytes, no single object.
    """
    if data.startswith(_ENTRY.prefix):
        numbers = decode_numbers(data[PREFIX_SIZE:])
        if numbers[:1] == [0] and len(numbers) == 3:
            return Entry(None, numbers[1], numbers[2])
        if numbers[:1] == [1]:
            snapshot = avro.snapshot_of_numbers(numbers[1:-2])
            if snapshot is not None:
                return Entry(snapshot, numbers[-2], numbers[-1])
    fields = _ENTRY.decode("value", data)
    state = fields["state"]
    return Entry(
        None if state is None else avro.snapshot_of_fields(state), fields["update_count"], fields["snapshot_offset"]
    )


def is_live_entry(data: bytes) -> bool:
    """Tell from the first bytes of an entry whether its share partition lives.

    Raises:
        UnknownVersion: another schema.
        Undecodable: cut short, no single object.
    """
    if len(data) <= PREFIX_SIZE or not data.startswith(_ENTRY.prefix):
        raise prefix_error("value", data)
    return data[PREFIX_SIZE] != 0


def snapshot_offset_of(data: bytes) -> int:
    """Return the snapshot offset of an entry, which is the last number in it, without decoding the rest."""
    at = len(data) - 1
    while at and data[at - 1] > 0x7F:
        at -= 1
    numbers = decode_numbers(data[at:])
    return numbers[0] if numbers else decode_entry(data).snapshot_offset


def decode_manifest(data: bytes) -> Manifest:
    """Return the manifest that a value holds.

    Raises:
        UnknownVersion: another schema.
        Undecodable: cut short, trailing bytes, no single object.
    """
    writer = _MANIFESTS.get(data[:PREFIX_SIZE], _MANIFEST)
    fields = writer.decode("value", data, _MANIFEST)
    return Manifest(
        fields["partition_count"],
        Position(fields["owner_epoch"], fields["attempt_id"], fields["next_sequence"]),
        fields["checkpoint"],
        fields["live_count"],
        int.from_bytes(fields["digest_sum"], "big"),
        fields["checkpoint_offset"],
    )
