"""One reading of a log partition: from the start of a load to the end of the serving after it."""

from typing import final

from holdfast.runtime.partition.log_check import LogCheck
from holdfast.runtime.partition.ownership import Ownership
from holdfast.runtime.settings import LogIdentity


@final
class Reading:
    """The position in one partition's log, the findings up to there, and the ownership that follows from them."""

    def __init__(self, partition: int, identity: LogIdentity, instance: int, load_began_ms: int) -> None:
        #: Number of this reading; events of an earlier one are ignored.
        self.instance = instance
        self.ownership = Ownership()
        self.check = LogCheck(partition, identity)
        self.log_start = 0
        #: Log start that the tail has seen; an owner copies it to `log_start` with its next tick.
        self.log_start_seen = 0
        #: Offset from which on the log was whole when we began to serve.
        self.whole_from = 0
        #: Offset of the next record to be read.
        self.position = 0
        #: Offset of our newest checkpoint that counted.
        self.checkpoint_offset = -1
        #: The newest cut offset that a counted checkpoint of ours named.
        self.cut_offset = -1
        self.records_read = 0
        #: Records read before our own checkpoint.
        self.records_loaded = 0
        #: Bytes of keys and values that counted, from the log start on.
        self.bytes_counted = 0
        #: `bytes_counted` when our newest checkpoint was read.
        self.checkpoint_bytes = 0
        #: The part of `bytes_counted` that was pruned.
        self.bytes_cut = 0
        self.void_records = 0
        self.load_began_ms = load_began_ms
        #: 0 until the load has ended.
        self.load_ended_ms = 0
        #: Offset of the restore point that the load began with; -1: it read the log from its start.
        self.restored_from_offset = -1

    def position_reached(self, next_offset: int) -> None:
        """Move the position past offsets without a record for a reader."""
        self.position = max(self.position, next_offset)

    def log_start_moved(self, log_start_offset: int) -> None:
        """Move the log start that was seen up; we or another program deleted the records below."""
        self.log_start_seen = max(self.log_start_seen, log_start_offset)

    @property
    def log_start_claimed(self) -> int:
        """Return the highest log start that was reported."""
        return max(self.log_start, self.log_start_seen)

    def records_deleted(self, log_start_offset: int) -> None:
        """Move the log start up."""
        self.log_start = max(self.log_start, log_start_offset)
        self._count_what_is_cut()

    def found_own_checkpoint(self, offset: int) -> None:
        """Set our newest checkpoint; no record below it is needed."""
        self.checkpoint_offset = offset
        self.checkpoint_bytes = self.bytes_counted
        self._count_what_is_cut()

    def serve(self) -> None:
        """Treat the log as whole from where it was read."""
        self.whole_from = max(self.log_start, self.restored_from_offset)

    def is_missing_records(self) -> bool:
        """Tell whether another program deleted records: the log starts above every offset that an owner has named as a cut.

        The records below a cut are replaced by later ones, so a log that starts at a cut or below is whole for every load.
        """
        return self.would_miss_records(self.log_start)

    def would_miss_records(self, log_start: int) -> bool:
        """Tell whether another program would have deleted records if the log started at this offset."""
        return log_start > max(self.whole_from, self.cut_offset, self.ownership.cut_offset)

    def _count_what_is_cut(self) -> None:
        if self.log_start == self.checkpoint_offset:
            self.bytes_cut = self.checkpoint_bytes
