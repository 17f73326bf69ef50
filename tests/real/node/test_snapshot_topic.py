"""The snapshot topic against a real broker: made like the state topic, found again, refused, mended."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType

from holdfast.daemon.settings.components.log import LogSettings
from holdfast.daemon.settings.components.snapshots import SnapshotSettings
from holdfast.daemon.topics.snapshot_topic import SnapshotTopicError, check_snapshot_topic, ensure_snapshot_topic
from holdfast.daemon.topics.state_topic import StateTopic, TopicMissing, describe_topic
from tests.real.shared_kafka import NewTopicFactory
from tests.waiting import PATIENCE_S, block_until

pytestmark = pytest.mark.real

STATE = StateTopic("state", bytes(16), 3, 1, 1_048_588)
LOG = LogSettings()


@pytest.fixture
def admin(kafka: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka})


def test_a_missing_topic_is_made_like_the_state_topic_and_found_again(
    admin: AdminClient, topic: str, kafka: str
) -> None:
    snapshots = SnapshotSettings(topic=topic)
    with pytest.raises(TopicMissing):
        check_snapshot_topic(admin, STATE, snapshots, LOG, kafka)
    assert ensure_snapshot_topic(admin, STATE, snapshots, LOG, kafka) == ()
    made, config = describe_topic(admin, topic, 10_000)
    assert (made.partition_count, made.replication_factor) == (3, 1)
    assert config["cleanup.policy"] == "compact"
    assert config["min.compaction.lag.ms"] == "600000"
    assert made.max_message_bytes > STATE.max_message_bytes
    assert ensure_snapshot_topic(admin, STATE, snapshots, LOG, kafka) == ()
    admin.delete_topics([topic])[topic].result(PATIENCE_S)


def test_more_copies_than_brokers_are_refused(admin: AdminClient, topic: str, kafka: str) -> None:
    many = STATE._replace(replication_factor=1_000)
    with pytest.raises(SnapshotTopicError, match=r"cannot be made"):
        ensure_snapshot_topic(admin, many, SnapshotSettings(topic=topic), LOG, kafka)


def test_a_useless_topic_is_refused_and_the_commands_mend_it(
    admin: AdminClient, new_topic: NewTopicFactory, kafka: str
) -> None:
    name = new_topic(3)
    snapshots = SnapshotSettings(topic=name)
    with pytest.raises(SnapshotTopicError) as refused:
        ensure_snapshot_topic(admin, STATE, snapshots, LOG, kafka)
    resource = ConfigResource(ResourceType.TOPIC, name)
    lines = str(refused.value).splitlines()
    assert len(lines) == 2
    mended = {}
    for line in lines:
        key, value = line.partition(" --add-config ")[2].split("=")
        mended[key] = value
        resource.add_incremental_config(ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET))
    admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)
    # A broker shows what it acknowledged a moment later.
    block_until(lambda: mended.items() <= describe_topic(admin, name, 10_000)[1].items(), "the settings are shown")
    assert ensure_snapshot_topic(admin, STATE, snapshots, LOG, kafka) == ()
    with pytest.raises(SnapshotTopicError, match="has 3 partitions and the state topic 4"):
        ensure_snapshot_topic(admin, STATE._replace(partition_count=4), snapshots, LOG, kafka)
