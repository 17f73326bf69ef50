"""The id of the state topic in the group of the nodes: it outlives nodes, topics and brokers, and refuses an empty log."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from threading import Event
from typing import Any, Final

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from holdfast.broker import EmbeddedKafka
from holdfast.console.doctor.findings import Level, Subject
from holdfast.console.doctor.topics import check_log
from holdfast.daemon.settings.components.config_topic import config_topic_of
from holdfast.daemon.topics.topic_memory import RememberedTopic, recall
from holdfast.kafka.addresses import parse_address
from holdfast.kafka.connection_options import ConnectionOptions
from holdfast.kafka.discovery.groups import Groups
from holdfast.kafka.exchange import broker_links
from holdfast.kafka.librdkafka import create_topic
from holdfast.kafka.librdkafka_types import NewTopic
from holdfast.kafka.topic_ids import format_topic_id, parse_topic_id
from tests.real.nodes import NodeProcess, node_processes, topic_id_of
from tests.real.quick_java import QUICK_KAFKA
from tests.real.running_node import make_settings
from tests.real.shared_kafka import LONG_SESSION
from tests.waiting import PATIENCE_MS, PATIENCE_S, block_until

pytestmark = pytest.mark.real

#: A member that was killed is missed soon.
SETTINGS: Final[dict[str, object]] = {"session.timeout.ms": 1_000, "heartbeat.interval.ms": 200}
QUICK_GROUPS: Final = {
    **LONG_SESSION,
    "group.min.session.timeout.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.retention.check.interval.ms": "600000",
}
#: Drops a group that has neither members nor commits at once, where a broker takes some minutes as a rule; also one that a first member
#: is about to join, so no node runs meanwhile.
FORGETFUL: Final = {**QUICK_GROUPS, "offsets.retention.check.interval.ms": "50"}
ALLOWED: Final = "`holdfast serve --new-state-topic`, once"


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(jvm_options=QUICK_KAFKA, properties=QUICK_GROUPS) as broker:
        yield broker


class Cluster:
    """A broker, and a state topic on it that somebody deletes."""

    def __init__(self, broker: EmbeddedKafka, topic: str) -> None:
        self.kafka = broker.bootstrap_servers
        self.topic = topic
        self.settings = make_settings(self.kafka, topic, membership="group")
        self.admin = AdminClient({"bootstrap.servers": self.kafka})

    @property
    def options(self) -> ConnectionOptions:
        return ConnectionOptions(bootstrap=(parse_address(self.kafka),))

    def make(self, name: str) -> None:
        assert create_topic(self.admin, NewTopic(name, 4, 1), PATIENCE_MS) is None

    def delete(self, name: str) -> None:
        self.admin.delete_topics([name])[name].result(PATIENCE_S)
        # The controller has answered; the broker learns of it a little later.
        block_until(lambda: name not in self.admin.list_topics(timeout=PATIENCE_S).topics, f"{name} is gone")

    async def until_remembered(self, topic_id: str) -> None:
        wanted = {RememberedTopic(self.topic, parse_topic_id(topic_id))}
        deadline_s = time.monotonic() + PATIENCE_S
        while (found := await recall(self.settings, self.options)) != wanted:
            assert time.monotonic() < deadline_s, f"the group remembers {found}"
            await asyncio.sleep(0.1)

    async def until_without_members(self, group: str = "") -> str:
        """Wait until a group has no members, by default that of the nodes; returns its state."""
        group = group or f"holdfast-{self.topic}"
        with closing(Groups(broker_links(self.options, PATIENCE_MS), PATIENCE_MS)) as groups:
            deadline_s = time.monotonic() + PATIENCE_S
            while not (found := (await groups.describe([group]))[group]).is_empty:
                assert time.monotonic() < deadline_s, f"the group has {found.members}"
                await asyncio.sleep(0.1)
        return found.state

    async def until_forgotten(self, group: str) -> None:
        """Wait until Kafka knows a group no more."""
        deadline_s = time.monotonic() + PATIENCE_S
        while await self.until_without_members(group) != "Dead":
            assert time.monotonic() < deadline_s, f"the group {group} is still known"
            await asyncio.sleep(0.1)

    def make_group(self, group: str) -> None:
        """Make a group that had a member, and has no commit."""
        consumer = Consumer({"bootstrap.servers": self.kafka, "group.id": group, "enable.auto.commit": False})
        joined = Event()
        consumer.subscribe([self.topic], on_assign=lambda *_: joined.set())
        deadline_s = time.monotonic() + PATIENCE_S
        while not joined.is_set():
            consumer.poll(0.1)
            assert time.monotonic() < deadline_s, "the consumer has not joined"
        consumer.close()

    async def doctor(self) -> tuple[Level, str]:
        [found] = await check_log(Subject(self.settings, "", PATIENCE_MS))
        return found.level, f"{found.text} {found.remedy}"


async def remembered_and_killed(cluster: Cluster, node: NodeProcess) -> str:
    """Run a node until its group remembers the topic, and kill it; returns the id of the topic."""
    await node.start()
    topic_id = str((await node.status())["topic_id"])
    await cluster.until_remembered(topic_id)
    node.kill()
    assert await cluster.until_without_members() == "Empty"
    return topic_id


@asynccontextmanager
async def remembered(
    broker: EmbeddedKafka, topic: str, directory: Path
) -> AsyncIterator[tuple[Cluster, NodeProcess, NodeProcess, str]]:
    """Give a cluster that remembers a topic, a node that was killed, one that may begin with an empty log, and the topic's id."""
    cluster = Cluster(broker, topic)
    with node_processes(cluster.kafka, topic, directory) as make_node:
        node, allowed = make_node(**SETTINGS), make_node(**SETTINGS, new_state_topic=True)
        yield cluster, node, allowed, await remembered_and_killed(cluster, node)


