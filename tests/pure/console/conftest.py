"""The command line tool, and a node for it to talk to that runs in a thread of its own."""

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any

import pytest
from click.testing import CliRunner, Result
from structlog.testing import capture_logs

from holdfast.cli import main
from holdfast.daemon.server.admin import AdminCommand, AdminError
from holdfast.daemon.server.wire.connections import Connections
from holdfast.kafka.topic_ids import format_topic_id
from tests.children import children_without_hypothesis
from tests.waiting import PATIENCE_S
from tests.world.serving import FakeService, Served, serve

__all__ = ["children_without_hypothesis"]

TOPIC_ID = bytes(range(16))
Run = Callable[..., Result]


class Node:
    """What the fake node was asked, and how it answers share-state calls."""

    address: str
    service: FakeService
    connections: Connections

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.partitions: list[dict[str, Any]] = []
        #: what a decision would change
        self.before: dict[str, Any] = {"state": "failed", "owner": "2"}
        self.after: dict[str, Any] = {"state": "active", "owner": "1"}
        self.data_lost: list[str] = []
        self.readiness: dict[str, Any] = {"is_ready": True, "why_not_ready": None}
        #: by command; a test may put its own there
        self.answers: dict[str, Callable[[dict[str, Any]], object]] = {}

    def commands(self, partitions: list[dict[str, Any]]) -> Mapping[str, AdminCommand]:
        """Return the admin commands; each notes that it was asked."""
        self.partitions = partitions
        self.answers = {
            "members": lambda _: [],
            "status": lambda _: {"version": "0.1.0", "node_id": 1, **self.readiness, "log_partitions": 3},
            "settings": lambda _: {"load_timeout_ms": 600_000, "codec": "avro", "node_id": 1, "compaction.run": False},
            "metrics": lambda _: {
                "holdfast_writes_total": 5_015,
                "holdfast_parked_writes": 0,
                "holdfast_write_latency_seconds_p50": 0.1800468122,
                "holdfast_write_latency_seconds_p99": 6.00000000008,
            },
            "partitions": lambda _: partitions,
            "hand-overs": lambda _: [],
            "partitions-take": lambda _: "it is being taken",
            "partitions-accept": lambda _: "it goes on",
            "topics-accept-deleted": lambda _: "they may go",
            "readers": lambda _: [
                {"group": "audit", "state": "silent", "behind": 7, "still_ms": 3_600_000, "committed": {"0": 5}},
                {"group": "job", "state": "not started", "behind": 24, "still_ms": 10, "committed": {}},
            ],
            "readers-drop": lambda _: "the log is pruned past audit until it commits again",
            "resolve-topic": _resolve,
            "share-partitions": lambda _: {},  # a test puts its own there
            "state-preview": lambda _: {},
            "topic-ends": lambda _: {},
            "debug": lambda _: {
                "threads": {"MainThread (1)": "  File a\n"},
                "tasks": [{"name": "holdfast-tick", "stack": "  File b\n"}],
                "tasks_left_out": 0,
                "log_lines": ["first", "second"],
            },
            "decision-preview": lambda _: {
                "before": self.before,
                "after": self.after,
                "data_lost": self.data_lost,
                "run_id": "r",
            },
        }

        def noting(name: str) -> AdminCommand:
            def command(arguments: dict[str, Any]) -> object:
                self.asked.append((name, arguments))
                return self.answers[name](arguments)

            return command

        return {name: noting(name) for name in self.answers}


def _resolve(arguments: dict[str, Any]) -> dict[str, Any]:
    if arguments["name"] != "orders":
        raise AdminError(f"The cluster knows no topic {arguments['name']!r}; give a name it knows, or the topic's id.")
    return {"name": "orders", "topic_id": format_topic_id(TOPIC_ID), "partitions": 2}


PARTITION = {
    "partition": 0,
    "state": "active",
    "owner": "1",
    "owner_address": "n:1",
    "owner_epoch": 4,
    "generation": 6,
    "written": 21,
    "committed": 20,
    "log_start": 3,
    "keys": 2,
    "log_bytes": 900,
    "dead_bytes": 100,
    "oldest_key": "g:AAECAwQFBgcICQoLDA0ODw:0",
    "oldest_snapshot_offset": 5,
    "why_not_pruned": "100 of 900 bytes are dead",
    "failure": None,
    "is_alarmed": False,
}


@contextmanager
def running_node() -> Iterator[Node]:
    """Give a node that listens on loopback."""
    node = Node()
    alarmed = PARTITION | {"partition": 1, "state": "failed", "failure": "records are missing", "is_alarmed": True}
    closed = {"state": "closed", "failure": "node 2 serves it", "is_alarmed": False}
    left = [PARTITION | closed | {"partition": number} for number in (2, 3)]
    with served_in_thread(serve(commands=node.commands([PARTITION, alarmed, *left]))) as served:
        node.address, node.service, node.connections = served.address, served.service, served.server.connections
        yield node


@contextmanager
def served_in_thread(serving: AbstractAsyncContextManager[Served]) -> Iterator[Served]:
    """Run a server in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="fake-node")
    thread.start()

    def in_loop(awaitable: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(awaitable, loop).result(PATIENCE_S)

    try:
        served = in_loop(serving.__aenter__())
        try:
            yield served
        finally:
            in_loop(serving.__aexit__(None, None, None))
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE_S)
        loop.close()


@pytest.fixture
def node() -> Iterator[Node]:
    """Give a node that listens on loopback; its log lines are not among what commands print."""
    with capture_logs(), running_node() as node:
        yield node


@pytest.fixture
def run(node: Node) -> Run:
    """Give a function that runs a command against the node."""

    return runner_for(node.address)


def runner_for(address: str) -> Run:
    """Return a function that runs a command against a node."""

    def invoke(*arguments: str) -> Result:
        result = CliRunner(env={"HOLDFAST_ADDRESS": address}).invoke(main, arguments)
        assert result.exception is None or isinstance(result.exception, SystemExit), "a traceback reached the user"
        return result

    return invoke


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Heed an interrupt, which whoever runs the tests in the background may have had ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
