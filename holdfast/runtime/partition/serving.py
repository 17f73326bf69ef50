"""One log partition while this node serves it: decide, append, park, answer when the record is read back.

`runtime.partition.load` says how it comes to serve, and `runtime.partition.lifecycle` how it stops.
The only call to the outside is `append`: the log may refuse a record, and then only that operation is undone.

The rules (docs/architecture.md): a write is answered when the tail has read back exactly its record and the record counted.
The log hands out only records below the high watermark, so no watermark is compared here.
An answer without records waits for every earlier write and for a read index that was requested after the operation came.
"""

from typing import Any, Final, final

from holdfast.records.log.checkpoint import CHECKPOINT_KEY
from holdfast.records.log.fencing import make_position
from holdfast.records.log.header import encode_header
from holdfast.runtime.effects import Note, Outbox, QueryLogStart
from holdfast.runtime.errors import (
    AppendRefused,
    CoordinatorError,
    NotAvailable,
    OperationFailed,
    OutcomeUnknown,
    RecordTooLarge,
)
from holdfast.runtime.log_protocol import LogRecord
from holdfast.runtime.partition.ends import End, Fail, judge_unexpected
from holdfast.runtime.partition.parking import Parked, Parking, make_parked
from holdfast.runtime.partition.reading import Reading
from holdfast.runtime.partition.tenancy import Tenancy
from holdfast.runtime.settings import Ports
from holdfast.runtime.state_machine import Operation, StateMachine

#: Time between two queries for the log start while records seem to be missing, because one answer may have been wrong.
_LOG_START_QUERY_MS: Final = 10_000
#: Shortest time between two lines about records that are too large, which any caller can cause.
_REPEATED_LINE_MS: Final = 60_000


@final
class RepeatedLine:
    """A log line that any caller can cause, written at a limited rate for one partition."""

    def __init__(self) -> None:
        self._next_ms = 0
        self._left_out = 0

    def admit(self, now_ms: int, pause_ms: int) -> dict[str, object] | None:
        """Return fields with the number of lines suppressed since the last one; None: suppress this one, too."""
        if now_ms < self._next_ms:
            self._left_out += 1
            return None
        left_out, self._left_out, self._next_ms = self._left_out, 0, now_ms + pause_ms
        return {"others_since": left_out} if left_out else {}


