"""Stock share consumers log in with TLS at a node that logs in with TLS at its Kafka, and each right that lacks is one clear error."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import pytest_asyncio
from confluent_kafka import Producer
from confluent_kafka.cimpl import NewTopic

from holdfast.client import connect
from holdfast.daemon.access.acl import Acl, Operation, Permission, ResourceType
from holdfast.daemon.access.acl_file import line_of, write_lines
from tests.interop.gateway.clients import (
    JAVA,
    NEWEST_JAVA,
    PYTHON,
    Client,
    ConsumerFailed,
    Given,
    StockConsumer,
    stock_consumer,
)
from tests.kafka_acls import NEEDS, Resource, Role, acls_of
from tests.real.nodes import ONE_TRY, NodeProcess, node_processes, topic_id_of
from tests.real.running_node import make_settings
from tests.real.secured.secured_kafka import PASSWORD, UNCLOSED, SecuredKafka, secured_kafka
from tests.waiting import PATIENCE_S
from tests.world.identity.secured import SecuredFiles

pytestmark = [pytest.mark.interop, *UNCLOSED]

GROUP: Final = "workers"
ORDERS: Final = 60
PARTITIONS: Final = 2
#: The rights of each user of the node, beyond logging in.
RIGHTS: Final[Mapping[str, tuple[tuple[Operation, ResourceType], ...]]] = {
    "worker": ((Operation.READ, ResourceType.GROUP), (Operation.READ, ResourceType.TOPIC)),
    "without-group": ((Operation.READ, ResourceType.TOPIC),),
    "without-topic": ((Operation.READ, ResourceType.GROUP),),
    "without-records": ((Operation.READ, ResourceType.GROUP), (Operation.DESCRIBE, ResourceType.TOPIC)),
}
#: How long a consumer is looked at that gets nothing, and how often it may be refused in a second of that.
LOOK_S: Final = 2.0
DENIALS_PER_S_MAX: Final = 8


class Secured(NamedTuple):
    """A node with TLS and logins over a Kafka with TLS, logins and ACLs."""

    node: NodeProcess
    kafka: SecuredKafka
    files: SecuredFiles
    topic: str

    def properties(self, client: Client, user: str, password: str) -> dict[str, str]:
        """Return how a client logs in."""
        ca = str(self.files.authority.certificate)
        common = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512"}
        if client.language == "python":
            return common | {"ssl.ca.location": ca, "sasl.username": user, "sasl.password": password}
        login = "org.apache.kafka.common.security.scram.ScramLoginModule required"
        return common | {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": ca,
            "sasl.jaas.config": f'{login} username="{user}" password="{password}";',
        }

    async def denials(self) -> float:
        """Return how often the node has denied something."""
        return float((await self.node.ask("metrics"))["holdfast_access_denials_total"])


@pytest.fixture(scope="module")
def kafka_behind() -> Iterator[SecuredKafka]:
    with secured_kafka() as kafka:
        kafka.set_password(PASSWORD)
        yield kafka


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def secured(kafka_behind: SecuredKafka, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Secured]:
    """Give a node whose principal has, at the Kafka, the rights of a gateway's table, and nothing else."""
    directory: Path = tmp_path_factory.mktemp("secured")
    topic, state_topic = f"orders-{uuid.uuid4()}", f"states-{uuid.uuid4()}"
    files, acls = SecuredFiles(directory), directory / "acls.jsonl"
    files.let_in(admin="open sesame", **{user: f"{user}'s" for user in RIGHTS})
    names = {ResourceType.GROUP: GROUP, ResourceType.TOPIC: topic}
    rules = [
        Acl(f"User:{user}", Permission.ALLOW, operation, kind, names[kind])
        for user, rights in RIGHTS.items()
        for operation, kind in rights
    ]
    write_lines(acls, [line_of(rule) for rule in rules])
    way_in = kafka_behind.by_password("SCRAM-SHA-512")
    flags: dict[str, Any] = {
        **{f"kafka.{name}": value for name, value in way_in.items()},
        "membership": "static",
        "gateway.topics": topic,
        "gateway.groups.default.share.auto.offset.reset": "earliest",
    }
    settings = make_settings(way_in["bootstrap.servers"], state_topic, **flags)
    kafka_behind.allow(
        acl
        for need in NEEDS
        if need.role in (Role.NODE, Role.GATEWAY) and need.resource is not Resource.USER_TOPICS
        for acl in acls_of(need, settings)
    )
    made = kafka_behind.admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic]
    await asyncio.to_thread(made.result, PATIENCE_S)
    with node_processes(way_in["bootstrap.servers"], state_topic, directory) as make_node:
        node = make_node(**flags, **files.settings, **{"acls_file": acls})
        await node.start()
        yield Secured(node, kafka_behind, files, topic)