async def refusal(node: NodeProcess) -> str:
    """Start a node that is refused; returns why."""
    node.launch()
    assert await node.wait_exit() == 3, node.last_words()
    lines: list[dict[str, Any]] = node.events()
    assert lines[-2]["event"] == "node_start_failed"
    return str(lines[-2]["why"])


async def goes_on(cluster: Cluster, refused: NodeProcess, allowed: NodeProcess, former_id: str) -> None:
    """Begin with an empty log as an admin says, and see that no later start needs that."""
    await allowed.start()
    topic_id = (await allowed.status())["topic_id"]
    assert topic_id != former_id
    await cluster.until_remembered(topic_id)
    allowed.kill()
    await cluster.until_without_members()
    for _ in range(2):
        await refused.start()
        assert (await refused.status())["topic_id"] == topic_id
        refused.kill()
        await cluster.until_without_members()


async def test_a_deleted_topic_is_remembered_after_its_group_is_empty(
    broker: EmbeddedKafka, topic: str, tmp_path: Path
) -> None:
    async with remembered(broker, topic, tmp_path) as (cluster, node, allowed, former_id):
        without_commits = f"{topic}-without-commits"
        await asyncio.to_thread(cluster.make_group, without_commits)
        await asyncio.to_thread(cluster.delete, topic)
        await asyncio.to_thread(broker.restart, properties=FORGETFUL)
        await cluster.until_forgotten(without_commits)
        await asyncio.to_thread(broker.restart, properties=QUICK_GROUPS)
        wanted = f"the group holdfast-{topic} remembers it, with the id {former_id}"
        level, text = await cluster.doctor()
        assert (level, wanted in text) == (Level.WRONG, True), text
        why = await refusal(node)
        assert why.startswith(f"The state topic {topic} does not exist, and did before: {wanted}. It was deleted")
        assert why.removesuffix(".").endswith(ALLOWED)
        assert (await refusal(node)) == why
        await goes_on(cluster, node, allowed, former_id)


async def test_an_empty_topic_made_again_without_nodes_is_refused(
    broker: EmbeddedKafka, topic: str, tmp_path: Path
) -> None:
    async with remembered(broker, topic, tmp_path) as (cluster, node, allowed, former_id):
        await asyncio.to_thread(cluster.delete, topic)
        config = {
            "cleanup.policy": "delete",
            "retention.ms": "-1",
            "retention.bytes": "-1",
            "unclean.leader.election.enable": "false",
        }
        assert create_topic(cluster.admin, NewTopic(topic, 4, 1, config=config), PATIENCE_MS) is None
        topic_id = format_topic_id(await asyncio.to_thread(topic_id_of, cluster.kafka, topic))
        wanted = f"was another one before: the group holdfast-{topic} remembers the id {former_id}"
        why = await refusal(node)  # it waits until every log partition has a leader, as the doctor does not
        assert why.startswith(f"The state topic {topic} is empty and has the id {topic_id}, and {wanted}.")
        assert why.removesuffix(".").endswith(ALLOWED)
        level, text = await cluster.doctor()
        assert (level, wanted in text) == (Level.WRONG, True), text
        await goes_on(cluster, node, allowed, former_id)


async def test_topics_of_ours_deleted_with_the_state_topic_hide_nothing(
    broker: EmbeddedKafka, topic: str, tmp_path: Path
) -> None:
    cluster = Cluster(broker, topic)
    config_topic = config_topic_of(topic)
    await asyncio.to_thread(cluster.make, config_topic)
    with node_processes(cluster.kafka, topic, tmp_path) as make_node:
        node = make_node(**SETTINGS)
        await remembered_and_killed(cluster, node)
        for name in (topic, config_topic):
            await asyncio.to_thread(cluster.delete, name)
        assert ALLOWED in await refusal(node)
