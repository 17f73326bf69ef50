"""What docker-compose.yml says, without docker: its broker and its nodes as processes of the same environment, arguments and files.

Each container has its own loopback and its own ports; here every port of every container is a free one of this machine.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import yaml  # type: ignore[import-untyped] # it ships no types
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from holdfast.broker.kafka_broker import BrokerNode
from holdfast.broker.properties import choose_ports
from holdfast.client import connect
from holdfast.jars.cache import kafka_home
from holdfast.jars.java import find_java
from holdfast.records.share.batches import StateBatch
from tests.real.nodes import PATIENT_CLIENT, topic_id_of
from tests.waiting import PATIENCE_S, in_patience, poll_pause_s, wait_until

pytestmark = pytest.mark.real

ROOT: Final = Path(__file__).parents[3]
#: What the image of the node listens on beside its Kafka port, for its own health check.
HTTP_PORT: Final = 9592
#: What the scripts of Kafka's image run.
MAIN_CLASSES: Final = {"/opt/kafka/bin/kafka-topics.sh": "org.apache.kafka.tools.TopicCommand"}


class Containers:
    """The services of the file that run without a profile, and where their ports are on this machine."""

    def __init__(self) -> None:
        loaded = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
        self.services: dict[str, dict[str, Any]] = {
            name: service for name, service in loaded.items() if "profiles" not in service
        }
        stage = (ROOT / "Dockerfile").read_text().partition(" AS node\n")[2]
        self.image_env = dict(re.findall(r"\b(HOLDFAST_\w+)=(\S+)", stage))
        self.image_health: list[str] = _listed(stage, "HEALTHCHECK .*CMD")
        self.image_command = [_listed(stage, "ENTRYPOINT"), _listed(stage, "CMD")]
        #: By port of the host: service and port of the container.
        self._published: dict[int, tuple[str, int]] = {}
        for name, service in self.services.items():
            for published in service["ports"]:
                address, port, inside = published.split(":")
                assert address == "127.0.0.1"
                self._published[int(port)] = name, int(inside)
        self._free = [port for pair in choose_ports(10) for port in (pair.broker, pair.controller)]
        self._ports: dict[tuple[str, int], int] = {}

    def port(self, service: str, inside: int) -> int:
        """Return the port of this machine that stands for one of a container."""
        if (service, inside) not in self._ports:
            self._ports[service, inside] = self._free.pop()
        return self._ports[service, inside]

    def here(self, text: str, service: str, *, is_inside: bool = False) -> str:
        """Return a value with the addresses of this machine; `localhost` is that of the host, or of the container itself."""

        def replace(found: re.Match[str]) -> str:
            host, port = found[1], int(found[2])
            if host == "localhost" and not is_inside:
                return f"localhost:{self.port(*self._published[port])}"
            return f"127.0.0.1:{self.port(host if host in self.services else service, port)}"

        return re.sub(r"([a-z0-9.]*):(\d{4,5})\b", replace, text)

    def environment(self, service: str) -> dict[str, str]:
        """Return what compose gives to a container."""
        given = self.services[service]["environment"]
        return {name: self.here(str(value), service) for name, value in given.items()}


def _listed(stage: str, instruction: str) -> list[str]:
    (found,) = re.findall(rf"^{instruction} (\[.*\])$", stage, re.MULTILINE)
    listed: list[str] = json.loads(found)
    return listed


def kafka_properties(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that Kafka's image makes of its variables.

    Source: Apache Kafka `KafkaDockerWrapper`.
    """

    def setting(variable: str) -> str:
        name = variable.removeprefix("KAFKA_").lower().replace("___", "-")
        return name.replace("__", "\0").replace("_", ".").replace("\0", "_")

    return {setting(name): value for name, value in environment.items() if name.startswith("KAFKA_")}


@contextmanager
def running_broker(containers: Containers, directory: Path) -> Iterator[None]:
    environment = containers.environment("kafka")
    (volume,) = containers.services["kafka"]["volumes"]
    assert volume.partition(":")[2] == environment["KAFKA_LOG_DIRS"], "the data outlives the container"
    broker = BrokerNode(int(environment["KAFKA_NODE_ID"]), directory)
    broker.format(environment["CLUSTER_ID"])
    properties = kafka_properties(environment | {"KAFKA_LOG_DIRS": str(broker.data_dir)})
    broker.launch(properties, ("-Xmx512m",), outlives_us=False)
    try:
        yield
    finally:
        broker.kill()


