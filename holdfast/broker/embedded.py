"""A real Apache Kafka for development, tests and the demo: KRaft, each node broker and controller in one JVM."""

import json
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeAlias

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from holdfast.broker.errors import BrokerError, in_directory
from holdfast.broker.kafka_broker import BrokerNode, nodes_in
from holdfast.broker.properties import HOST, NodePorts, choose_ports, is_free, new_kafka_uuid, node_properties
from holdfast.jars.cache import KAFKA_VERSION, kafka_home
from holdfast.kafka.addresses import format_address
from holdfast.kafka.librdkafka import KafkaClients

#: Options that make a JVM start sooner and run slower: for trials and tests, never for measurements.
FAST_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")

_POLL_S = 0.02
_METADATA_TIMEOUT_S = 1.0


#: How long the start of a Kafka for trials may take: that of a JVM on a busy machine.
START_TIMEOUT_S: Final = 120.0


class StartStep(Enum):
    """What a broker has done of its start, in this order."""

    LAUNCHED = "was started"
    LISTENING = "listens"
    READY = "knows the cluster"


#: Takes the id of a broker, and the step that it has done.
OnStep: TypeAlias = Callable[[int, StartStep], None]


class EmbeddedKafka:
    """A cluster of Kafka brokers on loopback, which lives in one directory.

    The same directory gives the same cluster again: its id, its data and, if they are still free, its ports.
    As a context manager it starts on entry and is gone on exit, with its data if the directory was a temporary one.
    """

    def __init__(
        self,
        *,
        brokers: int = 1,
        data_dir: Path | str | None = None,
        port: int | None = None,
        unpacked_kafka: Path | None = None,
        version: str = KAFKA_VERSION,
        properties: Mapping[str, str] | None = None,
        jvm_options: Sequence[str] = (),
        heap_mib: int = 512,
        start_timeout_s: float = 180.0,
        stop_timeout_s: float = 20.0,
        start_attempts: int = 5,
        outlives_us: bool = False,
    ) -> None:
        """Describe a cluster; nothing starts before `start`.

        Args:
            brokers: number of nodes, 1 or more; their ids count from 1.
            data_dir: made if missing; without one, a temporary directory that `close` removes.
            port: where the only broker listens; without one, a free port is chosen.
            unpacked_kafka: where a release of Kafka was unpacked; without one, its jars are fetched.
            version: of the release whose jars are fetched.
            properties: further broker settings by Kafka's names; they win over our defaults.
            jvm_options: for each JVM, after our own; `FAST_START` suits tests.
            heap_mib: most memory for the heap of each JVM.
            start_timeout_s: bound until all brokers answer; a broker that ends sooner is reported at once.
            stop_timeout_s: how long a broker may take to end by itself before it is killed.
            start_attempts: how often to choose other ports when another process was quicker to take them.
            outlives_us: see `BrokerNode.launch`.

        Raises:
            BrokerError: `brokers` is below 1, or more than one is to have the same port, or `data_dir` holds a cluster of another size,
                or cannot be read.
        """
        if brokers < 1:
            raise BrokerError(f"brokers is {brokers}; an embedded cluster needs 1 or more.")
        if port is not None and brokers > 1:
            raise BrokerError(f"port is {port} and brokers {brokers}; a port can be chosen for one broker only.")
        self._port = port
        self._is_temporary = data_dir is None
        with in_directory("A temporary directory"):
            self.data_dir = Path(data_dir or tempfile.mkdtemp(prefix="holdfast-kafka-")).absolute()
        self.properties = dict(properties or {})
        self._jvm_options = (f"-Xmx{heap_mib}m", "-Xshare:auto", *jvm_options)
        self._start_timeout_s = start_timeout_s
        self._stop_timeout_s = stop_timeout_s
        self._start_attempts = start_attempts
        self._outlives_us = outlives_us
        self.cluster_id, ports = self._recall(brokers)
        self._ports = self._with_port(ports)
        home = partial(kafka_home, unpacked_kafka, version=version)
        self.nodes = tuple(BrokerNode(i, self.data_dir / f"node-{i}", home) for i in range(1, brokers + 1))

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers, separated by commas."""
        return ",".join(format_address(HOST, ports.broker) for ports in self._ports)

    def start(self, on_step: OnStep = lambda *_: None) -> Self:
        """Start all brokers and wait until each of them knows all of them.

        Args:
            on_step: called with each step of each broker.

        Raises:
            BrokerError: they run already, a broker ended while starting, the time is over, or the directory cannot be written.
        """
        for attempt in range(1, self._start_attempts + 1):
            if not all(is_free(port) for ports in self._ports for port in (ports.broker, ports.controller)):
                self._refuse_if_running()
                if self._port is not None and not is_free(self._port):
                    raise BrokerError(
                        f"Something listens on {self.bootstrap_servers} already; end it, or choose another port."
                    )
                self._ports = self._with_port(choose_ports(len(self.nodes)))
            try:
                self._launch_and_wait(self.nodes, on_step)
                break
            except BrokerError as error:
                if "already in use" not in str(error) or attempt == self._start_attempts:
                    raise
        return self

    def stop(self, node_id: int | None = None) -> None:
        """End one broker (or all) in good order; its data stays."""
        for node in self._chosen(node_id):
            node.terminate()
        for node in self._chosen(node_id):
            node.stop(self._stop_timeout_s)

    def kill(self, node_id: int | None = None) -> None:
        """End one broker (or all) by SIGKILL; its data stays as a crash leaves it."""
        for node in self._chosen(node_id):
            node.kill()

    def restart(self, node_id: int | None = None, *, properties: Mapping[str, str] | None = None) -> None:
        """Stop one broker (or all) if it runs, and start it again on the same ports with the same data.

        Args:
            node_id: which one; without it, all.
            properties: broker settings to add or replace from now on.

        Raises:
            BrokerError: it did not come back.
        """
        self.properties.update(properties or {})
        self.stop(node_id)
        self._launch_and_wait(self._chosen(node_id))

    def freeze(self, node_id: int | None = None) -> None:
        """Halt the process of one broker (or all) by SIGSTOP; its connections stay open and silent from when this returns.

        Raises:
            BrokerError: it does not run, or is not halted in time.
        """
        for node in self._chosen(node_id):
            node.freeze()

    def thaw(self, node_id: int | None = None) -> None:
        """Let one frozen broker (or all) go on.

        Raises:
            BrokerError: it does not run.
        """
        for node in self._chosen(node_id):
            node.thaw()

    def close(self) -> None:
        """End all brokers, and remove the data directory if it was a temporary one."""
        if self._is_temporary:
            self.kill()  # What a clean stop would save is about to be removed.
            shutil.rmtree(self.data_dir, ignore_errors=True)
        else:
            self.stop()

    def __enter__(self) -> Self:
        return self.start()  # If it fails, the directory stays, for it holds the reason.

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _chosen(self, node_id: int | None) -> tuple[BrokerNode, ...]:
        if node_id is None:
            return self.nodes
        if not 1 <= node_id <= len(self.nodes):
            raise BrokerError(f"node_id is {node_id}; this cluster has brokers 1 to {len(self.nodes)}.")
        return (self.nodes[node_id - 1],)

    def _recall(self, brokers: int) -> tuple[str, list[NodePorts]]:
        """Return cluster id and ports as the directory remembers them, or new ones."""
        remembered = self.data_dir / "cluster.json"
        with in_directory(self.data_dir):
            if not remembered.exists():
                return new_kafka_uuid(), choose_ports(brokers)
            saved = json.loads(remembered.read_text())
        ports = [NodePorts(**ports) for ports in saved["ports"]]
        if len(ports) != brokers:
            raise BrokerError(
                f"{self.data_dir} holds a cluster of {len(ports)} brokers, not {brokers}; choose another directory."
            )
        return saved["cluster_id"], ports

    def _with_port(self, ports: list[NodePorts]) -> list[NodePorts]:
        """Return these ports, with the one that was requested in its place."""
        return ports if self._port is None else [NodePorts(broker=self._port, controller=ports[0].controller)]

    def _remember(self) -> None:
        ports = [{"broker": ports.broker, "controller": ports.controller} for ports in self._ports]
        saved = {"cluster_id": self.cluster_id, "ports": ports, "bootstrap_servers": self.bootstrap_servers}
        with in_directory(self.data_dir):
            self.data_dir.mkdir(parents=True, exist_ok=True)
            # In one step: a full disk must not leave a cluster without its id.
            unfinished = self.data_dir / "cluster.json.new"
            unfinished.write_text(json.dumps(saved, indent=1) + "\n")
            unfinished.replace(self.data_dir / "cluster.json")
            (self.data_dir / "bootstrap").write_text(self.bootstrap_servers + "\n")

    def _refuse_if_running(self) -> None:
        for node in self.nodes:
            if pid := node.pid():
                raise BrokerError(f"A broker runs in {node.directory} already (process {pid}); stop it first.")

    def _launch_and_wait(self, nodes: Sequence[BrokerNode], on_step: OnStep = lambda *_: None) -> None:
        self._remember()
        launched: list[BrokerNode] = []
        try:
            for node in nodes:
                settings = node_properties(node.node_id, self._ports, node.data_dir, self.properties)
                with in_directory(node.directory):
                    node.format(self.cluster_id)
                    node.launch(settings, self._jvm_options, outlives_us=self._outlives_us)
                launched.append(node)
                on_step(node.node_id, StartStep.LAUNCHED)
            self._wait_ready(nodes, on_step)
        except BaseException:
            for node in launched:  # Not one that another process has started in this directory.
                node.kill()
            raise

    def _wait_ready(self, nodes: Sequence[BrokerNode], on_step: OnStep) -> None:
        """Wait until each of these nodes names every running node, which it knows from an elected controller."""
        deadline = time.monotonic() + self._start_timeout_s
        expected = {node.node_id for node in self.nodes if node.pid() is not None}
        for node in nodes:
            address = (HOST, self._ports[node.node_id - 1].broker)
            while not _accepts(address):
                self._check_alive(nodes, deadline)
                time.sleep(_POLL_S)
            on_step(node.node_id, StartStep.LISTENING)
            servers = format_address(*address)
            clients = KafkaClients({"bootstrap.servers": servers, "reconnect.backoff.max.ms": "200"})
            with clients.admin() as admin:
                while not expected <= _known_brokers(admin):
                    self._check_alive(nodes, deadline)
                    time.sleep(_POLL_S)
            on_step(node.node_id, StartStep.READY)

    def _check_alive(self, nodes: Sequence[BrokerNode], deadline: float) -> None:
        for node in nodes:
            if node.pid() is None:
                raise BrokerError(
                    f"Broker {node.node_id} ended while starting ({node.failure_line()}); more is in {node.directory}."
                )
        if time.monotonic() > deadline:
            raise BrokerError(
                f"The embedded Kafka was not ready in {self._start_timeout_s:g} s; free the machine, or give it longer with "
                f"--start-timeout. Its log is in {nodes[0].directory}."
            )


def _accepts(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address, timeout=_METADATA_TIMEOUT_S).close()
    except OSError:
        return False
    return True


def _known_brokers(admin: AdminClient) -> set[int]:
    try:
        return set(admin.list_topics(timeout=_METADATA_TIMEOUT_S).brokers)
    except KafkaException:
        return set()


def start_detached(
    data_dir: Path | str,
    *,
    brokers: int = 1,
    unpacked_kafka: Path | None = None,
    properties: Mapping[str, str] | None = None,
    heap_mib: int = 512,
    start_timeout_s: float = START_TIMEOUT_S,
    on_step: OnStep = lambda *_: None,
) -> str:
    """Start a cluster that outlives this process, and return its bootstrap servers.

    Args:
        data_dir: where it lives; `stop_detached` finds it there, and so does a later start.
        brokers: number of nodes.
        unpacked_kafka: see `EmbeddedKafka`.
        properties: further broker settings by Kafka's names.
        heap_mib: most memory for the heap of each JVM.
        start_timeout_s: bound until all brokers answer.
        on_step: called with each step of each broker.

    Raises:
        BrokerError: it runs already or does not start.
    """
    kafka = EmbeddedKafka(
        brokers=brokers,
        data_dir=data_dir,
        unpacked_kafka=unpacked_kafka,
        properties=properties,
        heap_mib=heap_mib,
        start_timeout_s=start_timeout_s,
        outlives_us=True,
    )
    return kafka.start(on_step).bootstrap_servers


def stop_detached(data_dir: Path | str, *, stop_timeout_s: float = 20.0) -> bool:
    """Stop the cluster that lives in this directory, whichever process started it; its data stays.

    Returns:
        whether one was running.

    Raises:
        BrokerError: it belongs to another user, or does not end.
    """
    nodes = [node for node in nodes_in(Path(data_dir)) if node.pid() is not None]
    for node in nodes:
        node.terminate()
    for node in nodes:
        node.stop(stop_timeout_s)
    return bool(nodes)


def detached_bootstrap_servers(data_dir: Path | str) -> str | None:
    """Return the bootstrap servers of the cluster that lives in this directory, or None if no broker of it runs.

    Raises:
        BrokerError: the directory cannot be read.
    """
    if all(node.pid() is None for node in nodes_in(Path(data_dir))):
        return None
    with in_directory(data_dir):
        return (Path(data_dir) / "bootstrap").read_text().strip()


@contextmanager
def development_kafka(*, properties: Mapping[str, str] | None = None, jvm_options: Sequence[str] = ()) -> Iterator[str]:
    """Give the bootstrap servers of a Kafka to develop against: `$HOLDFAST_BOOTSTRAP`, else an embedded broker.

    Args:
        properties: settings of the embedded broker, by Kafka's names.
        jvm_options: options of its JVM.

    Raises:
        BrokerError: the embedded broker does not start.
    """
    if given := os.environ.get("HOLDFAST_BOOTSTRAP"):
        yield given
        return
    with EmbeddedKafka(properties=properties, jvm_options=jvm_options) as kafka:
        yield kafka.bootstrap_servers
