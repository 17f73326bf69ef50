"""Apache Kafka's own clients at a node that offers topics: they understand it, or fail with one clear error."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from holdfast.gateway.refusals import EXPLANATION
from tests.interop.test_stock_clients import run
from tests.real.running_node import RunningNode, make_settings, running
from tests.real.shared_kafka import NewTopicFactory

pytestmark = pytest.mark.interop


@pytest_asyncio.fixture
async def gateway(kafka: str, topic: str, new_topic: NewTopicFactory) -> AsyncIterator[tuple[RunningNode, str]]:
    """Give a node, and the topic that it offers."""
    offered = new_topic(3)
    async with running(make_settings(kafka, topic, **{"gateway.topics": offered})) as node:
        yield node, offered


async def test_an_admin_client_lists_what_is_offered(gateway: tuple[RunningNode, str], topic: str) -> None:
    node, offered = gateway
    said = await run("TopicCommand", "--bootstrap-server", node.address, "--list")
    assert set(said.split()) == {offered, topic}


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (("--from-beginning",), "UnsupportedVersionException: The node does not support JOIN_GROUP"),
        (("--command-property", "group.protocol=consumer"), f"InvalidRequestException: {EXPLANATION}"),
        (("--partition", "0", "--offset", "0"), "TopicAuthorizationException: Not authorized to access topics"),
    ],
    ids=["a group", "a group of the new protocol", "from an offset"],
)
async def test_any_other_consumer_fails_and_does_not_spin(
    gateway: tuple[RunningNode, str], options: tuple[str, ...], error: str
) -> None:
    node, offered = gateway
    before = node.requests
    where = ("--bootstrap-server", node.address, "--topic", offered)
    assert error in await run("consumer.ConsoleConsumer", *where, *options, "--timeout-ms", "60000")
    assert node.requests - before < 20
