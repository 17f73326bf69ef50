"""Everything of one life on the cluster: the brokers, the processes, the clock, the truth."""

from __future__ import annotations

from collections.abc import Callable, Set
from random import Random

from tests.simulated.checks.truth import Truth
from tests.simulated.cluster.brokers import MESSAGE_BYTES_MAX, Cluster, ClusterTopic
from tests.simulated.cluster.node import ClusterNode
from tests.simulated.cluster.process import Origins, Process, ProcessLog
from tests.simulated.cluster.replicated import Partition
from tests.simulated.cluster.timeline import Timeline
from tests.simulated.memory_log import MemoryLog, MemoryTopic
from tests.simulated.parts.node import Node
from tests.simulated.parts.world import World

#: The earliest time of the world's clock.
BEGIN_MS = 1_000


class ClusterWorld(World):
    """A cluster and the processes around it."""

    snapshots_share = 0

    def __init__(self, random: Random, trace: Callable[[str], None] | None = None) -> None:
        self.timeline = Timeline()
        super().__init__(random, trace)
        choose = random.choice
        assert isinstance(self.topic, ClusterTopic)
        broker_count = choose((1, 2, 3, 3))
        self.cluster = Cluster(random, self.timeline, self.topic, broker_count, self.counts)
        self.cluster.origins = Origins()
        self.cluster.committed = lambda: self.settle(None)
        self.bounds = {
            "producer_queue_records_max": self.queue_records_max,
            "message_timeout_ms": choose((1_000, 2_500, 4_000)),
            "request_timeout_ms": choose((400, 1_000)),
            "append_linger_ms": choose((-1, -1, 2)),
            "produce_requests_in_flight_max": choose((1, 2, 4)),
            "append_linger_max_ms": choose((20, 100)),
            "fetch_wait_ms": choose((100, 300)),
            "fetch_bytes_max": choose((4_000_000, 4_000_000, 1_000)),
            "fetch_partition_bytes_max": choose((1_000_000, 1_000_000, 500)),
            "slice_records_max": choose((2, 200)),
            "state_topic_compression_codec": choose((0, 0, 1)),
        }
        self.ends_lost: set[int] = set()  #: log partitions that had been cut when they lost their end
        self.starts_fell_back: set[int] = set()  #: log partitions that start, or started, below a cut
        self.made_whole: set[int] = set()  #: log partitions whose owner has written again what another program deleted
        self._whole_from: dict[int, int] = {}  #: by log partition that another program cut: where its truth begins
        self._processes = 0
        self._ghosts: list[Partition] = []  #: logs as somebody knows them who read them before something was lost

    def _make_topic(self, partition_count: int) -> MemoryTopic:
        return ClusterTopic(partition_count + (self.random.random() < 0.3), MESSAGE_BYTES_MAX)

    def clock_ms(self) -> int:
        """Return the virtual time."""
        return BEGIN_MS + int(self.timeline.now_s * 1_000)

    def open_log(self, name: str) -> MemoryLog:
        """Return the real Kafka log of the next process of a node."""
        self._processes += 1
        process = Process(self.cluster, f"{name}-{self._processes}")
        assert isinstance(self.topic, ClusterTopic)
        return ProcessLog(self.topic, process, self.bounds, self.clock_ms)

    def make_node(self, name: str) -> Node:
        """Return the next process of a node."""
        return ClusterNode(self, name, is_static=self.is_static)

    def join(self, node: Node) -> None:
        """Let a process begin its work, once it has found the brokers."""
        if isinstance(node, ClusterNode) and node.is_started:
            super().join(node)

    def rebalance(self) -> None:
        """Assign every log partition anew; each node learns of it in its own time."""
        super().rebalance()
        for node in self.nodes:
            assert isinstance(node, ClusterNode)
            if node.views and node.is_started:
                delay_s = self.random.choice((0.001, 0.05, 0.5))
                self.timeline.after(delay_s, lambda node=node: node.process.run(node.learn_views))  # type: ignore[misc]

    # ---- what takes away what was committed ------------------------------------------------------------------------

    def recreate_topic(self) -> None:
        """Make the topic again under its name."""
        super().recreate_topic()
        for partition in self.topic.partitions:  # who reads it now may have been told the bounds of its namesake
            self._truths[id(partition)].is_judged = False
        self.ends_lost.clear()
        self.starts_fell_back.clear()
        self._whole_from.clear()
        self.cluster.recreate_topic()

    def move_start_back(self, index: int, log_start: int) -> None:
        """Let a log start where it started before, as after a crash of all its brokers."""
        partition = self.cluster.topic.partition(index)
        partition.log_start_offset = self._starts[id(partition)] = log_start
        self.starts_fell_back.add(index)
        before = self._truths[id(partition)]
        # What a cut took away was needed no more, so what is told of it again changes nothing.
        self._judge_anew(index, is_whole=before.is_judged or before.awaits_load, truth_start=before.start_offset)

    def cut_by_others(self, index: int, before_offset: int) -> None:
        """Let another program delete records."""
        partition = self.cluster.topic.partition(index)
        before = self._truths[id(partition)]
        if before.is_judged or before.awaits_load:
            self._whole_from[index] = before.start_offset
        partition.log_start_offset = self._starts[id(partition)] = before_offset
        self.foreign_cuts[index] = before_offset
        self.made_whole.discard(index)
        self._judge_anew(index, is_whole=False)

    def log_made_whole(self, index: int) -> None:
        """Hold loads to all that the log ever held, of which its owner has written again what another program deleted."""
        start = self._whole_from.pop(index, None)
        self.foreign_cuts.pop(index, None)
        if start is not None:
            self.count("log made whole")
            self.made_whole.add(index)
            self._judge_anew(index, is_whole=True, truth_start=start)

    def lose_end(self, index: int, end_offset: int) -> None:
        """Lose committed records, as when a broker that was not in sync becomes the leader."""
        partition = self.cluster.topic.partition(index)
        self._whole_from.pop(index, None)
        if partition.log_start_offset:
            self.ends_lost.add(index)
        before = self._truths[id(partition)]
        owners = {before.owner_at(offset) for offset in range(end_offset, before.next_offset)}
        lost_owners = {owner for owner in owners if owner is not None and owner != before.owner_at(end_offset - 1)}
        self.lost_attempts |= lost_owners
        partition.truncate(end_offset)
        self.cluster.elect(index, keeps_all=True)
        self.cluster.spread()
        is_whole = not partition.log_start_offset
        self._judge_anew(index, is_whole=is_whole, judges_loads=True, lost_owners=lost_owners)

    def _judge_anew(
        self,
        index: int,
        *,
        is_whole: bool,
        judges_loads: bool = False,
        lost_owners: Set[bytes | None] = frozenset(),
        truth_start: int | None = None,
    ) -> None:
        """Judge nobody who serves the log as it was; what is there now is the truth for whoever loads it.

        Args:
            index: of the log partition.
            is_whole: whether all that the truth needs is still there.
            judges_loads: whether that holds for loads as well that began before.
            lost_owners: attempts whose checkpoints counted and are gone; a load that may have read its own ends as if it served.
            truth_start: from where the truth is folded; the log start if None.
        """
        partition = self.topic.partitions[index]
        self._truths[id(partition)].is_judged = False
        truth = self._truths[id(partition)] = Truth(
            partition,
            self.shard_config.snapshot_update_records_per_snapshot,
            partition.log_start_offset if truth_start is None else truth_start,
        )
        truth.is_judged, truth.awaits_load = False, is_whole
        ghost = Partition(index)
        self._truths[id(ghost)] = unjudged = Truth(ghost, 0)
        unjudged.is_judged = False
        self._ghosts.append(ghost)
        self.alarm_reasons.add(index)
        for process in self.cluster.processes.values():
            is_loading = process.is_started and process.node.is_loading(index)
            is_judged = (
                judges_loads
                and is_loading
                and process.node.runtime.partitions[index].ownership.attempt_id not in lost_owners
            )
            process.log.read_before(index, ghost, is_served=not is_judged)
        self.settle(None)

    # ---- the end ---------------------------------------------------------------------------------------------------

    def dispose(self) -> None:
        """Let nothing be left of any process."""
        for process in self.cluster.processes.values():
            if hasattr(process, "door"):
                process.door.is_shut = True
            process.is_dead = True
            process.loop.dispose()
