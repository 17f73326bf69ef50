"""A long log, written straight into a state topic as its owner would have written it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from holdfast.records.log.checkpoint import CHECKPOINT_KEY, Checkpoint, encode_checkpoint
from holdfast.records.log.header import HEADER_NAME, encode_header
from holdfast.records.share.batches import ACKNOWLEDGED, StateBatch
from holdfast.records.share.codecs.codec import Codec
from holdfast.records.share.keys import SharePartitionKey, log_partition
from holdfast.records.share.values import Snapshot, Update
from tests.real.nodes import topic_id_of
from tests.waiting import PATIENCE_S
from tests.world.records import encode_record

#: Offsets that one update acknowledges, and by which it moves the start offset.
_STEP: Final = 10


def write_long_log(
    kafka: str, topic: str, keys: Iterable[SharePartitionKey], log_partitions: int, updates_per_key: int
) -> None:
    """Write every log partition of a state topic: a snapshot of each share partition, and its updates."""
    admin = AdminClient({"bootstrap.servers": kafka})
    cluster_id = admin.describe_cluster().result(PATIENCE_S).cluster_id
    checkpoint = Checkpoint(1, bytes(16), "0", 1, cluster_id, topic_id_of(kafka, topic), log_partitions, None)
    by_partition: dict[int, list[SharePartitionKey]] = {index: [] for index in range(log_partitions)}
    for key in keys:
        by_partition[log_partition(key, log_partitions)].append(key)
    for index, its_keys in by_partition.items():
        log = LogPartitionWriter(kafka, topic, index, checkpoint)
        log.append_updates(its_keys, updates_per_key)
        log.close()


class LogPartitionWriter:
    """A writer of one log partition under the owner epoch of a checkpoint, which is its first record."""

    def __init__(self, kafka: str, topic: str, partition: int, checkpoint: Checkpoint) -> None:
        # The broker ends before the producer is collected, which need not say so.
        self._producer = Producer(
            {"bootstrap.servers": kafka, "enable.idempotence": True, "linger.ms": 50, "log_level": 0}
        )
        self._topic = topic
        self._partition = partition
        self._owner_epoch = checkpoint.owner_epoch
        self._sequence = 0
        self.append(CHECKPOINT_KEY, encode_checkpoint(checkpoint._replace(attempt_id=os.urandom(16))))

    def append(self, key: bytes, value: bytes | None) -> None:
        """Append a record; waits while the queue of the producer is full."""
        headers: dict[str, str | bytes | None] = {HEADER_NAME: encode_header(self._owner_epoch, self._sequence)}
        while True:
            try:
                self._producer.produce(self._topic, value, key, partition=self._partition, headers=headers)
            except BufferError:
                self._producer.poll(1.0)
            else:
                self._sequence += 1
                return

    def append_updates(self, keys: list[SharePartitionKey], rounds: int) -> None:
        """Append a snapshot of each share partition, and then so many rounds with an update of each."""
        for key in keys:
            self.append(*encode_record(Codec.AVRO, key, Snapshot(0, 1, 1, 0, 0, 0, 0, (), 1, 1)))
        for number in range(rounds):
            first = number * _STEP
            batches = (StateBatch(first, first + _STEP - 1, ACKNOWLEDGED, 1),)
            for key in keys:
                self.append(*encode_record(Codec.AVRO, key, Update(0, 1, first, _STEP, batches)))

    def close(self) -> None:
        """Wait until all records are written."""
        assert self._producer.flush(PATIENCE_S) == 0
