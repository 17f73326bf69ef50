"""The snapshot topic: created where the job that writes it runs, and checked by every user of it.

A setting that would make its content useless is refused, with the command that mends it; nothing in it is ever needed, so
a node goes on without it.
All functions block while Kafka answers; run them in a thread.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from confluent_kafka.admin import AdminClient

from holdfast.daemon.settings.components.log import LogSettings
from holdfast.daemon.settings.components.snapshots import SnapshotSettings
from holdfast.daemon.topics.state_topic import (
    Finding,
    StateTopic,
    TopicMissing,
    command_to_alter,
    describe_topic,
    until_known,
    why_not_created,
)
from holdfast.kafka.librdkafka import create_topic, who
from holdfast.kafka.librdkafka_types import NewTopic

#: What an entry may take beside the record of the log that it was made of: the topic's id, offsets, counts.
_ENTRY_ROOM_BYTES: Final = 4_096
#: Time for which the topic keeps entries that were replaced or removed; a reader of a partition needs less.
_MIN_COMPACTION_LAG_MS: Final = 600_000


class SnapshotTopicError(Exception):
    """The snapshot topic cannot be used; the text says why and what mends it."""


def ensure_snapshot_topic(
    admin: AdminClient, state: StateTopic, snapshots: SnapshotSettings, log: LogSettings, bootstrap_servers: str
) -> tuple[Finding, ...]:
    """Make the snapshot topic if it is missing, and check it; returns its warnings.

    Raises:
        SnapshotTopicError: it cannot be made, did not become known in time, or its content would be useless.
        ConnectionFailed: no broker would describe it.
    """
    try:
        return check_snapshot_topic(admin, state, snapshots, log, bootstrap_servers)
    except TopicMissing:
        _make(admin, state, snapshots, log)
    try:
        return until_known(
            log.state_topic_create_timeout_ms, check_snapshot_topic, admin, state, snapshots, log, bootstrap_servers
        )
    except TopicMissing:
        raise SnapshotTopicError(
            f"The snapshot topic {snapshots.topic} was made, but no broker knows it yet; try again."
        ) from None


def check_snapshot_topic(
    admin: AdminClient, state: StateTopic, snapshots: SnapshotSettings, log: LogSettings, bootstrap_servers: str
) -> tuple[Finding, ...]:
    """Describe the snapshot topic and return its warnings.

    Raises:
        TopicMissing: it does not exist.
        SnapshotTopicError: its content would be useless; names every fatal finding.
        ConnectionFailed: no broker would describe it.
    """
    topic, config = describe_topic(admin, snapshots.topic, log.request_timeout_ms)
    findings = tuple(find_snapshot_problems(topic, config, state, bootstrap_servers))
    if fatal := [finding for finding in findings if finding.is_fatal]:
        raise SnapshotTopicError("\n".join(map(str, fatal)))
    return findings


def find_snapshot_problems(
    topic: StateTopic, config: Mapping[str, str], state: StateTopic, bootstrap_servers: str
) -> Iterator[Finding]:
    """Compare the snapshot topic as it is with what the state topic requires."""

    def alter(key: str, value: object) -> str:
        return command_to_alter(bootstrap_servers, topic.name, key, value)

    if config["cleanup.policy"] != "compact":
        problem = f"topic {topic.name} has cleanup.policy={config['cleanup.policy']}: snapshots would go by age, needed or not"
        yield Finding(problem, alter("cleanup.policy", "compact"), is_fatal=True)
    if topic.partition_count != state.partition_count:
        yield Finding(
            f"topic {topic.name} has {topic.partition_count} partitions and the state topic {state.partition_count}: "
            "snapshots would be looked for in others; name another with snapshots.topic, or delete it, for it is recreated, "
            "if it is no other state topic's",
            "",
            is_fatal=True,
        )
    room = state.max_message_bytes + _ENTRY_ROOM_BYTES
    if topic.max_message_bytes < room:
        problem = (
            f"topic {topic.name} has max.message.bytes={topic.max_message_bytes}: the largest snapshots would not fit"
        )
        yield Finding(problem, alter("max.message.bytes", room), is_fatal=True)
    if topic.replication_factor < state.replication_factor:
        yield Finding(
            f"topic {topic.name} has {topic.replication_factor} copies and the state topic {state.replication_factor}: "
            "a load may find no snapshots and take longer; give it as many with kafka-reassign-partitions.sh",
            "",
        )


def _make(admin: AdminClient, state: StateTopic, snapshots: SnapshotSettings, log: LogSettings) -> None:
    topic = NewTopic(
        snapshots.topic,
        num_partitions=state.partition_count,
        replication_factor=state.replication_factor,
        config={
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "min.compaction.lag.ms": str(_MIN_COMPACTION_LAG_MS),
            "max.message.bytes": str(state.max_message_bytes + _ENTRY_ROOM_BYTES),
        },
    )
    refusal = create_topic(admin, topic, log.request_timeout_ms)
    if refusal is not None:
        raise SnapshotTopicError(
            f"The snapshot topic {snapshots.topic} cannot be made: {why_not_created(refusal, topic, who(admin))}."
        )
