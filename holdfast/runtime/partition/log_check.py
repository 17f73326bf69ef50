"""Is this log ours, and whole? A load keeps its findings until its end, because a later checkpoint of an admin may accept them."""

from typing import Final

from holdfast.records.log.checkpoint import Checkpoint, Placement
from holdfast.records.log.header import is_foreign
from holdfast.runtime.errors import Alarm, LoadFailed
from holdfast.runtime.log_protocol import LogRecord
from holdfast.runtime.settings import LogIdentity

#: For fields of the identity of which no admin can accept another one.
_NO_WAY_AROUND: Final = {
    "partition_count": "copy the log to a topic with that number",
    "placement": "nodes with different placements have written it; keep the log partitions of one of them, and make the others empty",
}


class LogCheck:
    """The findings of one load."""

    __slots__ = ("_accepted_from", "_found", "_identity", "_is_accepted", "_lost_end", "_partition", "accepted_reason")

    def __init__(self, partition: int, identity: LogIdentity) -> None:
        self._partition = partition
        self._identity = identity
        #: The first finding after the newest accepting checkpoint.
        self._found: LoadFailed | None = None
        self._lost_end: Alarm | None = None
        #: An accepting checkpoint of this log was read; it accepts everything before it.
        self._is_accepted = False
        #: The newest reason for which an admin accepted this log, as its checkpoints say.
        self.accepted_reason: str | None = None
        #: Offset at which the lost end begins; an accepting checkpoint below it is older than the loss.
        self._accepted_from = 0

    @property
    def finding(self) -> LoadFailed | None:
        """Return why the log must not be served; None: nothing is wrong, or an admin accepted it."""
        return self._lost_end or self._found

    def found(self, finding: LoadFailed) -> None:
        """Keep the first finding."""
        if self._found is None:
            self._found = finding

    def judge_lost_end(self, lost_from: int, committed_offset: int) -> None:
        """Report a log that once ended below an offset that this process has seen committed."""
        self._accepted_from = lost_from
        self._lost_end = Alarm(
            f"the log ended at {lost_from} but was committed to {committed_offset}, so its end was lost or it was "
            f"recreated; {self._way_out()}"
        )

    def end_found_again(self) -> None:
        """Drop the finding of a lost end, because the log holds everything that this process has seen committed."""
        self._lost_end = None
        self._accepted_from = 0

    def judge_start(self, log_start: int) -> None:
        """Judge the start of a log without a checkpoint that names a cut: it must be 0 or accepted, or the log is not whole."""
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
        """Judge a checkpoint that counts; returns whether it accepts the findings before it."""
        if self.is_of_this_log(checkpoint):
            # An older checkpoint has no `accepted_reason`, which does not withdraw one.
            self.accepted_reason = checkpoint.reason or checkpoint.accepted_reason or self.accepted_reason
        if checkpoint.reason is not None and self.is_of_this_log(checkpoint):
            self._found, self._is_accepted = None, True
            if offset >= self._accepted_from:
                self._lost_end = None
            return True
        for field, mine, other in zip(LogIdentity._fields, self._identity, identity_of(checkpoint), strict=True):
            if mine != other:
                # By another number or placement, state would be searched in wrong partitions, even if an admin accepts it.
                way_out = _NO_WAY_AROUND.get(field) or self._way_out()
                self.found(
                    Alarm(
                        f"the checkpoint at offset {offset} names {field} {show(other)} where this log has {show(mine)}; {way_out}"
                    )
                )
        return False

    def is_of_this_log(self, checkpoint: Checkpoint) -> bool:
        """Tell whether a checkpoint was written for this log, and not for another one of the same name."""
        return identity_of(checkpoint) == self._identity

    def _way_out(self) -> str:
        return f"`holdfast partitions accept {self._partition} --reason …` goes on with what is there"


def identity_of(checkpoint: Checkpoint) -> LogIdentity:
    """Return the identity of the log that a checkpoint was written for."""
    return LogIdentity(checkpoint.cluster_id, checkpoint.topic_id, checkpoint.partition_count, checkpoint.placement)


def show(value: object) -> str:
    """Return a part of an identity as text."""
    if isinstance(value, Placement):
        return value.name.lower().replace("_", " ")
    return value.hex() if isinstance(value, bytes) else str(value)
