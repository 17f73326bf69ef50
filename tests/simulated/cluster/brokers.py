"""The cluster: its brokers, its controller, and the one state topic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from tests.simulated.cluster.broker import Broker, Known
from tests.simulated.cluster.replicated import Partition, Past, flip
from tests.simulated.cluster.timeline import Timeline
from tests.simulated.memory_log import MemoryTopic

if TYPE_CHECKING:
    from tests.simulated.cluster.process import Origins, Process

MESSAGE_BYTES_MAX = 2_000


class ClusterTopic(MemoryTopic):
    """The state topic as the cluster has it."""

    name = "topic"

    def make(self, partition_count: int | None = None) -> None:
        """Make the topic, again if it exists; nobody leads it yet."""
        self.times_made += 1
        count = partition_count or len(self.partitions)
        self.partitions = [Partition(index) for index in range(count)]

    def partition(self, index: int) -> Partition:
        """Return a log partition."""
        found = self.partitions[index]
        assert isinstance(found, Partition)
        return found


class Cluster:
    """All brokers, and what the controller does with them."""

    def __init__(
        self, random: Random, timeline: Timeline, topic: ClusterTopic, broker_count: int, counts: Counter[str]
    ) -> None:
        self.random = random
        self.timeline = timeline
        self.topic = topic
        self.processes: dict[str, Process] = {}  #: by client id
        self.origins: Origins
        self.committed: Callable[[], None] = lambda: None  #: called when a high watermark moved
        self.base_latency_s = random.choice((0.0002, 0.0005, 0.002, 0.01))
        self.rewrites_batches = random.random() < 0.1
        self.lag_s = random.choice((0.0, 0.001, 0.001, 0.02))
        self.session_timeout_s = random.choice((0.3, 0.8, 2.0))
        self.flips_left = 0  #: batches that the next answers damage on their way
        self.stalled: set[int] = set()  #: log partitions whose high watermark does not move
        self.deletions_lost = 0
        self.disturbed_s = 0.0  #: when something happened last that may hold anybody up
        self._counts = counts
        self._topic_ids: dict[int, bytes] = {}
        self.brokers = {number: Broker(self, number) for number in range(1, broker_count + 1)}
        for index in range(len(topic.partitions)):
            self.elect(index)
            self.topic.partition(index).may_answer_s = 0.0
        self.spread(at_once=True)

    @property
    def is_well(self) -> bool:
        """Tell whether nothing is wrong with any broker."""
        return not self.stalled and all(
            broker.is_well and broker.slowness == 1 and not broker.throttle_ms and not broker.refusals_left
            for broker in self.brokers.values()
        )

    def disturb(self) -> None:
        """Take note that something happened."""
        self.disturbed_s = self.timeline.now_s

    def calm_down(self) -> None:
        """Let nothing be wrong any more but connections that died without a word, which nobody can tell but who waits."""
        for broker in self.brokers.values():
            broker.is_up, broker.is_cut_off, broker.slowness = True, False, 1.0
            broker.throttle_ms = broker.refusals_left = 0
            broker.keeps_sessions = True
            if broker.is_frozen:
                broker.thaw()
        self.flips_left = self.deletions_lost = 0
        self.stalled.clear()
        self.lead_all()
        for broker in self.brokers.values():
            self.tell(broker)
        for index in range(len(self.topic.partitions)):
            partition = self.topic.partition(index)
            partition.damaged.clear()
            self.replicate_soon(partition)
        self.disturb()

    def cut_dead_links(self) -> None:
        """Cut the connections that died without a word and that nobody waits on; who used several in turn would wait for each."""
        for broker in self.brokers.values():
            for link in [*broker.links]:
                if link.is_mute and not link.unanswered:
                    link.cut()

    def count(self, what: str) -> None:
        """Count that something happened."""
        self._counts[what] += 1

    def latency_s(self) -> float:
        """Return how long a message needs."""
        return self.base_latency_s * (0.5 + self.random.random())

    def flip(self, records: bytes) -> bytes:
        """Return batches of which the first is damaged."""
        size = 12 + int.from_bytes(records[8:12], "big")
        return flip(records[:size]) + records[size:]

    # ---- the controller ------------------------------------------------------------------------------------------------

    def addresses(self) -> dict[int, tuple[str, int]]:
        """Return host and port of the brokers that are registered."""
        return {number: (f"broker-{number}", number) for number, broker in self.brokers.items() if broker.is_up}

    def elect(self, index: int, *, keeps_all: bool = False) -> None:
        """Give a log partition a leader of a new epoch; what is not committed may be lost."""
        partition = self.topic.partition(index)
        well = [number for number, broker in self.brokers.items() if broker.is_well]
        others = [number for number in well if number != partition.leader]
        leader = self.random.choice(others or well) if well else -1
        if leader < 0 and partition.leader < 0:
            return
        partition.pasts[partition.epoch] = Past(
            partition.high_watermark, partition.end_offset, partition.log_start_offset
        )
        partition.leader = leader
        partition.epoch += 1
        if not keeps_all and partition.end_offset > partition.high_watermark:
            end = self.random.choice(partition.ends(partition.high_watermark))
            if end < partition.end_offset:
                self.count("uncommitted records lost")
                partition.truncate(end)
        partition.may_answer_s = self.timeline.now_s + self.random.choice((0, 0.01, 0.15))
        self.replicate_soon(partition)

    def spread(self, *, at_once: bool = False) -> None:
        """Let every broker that can be reached learn who leads, in its own time."""
        for broker in self.brokers.values():
            delay_s = 0.0 if at_once else self.random.choice((0.001, 0.01, 0.1, 0.4))
            self.timeline.after(delay_s, lambda broker=broker: broker.when_awake(lambda: self.tell(broker)))  # type: ignore[misc]
            if at_once:
                self.tell(broker)

    def tell(self, broker: Broker) -> None:
        """Tell a broker who leads now."""
        if broker.is_cut_off or not broker.is_up:
            return
        known = {}
        for index in range(len(self.topic.partitions)):
            partition = self.topic.partition(index)
            known[index] = Known(partition, partition.leader, partition.epoch)
        self._topic_ids[broker.broker_id] = self.topic.identity.topic_id
        broker.learn(known, self.addresses())

    def topic_id_of(self, broker: Broker) -> bytes:
        """Return the topic's id as a broker knows it."""
        return self._topic_ids.get(broker.broker_id, bytes(16))

    def lose_sight(self, broker: Broker) -> None:
        """Take note that a broker may not be there: its partitions get other leaders if it stays away."""

        def look() -> None:
            if not broker.is_well:
                self.count("failed over")
                self.fail_over(broker)

        self.timeline.after(self.session_timeout_s, look)

    def fail_over(self, broker: Broker) -> None:
        """Give what a broker leads to others, if there are any."""
        others = [other for other in self.brokers.values() if other.is_well]
        for index in range(len(self.topic.partitions)):
            partition = self.topic.partition(index)
            if partition.leader == broker.broker_id and (others or not broker.is_up):
                self.elect(index)
        self.spread()

    def lead_all(self) -> None:
        """Give every log partition that has no leader one."""
        for index in range(len(self.topic.partitions)):
            leader = self.topic.partition(index).leader
            if leader < 0 or not self.brokers[leader].is_well:
                self.elect(index)
        self.spread()

    def recreate_topic(self) -> None:
        """Lead a topic that was recreated under its name."""
        for index in range(len(self.topic.partitions)):
            self.elect(index)
        self.spread()

    # ---- the log -------------------------------------------------------------------------------------------------------

    def append(self, partition: Partition, data: bytes, process: Process) -> int:
        """Append a batch as the leader; returns its base offset."""
        base_offset = partition.append(data, self.origins, process.client_id, rewrites=self.rewrites_batches)
        self.replicate_soon(partition)
        return base_offset

    def replicate_soon(self, partition: Partition) -> None:
        """Commit what is in the log now, when the others have it."""
        end, epoch = partition.end_offset, partition.epoch
        if end <= partition.high_watermark:
            return
        delay_s = self.lag_s * self.random.random()

        def commit() -> None:
            if partition.epoch == epoch:
                self.commit(partition, end)

        if delay_s:
            self.timeline.after(delay_s, commit)
        else:
            commit()

    def commit(self, partition: Partition, end: int) -> None:
        """Move the high watermark, if its leader can."""
        leader = self.brokers.get(partition.leader)
        if leader is None or not leader.is_well or partition.index in self.stalled:
            return
        if partition.high_watermark < min(end, partition.end_offset):
            partition.high_watermark = min(end, partition.end_offset)
            self.committed()
            self.look_again(partition)

    def look_again(self, partition: Partition) -> None:
        """Let the leader answer what waited for its log, after what it does now."""
        leader = self.brokers.get(partition.leader)
        if leader is not None:
            self.timeline.after(0, leader.look_again)

    def delete_records(self, index: int, before_offset: int) -> int | None:
        """Cut a log; returns its start, or None if its leader refuses."""
        partition = self.topic.partition(index)
        leader = self.brokers.get(partition.leader)
        if leader is None or not leader.is_well or before_offset > partition.high_watermark:
            return None
        partition.log_start_offset = max(partition.log_start_offset, before_offset)
        self.committed()
        return partition.log_start_offset
