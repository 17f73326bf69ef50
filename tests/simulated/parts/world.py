"""Everything of one life: the topic, the processes, the clock, the truth, and what may happen next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import NamedTuple

from holdfast.records.log.checkpoint import CHECKPOINT_KEY
from holdfast.records.log.header import decode_header
from holdfast.records.share.codecs.codec import Codec, decode_key
from holdfast.records.share.keys import SharePartitionKey
from tests.configs import shard_config
from tests.simulated.around.readers import Groups
from tests.simulated.around.topics import Topics
from tests.simulated.checks.invariants import Invariant, violate
from tests.simulated.checks.truth import Content, Truth
from tests.simulated.memory_log import Append, MemoryLog, MemoryPartition, MemoryTopic
from tests.simulated.parts.machine import WatchedOperation, WatchedShard
from tests.simulated.parts.node import EVERY_PARTITION, Node
from tests.simulated.parts.snapshots import Snapshots

UNBOUNDED = 100_000
MESSAGE_BYTES_MAX = 2_000
#: The key of records whose header nobody can read.
UNREADABLE = b"unreadable"


class Sent(NamedTuple):
    """What an append was meant to be."""

    topic_id: bytes  #: of the topic that its process knows
    attempt_id: bytes | None  #: of the checkpoint that its writer owns the log by
    operation: WatchedOperation | None
    belief: Content | None  #: the state to which it leads, in the eyes of its writer; None: deleted


class World:
    """One topic and the processes around it; all chance comes from one `Random`."""

    snapshots_share = 0.5  #: of lives that have a snapshot topic
    topics_interval_ms = 400  #: between two refreshes of what is known of the topics of users

    def __init__(self, random: Random, trace: Callable[[str], None] | None = None) -> None:
        self.random = random
        self.is_tracing = trace is not None
        self.trace = trace or (lambda text: None)
        self.counts: Counter[str] = Counter()
        self.now_ms = 1_000
        self.step = 0
        choose = random.choice
        self.is_static = random.random() < 0.4
        self.slice_ms = choose((0, 5))
        self.parked_writes_max = choose((UNBOUNDED, UNBOUNDED, 4))
        self.queue_records_max = choose((UNBOUNDED, UNBOUNDED, 3))
        self.has_batches = random.random() < 0.6
        self.is_pruning = random.random() < 0.5
        self.shard_config = shard_config(
            snapshot_update_records_per_snapshot=choose((0, 1, 2, 3, 6)), codec=choose(tuple(Codec))
        )
        self.topic = self._make_topic(choose((1, 1, 1, 2)))
        self.nodes: list[Node] = []  #: the newest process of each node
        self.former: list[Node] = []  #: processes that crashed or were closed
        self.generation = 0
        self.alarm_reasons: set[int] = set()  #: log partitions of which something asks for an alarm
        self.claims = 0  #: first checkpoints of an attempt
        self.lost_attempts: set[bytes] = set()  #: attempts whose checkpoints counted and are in the log no more
        self.kept: list[MemoryPartition] = []  #: logs that were replaced, so that no other takes their id
        self._truths: dict[int, Truth] = {}
        self._starts: dict[int, int] = {}
        self._sent: dict[Append, Sent] = {}
        self._keys: dict[bytes, SharePartitionKey] = {}
        self._meet_topic()
        self.groups = Groups(self)
        self.topics = Topics(self)
        self.is_calm = False
        self.unreadable: dict[int, list[int]] = {}  #: by log partition, offsets of records that nobody can read
        self.foreign_cuts: dict[int, int] = {}  #: by log partition, where another program let it start
        #: none in half of all lives
        self.snapshots = Snapshots(self, random) if random.random() < self.snapshots_share else None

    # ---- what the processes are given ------------------------------------------------------------------------------

    def clock_ms(self) -> int:
        """Return the virtual time."""
        return self.now_ms

    def random_bytes(self, size: int) -> bytes:
        """Return bytes from the seed."""
        return self.random.randbytes(size)

    def count(self, what: str) -> None:
        """Count that something happened."""
        self.counts[what] += 1

    def _make_topic(self, partition_count: int) -> MemoryTopic:
        return MemoryTopic(partition_count, MESSAGE_BYTES_MAX)

    def open_log(self, name: str) -> MemoryLog:
        """Return the log of the next process of a node."""
        log = self.topic.open_log(queue_records_max=self.queue_records_max)
        log.has_batches = self.has_batches
        return log

    def identity_of(self, name: str) -> tuple[str, str]:
        """Return node id and address by which checkpoints name a node; empty: no address."""
        return name, ""

    def make_node(self, name: str) -> Node:
        """Return the next process of a node."""
        return Node(self, name, is_static=self.is_static)

    # ---- processes -------------------------------------------------------------------------------------------------

    def start(self, name: str) -> Node:
        """Start one more node."""
        node = self.make_node(name)
        self.nodes.append(node)
        self.join(node)
        return node

    def restart(self, before: Node) -> Node:
        """Start the process that follows one that crashed or was closed."""
        node = self.make_node(before.name)
        self.nodes[self.nodes.index(before)] = node
        self.former.append(before)
        self.join(node)
        return node

    def join(self, node: Node) -> None:
        """Let a process begin its work."""
        if self.is_static:
            node.load_all()
        else:
            self.rebalance()

    def rebalance(self) -> None:
        """Assign every log partition anew; each node learns of it in its own time."""
        living = [node for node in self.nodes if not node.is_dead and not node.is_closed]
        # What a group's leader hands out is above all that its members have seen, in assignments and in logs.
        held = [partition for node in living for partition in node.runtime.partitions.values()]
        seen = [max(each.ownership.generation_max, each.generation or 0) for each in held]
        self.generation = 1 + max(self.generation, *seen, 0)
        owners = {index: self.random.choice(living) for index in range(len(self.topic.partitions))}
        for node in living:
            node.views.append((self.generation, owners))

    # ---- truth -----------------------------------------------------------------------------------------------------

    def _meet_topic(self) -> None:
        for truth in self._truths.values():
            truth.is_judged = truth.awaits_load = False
        for partition in self.topic.partitions:
            self._truths[id(partition)] = Truth(partition, self.shard_config.snapshot_update_records_per_snapshot)
            self._starts[id(partition)] = 0

    def recreate_topic(self) -> None:
        """Recreate the topic under its name."""
        self.topic.make()
        self.alarm_reasons.add(EVERY_PARTITION)
        self.unreadable.clear()
        self.foreign_cuts.clear()
        self._meet_topic()

    def meet_partition(self, index: int) -> None:
        """Judge a log partition that is new."""
        partition = self.topic.partitions[index]
        self._truths[id(partition)] = Truth(partition, self.shard_config.snapshot_update_records_per_snapshot)
        self._starts[id(partition)] = 0

    def replace_log(self, index: int, partition: MemoryPartition, *, is_whole: bool) -> None:
        """Let a log partition be another than it was; who knows the earlier one is judged no more.

        Where the new one is not whole, nobody is: what stands in it may rest on what is gone.
        """
        self._truths[id(self.topic.partitions[index])].is_judged = False
        self.kept.append(self.topic.partitions[index])
        self.topic.partitions[index] = partition
        self.alarm_reasons.add(index)
        self._starts[id(partition)] = partition.log_start_offset
        truth = Truth(partition, self.shard_config.snapshot_update_records_per_snapshot, partition.log_start_offset)
        truth.is_judged, truth.awaits_load = False, is_whole
        self._truths[id(partition)] = truth

    def damage_before(self, index: int, end: int) -> int:
        """Return the newest offset below `end` of which an admin must say that it is well; -1 if there is none."""
        partition = self.topic.partitions[index]
        records, start = partition.records, partition.log_start_offset
        found = [at for at in self.unreadable.get(index, ()) if start <= at < end and records[at].key == UNREADABLE]
        if self.foreign_cuts.get(index) == partition.log_start_offset:
            first = next((at for at in range(partition.log_start_offset, end) if at not in partition.holes), end)
            if first == end or partition.records[first].key != CHECKPOINT_KEY:
                found.append(partition.log_start_offset)
        return max(found, default=-1)

    def superseded(self, node: Node, index: int, generation: int) -> None:
        """Learn of a generation in a log; if the group's is lower, it assigns everything again above it."""
        if not self.is_static and generation > self.generation:
            self.count("generation raised")
            self.generation = generation
            self.rebalance()

    def truth_of(self, log: MemoryPartition | None, index: int) -> Truth:
        """Return the truth about what a node reads, or about a log partition as it is now."""
        return self._truths[id(log or self.topic.partitions[index])]

    def sent(self, node: Node, append: Append, operation: WatchedOperation | None, machine: object) -> None:
        """Learn of an append, right after it was handed over."""
        assert append.key is not None
        assert append.header is not None
        epoch, sequence = decode_header(append.header)
        topic_id = node.runtime.config.log.topic_id
        attempt_id = node.runtime.partitions[append.partition].ownership.attempt_id
        if append.key == CHECKPOINT_KEY:
            self.claims += sequence == 0
            self._sent[append] = Sent(topic_id, attempt_id, None, None)
        else:
            assert isinstance(machine, WatchedShard)
            key = self._keys.get(append.key)
            if key is None:
                key = self._keys[append.key] = decode_key(append.key)
            self._sent[append] = Sent(topic_id, attempt_id, operation, machine.newest(key))
        if self.is_tracing:
            what = "a checkpoint" if append.key == CHECKPOINT_KEY else f"a record of {operation}"
            self.trace(f"  {node.name}/{append.partition} appends {what}, epoch {epoch}, sequence {sequence}")

    def settle(self, node: Node | None) -> None:
        """Fold what was committed, then check all that may have changed."""
        for index, partition in enumerate(self.topic.partitions):
            truth = self._truths[id(partition)]
            if truth.next_offset < partition.high_watermark:
                self._meet_committed(truth)
            if partition.log_start_offset != self._starts[id(partition)]:
                self._starts[id(partition)] = partition.log_start_offset
                self.count("log start moved")
                if self.is_tracing:
                    self.trace(f"  log {index} starts at {partition.log_start_offset}")
                if truth.is_judged:
                    truth.check_fresh_reader()
                # Whoever cuts a log that nobody has loaded since it lost something may rest on what is gone.
                truth.awaits_load = False
        if node is not None:
            node.check()

    def _meet_committed(self, truth: Truth) -> None:
        start = truth.next_offset
        for offset, append, key in truth.fold():
            sent = self._sent.get(append)
            if self.is_tracing:
                what = "a checkpoint" if key is None else f"{key.group_id}:{key.partition}"
                self.trace(
                    f"  offset {offset} counts: {what}{f' by {sent.operation}' if sent and sent.operation else ''}"
                )
            if sent is not None and sent.topic_id != self.topic.identity.topic_id:
                # Only a producer that names the topic by its id could keep this out; our checkpoints make it an alarm at least.
                truth.is_judged = False
            if sent is not None and sent.attempt_id in self.lost_attempts and sent.attempt_id != truth.owner_at(offset):
                # Where a log lost its newest checkpoint, the next claim may have the same owner epoch, and what the earlier owner
                # still sends counts for it. Its writer knows nothing of what stands there, so not even its snapshots have the
                # fences of those before them, on which a load rests that decodes only the newest.
                truth.is_judged = truth.awaits_load = False
            if key is None or sent is None or not truth.is_judged:
                continue
            state = truth.versions[key][-1][1]
            found = None if state is None else state[:5] + state[7:10]
            if found != sent.belief:
                text = (
                    f"{sent.operation} at offset {offset} of {key} leads to {found}, and its writer meant {sent.belief}"
                )
                violate(Invariant.DECIDED_ON_ITS_STATE, text)
        if self.is_tracing:
            voids = [at for at in range(start, truth.next_offset) if not truth.counts_at(at)]
            self.trace(f"  committed to {truth.next_offset}{f', void: {voids}' if voids else ''}")
