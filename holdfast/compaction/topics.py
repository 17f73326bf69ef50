"""The topics as the driver reads and writes them: ids and ends, manifests, and the group's offsets.

Everything here blocks while Kafka answers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, Protocol

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from holdfast.compaction.config import CompactionConfig
from holdfast.compaction.errors import CompactionError
from holdfast.kafka.librdkafka import IN_ORDER, DescribedTopic, KafkaClients, Record, find_topic, write_in_order
from holdfast.kafka.librdkafka_types import OffsetSpec, earliest_offset, latest_offset
from holdfast.kafka.protocol.denials import acl_remedy

_PRODUCE_TIMEOUT_MS: Final = 120_000


class GroupProgress(Protocol):
    """The offsets of the job's group on the state topic, each the one to be folded next."""

    def fetch_offsets(self, partitions: Collection[int]) -> dict[int, int]:
        """Return what was committed for these log partitions, without those that have nothing; raises CompactionError."""

    def commit_offsets(self, next_offsets: Mapping[int, int]) -> None:
        """Commit, by log partition; raises CompactionError."""


class Topics:
    """The state topic and the snapshot topic, as one job sees them."""

    def __init__(self, config: CompactionConfig, clients: KafkaClients, progress: GroupProgress) -> None:
        """Connect lazily, with clients of the cluster that the configuration names, and the progress of its group."""
        self._config = config
        self._timeout_s = config.request_timeout_ms / 1_000
        self._clients = clients
        self._progress = progress

    def describe(self, topic: str) -> DescribedTopic | None:
        """Return a topic by its name, None when there is none.

        Raises:
            CompactionError: Kafka does not say.
        """
        try:
            with self._clients.admin() as admin:
                return find_topic(admin, topic, self._config.request_timeout_ms)
        except KafkaException as error:
            raise CompactionError(
                f"Topic {topic} cannot be described: {_why(error.args[0], 'Describe', topic, self._clients.principal)}."
            ) from error

    def starts(self, partition_count: int) -> dict[int, int]:
        """Return the start offset of each log partition.

        Raises:
            CompactionError: Kafka does not say.
        """
        return self._list_offsets(range(partition_count), earliest_offset())

    def ends(self, partition_count: int) -> dict[int, int]:
        """Return the end offset of each log partition.

        Raises:
            CompactionError: Kafka does not say.
        """
        return self._list_offsets(range(partition_count), latest_offset())

    def offsets_to_fold(self) -> int:
        """Return how many offsets of the log lie between what the group has committed, or the log's start, and its end.

        Raises:
            CompactionError: Kafka does not say.
        """
        described = self.describe(self._config.state_topic)
        if described is None:
            return 0
        count = described.partition_count
        starts, ends = self.starts(count), self.ends(count)
        begins = starts | self._progress.fetch_offsets(range(count))
        return sum(max(0, end - max(begins[number], starts[number])) for number, end in ends.items())

    def register(self) -> None:
        """Make the group a reader of the log from its start, wherever it is none yet, so that no owner prunes what it has not read.

        Raises:
            CompactionError: Kafka refuses.
        """
        described = self.describe(self._config.state_topic)
        if described is None:
            return
        committed = self._progress.fetch_offsets(range(described.partition_count))
        self.commit(
            self._list_offsets(
                [number for number in range(described.partition_count) if number not in committed], earliest_offset()
            )
        )

    def write(self, records: Collection[tuple[int, bytes, bytes]]) -> None:
        """Write (partition, key, value) to the snapshot topic, and return when all are acknowledged.

        Raises:
            CompactionError: one is not.
        """
        if not records:
            return
        topic = self._config.snapshot_topic
        producer = self._clients.producer({**IN_ORDER, "linger.ms": 5})
        written = (Record(topic, partition, key, value) for partition, key, value in records)
        if error := write_in_order(producer, written, _PRODUCE_TIMEOUT_MS):
            raise CompactionError(
                f"The manifests cannot be written to {topic}: {_why(error, 'Write', topic, self._clients.principal)}."
            )

    def commit(self, next_offsets: Mapping[int, int]) -> None:
        """Commit, for the group, the offset to be folded next of some log partitions.

        Raises:
            CompactionError: Kafka refuses.
        """
        if next_offsets:
            self._progress.commit_offsets(next_offsets)

    def _list_offsets(self, partitions: Iterable[int], which: OffsetSpec) -> dict[int, int]:
        places = {TopicPartition(self._config.state_topic, number): which for number in partitions}
        if not places:
            return {}
        try:
            with self._clients.admin() as admin:
                futures = admin.list_offsets(places, request_timeout=self._timeout_s)
                return {place.partition: future.result().offset for place, future in futures.items()}
        except KafkaException as error:
            why = _why(error.args[0], "Describe", self._config.state_topic, self._clients.principal)
            raise CompactionError(f"The bounds of the log are not known: {why}.") from error


def _why(error: KafkaError, operation: str, topic: str, principal: str) -> str:
    return f"{error.str().rstrip('.')}{acl_remedy(error.code(), operation, f'topic {topic}', principal)}"
