"""The consumer group whose committed offsets are the job's progress, and what a job needs to use it.

The job takes them as arguments; nothing here runs on Spark's workers.
"""

from collections.abc import Collection, Mapping

from holdfast.compaction.config import CompactionConfig
from holdfast.compaction.errors import CompactionError
from holdfast.compaction.topics import Topics
from holdfast.kafka.connection_options import connection_options
from holdfast.kafka.errors import ConnectionFailed
from holdfast.kafka.group_offsets import BlockingGroupOffsets, GroupRefused
from holdfast.kafka.librdkafka import KafkaClients, Say, unsaid


def topics_of(config: CompactionConfig, say: Say = unsaid) -> Topics:
    """Return the topics of a job; `say` is called with the lines of librdkafka.

    Raises:
        PropertyRefused: a property cannot be carried over to connections of our own.
    """
    properties = {**config.kafka_properties, "bootstrap.servers": config.bootstrap_servers}
    offsets = BlockingGroupOffsets(connection_options(properties), config.request_timeout_ms)
    return Topics(config, KafkaClients(properties, say), JobGroup(config, offsets))


class JobGroup:
    """The offsets of the job's group on the state topic."""

    def __init__(self, config: CompactionConfig, offsets: BlockingGroupOffsets) -> None:
        """Take the names from the configuration."""
        self._group = config.group
        self._topic = config.state_topic
        self._offsets = offsets

    def fetch_offsets(self, partitions: Collection[int]) -> dict[int, int]:
        """Return what was committed for these log partitions, without those that have nothing.

        Raises:
            CompactionError: Kafka does not say.
        """
        try:
            return self._offsets.fetch_offsets(self._group, self._topic, partitions)
        except (GroupRefused, ConnectionFailed) as failure:
            raise CompactionError(f"The offsets of group {self._group} are not known: {failure}") from failure

    def commit_offsets(self, next_offsets: Mapping[int, int]) -> None:
        """Commit the offset to be folded next of some log partitions.

        Raises:
            CompactionError: Kafka refuses.
        """
        try:
            self._offsets.commit_offsets(self._group, self._topic, next_offsets)
        except (GroupRefused, ConnectionFailed) as failure:
            raise CompactionError(f"The offsets of group {self._group} cannot be committed: {failure}") from failure
