"""A broker that was wiped and came back at its address as another cluster: a running node serves nothing there, and says why."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from holdfast.broker import EmbeddedKafka
from holdfast.broker.properties import choose_ports
from holdfast.client import AdminRefused, ClientError, connect
from holdfast.kafka.librdkafka import create_topic
from holdfast.kafka.librdkafka_types import NewTopic
from tests.real.nodes import DEFAULT_TIMES, ONE_TRY, NodeProcess, node_processes, topic_id_of
from tests.real.quick_java import QUICK_KAFKA
from tests.real.shared_kafka import LONG_SESSION
from tests.waiting import PATIENCE_MS, PATIENCE_S, wait_until

pytestmark = pytest.mark.real

LOG_PARTITIONS = 4
SILENCE_MAX_MS = 1_000


def make_topic(kafka: EmbeddedKafka, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    assert create_topic(admin, NewTopic(name, LOG_PARTITIONS, 1), PATIENCE_MS) is None


async def initialize(node: NodeProcess, topic_id: bytes) -> None:
    """Initialize a share partition, as soon as the node knows its topic."""
    deadline_s = time.monotonic() + PATIENCE_S
    async with connect(node.address, ONE_TRY) as client:
        while True:
            try:
                await client.initialize("group", topic_id, 0, 1, 0)
                return
            except ClientError:
                assert time.monotonic() < deadline_s, node.last_words()
                await asyncio.sleep(0.1)


async def until_not_ready(node: NodeProcess, wanted: str) -> None:
    """Wait until a node says that this is why it is not ready."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not (why := str((await node.status()).get("why_not_ready"))).startswith(wanted):
        assert time.monotonic() < deadline_s, f"{why}\n{node.last_words()}"
        await asyncio.sleep(0.1)


async def test_a_node_serves_nothing_of_a_cluster_that_has_taken_the_place_of_its_own(
    tmp_path: Path,
) -> None:
    port = choose_ports(1)[0].broker
    with (
        EmbeddedKafka(jvm_options=QUICK_KAFKA, properties=LONG_SESSION, port=port) as former,
        node_processes(former.bootstrap_servers, "state", tmp_path) as make_node,
    ):
        node = make_node(**DEFAULT_TIMES, broker_silence_max_ms=SILENCE_MAX_MS)
        await node.start()
        make_topic(former, "orders")
        orders = topic_id_of(former.bootstrap_servers, "orders")
        await initialize(node, orders)
        former.kill()
        with EmbeddedKafka(jvm_options=QUICK_KAFKA, properties=LONG_SESSION, port=port) as other:
            wanted = f"the brokers are another cluster ({other.cluster_id}) than the one that has the log ({former.cluster_id})"
            await until_not_ready(node, wanted)
            async with connect(node.address, ONE_TRY) as client:
                with pytest.raises(ClientError, match="COORDINATOR_NOT_AVAILABLE"):
                    await client.read("group", orders, 0, 0)
            await wait_until(
                lambda: any(line.get("why") == wanted for line in node.events() if line["event"] == "leaders_lost"),
                "a line",
            )
            admin = AdminClient({"bootstrap.servers": other.bootstrap_servers, "log_level": 0})
            assert "state" not in admin.list_topics(timeout=PATIENCE_S).topics, "it makes none there"
            # Nor is a topic that somebody makes there under the same name taken for the one that has the log.
            make_topic(other, "state")
            ends_s = time.monotonic() + 4 * SILENCE_MAX_MS / 1_000
            while time.monotonic() < ends_s:
                assert not (await node.status())["is_ready"]
                await asyncio.sleep(0.1)
            await until_not_ready(node, wanted)  # its brokers may be silent for a moment as well
            # No admin makes it the log of this node by a decision whose preview says nothing of another cluster.
            for index in range(LOG_PARTITIONS):
                accepted = {"partition": index, "reason": "it should do"}
                with pytest.raises(AdminRefused, match=re.escape(wanted)):
                    await node.ask("partitions-accept", **accepted)
                with pytest.raises(AdminRefused, match=re.escape(wanted)):
                    await node.ask("decision-preview", decision="partitions-accept", **accepted)
