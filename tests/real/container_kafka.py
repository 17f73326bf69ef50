"""A Kafka in a container beside the embedded one, for `HOLDFAST_BROKER=docker`: the same settings, Kafka's own image."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from holdfast.broker import KAFKA_VERSION
from holdfast.broker.properties import HOST, NodePorts, choose_ports, node_properties
from tests.waiting import PATIENCE_S, block_until

#: Of the version that the embedded broker is.
IMAGE: Final = f"apache/kafka:{KAFKA_VERSION}"
#: Where clients reach it inside of the container.
INSIDE_PORT: Final = 9092
_CONTROLLER_PORT: Final = 9093
_ASK_TIMEOUT_S: Final = 1.0


def is_wanted() -> bool:
    """Tell whether tests are to run on a container.

    Raises:
        UsageError: `HOLDFAST_BROKER` names no kind of broker.
    """
    wanted = os.environ.get("HOLDFAST_BROKER", "embedded")
    if wanted not in ("embedded", "docker"):
        raise pytest.UsageError(f"HOLDFAST_BROKER is {wanted}; it is embedded (the default) or docker.")
    return wanted == "docker"


def engine_problem() -> str | None:
    """Return why no container can be run, None where one can."""
    # In a process of its own, because the library leaves its sockets to the garbage collector where nobody listens.
    asked = subprocess.run(
        [sys.executable, "-c", "import docker; docker.from_env().ping()"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    if asked.returncode == 0:
        return None
    why = next(line for line in reversed(asked.stderr.splitlines()) if line.startswith("docker."))
    return f"HOLDFAST_BROKER=docker, and no container engine answers: {why}"


def needs_processes(what: str) -> None:
    """Skip a test that does to a broker's process or files what is not done to a container."""
    if is_wanted():
        pytest.skip(f"{what}, which needs an embedded broker, and HOLDFAST_BROKER is docker")


def container_environment(port: int, properties: Mapping[str, str]) -> dict[str, str]:
    """Return the environment that makes Kafka's image a broker with our settings.

    Args:
        port: where clients reach it on this machine, which it must advertise.
        properties: further broker settings by Kafka's names; they win over those of the embedded broker.
    """
    settings = node_properties(
        1, [NodePorts(broker=port, controller=_CONTROLLER_PORT)], Path("/var/lib/kafka/data"), {}
    )
    settings |= {
        "listeners": f"PLAINTEXT://:{INSIDE_PORT},CONTROLLER://:{_CONTROLLER_PORT}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        **properties,
    }
    return {f"KAFKA_{name.upper().replace('.', '_')}": value for name, value in settings.items()}


class ContainerKafka:
    """One Kafka broker in a container, as a context manager; its data is gone with it."""

    def __init__(
        self, *, properties: Mapping[str, str] | None = None, make_container: Callable[[str], Any] | None = None
    ) -> None:
        """Describe it; nothing starts before `__enter__`.

        Args:
            properties: further broker settings by Kafka's names.
            make_container: makes a container of an image, as `DockerContainer` of testcontainers does.
        """
        # A container's port is mapped before the broker says where it is reached, so it is chosen here.
        self._port = choose_ports(1)[0].broker
        make = make_container or import_module("testcontainers.core.container").DockerContainer
        self._container = make(IMAGE).with_bind_ports(f"{INSIDE_PORT}/tcp", (HOST, self._port))
        for name, value in container_environment(self._port, properties or {}).items():
            self._container.with_env(name, value)

    @property
    def bootstrap_servers(self) -> str:
        """Where clients reach it."""
        return f"{HOST}:{self._port}"

    def answers(self) -> bool:
        """Tell whether it names itself to clients."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
        try:
            return bool(admin.list_topics(timeout=_ASK_TIMEOUT_S).brokers)
        except KafkaException:
            return False

    def __enter__(self) -> Self:
        self._container.start()
        try:
            block_until(self.answers, f"an answer of {IMAGE} at {self.bootstrap_servers}", PATIENCE_S)
        except BaseException:
            self._container.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._container.stop()
