"""Fixtures of the ring that runs Java."""

import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, Protocol

import pytest
import pytest_asyncio
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from holdfast.broker import FAST_START, EmbeddedKafka
from holdfast.kafka.topic_ids import format_topic_id
from tests.children import children_without_hypothesis
from tests.interop.driver import PersisterDriver
from tests.interop.newest_kafka import newest_kafka
from tests.real.nodes import node_processes, topic_id_of
from tests.real.shared_kafka import PATIENT_BROKER, NewTopicFactory, kafka, new_topic, topic
from tests.waiting import PATIENCE_S

__all__ = ["children_without_hypothesis", "kafka", "new_topic", "topic"]

SHARE_TOPIC_PARTITIONS = 40
KAFKAS_STATE_TOPIC = "__share_group_state"


class Coordinator(NamedTuple):
    """A share coordinator, and where it keeps its state."""

    address: str  #: host:port
    state_topic: str
    kafka: str  #: the cluster that holds its state topic and the topics of its share partitions


class PersisterOf(Protocol):
    """Gives the persister of Apache Kafka that asks a coordinator."""

    def __call__(self, coordinator: Coordinator, newest: Path | None = None) -> PersisterDriver:
        """Return that of the newest Kafka where its directory is given."""


@pytest.fixture(scope="session")
def apache_kafka(kafka: str) -> Coordinator:
    """Give the share coordinator of the Apache Kafka that the embedded broker starts by default."""
    return Coordinator(kafka, KAFKAS_STATE_TOPIC, kafka)


@pytest.fixture(scope="session")
def newest_apache_kafka() -> Iterator[Coordinator]:
    """Give the share coordinator of the newest Apache Kafka, on a cluster of its own."""
    with EmbeddedKafka(unpacked_kafka=newest_kafka(), jvm_options=FAST_START, properties=PATIENT_BROKER) as broker:
        yield Coordinator(broker.bootstrap_servers, KAFKAS_STATE_TOPIC, broker.bootstrap_servers)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def holdfast(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Coordinator]:
    """Give ours, which writes in Kafka's codec; it is shared, so never stop it."""
    state_topic = f"interop-{uuid.uuid4()}"
    with node_processes(kafka, state_topic, tmp_path_factory.mktemp("node")) as make_node:
        node = make_node(codec="kafka")
        await node.start()
        yield Coordinator(node.address, state_topic, kafka)


@pytest.fixture(scope="session", params=["apache_kafka", "newest_apache_kafka", "holdfast"])
def coordinator(request: pytest.FixtureRequest) -> Coordinator:
    """Give each share coordinator that must answer alike."""
    found: Coordinator = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="session")
def persister_of() -> Iterator[PersisterOf]:
    """Give a function that gives Apache Kafka's persister for a coordinator: one for all tests, as a JVM starts slowly."""
    running: dict[tuple[Coordinator, Path | None], PersisterDriver] = {}
    with ExitStack() as stack:

        def start_once(coordinator: Coordinator, newest: Path | None = None) -> PersisterDriver:
            wanted = coordinator, newest
            if wanted not in running:
                running[wanted] = stack.enter_context(PersisterDriver(coordinator.address, newest=newest))
            return running[wanted]

        yield start_once


@pytest.fixture(scope="session", params=["default", "newest"])
def persister(request: pytest.FixtureRequest, coordinator: Coordinator, persister_of: PersisterOf) -> PersisterDriver:
    """Give the persister that asks this coordinator: that of either release."""
    return persister_of(coordinator, newest_kafka() if request.param == "newest" else None)


@pytest.fixture
def group_id() -> str:
    """Give the id of a share group that no other test has."""
    return f"group-{uuid.uuid4()}"


@pytest.fixture
def share_topic_id(kafka: str, new_topic: NewTopicFactory) -> str:
    """Create a topic of `SHARE_TOPIC_PARTITIONS` and give its id in Kafka's text form."""
    return format_topic_id(topic_id_of(kafka, new_topic(SHARE_TOPIC_PARTITIONS)))


@pytest.fixture
def coordinated_topic_id(coordinator: Coordinator) -> str:
    """Create such a topic on the cluster of the coordinator."""
    return new_share_topic(coordinator)


def new_share_topic(coordinator: Coordinator) -> str:
    """Create a topic of `SHARE_TOPIC_PARTITIONS` on the cluster of a coordinator and return its id in Kafka's text form."""
    name = f"shares-{uuid.uuid4()}"
    admin = AdminClient({"bootstrap.servers": coordinator.kafka, "log_level": 0})
    admin.create_topics([NewTopic(name, SHARE_TOPIC_PARTITIONS, 1)])[name].result(PATIENCE_S)
    return format_topic_id(topic_id_of(coordinator.kafka, name))
