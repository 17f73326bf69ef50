"""The state topic against a real broker: made, found, refused, mended."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from random import Random

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewPartitions

from holdfast.daemon.settings.components.log import LogSettings
from holdfast.daemon.topics.log_identity import read_first_records, refuse_foreign_topic
from holdfast.daemon.topics.state_topic import (
    FIXED_CONFIG,
    StateTopic,
    StateTopicError,
    TopicMissing,
    describe_topic,
    ensure_state_topic,
)
from holdfast.kafka.connection_options import connection_options
from holdfast.kafka.librdkafka import KafkaClients
from holdfast.kafka.topics.metadata_client import MetadataClient
from holdfast.records.log.header import HEADER_NAME, encode_header
from holdfast.runtime.settings import LogIdentity
from tests.real.shared_kafka import NewTopicFactory
from tests.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.real


class NoFormer:
    """No topic was there before."""

    async def find_remains(self) -> str:
        return ""

    async def find_predecessor(self, topic: StateTopic) -> str:
        return ""


def one_copy(topic: str) -> LogSettings:
    return LogSettings(
        state_topic=topic, state_topic_replication_factor=1, state_topic_min_isr=1, state_topic_num_partitions=3
    )


@pytest.fixture
def admin(kafka: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka})


@pytest.fixture
async def metadata(kafka: str) -> AsyncIterator[MetadataClient]:
    options = connection_options({"bootstrap.servers": kafka})
    client = MetadataClient(options, timeout_ms=10_000, random=Random(1))
    yield client
    client.close()


@pytest.fixture
def settings(topic: str) -> LogSettings:
    return one_copy(topic)


async def test_a_missing_topic_is_made_with_what_the_log_needs(
    admin: AdminClient, metadata: MetadataClient, settings: LogSettings, kafka: str
) -> None:
    made, findings = await ensure_state_topic(admin, metadata, settings, kafka, NoFormer())
    assert made.partition_count == 3
    assert made.replication_factor == 1
    assert made.max_message_bytes == 1_048_588
    (warning,) = findings
    assert "has one copy only" in str(warning)
    _, config = describe_topic(admin, settings.state_topic, 10_000)
    wanted = FIXED_CONFIG | {"segment.bytes": "104857600", "min.insync.replicas": "1"}
    assert {key: config[key] for key in wanted} == wanted
    again, _ = await ensure_state_topic(admin, metadata, settings, kafka, NoFormer())
    assert again == made
    named = await metadata.query_names([made.name])
    assert named[made.name].topic_id == made.topic_id, "librdkafka's id and the wire's are the same 16 bytes"


async def test_a_cluster_of_one_broker_names_the_two_settings_that_it_needs(
    admin: AdminClient, metadata: MetadataClient, topic: str, kafka: str
) -> None:
    with pytest.raises(StateTopicError) as refused:
        await ensure_state_topic(admin, metadata, LogSettings(state_topic=topic), kafka, NoFormer())
    assert str(refused.value) == (
        f"The state topic {topic} cannot be made with 3 copies on a cluster of 1 broker; add brokers, or lower what they cannot hold: "
        "--set share.coordinator.state.topic.replication.factor=1 --set share.coordinator.state.topic.min.isr=1"
    )


async def test_two_nodes_that_make_the_topic_at_once_get_the_same_one(
    admin: AdminClient, metadata: MetadataClient, settings: LogSettings, kafka: str
) -> None:
    options = connection_options({"bootstrap.servers": kafka})
    other = MetadataClient(options, timeout_ms=10_000, random=Random(2))
    try:
        first, second = await asyncio.gather(
            ensure_state_topic(admin, metadata, settings, kafka, NoFormer()),
            ensure_state_topic(admin, other, settings, kafka, NoFormer()),
        )
    finally:
        other.close()
    assert first == second


async def test_more_copies_than_brokers_are_refused_by_name(
    admin: AdminClient, metadata: MetadataClient, topic: str, kafka: str
) -> None:
    settings = LogSettings(state_topic=topic, state_topic_replication_factor=1_000, state_topic_num_partitions=1)
    with pytest.raises(
        StateTopicError, match=r"lower .*--set share\.coordinator\.state\.topic\.replication\.factor=1 "
    ):
        await ensure_state_topic(admin, metadata, settings, kafka, NoFormer())
    with pytest.raises(TopicMissing):
        describe_topic(admin, topic, 10_000)


async def test_a_topic_that_would_lose_state_is_refused_and_the_command_mends_it(
    admin: AdminClient, metadata: MetadataClient, new_topic: NewTopicFactory, kafka: str
) -> None:
    name = new_topic(3, cleanup_policy="compact", retention_ms="1000", retention_bytes="5000")
    settings = one_copy(name)
    with pytest.raises(StateTopicError) as refused:
        await ensure_state_topic(admin, metadata, settings, kafka, NoFormer())
    lines = str(refused.value).splitlines()
    assert len(lines) == 3
    resource = ConfigResource(ResourceType.TOPIC, name)
    mended = {}
    for line in lines:
        command, _, change = line.partition(" --add-config ")
        assert command.endswith(
            f"kafka-configs.sh --bootstrap-server {kafka} --alter --entity-type topics --entity-name {name}"
        )
        key, value = change.split("=")
        mended[key] = value
        resource.add_incremental_config(ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET))
    admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)
    # A broker shows what it acknowledged a moment later.
    await wait_until(lambda: mended.items() <= describe_topic(admin, name, 10_000)[1].items(), "the settings are shown")
    _, warnings = await ensure_state_topic(admin, metadata, settings, kafka, NoFormer())
    assert not any(warning.is_fatal for warning in warnings)
    assert any("message.timestamp.type=CreateTime" in warning.problem for warning in warnings)


async def test_another_number_of_partitions_is_a_warning_and_the_real_one_counts(
    admin: AdminClient, metadata: MetadataClient, new_topic: NewTopicFactory, kafka: str
) -> None:
    name = new_topic(1, retention_ms="-1")
    admin.create_partitions([NewPartitions(name, 2)])[name].result(PATIENCE_S)
    partition_count = 1
    async with asyncio.timeout(PATIENCE_S):  # create_partitions answers before every broker knows
        while partition_count == 1:
            found, warnings = await ensure_state_topic(admin, metadata, one_copy(name), kafka, NoFormer())
            partition_count = found.partition_count
    assert partition_count == 2
    assert any("has 2 partitions where the setting is 3" in str(warning) for warning in warnings)


@pytest.mark.parametrize(
    ("headers", "is_foreign"),
    [([None, None], True), ([None, "hf"], False), (["hf", None], False), ([], False)],
    ids=["all without the header", "one with a stray record", "another with a stray record", "an empty topic"],
)
async def test_a_topic_of_another_program_is_refused(
    admin: AdminClient,
    metadata: MetadataClient,
    new_topic: NewTopicFactory,
    kafka: str,
    headers: list[str | None],
    is_foreign: bool,
) -> None:
    name = new_topic(3, retention_ms="-1")
    producer = Producer({"bootstrap.servers": kafka})
    for partition, header in enumerate(headers):
        for sequence in range(2):
            marked: list[tuple[str, str | bytes | None]]
            marked = [(HEADER_NAME, encode_header(1, sequence))] if header else [("trace", uuid.uuid4().bytes)]
            producer.produce(name, b"value", b"key", partition, headers=marked)
    assert producer.flush(PATIENCE_S) == 0
    found, _ = await ensure_state_topic(admin, metadata, one_copy(name), kafka, NoFormer())
    clients = KafkaClients({"bootstrap.servers": kafka})
    first_records = read_first_records(clients, found, LogIdentity("cluster", found.topic_id, 3), 20_000)
    if is_foreign:
        with pytest.raises(StateTopicError, match=r"Another program writes topic .* as in partition [01]"):
            refuse_foreign_topic(name, first_records)
    else:
        refuse_foreign_topic(name, first_records)
