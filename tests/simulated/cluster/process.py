"""One process of a node: an event loop, and the real Kafka log on it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.kafka.connection_options import ConnectionOptions
from holdfast.kafka.errors import ConnectionFailed
from holdfast.metrics.registry import Registry
from holdfast.runtime.kafka_log.log import KafkaLog
from holdfast.runtime.log_protocol import LogListener, LogRecord
from holdfast.runtime.metrics import RuntimeMetrics
from tests.configs import kafka_log_config
from tests.simulated.checks.invariants import Invariant, violate
from tests.simulated.cluster.watch import Watch
from tests.simulated.memory_log import Append, MemoryLog, MemoryPartition

if TYPE_CHECKING:
    from tests.simulated.cluster.brokers import Cluster, ClusterTopic
    from tests.simulated.cluster.node import ClusterNode

START_PAUSE_S = 0.2


class Origins:
    """Which append each record on the wire is."""

    def __init__(self) -> None:
        self._appends: dict[tuple[object, ...], Append] = {}

    def add(self, process: str, append: Append) -> None:
        """Learn of an append."""
        self._appends[process, append.partition, append.header, append.key, append.value] = append

    def find(self, process: str, partition: int, record: LogRecord) -> Append:
        """Return the append of a record that a process sent."""
        found = self._appends.get((process, partition, record.header, record.key, record.value))
        if found is None:
            violate(Invariant.SENT_IS_APPENDED, f"{process} sends {record} to log partition {partition}")
        return found


class Door:
    """Lets what the log tells through to the node, as long as the life goes on."""

    def __init__(self, node: ClusterNode) -> None:
        self._node = node
        self.is_shut = False

    def __getattr__(self, name: str) -> Any:
        if self.is_shut:
            return lambda *_: False
        return getattr(self._node, name)


class Process:
    """A process on the cluster's clock."""

    def __init__(self, cluster: Cluster, client_id: str) -> None:
        self.cluster = cluster
        self.client_id = client_id
        self.loop = cluster.timeline.make_loop()
        self.watch = Watch(self)
        #: the newest (leader epoch, leader) that it was told, by topic id and log partition
        self.leaders: dict[tuple[bytes, int], tuple[int, int]] = {}
        self.is_dead = False
        self.is_closed = False  #: its log is
        self.log: ProcessLog
        self.node: ClusterNode
        self.door: Door
        cluster.processes[client_id] = self

    @contextmanager
    def running(self) -> Iterator[None]:
        """Let the process's loop be the running one."""
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self.loop)
        try:
            yield
        finally:
            asyncio._set_running_loop(before)

    @property
    def is_started(self) -> bool:
        """Tell whether its node works."""
        return hasattr(self, "door") and self.node.is_started

    def run(self, call: Callable[[], object]) -> None:
        """Call on the process's loop, unless it is dead."""
        if not self.is_dead:
            self.loop.call_soon(call)

    def freeze(self) -> None:
        """Let it stand still."""
        self.loop.is_frozen = True

    def thaw(self) -> None:
        """Let it go on: what was due meanwhile happens at once."""
        self.loop.is_frozen = False

    def die(self) -> None:
        """Lose it; what it sent may still be carried out."""
        self.is_dead = True
        self.end()

    def end(self) -> None:
        """Run it no more."""
        self.cluster.timeline.end(self.loop)
        for broker in self.cluster.brokers.values():
            for link in [link for link in broker.links if link.process is self]:
                link.close()

    def learn_leaders(self, topic_id: bytes, leaders: dict[int, tuple[int, int]]) -> None:
        """Take note of what a broker says who leads; what is believed afterwards is not excused by what was known before."""
        for index, (leader, leader_epoch) in leaders.items():
            place = topic_id, index
            self.leaders[place] = max((leader_epoch, leader), self.leaders.get(place, (-1, -1)))

    def told_the_past(self, broker_id: int, pasts: list[tuple[int, int, bool]]) -> None:
        """Learn that a leader of the past answers; where nothing that is known here says so, it is rightly believed.

        A leader of a topic that was deleted answers by its name, and the epochs of the topic that has that name now say nothing
        of it: it is believed rightly where nothing is known of that topic, or that this broker leads it under the same epoch.

        Args:
            broker_id: of the leader.
            pasts: log partition, leader epoch, and whether it is of a deleted topic.
        """
        topic_id = self.cluster.topic.identity.topic_id
        for index, leader_epoch, is_deleted in pasts:
            newest = self.leaders.get((topic_id, index), (-1, -1))
            if newest in ((-1, -1), (leader_epoch, broker_id)) if is_deleted else newest[0] <= leader_epoch:
                self.cluster.count("the past rightly believed")
                self.node.past_told_ms[index] = self.node.world.clock_ms()
            else:
                self.cluster.count("the past known as such")


