"""Microseconds that a Write costs between the bytes that come in and the bytes that go out: no socket, no broker, no client.

    python -m benchmarks.micro.hot_path

Everything from the connection to the shard is the real thing; the log is a list that shows a round's records to the runtime at once.
Each request is timed alone, and so is the round's commit with the answers that it lets go. A number is the floor: the least over all
rounds (for requests, the median of all connections' floors), which other work on the machine disturbs least.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import time
from collections import deque
from collections.abc import Callable, Collection
from functools import partial

from benchmarks.micro.wire import TOPIC_ID, VERSION
from holdfast.api import share_state, state_requests, state_responses
from holdfast.api.results import InitializePartition, StateRequest, WritePartition
from holdfast.clock import make_wall_clock_ms
from holdfast.daemon.access.acl import Acl, Operation, Permission, ResourceType
from holdfast.daemon.access.audit import Audit
from holdfast.daemon.access.authorizer import Authorizer
from holdfast.daemon.access.rules import Rules
from holdfast.daemon.components import partition_config
from holdfast.daemon.internal_errors import InternalErrors
from holdfast.daemon.server.admin import Admin
from holdfast.daemon.server.api_table import ApiHandler
from holdfast.daemon.server.cluster_view import Node
from holdfast.daemon.server.wire.connection import Connection
from holdfast.daemon.server.wire.requests import Request
from holdfast.daemon.settings.components.listener import LimitSettings
from holdfast.daemon.topics.metadata_image import MetadataImage
from holdfast.daemon.topics.state_topic import StateTopic
from holdfast.kafka.protocol import frames
from holdfast.metrics.instruments import Counter
from holdfast.metrics.line_limit import LineLimiter
from holdfast.metrics.registry import Registry
from holdfast.node_settings import load_settings
from holdfast.records.log.checkpoint import Checkpoint
from holdfast.records.share.batches import ACKNOWLEDGED, StateBatch
from holdfast.runtime.coordinator import CoordinatorRuntime
from holdfast.runtime.log_protocol import LogRecord
from holdfast.runtime.metrics import RuntimeMetrics
from holdfast.runtime.partition.lifecycle import Partition
from holdfast.runtime.settings import LogIdentity, Surroundings
from holdfast.share.calls import KEY_TYPE, ShareAnswers, ShareKeys
from holdfast.share.components import shard_config, state_bounds
from holdfast.share.decisions import ShareShard
from holdfast.share.metrics import ShareMetrics
from holdfast.share.service import ShareService
from holdfast.share.state_bounds import StateTotals
from holdfast.share.tenant import CALLS
from holdfast.share.topic_gate import TopicGate
from holdfast.tenants import TABLES

LOG_PARTITIONS = 50
SETTINGS = load_settings(flags={"kafka.bootstrap.servers": "127.0.0.1:9092"}).settings
LEADER_EPOCH = STATE_EPOCH = 1
#: Offsets of one write, and how far the start offset stays behind: a state has one batch or two.
STEP, BEHIND = 10, 20
#: (connections, share partitions of a request, rounds)
SHAPES = ((64, 1, 1_000), (64, 16, 300))
_ANSWER_HEAD_SIZE = 9  #: length, correlation id, no tags


class ListLog:
    """Keeps what is appended until `commit`."""

    def __init__(self) -> None:
        self.started: list[tuple[int, int]] = []
        self._appended: dict[int, list[LogRecord]] = {}
        self._ends = dict.fromkeys(range(LOG_PARTITIONS), 0)

    def append(self, partition: int, key: bytes, value: bytes | None, header: bytes) -> None:
        """Take a record."""
        self._appended.setdefault(partition, []).append(LogRecord(-1, key, value, header))

    def start_reading(self, partition: int, instance: int, from_offset: int = 0) -> None:
        """Remember that a load began."""
        self.started.append((partition, instance))

    def stop_reading(self, partition: int) -> None:
        """Nothing is read."""

    def query_log_start(self, partition: int, instance: int) -> None:
        """Nothing is read."""

    def flush_if_all_wait(self) -> None:
        """Nothing waits."""

    def query_latest_offsets(self, round_number: int, partitions: list[int]) -> None:
        """Nothing is read."""

    def delete_records(self, partition: int, before_offset: int) -> None:
        """Nothing is pruned."""

    def load(self, runtime: CoordinatorRuntime) -> None:
        """Let every partition find its log empty but for the checkpoint that it appends."""
        for partition, instance in self.started:
            runtime.read_started(partition, instance, 0, 0)
            runtime.caught_up(partition, instance, 0)
            (checkpoint,) = self._appended.pop(partition)
            self._ends[partition] = 1
            runtime.records_read(partition, instance, [checkpoint._replace(offset=0)])

    def commit(self, runtime: CoordinatorRuntime) -> None:
        """Show the runtime all that was appended."""
        appended, self._appended = self._appended, {}
        for partition, records in appended.items():
            header = records[0].header
            assert header is not None
            assert runtime.own_records_read(partition, 1, self._ends[partition], len(records), header)
            self._ends[partition] += len(records)


class World:
    """A node without sockets; also the host of its runtime and what it knows of the cluster."""

    cluster_id = "cluster"
    state_topic: StateTopic | None = None
    nodes: tuple[Node, ...] = ()

    def __init__(
        self,
        share_partitions: int,
        runtime: CoordinatorRuntime | None = None,
        *,
        has_rules: bool = True,
        end_with: Callable[[Callable[[], None]], None] = lambda task: task(),
    ) -> None:
        """Serve so many share partitions by a runtime; None: by one over a list, which this loads.

        Without rules everything is allowed, as on a loopback address.
        Requests that come together are carried out together where `end_with` says when all have come.
        """
        self.image = MetadataImage(1, self.cluster_id, {TOPIC_ID: share_partitions})
        self.log = ListLog()
        self._tasks: deque[Callable[[], None]] = deque()
        self.runtime = runtime or self._load_runtime()
        self.runtime.new_metadata_image(self.image)
        bugs = InternalErrors(Counter())
        metrics = ShareMetrics(Registry())
        service = ShareService(self.runtime, metrics, lambda: time.monotonic_ns() / 1_000_000, bugs, end_with=end_with)
        service.start_up(LOG_PARTITIONS)
        gate = TopicGate(service, self, 5_000, make_wall_clock_ms())
        anything = Acl("User:*", Permission.ALLOW, Operation.ALL, ResourceType.GROUP, "*")
        needs = TABLES.needs
        authorizer = Authorizer(
            Rules([anything]), Audit(Counter(), needs, LineLimiter(), 10, 10), needs, is_open=not has_rules
        )
        answers = ShareAnswers(gate, authorizer)
        calls, keys = dict.fromkeys(CALLS, answers.answer), {KEY_TYPE: ShareKeys(gate)}
        self.handle = ApiHandler(calls, keys, TABLES.apis, self, Admin({}, needs, 1_000, bugs), authorizer)

    def _load_runtime(self) -> CoordinatorRuntime:
        identity = LogIdentity(self.cluster_id, bytes(16), LOG_PARTITIONS)
        topic = StateTopic("state", identity.topic_id, LOG_PARTITIONS, 1, 1_048_588)
        config = shard_config(SETTINGS, topic, StateTotals(state_bounds(SETTINGS)))
        runtime = CoordinatorRuntime(
            partition_config(SETTINGS, identity, "127.0.0.1:9095", 5_000),
            self.log,
            self,
            lambda _: ShareShard(config),
            Surroundings(make_wall_clock_ms(), os.urandom, lambda: 0.5),
            RuntimeMetrics(Registry()),
        )
        for index in range(LOG_PARTITIONS):
            runtime.load(index, None)
        self.log.load(runtime)
        while self._tasks:
            self._tasks.popleft()()
        return runtime

    def note(self, level: str, event: str, fields: dict[str, object]) -> None:
        """See `runtime.Host`; a trouble spoils the measurement."""
        assert level in ("debug", "info"), (event, fields)

    def continue_soon(self, task: Callable[[], None]) -> None:
        """See `runtime.Host`."""
        self._tasks.append(task)

    def end_turn_with(self, task: Callable[[], None]) -> None:
        """See `runtime.Host`."""
        task()

    def begin_load_turn(self, ended: Callable[[], None]) -> None:
        """See `runtime.Host`."""
        ended()

    def partition_changed(self, partition: Partition) -> None:
        """See `runtime.Host`."""

    def superseded(self, partition: Partition, winner: Checkpoint, offset: int) -> None:
        """See `runtime.Host`."""

    def look_up(
        self, topic_ids: Collection[bytes], caller: str, then: Callable[[Collection[bytes]], None], timeout_ms: int
    ) -> None:
        """See `topic_gate.TopicLookup`; all topics are known."""

    def owner(self, partition: int) -> Node | None:
        """See `cluster_view.ClusterView`; it is not called."""

    def owner_epoch(self, partition: int) -> int:
        """See `cluster_view.ClusterView`."""
        return 1

    def call(self, connection: Connection, frame: bytes) -> tuple[float, float]:
        """Let a connection take a frame; returns when it was taken apart and when it was handed over."""
        connection.receive(frame)
        request = connection.next_event(0)
        received_s = time.perf_counter()
        assert isinstance(request, Request)
        self.handle(request, partial(connection.reply, request))
        return received_s, time.perf_counter()


def measure(connection_count: int, keys: int, rounds: int, *, has_rules: bool) -> dict[str, float]:
    """Return the floors of one shape in microseconds per share partition."""
    world = World(connection_count * keys, has_rules=has_rules)
    connections = [Connection(TABLES.apis, LimitSettings(), "client", 0) for _ in range(connection_count)]
    numbers = [range(first, first + keys) for first in range(0, connection_count * keys, keys)]

    def encode(api_key: int, version: int, request: StateRequest) -> bytes:
        return frames.encode_request(
            api_key, version, 1, b"client", state_requests.encode_request(api_key, version, request)
        )

    for connection, mine in zip(connections, numbers, strict=True):
        asked = [InitializePartition(number, STATE_EPOCH, 0) for number in mine]
        world.call(connection, encode(share_state.INITIALIZE, 0, StateRequest("group", [(TOPIC_ID, [*asked])])))
    world.log.commit(world.runtime)
    for connection in connections:
        connection.take_output()
    receive_s, handle_s = [1.0] * connection_count, [1.0] * connection_count
    commit_s, output_s = 1.0, 1.0
    for number in range(rounds):
        first = number * STEP
        batches = (StateBatch(first, first + STEP - 1, ACKNOWLEDGED, 1),)
        start = max(0, first - BEHIND)
        round_frames = [
            encode(
                share_state.WRITE,
                VERSION,
                StateRequest(
                    "group", [(TOPIC_ID, [WritePartition(n, STATE_EPOCH, 0, start, STEP, batches) for n in mine])]
                ),
            )
            for mine in numbers
        ]
        for index, (connection, frame) in enumerate(zip(connections, round_frames, strict=True)):
            began_s = time.perf_counter()
            received_s, handled_s = world.call(connection, frame)
            receive_s[index] = min(receive_s[index], received_s - began_s)
            handle_s[index] = min(handle_s[index], handled_s - received_s)
        began_s = time.perf_counter()
        world.log.commit(world.runtime)
        committed_s = time.perf_counter()
        outputs = [connection.take_output()[0] for connection in connections]
        output_s = min(output_s, time.perf_counter() - committed_s)
        commit_s = min(commit_s, committed_s - began_s)
        for output in outputs:
            ((_, results),) = state_responses.decode_response(share_state.WRITE, VERSION, output, _ANSWER_HEAD_SIZE)
            assert [result.error_code for _, result in results] == [0] * keys
    median = connection_count // 2
    per_key = 1e6 / keys
    floors = {
        "receive": sorted(receive_s)[median] * per_key,
        "handle": sorted(handle_s)[median] * per_key,
        "commit": commit_s * per_key / connection_count,
        "send": output_s * per_key / connection_count,
    }
    return {**floors, "total": sum(floors.values())}


def main() -> None:
    """Measure and print every shape."""
    for connection_count, keys, rounds in SHAPES:
        for has_rules in (False, True):
            # Each in a process of its own, or the first one would leave the second a heap with holes.
            with multiprocessing.get_context("spawn").Pool(1, gc.freeze) as alone:
                floors = alone.apply(measure, (connection_count, keys, rounds), {"has_rules": has_rules})
            parts = "  ".join(f"{part} {floor_us:5.2f}" for part, floor_us in floors.items())
            rules = "access rules" if has_rules else "open        "
            print(
                f"{connection_count} connections × {keys:2} share partitions, {rules}, µs per share partition:  {parts}"
            )


if __name__ == "__main__":
    main()
