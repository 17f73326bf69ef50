"""The log partitions of a node over the log in memory: all is real but Kafka, the clock and the event loop's turns."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

from holdfast.daemon.components import log_readers
from holdfast.daemon.maintenance.reader_offsets import ReaderReport
from holdfast.daemon.membership.duties import Duties
from holdfast.daemon.membership.lone_node import LoneNode
from holdfast.daemon.partitions.own_view import OwnView
from holdfast.daemon.partitions.owners import Owners
from holdfast.daemon.partitions.partitions import LogPlace, Partitions
from holdfast.daemon.server.cluster_view import Node
from holdfast.daemon.settings.file_env_flags import load_settings
from holdfast.daemon.settings.models import Settings
from holdfast.daemon.share.decisions import ShareShard
from holdfast.daemon.share.metrics import ShareMetrics
from holdfast.daemon.topics.state_topic import StateTopic
from holdfast.kafka.addresses import parse_address
from holdfast.kafka.connection import ConnectionOptions
from holdfast.metrics.registry import Registry
from holdfast.records.checkpoint import Checkpoint
from holdfast.records.keys import SharePartitionKey
from holdfast.runtime.coordinator import CoordinatorRuntime
from holdfast.runtime.errors import CoordinatorError
from holdfast.runtime.kafka_log.log import KafkaLogConfig
from holdfast.runtime.metrics import RuntimeMetrics
from holdfast.runtime.partition.lifecycle import Partition
from holdfast.runtime.settings import PartitionConfig
from holdfast.runtime.state_machine import Decision, StateMachine
from tests.pure.daemon.share.shard_world import TOPIC, Image, batch
from tests.shards import states_at
from tests.simulated.memory_log import MemoryTopic

CLUSTER = "memory"
TICK_MS = 50


def make_settings(**flags: object) -> Settings:
    """Return settings of a node; names of settings with underscores for dots."""
    return load_settings(flags={"kafka.bootstrap.servers": "127.0.0.1:1"} | flags).settings


def state_topic(topic: MemoryTopic, message_bytes_max: int = 1_048_588) -> StateTopic:
    identity = topic.identity
    return StateTopic("state", identity.topic_id, identity.partition_count, 1, message_bytes_max)


class PartitionsWorld:
    """One node process: its log partitions, and what they reported to the node (`PartitionsHost`)."""

    def __init__(self, topic: MemoryTopic, node_id: int = 1, **flags: object) -> None:
        self.topic = topic
        self.cluster_id = CLUSTER
        self.now_ms = 1_735_689_600_000
        self.settings = make_settings(node_id=node_id, **flags)
        self.registry = Registry(lambda: self.now_ms)
        self.metrics = ShareMetrics(self.registry)
        self.is_ready: list[bool] = []
        self.lost_to: list[str] = []  #: the winner of each log partition that was lost
        self.handed_over: set[int] = set()  #: log partitions that another node is to take
        self.asks_owners = False  #: whether `make_owners` is used
        self.message_bytes_max = 1_048_588
        self.log = topic.open_log()
        self.log_config: KafkaLogConfig | None = None
        self.is_stopped = False
        self.silent_partitions: set[int] = set()  #: of which a silence is told
        self._tasks: deque[Callable[[], None]] = deque()
        self.advertised_address = f"node-{node_id}.example:9492"
        self.readers = log_readers(self.settings, lambda: self.now_ms, ReaderReport(self.metrics))
        self.runtime_metrics = RuntimeMetrics(self.registry)
        self.partitions: Partitions

    @property
    def allotment(self) -> LoneNode:
        """What gives a static node its work."""
        host, port = parse_address(self.advertised_address)
        node = Node(self.settings.node_id, host, port)
        view = OwnView(node, self.cluster_id, state_topic(self.topic), self.partitions.find)
        return LoneNode(node, view, self.partitions, Duties({}))

    def all_loaded(self, is_all_loaded: bool) -> None:
        self.is_ready.append(is_all_loaded)

    def taken_over(self, index: int, winner: Checkpoint) -> bool:
        return index in self.handed_over

    def lost(self, winner: Checkpoint) -> None:
        self.lost_to.append(winner.node_id)

    def make_owners(self, partitions: Partitions) -> Owners:
        raise NotImplementedError

    def begin(self, image: Any = None) -> Partitions:
        """Make the partitions; nothing is connected or loaded yet."""
        self.partitions = Partitions(
            self.settings,
            LogPlace(
                state_topic(self.topic, self.message_bytes_max),
                self.cluster_id,
                ConnectionOptions(bootstrap=(("127.0.0.1", 1),)),
                self.advertised_address,
            ),
            self.readers,
            self,
            self.metrics,
            self.runtime_metrics,
            image=Image({TOPIC: 1_000}) if image is None else image,
            make_owners=self.make_owners if self.asks_owners else None,
            make_shell=self._make_shell,  # type: ignore[arg-type]
            is_left_out=lambda partition: partition in self.silent_partitions,
        )
        return self.partitions

    # ---- the shell: CoordinatorShell without asyncio and Kafka -----------------------------------------------------

    def _make_shell(
        self,
        config: PartitionConfig,
        log_config: KafkaLogConfig,
        make_machine: Callable[[int], StateMachine],
        observer: Partitions,
        *,
        write_timeout_ms: int,
        slice_ms: int,
        metrics: RuntimeMetrics,
        owners: Owners | None,
        **_: object,
    ) -> PartitionsWorld:
        self.log_config = log_config
        self.note = observer.note
        self.partition_changed = observer.partition_changed
        self.superseded = observer.superseded
        self.runtime = CoordinatorRuntime(
            config,
            self.log,
            self,
            make_machine,
            lambda: self.now_ms,
            Random(int(config.node_id)).randbytes,
            lambda: 0.5,
            write_timeout_ms=write_timeout_ms,
            slice_ms=slice_ms,
            metrics=metrics,
            owners=owners,
        )
        return self

    async def start(self) -> None:
        self.log.start(self.runtime)

    async def stop(self, timeout_s: float) -> bool:
        self.runtime.close()
        self.is_stopped = True
        return True

    def continue_soon(self, task: Callable[[], None]) -> None:
        self._tasks.append(task)

    # ---- what a test does ------------------------------------------------------------------------------------------

    async def serve(self, image: Any = None) -> PartitionsWorld:
        """Start and load everything."""
        if not hasattr(self, "partitions"):
            self.begin(image)
        await self.partitions.start()
        self.partitions.load_all()
        self.settle()
        return self

    def settle(self) -> None:
        """Let everything happen that can without time."""
        while self.topic.run_until_quiet() or self._tasks:
            while self._tasks:
                self._tasks.popleft()()

    def tick(self, count: int = 1) -> None:
        """Let time pass, and with it everything settle."""
        for _ in range(count):
            self.now_ms += TICK_MS
            self.runtime.tick()
            self.partitions.ticked()
            self.settle()

    def call(self, index: int, decide: Callable[[ShareShard, int], Decision]) -> object:
        """Run an operation on a log partition to its end and return its outcome."""
        call = Call(decide)
        self.runtime.write(index, call)
        self.settle()
        assert call.outcomes, "it has no outcome"
        return call.outcomes[0]

    def initialize(self, index: int, *keys: SharePartitionKey) -> None:
        for key in keys:
            outcome = self.call(index, lambda shard, now_ms, key=key: shard.decide_initialize(key, 1, 0, now_ms))  # type: ignore[misc]
            assert not isinstance(outcome, CoordinatorError), outcome
            assert not getattr(outcome, "error_code", 0), outcome

    def write(self, index: int, key: SharePartitionKey, first: int) -> object:
        batches = (batch(first, first + 9, 2, 1),)
        return self.call(index, lambda shard, now_ms: shard.decide_write(key, 1, 0, first, 0, batches, now_ms))

    def partition(self, index: int) -> Partition:
        return self.runtime.partitions[index]

    def keys(self) -> set[SharePartitionKey]:
        """Return the share partitions of all shards."""
        found: set[SharePartitionKey] = set()
        for index in self.runtime.partitions:
            held = self.runtime.read(index, lambda shard, position: set(states_at(shard, position)))
            assert isinstance(held, set)
            found |= held
        return found

    def series(self, part: str) -> dict[str, float]:
        """Return the metrics whose names hold `part`."""
        return {name: value for name, value in self.registry.snapshot().items() if part in name}


class Call:
    """An operation that decides by a function and keeps its outcomes."""

    name = "call"

    def __init__(self, decide: Callable[[ShareShard, int], Decision]) -> None:
        self.deadline_ms = 0
        self.is_done = False
        self.outcomes: list[object] = []
        self.decide = decide

    def complete(self, outcome: object) -> None:
        self.outcomes.append(outcome)
