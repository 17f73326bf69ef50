"""Daemons as processes of their own, for tests that kill, freeze and stop them."""

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from holdfast.broker.properties import HOST, choose_ports
from holdfast.client import ClientError, ClientSettings, connect
from holdfast.kafka.librdkafka_types import topic_id_bytes
from holdfast.kafka.security import PLAINTEXT, read_security
from tests.waiting import PATIENCE_MS, PATIENCE_S, poll_pause_s

#: A client that no busy machine keeps from its answer.
PATIENT_CLIENT: Final = ClientSettings(connect_timeout_ms=PATIENCE_MS, request_timeout_ms=PATIENCE_MS)
#: One that waits until brokers have made their state topic and loaded it.
FIRST_CLIENT: Final = replace(PATIENT_CLIENT, attempts_max=100)
#: No second try hides what a node answers, and a frozen node may take its time.
ONE_TRY: Final = replace(PATIENT_CLIENT, attempts_max=1)

#: What keeps a busy machine from deciding what a node does; a test that is about one of these sets it itself.
PATIENT: Final[Mapping[str, object]] = {
    "share.coordinator.write.timeout.ms": PATIENCE_MS,
    "drain_timeout_ms": PATIENCE_MS,
    "shutdown_step_timeout_ms": PATIENCE_MS,
    "message_timeout_ms": PATIENCE_MS,
    "request_timeout_ms": PATIENCE_MS,
    "metadata_timeout_ms": PATIENCE_MS,
    "state_topic_create_timeout_ms": PATIENCE_MS,
    "snapshots.read.timeout.ms": PATIENCE_MS,
}
#: Those times as they are by default, for tests in which brokers fall silent: no call waits for one for ever.
DEFAULT_TIMES: Final[Mapping[str, object]] = {
    "share.coordinator.write.timeout.ms": 5_000,
    "message_timeout_ms": 30_000,
    "request_timeout_ms": 10_000,
    "metadata_timeout_ms": 10_000,
}


class NodeProcess:
    """One `holdfast serve`, on a port that it keeps over restarts."""

    def __init__(
        self, bootstrap_servers: str, state_topic: str, directory: Path, program: Sequence[str], **settings: object
    ) -> None:
        self._program = program
        self.address = str(settings.get("listen") or f"{HOST}:{choose_ports(1)[0].broker}")
        self._log_file = directory / f"node-{self.address.replace(':', '-')}.log"
        self._settings = {
            "kafka.bootstrap.servers": bootstrap_servers,
            "listen": self.address,
            "http.listen": "127.0.0.1:0",
            "state_topic": state_topic,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
            "share.coordinator.state.topic.num.partitions": 4,
            **PATIENT,
            **settings,
        }
        file = settings.get("listener.client.properties.file")
        #: How clients reach it: as other nodes do.
        self.security = read_security(Path(str(file))) if file else PLAINTEXT
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> float:
        """Start it and wait until it is ready; returns how many seconds that took."""
        began_s = time.monotonic()
        self.launch()
        await self.wait_ready()
        return time.monotonic() - began_s

    def launch(self) -> None:
        """Start the process."""
        flags = [part for name, value in self._settings.items() for part in ("--set", f"{name}={value}")]
        command = [sys.executable, "-m", *self._program, "serve", *flags]
        with self._log_file.open("ab") as said:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said)

    async def wait_ready(self) -> None:
        """Wait until it serves every log partition."""
        began_s = time.monotonic()
        while not (await self.status()).get("is_ready"):
            assert self.exit_code() is None, f"the node ended:\n{self.last_words()}"
            assert time.monotonic() < began_s + PATIENCE_S, f"the node is not ready:\n{self.last_words()}"
            await asyncio.sleep(poll_pause_s(began_s))

    async def status(self) -> dict[str, Any]:
        """Return what it says of itself; nothing while it does not listen."""
        try:
            return dict(await self.ask("status"))
        except ClientError:
            return {}

    async def ask(self, command: str, **arguments: Any) -> Any:
        """Give it an admin command."""
        async with connect(self.address, ONE_TRY, self.security) as client:
            return await client.admin(command, **arguments)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def pid(self) -> int:
        """Return the id of its process."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """End it by SIGKILL; nothing if it does not run."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def exit_code(self) -> int | None:
        """Return its exit code, None while it runs."""
        assert self._process is not None
        return self._process.poll()

    async def wait_exit(self) -> int:
        """Wait for its end and return its exit code."""
        assert self._process is not None
        return await asyncio.to_thread(self._process.wait, PATIENCE_S)

    def events(self) -> list[dict[str, Any]]:
        """Return the lines of its log that are whole by now."""
        return [json.loads(line) for line in self.lines() if line.startswith("{")]

    def lines(self) -> list[str]:
        """Return the lines of its log as they are, the last one only if it is whole."""
        return self._log_file.read_text(errors="replace").split("\n")[:-1]

    def last_words(self) -> str:
        """Return the end of its log."""
        return "\n".join(self._log_file.read_text(errors="replace").splitlines()[-20:])


NodeFactory = Callable[..., NodeProcess]


@contextmanager
def node_processes(
    bootstrap_servers: str, state_topic: str, directory: Path, program: Sequence[str] = ("holdfast",)
) -> Iterator[NodeFactory]:
    """Give a function that describes a node of this state topic; none of them outlives the context.

    Args:
        bootstrap_servers: of the broker.
        state_topic: its name.
        directory: for the nodes' logs.
        program: the module that is run as the command line tool, and its first arguments.
    """
    made: list[NodeProcess] = []

    def make(**settings: object) -> NodeProcess:
        made.append(NodeProcess(bootstrap_servers, state_topic, directory, program, **settings))
        return made[-1]

    try:
        yield make
    finally:
        for node in made:
            node.kill()


#: What a broker that has just started answers, or leaves unanswered.
_MAY_PASS: Final = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._TIMED_OUT)
#: What brokers answer, or leave unanswered, of which too few are up.
_NOT_MADE_YET: Final = (KafkaError.INVALID_REPLICATION_FACTOR, KafkaError._TIMED_OUT)
_REQUEST_TIMEOUT_S: Final = 10.0


def topic_id_of(bootstrap_servers: str, topic: str) -> bytes:
    """Return the id of a topic, which may have been made a moment ago, by brokers that may not have learned yet who controls them."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
        try:
            found = admin.describe_topics(TopicCollection([topic]), request_timeout=_REQUEST_TIMEOUT_S)[topic]
            return topic_id_bytes(found.result(PATIENCE_S).topic_id)
        except KafkaException as error:
            if error.args[0].code() not in _MAY_PASS or time.monotonic() > deadline:
                raise


def make_topic(
    bootstrap_servers: str, topic: str, partitions: int, copies: int, config: Mapping[str, str] | None = None
) -> None:
    """Make a topic once so many brokers are up: those that the machine stalled for longer than a session are not, for a moment."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        # Another client each time: one that was told of no controller is slow to ask again.
        admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
        new = NewTopic(topic, partitions, copies, config=dict(config or {}))
        try:
            admin.create_topics([new], request_timeout=_REQUEST_TIMEOUT_S)[topic].result(PATIENCE_S)
            return
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:  # made by a try whose answer came too late
                return
            if error.args[0].code() not in _NOT_MADE_YET or time.monotonic() > deadline:
                raise
            time.sleep(0.1)
