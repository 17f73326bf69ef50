"""The registered readers of the log: consumer groups whose committed offsets the log is not pruned past.

A reader that has never committed holds the whole log; one that is silent for too long raises an alarm and keeps holding it.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient


class Progress(NamedTuple):
    """How far a reader is in one log partition."""

    group: str
    offset: int  #: the next record it will read; -1 where it never committed


class LogReaders:
    """What the registered readers committed, as of the last look."""

    def __init__(
        self,
        groups: Sequence[str],
        timeout_ms: int,
        clock_ms: Callable[[], int],
        alarm: Callable[[str, int], None],
    ) -> None:
        self.groups = tuple(groups)
        self._timeout_ms = timeout_ms
        self._clock_ms = clock_ms
        self._alarm = alarm
        self._offsets: dict[tuple[str, int], int] = {}
        self._moved_ms: dict[str, int] = dict.fromkeys(self.groups, clock_ms())

    def holding(self, partition: int, cut_offset: int) -> Progress | None:
        """Return the reader furthest behind that still needs records below the offset, or None."""
        behind = [Progress(group, self._offsets.get((group, partition), -1)) for group in self.groups]
        slowest = min(behind, key=lambda progress: progress.offset, default=None)
        return slowest if slowest is not None and slowest.offset < cut_offset else None

    def learn(self, group: str, offsets: Mapping[int, int]) -> None:
        """Take in what a group has committed, by log partition; one that is silent for too long raises the alarm."""
        now_ms = self._clock_ms()
        if any(self._offsets.get((group, partition)) != offset for partition, offset in offsets.items()):
            self._moved_ms[group] = now_ms
        self._offsets.update({(group, partition): offset for partition, offset in offsets.items()})
        silent_ms = now_ms - self._moved_ms[group]
        if silent_ms >= self._timeout_ms:
            self._alarm(group, silent_ms)


class ReaderOffsets:
    """Looks up what the registered readers committed."""

    def __init__(self, client: Mapping[str, Any], topic: str, partition_count: int, timeout_ms: int) -> None:
        self._admin = AdminClient(dict(client))
        self._targets = [TopicPartition(topic, partition) for partition in range(partition_count)]
        self._timeout_s = timeout_ms / 1_000

    async def look_up(self, group: str) -> dict[int, int]:
        """Return the committed offset of each log partition that has one.

        Raises:
            KafkaException: the cluster did not answer.
        """
        asked = [ConsumerGroupTopicPartitions(group, self._targets)]
        future = self._admin.list_consumer_group_offsets(asked, request_timeout=self._timeout_s)[group]
        answer = await asyncio.wrap_future(future)
        found: dict[int, int] = {}
        for target in answer.topic_partitions:
            if target.error is not None:
                raise KafkaException(target.error)
            if target.offset >= 0:
                found[target.partition] = target.offset
        return found
