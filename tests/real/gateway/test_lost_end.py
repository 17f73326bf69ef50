"""An unclean election: records that were given out are lost, and others have their offsets before the node looks again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from structlog.testing import capture_logs

from holdfast.broker import EmbeddedKafka
from holdfast.kafka.records.partition_reader import PartitionReader
from holdfast.kafka.records.reader import TopicReader
from tests.real.container_kafka import needs_processes
from tests.real.gateway.raw_member import raw_member
from tests.real.gateway.test_attacks import ALONE, GROUP, gateway
from tests.real.gateway.test_stock_consumers import produce
from tests.real.nodes import topic_id_of
from tests.real.quick_java import QUICK_KAFKA
from tests.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.real

#: A broker that was killed is missed soon.
SOON = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "200"}
REPLICATED = {
    "share.coordinator.state.topic.replication.factor": 3,
    "share.coordinator.state.topic.min.isr": 1,
}


@pytest.fixture(scope="module")
def brokers() -> Iterator[EmbeddedKafka]:
    needs_processes("The test kills a broker")
    with EmbeddedKafka(brokers=3, jvm_options=QUICK_KAFKA, heap_mib=256, properties=SOON) as cluster:
        yield cluster


@pytest.mark.parametrize("has_rested", [False, True], ids=["read on", "begun again"])
async def test_log_that_lost_its_end_and_grew_again_is_an_alarm(
    brokers: EmbeddedKafka, topic: str, has_rested: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the reader had given up what it had, as for want of room, and begins again after the election."""
    readers: list[PartitionReader] = []
    open_reader = TopicReader.open

    def watch(*call: Any) -> PartitionReader:
        readers.append(open_reader(*call))
        return readers[-1]

    monkeypatch.setattr(TopicReader, "open", watch)
    servers = brokers.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    unclean = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    orders = f"{topic}-orders"
    made = admin.create_topics([NewTopic(orders, 1, replica_assignment=[[2, 3]], config=unclean)])[orders]
    await asyncio.to_thread(made.result, PATIENCE_S)
    await asyncio.to_thread(produce, servers, orders, [b"on both"] * 50, **ALONE)
    # A broker that stalled was left out for a while, and may lack some of them.
    await wait_until(
        lambda: {2, 3} == {*admin.list_topics(orders, PATIENCE_S).topics[orders].partitions[0].isrs}, "both have them"
    )
    await asyncio.to_thread(brokers.stop, 3)
    await asyncio.to_thread(produce, servers, orders, [b"on one"] * 50, **ALONE)
    with capture_logs() as lines:
        async with (
            gateway(servers, topic, orders, **REPLICATED) as node,
            raw_member(node.address, GROUP, topic_id_of(servers, orders)) as member,
        ):
            given: list[tuple[int, int]] = []
            while not given or given[-1][1] < 99:
                found = await member.fetch()
                given += [(first, last) for each in found.values() for first, last, _ in each.acquired]
            await member.acknowledge({0: [each for each in given if each[1] < 80]})
            if has_rested:
                readers[-1].rest()
            await asyncio.to_thread(brokers.kill, 2)
            await asyncio.to_thread(brokers.restart, 3)
            await asyncio.to_thread(produce, servers, orders, [b"others"] * 100, **ALONE)
            async with asyncio.timeout(PATIENCE_S):
                while not (held := [line for line in lines if line["event"] == "share_partition_held"]):
                    await member.fetch()
            assert [(line["offset"], line["end_offset"]) for line in held] == [(100, 50)]
    await asyncio.to_thread(brokers.restart, 2)
