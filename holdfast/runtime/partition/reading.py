"""One reading of a log partition: from the beginning of a load to the end of the serving that follows it."""

from typing import final

from holdfast.runtime.partition.log_check import LogCheck
from holdfast.runtime.partition.ownership import Ownership
from holdfast.runtime.settings import LogIdentity


@final
class Reading:
    """How far one partition's log was read, what was found in it, and who owns it by what was read."""

    def __init__(self, partition: int, identity: LogIdentity, instance: int, load_began_ms: int) -> None:
        #: Counts readings; whatever comes of an earlier one is ignored.
        self.instance = instance
        self.ownership = Ownership()
        self.check = LogCheck(partition, identity)
        self.log_start = 0
        #: As the tail sees it; an owner takes it over with its next tick.
        self.log_start_seen = 0
        #: From where on the log was whole when we began to serve.
        self.whole_from = 0
        #: Offset of the next record to be read.
        self.position = 0
        #: Of our newest checkpoint that counted.
        self.checkpoint_offset = -1
        #: The newest that a checkpoint of ours named which counted.
        self.cut_offset = -1
        self.records_read = 0
        #: Those read before our own checkpoint.
        self.records_loaded = 0
        #: Keys and values that counted, since the load began at the log start.
        self.bytes_counted = 0
        #: `bytes_counted` when our newest checkpoint was read.
        self.checkpoint_bytes = 0
        #: The part of `bytes_counted` that was pruned since.
        self.bytes_cut = 0
        self.void_records = 0
        self.load_began_ms = load_began_ms
        #: 0 until the load has ended.
        self.load_ended_ms = 0
        #: Of the restore point that the load began with; -1: it read the log from its start.
        self.restored_from_offset = -1

    def position_reached(self, next_offset: int) -> None:
        """Move behind offsets that hold nothing for a reader."""
        self.position = max(self.position, next_offset)

    def log_start_moved(self, log_start_offset: int) -> None:
        """Learn where the log starts, whoever deleted what lay below."""
        self.log_start_seen = max(self.log_start_seen, log_start_offset)

    @property
    def log_start_claimed(self) -> int:
        """The highest that was heard of."""
        return max(self.log_start, self.log_start_seen)

    def records_deleted(self, log_start_offset: int) -> None:
        """Move the log start up."""
        self.log_start = max(self.log_start, log_start_offset)
        self._count_what_is_cut()

    def found_own_checkpoint(self, offset: int) -> None:
        """Remember our newest checkpoint, from which on the log is all that is needed."""
        self.checkpoint_offset = offset
        self.checkpoint_bytes = self.bytes_counted
        self._count_what_is_cut()

    def serve(self) -> None:
        """Take the log as it was read for whole."""
        self.whole_from = max(self.log_start, self.restored_from_offset)

    def is_missing_records(self) -> bool:
        """Tell whether the log starts above all that an owner has named as not needed: another program deleted records.

        What an owner names has its replacement in the log, so a log that starts there, or below, is whole for every load.
        """
        return self.would_miss_records(self.log_start)

    def would_miss_records(self, log_start: int) -> bool:
        """Tell the same of a log that starts elsewhere."""
        return log_start > max(self.whole_from, self.cut_offset, self.ownership.cut_offset)

    def _count_what_is_cut(self) -> None:
        if self.log_start == self.checkpoint_offset:
            self.bytes_cut = self.checkpoint_bytes
