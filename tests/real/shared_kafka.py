"""One Kafka for a whole test run, also when pytest-xdist spreads the run over several processes."""

import os
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from holdfast.broker import development_kafka
from holdfast.jars.locks import file_lock
from tests.real.container_kafka import ContainerKafka, engine_problem, is_wanted
from tests.real.quick_java import QUICK_KAFKA
from tests.waiting import PATIENCE_MS, PATIENCE_S

#: The longest that one test process may wait for the others: to start the broker, or to be done with it.
WAIT_FOR_OTHERS_S = 1800.0

#: Of brokers that no test kills. One that its machine stalls for longer than a session has left its cluster when it goes on, for a
#: moment in which there is nobody to lead a new topic. One that is killed for it does not end comes back after a session, in time.
LONG_SESSION: Final = {"broker.session.timeout.ms": "60000"}
#: What keeps a busy machine from deciding what a broker answers, and the minutes of a run what its own state topic holds.
PATIENT_BROKER: Final = {
    **LONG_SESSION,
    "offsets.commit.timeout.ms": str(PATIENCE_MS),
    "share.coordinator.write.timeout.ms": str(PATIENCE_MS),
    "share.coordinator.state.topic.prune.interval.ms": "86400000",
    "share.coordinator.cold.partition.snapshot.interval.ms": "86400000",
}

NewTopicFactory = Callable[..., str]


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Give the bootstrap servers of a Kafka that all tests share: never stop it, and use names of your own."""
    own_dir = tmp_path_factory.getbasetemp()
    is_worker = "PYTEST_XDIST_WORKER" in os.environ
    with shared_kafka(own_dir.parent if is_worker else own_dir) as bootstrap_servers:
        yield bootstrap_servers


@contextmanager
def shared_kafka(session_dir: Path) -> Iterator[str]:
    """Give the broker that another process of this session has started, or start it.

    Who started it owns it, and stops it when no other process uses it any more.
    """
    answer, starting, users = (session_dir / f"kafka.{name}" for name in ("bootstrap", "starting", "users"))
    with ExitStack() as using:
        with file_lock(starting, timeout_s=WAIT_FOR_OTHERS_S):
            if answer.exists():
                using.enter_context(file_lock(users, timeout_s=WAIT_FOR_OTHERS_S, shared=True))
            else:
                using.enter_context(_owned_kafka(answer, starting, users))
        yield answer.read_text()


@contextmanager
def _owned_kafka(told: Path, starting: Path, users: Path) -> Iterator[None]:
    with ExitStack() as until_stopped, _kafka_of_this_run() as bootstrap_servers:
        told.write_text(bootstrap_servers)
        try:
            yield
        finally:
            until_stopped.enter_context(file_lock(starting, timeout_s=WAIT_FOR_OTHERS_S))
            until_stopped.enter_context(file_lock(users, timeout_s=WAIT_FOR_OTHERS_S))
            told.unlink()


@contextmanager
def _kafka_of_this_run() -> Iterator[str]:
    """Give a Kafka in a container where `HOLDFAST_BROKER=docker`, else an embedded one."""
    if not is_wanted():
        with development_kafka(properties=PATIENT_BROKER, jvm_options=QUICK_KAFKA) as bootstrap_servers:
            yield bootstrap_servers
        return
    if (problem := engine_problem()) is not None:
        pytest.skip(problem)
    with ContainerKafka(properties=PATIENT_BROKER) as kafka:
        yield kafka.bootstrap_servers


@pytest.fixture
def topic() -> str:
    """Give a topic name that no other test has; the topic itself does not exist yet."""
    return f"test-{uuid.uuid4()}"


@pytest.fixture
def new_topic(kafka: str) -> Iterator[NewTopicFactory]:
    """Give a function that creates a topic of its own name and returns the name; all are deleted afterwards."""
    admin = AdminClient({"bootstrap.servers": kafka})
    made: list[str] = []

    def create(partitions: int = 1, **config: str) -> str:
        name = f"test-{uuid.uuid4()}"
        settings = {key.replace("_", "."): value for key, value in config.items()}
        created = admin.create_topics([NewTopic(name, partitions, 1, config=settings)])
        created[name].result(PATIENCE_S)
        made.append(name)
        # The controller has answered; the broker learns of the topic a little later.
        deadline = time.monotonic() + PATIENCE_S
        while admin.list_topics(name, timeout=PATIENCE_S).topics[name].error is not None:
            assert time.monotonic() < deadline, f"{name} was created but is not to be seen"
        return name

    yield create
    if made:
        for deleted in admin.delete_topics(made).values():
            deleted.result(PATIENCE_S)