class ContainerNode:
    """A node of the file, in an empty directory that nothing may be written to."""

    def __init__(self, containers: Containers, name: str, directory: Path) -> None:
        self._containers = containers
        self.name = name
        self.directory = directory / name
        self.directory.mkdir()
        service = containers.services[name]
        assert service["read_only"]
        entrypoint, command = containers.image_command
        assert entrypoint == ["holdfast"]
        given = {each: containers.here(value, name) for each, value in containers.image_env.items()}
        given |= containers.environment(name) | {
            "HOLDFAST_HTTP_LISTEN": f"127.0.0.1:{containers.port(name, HTTP_PORT)}"
        }
        self._log = (directory / f"{name}.log").open("wb")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "holdfast", *service.get("command", command)],
            cwd=self.directory,
            env={key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")} | given,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
        )
        self.address: str = given["HOLDFAST_ADVERTISED_LISTENER"]

    async def is_healthy(self) -> bool:
        """Tell what the health check of the image says."""
        assert self.process.poll() is None, f"{self.name} ended:\n{self._last_words()}"
        python, *arguments = self._containers.image_health
        assert python == "python"
        inside = [self._containers.here(each, self.name, is_inside=True) for each in arguments]
        return await succeeds([sys.executable, *inside])

    async def is_member_of(self, count: int) -> bool:
        """Tell whether it knows a group of so many, each of which has some of the log partitions."""
        async with connect(self.address, PATIENT_CLIENT) as client:
            members = await client.admin("members")
        return len(members) == count and all(row["log_partitions"] for row in members)

    def _last_words(self) -> str:
        return Path(self._log.name).read_text()[-2_000:]

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self._log.close()


async def succeeds(command: Sequence[str]) -> bool:
    quiet = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(*command, stdin=quiet, stdout=quiet, stderr=quiet)
    return await in_patience(process.wait()) == 0


async def until(holds: Callable[[], Awaitable[bool]], what: str) -> None:
    """Wait for a condition that takes a while to look at."""
    began_s = time.monotonic()
    while not await holds():
        assert time.monotonic() < began_s + PATIENCE_S, f"{what} did not come about"
        await asyncio.sleep(poll_pause_s(began_s))


async def test_the_compose_file_is_a_broker_and_three_nodes_that_divide_its_log(tmp_path: Path) -> None:
    containers = Containers()
    names = [name for name in containers.services if name.startswith("node")]
    with ExitStack() as stack:
        stack.enter_context(running_broker(containers, tmp_path / "kafka"))
        script, *arguments = containers.services["kafka"]["healthcheck"]["test"][1:]
        inside = [containers.here(each, "kafka", is_inside=True) for each in arguments]
        check = [find_java(), "-cp", f"{kafka_home()}/*", MAIN_CLASSES[script], *inside]
        await until(partial(succeeds, check), "a broker that is healthy")

        nodes = []
        for name in names:
            assert containers.services[name]["depends_on"] == {"kafka": {"condition": "service_healthy"}}
            nodes.append(ContainerNode(containers, name, tmp_path))
            stack.callback(nodes[-1].end)
        for node in nodes:
            await until(node.is_healthy, f"a {node.name} that is healthy")
            await until(partial(node.is_member_of, len(nodes)), "a group of all nodes, each with log partitions")

        # From this machine, by the published ports.
        host = containers.here("localhost:9092", "")
        admin = AdminClient({"bootstrap.servers": host})
        admin.create_topics([NewTopic("orders", 8, 1)])["orders"].result()
        topic_id = topic_id_of(host, "orders")
        for node in nodes:
            async with connect(node.address, PATIENT_CLIENT) as client:
                members = await client.admin("members")
                assert sorted(index for row in members for index in row["log_partitions"]) == list(range(50))
                assert {row["address"] for row in members} == {each.address for each in nodes}
                for partition in range(8):
                    group = f"of {node.name}"
                    await client.initialize(group, topic_id, partition, 1, 0)
                    await client.write(group, topic_id, partition, 1, 0, 0, [StateBatch(0, 9, 2, 1)])
                    assert (await client.read(group, topic_id, partition, 0)).state_batches == (StateBatch(0, 9, 2, 1),)

        for node in nodes:
            node.process.send_signal(signal.SIGTERM)
        await wait_until(lambda: all(node.process.poll() is not None for node in nodes), "all nodes have stopped")
        assert [node.process.returncode for node in nodes] == [0] * len(nodes)
        assert [path for node in nodes for path in node.directory.iterdir()] == [], "its file system is read-only"
