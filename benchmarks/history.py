"""A long history of updates, written straight into a state topic: what a coordinator must load when it starts.

The same writes in the same order go to either log: in Kafka's codec into the broker's own topic, and in ours with `hf`
headers behind a first checkpoint per log partition. As in a real log, a share partition begins with a snapshot, and
every `updates_per_snapshot` updates there is another one.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from confluent_kafka import Producer

from benchmarks.client import BenchmarkError
from benchmarks.share_state import LEADER_EPOCH, STATE_EPOCH, WrittenState
from holdfast.records.log.checkpoint import CHECKPOINT_KEY, Checkpoint, encode_checkpoint
from holdfast.records.log.header import HEADER_NAME, encode_header
from holdfast.records.share.batches import StateBatch
from holdfast.records.share.codecs.codec import Codec, Kind, encode_key, value_encoder
from holdfast.records.share.keys import SharePartitionKey, log_partition
from holdfast.records.share.values import Snapshot, Update

#: Brokers accept a producer on an internal topic only under this client id, which is that of Kafka's own admin tools.
INTERNAL_CLIENT_ID: Final = "__admin_client"

_CREATED_MS: Final = 1_735_689_600_000
_QUEUE_MAX: Final = 100_000
_FLUSH_TIMEOUT_S: Final = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """How much is written."""

    updates: int = 2_000_000
    keys: int = 20_000
    updates_per_snapshot: int = 500
    group_id: str = "load"

    def share_partitions(self, topic_id: bytes, partitions: int) -> list[SharePartitionKey]:
        """Return the keys: as many groups as it takes over a topic of so many partitions."""
        return [
            SharePartitionKey(f"{self.group_id}-{number // partitions}", topic_id, number % partitions)
            for number in range(self.keys)
        ]

    def values(self) -> Iterator[Snapshot | Update]:
        """Yield what one share partition's records hold, in order; it is the same for all of them."""
        state = WrittenState(0)
        yield self._snapshot(0, state)
        snapshot_epoch = updates = 0
        for _ in range(self.updates // self.keys):
            start_offset, complete_count, _, *batch = state.next_write()
            updates += 1
            if updates == self.updates_per_snapshot:
                snapshot_epoch, updates = snapshot_epoch + 1, 0
                yield self._snapshot(snapshot_epoch, state)
            else:
                batches = (StateBatch(*batch),)
                yield Update(snapshot_epoch, LEADER_EPOCH, start_offset, complete_count, batches)

    def final_state(self, partition: int) -> WrittenState:
        """Return what a share partition must hold after its last record."""
        state = WrittenState(partition)
        for _ in range(self.updates // self.keys):
            state.next_write()
        return state

    def _snapshot(self, snapshot_epoch: int, state: WrittenState) -> Snapshot:
        read, summary = state.expected_read(), state.expected_summary()
        return Snapshot(
            snapshot_epoch,
            STATE_EPOCH,
            LEADER_EPOCH,
            read.start_offset,
            summary.delivery_complete_count,
            _CREATED_MS,
            _CREATED_MS,
            read.state_batches,
            LEADER_EPOCH,
            STATE_EPOCH,
        )


class Appender:
    """A producer into one state topic, with or without the headers of our log."""

    def __init__(self, bootstrap_servers: str, topic: str, partitions: int, checkpoint: Checkpoint | None) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "client.id": INTERNAL_CLIENT_ID,
                "enable.idempotence": True,
                "log_level": 2,  # The broker is restarted later, and a producer that is gone need not say so.
                "linger.ms": 50,
                "queue.buffering.max.messages": _QUEUE_MAX,
                "on_delivery": self._delivered,
            }
        )
        self._topic = topic
        self._sequences = [0] * partitions
        self._owner_epoch = checkpoint.owner_epoch if checkpoint else None
        self._delivered_count = 0
        self.appended = 0
        if checkpoint:
            for partition in range(partitions):
                own = checkpoint._replace(attempt_id=os.urandom(16))
                self.append(partition, CHECKPOINT_KEY, encode_checkpoint(own))

    def append(self, partition: int, key: bytes, value: bytes) -> None:
        """Append one record; waits while the queue is full."""
        headers: list[tuple[str, str | bytes | None]] = []
        if self._owner_epoch is not None:
            headers.append((HEADER_NAME, encode_header(self._owner_epoch, self._sequences[partition])))
            self._sequences[partition] += 1
        while True:
            try:
                self._producer.produce(self._topic, value, key, partition, headers=headers)
                break
            except BufferError:
                self._producer.poll(1.0)
        self.appended += 1

    def close(self) -> int:
        """Wait until all is written and return the number of records.

        Raises:
            BenchmarkError: something is not.
        """
        self._producer.flush(_FLUSH_TIMEOUT_S)
        if self._delivered_count != self.appended:
            raise BenchmarkError(f"{self.appended - self._delivered_count} records of the history were not written.")
        return self.appended

    def _delivered(self, error: object, _: object) -> None:
        if error is None:
            self._delivered_count += 1


def write_history(
    history: History, keys: list[SharePartitionKey], codec: Codec, appender: Appender, partitions: int
) -> int:
    """Write the history of all keys, which take turns, into a state topic of so many partitions.

    Returns: the number of records, with checkpoints and first snapshots.

    Raises:
        BenchmarkError: not everything was written.
    """
    places = [
        (log_partition(key, partitions), encode_key(codec, key, Kind.SNAPSHOT), encode_key(codec, key, Kind.UPDATE))
        for key in keys
    ]
    append = appender.append
    for value in history.values():
        encoded = value_encoder(codec)(value)
        is_update = isinstance(value, Update)
        for partition, snapshot_key, update_key in places:
            append(partition, update_key if is_update else snapshot_key, encoded)
    return appender.close()
