"""The embedded broker: what it promises to tests, to benchmarks and to `holdfast broker`."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from holdfast.broker import (
    BrokerError,
    EmbeddedKafka,
    detached_bootstrap_servers,
    development_kafka,
    start_detached,
    stop_detached,
)
from holdfast.console.commands.broker import start
from tests.real.container_kafka import needs_processes
from tests.real.quick_java import QUICK_KAFKA
from tests.waiting import PATIENCE_S, Lines, block_until

pytestmark = pytest.mark.real


@pytest.fixture(scope="module", autouse=True)
def _of_the_embedded_broker() -> None:
    needs_processes("The test is about the embedded broker")


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedKafka]:
    """Give a broker that tests may hurt, if they leave it running."""
    with EmbeddedKafka(jvm_options=QUICK_KAFKA) as kafka:
        yield kafka


def create_topic(bootstrap_servers: str, topic: str, copies: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(topic, 1, copies)])[topic].result(PATIENCE_S)


def append(bootstrap_servers: str, topic: str, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers, "acks": "all", "log_level": 0})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(PATIENCE_S) == 0


def values_of(bootstrap_servers: str, topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "unused", "log_level": 0})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        return [message.value() for message in consumer.consume(count, timeout=PATIENCE_S)]
    finally:
        consumer.close()


@pytest.mark.parametrize("end", [EmbeddedKafka.stop, EmbeddedKafka.kill])
def test_restart_keeps_data_and_address(
    broker: EmbeddedKafka, topic: str, end: Callable[[EmbeddedKafka], None]
) -> None:
    address = broker.bootstrap_servers
    create_topic(address, topic)
    append(address, topic, b"one", b"two")
    end(broker)
    assert broker.nodes[0].pid() is None
    broker.restart()
    assert broker.bootstrap_servers == address
    assert values_of(address, topic, 2) == [b"one", b"two"]


def test_restart_takes_new_properties(broker: EmbeddedKafka) -> None:
    broker.restart(properties={"message.max.bytes": "12345"})
    settings = (broker.nodes[0].directory / "server.properties").read_text()
    assert "message.max.bytes=12345\n" in settings


def test_frozen_broker_is_silent_until_it_is_thawed(broker: EmbeddedKafka) -> None:
    def brokers_seen(timeout_s: float) -> set[int]:
        # By a new client each time: one that asked before the freeze may still hold an answer to read.
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        return set(admin.list_topics(timeout=timeout_s).brokers)

    assert brokers_seen(PATIENCE_S) == {1}
    broker.freeze()
    try:
        with pytest.raises(KafkaException, match=r"[Tt]imed out|TRANSPORT"):
            brokers_seen(0.5)
    finally:
        broker.thaw()
    assert brokers_seen(PATIENCE_S) == {1}


def test_a_frozen_broker_has_no_thread_that_runs(broker: EmbeddedKafka) -> None:
    pid = broker.nodes[0].pid()
    for _ in range(200):  # a thread that runs on another processor may go on for a moment after the signal
        broker.freeze()
        threads = list(Path(f"/proc/{pid}/task").iterdir())
        states = {(thread / "stat").read_text().rpartition(")")[2].split()[0] for thread in threads}
        broker.thaw()
        assert states == {"T"}


def test_running_broker_is_not_started_twice(broker: EmbeddedKafka) -> None:
    second = EmbeddedKafka(data_dir=broker.data_dir)
    with pytest.raises(BrokerError, match=r"runs in .* already \(process \d+\)"), second:
        pytest.fail("it started")
    assert broker.nodes[0].pid() is not None


def test_unknown_node_is_refused(broker: EmbeddedKafka) -> None:
    with pytest.raises(BrokerError, match="node_id is 2; this cluster has brokers 1 to 1"):
        broker.kill(2)


def test_directory_of_another_size_is_refused(broker: EmbeddedKafka) -> None:
    with pytest.raises(BrokerError, match="holds a cluster of 1 brokers, not 3"):
        EmbeddedKafka(brokers=3, data_dir=broker.data_dir)


def test_failed_start_reports_kafkas_reason(tmp_path: Path) -> None:
    kafka = EmbeddedKafka(data_dir=tmp_path, properties={"log.segment.bytes": "many"})
    with pytest.raises(BrokerError, match=r"ended while starting \(.*Invalid value many for .*log\.segment\.bytes"):
        kafka.start()


def test_a_start_that_takes_too_long_names_the_bound_and_what_raises_it(tmp_path: Path) -> None:
    with pytest.raises(BrokerError) as refused:
        EmbeddedKafka(data_dir=tmp_path, start_timeout_s=0).start()
    assert str(refused.value) == (
        "The embedded Kafka was not ready in 0 s; free the machine, or give it longer with --start-timeout. "
        f"Its log is in {tmp_path / 'node-1'}."
    )
    options = {option for each in start.params for option in each.opts}
    assert "--start-timeout" in options


def test_wrong_jvm_option_is_named(tmp_path: Path) -> None:
    with pytest.raises(BrokerError, match="Unrecognized VM option 'Nonsense'"):
        EmbeddedKafka(data_dir=tmp_path, jvm_options=["-XX:Nonsense"]).start()


def test_taken_port_is_replaced_by_another(tmp_path: Path) -> None:
    kafka = EmbeddedKafka(data_dir=tmp_path, jvm_options=QUICK_KAFKA)
    first_choice = kafka.bootstrap_servers
    host, port = first_choice.split(":")
    with socket.create_server((host, int(port))), kafka:
        assert kafka.bootstrap_servers != first_choice
        assert AdminClient({"bootstrap.servers": kafka.bootstrap_servers}).list_topics(
            timeout=PATIENCE_S
        ).cluster_id == (kafka.cluster_id)


def test_three_brokers_carry_on_without_one(topic: str) -> None:
    with EmbeddedKafka(brokers=3, jvm_options=QUICK_KAFKA, heap_mib=256) as kafka:
        create_topic(kafka.bootstrap_servers, topic, copies=3)
        append(kafka.bootstrap_servers, topic, b"with three")
        kafka.kill(2)
        append(kafka.bootstrap_servers, topic, b"with two")
        kafka.restart(2)
        assert values_of(kafka.bootstrap_servers, topic, 2) == [b"with three", b"with two"]
        directory = kafka.data_dir
    assert not directory.exists()


def test_detached_broker_outlives_its_starter_and_is_found_by_its_directory(tmp_path: Path) -> None:
    script = f"from holdfast.broker import start_detached; print(start_detached({str(tmp_path)!r}))"
    started = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    try:
        address = started.stdout.strip()
        assert detached_bootstrap_servers(tmp_path) == address
        assert set(AdminClient({"bootstrap.servers": address}).list_topics(timeout=PATIENCE_S).brokers) == {1}
        with pytest.raises(BrokerError, match="already"):
            start_detached(tmp_path)
    finally:
        assert stop_detached(tmp_path)
    assert detached_bootstrap_servers(tmp_path) is None
    assert not stop_detached(tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can tie a process to its parent")
def test_broker_ends_with_its_parent(tmp_path: Path) -> None:
    script = (
        "from holdfast.broker import EmbeddedKafka; import signal\n"
        f"print(EmbeddedKafka(data_dir={str(tmp_path)!r}).start().bootstrap_servers, flush=True); signal.pause()"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert Lines(parent.stdout).next().startswith("127.0.0.1:")
        assert detached_bootstrap_servers(tmp_path) is not None
        os.kill(parent.pid, signal.SIGKILL)
    block_until(lambda: detached_bootstrap_servers(tmp_path) is None, "the end of the broker")


def test_given_bootstrap_servers_come_before_an_embedded_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_BOOTSTRAP", "somewhere:9092")
    with development_kafka() as bootstrap_servers:
        assert bootstrap_servers == "somewhere:9092"


def test_shared_broker_answers(kafka: str) -> None:
    assert AdminClient({"bootstrap.servers": kafka}).list_topics(timeout=PATIENCE_S).brokers
