"""What a partition asks of the world besides appending, as values: a test can assert the whole list."""

from typing import NamedTuple

from holdfast.records.checkpoint import Checkpoint
from holdfast.runtime.states import State


class StartReading(NamedTuple):
    """Read the log of this partition from its start."""

    partition: int
    instance: int


class StopReading(NamedTuple):
    """Read this partition no more."""

    partition: int


class ContinueLoad(NamedTuple):
    """Call `continue_load` again after other partitions had their turn."""

    partition: int
    instance: int


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
    """A log line: level (`info`, `warning`, `error`), event and fields."""

    level: str
    event: str
    fields: dict[str, object]


PartitionEffect = StartReading | StopReading | ContinueLoad | StateChanged | Superseded | DeleteRecords
Effect = PartitionEffect | Note
