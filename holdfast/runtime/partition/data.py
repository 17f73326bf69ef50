"""What one log partition on this node holds: over all its loads, and of the one that is now."""

from collections.abc import Callable

from holdfast.runtime.effects import Effect, Note
from holdfast.runtime.machine import Operation, StateMachine
from holdfast.runtime.partition.log_check import LogCheck
from holdfast.runtime.partition.ownership import Ownership
from holdfast.runtime.partition.parking import Parking
from holdfast.runtime.partition.restore_point import Base
from holdfast.runtime.partition.states import State
from holdfast.runtime.settings import PartitionConfig, Ports
from holdfast.runtime.timers import Timers


class PartitionData:
    """The fields; what happens to them is in `runtime.partition.lifecycle` and `runtime.partition.serving`."""

    def __init__(
        self,
        index: int,
        config: PartitionConfig,
        ports: Ports,
        make_machine: Callable[[int], StateMachine],
        effects: list[Effect],
        replies: list[tuple[Operation, object]],
    ) -> None:
        self.index = index
        self.config = config
        self._ports = ports
        self._make_machine = make_machine
        self._effects = effects
        self._replies = replies
        self.state = State.INITIAL
        self.instance = 0  #: counts loads; whatever is told of an earlier one is ignored
        self.generation: int | None = None  #: None: static, becomes 1 + the highest in the log at the first load
        self.is_static = True
        self.image: object = None
        self.timers = Timers()
        self.failure: str | None = None  #: why the partition is FAILED or CLOSED
        self.is_alarmed = False
        self.retry_at_ms: int | None = None
        self.committed_offset = (
            0  #: offset behind the newest record of ours that counted, over all loads of this process
        )
        #: where the log ended when it was found shorter than what was committed; known until an admin accepts it
        self.lost_from: int | None = None
        self._accept_reason: str | None = None  #: of an admin, until a checkpoint of ours has carried it
        self._takes_over = False  #: an admin said so, whoever serves; until we do
        self._backoff_ms = config.retry_backoff_ms
        self._too_large_line_ms = 0  #: no line tells of a record that is too large before
        self._too_large_unsaid = 0  #: such records since the last line
        self._reset()

    def _reset(self) -> None:
        self.machine: StateMachine | None = None
        self.ownership = Ownership()
        self.log_start = 0
        self.position = 0  #: offset of the next record the tail will meet
        self.end_offset = 0  #: the high watermark when reading began
        self.committed_sequence = 0  #: the newest record of ours that counted; below `ownership.sequence`
        self.checkpoint_offset = -1  #: our newest checkpoint that counted
        self.cut_offset = -1  #: the newest that a checkpoint of ours named which counted
        self._begins_at = 0  #: below it nothing is read, for a checkpoint says that nothing there is needed
        self.records_met = 0
        self.records_loaded = 0  #: met before our own checkpoint
        self.bytes_met = 0  #: keys and values that counted, since the load began at the log start
        self.checkpoint_bytes = 0  #: `bytes_met` when our newest checkpoint was met
        self.bytes_cut = 0  #: the part of `bytes_met` that was pruned since
        self.void_records = 0
        self.load_began_ms = 0
        self.load_ended_ms = 0
        self.base_offset = -1  #: of the base that this load stands on; -1: it read the log from its start
        self._base: Base | None = None  #: not yet compared with the log
        self._is_at_checkpoint = False  #: the load reads the base's newest checkpoint first
        self._is_reading = False
        self._progress_ms = 0
        self._is_folding = False
        self._silent_attempt_id: bytes | None = (
            None  #: the attempt of an owner that does not serve, as far as it could be asked
        )
        self._check = LogCheck(self.index, self.config.log)
        self.parking = Parking()

    def _reply(self, operation: Operation, outcome: object) -> None:
        if not operation.is_done:
            operation.is_done = True
            self._replies.append((operation, outcome))

    def _note(self, level: str, event: str, **fields: object) -> None:
        fields |= {"partition": self.index, "state": self.state.value, "generation": self.generation}
        self._effects.append(Note(level, event, fields))
