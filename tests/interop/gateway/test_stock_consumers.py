"""Stock share consumers of several releases work off a topic of a Kafka without share groups, and of one that has them, through a node.

By default the releases that are there anyway are tried; GATEWAY_CLIENTS=all tries all, over both clusters.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator
from typing import Final, NamedTuple

import pytest
import pytest_asyncio
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from holdfast.broker import FAST_START, EmbeddedKafka
from holdfast.client import connect
from holdfast.jars.cache import KAFKA_VERSION, KAFKA_VERSION_WITHOUT_SHARE_GROUPS
from tests.interop.gateway.clients import (
    CLIENTS,
    JAVA,
    NEWEST_JAVA,
    PYTHON,
    Client,
    Given,
    StockConsumer,
    stock_consumer,
)
from tests.interop.test_stock_clients import run
from tests.real.nodes import NodeProcess, node_processes, topic_id_of
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.interop

_IS_WHOLE: Final = os.environ.get("GATEWAY_CLIENTS") == "all"
_TRIED: Final = CLIENTS if _IS_WHOLE else (PYTHON, JAVA, NEWEST_JAVA)
_BEHIND: Final = (KAFKA_VERSION_WITHOUT_SHARE_GROUPS, *([KAFKA_VERSION] if _IS_WHOLE else []))
_SETTINGS: Final = {"gateway.topics": "orders*", "gateway.groups.default.share.auto.offset.reset": "earliest"}
_PARTITIONS: Final = 2
_ORDERS: Final = 60


class Gateway(NamedTuple):
    """A node over a Kafka, which offers all topics that begin with `orders`."""

    node: NodeProcess
    kafka: str

    def new_topic(self) -> str:
        """Make a topic of orders, half of them in either partition."""
        name = f"orders-{uuid.uuid4()}"
        admin = AdminClient({"bootstrap.servers": self.kafka})
        admin.create_topics([NewTopic(name, _PARTITIONS, 1)])[name].result(PATIENCE_S)
        self.produce(name, _ORDERS)
        return name

    def produce(self, topic: str, count: int) -> None:
        """Write orders in batches of a few records."""
        producer = Producer({"bootstrap.servers": self.kafka, "acks": "all", "batch.num.messages": 5, "log_level": 0})
        for number in range(count):
            producer.produce(topic, f"order {number}", partition=number % _PARTITIONS)
        assert producer.flush(PATIENCE_S) == 0


@pytest_asyncio.fixture(scope="module", loop_scope="session", params=_BEHIND)
async def gateway(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    """Give a node over a Kafka of each release, shared by all tests."""
    with (
        EmbeddedKafka(version=request.param, jvm_options=FAST_START) as kafka,
        node_processes(kafka.bootstrap_servers, "states", tmp_path_factory.mktemp("node")) as make_node,
    ):
        node = make_node(**_SETTINGS)
        await node.start()
        yield Gateway(node, kafka.bootstrap_servers)


@pytest.fixture(params=_TRIED, ids=str)
def client(request: pytest.FixtureRequest) -> Client:
    """Give each release."""
    found: Client = request.param
    return found


async def finished(gateway: Gateway, group: str, topic: str) -> int:
    """Return how many records a group has done with, as the states say that the log holds."""
    topic_id, done = topic_id_of(gateway.kafka, topic), 0
    async with connect(gateway.node.address) as ours:
        for partition in range(_PARTITIONS):
            summary = await ours.read_summary(group, topic_id, partition)
            done += summary.start_offset + summary.delivery_complete_count
    return done


async def test_accept_release_and_reject(gateway: Gateway, client: Client) -> None:
    topic, group = gateway.new_topic(), f"group-{uuid.uuid4()}"
    counts: dict[tuple[int, int], list[int]] = {}
    done = 0
    with stock_consumer(client, gateway.node.address, group, topic) as consumer:
        while done < _ORDERS:
            given = consumer.poll()
            by_kind: dict[str, list[Given]] = {}
            for record in given:
                counts.setdefault(record[:2], []).append(record.delivery_count)
                kind = {1: "RELEASE", 2: "REJECT"}.get(record.offset % 10, "ACCEPT")
                if record.delivery_count > 1:
                    kind = "ACCEPT"
                by_kind.setdefault(kind, []).append(record)
            for kind, records in by_kind.items():
                consumer.acknowledge(kind, records)
                done += len(records) if kind != "RELEASE" else 0
            assert consumer.commit() == {}
        assert consumer.poll() == []
        consumer.close()
    assert len(counts) == _ORDERS
    assert all(seen == ([1, 2] if offset % 10 == 1 else [1]) for (_, offset), seen in counts.items())
    assert await finished(gateway, group, topic) == _ORDERS


async def test_renewed_record_is_given_again_by_the_client_and_counts_once(gateway: Gateway, client: Client) -> None:
    if not client.can_renew:
        return
    topic, group = gateway.new_topic(), f"group-{uuid.uuid4()}"
    settings = {"max_poll_records": "7", "share_acquire_mode": "record_limit"}
    with stock_consumer(client, gateway.node.address, group, topic, **settings) as consumer:
        given = consumer.poll_until(1)
        assert len(given) <= 7
        consumer.acknowledge("RENEW", given)
        assert consumer.commit() == {}
        again = consumer.poll_until(1)
        assert again == given
        consumer.acknowledge("ACCEPT", again)
        assert consumer.commit() == {}
        consumer.close()
    assert await finished(gateway, group, topic) == len(given)


@pytest.mark.parametrize("client", CLIENTS if _IS_WHOLE else (PYTHON,), ids=str)
async def test_implicit_acknowledgement(gateway: Gateway, client: Client) -> None:
    topic, group = gateway.new_topic(), f"group-{uuid.uuid4()}"
    implicit = {"share_acknowledgement_mode": "implicit"}
    with stock_consumer(client, gateway.node.address, group, topic, **implicit) as consumer:
        given: list[Given] = []
        while len(given) < _ORDERS:
            given += consumer.poll()
        assert consumer.commit() == {}
        consumer.close()
    assert len({record[:2] for record in given}) == len(given)
    assert await finished(gateway, group, topic) == _ORDERS


def work_off(workers: list[StockConsumer], count: int) -> list[Given]:
    """Let workers take turns until all records are accepted."""
    taken: list[Given] = []
    while len(taken) < count:
        for worker in workers:
            given = worker.poll(100)
            worker.acknowledge("ACCEPT", given)
            assert worker.commit() == {}
            taken += given
    return taken


async def test_consumers_of_two_languages_share_a_topic(gateway: Gateway) -> None:
    topic, group = gateway.new_topic(), f"group-{uuid.uuid4()}"
    address = gateway.node.address
    with stock_consumer(PYTHON, address, group, topic) as python, stock_consumer(JAVA, address, group, topic) as java:
        taken = work_off([python, java], _ORDERS)
        assert len({record[:2] for record in taken}) == len(taken) == _ORDERS
        python.close()
        java.close()
    assert await finished(gateway, group, topic) == _ORDERS


async def test_console_share_consumer(gateway: Gateway) -> None:
    topic, group = gateway.new_topic(), f"group-{uuid.uuid4()}"
    where = ("--bootstrap-server", gateway.node.address, "--topic", topic, "--group", group)
    said = await run("consumer.ConsoleShareConsumer", *where, "--max-messages", str(_ORDERS))
    assert sorted(line for line in said.splitlines() if line.startswith("order ")) == sorted(
        f"order {number}" for number in range(_ORDERS)
    )
