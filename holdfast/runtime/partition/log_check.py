"""Is this log ours, and whole? What a load finds wrong is kept until its end, because an admin's checkpoint may accept it."""

from holdfast.records.log.checkpoint import Checkpoint
from holdfast.records.log.header import is_foreign
from holdfast.runtime.errors import Alarm, LoadFailed
from holdfast.runtime.log_protocol import LogRecord
from holdfast.runtime.settings import LogIdentity


class LogCheck:
    """The findings of one load."""

    __slots__ = ("_accepted_from", "_found", "_identity", "_is_accepted", "_lost_end", "_partition", "accepted_reason")

    def __init__(self, partition: int, identity: LogIdentity) -> None:
        self._partition = partition
        self._identity = identity
        #: The first thing wrong since the last accepted checkpoint.
        self._found: LoadFailed | None = None
        self._lost_end: Alarm | None = None
        #: An accepting checkpoint of this log was read, and stands for all that lay before it.
        self._is_accepted = False
        #: The newest for which an admin accepted this log, as its checkpoints say.
        self.accepted_reason: str | None = None
        #: Where the lost end begins; an accepting checkpoint below it is older than the loss.
        self._accepted_from = 0

    @property
    def finding(self) -> LoadFailed | None:
        """Return why the log may not be served; None: nothing is wrong, or an admin accepted it."""
        return self._lost_end or self._found

    def found(self, finding: LoadFailed) -> None:
        """Keep the first finding."""
        if self._found is None:
            self._found = finding

    def judge_lost_end(self, lost_from: int, committed_offset: int) -> None:
        """Learn that the log once ended below what this process has seen committed in it."""
        self._accepted_from = lost_from
        self._lost_end = Alarm(
            f"the log ended at {lost_from} but was committed to {committed_offset}, so its end was lost or it was "
            f"recreated; {self._way_out()}"
        )

    def end_found_again(self) -> None:
        """Learn that the log holds all that this process has seen committed in it."""
        self._lost_end = None
        self._accepted_from = 0

    def judge_start(self, log_start: int) -> None:
        """Judge a log of which no checkpoint says where it is whole from: it was never cut, or accepted, or it is not whole."""
        if log_start > 0 and not self._is_accepted:
            self.found(
                Alarm(
                    f"the log starts at {log_start} and no checkpoint says that it is whole: another program deleted records; "
                    f"{self._way_out()}"
                )
            )

    def judge_before_checkpoint(self, record: LogRecord, log_start: int) -> None:
        """Judge a record before the first checkpoint."""
        if is_foreign(record.header):
            self.found(
                Alarm(
                    f"offset {record.offset} has no `hf` header and no checkpoint before it: another program writes "
                    f"this topic; {self._way_out()}"
                )
            )
        else:
            self.judge_start(log_start)

    def judge_checkpoint(self, checkpoint: Checkpoint, offset: int) -> bool:
        """Judge a checkpoint that counts; returns whether it accepts what was found before it."""
        if self.is_of_this_log(checkpoint):
            # Older checkpoints carry no `accepted_reason`; that withdraws nothing.
            self.accepted_reason = checkpoint.reason or checkpoint.accepted_reason or self.accepted_reason
        if checkpoint.reason is not None and self.is_of_this_log(checkpoint):
            self._found, self._is_accepted = None, True
            if offset >= self._accepted_from:
                self._lost_end = None
            return True
        for field, mine, other in zip(LogIdentity._fields, self._identity, identity_of(checkpoint), strict=True):
            if mine != other:
                # With another number of partitions, state would be looked for in the wrong ones, even if an admin accepts it.
                is_count = field == "partition_count"
                way_out = "copy the log to a topic with that number" if is_count else self._way_out()
                self.found(
                    Alarm(
                        f"the checkpoint at offset {offset} names {field} {show(other)} where this log has {show(mine)}; {way_out}"
                    )
                )
        return False

    def is_of_this_log(self, checkpoint: Checkpoint) -> bool:
        """Tell whether a checkpoint was written for this log, and not for another that had its name."""
        return identity_of(checkpoint) == self._identity

    def _way_out(self) -> str:
        return f"`holdfast partitions accept {self._partition} --reason …` goes on with what is there"


def identity_of(checkpoint: Checkpoint) -> LogIdentity:
    """Return the log that a checkpoint was written for."""
    return LogIdentity(checkpoint.cluster_id, checkpoint.topic_id, checkpoint.partition_count)


def show(value: object) -> str:
    """Return a part of an identity as people read it."""
    return value.hex() if isinstance(value, bytes) else str(value)
