"""What tells that a state topic was there before, where there is none: nothing makes another one under its name without a word.

A cluster forgets a deleted topic at once. The group of the nodes outlives it for some minutes, and what stands in the snapshot topic for
good. That the snapshot topic exists says nothing: an admin, or a job, makes it ahead of the first node.
"""

from __future__ import annotations

import asyncio
from contextlib import closing, suppress
from typing import Final

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from holdfast.daemon.settings.models import Settings
from holdfast.kafka.connection_options import LiveProperties
from holdfast.kafka.discovery.broker_links import broker_links
from holdfast.kafka.discovery.groups import Groups
from holdfast.kafka.errors import ConnectionFailed
from holdfast.kafka.librdkafka import find_topic
from holdfast.kafka.librdkafka_types import latest_offset

#: What brokers say of a group that they do not know.
_UNKNOWN_STATES: Final = ("", "Dead")


async def find_remains(admin: AdminClient, settings: Settings, kafka: LiveProperties) -> str:
    """Return what is left of nodes that had a state topic, a clause; empty: nothing is known.

    What a broker does not tell, because it does not answer or an ACL is missing, is no sign of anything.
    """
    group = settings.members.group_of(settings.log.state_topic)
    if group is not None and (members := await _count_members(group, settings, kafka)) is not None:
        who = f"{members} nodes are in it" if members else "nodes were in it a short time ago"
        return f"the group {group} is known, and {who}"
    snapshot_topic = settings.snapshots.topic
    if not snapshot_topic:
        return ""
    has_snapshots = await asyncio.to_thread(_was_written, admin, snapshot_topic, settings.log.request_timeout_ms)
    return f"the topic {snapshot_topic} has snapshots of it" if has_snapshots else ""


async def _count_members(group: str, settings: Settings, kafka: LiveProperties) -> int | None:
    timeout_ms = settings.log.request_timeout_ms
    try:
        with closing(Groups(broker_links(kafka.connection_options(), timeout_ms), timeout_ms)) as groups:
            found = (await groups.describe([group]))[group]
    except ConnectionFailed:
        return None
    return None if found.error_code or found.state in _UNKNOWN_STATES else len(found.members)


def _was_written(admin: AdminClient, name: str, timeout_ms: int) -> bool:
    """Tell whether a topic is there, and a partition of it ever had a record."""
    with suppress(KafkaException):
        if (topic := find_topic(admin, name, timeout_ms)) is None:
            return False
        places = {TopicPartition(name, number): latest_offset() for number in range(topic.partition_count)}
        for end in admin.list_offsets(places, request_timeout=timeout_ms / 1_000).values():
            with suppress(KafkaException):  # of a partition without a leader nothing is known
                if end.result().offset > 0:
                    return True
    return False
