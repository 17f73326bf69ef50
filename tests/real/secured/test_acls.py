"""The table of ACLs against a real authorizer: with its rows everything works, and without each one something fails that names it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Final

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.cimpl import NewTopic
from structlog.testing import capture_logs

from holdfast.client import Client, ClientError, connect
from holdfast.compaction.config import CompactionConfig
from holdfast.compaction.group import topics_of
from holdfast.console.commands.config import ConfigTopicPlace
from holdfast.daemon.config_topic.topic import ConfigTopic
from holdfast.daemon.node_exit import NodeExit
from holdfast.daemon.settings.by_name import configure
from holdfast.daemon.settings.models import Settings
from holdfast.daemon.topics.snapshot_topic import check_snapshot_topic, ensure_snapshot_topic
from holdfast.daemon.topics.state_topic import StateTopic, check_state_topic, describe_topic, make_state_topic
from holdfast.kafka.connection_options import LiveProperties, connection_options
from holdfast.kafka.group_offsets import GroupOffsets, GroupRefused
from holdfast.kafka.librdkafka import KafkaClients
from holdfast.kafka.topics.metadata_client import MetadataClient
from holdfast.records.share.batches import ACKNOWLEDGED, StateBatch
from holdfast.share.snapshots.store import Snapshots
from tests.kafka_acls import NEEDS, Resource, Role, acls_of
from tests.real.nodes import ONE_TRY, topic_id_of
from tests.real.running_node import RunningNode, make_settings, running
from tests.real.secured.secured_kafka import UNCLOSED, USER, SecuredKafka
from tests.waiting import PATIENCE_S, block_until, wait_until

pytestmark = [pytest.mark.real, *UNCLOSED]

#: By which the job and an admin come in.
JOB: Final = "job"
ADMIN: Final = "admin"
TIMEOUT_MS: Final = 60_000


def settings_of(properties: dict[str, str], topic: str, **more: object) -> Settings:
    security = {f"kafka.{name}": value for name, value in properties.items()}
    names = {
        "snapshots.topic": f"{topic}-snapshots",
        "compaction.group": f"{topic}-job",
        "log_readers": [f"{topic}-reader"],
    }
    pruning = {"pruning_dead_bytes_min": 1, "pruning_check_interval_ms": 20}
    short = {
        "config.read.timeout.ms": TIMEOUT_MS,
        "share.coordinator.write.timeout.ms": 1_000,
        "share.coordinator.state.topic.num.partitions": 1,
        "membership": "group",
    }
    return make_settings(properties["bootstrap.servers"], topic, **{**security, **names, **pruning, **short, **more})


class Trial:
    """The rows of one role, taken away one by one while something that needs them is tried."""

    def __init__(self, secured: SecuredKafka, settings: Settings, role: Role, user: str) -> None:
        """Allow a user all of them."""
        self._secured, self._settings, self._user = secured, settings, user
        self._needs = {(need.operation, need.resource): need for need in NEEDS if need.role is role}
        #: Those without which something was seen to fail.
        self._seen: set[tuple[str, Resource]] = set()
        for need in self._needs.values():
            secured.allow(acls_of(need, settings), user)

    def assert_each_is_needed(self) -> None:
        assert self._needs.keys() - self._seen == set(), "rows without which nothing was seen to fail"

    @contextmanager
    def without(self, operation: str, resource: Resource) -> Iterator[str]:
        """Take a row away for a while; gives what an error must say of it."""
        acls = acls_of(self._needs[operation, resource], self._settings)
        self._secured.forbid(acls, self._user)
        yield f"; allow {operation} on {acls[0].kind} {acls[0].name} to "
        self._secured.allow(acls, self._user)
        self._seen.add((operation, resource))

    def fails_without(self, operation: str, resource: Resource, call: Callable[[], object]) -> None:
        """Try a call until it fails for want of a row, and then until it does not fail any more."""
        with self.without(operation, resource) as remedy:
            assert remedy in failure_of(call)
        assert not failure_of(call), f"it fails also with {operation} on {resource}"


def failure_of(call: Callable[[], object]) -> str:
    """Return what a call fails with; empty if it does not."""
    try:
        call()
    except Exception as failure:
        return str(failure)
    return ""


def make_topics(secured: SecuredKafka, *names: str) -> None:
    config = {"cleanup.policy": "compact", "max.message.bytes": "2000000"}
    for made in secured.admin.create_topics([NewTopic(name, 1, 1, config=config) for name in names]).values():
        made.result(PATIENCE_S)


def put(secured: SecuredKafka, topic: str, key: bytes, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": secured.open})
    producer.produce(topic, value, key, partition=0)
    assert producer.flush(PATIENCE_S) == 0


def has_read_everything(secured: SecuredKafka, group: str, topic: str) -> None:
    """Commit, for a reader of the log, an offset that no log of a test reaches."""
    reader = Consumer({"bootstrap.servers": secured.open, "group.id": group, "enable.auto.commit": False})
    offsets = [TopicPartition(topic, 0, 1_000_000)]
    block_until(lambda: not failure_of(lambda: reader.commit(offsets=offsets, asynchronous=False)), "a commit")
    reader.close()


async def write_until(client: Client, orders: bytes, condition: Callable[[], object]) -> None:
    """Begin state anew until a condition holds, whatever becomes of that."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await is_written(client, orders)


