"""Holdfast with a short way to its state: its log pruned by itself, or folded into a snapshot topic."""

from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.client import BenchmarkError, wait_until
from benchmarks.cluster import topic_id_of
from benchmarks.contenders import STATE_PARTITIONS, HoldfastNode, PartitionLoad
from holdfast.records.share.snapshot_store.folding import NEW, Held, RawRecord, fold

_PREPARE_TIMEOUT_S: Final = 300.0
_BATCH: Final = 10_000


class PrunedHoldfast(HoldfastNode):
    """A daemon that has just pruned its log: the shortest log that there is."""

    name = "holdfast-pruned"
    state_topic = "__holdfast_share_state_pruned"

    def prepare(self) -> None:
        """Prune every log partition as soon as anything is dead, then end the daemon."""
        super().prepare()
        self.settings |= {
            "pruning_dead_bytes_min": "0",
            "pruning_dead_share": "0.05",
            "pruning_check_interval_ms": "100",
        }
        self.restart()
        wait_until("The pruning of holdfast", self._is_pruned, _PREPARE_TIMEOUT_S)
        self.halt()
        for name in ("pruning_dead_bytes_min", "pruning_dead_share", "pruning_check_interval_ms"):
            del self.settings[name]

    def _is_pruned(self) -> bool | None:
        assert self._kafka is not None
        consumer = _consumer(self._kafka.bootstrap_servers)
        try:
            starts = [
                consumer.get_watermark_offsets(TopicPartition(self.state_topic, partition))[0]
                for partition in range(STATE_PARTITIONS)
            ]
        finally:
            consumer.close()
        return all(starts) or None


class FastHoldfast(HoldfastNode):
    """A daemon whose whole log was folded into the snapshot topic; the log itself was never cut."""

    name = "holdfast-fast"
    state_topic = "__holdfast_share_state_fast"
    snapshot_topic = "holdfast-share-snapshots-fast"

    def prepare(self) -> None:
        """Fold the log as the job does, in one batch."""
        super().prepare()
        assert self._kafka is not None
        servers = self._kafka.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers, "log_level": 3})
        topic = NewTopic(
            self.snapshot_topic, STATE_PARTITIONS, len(self._kafka.nodes), config={"cleanup.policy": "compact"}
        )
        admin.create_topics([topic])[self.snapshot_topic].result(timeout=_PREPARE_TIMEOUT_S)
        state_topic_id = topic_id_of(self._kafka, self.state_topic)
        producer = Producer({"bootstrap.servers": servers, "log_level": 3, "linger.ms": 50})
        for partition in range(STATE_PARTITIONS):
            records = read_partition(servers, self.state_topic, partition)
            folded = fold(state_topic_id, partition, STATE_PARTITIONS, NEW, _Store(), records)
            assert folded.manifest is not None
            for key, value in (*folded.entries, folded.manifest):
                producer.produce(self.snapshot_topic, value, key, partition)
            producer.flush(_PREPARE_TIMEOUT_S)
        self.settings["snapshots.topic"] = self.snapshot_topic

    def loads(self) -> list[PartitionLoad]:
        """Return what the daemon's log says.

        Raises:
            BenchmarkError: a load did not begin with the snapshot topic.
        """
        for entry in self.log_entries():
            if entry.get("event") == "log_partition_loaded" and "restored_from_offset" not in entry:
                raise BenchmarkError(f"Partition {entry['partition']} read its whole log.")
        return super().loads()


class _Store(dict[bytes, Held]):
    def put(self, key: bytes, held: Held) -> None:
        self[key] = held

    def remove(self, key: bytes) -> None:
        del self[key]


def read_partition(bootstrap_servers: str, topic: str, partition: int) -> list[RawRecord]:
    """Return all records of a log partition."""
    consumer = _consumer(bootstrap_servers)
    records: list[RawRecord] = []
    try:
        start, end = consumer.get_watermark_offsets(TopicPartition(topic, partition))
        consumer.assign([TopicPartition(topic, partition, start)])
        while start < end:
            for message in consumer.consume(_BATCH, timeout=0.2):
                error = message.error()
                if error is None:
                    start = _offset(message) + 1
                    headers: list[tuple[str, Any]] = message.headers() or []  # type: ignore[assignment]  # never a dict
                    header = headers[-1][1] if headers else None
                    records.append(RawRecord(start - 1, _bytes(message.key()), _bytes(message.value()), header))
                elif error.code() == KafkaError._PARTITION_EOF:
                    start = end
    finally:
        consumer.close()
    return records


def _offset(message: Message) -> int:
    offset = message.offset()
    assert offset is not None
    return offset


def _bytes(data: str | bytes | None) -> bytes | None:
    assert not isinstance(data, str)
    return data


def _consumer(bootstrap_servers: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "benchmark",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_uncommitted",
            "log_level": 3,
        }
    )
