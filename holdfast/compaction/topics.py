"""The topics as the driver reads and writes them: ids and ends, single records, manifests, and the group's offsets.

Everything here blocks while Kafka answers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from time import monotonic
from typing import Any, Final, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from holdfast.compaction.config import CompactionConfig
from holdfast.compaction.errors import CompactionError
from holdfast.kafka.librdkafka import IN_ORDER, DescribedTopic, KafkaClients, Record, find_topic, write_in_order
from holdfast.kafka.librdkafka_types import OffsetSpec, earliest_offset, latest_offset
from holdfast.kafka.protocol.denials import acl_remedy
from holdfast.records.log.header import find_header
from holdfast.records.share.snapshot_store.folding import RawRecord

_PRODUCE_TIMEOUT_MS: Final = 120_000
#: How long the messages at hand wait for others.
_POLL_S: Final = 0.05
#: Of a consumer that is to give one record of each log partition, so what else a fetch would bring is not needed.
_ONE_RECORD: Final[Mapping[str, Any]] = {
    "enable.partition.eof": True,
    "isolation.level": "read_uncommitted",
    "auto.offset.reset": "error",
    "fetch.message.max.bytes": 65_536,
    "queued.min.messages": 1,
    "fetch.wait.max.ms": 10,
    "socket.nagle.disable": True,
}
#: What a consumer says of an offset that the log does not hold: it was cut off, or the log ends before it.
_GONE: Final = (KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)


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

    def read_records(self, places: Collection[tuple[int, int]]) -> dict[int, dict[int, RawRecord]]:
        """Return the records at (log partition, offset), by both, without those that the log does not hold.

        Raises:
            CompactionError: a broker does not give one, and does not say that it is gone.
        """
        found: dict[int, dict[int, RawRecord]] = {log_partition: {} for log_partition, _ in places}
        try:
            consumer = self._clients.consumer("holdfast-compaction", _ONE_RECORD)
            try:
                for offsets in _rounds(places):
                    for record, log_partition in self._read_round(consumer, offsets):
                        found[log_partition][record.offset] = record
            finally:
                consumer.close()
        except KafkaException as error:
            raise self._unread(error.args[0]) from error
        return found

    def _read_round(self, consumer: Consumer, offsets: dict[int, int]) -> Iterator[tuple[RawRecord, int]]:
        """Yield the record at one offset of each log partition, with the number of that; none where it is gone."""
        topic, missing = self._config.state_topic, dict(offsets)
        consumer.assign([TopicPartition(topic, log_partition, offset) for log_partition, offset in offsets.items()])
        deadline_s = monotonic() + self._timeout_s
        while missing:
            if monotonic() > deadline_s:
                raise self._unread(
                    KafkaError(KafkaError._TIMED_OUT, f"no answer in {self._config.request_timeout_ms} ms")
                )
            for message in consumer.consume(len(missing), _POLL_S):
                problem, log_partition, offset = message.error(), message.partition(), message.offset()
                if problem is not None and problem.code() not in _GONE:
                    # librdkafka looks up the coordinator of the group that this consumer is in by name only.
                    if problem.code() != KafkaError.GROUP_AUTHORIZATION_FAILED and not problem.retriable():
                        raise self._unread(problem)
                elif log_partition in missing and missing.pop(log_partition) == offset and problem is None:
                    header = find_header(message.headers())
                    yield RawRecord(offset, message.key(), message.value(), header), log_partition

    def _unread(self, error: KafkaError) -> CompactionError:
        topic = self._config.state_topic
        return CompactionError(f"Topic {topic} cannot be read: {_why(error, 'Read', topic, self._clients.principal)}.")

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


def _rounds(places: Collection[tuple[int, int]]) -> list[dict[int, int]]:
    """Sort places into rounds, each of which has one offset of a log partition at most."""
    rounds: list[dict[int, int]] = []
    for log_partition, offset in places:
        of_others = next((each for each in rounds if log_partition not in each), None)
        if of_others is None:
            rounds.append({log_partition: offset})
        else:
            of_others[log_partition] = offset
    return rounds


def _why(error: KafkaError, operation: str, topic: str, principal: str) -> str:
    return f"{error.str().rstrip('.')}{acl_remedy(error.code(), operation, f'topic {topic}', principal)}"
