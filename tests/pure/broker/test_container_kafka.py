"""What can be told of the Kafka container without an engine: image, settings, ports, and why a test is skipped."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, Self

import pytest
from testcontainers.core.container import DockerContainer

from holdfast.broker import KAFKA_VERSION
from tests.real import container_kafka
from tests.real.container_kafka import (
    IMAGE,
    ContainerKafka,
    container_environment,
    engine_problem,
    is_wanted,
    needs_processes,
)

ROOT = Path(__file__).parents[3]


class FakeContainer:
    """Notes what becomes of it."""

    def __init__(self, image: str) -> None:
        self.image = image
        self.environment: dict[str, str] = {}
        self.ports: dict[str, Any] = {}
        self.done: list[str] = []

    def with_bind_ports(self, container: str, host: object) -> Self:
        self.ports[container] = host
        return self

    def with_env(self, name: str, value: str) -> Self:
        self.environment[name] = value
        return self

    def start(self) -> None:
        self.done.append("start")

    def stop(self) -> None:
        self.done.append("stop")


def test_the_container_is_of_the_version_that_the_embedded_broker_and_the_compose_file_have() -> None:
    assert f"apache/kafka:{KAFKA_VERSION}" == IMAGE
    assert f"image: {IMAGE}\n" in (ROOT / "docker-compose.yml").read_text()


def test_it_advertises_the_port_of_this_machine_and_listens_on_its_own() -> None:
    found = container_environment(21_000, {"message.max.bytes": "5", "auto.create.topics.enable": "true"})
    assert found["KAFKA_ADVERTISED_LISTENERS"] == "PLAINTEXT://127.0.0.1:21000"
    assert found["KAFKA_LISTENERS"] == "PLAINTEXT://:9092,CONTROLLER://:9093"
    assert found["KAFKA_CONTROLLER_QUORUM_VOTERS"] == "1@127.0.0.1:9093"
    assert found["KAFKA_PROCESS_ROLES"] == "broker,controller"
    assert found["KAFKA_SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR"] == "1"
    assert found["KAFKA_MESSAGE_MAX_BYTES"] == "5"
    assert found["KAFKA_AUTO_CREATE_TOPICS_ENABLE"] == "true"
    assert all("." not in name for name in found)


def test_it_is_started_waited_for_and_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[FakeContainer] = []

    def make(image: str) -> FakeContainer:
        made.append(FakeContainer(image))
        return made[-1]

    answers = iter([False, False, True])
    monkeypatch.setattr(ContainerKafka, "answers", lambda _: next(answers))
    with ContainerKafka(properties={"num.partitions": "3"}, make_container=make) as kafka:
        (container,) = made
        assert container.done == ["start"]
        assert container.image == IMAGE
        assert container.environment["KAFKA_NUM_PARTITIONS"] == "3"
        host, port = kafka.bootstrap_servers.split(":")
        assert container.ports == {"9092/tcp": (host, int(port))}
        assert container.environment["KAFKA_ADVERTISED_LISTENERS"] == f"PLAINTEXT://{kafka.bootstrap_servers}"
    assert container.done == ["start", "stop"]
    assert list(answers) == []


def test_a_container_that_never_answers_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    container = FakeContainer(IMAGE)

    def interrupted(_: object) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(ContainerKafka, "answers", interrupted)
    with pytest.raises(KeyboardInterrupt), ContainerKafka(make_container=lambda _: container):
        pytest.fail("it started")
    assert container.done == ["start", "stop"]


def test_a_container_of_testcontainers_is_what_the_stand_in_stands_for() -> None:
    """Nothing can be made of it without an engine."""
    for name in ("with_bind_ports", "with_env", "start", "stop"):
        theirs = inspect.signature(getattr(DockerContainer, name))
        ours = tuple(inspect.signature(getattr(FakeContainer, name)).parameters)
        assert theirs.bind(*ours).args == ours, f"{name} of a container takes other arguments"


def test_where_no_engine_is_the_reason_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///no/such/socket")
    problem = engine_problem()
    assert problem is not None
    assert problem.startswith("HOLDFAST_BROKER=docker, and no container engine answers: ")


@pytest.mark.parametrize(("chosen", "expected"), [(None, False), ("embedded", False), ("docker", True)])
def test_the_environment_chooses_the_broker(
    monkeypatch: pytest.MonkeyPatch, chosen: str | None, expected: bool
) -> None:
    monkeypatch.delenv("HOLDFAST_BROKER", raising=False)
    if chosen is not None:
        monkeypatch.setenv("HOLDFAST_BROKER", chosen)
    assert is_wanted() is expected


def test_a_kind_of_broker_that_does_not_exist_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_BROKER", "podman")
    with pytest.raises(pytest.UsageError, match="HOLDFAST_BROKER is podman; it is embedded"):
        is_wanted()


def test_a_test_of_a_brokers_process_says_why_it_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container_kafka, "is_wanted", lambda: False)
    needs_processes("The test freezes its broker")
    monkeypatch.setattr(container_kafka, "is_wanted", lambda: True)
    with pytest.raises(pytest.skip.Exception, match="The test freezes its broker, which needs an embedded broker"):
        needs_processes("The test freezes its broker")
