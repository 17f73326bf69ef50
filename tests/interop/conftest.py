"""Fixtures of the ring that runs Java."""

import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from typing import NamedTuple

import pytest
import pytest_asyncio

from holdfast.records.keys import format_topic_id
from tests.children import children_without_hypothesis
from tests.interop.driver import PersisterDriver
from tests.real.nodes import node_processes, topic_id_of
from tests.real.shared_kafka import NewTopicFactory, kafka, new_topic, topic

__all__ = ["children_without_hypothesis", "kafka", "new_topic", "topic"]

SHARE_TOPIC_PARTITIONS = 40


class Coordinator(NamedTuple):
    """A share coordinator, and where it keeps its state."""

    address: str  #: host:port
    state_topic: str


@pytest.fixture(scope="session")
def apache_kafka(kafka: str) -> Coordinator:
    """Give Apache Kafka's own share coordinator."""
    return Coordinator(kafka, "__share_group_state")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def holdfast(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Coordinator]:
    """Give ours, which writes in Kafka's codec; it is shared, so never stop it."""
    state_topic = f"interop-{uuid.uuid4()}"
    with node_processes(kafka, state_topic, tmp_path_factory.mktemp("node")) as make_node:
        node = make_node(codec="kafka")
        await node.start()
        yield Coordinator(node.address, state_topic)


@pytest.fixture(scope="session", params=["apache_kafka", "holdfast"])
def coordinator(request: pytest.FixtureRequest) -> Coordinator:
    """Give each share coordinator that must answer alike."""
    found: Coordinator = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="session")
def persister_of() -> Iterator[Callable[[Coordinator], PersisterDriver]]:
    """Give a function that gives Apache Kafka's persister for a coordinator: one for all tests, as a JVM starts slowly."""
    running: dict[Coordinator, PersisterDriver] = {}
    with ExitStack() as stack:

        def start_once(coordinator: Coordinator) -> PersisterDriver:
            if coordinator not in running:
                running[coordinator] = stack.enter_context(PersisterDriver(coordinator.address))
            return running[coordinator]

        yield start_once


@pytest.fixture
def persister(coordinator: Coordinator, persister_of: Callable[[Coordinator], PersisterDriver]) -> PersisterDriver:
    """Give the persister that asks this coordinator."""
    return persister_of(coordinator)


@pytest.fixture
def group_id() -> str:
    """Give the id of a share group that no other test has."""
    return f"group-{uuid.uuid4()}"


@pytest.fixture
def share_topic_id(kafka: str, new_topic: NewTopicFactory) -> str:
    """Create a topic of `SHARE_TOPIC_PARTITIONS` and give its id in Kafka's text form."""
    return format_topic_id(topic_id_of(kafka, new_topic(SHARE_TOPIC_PARTITIONS)))
