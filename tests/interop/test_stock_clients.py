"""Apache Kafka's own command line clients against our server: they understand it, or fail with one clear error."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.broker import find_java, kafka_classpath
from tests.pure.daemon.server.serving import serve
from tests.real.quick_java import QUICK_KAFKA
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.interop


async def run(tool: str, *arguments: str) -> str:
    """Return what one of Kafka's tools says."""
    path = await asyncio.to_thread(kafka_classpath)
    process = await asyncio.create_subprocess_exec(
        find_java(),
        *QUICK_KAFKA,
        "-cp",
        path,
        f"org.apache.kafka.tools.{tool}",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(PATIENCE_S):
            said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return said.decode()


async def test_the_versions_are_understood() -> None:
    async with serve() as served:
        said = await run("BrokerApiVersionsCommand", "--bootstrap-server", served.address)
        assert f"{served.address} (id: 1 rack: null isFenced: false)" in said
        for line in (
            "Metadata(3): 0 to 13 [usable: 13]",
            "FindCoordinator(10): 0 to 6 [usable: 6]",
            "ApiVersions(18): 0 to 4 [usable: 4]",
            "InitializeShareGroupState(83): 0 [usable: 0]",
            "ReadShareGroupState(84): 0 [usable: 0]",
            "WriteShareGroupState(85): 0 to 1 [usable: 1]",
            "DeleteShareGroupState(86): 0 [usable: 0]",
            "ReadShareGroupStateSummary(87): 0 to 1 [usable: 1]",
        ):
            assert line in said
        assert served.reports == []


async def test_the_state_topic_is_listed() -> None:
    async with serve() as served:
        assert "__holdfast_share_state" in await run("TopicCommand", "--bootstrap-server", served.address, "--list")
        assert served.reports == []


async def test_nothing_is_created() -> None:
    async with serve() as served:
        create = ("--create", "--topic", "orders", "--partitions", "1", "--replication-factor", "1")
        said = await run("TopicCommand", "--bootstrap-server", served.address, *create)
        assert "The node does not support CREATE_TOPICS" in said
        assert served.server.connections.requests < 30


async def test_a_consumer_that_came_by_mistake_fails_and_does_not_spin() -> None:
    async with serve() as served:
        where = ("--bootstrap-server", served.address, "--topic", "orders", "--group", "g")
        said = await run("consumer.ConsoleConsumer", *where, "--timeout-ms", "60000")
        assert "InvalidRequestException" in said
        assert served.server.connections.requests < 10
        assert served.reports == []


async def test_a_share_consumer_that_came_by_mistake_fails_and_does_not_spin() -> None:
    """It tells so when its first poll ends, and asks about twice in a second until then."""
    async with serve() as served:
        where = ("--bootstrap-server", served.address, "--topic", "orders", "--group", "g")
        said = await run("consumer.ConsoleShareConsumer", *where, "--timeout-ms", "5000")
        assert "InvalidRequestException" in said
        assert served.server.connections.requests < 40
        assert served.reports == []
