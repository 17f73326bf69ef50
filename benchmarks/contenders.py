"""Who is measured. A contender is started over a running Kafka cluster, has an address, and is stopped."""

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from benchmarks.client import Address, BenchmarkError, wait_until
from benchmarks.cluster import first_address, leaders_of, topic_id_of
from benchmarks.share_state import Placement, anywhere
from holdfast.broker import EmbeddedKafka
from holdfast.broker.properties import is_free
from holdfast.client import ClientError, ClientSettings, connect
from holdfast.records.log import checkpoint as log
from holdfast.records.log.checkpoint import Checkpoint
from holdfast.records.share.codecs.codec import Codec
from holdfast.records.share.keys import SharePartitionKey, log_partition

#: Partitions of either state topic: Kafka's default and ours.
STATE_PARTITIONS: Final = 50

_START_TIMEOUT_S: Final = 60.0
_STOP_TIMEOUT_S: Final = 20.0
_DIVIDED_TIMEOUT_S: Final = 120.0
_CLIENT: Final = ClientSettings(connect_timeout_ms=5_000, request_timeout_ms=30_000)


class PartitionLoad(NamedTuple):
    """What a contender's own log says about the load of one log partition."""

    partition: int
    began_s: float
    ended_s: float
    records: int


class Contender(Protocol):
    """A share coordinator that speaks the Kafka protocol."""

    name: str
    state_topic: str
    codec: Codec  #: in which it finds a history

    def start(self, kafka: EmbeddedKafka) -> None:
        """Start over this cluster and return when it listens."""

    def stop(self) -> None:
        """End it; nothing if it does not run."""

    def halt(self) -> None:
        """Let it do nothing until `restart`, where it does not carry the other contender's log."""

    def restart(self) -> None:
        """Start it again, so that it loads its state topic."""

    @property
    def address(self) -> Address:
        """Where FindCoordinator is answered."""

    @property
    def process_ids(self) -> list[int]:
        """The processes that it consists of, but for those of the log it writes to."""

    def placement(self, mix: str) -> Placement:
        """Return how share partitions are chosen for a connection."""

    def coordinators(self, mix: str) -> int:
        """Return with how many coordinators the share partitions of one caller lie."""

    def prepare(self) -> None:
        """Make its way from the history to the state shorter, if it has one; it does not run meanwhile."""

    def loads(self) -> list[PartitionLoad]:
        """Return the loads since its last start that have ended so far."""

    def first_checkpoint(self) -> Checkpoint | None:
        """Return what a history must begin with in each log partition (with another attempt id in each)."""


class KafkaCoordinator:
    """Apache Kafka's own share coordinator, which is part of the brokers."""

    name = "kafka"
    state_topic = "__share_group_state"
    codec = Codec.KAFKA

    #: The group coordinator says the same of `__consumer_offsets`.
    _LOADED = re.compile(
        r"^(\S+) .*Finished loading of metadata from __share_group_state-(\d+) .* in (\d+)ms .* Loaded (\d+) records"
    )

    def __init__(self) -> None:
        self._kafka: EmbeddedKafka | None = None

    def start(self, kafka: EmbeddedKafka) -> None:
        """Take the brokers as they are; they serve from their start on."""
        self._kafka = kafka

    def stop(self) -> None:
        """Leave the brokers running: they are the other contender's log."""
        self._kafka = None

    def halt(self) -> None:
        """Leave the brokers running."""

    def restart(self) -> None:
        """Restart the brokers."""
        assert self._kafka is not None
        self._kafka.restart()

    @property
    def address(self) -> Address:
        """Where the first broker listens."""
        assert self._kafka is not None
        return first_address(self._kafka)

    @property
    def process_ids(self) -> list[int]:
        """None beside the brokers."""
        return []

    def placement(self, mix: str) -> Placement:
        """Choose one leader for a connection, whatever the mix: here it is the coordinator."""
        assert self._kafka is not None
        return _by_leader(self._kafka, self.state_topic, log.Placement.BY_GROUP)

    def coordinators(self, mix: str) -> int:
        """Return one; in the mix *spread* the number of brokers, each of which is one."""
        assert self._kafka is not None
        return len(self._kafka.nodes) if mix == "spread" else 1

    def prepare(self) -> None:
        """Read the whole log."""

    def loads(self) -> list[PartitionLoad]:
        """Return what the first broker's log says; needs the log settings of the load benchmark."""
        assert self._kafka is not None
        log = self._kafka.nodes[0].directory / "kafka.log"
        found = [match for line in log.read_text().splitlines() if (match := self._LOADED.match(line))]
        return [
            _partition_load(int(match[2]), match[1].replace(",", "."), int(match[3]), int(match[4])) for match in found
        ]

    def first_checkpoint(self) -> Checkpoint | None:
        """Return None: Kafka has no checkpoints."""
        return None


