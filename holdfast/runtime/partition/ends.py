"""How a load or a serving ends where the log says so, as values; and the rule for a record of the log that is not our next one."""

from typing import final

from holdfast.records.checkpoint import Checkpoint
from holdfast.records.errors import RecordError
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
    except RecordError as error:
        return Fail(LoadFailed(f"offset {record.offset} cannot be read: {error}"))
    if verdict is Verdict.RIVAL:
        winner = ownership.winning()
        reading.check.judge_checkpoint(winner, record.offset)
        return Lose(winner, record.offset)
    if verdict is Verdict.VOID and not is_ahead:
        reading.void_records += 1
        metrics.records_void.value += 1
        return None
    return Fail(OutcomeUnknown(f"offset {record.offset} holds a record under our epoch that was not our next one"))
