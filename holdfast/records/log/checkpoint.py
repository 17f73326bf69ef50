"""Checkpoint records: "from here on, this log partition belongs to owner epoch E".

In both codecs the key is int16 1000 alone and the value an Avro single object. Apache Kafka's own tools skip the type
as unknown.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final, NamedTuple

from holdfast.records.log.single_object import PREFIX_SIZE, SingleObject

CHECKPOINT_TYPE: Final = 1000
CHECKPOINT_KEY: Final = CHECKPOINT_TYPE.to_bytes(2, "big")

#: A value that was written with another one is resolved to it by Avro's rules.
_SCHEMA: Final = SingleObject("share_checkpoint")
#: Is written for a log that lies by group, as all logs did before there was another placement: nodes of that time read it.
_BY_GROUP_SCHEMA: Final = SingleObject("share_checkpoint_2")
_BY_PREFIX: Final = {
    schema.prefix: schema for schema in (_SCHEMA, _BY_GROUP_SCHEMA, SingleObject("share_checkpoint_1"))
}


class Placement(StrEnum):
    """The parts of a key that decide in which log partition its state lies; one for a whole log, from its first record on."""

    #: Group, topic and partition, as in Apache Kafka.
    BY_GROUP = "BY_GROUP"
    #: Topic and partition: the state of all groups of a topic partition lies in one log partition.
    BY_TOPIC_PARTITION = "BY_TOPIC_PARTITION"


class Checkpoint(NamedTuple):
    """The word on who owns a log partition from here on."""

    #: From 1 on; a repetition is the owner's refresh.
    owner_epoch: int
    #: 16 random bytes, by which a node knows its own checkpoint.
    attempt_id: bytes
    node_id: str
    #: Ownership generation of the node: it takes a partition only from a lower one.
    generation: int
    cluster_id: str
    #: 16 bytes, of the state topic.
    topic_id: bytes
    #: Id of the state topic.
    partition_count: int
    #: Set by `holdfast partitions accept`, else None.
    reason: str | None
    #: Host and port (`host:port`) under which clients reach the node; empty where unknown.
    advertised_address: str = ""
    #: The newest reason given at or before this checkpoint; None where the log was never accepted.
    accepted_reason: str | None = None
    #: All that is needed of the log lies at this offset or above it; -1: it is not said.
    cut_offset: int = -1
    placement: Placement = Placement.BY_GROUP


def is_checkpoint_key(key: bytes) -> bool:
    """Say whether a record with this key is a checkpoint."""
    return key == CHECKPOINT_KEY


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """Return the value of a checkpoint record."""
    schema = _BY_GROUP_SCHEMA if checkpoint.placement is Placement.BY_GROUP else _SCHEMA
    return schema.encode(checkpoint._asdict())


def decode_checkpoint(value: bytes) -> Checkpoint:
    """Return the checkpoint in the value of a record with `CHECKPOINT_KEY`.

    Raises:
        UnknownVersion: a newer Holdfast wrote it.
        Undecodable: the bytes do not hold a checkpoint.
    """
    writer = _BY_PREFIX.get(value[:PREFIX_SIZE], _SCHEMA)
    fields: dict[str, Any] = writer.decode("checkpoint", value, _SCHEMA)
    fields["placement"] = Placement(fields["placement"])
    return Checkpoint(**fields)
