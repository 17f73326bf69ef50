"""The effects that a partition requests, except appends, as values, so that a test can assert the whole list."""

from typing import NamedTuple, final

from holdfast.records.log.checkpoint import Checkpoint
from holdfast.runtime.partition.states import State
from holdfast.runtime.state_machine import Operation


class QueryLogStart(NamedTuple):
    """Request where the log of this partition starts."""

    partition: int
    instance: int


class FindRestorePoint(NamedTuple):
    """Look for a restore point for the load of this partition."""

    partition: int
    instance: int
    log_start: int


class RestorePointJudged(NamedTuple):
    """The log was compared with the restore point; `refusal` is empty, or says why the load started again without it."""

    partition: int
    offset: int
    refusal: str


class QueryOwner(NamedTuple):
    """Query whether the owner of this partition still serves it."""

    partition: int
    instance: int
    owner: Checkpoint


class StartReading(NamedTuple):
    """Read the log of this partition, from its start or from an offset."""

    partition: int
    instance: int
    from_offset: int = 0


class StopReading(NamedTuple):
    """Stop reading the log of this partition."""

    partition: int


class ContinueLoad(NamedTuple):
    """Let the load of this partition continue after other partitions had their turn."""

    partition: int
    instance: int
    #: Its own checkpoint was read. No node serves the partition until the load ends, so it does not wait for memory to be freed.
    is_claimed: bool


class StateChanged(NamedTuple):
    """The partition entered another state."""

    partition: int
    state: State


class Superseded(NamedTuple):
    """Another node rightfully owns this partition."""

    partition: int
    winner: Checkpoint
    offset: int


class DeleteRecords(NamedTuple):
    """Cut the log of this partition below an offset."""

    partition: int
    before_offset: int


class Note(NamedTuple):
    """A log line: level (`debug`, `info`, `warning`, `error`), event and fields."""

    level: str
    event: str
    fields: dict[str, object]


PartitionEffect = (
    QueryLogStart
    | QueryOwner
    | FindRestorePoint
    | RestorePointJudged
    | StartReading
    | StopReading
    | ContinueLoad
    | StateChanged
    | Superseded
    | DeleteRecords
)
Effect = PartitionEffect | Note


@final
class Outbox:
    """The effects and replies of the partitions of a node while an event is handled.

    Handlers fill one shared outbox and return no lists, so effects that were decided before a bug raised are carried out all the same.
    It also saves the common case, a write that only parks its answer, an empty list.
    """

    def __init__(self) -> None:
        self.effects: list[Effect] = []
        #: Completed operations, with their outcomes.
        self.replies: list[tuple[Operation, object]] = []

    def take_all(self) -> tuple[list[tuple[Operation, object]], list[Effect]]:
        """Remove the replies and the effects, and return them."""
        replies, effects = self.replies, self.effects
        self.replies, self.effects = [], []
        return replies, effects

    def reply(self, operation: Operation, outcome: object) -> None:
        """Complete an operation, unless it is already done."""
        if not operation.is_done:
            operation.is_done = True
            self.replies.append((operation, outcome))