def produce(secured: Secured) -> None:
    producer = Producer({"bootstrap.servers": secured.kafka.open, "acks": "all", "batch.num.messages": 5})
    for number in range(ORDERS):
        producer.produce(secured.topic, f"order {number}", partition=number % PARTITIONS)
    assert producer.flush(PATIENCE_S) == 0


async def finished(secured: Secured) -> int:
    """Return how many records the group has done with, as the states say that the log holds."""
    topic_id, done = topic_id_of(secured.kafka.open, secured.topic), 0
    async with connect(secured.node.address, ONE_TRY, secured.node.security) as ours:
        for partition in range(PARTITIONS):
            summary = await ours.read_summary(GROUP, topic_id, partition)
            done += summary.start_offset + summary.delivery_complete_count
    return done


async def test_consumers_with_read_on_group_and_topic_work_as_without_logins(secured: Secured) -> None:
    denials = await secured.denials()
    for round_number, client in enumerate((PYTHON, JAVA, NEWEST_JAVA), 1):
        produce(secured)
        properties = secured.properties(client, "worker", "worker's")
        taken: list[Given] = []
        with stock_consumer(client, secured.node.address, GROUP, secured.topic, **properties) as consumer:
            while len(taken) < ORDERS:
                given = consumer.poll()
                consumer.acknowledge("ACCEPT", given)
                assert consumer.commit() == {}
                taken += given
            consumer.close()
        assert sorted(record.value for record in taken) == sorted(f"order {number}" for number in range(ORDERS))
        assert await finished(secured) == round_number * ORDERS
    assert await secured.denials() == denials


async def first_error(consumer: StockConsumer) -> str:
    """Poll until the application is told of an error, and return it."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            assert await asyncio.to_thread(consumer.poll) == []
        except ConsumerFailed as failure:
            return str(failure).splitlines()[0]
    raise AssertionError("the consumer says nothing")


@pytest.mark.parametrize("client", [PYTHON, JAVA], ids=str)
@pytest.mark.parametrize(
    ("user", "error", "java"),
    [
        ("without-group", "GROUP_AUTHORIZATION_FAILED", "GroupAuthorizationException"),
        ("without-topic", "TOPIC_AUTHORIZATION_FAILED", "TopicAuthorizationException"),
        ("without-records", "TOPIC_AUTHORIZATION_FAILED", "TopicAuthorizationException"),
    ],
)
async def test_right_that_lacks_is_an_error_of_its_own(
    secured: Secured, client: Client, user: str, error: str, java: str
) -> None:
    properties = secured.properties(client, user, f"{user}'s")
    with stock_consumer(client, secured.node.address, GROUP, secured.topic, **properties) as consumer:
        said = await first_error(consumer)
        assert (java if client.language == "java" else error) in said
        began_s, before = time.monotonic(), await secured.denials()
        while time.monotonic() < began_s + LOOK_S:
            with suppress(ConsumerFailed):
                assert await asyncio.to_thread(consumer.poll) == []
            await asyncio.sleep(0.1)
        denials = await secured.denials() - before
        assert denials <= DENIALS_PER_S_MAX * (time.monotonic() - began_s), "it does not spin"


@pytest.mark.parametrize("client", [PYTHON, JAVA], ids=str)
async def test_wrong_password_is_said_by_the_client(secured: Secured, client: Client) -> None:
    properties = secured.properties(client, "worker", "a guess")
    with stock_consumer(client, secured.node.address, GROUP, secured.topic, **properties) as consumer:

        async def says_so() -> bool:
            with suppress(ConsumerFailed):
                assert await asyncio.to_thread(consumer.poll) == []
            return "invalid credentials with SASL mechanism SCRAM-SHA-512" in consumer.said()

        deadline = time.monotonic() + PATIENCE_S
        while not await says_so():
            assert time.monotonic() < deadline, consumer.said()