class HoldfastNode:
    """Holdfast's daemon as a process of its own, with its default settings."""

    name = "holdfast"
    state_topic = "__holdfast_share_state"
    codec = Codec.AVRO

    def __init__(self) -> None:
        self._kafka: EmbeddedKafka | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._directory = Path()
        self._port = 0
        #: Beside those that every run has.
        self.settings = {"state_topic": self.state_topic, "snapshots.topic": ""}
        #: Beside what this process has.
        self.environment: dict[str, str] = {}

    def start(self, kafka: EmbeddedKafka) -> None:
        """Start the daemon and wait until it listens.

        Raises:
            BenchmarkError: it ended, or does not listen in time.
        """
        self._kafka = kafka
        self._directory = Path(tempfile.mkdtemp(prefix="holdfast-benchmark-"))
        self._port = self._choose_port()
        self._launch()

    def stop(self) -> None:
        """End the daemon and remove its files."""
        self._end()
        if self._kafka is not None:
            self._kafka = None
            shutil.rmtree(self._directory)

    def halt(self) -> None:
        """End the daemon."""
        self._end()

    def restart(self) -> None:
        """Restart the daemon."""
        self._end()
        self._launch()

    @property
    def address(self) -> Address:
        """Where the daemon listens."""
        return Address("127.0.0.1", self._port)

    @property
    def process_ids(self) -> list[int]:
        """The daemon."""
        return [self._process.pid] if self._process else []

    def placement(self, mix: str) -> Placement:
        """Choose one leader for a connection; in the mix *spread* whatever leader, for a caller of a node cannot choose."""
        assert self._kafka is not None
        return (
            anywhere if mix == "spread" else _by_leader(self._kafka, self.state_topic, log.Placement.BY_TOPIC_PARTITION)
        )

    def coordinators(self, mix: str) -> int:
        """Return one: the daemon, or one of its workers."""
        return 1

    def prepare(self) -> None:
        """Have the daemon say how long the load of each log partition took, which it does at level debug alone."""
        self.settings["log_level"] = "debug"

    def loads(self) -> list[PartitionLoad]:
        """Return what the daemon's log says."""
        return [
            _partition_load(entry["partition"], entry["timestamp"], entry["load_ms"], entry["records"])
            for entry in self.log_entries()
            if entry.get("event") == "log_partition_loaded"
        ]

    def first_checkpoint(self) -> Checkpoint | None:
        """Return a checkpoint of an owner that is gone, later than those of the daemon's first start."""
        assert self._kafka is not None
        return Checkpoint(
            owner_epoch=1_000,
            attempt_id=bytes(16),
            node_id="history",
            generation=1,
            cluster_id=self._kafka.cluster_id,
            topic_id=topic_id_of(self._kafka, self.state_topic),
            partition_count=STATE_PARTITIONS,
            reason=None,
        )

    def _choose_port(self) -> int:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port: int = free.getsockname()[1]
        return port

    def _launch(self) -> None:
        assert self._kafka is not None
        copies = len(self._kafka.nodes)
        settings = {
            "kafka.bootstrap.servers": self._kafka.bootstrap_servers,
            "listen": f"127.0.0.1:{self._port}",
            "http.listen": "127.0.0.1:0",
            "share.coordinator.state.topic.replication.factor": str(copies),
            "share.coordinator.state.topic.min.isr": str(min(2, copies)),
            **self.settings,
        }
        flags = [flag for name, value in settings.items() for flag in ("--set", f"{name}={value}")]
        with (self._directory / "holdfast.log").open("wb") as log:
            self._process = subprocess.Popen(
                [Path(sys.executable).with_name("holdfast"), "serve", *flags],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._directory,
                env=os.environ | self.environment,
            )
        wait_until("The start of holdfast", self._listens, _START_TIMEOUT_S)

    def _listens(self) -> bool | None:
        assert self._process is not None
        if self._process.poll() is not None:
            log = (self._directory / "holdfast.log").read_text()
            raise BenchmarkError(f"holdfast ended with status {self._process.returncode}: {log[-2000:]}")
        with socket.create_connection(self.address, timeout=1.0):
            return True

    def _end(self) -> None:
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def log_entries(self) -> list[dict[str, Any]]:
        """Return the lines of its log."""
        lines = (self._directory / "holdfast.log").read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]


