"""The states of share partitions: the real shard, the way of each node to it, and what is lost on that way."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.api.results import ReadOrInitializeResult, WritePartition, WriteResult
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.records.share.keys import SharePartitionKey
from holdfast.share.read_or_initialize import decide_read_or_initialize
from tests.world.samples import TOPIC
from tests.world.shard import World

if TYPE_CHECKING:
    from tests.simulated.gateway.node import GatewayNode

#: An append that the log does not confirm fails by then.
WRITE_TIMEOUT_S = 4.0
_REFUSALS = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
_DELAYS_S = (0.0, 0.002, 0.002, 0.02, 0.5)


class States:
    """All states, in one log."""

    def __init__(self, partitions: int) -> None:
        self.shard = World()
        self.shard.image.partition_counts[TOPIC] = partitions
        self.shard.shard.on_new_metadata_image(self.shard.image)

    def fence_of(self, key: SharePartitionKey) -> int:
        """Return the highest leader epoch that has read a state."""
        state = self.shard.state(key)
        return -1 if state is None else state.leader_epoch_fence


class Access:
    """The way of one process to the states (`api.share_state_access.ShareStateAccess`).

    Calls are decided in their order, as those of one node are. A process that dies loses those that were not decided yet; one that stands
    still has them decided when it goes on.
    """

    def __init__(self, node: GatewayNode) -> None:
        self._node = node
        self._undecided: deque[tuple[SharePartitionKey, int, Callable[[], Any], Callable[[Any], None], type[Any]]] = (
            deque()
        )
        #: Calls that have no answer.
        self.unanswered = 0

    def log_partition_of(self, topic_id: bytes, partition: int) -> int | None:
        """See `ShareStateAccess.log_partition_of`."""
        return 0

    def read_or_initialize(
        self,
        key: SharePartitionKey,
        leader_epoch: int,
        initial_start_offset: int | None,
        respond: Callable[[ReadOrInitializeResult], None],
    ) -> None:
        """See `ShareStateAccess.read_or_initialize`."""

        def decide() -> ReadOrInitializeResult:
            world = self._node.world
            shard = world.states.shard
            is_new = shard.state(key) is None
            found: ReadOrInitializeResult = shard.run(
                decide_read_or_initialize(shard.shard, key, leader_epoch, initial_start_offset, shard.now_ms)
            )
            if is_new and found.has_state:
                world.ledger.begin(self._node, key, found.start_offset)
            return found

        self._call(key, leader_epoch, decide, respond, ReadOrInitializeResult)

    def write(
        self, group_id: str, topic_id: bytes, write: WritePartition, respond: Callable[[WriteResult], None]
    ) -> None:
        """See `ShareStateAccess.write`."""
        key = SharePartitionKey(group_id, topic_id, write.partition)

        def decide() -> WriteResult:
            world = self._node.world
            shard = world.states.shard
            before = shard.state(key)
            _, state_epoch, leader_epoch, start_offset, complete_count, batches = write
            answer: WriteResult = shard.run(
                shard.shard.decide_write(
                    key, state_epoch, leader_epoch, start_offset, complete_count, batches, shard.now_ms
                )
            )
            if not answer.error_code:
                world.ledger.check_write(key, before, shard.state(key), batches)
            return answer

        self._call(key, write.leader_epoch, decide, respond, WriteResult)

    def _call(
        self,
        key: SharePartitionKey,
        leader_epoch: int,
        decide: Callable[[], Any],
        respond: Callable[[Any], None],
        result: type[Any],
    ) -> None:
        if not self._undecided:
            self._node.loop.call_soon(self._decide)
        self._undecided.append((key, leader_epoch, decide, respond, result))
        self.unanswered += 1

    def _decide(self) -> None:
        """Decide all calls of this turn."""
        world = self._node.world
        while self._undecided:
            key, leader_epoch, decide, respond, result = self._undecided.popleft()
            random = world.random_of(f"state of {key.group_id} {key.partition}")
            fate = random.random() if world.is_calm else random.random() / self._trouble()
            delay_s = random.choice(_DELAYS_S)
            if not world.is_calm and fate < 0.02:
                answer: Any = result(random.choice(_REFUSALS), "refused")
                world.count("call refused")
            else:
                answer = None if not world.is_calm and fate < 0.03 else decide()
                if not world.is_calm and fate < 0.06:
                    # It may be in the log, or not.
                    answer = result(ErrorCode.REQUEST_TIMED_OUT, "the log did not confirm it")
                    delay_s = WRITE_TIMEOUT_S
                    world.count("outcome of a Write is not known")
                elif answer.error_code == ErrorCode.FENCED_LEADER_EPOCH:
                    world.count("leader fenced")
            world.timeline.after(
                delay_s, partial(self._node.run, partial(self._answer, key, leader_epoch, respond, answer))
            )

    def _trouble(self) -> float:
        return max(0.01, self._node.world.trouble)

    def _answer(self, key: SharePartitionKey, leader_epoch: int, respond: Callable[[Any], None], answer: Any) -> None:
        self.unanswered -= 1
        if answer.error_code == ErrorCode.FENCED_LEADER_EPOCH:
            self._node.world.ledger.fence(self._node, key, leader_epoch)
        respond(answer)
