"""What the node around the runtime does for it."""

from collections.abc import Callable
from typing import Protocol

from holdfast.records.log.checkpoint import Checkpoint
from holdfast.runtime.partition.lifecycle import Partition


class Host(Protocol):
    """The node around the runtime; called on the runtime's thread.

    `note`, `continue_soon` and `begin_load_turn` may be called while a partition handles an event, the others are not.
    """

    def note(self, level: str, event: str, fields: dict[str, object]) -> None:
        """Write a log line."""

    def continue_soon(self, task: Callable[[], None]) -> None:
        """Run a task on the runtime's thread after what already waits there."""

    def end_turn_with(self, task: Callable[[], None]) -> None:
        """Run a task on the runtime's thread when the events that have come already are handled."""

    def begin_load_turn(self, ended: Callable[[], None]) -> None:
        """Learn that loads work in this turn, and call `ended` on the runtime's thread when the turn ends."""

    def partition_changed(self, partition: Partition) -> None:
        """Learn that a partition entered another state."""

    def superseded(self, partition: Partition, winner: Checkpoint, offset: int) -> None:
        """Learn that another node rightfully owns a partition.

        Where the winner's generation is not below the one that a group has handed out, only a higher one brings the partition back.
        """
