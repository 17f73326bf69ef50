"""Apache Kafka's own command line clients against our server: they understand it, or fail with one clear error."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.broker import find_java, kafka_classpath
from tests.real.quick_java import QUICK_KAFKA
from tests.waiting import PATIENCE_S
from tests.world.serving import serve

pytestmark = pytest.mark.interop


async def run(tool: str, *arguments: str, until: str | None = None) -> str:
    """Return what one of Kafka's tools prints to its end, or to a line that contains a text."""
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
    assert process.stdout is not None
    lines: list[str] = []
    try:
        async with asyncio.timeout(PATIENCE_S):
            async for line in process.stdout:
                lines.append(line.decode())
                if until is not None and until in lines[-1]:
                    break
            else:
                await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return "".join(lines)


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
    """It reports the error when its first poll ends, and sends about two requests a second until then.

    The tool is not waited for: where its close fails as well, its exit waits for its own shutdown hook for ever.
    """
    async with serve() as served:
        where = ("--bootstrap-server", served.address, "--topic", "orders", "--group", "g")
        error = "InvalidRequestException"
        assert error in await run("consumer.ConsoleShareConsumer", *where, "--timeout-ms", "10000", until=error)
        assert served.server.connections.requests < 60
        assert served.reports == []
