"""One seed is one life on the cluster: faults first, then a calm in which all that can be done is done, within a bounded time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from random import Random
from typing import Any

from holdfast.api.results import (
    InitializePartition,
    PartitionRequest,
    ReadPartition,
    StateRequest,
    StateResponse,
    WritePartition,
)
from holdfast.api.share_state import INITIALIZE, READ, WRITE
from holdfast.kafka import aiokafka_parts
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.records.share.batches import StateBatch
from holdfast.records.share.keys import SharePartitionKey, log_partition
from holdfast.runtime.partition.states import State
from tests.simulated.around.topics import TOPIC_ID
from tests.simulated.checks.invariants import FOUND, Invariant, violate
from tests.simulated.cluster import inside
from tests.simulated.cluster.broker import Broker
from tests.simulated.cluster.brokers import Cluster
from tests.simulated.cluster.faults import DURATIONS_S, FAULTS
from tests.simulated.cluster.node import ClusterNode
from tests.simulated.cluster.transport import Connector, dial
from tests.simulated.cluster.world import ClusterWorld
from tests.simulated.life import UPDATE_ALONE
from tests.simulated.parts.node import EVERY_PARTITION, Node
from tests.simulated.parts.requests import GROUP, Clients
from tests.simulated.parts.world import UNBOUNDED

PAUSES_S = (0.0, 0.0, 0.001, 0.005, 0.02, 0.02, 0.05, 0.05, 0.1, 0.3)
#: In which all log partitions find their owners; a load that fails on the way waits for its back-off.
CONVERGENCE_S = 120.0
#: So long at the most is a claim on its way, and read.
CLAIM_LANDS_S = 2.0
#: In which all that was begun ends: a batch is given up, a request times out.
DRAIN_S = 12.0
#: Times that what waits may end with a load that begins more: each finds a connection that died without a word.
DRAINS_MAX = 10
#: After which what was refused for want of room is asked again.
RETRY_S = 0.1
#: In which a log is cut.
PRUNING_S = 15.0
#: What an answer may take beside four messages, their way through the log and lingering.
PROMPT_S = 0.09


@contextmanager
def standing_in(cluster: Cluster) -> Iterator[None]:
    """Let connections lead to the cluster."""
    names: dict[str, Any] = vars(aiokafka_parts)
    stand_ins: dict[str, Callable[..., Any]] = {"dial": dial, "_BoundedConnection": Connector}
    real = {name: names[name] for name in stand_ins}
    names.update({name: partial(stand_in, cluster) for name, stand_in in stand_ins.items()})
    try:
        yield
    finally:
        names.update(real)


class ClusterLife:
    """A cluster and the choices made in it."""

    def __init__(self, seed: int, trace: Callable[[str], None] | None = None) -> None:
        random = self.random = Random(f"cluster {seed}")
        world = self.world = ClusterWorld(random, trace)
        self.clients = Clients(world)
        self.steps = random.randint(60, 200)
        share = random.choice((0.1, 0.25, 0.45))
        faults = [kind for kind in FAULTS if random.random() < share]
        self.faults = [] if random.random() < 0.05 else faults
        self.has_disasters = random.random() < 0.3  #: faults that take away what was committed
        self.mends_damage = True
        self.node_count = random.choice((1, 1, 2, 2, 3))
        self.is_free_of_faults = (
            not self.faults and self.node_count == 1 and UNBOUNDED == world.parked_writes_max == world.queue_records_max
        )
        self._going_on: list[Callable[[], None]] = []  #: ends of faults that are not over
        self._troubles = 0

    def run(self) -> Counter[str]:
        """Live; returns what happened how often.

        Raises:
            Violation: an invariant did not hold.
        """
        world = self.world
        FOUND.clear()
        with standing_in(world.cluster):
            try:
                if self.is_free_of_faults:
                    world.count("life without faults")
                for number in range(self.node_count):
                    world.start("abc"[number])
                if self.random.random() < 0.6:
                    world.timeline.run(0.5)
                for _ in range(self.steps):
                    self._step()
                self._calm_down()
                self._close()
                if FOUND:
                    raise FOUND[0]
            finally:
                world.dispose()
        return world.counts

    # ---- faults ----------------------------------------------------------------------------------------------------

    def _say(self, text: str) -> None:
        if self.world.is_tracing:
            self.world.trace(f"{self.world.step} at {self.world.clock_ms()} ms: {text}")

    def _step(self) -> None:
        world = self.world
        world.step += 1
        chance = self.random.random()
        if chance < 0.03:
            for node in world.nodes:
                if node.is_dead:
                    self.restart(node)
                    break
        elif chance < 0.75:
            self._request()
        elif self.faults and chance < 0.93:
            kind = self.random.choice(self.faults)
            node = self.random.choice(world.nodes)
            assert isinstance(node, ClusterNode)
            self._say(f"{kind} ({node.name})")
            with node.process.running():
                if FAULTS[kind](self, node):
                    world.count(f"fault: {kind}")
                    world.cluster.disturb()
            if not node.is_dead:
                node.check_turn()
        if chance > 0.97:
            world.groups.step()
        world.timeline.run(self.random.choice(PAUSES_S))
        if self.is_free_of_faults:
            for what in ("loading -> failed", "active -> failed", "outcome: TimedOut"):
                if world.counts[what]:
                    violate(Invariant.NOTHING_FAILS_WITHOUT_FAULTS, f"{what} in step {world.step}")

    def for_a_while(self, end: Callable[[], None]) -> None:
        """Let a fault end after a while, or when the calm begins."""

        def end_once() -> None:
            if end_once in self._going_on:
                self._going_on.remove(end_once)
                self._say(f"{end.__qualname__.split('.')[0]} ends")
                end()
                self.world.cluster.disturb()

        self._going_on.append(end_once)
        self.world.timeline.after(self.random.choice(DURATIONS_S), end_once)

    def mend(self, broker: Broker) -> None:
        """Let a broker that is back learn who leads, and what it leads go on."""
        cluster = self.world.cluster
        if broker.is_well:
            cluster.tell(broker)
            cluster.lead_all()
            for index in range(len(cluster.topic.partitions)):
                cluster.replicate_soon(cluster.topic.partition(index))
            broker.look_again()

    def _request(self) -> None:
        world, random = self.world, self.random
        nodes = [node for node in world.nodes if not node.is_dead and not node.is_closed]
        serving = [node for node in nodes if any(node.serves(index) for index in range(len(world.topic.partitions)))]
        nodes = serving if serving and random.random() < 0.9 else nodes
        if nodes:
            node = random.choice(nodes)
            for _ in range(random.choice((1, 1, 1, 4))):
                self._say(f"request to {node.name}")
                self.clients.send(node)

    def restart(self, node: Node) -> None:
        """Start the process that follows one that crashed or was closed."""
        self._say(f"{node.name} starts again")
        self.world.count("restart")
        self.world.restart(node)

    # ---- calm ------------------------------------------------------------------------------------------------------

    def _calm_down(self) -> None:
        world = self.world
        world.step += 1
        self._say("calm")
        while self._going_on:
            self._going_on[0]()
        world.cluster.calm_down()
        world.timeline.run(0.5)
        for node in [*world.nodes]:
            node.planted = None
            node.runtime.trust_log()
            if node.is_dead or node.is_closed:
                self.restart(node)
            elif node.runtime.config.log != world.topic.identity:
                node.crash()
                self.restart(node)
        if not world.is_static:
            world.rebalance()
        world.is_calm = world.groups.is_calm = True
        world.topics.calm_down()
        # An append whose answer was lost before the calm is given up in it; its log partition fails then, and loads once more.
        for _ in range(DRAINS_MAX):
            self._wait_for_owners()
            if not self._unfinished():
                break
            self._wait(
                "what was begun ends", Invariant.DRAINS, DRAIN_S, lambda: not self._unfinished(), self._unfinished
            )
        else:
            violate(Invariant.CONVERGES, f"something was begun that waits after {DRAINS_MAX} rounds")
        world.cluster.cut_dead_links()
        for index in range(len(world.topic.partitions)):
            self._probe(index)
        if world.is_pruning:
            self._wait_for_cuts()
        for node in world.nodes:
            for operation in node.operations:
                if not operation.outcomes and operation.deadline_ms <= world.clock_ms():
                    violate(Invariant.ALWAYS_ANSWERED, f"{operation} has no outcome")
        for number, node in self.clients.unanswered.items():
            if not node.is_dead:
                violate(Invariant.ALWAYS_ANSWERED, f"request {number} to {node.name} has no answer")

    def _wait(
        self,
        what: str,
        invariant: Invariant,
        limit_s: float,
        condition: Callable[[], bool],
        tell: Callable[[], object],
    ) -> None:
        timeline = self.world.timeline
        end_s = timeline.now_s + limit_s
        while not condition():
            if timeline.now_s >= end_s:
                violate(invariant, f"{what}: not within {limit_s} s: {tell()}")
            timeline.run(0.05)
            self.world.groups.step()

    def _wait_for_owners(self) -> None:
        world = self.world
        claims, partitions = world.claims, range(len(world.topic.partitions))
        accepts = world.counts["accept"]

        def have_owners() -> bool:
            self._accept_alarmed()
            self._take_abandoned()
            return all(self._owner(index) is not None for index in partitions)

        def tell() -> object:
            return [
                (node.name, index, partition.state.value, partition.failure)
                for node in world.nodes
                for index, partition in node.runtime.partitions.items()
            ]

        self._wait("every log partition has an owner", Invariant.CONVERGES, CONVERGENCE_S, have_owners, tell)
        # Each node may still take it once: those that lost it, and an alarm that was cleared meanwhile.
        self._wait("nobody tries again", Invariant.CONVERGES, CONVERGENCE_S, lambda: not self._retries(), tell)
        if world.counts["accept"] > accepts:
            # Two may have accepted a log at once: the claim that lost may land last, and who reads it in the log it serves loads once more.
            world.timeline.run(CLAIM_LANDS_S)
            self._wait("nobody tries again", Invariant.CONVERGES, CONVERGENCE_S, lambda: not self._retries(), tell)
        self._wait("every log partition has an owner", Invariant.CONVERGES, CONVERGENCE_S, have_owners, tell)
        if world.claims - claims > 6 * len(world.nodes) * len(partitions):
            violate(Invariant.NOBODY_FIGHTS, f"{world.claims - claims} checkpoints were taken")

    def _retries(self) -> bool:
        """Tell whether some process will still try to load, or has something to learn."""
        self._accept_alarmed()
        nodes = [node for node in self.world.nodes if isinstance(node, ClusterNode)]
        # One that has just begun finds the brokers first.
        return any(node.views or not node.is_started for node in nodes) or any(
            (partition.retry_at_ms is not None and not partition.is_alarmed) or partition.state is State.LOADING
            for node in nodes
            for partition in node.runtime.partitions.values()
        )

    def _accept_alarmed(self) -> None:
        """Let an admin accept a log for which an alarm was raised, once for each process and time that it was assigned.

        One that another program cut just before a checkpoint raises none: it may only lack the snapshots of some updates.
        So may one that was cut and then lost its end, with the snapshots in it, at a process that never saw them.
        """
        for node in self.world.nodes:
            assert isinstance(node, ClusterNode)
            for index, partition in node.runtime.partitions.items():
                # A load that was accepted may be unloaded before it has written so.
                is_accepted = index in node.accepted and node.accepted[index] == partition.generation
                may_lack_them = index in self.world.foreign_cuts or index in self.world.ends_lost
                lacks_snapshots = may_lack_them and UPDATE_ALONE in (partition.failure or "")
                # What a leader of the past told of ends by itself.
                is_alarmed = partition.is_alarmed and bool(self.world.alarm_reasons & {index, EVERY_PARTITION})
                if (is_alarmed or lacks_snapshots) and not is_accepted and node.is_running:
                    self.world.count("accept")
                    node.accepted[index] = partition.generation
                    with node.process.running():
                        node.runtime.accept(index, "an admin looked at it")

    def _take_abandoned(self) -> None:
        """Let an admin have a log taken that another program cut, or that was hurt at both ends, so that nobody claims it.

        What is left may begin with a checkpoint that was void: each node believes that another one won.
        Where a log start fell back, the checkpoint that names the owner's cut says what is void, and it may lie in a lost end.
        """
        world = self.world
        hurt = world.foreign_cuts.keys() | (world.starts_fell_back & world.ends_lost)
        for index in sorted(hurt) if world.is_static else ():
            nodes = [node for node in self.world.nodes if isinstance(node, ClusterNode) and node.is_running]
            partitions = [node.runtime.partitions.get(index) for node in nodes]
            if nodes and all(
                partition is not None and partition.state is State.CLOSED and partition.retry_at_ms is None
                for partition in partitions
            ):
                self.world.count("taken because nobody claims it")
                with nodes[0].process.running():
                    nodes[0].runtime.take(index)

    def _owner(self, index: int) -> Node | None:
        """Return the one node that serves a log partition, or None if there is none or more than one."""
        serving = [node for node in self.world.nodes if node.serves(index)]
        return serving[0] if len(serving) == 1 else None

    def _unfinished(self) -> dict[str, object]:
        """Return what still waits, by process."""
        found: dict[str, object] = {}
        topic = self.world.cluster.topic
        epochs = {index: topic.partition(index).epoch for index in range(len(topic.partitions))}
        for node in self.world.nodes:
            assert isinstance(node, ClusterNode)
            own: dict[str, object] = {}
            # An owner whose log lost its end learns it by its next fetch; until then a write would fail.
            if unchecked := inside.unchecked(node.kafka_log.kafka, epochs):
                own["tails to be checked"] = unchecked
            # Pruning goes on and asks on, but each of its appends is read back, or given up as any other.
            if appends := node.unread_appends():
                own["appends not read back"] = appends
            if not self.world.is_pruning:
                own |= inside.unfinished(node.kafka_log.kafka) | inside.reading(node.runtime)
                answers = {index: each.parking.answers for index, each in node.runtime.partitions.items()}
                if any(answers.values()):
                    own["answers"] = answers
            if own:
                found[node.name] = own
        return found

    def _wait_for_cuts(self) -> None:
        """See that every log is cut above where it ended, though nobody writes any more."""
        partitions = self.world.topic.partitions
        ends = [partition.high_watermark for partition in partitions]
        self._wait(
            "every log is cut",
            Invariant.PRUNING_ENDS,
            PRUNING_S,
            lambda: all(part.log_start_offset >= end for part, end in zip(partitions, ends, strict=True)),
            lambda: [(part.log_start_offset, end) for part, end in zip(partitions, ends, strict=True)],
        )

    def _probe(self, index: int) -> None:
        """Write to a share partition of a log partition and read it; its owner must serve both, and soon."""
        count = len(self.world.topic.partitions)
        partition = next(
            p for p in range(5, 60) if log_partition(SharePartitionKey(GROUP, TOPIC_ID, p), count) == index
        )
        asked: list[tuple[int, PartitionRequest]] = [
            (INITIALIZE, InitializePartition(partition, 1_000, 0)),
            (WRITE, WritePartition(partition, 1_000, 1_000, -1, -1, (StateBatch(0, 9, 2, 1),))),
            (READ, ReadPartition(partition, 0)),
        ]
        timeline, cluster = self.world.timeline, self.world.cluster
        # Gathering takes as long as answers took lately, so the first answers tell it that all is well again.
        limit_s = PROMPT_S + 4 * 1.5 * cluster.base_latency_s + 2 * cluster.lag_s
        # A connection that died without a word shows it only when a request has waited for its whole time; then leaders are
        # asked for, and another connection is made.
        limit_s += 2 * self.world.bounds["request_timeout_ms"] / 1_000
        limit_s += 1.0 if self.world.is_pruning else self.world.bounds["append_linger_max_ms"] / 1_000
        # Pruning may have filled the log's queue, and goes on before all that was begun has ended.
        tries_max = int(DRAIN_S / RETRY_S) if self.world.is_pruning else 1
        tries = [(api_key, request) for api_key, request in asked for _ in range(tries_max)]
        done: set[int] = set()
        for api_key, request in tries:
            if api_key in done:
                continue
            owner = self._owner(index)
            if owner is None:
                violate(Invariant.CONVERGES, f"partition {index} has not one owner")
            self._say(f"probe of partition {index} at {owner.name}")
            answers: list[StateResponse] = []
            state_request = StateRequest(GROUP, [(TOPIC_ID, [request])])
            began_s = timeline.now_s
            if api_key == READ:  # whose read index lies behind what is not ours, and brings no record
                log = cluster.topic.partition(index)
                log.append_control()
                cluster.replicate_soon(log)
            self.clients.call(owner, api_key, state_request, lambda *args, answers=answers: answers.append(args[-1]))
            timeline.run_until(lambda answers=answers: bool(answers), 6.0)  # type: ignore[misc]
            codes = [result.error_code for answer in answers for _, results in answer for _, result in results]
            if codes == [ErrorCode.COORDINATOR_NOT_AVAILABLE] and self.world.is_pruning:
                timeline.run(RETRY_S)
                continue
            done.add(api_key)
            if codes != [0]:
                violate(Invariant.CONVERGES, f"partition {index} answers {answers} to {request} when all is calm")
            if timeline.now_s - began_s > limit_s:
                took_s = timeline.now_s - began_s
                violate(
                    Invariant.PROMPT, f"partition {index} answers {request} after {took_s:.3f} s, not {limit_s:.3f}"
                )

    def _close(self) -> None:
        self._say("close")
        world = self.world
        for node in self.random.sample(world.nodes, len(world.nodes)):
            node.close()
        world.timeline.run(4.0)
        for node in world.nodes:
            assert isinstance(node, ClusterNode)
            if not node.process.is_closed:
                violate(Invariant.DRAINS, f"the log of {node.name} is not closed")
            held = [partition for partition in node.runtime.partitions.values() if partition.state is State.ACTIVE]
            if held:
                violate(Invariant.SILENT_AFTER_CLOSE, f"{node.name} serves")


def run_cluster_life(seed: int, trace: Callable[[str], None] | None = None) -> Counter[str]:
    """Live the life of one seed on the cluster; returns what happened how often.

    Raises:
        Violation: an invariant did not hold.
    """
    return ClusterLife(seed, trace).run()