async def is_written(client: Client, orders: bytes) -> bool:
    try:
        await client.initialize("group", orders, 0, 1, 10)
        await client.write("group", orders, 0, 1, 0, 10, [StateBatch(15, 19, ACKNOWLEDGED, 1)])
    except ClientError:
        return False
    return True


async def test_a_node_needs_each_of_its_acls_and_no_other(secured: SecuredKafka, topic: str) -> None:
    properties = secured.by_certificate()
    settings = settings_of(properties, topic)
    snapshots, config = f"{topic}-snapshots", f"{topic}_config"
    make_topics(secured, topic + "-orders", snapshots, config)
    orders = topic_id_of(secured.open, topic + "-orders")
    put(secured, snapshots, b"key", b"value")
    put(secured, config, b"log_level", b"debug")
    trial = Trial(secured, settings, Role.NODE, USER)

    with KafkaClients(properties).admin() as admin:
        trial.fails_without("Create", Resource.STATE_TOPIC, lambda: make_state_topic(admin, settings.log))
        has_read_everything(secured, f"{topic}-reader", topic)
        state = StateTopic(topic, bytes(16), 1, 1, 1_048_588)
        log, bootstrap = settings.log, properties["bootstrap.servers"]
        trial.fails_without("DescribeConfigs", Resource.STATE_TOPIC, lambda: check_state_topic(admin, log, bootstrap))
        trial.fails_without(
            "DescribeConfigs",
            Resource.SNAPSHOT_TOPIC,
            lambda: check_snapshot_topic(admin, state, settings.snapshots, log, bootstrap),
        )
    with capture_logs() as lines:

        def said(event: str, text: str = "") -> bool:
            return any(line["event"] == event and text in str(line) for line in lines)

        await needs_to_read_the_config_topic(trial, settings, said)
        with trial.without("Read", Resource.SNAPSHOT_TOPIC) as remedy:
            node = await RunningNode(settings).ready()
            assert said("restore_refused", remedy)
        async with connect(node.address, ONE_TRY) as client:
            with trial.without("Describe", Resource.USER_TOPICS):
                with pytest.raises(ClientError, match=r"UNKNOWN_TOPIC_OR_PARTITION .* not let it Describe the topic"):
                    await client.initialize("group", orders, 0, 1, 0)
                assert not await looks_deleted(properties, orders), "its state would go"
            with trial.without("Delete", Resource.STATE_TOPIC) as remedy:
                await write_until(client, orders, lambda: said("record_deletion_failed", remedy))
            for operation in ("Write", "Read"):
                with trial.without(operation, Resource.STATE_TOPIC) as remedy:
                    await write_until(client, orders, lambda: said("log_partition_failed", remedy))
                await node.until(lambda: node.node.is_ready, f"the node is ready with {operation} again")
            for resource, group in (
                (Resource.READER_GROUPS, f"{topic}-reader"),
                (Resource.JOB_GROUP, f"{topic}-job"),
            ):
                with trial.without("Describe", resource) as remedy:
                    assert remedy in await failure_of_offsets(properties, group, topic)
            # It is pruned some time after it may be.
            ends_s = time.monotonic() + PATIENCE_S
            while not await is_written(client, orders) or (await client.admin("partitions"))[0]["log_start"] == 0:
                assert time.monotonic() < ends_s, "no write is answered, or the log is not pruned"
        with trial.without("Write", Resource.SNAPSHOT_TOPIC) as remedy:
            removing = node.parts.partitions._snapshots
            assert isinstance(removing, Snapshots)

            def is_refused() -> bool:
                removing.tick()
                return remedy in failure_of(lambda: removing.remove(0, b"key"))

            await node.until(is_refused, remedy)
        with trial.without("Read", Resource.NODE_GROUP):
            assert await node.exit is NodeExit.WRONG_USAGE
        assert said("membership_refused", f"Group holdfast-{topic}: GROUP_AUTHORIZATION_FAILED; ")
    trial.assert_each_is_needed()
    async with running(settings_of(properties, topic, membership="static")) as again:
        found = await again.client.read("group", orders, 0, 0)
        assert [tuple(batch[:2]) for batch in found.state_batches] == [(15, 19)]


