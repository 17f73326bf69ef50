"""The ends of a load or a serving, as values, and the rule for a record of the log that is not our next one."""

from typing import final

from holdfast.records.errors import RecordError
from holdfast.records.log.checkpoint import CHECKPOINT_KEY, Checkpoint, decode_checkpoint
from holdfast.records.log.header import decode_header, is_foreign
from holdfast.runtime.errors import LoadFailed, OutcomeUnknown
from holdfast.runtime.log_protocol import LogRecord
from holdfast.runtime.metrics import RuntimeMetrics
from holdfast.runtime.partition.ownership import Verdict
from holdfast.runtime.partition.reading import Reading
from holdfast.runtime.state_machine import Operation


@final
class Fail:
    """Memory and log may disagree, or the load cannot go on: load again after a back-off."""

    def __init__(self, error: Exception, unanswered: tuple[Operation, object] | None = None) -> None:
        self.error = error
        #: An operation and its outcome, which is answered after all earlier operations.
        self.unanswered = unanswered


@final
class Lose:
    """Another attempt owns the partition; its checkpoint is at an offset."""

    def __init__(self, winner: Checkpoint, offset: int) -> None:
        self.winner = winner
        self.offset = offset


End = Fail | Lose


def judge_unexpected(reading: Reading, record: LogRecord, metrics: RuntimeMetrics) -> End | None:
    """Judge a record that is not our next one; None: it does not count, and we go on."""
    ownership = reading.ownership
    try:
        verdict = ownership.judge(record)
        is_ahead = verdict is Verdict.VOID and ownership.is_ahead(record)
        accepted_without_ours = _find_accepted_without_ours(reading, record) if verdict is Verdict.VOID else None
    except RecordError as error:
        return Fail(LoadFailed(f"offset {record.offset} cannot be read: {error}"))
    if verdict is Verdict.RIVAL:
        winner = ownership.winning()
        reading.check.judge_checkpoint(winner, record.offset)
        return Lose(winner, record.offset)
    if accepted_without_ours is not None:
        return Fail(OutcomeUnknown(accepted_without_ours))
    if verdict is Verdict.VOID and not is_ahead:
        reading.void_records += 1
        metrics.records_void.value += 1
        return None
    return Fail(OutcomeUnknown(f"offset {record.offset} holds a record under our epoch that was not our next one"))


def _find_accepted_without_ours(reading: Reading, record: LogRecord) -> str | None:
    """Describe a void record that is another attempt's checkpoint, which an admin accepted because the log had lost ours; None: it is not.

    The owner of that checkpoint could not know our epoch. It counts no record of ours, and we count none of its records, so only a load
    shows who goes on. If there are two accepting checkpoints of one epoch, the first one counts. Its owner loads again, too, because it
    cannot tell that case from this one.
    """
    if record.key != CHECKPOINT_KEY or record.header is None or is_foreign(record.header):
        return None
    checkpoint, (owner_epoch, _) = decode_checkpoint(record.value or b""), decode_header(record.header)
    ownership = reading.ownership
    is_at_most_ours = owner_epoch <= ownership.epoch and checkpoint.attempt_id != ownership.attempt_id
    if checkpoint.reason is None or not is_at_most_ours or not reading.check.is_of_this_log(checkpoint):
        return None
    return (
        f"offset {record.offset} holds a checkpoint of owner epoch {owner_epoch}, not above ours, that an admin accepted "
        f"({checkpoint.reason}): the log had lost ours"
    )