class ProcessLog(MemoryLog):
    """The real Kafka log of one process, in the shape in which a simulated node has its log."""

    def __init__(
        self, topic: ClusterTopic, process: Process, bounds: dict[str, Any], clock_ms: Callable[[], int]
    ) -> None:
        super().__init__(topic, bounds["producer_queue_records_max"])
        self.process = process
        process.log = self
        cluster = process.cluster
        bootstrap = tuple((f"broker-{number}", number) for number in cluster.brokers)
        config = kafka_log_config(
            topic=topic.name,
            topic_id=topic.identity.topic_id,
            connection=ConnectionOptions(bootstrap=bootstrap, client_id=process.client_id),
            message_bytes_max=topic.message_bytes_max,
            **bounds,
        )
        self.bounds = bounds
        with process.running():
            self.kafka = KafkaLog(config, clock_ms, RuntimeMetrics(Registry()))
        self._read_from: dict[int, MemoryPartition] = {}
        self._numbers: dict[int, int] = {}

    def start(self, listener: LogListener) -> None:
        """Find the brokers, however long that takes, and tell the node."""
        node: Any = listener
        process = self.process
        process.node = node
        process.door = Door(node)

        async def start() -> None:
            while True:
                try:
                    await self.kafka.start(process.door)
                    break
                except ConnectionFailed:
                    process.cluster.count("no broker found at the start")
                    await asyncio.sleep(START_PAUSE_S)
            node.log_started()

        process.loop.create_task(start())

    async def close_in(self, timeout_s: float) -> None:
        """Close the log, then end the process."""
        is_sent = await self.kafka.close(timeout_s)
        self.process.cluster.count("log closed in time" if is_sent else "log closed too late")
        self.process.is_closed = True
        self.process.loop.call_later(1.0, self.process.end)

    def crash(self) -> None:
        """See `MemoryLog.crash`."""
        self.process.die()

    def reads(self, partition: int) -> MemoryPartition | None:
        """See `MemoryLog.reads`."""
        return self._read_from.get(partition)

    def bounds_told(self, partition: int, instance: int, end_offset: int) -> None:
        """Take note that reading began."""
        log = self._read_from[partition] = self._topic.partitions[partition]
        self.process.watch.read_started(partition, instance, log, end_offset)

    def read_before(self, partition: int, ghost: MemoryPartition, *, is_served: bool) -> None:
        """Take note that what is on its way of a log partition, and served of it if so, is not what it holds any more."""
        if is_served and partition in self._read_from:
            self._read_from[partition] = ghost
        self.process.watch.read_before(partition, ghost)

    # ---- Log ---------------------------------------------------------------------------------------------------------

    def append(self, partition: int, key: bytes, value: bytes | None, header: bytes) -> None:
        """See `Log.append`."""
        append = Append(partition, key, value, header, self, self._numbers.get(partition, 0))
        self.kafka.append(partition, key, value, header)
        self._numbers[partition] = append.number + 1
        self.process.cluster.origins.add(self.process.client_id, append)
        self.process.watch.appended(append)
        self.in_flight[partition] = deque([append])

    def start_reading(self, partition: int, instance: int, from_offset: int = 0) -> None:
        """See `Log.start_reading`."""
        self.process.watch.stopping(partition)
        self._read_from.pop(partition, None)
        self.kafka.start_reading(partition, instance, from_offset)

    def stop_reading(self, partition: int) -> None:
        """See `Log.stop_reading`."""
        self.process.watch.stopping(partition)
        self.kafka.stop_reading(partition)

    def query_log_start(self, partition: int, instance: int) -> None:
        """See `Log.query_log_start`."""
        self.kafka.query_log_start(partition, instance)

    def flush_if_all_wait(self) -> None:
        """See `Log.flush_if_all_wait`."""
        self.kafka.flush_if_all_wait()

    def query_latest_offsets(self, round_number: int, partitions: list[int]) -> None:
        """See `Log.query_latest_offsets`."""
        self.process.watch.asked_latest(partitions)
        self.kafka.query_latest_offsets(round_number, partitions)

    def delete_records(self, partition: int, before_offset: int) -> None:
        """See `Log.delete_records`."""
        self.process.loop.call_soon(partial(self.kafka.delete_records, partition, before_offset))