@final
class Serving:
    """The state machine of one log partition and its parked answers, from the end of a load until the partition fails or is lost.

    A method that may end the serving returns that end, and the partition that holds it carries it out.
    """

    def __init__(
        self,
        tenancy: Tenancy,
        ports: Ports,
        outbox: Outbox,
        reading: Reading,
        machine: StateMachine,
        too_large: RepeatedLine,
    ) -> None:
        self.machine = machine
        self.parking = Parking()
        #: Sequence of our newest record that counted; below `ownership.sequence`.
        self.committed_sequence = 0
        self._index = tenancy.index
        self._tenancy = tenancy
        self._ports = ports
        self._outbox = outbox
        self._reading = reading
        self._ownership = reading.ownership
        self._too_large = too_large
        self._is_missing_records = False
        #: Time of the next query for the log start, if records seem to be missing.
        self._log_start_due_ms = 0
        #: Reported log start at the time of the last query.
        self._log_start_doubted = -1
        #: Number of answers in a row that say that no records are missing.
        self._contradictions = 0
        reading.serve()

    # ---- the log ---------------------------------------------------------------------------------------------------

    def own_records_read(self, base_offset: int, count: int, first_header: bytes) -> bool:
        """Handle our own next records, which the log has compared byte for byte; returns False if others should come next."""
        records = self.parking.records
        if not records or records[0].header != first_header or not self._ownership.owns() or len(records) < count:
            return False
        self._reading.records_read += count
        self._reading.position = base_offset + count
        self._committed(count, base_offset)
        self.release()
        return True

    def records_read(self, records: list[LogRecord]) -> End | None:
        """Handle the next records of the log, ours or those of others."""
        parked, reading = self.parking.records, self._reading
        reading.records_read += len(records)
        for record in records:
            offset, key_bytes, value_bytes, header = record
            reading.position = offset + 1
            head = parked[0] if parked else None
            # Compare the whole record: it counts if and only if it is the one that we sent under this sequence.
            if head is None or header != head.header or key_bytes != head.key_bytes or value_bytes != head.value_bytes:
                end = judge_unexpected(reading, record, self._ports.metrics)
                if end is not None:
                    return end
                continue
            self._committed(1, offset)
        self.release()
        return None

    def stop(self, outcome: CoordinatorError) -> None:
        """Answer all waiting operations, and keep the committed position."""
        ownership = self._ownership
        position = make_position((ownership.epoch, ownership.attempt_id, self.committed_sequence + 1))
        self._tenancy.committed_position = position
        for operation in self.parking.drain():
            self._outbox.reply(operation, outcome)

    def _committed(self, count: int, base_offset: int) -> None:
        """Commit the next records that we sent; they are in the log from `base_offset` on."""
        machine, next_parked, reading, tenancy = (
            self.machine,
            self.parking.records.popleft,
            self._reading,
            self._tenancy,
        )
        for offset in range(base_offset, base_offset + count):
            sequence, _, key_bytes, value_bytes, key, value, operation, response = next_parked()
            self.committed_sequence = sequence
            tenancy.committed_offset = offset + 1
            size = len(key_bytes) + (len(value_bytes) if value_bytes else 0)
            reading.bytes_counted += size
            if key_bytes == CHECKPOINT_KEY:
                self._ownership.winner_offset = offset
                if value is None:
                    reading.found_own_checkpoint(offset)
                else:
                    reading.cut_offset = value
                continue
            if operation is not None and not operation.is_done:
                operation.is_done = True
                self._outbox.replies.append((operation, response))
            machine.committed(key, value, offset, sequence, size)
        self._ownership.own_committed(self.committed_sequence)
        self._ports.metrics.records_committed.value += count

    def position_reached(self, next_offset: int) -> None:
        """Move past offsets without a record for a reader."""
        self._reading.position_reached(next_offset)
        self.release()

    def read_index_found(self, round_number: int, offset: int) -> None:
        """Set the read index of all answers that requested it in this round or before."""
        self.parking.set_read_index(round_number, offset)
        self.release()

    def release(self) -> None:
        """Send the answers without records that need not wait any longer."""
        if self.parking.answers:
            for waiter in self.parking.release(self.committed_sequence, self._reading.position):
                self._outbox.reply(waiter.operation, waiter.response)

    # ---- callers ---------------------------------------------------------------------------------------------------

    def write(self, operation: Operation, now_ms: int) -> End | None:
        """Decide, replay, append and park; or refuse the operation with the reason."""
        machine, parking = self.machine, self.parking
        limit = self._tenancy.config.parked_writes_max
        if len(parking.records) + parking.answers >= limit:
            self._outbox.reply(operation, NotAvailable(f"{limit} operations wait already"))
            return None
        try:
            decision = operation.decide(machine, now_ms)
        except CoordinatorError as refusal:
            self._outbox.reply(operation, refusal)
            return None
        except Exception as bug:
            self._note_bug("decide_failed", bug, operation)
            self._outbox.reply(operation, OperationFailed("deciding failed"))
            return None
        records, response, is_malformed = decision
        operation.has_records = bool(records)
        if records:
            return self._append_records(operation, records, response, now_ms)
        if is_malformed:
            self._outbox.reply(operation, response)
        else:
            index_round = self._ports.request_read_index(self._index)
            parking.wait(operation, response, self._ownership.sequence - 1, index_round)
        return None

    def refresh(self, cut_offset: int) -> bool:
        """Append our checkpoint again, under the next sequence; returns whether it was handed over."""
        ownership, ports = self._ownership, self._ports
        attempt_id = ownership.attempt_id
        if attempt_id is None or len(self.parking) >= self._tenancy.config.parked_writes_max:
            return False
        sequence, accepted_reason = ownership.sequence, self._reading.check.accepted_reason
        value = self._tenancy.encode_checkpoint(ownership, attempt_id, None, accepted_reason, cut_offset)
        header = encode_header(ownership.epoch, sequence)
        try:
            ports.append(self._index, CHECKPOINT_KEY, value, header)
        except AppendRefused:
            ports.metrics.appends_refused.value += 1
            return False
        ports.metrics.checkpoints_appended.value += 1
        ownership.sequence = sequence + 1
        cut = None if cut_offset < 0 else cut_offset
        self.parking.records.append(Parked(sequence, header, CHECKPOINT_KEY, value, None, cut, None, None))
        return True

    def tick(self, now_ms: int) -> End | None:
        """Fail if the log neither shows an append nor reports it as failed; write a line about records that another program deleted.

        Without that failure, appends that were lost silently would wait for ever once no more operations may be parked after them.
        """
        self._look_for_missing_records(now_ms)
        limit_ms = self._tenancy.config.append_stall_ms
        if self.parking.stalled_ms(now_ms) < limit_ms:
            return None
        return Fail(OutcomeUnknown(f"an append was neither read back nor reported for {limit_ms} ms"))

    def _look_for_missing_records(self, now_ms: int) -> None:
        """Use the log start that the tail has seen; if records would be missing, query it first, and then again and again."""
        reading = self._reading
        if not reading.would_miss_records(reading.log_start_claimed):
            reading.records_deleted(reading.log_start_claimed)
            self._contradictions = 0
        elif now_ms >= self._log_start_due_ms:
            self._log_start_due_ms = now_ms + _LOG_START_QUERY_MS
            self._log_start_doubted = reading.log_start_claimed
            self._outbox.effects.append(QueryLogStart(self._index, reading.instance))
        self._tell_missing_records()

    def log_start_found(self, log_start: int | None) -> None:
        """Handle a broker's answer for the log start; only two answers in a row take back the one that the tail has seen.

        Without an answer the one of the tail counts: writing records again costs little, and not writing them may cost the states.
        """
        reading = self._reading
        if reading.log_start_claimed != self._log_start_doubted:  # it has moved meanwhile, so the answer may be older
            self._log_start_due_ms = 0
        elif log_start is None or reading.would_miss_records(log_start):
            self._contradictions = 0
            reading.records_deleted(reading.log_start_claimed if log_start is None else log_start)
        else:
            self._contradictions += 1
            self._log_start_due_ms = 0
            if self._contradictions > 1:
                reading.log_start = reading.log_start_seen = log_start
        self._tell_missing_records()

    def _tell_missing_records(self) -> None:
        reading = self._reading
        if reading.is_missing_records() is self._is_missing_records:
            return
        self._is_missing_records = not self._is_missing_records
        if self._is_missing_records:
            self._note("warning", "log_records_deleted", {"log_start": reading.log_start})
        else:
            whole_from = max(reading.cut_offset, reading.whole_from)
            self._note("info", "log_whole_again", {"log_start": reading.log_start, "whole_from": whole_from})

    def validate(self) -> None:
        """Check the invariants; cheap enough to run after each step of a test."""
        sequences = [parked.sequence for parked in self.parking.records]
        assert self._ownership.owns()
        assert sequences == list(range(self.committed_sequence + 1, self._ownership.sequence))

    # ---- write -----------------------------------------------------------------------------------------------------

    def _append_records(
        self, operation: Operation, records: tuple[tuple[Any, Any], ...], response: object, now_ms: int
    ) -> End | None:
        machine, ownership = self.machine, self._ownership
        base, epoch = ownership.sequence, ownership.epoch
        sequence, last = base, base + len(records) - 1
        replayed: list[Parked] = []
        try:
            for key, value in records:
                key_bytes, value_bytes = machine.encode(key, value)
                machine.replay(key, value, sequence)
                answered = operation if sequence == last else None
                header = encode_header(epoch, sequence)
                replayed.append(make_parked((sequence, header, key_bytes, value_bytes, key, value, answered, response)))
                sequence += 1
        except Exception as bug:
            self._note_bug("replay_failed", bug, operation)
            return self._undo(base - 1, operation, OperationFailed("replay failed"))
        append, parked_records, index = self._ports.append, self.parking.records, self._index
        for parked in replayed:
            sequence, header, key_bytes, value_bytes, key, _, _, _ = parked
            try:
                append(index, key_bytes, value_bytes, header)
            except AppendRefused as refused:
                self._ports.metrics.appends_refused.value += 1
                refusal = self._refusal(refused, key, key_bytes, value_bytes, now_ms)
                return self._undo(sequence - 1, operation, refusal)
            parked_records.append(parked)
            ownership.sequence = sequence + 1
        return None

    def _refusal(
        self, refused: AppendRefused, key: object, key_bytes: bytes, value: bytes | None, now_ms: int
    ) -> CoordinatorError:
        if not refused.is_too_large:
            return NotAvailable(f"the log takes no more now: {refused.reason}")
        size = len(key_bytes) + len(value or b"")
        # Clients and pruning may send it again at once, so one line counts the refusals since the line before.
        left_out = self._too_large.admit(now_ms, _REPEATED_LINE_MS)
        if left_out is not None:
            fields: dict[str, object] = {"key": str(key), "size_bytes": size, "reason": refused.reason}
            self._note("error", "record_refused", fields | left_out)
        return RecordTooLarge(f"a record of {size} bytes is larger than the log takes: {refused.reason}", key)

    def _undo(self, sequence: int, operation: Operation, outcome: CoordinatorError) -> End | None:
        """Undo the records of an operation that were replayed above a sequence, and answer it."""
        try:
            self.machine.revert(sequence)
        except Exception as bug:
            self._note_bug("undo_failed", bug, None)
            return Fail(OperationFailed("an operation could not be undone"), (operation, outcome))
        self._outbox.reply(operation, outcome)
        return None

    def _note_bug(self, event: str, bug: Exception, operation: Operation | None) -> None:
        named: dict[str, object] = {} if operation is None else {"operation": operation.name}
        self._note("error", event, named | {"error": repr(bug), "exc_info": bug})

    def _note(self, level: str, event: str, fields: dict[str, object]) -> None:
        origin = {"partition": self._index, "state": "active", "generation": self._tenancy.generation}
        self._outbox.effects.append(Note(level, event, fields | origin))
