"""Both codecs through one interface; a record shows which codec wrote it, so a topic may hold both.

| the bytes hold               | outcome                                                              |
|------------------------------|----------------------------------------------------------------------|
| a snapshot or an update      | the value                                                            |
| a tombstone                  | `None`                                                               |
| a null update (Kafka codec)  | `NOOP`, to be warned about: Kafka never writes one                   |
| an unknown record type       | `UnknownRecordType`, to be counted and skipped                       |
| an unknown version or schema | `UnknownVersion`, the load fails                                     |
| something broken or cut off  | `Undecodable`, the load fails                                        |
| more bytes than needed       | Kafka codec: ignored and counted, as Kafka does; Avro: `Undecodable` |
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Final, NamedTuple

from holdfast.records.errors import Undecodable
from holdfast.records.log.checkpoint import CHECKPOINT_KEY
from holdfast.records.log.single_object import MARKER, PREFIX_SIZE, prefix_error
from holdfast.records.share.codecs import avro, kafka
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.values import NOOP, Noop, Snapshot, Update, Value


class Codec(Enum):
    """The form in which records are written; both are always read."""

    AVRO = "avro"
    KAFKA = "kafka"


class Kind(Enum):
    """The subject of a record."""

    SNAPSHOT = auto()
    UPDATE = auto()
    TOMBSTONE = auto()
    CHECKPOINT = auto()
    #: A null update.
    NOOP = auto()
    #: A record type of a later version.
    UNKNOWN = auto()


class DecodedRecord(NamedTuple):
    """The content of a record about a share partition."""

    key: SharePartitionKey
    value: Value | Noop
    #: Bytes after key and value that were ignored.
    trailing_bytes: int


_RECORD_TYPE_SIZE: Final = 2
_SNAPSHOT_START: Final = kafka.SNAPSHOT_TYPE.to_bytes(_RECORD_TYPE_SIZE, "big")
_UPDATE_START: Final = kafka.UPDATE_TYPE.to_bytes(_RECORD_TYPE_SIZE, "big")


def encode_key(codec: Codec, key: SharePartitionKey, kind: Kind) -> bytes:
    """Return the key of a record of `kind` (snapshot, update or tombstone); good to be kept, it never changes.

    Raises:
        InvalidKey: the group id is too long for the Kafka codec.
    """
    if codec is Codec.AVRO:
        return avro.encode_key(key)
    return kafka.encode_key(key, kafka.UPDATE_TYPE if kind is Kind.UPDATE else kafka.SNAPSHOT_TYPE)


def value_encoder(codec: Codec) -> Callable[[Snapshot | Update], bytes]:
    """Return what encodes the values of records by one codec; a tombstone has none."""
    return avro.encode_value if codec is Codec.AVRO else kafka.encode_value


def decode_key(key_bytes: bytes | None) -> SharePartitionKey:
    """Return the share partition that a record is about, the same whichever codec wrote it.

    Raises:
        UnknownRecordType: not about a share partition; this includes checkpoints.
        UnknownVersion: a schema of a later version.
        Undecodable: no key, or a broken one.
    """
    if key_bytes is None:
        raise Undecodable("key", "there is none")
    if key_bytes.startswith(MARKER):
        return avro.decode_key(key_bytes)
    return kafka.decode_key(key_bytes).key


def decode_record(key_bytes: bytes | None, value_bytes: bytes | None) -> DecodedRecord:
    """Return the share partition and the value of a record; see the head of this module for the other outcomes.

    Raises:
        UnknownRecordType: not about a share partition; this includes checkpoints.
        UnknownVersion: a value version or a schema of a later version.
        Undecodable: no key, broken bytes, or a key of one codec with a value of the other.
    """
    if key_bytes is None:
        raise Undecodable("key", "there is none")
    if key_bytes.startswith(MARKER):
        key = avro.decode_key(key_bytes)
        return DecodedRecord(key, None if value_bytes is None else avro.decode_value(value_bytes), 0)
    record_type, key, key_bytes_left = kafka.decode_key(key_bytes)
    if value_bytes is None:
        return DecodedRecord(key, NOOP if record_type == kafka.UPDATE_TYPE else None, key_bytes_left)
    value, _, value_bytes_left = kafka.decode_value(record_type, value_bytes)
    return DecodedRecord(key, value, key_bytes_left + value_bytes_left)


def decode_value(key_bytes: bytes, value_bytes: bytes) -> tuple[Snapshot | Update, int]:
    """Return the value of a record whose key was decoded before, and how many bytes after the value were ignored.

    Raises:
        UnknownVersion: a value version or a schema of a later version.
        Undecodable: broken bytes, or the value of another codec than the key's.
    """
    if key_bytes.startswith(MARKER):
        return avro.decode_value(value_bytes), 0
    record_type = int.from_bytes(key_bytes[:_RECORD_TYPE_SIZE], "big")
    value, _, bytes_left = kafka.decode_value(record_type, value_bytes)
    return value, bytes_left


def peek_kind(key_bytes: bytes | None, value_bytes: bytes | None) -> Kind:
    """Return what a record is about from its first bytes alone; the rest may still prove to be broken.

    Raises:
        UnknownVersion: a schema of a later version.
        Undecodable: no key, or bytes that no record begins with.
    """
    if key_bytes is None:
        raise Undecodable("key", "there is none")
    if key_bytes.startswith(MARKER):
        if not key_bytes.startswith(avro.KEY_PREFIX):
            raise prefix_error("key", key_bytes)
        if value_bytes is None:
            return Kind.TOMBSTONE
        kind = _AVRO_KINDS.get(value_bytes[:PREFIX_SIZE])
        if kind is None:
            raise prefix_error("value", value_bytes)
        return kind
    if key_bytes == CHECKPOINT_KEY:
        return Kind.CHECKPOINT
    start = key_bytes[:_RECORD_TYPE_SIZE]
    if start == _UPDATE_START:
        return Kind.NOOP if value_bytes is None else Kind.UPDATE
    if start == _SNAPSHOT_START:
        return Kind.TOMBSTONE if value_bytes is None else Kind.SNAPSHOT
    if len(start) < _RECORD_TYPE_SIZE:
        raise Undecodable("key", "it ends within its record type", key_bytes)
    return Kind.UNKNOWN


_AVRO_KINDS: Final = {avro.SNAPSHOT_PREFIX: Kind.SNAPSHOT, avro.UPDATE_PREFIX: Kind.UPDATE}