class ThroughLibrdkafka(HoldfastNode):
    """The daemon that writes and reads its log through librdkafka."""

    name = "holdfast-librdkafka"
    state_topic = "__holdfast_share_state_librdkafka"

    def __init__(self) -> None:
        super().__init__()
        self.settings |= {"log.client": "librdkafka"}


class TwoWorkers(HoldfastNode):
    """The daemon with two workers: a client asks for the coordinator of each share partition, and goes to its own port."""

    name = "holdfast-2"
    state_topic = "__holdfast_share_state_workers"
    workers = 2

    def __init__(self) -> None:
        super().__init__()
        self.settings |= {"workers": str(self.workers), "membership": "group"}

    @property
    def process_ids(self) -> list[int]:
        """The supervisor and its workers."""
        workers = {entry["node_id"]: entry["pid"] for entry in self.log_entries() if entry["event"] == "worker_started"}
        return [*super().process_ids, *workers.values()]

    def _choose_port(self) -> int:
        """Return a free port whose next ones, those of the workers, are free as well."""
        return wait_until("A row of free ports", self._find_port, pause_s=0)

    def _find_port(self) -> int | None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port: int = free.getsockname()[1]
        return port if all(is_free(port + 1 + number) for number in range(self.workers)) else None

    def _launch(self) -> None:
        super()._launch()
        wait_until("The division of the log", lambda: asyncio.run(self._is_divided()), _DIVIDED_TIMEOUT_S)

    async def _is_divided(self) -> bool | None:
        """Return whether each worker serves its part; as they are, coordinators stay where they are found."""
        try:
            async with connect(f"127.0.0.1:{self._port}", _CLIENT) as client:
                metrics = await client.admin("metrics")
        except ClientError:
            return None
        served = [
            metrics.get(f"holdfast_log_partitions{{node={1 + number},state=active}}", 0)
            for number in range(self.workers)
        ]
        return (sum(served) == STATE_PARTITIONS and min(served) >= STATE_PARTITIONS // self.workers) or None


def _partition_load(partition: int, ended: str, took_ms: int, records: int) -> PartitionLoad:
    ended_s = datetime.fromisoformat(ended).timestamp()
    return PartitionLoad(partition, ended_s - took_ms / 1000, ended_s, records)


def _by_leader(kafka: EmbeddedKafka, state_topic: str, of_log: log.Placement) -> Placement:
    """Tell share partitions apart by who leads their log partition, as it is when that is first asked."""
    leaders: dict[int, int] = {}

    def leader(key: SharePartitionKey) -> int:
        if not leaders:
            leaders.update(leaders_of(kafka, state_topic))
        return leaders[log_partition(key, STATE_PARTITIONS, of_log)]

    return leader
