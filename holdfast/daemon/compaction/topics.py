"""What the driver asks of Kafka and tells it: ids and ends of topics, manifests, and the group's offsets.

Everything here blocks while Kafka answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import (
    EarliestSpec,
    LatestSpec,
    OffsetSpec,
)  # the stubs of `admin` re-export none of these
from confluent_kafka.admin._topic import TopicDescription
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from holdfast.daemon.compaction.config import CompactionConfig
from holdfast.daemon.compaction.errors import CompactionError
from holdfast.daemon.messages import topic_id_bytes

_PRODUCE_TIMEOUT_S: Final = 120.0
# Their constructors have no types.
_latest: Final[Callable[[], OffsetSpec]] = LatestSpec
_earliest: Final[Callable[[], OffsetSpec]] = EarliestSpec


class Topics:
    """The state topic and the snapshot topic, as one job sees them."""

    def __init__(self, config: CompactionConfig) -> None:
        self._config = config
        self._timeout_s = config.admin_timeout_ms / 1_000
        self._properties: dict[str, str | int | float | bool] = {
            **config.kafka_properties,
            "bootstrap.servers": config.bootstrap_servers,
        }
        self._admin = AdminClient(self._properties)
        self._consumer: Consumer | None = None
        self._producer: Producer | None = None

    def describe(self, topic: str) -> tuple[bytes, int] | None:
        """Return the id and the number of partitions of a topic, None when there is none.

        Raises:
            CompactionError: Kafka does not say.
        """
        asked = self._admin.describe_topics(TopicCollection([topic]), request_timeout=self._timeout_s)
        try:
            described: TopicDescription = asked[topic].result()
        except KafkaException as error:
            cause: KafkaError = error.args[0]
            if cause.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            raise CompactionError(f"Topic {topic} cannot be described: {cause.str()}.") from error
        return topic_id_bytes(described.topic_id), len(described.partitions)

    def starts(self, partition_count: int) -> dict[int, int]:
        """Return the start offset of each log partition.

        Raises:
            CompactionError: Kafka does not say.
        """
        return self._list_offsets(range(partition_count), _earliest())

    def ends(self, partition_count: int) -> dict[int, int]:
        """Return the end offset of each log partition.

        Raises:
            CompactionError: Kafka does not say.
        """
        return self._list_offsets(range(partition_count), _latest())

    def register(self) -> None:
        """Make the group a reader of the log from its start, wherever it is none yet, so that its owner cuts nothing unread.

        Raises:
            CompactionError: Kafka refuses.
        """
        described = self.describe(self._config.state_topic)
        if described is None:
            return
        places = [TopicPartition(self._config.state_topic, number) for number in range(described[1])]
        # A group that is new to a cluster has no coordinator for a moment.
        attempts = Retrying(
            stop=stop_after_delay(self._timeout_s),
            wait=wait_random_exponential(multiplier=0.05, max=1),
            retry=retry_if_exception_type(KafkaException),
            reraise=True,
        )
        try:
            committed = attempts(self._committed, places)
        except KafkaException as error:
            raise CompactionError(
                f"The offsets of group {self._config.group} are not known: {error.args[0].str()}."
            ) from error
        self.commit(self._list_offsets([place.partition for place in committed if place.offset < 0], _earliest()))

    def write(self, records: Iterable[tuple[int, bytes, bytes]]) -> None:
        """Write (partition, key, value) to the snapshot topic, and return when all are acknowledged.

        Raises:
            CompactionError: one is not.
        """
        if self._producer is None:
            self._producer = Producer({**self._properties, "acks": "all", "enable.idempotence": True, "linger.ms": 5})
        errors: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: object) -> None:
            if error is not None:
                errors.append(error)

        for partition, key, value in records:
            self._producer.produce(self._config.snapshot_topic, value, key, partition, on_delivery=delivered)
        left = self._producer.flush(_PRODUCE_TIMEOUT_S)
        if errors or left:
            why = errors[0].str() if errors else f"{left} are not acknowledged after {_PRODUCE_TIMEOUT_S:.0f} s"
            raise CompactionError(f"The manifests cannot be written to {self._config.snapshot_topic}: {why}.")

    def commit(self, next_offsets: Mapping[int, int]) -> None:
        """Commit, for the group, the offset to be folded next of some log partitions.

        Raises:
            CompactionError: Kafka refuses.
        """
        if not next_offsets:
            return
        offsets = [TopicPartition(self._config.state_topic, *place) for place in next_offsets.items()]
        try:
            committed = self._group().commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            raise CompactionError(
                f"The offsets of group {self._config.group} cannot be committed: {error.args[0].str()}."
            ) from error
        for place in committed or ():
            if place.error is not None:
                raise CompactionError(
                    f"The offset of group {self._config.group} on log partition {place.partition} cannot be committed: "
                    f"{place.error.str()}."
                )

    def _list_offsets(self, partitions: Iterable[int], which: OffsetSpec) -> dict[int, int]:
        places = {TopicPartition(self._config.state_topic, number): which for number in partitions}
        if not places:
            return {}
        try:
            asked = self._admin.list_offsets(places, request_timeout=self._timeout_s)
            return {place.partition: future.result().offset for place, future in asked.items()}
        except KafkaException as error:
            raise CompactionError(f"The bounds of the log are not known: {error.args[0].str()}.") from error

    def _committed(self, places: list[TopicPartition]) -> list[TopicPartition]:
        committed = self._group().committed(places, self._timeout_s)
        for place in committed:
            if place.error is not None:
                raise KafkaException(place.error)
        return committed

    def _group(self) -> Consumer:
        if self._consumer is None:
            self._consumer = Consumer({**self._properties, "group.id": self._config.group, "enable.auto.commit": False})
        return self._consumer

    def close(self) -> None:
        """Let go of the connections."""
        if self._consumer is not None:
            self._consumer.close()
