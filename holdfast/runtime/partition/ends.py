"""How a load or a serving ends where the log says so, as values; and the rule for a record of the log that is not our next one."""

from typing import final

from holdfast.records.checkpoint import CHECKPOINT_KEY, Checkpoint, decode_checkpoint
from holdfast.records.errors import RecordError
from holdfast.records.header import decode_header
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
        #: An operation and its outcome, answered after those that came before it.
        self.unanswered = unanswered


@final
class Lose:
    """Another attempt owns the partition, by a checkpoint at an offset."""

    def __init__(self, winner: Checkpoint, offset: int) -> None:
        self.winner = winner
        self.offset = offset


End = Fail | Lose


def judge_unexpected(reading: Reading, record: LogRecord, metrics: RuntimeMetrics) -> End | None:
    """Put a record that is not our next one to the rule; None: it does not count, and we go on."""
    ownership = reading.ownership
    try:
        verdict = ownership.judge(record)
        is_ahead = verdict is Verdict.VOID and ownership.is_ahead(record)
        begun_anew = _find_new_beginning(reading, record) if verdict is Verdict.VOID else None
    except RecordError as error:
        return Fail(LoadFailed(f"offset {record.offset} cannot be read: {error}"))
    if verdict is Verdict.RIVAL:
        winner = ownership.winning()
        reading.check.judge_checkpoint(winner, record.offset)
        return Lose(winner, record.offset)
    if begun_anew is not None:
        return Fail(OutcomeUnknown(begun_anew))
    if verdict is Verdict.VOID and not is_ahead:
        reading.void_records += 1
        metrics.records_void.value += 1
        return None
    return Fail(OutcomeUnknown(f"offset {record.offset} holds a record under our epoch that was not our next one"))


def _find_new_beginning(reading: Reading, record: LogRecord) -> str | None:
    """Say that a void record begins the log anew below our owner epoch, as an admin accepts one that has lost ours; None: it does not.

    Its owner could not know our epoch, and counts nothing of ours, as we count nothing of its: only a load tells who goes on.
    """
    if record.key != CHECKPOINT_KEY or record.header is None:
        return None
    checkpoint, (owner_epoch, _) = decode_checkpoint(record.value or b""), decode_header(record.header)
    is_below = owner_epoch < reading.ownership.epoch
    if checkpoint.reason is None or not is_below or not reading.check.is_of_this_log(checkpoint):
        return None
    return (
        f"offset {record.offset} begins the log anew under owner epoch {owner_epoch}, below ours, because an admin accepts it as it is "
        f"({checkpoint.reason})"
    )
