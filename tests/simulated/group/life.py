"""One seed is one life of a group: faults first, then a calm in which the group must come to rest, within a bounded time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random

from structlog.testing import capture_logs

from holdfast.api.results import InitializePartition, PartitionRequest, StateRequest, StateResponse, WritePartition
from holdfast.api.share_state import INITIALIZE, WRITE
from holdfast.records.log.checkpoint import CHECKPOINT_KEY, Checkpoint, encode_checkpoint
from holdfast.records.log.header import encode_header
from holdfast.records.share.batches import StateBatch
from holdfast.records.share.keys import SharePartitionKey, log_partition
from tests.simulated.around.topics import TOPIC_ID
from tests.simulated.checks.invariants import Invariant, violate
from tests.simulated.group.faults import FAULTS, end_static, leave_for_good
from tests.simulated.group.group import STABLE
from tests.simulated.group.world import TIME_SLICES_MS, GroupWorld
from tests.simulated.memory_log import Move
from tests.simulated.parts.node import Node
from tests.simulated.parts.requests import GROUP, Clients

PAUSES_MS = (20, 100, 100, 300, 300, 1_000, 4_000)
#: In which sessions end that ended in the eyes of one side only.
SETTLING_MS = 4_000
#: In which the group converges once faults have stopped: sessions, a rebalance, joins again for what was seen in a log.
CONVERGENCE_MS = 60_000
#: For which it must stay as it is.
REST_MS = 8_000
#: Members that join, or whose metadata changes, cause one each; a failed load or a generation seen in a log some more.
CALM_REBALANCES_MAX = 40
MOVES_MAX = 5_000
#: Of the moves that are possible, one of so many is next.
MOVES_SEEN_MAX = 8


class GroupLife:
    """A group and the choices made in it."""

    def __init__(self, seed: int, trace: Callable[[str], None] | None = None) -> None:
        random = self.random = Random(f"group {seed}")
        world = self.world = GroupWorld(random, trace)
        self.clients = Clients(world)
        self.steps = random.randint(30, 90)
        share = random.choice((0.1, 0.25, 0.5))
        faults = [kind for kind in FAULTS if random.random() < share]
        self.faults = [] if random.random() < 0.05 else faults
        #: Since when a process stands still.
        self._frozen_ms: dict[Node, int] = {}
        for number in range(random.choice((3, 3, 4, 5))):
            world.start("abcde"[number])

    def run(self) -> Counter[str]:
        """Live; returns what happened how often.

        Raises:
            Violation: an invariant did not hold.
        """
        with capture_logs() as self.lines:
            if not self.faults:
                self.world.count("life without faults")
            if self.random.random() < 0.7:
                self._converge()
            for _ in range(self.steps):
                self._step()
            self._calm_down()
            self._close()
        return self.world.counts

    def _say(self, text: str) -> None:
        if self.world.is_tracing:
            self.world.trace(f"{self.world.step} at {self.world.now_ms} ms: {text}")

    # ---- faults ------------------------------------------------------------------------------------------------------

    def _step(self) -> None:
        world, random = self.world, self.random
        world.step += 1
        chance = random.random()
        if chance < 0.06:
            self._restart_dead()
        elif chance < 0.35:
            self._request()
        elif self.faults and chance < 0.75:
            kind, node = random.choice(self.faults), random.choice(world.nodes)
            if FAULTS[kind](self, node):
                world.count(f"fault: {kind}")
                self._say(f"{kind} ({node.name})")
        self._pass(random.choice(PAUSES_MS), is_hasty=random.random() < 0.7)

    def _restart_dead(self) -> None:
        for node in self.world.nodes:
            if not self.world.member_of(node).is_alive:
                self.restart(node)
                return

    def restart(self, node: Node) -> None:
        """Start the process that follows one that has ended."""
        self._say(f"{node.name} starts again")
        self.world.count("restart")
        self.world.restart(node)

    def freeze(self, node: Node) -> None:
        """Let a process stand still."""
        node.log.is_frozen = True
        self._frozen_ms[node] = self.world.now_ms

    def thaw(self, node: Node) -> None:
        """Let it go on: with what came meanwhile, or with what is due; maybe its clock stood still, too."""
        node.log.is_frozen = False
        member = self.world.member_of(node)
        member.node.thawed_ms = self.world.now_ms
        stood_ms = self.world.now_ms - self._frozen_ms.pop(node)
        if self.random.random() < 0.3:
            self.world.count("fault: clock stood still")
            member.ahead_ms -= stood_ms
        if self.random.random() < 0.5:
            member.beat()
        waiting, member.node.inbox = member.node.inbox, type(member.node.inbox)()
        for call in waiting:
            member.run(call)
        while node.requests and member.is_alive:
            node.requests.popleft()()

    def take_from_outside(self) -> bool:
        """Append a checkpoint of a higher ownership generation, of a node that is in no group and ends at once."""
        index = self.random.randrange(len(self.world.topic.partitions))
        truth = self.world.truth_of(None, index)
        if not any(truth.counts):
            return False
        identity = self.world.topic.identity
        checkpoint = Checkpoint(
            truth.epoch + 1,
            self.random.randbytes(16),
            "outside",
            _generation_seen(self.world, index) + self.random.choice((1, 5)),
            identity.cluster_id,
            identity.topic_id,
            identity.partition_count,
            None,
        )
        self.world.topic.write_foreign(
            index, CHECKPOINT_KEY, encode_checkpoint(checkpoint), encode_header(truth.epoch + 1, 0)
        )
        return True

    def _request(self) -> None:
        nodes = [node for node in self.world.processes if node.is_alive]
        serving = [node for node in nodes if any(node.serves(index) for index in node.runtime.partitions)]
        nodes = serving if serving and self.random.random() < 0.9 else nodes
        if nodes:
            node = self.random.choice(nodes)
            self._say(f"request to {node.name}")
            self.clients.send(node)
            self.world.settle(node)

    # ---- time --------------------------------------------------------------------------------------------------------

    def pass_time(self, time_ms: int) -> None:
        """Let time pass in a fault."""
        self._pass(time_ms, is_hasty=True)

    def _pass(self, time_ms: int, *, is_hasty: bool) -> None:
        """Let time pass; unless everything is hasty, the log moves only a little in each slice."""
        world = self.world
        end_ms = world.now_ms + time_ms
        while world.now_ms < end_ms:
            until_ms = min(end_ms, world.now_ms + world.time_slice_ms)
            world.pass_time(until_ms)
            self._move(MOVES_MAX if is_hasty else self.random.randrange(4))
            world.groups.step()
            for node in world.processes:
                if node.is_running and not node.is_idle:
                    if node.member is not None:
                        node.member.beat()
                    if node.is_running:
                        node.tick()
                if node.has_unloaded or node.raised:
                    node.check()
            self._tell_lines()
        for node in world.processes:
            if not node.is_dead:
                node.check()

    def _move(self, count: int) -> None:
        """Let the log and what waits in the processes go on, up to a number of moves."""
        for _ in range(count):
            moves = self._moves()
            if not moves:
                return
            kind, node, make = self.random.choice(moves)
            self.world.count(kind)
            try:
                make()
            except Exception as bug:
                violate(Invariant.BUGS_STAY_AT_HOME, f"{kind}: {bug!r}")
            self.world.settle(None if node is None or node.is_dead else node)

    def _moves(self) -> list[tuple[str, Node | None, Callable[[], None]]]:
        """Return the first of all moves that may come next."""
        world = self.world
        found: list[tuple[str, Node | None, Callable[[], None]]] = [
            (move.kind, None, move.make) for move in world.topic.commits()
        ]
        by_log = {node.log: node for node in world.processes}
        for log in world.topic.logs:
            if len(found) >= MOVES_SEEN_MAX:
                return found[:MOVES_SEEN_MAX]
            node, moves = by_log.get(log), list[Move]()
            log.add_moves(moves)
            reaches = bool(moves) and (node is None or world.network.reaches(node.name, "log"))
            found += [(move.kind, node, move.make) for move in moves if reaches or move.kind == "tell"]
        found += [("go on", node, partial(_go_on, node)) for node in world.processes if node.is_running and node.tasks]
        return found[:MOVES_SEEN_MAX]

    def _tell_lines(self) -> None:
        for line in self.lines:
            self.world.count(f"note: {line['event']}")
            if self.world.is_tracing:
                self.world.trace(f"  line: {line}")
        self.lines.clear()

    # ---- calm --------------------------------------------------------------------------------------------------------

    def _calm_down(self) -> None:
        world = self.world
        world.step += 1
        self._say("calm")
        world.is_calm = world.groups.is_calm = True
        world.topics.calm_down()
        world.network.cuts.clear()
        world.network.dawdling = 0.0
        world.brokers.frozen.clear()
        world.brokers.end_former()
        end_static(self, world.nodes[0])
        if self.steps % (2 if world.rebalance_delay_ms else 5) == 0:  # the calm of a group whose member has just gone
            self._say(f"{world.nodes[-1].name} is gone for good")
            leave_for_good(self, world.nodes[-1])
        for node in [*world.nodes]:
            member = world.member_of(node)
            member.config.is_stalled, member.planted, member.wishes_while_joining = False, "", False
            if not member.is_alive:
                self.restart(node)
            elif node.log.is_frozen:
                self.thaw(node)
        self._pass(SETTLING_MS, is_hasty=True)
        self._converge()
        self._rest()
        for index in range(len(world.topic.partitions)):
            self._probe(index)
        for number, node in self.clients.unanswered.items():
            if not node.is_dead:
                violate(Invariant.ALWAYS_ANSWERED, f"request {number} to {node.name} has no answer")

    def _converge(self) -> None:
        world = self.world
        until_ms, rebalances = world.now_ms + CONVERGENCE_MS, world.brokers.rebalances
        while why := self._why_not_converged():
            if world.now_ms >= until_ms:
                violate(Invariant.GROUP_CONVERGES, f"after {CONVERGENCE_MS} ms: {why}")
            self._pass(world.time_slice_ms, is_hasty=True)
            for node in world.nodes:
                if not world.member_of(node).is_alive and world.is_calm:
                    self.restart(node)
        if world.brokers.rebalances - rebalances > CALM_REBALANCES_MAX:
            violate(Invariant.NO_HOT_REJOIN, f"{world.brokers.rebalances - rebalances} rebalances in the calm")

    def _rest(self) -> None:
        """See that nothing goes on when all is well."""
        world = self.world
        rebalances, claims = world.brokers.rebalances, world.claims
        world.time_slice_ms = max(TIME_SLICES_MS)
        self._pass(REST_MS, is_hasty=True)
        if world.brokers.rebalances != rebalances or world.claims != claims:
            text = f"{world.brokers.rebalances - rebalances} rebalances, {world.claims - claims} checkpoints"
            violate(Invariant.GROUP_RESTS, f"{text} after it had converged")
        if why := self._why_not_converged():
            violate(Invariant.GROUP_RESTS, why)

    def _why_not_converged(self) -> str:
        world = self.world
        group = world.brokers.group
        if group.state != STABLE or len(group.places) != len(world.nodes):
            return f"the group is {group.state}, with members {sorted(group.places)}"
        for node in world.nodes:
            member = world.member_of(node)
            if not member.is_alive or not member.life.is_active or member.coordinator.needs_rejoin:
                return f"{node.name} is {member.life.state.value}, {member.life.generation}"
            if why := member.coordinator.why_not_ready() or member.config.why_behind():
                return f"{node.name}: {why}"
        maps = {world.member_of(node).view.map for node in world.nodes}
        if len(maps) != 1:
            return f"members have different maps: {maps}"
        if any(world.member_of(node).holdings.released for node in world.nodes):
            return "something is still handed over"
        divided = maps.pop()
        if divided is None or divided.absent:
            return f"work waits for absent nodes: {divided}"
        for index in range(len(world.topic.partitions)):
            serving = [node.name for node in world.nodes if node.serves(index)]
            owner = divided.owner(index)
            named = {world.member_of(node).view.owner(index) for node in world.nodes}
            if owner is None or serving != [chr(owner.node_id)] or named != {owner}:
                states = {
                    node.name: (held.state.value, held.failure)
                    for node in world.nodes
                    if (held := node.partition(index)) is not None
                }
                return f"log partition {index} of {owner} is served by {serving}, and {named} are named: {states}"
        for node in world.nodes:
            done = world.member_of(node).watch.duties
            given = next(each.work.duties for each in divided.members if each.node.node_id == ord(node.name))
            if done != given:
                return f"{node.name} does {done}, and is to do {given}"
        for node in world.nodes:
            if node.is_running and any(each.retry_at_ms is not None for each in node.runtime.partitions.values()):
                return f"{node.name} is about to load again"
            # One that was lost is given up only later, and then the log partition loads again.
            if node.is_running and (appends := node.unread_appends()):
                return f"{node.name} has not read back what it appended: {appends}"
        return ""

    def _probe(self, index: int) -> None:
        """Write to a share partition of a log partition; its owner must serve it."""
        count = len(self.world.topic.partitions)
        partition = next(
            p for p in range(5, 600) if log_partition(SharePartitionKey(GROUP, TOPIC_ID, p), count) == index
        )
        asked: list[tuple[int, PartitionRequest]] = [
            (INITIALIZE, InitializePartition(partition, 1_000, 0)),
            (WRITE, WritePartition(partition, 1_000, 1_000, -1, -1, (StateBatch(0, 9, 2, 1),))),
        ]
        owner = next(node for node in self.world.nodes if node.serves(index))
        answers: list[StateResponse] = []
        for api_key, request in asked:
            state_request = StateRequest(GROUP, [(TOPIC_ID, [request])])
            self.clients.call(owner, api_key, state_request, lambda *args: answers.append(args[-1]))
            self._pass(200, is_hasty=True)
        codes = [result.error_code for answer in answers for _, results in answer for _, result in results]
        if codes != [0, 0]:
            violate(Invariant.GROUP_CONVERGES, f"log partition {index} answers {answers} when all is calm")

    def _close(self) -> None:
        self._say("close")
        for node in self.world.processes:
            if node.is_alive:
                node.close()
                self.world.settle(node)
        for _ in range(MOVES_MAX):
            moves: list[Move] = self.world.topic.moves()
            if not moves:
                return
            moves[0].make()
            self.world.settle(None)


def _go_on(node: Node) -> None:
    node.tasks.popleft()()


def _generation_seen(world: GroupWorld, index: int) -> int:
    """Return the highest ownership generation that a node has seen in a log partition."""
    held = [node.partition(index) for node in world.processes]
    return max((each.ownership.generation_max for each in held if each is not None), default=0)


def run_group_life(seed: int, trace: Callable[[str], None] | None = None) -> Counter[str]:
    """Live the life of one seed; returns what happened how often.

    Raises:
        Violation: an invariant did not hold.
    """
    return GroupLife(seed, trace).run()
