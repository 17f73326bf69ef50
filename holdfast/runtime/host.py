"""The services of the node for its runtime."""

from collections.abc import Callable
from typing import Protocol

from holdfast.records.log.checkpoint import Checkpoint
from holdfast.runtime.partition.lifecycle import Partition


class Host(Protocol):
    """The node around the runtime; called on the runtime's thread.

    Only `note`, `continue_soon` and `begin_load_turn` may be called while a partition handles an event.
    """

    def note(self, level: str, event: str, fields: dict[str, object]) -> None:
        """Write a log line."""

    def continue_soon(self, task: Callable[[], None]) -> None:
        """Run a task on the runtime's thread after the tasks that already wait there."""

    def end_turn_with(self, task: Callable[[], None]) -> None:
        """Run a task on the runtime's thread after the events that have already come."""

    def begin_load_turn(self, ended: Callable[[], None]) -> None:
        """Prepare for loads that work in this turn; call `ended` on the runtime's thread when the turn ends."""

    def partition_changed(self, partition: Partition) -> None:
        """Handle a partition that has entered another state."""

    def superseded(self, partition: Partition, winner: Checkpoint, offset: int) -> None:
        """Handle a partition that another node rightfully owns.

        If the winner's generation is not below ours from the group, only a higher generation brings the partition back.
        """