async def needs_to_read_the_config_topic(trial: Trial, settings: Settings, said: Callable[..., bool]) -> None:
    config = ConfigTopic(settings, LiveProperties(settings.kafka.properties), lambda: None)
    with trial.without("Read", Resource.CONFIG_TOPIC) as remedy:
        hidden = remedy.replace("Read", "Describe")
        with trial.without("Describe", Resource.USER_TOPICS):
            reading = asyncio.create_task(config.start())
            await wait_until(lambda: said("config_topic_unread", hidden), hidden)
        await wait_until(lambda: said("config_topic_unread", remedy), remedy)
    assert await reading
    assert config.values["log_level"].text == "debug"
    assert await config.stop(TIMEOUT_MS)


async def failure_of_offsets(properties: dict[str, str], group: str, topic: str) -> str:
    offsets = GroupOffsets(connection_options(properties), TIMEOUT_MS)
    try:
        await offsets.fetch_offsets(group, topic, [0])
    except GroupRefused as refused:
        return str(refused)
    finally:
        offsets.close()
    return ""


async def looks_deleted(properties: dict[str, str], topic_id: bytes) -> bool:
    client = MetadataClient(connection_options(properties), timeout_ms=TIMEOUT_MS, random=Random(1))
    try:
        return topic_id in (await client.query_ids([topic_id])).unknown_ids
    finally:
        client.close()


def test_the_job_needs_each_of_its_acls(secured: SecuredKafka, topic: str) -> None:
    secured.set_password("job-secret", JOB)
    properties = secured.by_password("SCRAM-SHA-256", JOB, "job-secret")
    settings = settings_of(properties, topic)
    make_topics(secured, topic)
    trial = Trial(secured, settings, Role.JOB, JOB)
    config = configure(
        CompactionConfig,
        settings.compaction,
        settings.log,
        bootstrap_servers=properties["bootstrap.servers"],
        kafka_properties=properties,
        snapshot_topic=settings.snapshots.topic,
        checkpoint_dir="",
        history_dir="",
        master=None,
        spark_properties={},
    )
    topics, state = topics_of(config), StateTopic(topic, bytes(16), 1, 1, 1_048_588)
    with KafkaClients(properties).admin() as admin:
        arguments = (admin, state, settings.snapshots, settings.log, properties["bootstrap.servers"])
        trial.fails_without("Create", Resource.SNAPSHOT_TOPIC, lambda: ensure_snapshot_topic(*arguments))
        trial.fails_without("DescribeConfigs", Resource.SNAPSHOT_TOPIC, lambda: check_snapshot_topic(*arguments))
        trial.fails_without("DescribeConfigs", Resource.STATE_TOPIC, lambda: describe_topic(admin, topic, TIMEOUT_MS))
    trial.fails_without("Write", Resource.SNAPSHOT_TOPIC, lambda: topics.write([(0, b"key", b"value")]))
    trial.fails_without("Read", Resource.JOB_GROUP, lambda: topics.commit({0: 0}))
    trial.fails_without("Read", Resource.STATE_TOPIC, lambda: topics.commit({0: 0}))
    trial.assert_each_is_needed()


def test_holdfast_config_needs_each_of_its_acls(secured: SecuredKafka, topic: str) -> None:
    secured.set_password("admin-secret", ADMIN)
    properties = secured.by_password("SCRAM-SHA-256", ADMIN, "admin-secret")
    make_topics(secured, topic)
    trial = Trial(secured, settings_of(properties, topic), Role.CONFIG, ADMIN)
    config = ConfigTopicPlace(properties, topic, f"{topic}_config")

    def write() -> None:
        config.write({"log_level": "debug"})

    with trial.without("Describe", Resource.STATE_TOPIC) as remedy:
        assert remedy in failure_of(write)
    trial.fails_without("Create", Resource.CONFIG_TOPIC, write)
    trial.fails_without("DescribeConfigs", Resource.CONFIG_TOPIC, write)
    trial.fails_without("Write", Resource.CONFIG_TOPIC, write)
    trial.fails_without("Read", Resource.CONFIG_TOPIC, config.read)
    trial.assert_each_is_needed()
