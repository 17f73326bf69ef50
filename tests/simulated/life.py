"""One seed is one life: faults first, then a calm in which everything must come to rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random

from holdfast.daemon.service import INITIALIZE, WRITE
from holdfast.records.batches import StateBatch
from holdfast.records.keys import SharePartitionKey, log_partition
from holdfast.records.results import InitializePartition, PartitionRequest, StateRequest, StateResponse, WritePartition
from holdfast.runtime.memory_log import MemoryLog, Move
from tests.simulated.invariants import Invariant, violate
from tests.simulated.node import Node
from tests.simulated.requests import GROUP, TOPIC_ID, CleanUp, Clients
from tests.simulated.world import UNBOUNDED, World

JUMPS_MS = (10,) * 6 + (50,) * 8 + (120,) * 8 + (300, 300, 1_000, 6_000)
QUIET_MOVES_MAX = 20_000
CALM_ROUNDS_MAX = 120


class Life:
    """A world and the choices made in it."""

    def __init__(self, seed: int, trace: Callable[[str], None] | None = None) -> None:
        self.seed = seed
        random = self.random = Random(seed)
        world = self.world = World(random, trace)
        self.clients = Clients(world)
        self.steps = random.randint(60, 220)
        share = random.choice((0.1, 0.25, 0.45))
        faults = [kind for kind in FAULTS if random.random() < share]
        self.faults = [] if random.random() < 0.05 else faults
        self.laggard = random.choice(("a", "b", None, None, None))  #: a node that hardly reads
        self.deletions_refused = 0  #: how many of the next are
        self.accepted: set[int] = set()  #: log partitions that an admin accepted
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
        if self.random.random() < 0.6:
            self._run_until_quiet()
        for _ in range(self.steps):
            self._step()
        self._calm_down()
        self._close()
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
        by_log: dict[MemoryLog, Node] = {node.log: node for node in self.world.nodes}
        found: list[tuple[str, Node | None, int, Callable[[], None]]] = [
            (move.kind, by_log.get(move.log) if move.log is not None else None, move.partition, move.make)
            for move in self.world.topic.moves()
        ]
        for node in self.world.nodes:
            if node.is_running:
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
        make()
        self.world.settle(node if node is not None and not node.is_dead else None)

    def _pass_time(self) -> None:
        world = self.world
        world.now_ms += self.random.choice(JUMPS_MS) if not self.is_free_of_faults else 10
        self._say("tick")
        self._tick()

    def _tick(self) -> None:
        for node in self.world.nodes:
            if node.is_running:
                node.tick()
                self.world.settle(node)

    def _restart_dead(self) -> None:
        for node in self.world.nodes:
            if node.is_dead:
                self._restart(node)
                return

    def _restart(self, node: Node) -> None:
        self._say(f"{node.name} starts again")
        self.world.count("restart")
        self.world.settle(self.world.restart(node))

    # ---- calm ------------------------------------------------------------------------------------------------------

    def _calm_down(self) -> None:
        world = self.world
        world.step += 1
        self._say("calm")
        for node in list(world.nodes):
            node.log.is_frozen = False
            node.log.queue_records_max = UNBOUNDED
            node.planted = None
            if node.is_dead or node.is_closed:
                self._restart(node)
            elif node.runtime.config.log != world.topic.identity:
                node.crash()
                self._restart(node)
        if not world.is_static:
            world.rebalance()
        world.report_lost()
        claims = world.claims
        for _ in range(CALM_ROUNDS_MAX):
            self._run_until_quiet()
            if all(self._owner(index) is not None for index in range(len(world.topic.partitions))):
                break
            self._accept_alarmed()
            self._sleep()
        else:
            states = {node.name: {i: p.state.value for i, p in node.runtime.partitions.items()} for node in world.nodes}
            reasons = [p.failure for node in world.nodes for p in node.runtime.partitions.values()]
            violate(Invariant.CONVERGES, f"after {CALM_ROUNDS_MAX} rounds: {states}, {reasons}")
        if world.claims - claims > 4 * len(world.nodes) * len(world.topic.partitions):
            violate(Invariant.NOBODY_FIGHTS, f"{world.claims - claims} checkpoints were taken")
        for index in range(len(world.topic.partitions)):
            self._probe(index)
        for _ in range(3):
            self._sleep()
            self._run_until_quiet()
        self._sleep(6_000)
        for node in world.nodes:
            for operation in node.operations:
                if not operation.outcomes and operation.deadline_ms <= world.now_ms:
                    violate(Invariant.ALWAYS_ANSWERED, f"{operation} has no outcome")
        for number, node in self.clients.unanswered.items():
            if not node.is_dead:
                violate(Invariant.ALWAYS_ANSWERED, f"request {number} to {node.name} has no answer")

    def _accept_alarmed(self) -> None:
        """Let an admin accept a log in which a checkpoint of its earlier namesake landed."""
        world = self.world
        for node in world.nodes if world.topic.times_made > 1 else ():
            for index, partition in node.runtime.partitions.items():
                if partition.is_alarmed and index not in self.accepted:
                    self.accepted.add(index)
                    world.count("accept")
                    node.runtime.accept(index, "the topic was made again")
                    world.settle(node)

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
        self._tick()

    def _probe(self, index: int) -> None:
        """Write to a share partition of a log partition; its owner must serve it."""
        count = len(self.world.topic.partitions)
        partition = next(p for p in range(5, 8) if log_partition(SharePartitionKey(GROUP, TOPIC_ID, p), count) == index)
        asked: list[tuple[int, PartitionRequest]] = [
            (INITIALIZE, InitializePartition(partition, 1_000, 0)),
            (WRITE, WritePartition(partition, 1_000, -1, -1, -1, (StateBatch(0, 9, 2, 1),))),
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
        for _ in range(QUIET_MOVES_MAX):
            moves: list[Move] = self.world.topic.moves()
            if not moves:
                return
            moves[0].make()
            self.world.settle(None)


# ---- the faults: each does something to a node and returns True, or returns False where it cannot ------------------------


def _crash(life: Life, node: Node) -> bool:
    if node.is_dead:
        life._restart(node)
        return False
    node.crash()
    if not life.world.is_static and len([n for n in life.world.nodes if not n.is_dead]) > 0:
        life.world.rebalance()
    return True


def _freeze(life: Life, node: Node) -> bool:
    if node.is_dead:
        return False
    node.log.is_frozen = not node.log.is_frozen
    if not node.log.is_frozen:
        life.world.count("thaw")
    return node.log.is_frozen


def _stop(life: Life, node: Node) -> bool:
    if not node.is_running:
        return False
    node.close()
    life._restart(node)
    return True


def _in_flight(life: Life, node: Node) -> tuple[MemoryLog, int] | None:
    """Return a producer with something in flight, dead ones included."""
    logs = [(log, index) for log in life.world.topic.logs for index, queue in log.in_flight.items() if queue]
    return life.random.choice(logs) if logs else None


def _report_failed(life: Life, node: Node) -> bool:
    for index, queue in node.log.in_flight.items():
        if any(not append.is_reported for append in queue):
            node.log.report_failed(index)
            return True
    return False


def _lose_append(life: Life, node: Node) -> bool:
    found = _in_flight(life, node)
    if found is not None:
        life.world.lost.append(found[0].lose(found[1]))
    return found is not None


def _double_append(life: Life, node: Node) -> bool:
    found = _in_flight(life, node)
    if found is not None:
        found[0].land(found[1], is_kept=True)
    return found is not None


def _partition(life: Life) -> int:
    return life.random.randrange(len(life.world.topic.partitions))


def _repeat(life: Life, node: Node) -> bool:
    index = _partition(life)
    partition = life.world.topic.partitions[index]
    offsets = [
        at for at in range(max(0, len(partition.records) - 10), len(partition.records)) if partition.records[at].header
    ]
    if offsets:
        life.world.topic.repeat(index, life.random.choice(offsets))
    return bool(offsets)


def _lose_uncommitted(life: Life, node: Node) -> bool:
    lost = life.world.topic.lose_uncommitted(_partition(life))
    life.world.lost += lost
    return bool(lost)


def _foreign(life: Life, node: Node) -> bool:
    index = _partition(life)
    partition = life.world.topic.partitions[index]
    # In front of the first checkpoint it would be an alarm for an admin.
    if not any(life.world.truth_of(partition, index).counts):
        return False
    life.world.topic.write_foreign(index, b"key", b"value", life.random.choice((None, b"\x01" + bytes(12))))
    return True


def _hole(life: Life, node: Node) -> bool:
    life.world.topic.write_hole(_partition(life))
    return True


def _replace_producer(life: Life, node: Node) -> bool:
    if not node.is_dead:
        node.log.replace_producer()
    return not node.is_dead


def _fail_reading(life: Life, node: Node) -> bool:
    index = _partition(life)
    if not node.is_running or node.log.reads(index) is None:
        return False
    node.log.fail_reading(index)
    return True


def _unknown_offsets(life: Life, node: Node) -> bool:
    if not node.is_running or not any(
        move.kind == "look up" and move.log is node.log for move in life.world.topic.moves()
    ):
        return False
    node.log.look_up(is_known=False)
    return True


def _refuse_deletion(life: Life, node: Node) -> bool:
    life.deletions_refused += 1
    return True


def _plant_decide(life: Life, node: Node) -> bool:
    node.plant("decide", 0)
    return True


def _plant_replay(life: Life, node: Node) -> bool:
    node.plant("replay", life.random.choice((0, 0, 1)))
    return True


def _fill_queue(life: Life, node: Node) -> bool:
    is_full = node.log.queue_records_max == 0
    node.log.queue_records_max = life.world.queue_records_max if is_full else 0
    return not is_full


def _make_topic_again(life: Life, node: Node) -> bool:
    if life.world.topic.times_made > 1:
        return False
    life.world.make_topic_again()
    return True


def _twin(life: Life, node: Node) -> bool:
    if not life.world.is_static or len(life.world.nodes) > 3:
        return False
    life.world.start(node.name)
    return True


def _take(life: Life, node: Node) -> bool:
    index = _partition(life)
    if not life.world.is_static or not node.is_running or node.serves(index):
        return False
    node.runtime.take(index)
    return True


def _rebalance(life: Life, node: Node) -> bool:
    if life.world.is_static or all(node.is_dead for node in life.world.nodes):
        return False
    life.world.rebalance()
    return True


def _clean_up(life: Life, node: Node) -> bool:
    index = _partition(life)
    if not node.is_running or not node.serves(index):
        return False
    node.write(index, CleanUp())
    return True


FAULTS: dict[str, Callable[[Life, Node], bool]] = {
    "crash": _crash,
    "freeze": _freeze,
    "stop and start": _stop,
    "append reported as failed": _report_failed,
    "append lost": _lose_append,
    "append landed twice": _double_append,
    "record repeated": _repeat,
    "uncommitted records lost": _lose_uncommitted,
    "foreign record": _foreign,
    "hole": _hole,
    "producer died": _replace_producer,
    "reading failed": _fail_reading,
    "latest offset unknown": _unknown_offsets,
    "deletion refused": _refuse_deletion,
    "decide planted": _plant_decide,
    "replay planted": _plant_replay,
    "queue full": _fill_queue,
    "topic made again": _make_topic_again,
    "twin": _twin,
    "taken by an admin": _take,
    "rebalance": _rebalance,
    "clean-up": _clean_up,
}

READING = ("begin", "read", "catch up")
SLOW = ("land", "commit", "read", "tell", "look up", "delete", "go on", "learn", "catch up", "begin")


def run_life(seed: int, trace: Callable[[str], None] | None = None) -> Counter[str]:
    """Live the life of one seed; returns what happened how often.

    Raises:
        Violation: an invariant did not hold.
    """
    return Life(seed, trace).run()
