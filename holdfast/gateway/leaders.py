"""Which node leads a topic partition, for all groups, and which coordinates a share group: the owners of log partitions.

A topic partition belongs to a log partition by the hash of `topicId:partition`, a group by that of its id, both as Kafka hashes the key
of a share partition. The leader epoch is the owner epoch of the log partition: it never falls, and no two nodes have the same.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from holdfast.daemon.partitions.leadership import Leader
from holdfast.daemon.server.find_coordinator import KeyRefused
from holdfast.daemon.tenant import Leadership
from holdfast.kafka.topic_ids import format_topic_id
from holdfast.records.share.keys import GROUP_ID_BYTES_MAX, is_group_id_too_long, java_string_hash, partition_of_hash
from holdfast.runtime.errors import NotAvailable

#: Topics whose hash is remembered.
_TOPICS_CACHED_MAX: Final = 10_000
#: Numbers of partitions whose hash is remembered.
_NUMBERS_CACHED_MAX: Final = 10_000


class TopicLeaders:
    """The leaders of all topic partitions, as of now; Metadata shows the same.

    Args:
        leadership: the owners of log partitions.
        log_partitions: how many there are.
    """

    def __init__(self, leadership: Leadership, log_partitions: int) -> None:
        self._leadership = leadership
        self._log_partitions = log_partitions

    def log_partition(self, topic_id: bytes, partition: int) -> int:
        """Return the log partition whose owner leads a topic partition."""
        power, number = _hash_of_number(partition)
        hash_code = _hash_of_topic(topic_id) * power + number & 0xFFFFFFFF
        return partition_of_hash(hash_code - (1 << 32) if hash_code >> 31 else hash_code, self._log_partitions)

    def leader(self, topic_id: bytes, partition: int) -> Leader:
        """Return who leads a topic partition, under which leader epoch."""
        return self._leadership.leader(self.log_partition(topic_id, partition))


class GroupKeys:
    """Group ids, as FindCoordinator names them (`find_coordinator.KeyType`)."""

    first_version = 0
    state_name = "share groups"

    def __init__(self, log_partitions: int = 0) -> None:
        #: How many there are; 0: the node starts or stops.
        self.log_partitions = log_partitions

    def parse(self, text: str) -> tuple[str, str]:
        """Return the group, twice.

        Raises:
            KeyRefused: its id is too long.
        """
        if is_group_id_too_long(text):
            raise KeyRefused(f"the group id has more than {GROUP_ID_BYTES_MAX} bytes")
        return text, text

    def partition_for(self, key: str) -> int:
        """Return the log partition whose owner coordinates a group.

        Raises:
            NotAvailable: before start-up and after shutdown.
        """
        if not self.log_partitions:
            raise NotAvailable("this node coordinates no share groups now")
        return partition_of_hash(java_string_hash(key), self.log_partitions)


@lru_cache(_TOPICS_CACHED_MAX)
def _hash_of_topic(topic_id: bytes) -> int:
    return java_string_hash(f"{format_topic_id(topic_id)}:")


@lru_cache(_NUMBERS_CACHED_MAX)
def _hash_of_number(partition: int) -> tuple[int, int]:
    """Return by what the hash of all before a number is multiplied, and what is added: Metadata hashes thousands of them."""
    text = str(partition)
    return pow(31, len(text), 1 << 32), java_string_hash(text)
