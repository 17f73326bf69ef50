"""The log partitions of a node over the log in memory: all is real but Kafka, the clock and the event loop's turns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any, Self

from holdfast.daemon.components import log_readers
from holdfast.daemon.internal_errors import InternalErrors
from holdfast.daemon.log_metrics import LogMetrics
from holdfast.daemon.maintenance.reader_offsets import ReaderReport
from holdfast.daemon.membership.duties import Duties
from holdfast.daemon.membership.lone_node import LoneNode
from holdfast.daemon.partitions.own_view import OwnView
from holdfast.daemon.partitions.owners import Owners
from holdfast.daemon.partitions.partitions import LogPlace, Partitions
from holdfast.daemon.server.cluster_view import Node
from holdfast.daemon.settings.models import Settings
from holdfast.daemon.topics.state_topic import StateTopic
from holdfast.kafka.addresses import format_address
from holdfast.kafka.connection_options import ConnectionOptions
from holdfast.metrics.instruments import Counter
from holdfast.metrics.line_limit import LineLimiter
from holdfast.metrics.registry import Registry
from holdfast.node_settings import load_settings
from holdfast.records.log.checkpoint import Checkpoint
from holdfast.records.share.keys import SharePartitionKey
from holdfast.runtime.coordinator import CoordinatorRuntime
from holdfast.runtime.kafka_log.log import KafkaLogConfig
from holdfast.runtime.metrics import RuntimeMetrics
from holdfast.runtime.partition.lifecycle import Partition
from holdfast.runtime.settings import PartitionConfig
from holdfast.runtime.state_machine import StateMachine
from holdfast.share.metrics import ShareMetrics
from holdfast.share.shard_kind import ShareShards
from tests.shards import states_at
from tests.simulated.memory_log import MemoryTopic
from tests.world.process import Clock, Decide, Process
from tests.world.samples import TOPIC, Image
from tests.world.share_calls import initialize, write_ten

CLUSTER = "memory"


def make_settings(**flags: object) -> Settings:
    """Return settings of a node without a group, for there is no group coordinator."""
    return load_settings(flags={"kafka.bootstrap.servers": "127.0.0.1:1", "membership": "static"} | flags).settings


def state_topic(topic: MemoryTopic, message_bytes_max: int = 1_048_588) -> StateTopic:
    identity = topic.identity
    return StateTopic("state", identity.topic_id, identity.partition_count, 1, message_bytes_max)


class Shell:
    """A process in the place of `CoordinatorShell`: without asyncio and Kafka."""

    def __init__(self, process: Process, log_config: KafkaLogConfig) -> None:
        self.process = process
        self.log_config = log_config
        self.runtime = process.runtime

    async def start(self) -> None:
        self.process.start()

    def renew_log(self, topic_id: bytes) -> None:
        self.runtime.renew_log(topic_id)

    async def stop(self, timeout_s: float) -> bool:
        self.runtime.close()
        return True


class Brokers:
    """The brokers that a node reaches (`ReachedBrokers`): those that have its log, until a test says otherwise."""

    def __init__(self) -> None:
        self.another_cluster = ""


class PartitionsWorld:
    """One node process: its log partitions, and what they reported to the node (`PartitionsHost`)."""

    def __init__(self, topic: MemoryTopic, node_id: int = 1, **flags: Any) -> None:
        self.topic = topic
        self.node = Node(node_id, f"node-{node_id}.example", 9492)
        self.advertised_address = format_address(self.node.host, self.node.port)
        self.cluster_id = CLUSTER
        self.clock = Clock()
        self.settings = make_settings(node_id=node_id, **flags)
        self.registry = Registry()
        self.metrics, self.share_metrics = LogMetrics(self.registry), ShareMetrics(self.registry)
        self.runtime_metrics = RuntimeMetrics(self.registry)
        self.readers = log_readers(self.settings, self.clock, ReaderReport(self.metrics))
        self.is_ready: list[bool] = []
        self.brokers = Brokers()
        #: Of each tick.
        self.late_ms: list[float] = []
        #: The winner of each log partition that was lost.
        self.lost_to: list[str] = []
        #: Log partitions that another node is to take.
        self.handed_over: set[int] = set()
        self.message_bytes_max = 1_048_588
        #: Of which a silence is told.
        self.silent_partitions: set[int] = set()
        #: Makes what queries earlier owners; None: none is queried.
        self.make_owners: Callable[[Partitions], Owners] | None = None
        self.is_begun = False
        self.partitions: Partitions
        self.kind: ShareShards
        self.shell: Shell

    @property
    def allotment(self) -> LoneNode:
        """What gives a static node its work."""
        return LoneNode(self.node, self.view, self.partitions, Duties({}, InternalErrors(Counter())))

    def all_loaded(self, is_all_loaded: bool) -> None:
        self.is_ready.append(is_all_loaded)

    def taken_over(self, index: int, winner: Checkpoint) -> bool:
        return index in self.handed_over

    def lost(self, winner: Checkpoint) -> None:
        self.lost_to.append(winner.node_id)

    def turned(self, late_ms: float) -> None:
        self.late_ms.append(late_ms)

    def begin(self, image: Any = None) -> Partitions:
        """Make the partitions; nothing is connected or loaded yet."""
        topic, options = (
            state_topic(self.topic, self.message_bytes_max),
            ConnectionOptions(bootstrap=(("127.0.0.1", 1),)),
        )
        self.kind = ShareShards(self.settings, topic, self.share_metrics)
        limiter = LineLimiter()
        limiter.leave_effects_to(lambda partition: partition in self.silent_partitions)
        self.partitions = Partitions(
            self.settings,
            LogPlace(topic, self.cluster_id, options, self.node),
            self.readers,
            self,
            self.kind,
            self.metrics,
            self.runtime_metrics,
            limiter,
            image=Image({TOPIC: 1_000}) if image is None else image,
            make_owners=self.make_owners,
            make_shell=self._make_shell,  # type: ignore[arg-type]
        )
        self.is_begun = True
        return self.partitions

    def _make_shell(
        self,
        config: PartitionConfig,
        log_config: KafkaLogConfig,
        make_machine: Callable[[int], StateMachine],
        observer: Partitions,
        *,
        tick_ms: int,
        **given: Any,
    ) -> Shell:
        config = replace(config, advertised_address=self.advertised_address)
        process = Process(self.topic, config, make_machine, clock=self.clock, observer=observer, **given)
        process.at_tick.append(lambda: observer.ticked(0))
        self.shell = Shell(process, log_config)
        return self.shell

    @property
    def process(self) -> Process:
        return self.shell.process

    @property
    def runtime(self) -> CoordinatorRuntime:
        return self.process.runtime

    @cached_property
    def view(self) -> OwnView:
        """What the node tells of the cluster."""
        return OwnView(self.node, self.cluster_id, state_topic(self.topic), self.partitions.find)

    # ---- what a test does ------------------------------------------------------------------------------------------

    async def serve(self, image: Any = None) -> Self:
        """Start and load everything."""
        if not self.is_begun:
            self.begin(image)
        await self.partitions.start()
        self.partitions.load_all()
        self.settle()
        return self

    def settle(self) -> None:
        """Let everything happen that can without time; before `begin` there is nothing that could."""
        if self.is_begun:
            self.process.settle()

    def tick(self, count: int = 1) -> None:
        """Let time pass, and with it everything settle."""
        self.process.tick(count)

    def call(self, index: int, decide: Decide) -> object:
        """Run an operation on a log partition to its end and return its outcome."""
        return self.process.call(index, decide)

    def initialize(self, index: int, *keys: SharePartitionKey) -> None:
        for key in keys:
            initialize(self.process, index, key)

    def write(self, index: int, key: SharePartitionKey, first: int) -> object:
        return write_ten(self.process, index, key, first, first)

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
        return {name: value for name, value in self.registry.numbers() if part in name}
