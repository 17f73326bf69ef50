"""The signs that another state topic was there before: no node begins with an empty log in its place without a word.

A cluster forgets a deleted topic at once. The group of the nodes outlives it with its memory (`topic_memory`), and what stands in the
snapshot topic does for good. That the snapshot topic exists says nothing: an admin, or a job, makes it ahead of the first node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import closing, suppress
from typing import Final

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from holdfast.daemon.settings.models import Settings
from holdfast.daemon.topics.state_topic import StateTopic
from holdfast.daemon.topics.topic_memory import recall
from holdfast.kafka.connection_options import ConnectionOptions, LiveProperties
from holdfast.kafka.discovery.groups import Groups
from holdfast.kafka.errors import ConnectionFailed
from holdfast.kafka.exchange import broker_links
from holdfast.kafka.librdkafka import find_topic
from holdfast.kafka.librdkafka_types import latest_offset
from holdfast.kafka.topic_ids import format_topic_id

#: What brokers say of a group that they do not know.
_UNKNOWN_STATES: Final = ("", "Dead")


class Remains:
    """The remains in Kafka of the nodes of a state topic (`FormerTopic`).

    If a broker tells nothing, because it does not answer or an ACL is missing, that is no sign of anything.
    """

    def __init__(self, admin: AdminClient, settings: Settings, kafka: LiveProperties) -> None:
        """Look at nothing yet."""
        self._admin = admin
        self._settings = settings
        self._options: ConnectionOptions = kafka.connection_options()
        self._name = settings.log.state_topic
        self._group = settings.members.group_of(settings.log.state_topic)
        self._timeout_ms = settings.log.request_timeout_ms

    async def find_remains(self) -> str:
        """See `FormerTopic.find_remains`."""
        group, snapshot_topic = self._group, self._settings.snapshots.topic
        if group is not None and (members := await self._count_members(group)) is not None:
            if members:
                return f"the group {group} is known, and {members} nodes are in it"
            remembered = await recall(self._settings, self._options)
            if ids := sorted(format_topic_id(each.topic_id) for each in remembered if each.name == self._name):
                return f"the group {group} remembers it, with the id {' or '.join(ids)}"
            if not remembered:
                return f"the group {group} is known, and nodes were in it a short time ago"
            # Its nodes had another topic.
        has_snapshots = bool(snapshot_topic) and await asyncio.to_thread(self._was_written, snapshot_topic)
        return f"the topic {snapshot_topic} has snapshots of it" if has_snapshots else ""

    async def find_predecessor(self, topic: StateTopic) -> str:
        """See `FormerTopic.find_predecessor`.

        A topic with records is asked for nothing: they say which log it is, or that an admin has accepted it.

        Raises:
            ConnectionFailed: another topic is remembered, and not every log partition says whether it is empty.
        """
        if self._group is None:
            return ""
        numbers = range(topic.partition_count)
        ends = await asyncio.to_thread(self._ends, topic.name, numbers)
        if any(ends.values()):
            return ""
        remembered = {each.topic_id for each in await recall(self._settings, self._options) if each.name == topic.name}
        if not remembered or topic.topic_id in remembered:
            return ""
        if silent := [number for number in numbers if number not in ends]:
            listed = ", ".join(map(str, silent))
            raise ConnectionFailed(f"it is not known whether log partitions {listed} of {topic.name} are empty")
        return f"the group {self._group} remembers the id {' or '.join(sorted(map(format_topic_id, remembered)))}"

    async def _count_members(self, group: str) -> int | None:
        """Return how many nodes are in the group; None: no group is known."""
        try:
            with closing(Groups(broker_links(self._options, self._timeout_ms), self._timeout_ms)) as groups:
                found = (await groups.describe([group]))[group]
        except ConnectionFailed:
            return None
        return None if found.error_code or found.state in _UNKNOWN_STATES else len(found.members)

    def _was_written(self, name: str) -> bool:
        """Tell whether a topic is there, and a partition of it ever had a record."""
        with suppress(KafkaException):
            topic = find_topic(self._admin, name, self._timeout_ms)
            return topic is not None and any(self._ends(name, range(topic.partition_count)).values())
        return False

    def _ends(self, name: str, numbers: Iterable[int]) -> dict[int, int]:
        """Return where the partitions of a topic end, by number, of those that have a leader that says so."""
        places = {TopicPartition(name, number): latest_offset() for number in numbers}
        ends: dict[int, int] = {}
        for place, end in self._admin.list_offsets(places, request_timeout=self._timeout_ms / 1_000).items():
            with suppress(KafkaException):
                ends[place.partition] = end.result().offset
        return ends
