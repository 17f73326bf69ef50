"""The log lines of log partitions: every alarm and bug, some of the others, and one line for what happens to many at once."""

from collections.abc import Callable
from typing import Final

import structlog

from holdfast.daemon.partitions.partition_sums import PartitionSums
from holdfast.metrics.instruments import Counter
from holdfast.metrics.line_limit import LineLimiter
from holdfast.records.log.checkpoint import Checkpoint
from holdfast.runtime.partition.lifecycle import Partition

_log = structlog.get_logger(__name__)

#: What the runtime reports of each log partition, and the event of the line about all of them.
_SUMMED: Final = {"load_accepted": "log_partitions_load_started", "unload_accepted": "log_partitions_unloaded"}


#: Lines of one event in a minute of all log partitions together: what befalls one befalls many at once.
LINES_PER_MINUTE_MAX: Final = 10


class PartitionLines:
    """The writer of the lines of all log partitions of a node."""

    def __init__(self, internal_errors: Counter, now_ms: Callable[[], int], limiter: LineLimiter) -> None:
        """Begin with none.

        Args:
            internal_errors: counts lines that carry an exception: bugs of ours.
            now_ms: the clock of the sums; it is not called before there is a line.
            limiter: of the lines of the node.
        """
        self._internal_errors = internal_errors
        self._limiter = limiter
        self._sums = PartitionSums(now_ms)

    def note(self, level: str, event: str, fields: dict[str, object]) -> None:
        """Write a log line of the runtime; one that carries an exception is about a bug.

        Of what happens to many partitions at once some lines are written, and what a silent broker causes is left to the lines
        about the silence.
        """
        is_bug = "exc_info" in fields
        self._internal_errors.value += is_bug
        is_always_written = is_bug or level in ("debug", "info") or bool(fields.get("is_alarm"))
        partition = fields.get("partition")
        if not is_always_written and isinstance(partition, int) and self._limiter.leave_out(partition):
            return
        if (summed := _SUMMED.get(event)) is not None:
            owner_epoch = fields["owner_epoch"]
            assert isinstance(partition, int)
            assert isinstance(owner_epoch, int)
            self._sums.add("info", summed, partition, {"highest_owner_epoch": owner_epoch})
        left_out = {} if is_always_written else self._limiter.admit(event, LINES_PER_MINUTE_MAX)
        if left_out is not None:
            getattr(_log, level)(event, **fields, **left_out)

    def loaded(self, partition: Partition) -> None:
        """Add a partition to the line about those that were loaded."""
        numbers = {
            "records": partition.reading.records_read,
            "longest_load_ms": partition.reading.load_ended_ms - partition.reading.load_began_ms,
        }
        self._sums.add("info", "log_partitions_loaded", partition.index, numbers)

    def handed_over(self, partition: Partition, winner: Checkpoint) -> None:
        """Add a partition to the line about those that another member took over, as the group has planned."""
        node, address = winner.node_id, winner.advertised_address
        self._sums.add("info", "log_partitions_handed_over", partition.index, node=node, address=address)

    def outranked(self, partition: Partition, winner: Checkpoint) -> None:
        """Add a partition to the line about those whose log has a higher ownership generation than the group has handed out."""
        self._sums.add("info", "log_partitions_outranked", partition.index, log_generation=winner.generation)

    def superseded(self, partition: Partition, winner: Checkpoint, next_step: str) -> None:
        """Add a partition to the line about those that another node took over against all plans."""
        self._sums.add(
            "error",
            "log_partitions_lost",
            partition.index,
            node=winner.node_id,
            address=winner.advertised_address,
            next_step=next_step,
        )

    def tick(self) -> None:
        """Write the sums to which nothing more is added."""
        self._sums.tick()

    def flush(self) -> None:
        """Write all sums now."""
        self._sums.flush()
