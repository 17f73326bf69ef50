"""The registered readers of the log: consumer groups whose committed offsets the log is not pruned past.

A reader that has never committed holds the whole log; one that is silent for too long raises an alarm and keeps holding it.
What is not known yet, because nobody has looked, counts as never committed.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

_NOTHING: Final = -1


class Progress(NamedTuple):
    """How far a reader is in one log partition."""

    group: str
    offset: int  #: the next record it will read; -1 where it never committed


class LogReaders:
    """What the registered readers committed, as of the last look.

    Args:
        groups: the consumer groups that are registered.
        timeout_ms: a reader that has something to read and has not moved for so long is silent.
        clock_ms: monotonic.
        alarm: told the group and for how many ms it has not moved, once each time it falls silent.
    """

    def __init__(
        self, groups: Sequence[str], timeout_ms: int, clock_ms: Callable[[], int], alarm: Callable[[str, int], None]
    ) -> None:
        self.groups = tuple(groups)
        self.silent: set[str] = set()  #: groups whose alarm was raised and that have not moved since
        self._timeout_ms = timeout_ms
        self._clock_ms = clock_ms
        self._alarm = alarm
        self._offsets: dict[str, Mapping[int, int]] = {group: {} for group in self.groups}
        self._moved_ms = dict.fromkeys(self.groups, clock_ms())

    def holding(self, partition: int, cut_offset: int) -> Progress | None:
        """Return the reader furthest behind that still needs records below the offset, or None."""
        behind = [Progress(group, offsets.get(partition, _NOTHING)) for group, offsets in self._offsets.items()]
        slowest = min(behind, key=lambda progress: progress.offset, default=None)
        return slowest if slowest is not None and slowest.offset < cut_offset else None

    def learn(self, group: str, offsets: Mapping[int, int], ends: Mapping[int, int]) -> None:
        """Take in what a group has committed and where the log ends, both by log partition.

        What a group does not say it has committed any more, it may read again from the start: that holds the log as well.
        """
        now_ms = self._clock_ms()
        has_read_all = all(offsets.get(partition, _NOTHING) >= end for partition, end in ends.items())
        if has_read_all or offsets != self._offsets[group]:
            self._moved_ms[group] = now_ms
            self.silent.discard(group)
        self._offsets[group] = dict(offsets)
        silent_ms = now_ms - self._moved_ms[group]
        if silent_ms >= self._timeout_ms and group not in self.silent:
            self.silent.add(group)
            self._alarm(group, silent_ms)


class ReaderOffsets:
    """Looks up what the registered readers committed."""

    def __init__(self, kafka: AdminClient, topic: str, partition_count: int, timeout_ms: int) -> None:
        self._kafka = kafka
        self._targets = [TopicPartition(topic, partition) for partition in range(partition_count)]
        self._timeout_s = timeout_ms / 1_000

    async def look_up(self, group: str) -> dict[int, int]:
        """Return the committed offset of each log partition that has one.

        Raises:
            KafkaException: the cluster did not answer.
        """
        asked = [ConsumerGroupTopicPartitions(group, self._targets)]
        future = self._kafka.list_consumer_group_offsets(asked, request_timeout=self._timeout_s)[group]
        answer = await asyncio.wrap_future(future)
        found: dict[int, int] = {}
        for target in answer.topic_partitions:
            if target.error is not None:
                raise KafkaException(target.error)
            if target.offset >= 0:
                found[target.partition] = target.offset
        return found
