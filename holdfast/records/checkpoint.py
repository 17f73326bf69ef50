"""Checkpoint records: "from here on, this log partition belongs to owner epoch E".

In both codecs the key is int16 1000 alone and the value an Avro single object. Apache Kafka's own tools skip the type
as unknown.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from holdfast.records.single_object import SingleObject

CHECKPOINT_TYPE: Final = 1000
CHECKPOINT_KEY: Final = CHECKPOINT_TYPE.to_bytes(2, "big")

#: Every schema of checkpoints ever released, newest last; the newest is written.
_SCHEMAS = (SingleObject("share_checkpoint"),)
_BY_PREFIX = {schema.prefix: schema for schema in _SCHEMAS}


class Checkpoint(NamedTuple):
    """Say who owns a log partition from here on."""

    #: From 1 on; a repetition is the owner's refresh.
    owner_epoch: int
    #: 16 random bytes, by which a node knows its own checkpoint.
    attempt_id: bytes
    node_id: str
    #: Membership generation of the node.
    generation: int
    cluster_id: str
    #: 16 bytes, of the state topic.
    topic_id: bytes
    #: Of the state topic.
    partition_count: int
    #: Set by `holdfast partitions accept`, else None.
    reason: str | None


def is_checkpoint_key(key: bytes) -> bool:
    """Say whether a record with this key is a checkpoint."""
    return key == CHECKPOINT_KEY


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """Return the value of a checkpoint record."""
    return _SCHEMAS[-1].encode(checkpoint._asdict())


def decode_checkpoint(value: bytes) -> Checkpoint:
    """Return the checkpoint in the value of a record with `CHECKPOINT_KEY`.

    Raises:
        UnknownVersion: a newer Holdfast wrote it.
        Undecodable: the bytes do not hold a checkpoint.
    """
    schema = _BY_PREFIX.get(value[:10], _SCHEMAS[-1])
    return Checkpoint(**schema.decode("checkpoint", value))
