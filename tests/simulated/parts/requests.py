"""Clients of a simulated cluster: what they ask, and what they do with an answer."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.api.results import (
    DeletePartition,
    InitializePartition,
    PartitionRequest,
    ReadOrInitializePartition,
    ReadOrInitializeResult,
    ReadPartition,
    StateRequest,
    StateResponse,
    SummaryPartition,
    WritePartition,
)
from holdfast.api.share_state import DELETE, INITIALIZE, READ, SUMMARY, WRITE
from holdfast.records.share.batches import ACKNOWLEDGED, ARCHIVED, ARCHIVING, AVAILABLE, StateBatch
from holdfast.runtime.state_machine import Decision, Operation
from holdfast.share.service import READ_OR_INITIALIZE
from tests.simulated.around.topics import OTHER_TOPIC_ID, TOPIC_ID
from tests.simulated.checks.invariants import Invariant, violate
from tests.simulated.parts.machine import WatchedShard
from tests.simulated.parts.node import Node
from tests.simulated.parts.world import World

GROUP = "workers"
PARTITION_COUNT = 4
#: Drawn from uniformly.
CALLS = (INITIALIZE,) * 2 + (READ,) * 3 + (WRITE,) * 12 + (DELETE,) + (SUMMARY,) * 2
#: With those of leaders in the process of a node.
LEADER_CALLS = (INITIALIZE, READ) + (READ_OR_INITIALIZE,) * 5 + (WRITE,) * 12 + (DELETE,) * 2 + (SUMMARY,) * 2
#: By whether leaders call, too.
_STATES = {False: (AVAILABLE, ACKNOWLEDGED, ARCHIVED), True: (AVAILABLE, ACKNOWLEDGED, ARCHIVING, ARCHIVED)}

#: Above every fence; a Write raises none.
_EPOCH_MAX = (1 << 31) - 1


class Clients:
    """Sends requests; every write carries batches of its own, so a state tells which writes are in it."""

    def __init__(self, world: World, *, with_leaders: bool = False) -> None:
        self._world = world
        self._calls = LEADER_CALLS if with_leaders else CALLS
        self._states = _STATES[with_leaders]
        self._writes = 0
        self._state_epoch = 0
        self._leader_epoch = 0
        self.unanswered: dict[int, Node] = {}  #: requests in flight
        self._requests = 0

    def send(self, node: Node) -> None:
        """Send a random request to a node."""
        random = self._world.random
        calls = self._calls
        api_key = calls[int(random.random() * len(calls))] if self._requests > 3 else INITIALIZE
        count = 1 if random.random() < 0.8 else random.randint(2, 3)
        partitions = [self._ask(api_key, random.randrange(PARTITION_COUNT)) for _ in range(count)]
        topics = [(TOPIC_ID, partitions)]
        chance = random.random()
        if chance < 0.15:
            topics = [(OTHER_TOPIC_ID, partitions)]
        elif chance < 0.25:
            topics.append((OTHER_TOPIC_ID, [self._ask(api_key, random.randrange(PARTITION_COUNT))]))
        self.call(node, api_key, StateRequest(GROUP, topics), self._retry)

    def call(
        self,
        node: Node,
        api_key: int,
        request: StateRequest,
        done: Callable[[Node, int, StateRequest, StateResponse], None],
    ) -> None:
        """Send a request and see that it is answered once."""
        self._requests += 1
        number = self._requests
        self.unanswered[number] = node
        if self._world.is_tracing:
            self._world.trace(f"  request {number} to {node.name}: {api_key} {request.topics[0][1]}")

        def respond(response: StateResponse) -> None:
            if self.unanswered.pop(number, None) is None:
                violate(Invariant.ANSWERED_ONCE, f"request {number} to {node.name} is answered again: {response}")
            if api_key == READ_OR_INITIALIZE:
                self._count_loads(response)
            done(node, api_key, request, response)

        node.handle(api_key, request, respond)

    def _count_loads(self, response: StateResponse) -> None:
        """Count what leaders were told."""
        for _, results in response:
            for _, result in results:
                assert isinstance(result, ReadOrInitializeResult)
                if not result.error_code:
                    self._world.count("leader has a state" if result.has_state else "leader finds no state")

    def _retry(self, node: Node, api_key: int, request: StateRequest, response: StateResponse) -> None:
        """Send a failed write again, as a new one, sometimes and at once: in the middle of whatever the node does."""
        failed = any(result.error_code for _, results in response for _, result in results)
        if failed and api_key == WRITE and node.is_running and self._world.random.random() < 0.1:
            self._world.count("retry from inside")
            again = [self._ask(api_key, asked.partition) for asked in request.topics[0][1]]
            topic_id = request.topics[0][0]
            self.call(node, api_key, StateRequest(GROUP, [(topic_id, again)]), lambda *_: None)

    def _ask(self, api_key: int, partition: int) -> PartitionRequest:
        random = self._world.random
        if api_key == INITIALIZE:
            self._state_epoch += random.random() < 0.5
            return InitializePartition(partition, self._state_epoch, random.choice((-1, 0)))
        if api_key == READ:
            self._leader_epoch += random.random() < 0.3
            # Nothing is known to be below 0, and nothing that is fenced writes: such a Read leaves the log alone.
            return ReadPartition(partition, random.choice((0, self._leader_epoch, max(0, self._leader_epoch - 1))))
        if api_key == READ_OR_INITIALIZE:
            self._leader_epoch += random.random() < 0.3
            leader_epoch = random.choice((self._leader_epoch, max(0, self._leader_epoch - 1)))
            return ReadOrInitializePartition(partition, leader_epoch, random.choice((None, 0, 1)))
        if api_key == WRITE:
            return self._write(partition)
        return DeletePartition(partition) if api_key == DELETE else SummaryPartition(partition, -1)

    def _write(self, partition: int) -> WritePartition:
        random = self._world.random
        number = self._writes = self._writes + 1
        chance = random.random()
        batches: tuple[StateBatch, ...] = (StateBatch(4 * number, 4 * number + 1, random.choice(self._states), 1),)
        if chance < 0.02:
            self._world.count("fault: a write that is too large")
            batches = tuple(StateBatch(2**40 + 4 * n, 2**40 + 4 * n + 1, 0, 1) for n in range(200))
        elif chance < 0.04:
            self._world.count("fault: a malformed write")
            batches = (StateBatch(4 * number + 1, 4 * number, 0, 1),)
        epoch = _EPOCH_MAX if random.random() < 0.7 else max(0, self._state_epoch - random.choice((0, 0, 1)))
        leader_epoch = _EPOCH_MAX if random.random() < 0.7 else max(0, self._leader_epoch - random.choice((0, 0, 1)))
        start_offset = -1 if random.random() < 0.95 else 4 * max(0, number - 15)
        return WritePartition(partition, epoch, leader_epoch, start_offset, random.choice((-1, number)), batches)


class CleanUp(Operation):
    """Deletes a few share partitions in one operation of several records."""

    name = "clean-up"

    def __init__(self) -> None:
        self.deadline_ms = 0
        self.is_done = False

    def decide(self, machine: WatchedShard, now_ms: int) -> Decision:
        """Decide tombstones for two of them."""
        return machine.decide_topic_cleanup([TOPIC_ID], 2)

    def complete(self, outcome: object) -> None:
        """Want nothing of it."""
