"""One seed is one life: faults first, then a calm in which everything must come to rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random

from holdfast.api.results import InitializePartition, PartitionRequest, StateRequest, StateResponse, WritePartition
from holdfast.api.share_state import INITIALIZE, WRITE
from holdfast.records.share.batches import StateBatch
from holdfast.records.share.keys import SharePartitionKey, log_partition
from holdfast.runtime.partition.states import State
from tests.simulated.around.topics import TOPIC_ID
from tests.simulated.checks.invariants import Invariant, violate
from tests.simulated.faults import FAULTS
from tests.simulated.memory_log import MemoryLog, Move
from tests.simulated.parts.node import EVERY_PARTITION, Node
from tests.simulated.parts.requests import GROUP, Clients
from tests.simulated.parts.world import UNBOUNDED, World

JUMPS_MS = (10,) * 6 + (50,) * 8 + (120,) * 8 + (300, 300, 1_000, 6_000)
READING = ("begin", "read", "catch up")
SLOW = ("land", "commit", "read", "tell", "look up", "delete", "go on", "learn", "catch up", "begin")
QUIET_MOVES_MAX = 20_000
CALM_ROUNDS_MAX = 120
SETTLING_ROUNDS = 12
DELETION_ROUNDS_MAX = 60
CUT_ROUNDS_MAX = 150
#: Begins what a load says of an update whose snapshot was cut away.
UPDATE_ALONE = "The update has no snapshot before it"


class Life:
    """A world and the choices made in it."""

    def __init__(self, seed: int, trace: Callable[[str], None] | None = None, *, with_leaders: bool = False) -> None:
        self.seed = seed
        random = self.random = Random(seed)
        world = self.world = World(random, trace)
        self.clients = Clients(world, with_leaders=with_leaders)
        self.steps = random.randint(60, 220)
        share = random.choice((0.1, 0.25, 0.45))
        faults = [kind for kind in FAULTS if random.random() < share]
        self.faults = [] if random.random() < 0.05 else faults
        self.laggard = random.choice(("a", "b", None, None, None))  #: a node that hardly reads
        self.deletions_refused = 0  #: how many of the next are
        self.has_disasters = random.random() < 0.3  #: faults that take away what was committed
        self.is_calm = False  #: jobs begin nothing more
        self.accepted: set[tuple[Node, int]] = set()  #: log partitions that an admin accepted at a process
        self.ends_lost: set[int] = set()  #: log partitions that lost committed records
        #: kinds of moves that take long in this life
        self.slow = {random.choice(SLOW) for _ in range(random.randrange(3))}
        for number in range(random.choice((1, 2, 2, 3))):
            world.start("abc"[number])
        self.is_free_of_faults = not self.faults and len(world.nodes) == 1 and world.parked_writes_max == UNBOUNDED

    def run(self) -> Counter[str]:
        """Live; returns what happened how often.

        Raises:
            Violation: an invariant did not hold.
        """
        if self.is_free_of_faults:
            self.world.count("life without faults")
        if self.random.random() < 0.6:
            self.is_calm = True
            self._run_until_quiet()
            self.is_calm = False
        for _ in range(self.steps):
            self._step()
        self._calm_down()
        self._close()
        for node in (*self.world.former, *self.world.nodes):
            for refusal, counter in node.snapshot_metrics.refusals.items():
                self.world.counts[f"no restore point: {refusal.value}"] += counter.value
            self.world.counts["manifest verified by its owner"] += node.snapshot_metrics.manifests_verified.value
            self.world.counts["divergence"] += node.snapshot_metrics.divergences.value
        # Where a log lost its end, entries tell of what it does not hold any more; behind a foreign cut the job may take a
        # void checkpoint for the winner, as every reader does, until the start falls back before it.
        reasons = sum(self.world.counts[f"fault: {kind}"] for kind in ("entry corrupted", "end lost", "cut by others"))
        if self.world.counts["divergence"] and not reasons:
            violate(Invariant.NO_FALSE_DIVERGENCE, f"{self.world.counts['divergence']} were told")
        return self.world.counts

    # ---- faults ----------------------------------------------------------------------------------------------------

    def _step(self) -> None:
        world = self.world
        world.step += 1
        chance = self.random.random()
        if chance < 0.02:
            self._restart_dead()
        elif chance < 0.24:
            self._request()
        elif chance < 0.80:
            self._move()
        elif chance < 0.93 or not self.faults:
            self._pass_time()
        else:
            kind = self.random.choice(self.faults)
            node = self.random.choice(world.nodes)
            before = len(world.counts)
            if FAULTS[kind](self, node):
                world.count(f"fault: {kind}")
                self._say(f"{kind} ({node.name})")
                world.settle(node if not node.is_dead else None)
            assert before <= len(world.counts)
        if self.is_free_of_faults and any(world.counts[f"{state} -> failed"] for state in ("loading", "active")):
            violate(Invariant.NOTHING_FAILS_WITHOUT_FAULTS, f"in step {world.step}")

    def _say(self, text: str) -> None:
        if self.world.is_tracing:
            self.world.trace(f"{self.world.step} at {self.world.now_ms} ms: {text}")

    def _request(self) -> None:
        world = self.world
        random = self.random
        nodes = [node for node in world.nodes if not node.is_dead and not node.is_closed]
        serving = [node for node in nodes if any(node.serves(index) for index in range(len(world.topic.partitions)))]
        if serving:
            nodes = serving if random.random() < 0.9 else nodes
        elif random.random() < 0.7:
            self._move()
            return
        if nodes:
            node = random.choice(nodes)
            self._say(f"request to {node.name}")
            self.clients.send(node)
            world.settle(node)

    def _moves(self) -> list[tuple[str, Node | None, int, Callable[[], None]]]:
        """Return all that may happen next without a fault: (kind, node touched, log partition, call)."""
        snapshots = self.world.snapshots
        by_log: dict[MemoryLog, Node] = {node.log: node for node in self.world.nodes}
        found: list[tuple[str, Node | None, int, Callable[[], None]]] = [
            (move.kind, by_log.get(move.log) if move.log is not None else None, move.partition, move.make)
            for move in self.world.topic.moves()
        ]
        if snapshots is not None:
            found += [("snapshots commit", None, move.partition, move.make) for move in snapshots.commits()]
            found += [(kind, None, -1, make) for kind, make in snapshots.job_moves(may_begin=not self.is_calm)]
        for node in self.world.nodes:
            if node.is_running:
                if node.snapshot_log is not None and snapshots is not None:
                    own: list[Move] = []
                    node.snapshot_log.add_moves(own)
                    found += [(f"snapshots {move.kind}", node, move.partition, move.make) for move in own]
                if node.tasks:
                    found.append(("go on", node, -1, lambda node=node: node.tasks.popleft()()))  # type: ignore[misc]
                if node.views:
                    found.append(("learn", node, -1, node.learn_view))
                if node.requests:
                    found.append(("late request", node, -1, lambda node=node: node.requests.popleft()()))  # type: ignore[misc]
        return found

    def _move(self) -> None:
        moves = self._moves()
        if not moves:
            self._pass_time()
            return
        kind, node, index, make = self.random.choice(moves)
        if kind in self.slow and self.random.random() < 0.8:
            return
        if node is not None and node.name == self.laggard and kind in READING and self.random.random() < 0.9:
            return
        if kind == "read" and node is not None and self.random.random() < 0.3:
            make = partial(node.log.read, index, self.random.randint(1, 3))
        if kind == "delete" and node is not None and self.deletions_refused:
            self.deletions_refused -= 1
            kind, make = "refused delete", partial(node.log.delete, is_refused=True)
        self.world.count(kind)
        self._make(kind, node, make)

    def _make(self, kind: str, node: Node | None, make: Callable[[], None]) -> None:
        self._say(f"{kind}{f' ({node.name})' if node else ''}")
        try:
            make()
        except Exception as bug:
            violate(Invariant.BUGS_STAY_AT_HOME, f"{kind}: {bug!r}")
        self.world.settle(node if node is not None and not node.is_dead else None)

    def _pass_time(self) -> None:
        world = self.world
        world.now_ms += self.random.choice(JUMPS_MS) if not self.is_free_of_faults else 10
        self._say("tick")
        world.groups.step()
        self._tick()

    def _tick(self) -> None:
        for node in self.world.nodes:
            if node.is_running:
                node.tick()
                self.world.settle(node)

    def _restart_dead(self) -> None:
        for node in self.world.nodes:
            if node.is_dead:
                self.restart(node)
                return

    def restart(self, node: Node) -> None:
        self._say(f"{node.name} starts again")
        self.world.count("restart")
        self.world.settle(self.world.restart(node))

    # ---- calm ------------------------------------------------------------------------------------------------------

    def _calm_down(self) -> None:
        world = self.world
        world.step += 1
        self._say("calm")
        self.is_calm = True
        world.is_calm = world.groups.is_calm = True
        world.topics.calm_down()
        for node in list(world.nodes):
            node.log.is_frozen = False
            node.log.queue_records_max = UNBOUNDED
            node.planted = None
            node.runtime.trust_log()
            if node.is_dead or node.is_closed:
                self.restart(node)
            elif node.runtime.config.log != world.topic.identity:
                node.crash()
                self.restart(node)
        if not world.is_static:
            world.rebalance()
        claims = world.claims
        for _ in range(CALM_ROUNDS_MAX):
            self._run_until_quiet()
            if all(self._owner(index) is not None for index in range(len(world.topic.partitions))):
                break
            self._accept_alarmed()
            self._take_abandoned()
            self._sleep()
        else:
            states = {node.name: {i: p.state.value for i, p in node.runtime.partitions.items()} for node in world.nodes}
            reasons = [p.failure for node in world.nodes for p in node.runtime.partitions.values()]
            violate(Invariant.CONVERGES, f"after {CALM_ROUNDS_MAX} rounds: {states}, {reasons}")
        if world.claims - claims > 4 * len(world.nodes) * len(world.topic.partitions):
            violate(Invariant.NOBODY_FIGHTS, f"{world.claims - claims} checkpoints were taken")
        self._stay_calm()
        self._remove_deleted()
        for index in range(len(world.topic.partitions)):
            self._probe(index)
        if world.is_pruning:
            self._cut_all()
        self._sleep(6_000)
        for node in world.nodes:
            for operation in node.operations:
                if not operation.outcomes and operation.deadline_ms <= world.now_ms:
                    violate(Invariant.ALWAYS_ANSWERED, f"{operation} has no outcome")
        for number, node in self.clients.unanswered.items():
            if not node.is_dead:
                violate(Invariant.ALWAYS_ANSWERED, f"request {number} to {node.name} has no answer")

    def _stay_calm(self) -> None:
        """Give everyone who would still take a partition the time to do so; each node may once, and twins of one name twice."""
        world = self.world
        claims = world.claims
        for _ in range(SETTLING_ROUNDS):
            self._sleep()
            self._run_until_quiet()
        if world.claims - claims > 2 * len(world.nodes) * len(world.topic.partitions):
            violate(Invariant.NOBODY_FIGHTS, f"{world.claims - claims} checkpoints were taken when all had an owner")

    def _remove_deleted(self) -> None:
        """See that deleted topics lose their state."""
        for _ in range(DELETION_ROUNDS_MAX):
            if not any(node.topics.left_behind() for node in self.world.nodes):
                return
            for node in self.world.nodes:
                node.topics.accept()
            self._sleep(500)
            self._run_until_quiet()
        violate(Invariant.DELETED_LOSE_THEIR_STATE, f"{[node.topics.left_behind() for node in self.world.nodes]}")

    def _cut_all(self) -> None:
        """See that every log is cut above where it ended, though nobody writes any more."""
        partitions = self.world.topic.partitions
        ends = [partition.high_watermark for partition in partitions]
        for _ in range(CUT_ROUNDS_MAX):
            if all(partition.log_start_offset >= end for partition, end in zip(partitions, ends, strict=True)):
                return
            self._sleep(200)
            self._run_until_quiet()
        starts = [partition.log_start_offset for partition in partitions]
        violate(Invariant.PRUNING_ENDS, f"the logs start at {starts}, not at {ends}")

    def _accept_alarmed(self) -> None:
        """Let an admin accept a log that lost something, or that holds what nobody can read, once for each process.

        No alarm is raised where all that it lost are the snapshots of some updates.
        """
        world = self.world
        for node in world.nodes if world.alarm_reasons or world.unreadable else ():
            for index, partition in node.runtime.partitions.items():
                is_unreadable = partition.state is State.FAILED and index in world.unreadable
                may_lack_them = bool(world.alarm_reasons & {index, EVERY_PARTITION})
                lacks_snapshots = may_lack_them and UPDATE_ALONE in (partition.failure or "")
                is_refused = partition.is_alarmed or is_unreadable or lacks_snapshots
                if is_refused and (node, index) not in self.accepted:
                    self.accepted.add((node, index))
                    world.count("accept")
                    node.runtime.accept(index, "an admin looked at it")
                    world.settle(node)

    def _take_abandoned(self) -> None:
        """Let an admin have a log taken that another program cut, or that lost its end, so that nobody claims it.

        What is left may begin with a checkpoint that was void, or a claim that had lost may have landed in place of the one that
        had won: each node believes that another one won.
        """
        world = self.world
        for index in sorted(world.foreign_cuts.keys() | self.ends_lost) if world.is_static else ():
            partitions = [node.runtime.partitions[index] for node in world.nodes]
            if all(each.state is State.CLOSED and each.retry_at_ms is None for each in partitions):
                world.count("taken because nobody claims it")
                self.accepted.discard((world.nodes[0], index))
                world.nodes[0].runtime.take(index)
                world.settle(world.nodes[0])

    def _owner(self, index: int) -> Node | None:
        """Return the one node that serves a log partition, or None if there is none or more than one."""
        serving = [node for node in self.world.nodes if node.serves(index)]
        return serving[0] if len(serving) == 1 else None

    def _run_until_quiet(self) -> None:
        for _ in range(QUIET_MOVES_MAX):
            moves = self._moves()
            if not moves:
                return
            kind, node, _, make = moves[0]
            self._make(kind, node, make)
        violate(Invariant.CONVERGES, f"not quiet after {QUIET_MOVES_MAX} moves")

    def _sleep(self, time_ms: int = 0) -> None:
        """Let time pass until something is to be tried again."""
        world = self.world
        waiting = [
            partition.retry_at_ms
            for node in world.nodes
            for partition in node.runtime.partitions.values()
            if partition.retry_at_ms is not None
        ]
        wait_ms = time_ms or (max(0, min(waiting) - world.now_ms) if waiting else 5_000)
        world.now_ms += min(wait_ms, 5_000)
        self._say("tick")
        world.groups.step()
        self._tick()

    def _probe(self, index: int) -> None:
        """Write to a share partition of a log partition; its owner must serve it."""
        count = len(self.world.topic.partitions)
        partition = next(
            p for p in range(5, 60) if log_partition(SharePartitionKey(GROUP, TOPIC_ID, p), count) == index
        )
        asked: list[tuple[int, PartitionRequest]] = [
            (INITIALIZE, InitializePartition(partition, 1_000, 0)),
            (WRITE, WritePartition(partition, 1_000, 1_000, -1, -1, (StateBatch(0, 9, 2, 1),))),
        ]
        answers: list[StateResponse] = []
        for api_key, request in asked:
            owner = self._owner(index)
            if owner is None:
                violate(Invariant.CONVERGES, f"partition {index} has not one owner")
            self._say(f"probe of partition {index} at {owner.name}")
            state_request = StateRequest(GROUP, [(TOPIC_ID, [request])])
            self.clients.call(owner, api_key, state_request, lambda *args: answers.append(args[-1]))
            self._run_until_quiet()
        codes = [result.error_code for answer in answers for _, results in answer for _, result in results]
        if codes != [0, 0]:
            violate(Invariant.CONVERGES, f"partition {index} answers {answers} when all is calm")

    def _close(self) -> None:
        self._say("close")
        for node in self.random.sample(self.world.nodes, len(self.world.nodes)):
            node.close()
            self.world.settle(node)
        # A closed runtime must stay silent, whatever it still hears and however late it is.
        self.world.now_ms += 60_000
        for node in (*self.world.former, *self.world.nodes):
            if node.is_closed:
                node.runtime.tick()
        for _ in range(QUIET_MOVES_MAX):
            moves: list[Move] = self.world.topic.moves()
            if not moves:
                return
            moves[0].make()
            self.world.settle(None)


def run_life(seed: int, trace: Callable[[str], None] | None = None) -> Counter[str]:
    """Live the life of one seed; returns what happened how often.

    Raises:
        Violation: an invariant did not hold.
    """
    return Life(seed, trace).run()


def run_leader_life(seed: int, trace: Callable[[str], None] | None = None) -> Counter[str]:
    """Live the life of one seed, with leaders in the process of each node among the clients; see `run_life`."""
    return Life(seed, trace, with_leaders=True).run()
