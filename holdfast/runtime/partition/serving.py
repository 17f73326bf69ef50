"""One log partition on this node, while it serves: decide, append, park, meet, answer.

How it comes to serve and how it stops is in `runtime.partition.lifecycle`.
The one thing asked of the world at once is `append`: the log may refuse a record, and then that operation alone is undone.

The rules (docs/architecture.md): a write is answered when the tail has met that very record and it counted.
An answer without records waits for every earlier write and for a read index asked after its request came.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from holdfast.records.checkpoint import CHECKPOINT_KEY
from holdfast.records.header import encode_header
from holdfast.runtime.effects import DeleteRecords
from holdfast.runtime.errors import AppendRefused, CoordinatorError, NotAvailable, OperationFailed, RecordTooLarge
from holdfast.runtime.log import LogRecord
from holdfast.runtime.machine import Operation, StateMachine
from holdfast.runtime.partition.lifecycle import PartitionLife
from holdfast.runtime.partition.parking import Parked, make_parked
from holdfast.runtime.partition.states import State

T = TypeVar("T")


class Partition(PartitionLife):
    """The state machine of one log partition, its parked answers and its place in the log."""

    # ---- the log tells -----------------------------------------------------------------------------------------------

    def records_read(self, instance: int, records: list[LogRecord], now_ms: int) -> None:
        """Meet the next records of the log."""
        if instance != self.instance:
            return
        if self.state is State.ACTIVE:
            self._tail(records, now_ms)
        elif self.state is State.LOADING:
            self._read_while_loading(records, now_ms)

    def own_records_read(self, instance: int, base_offset: int, count: int, first_header: bytes) -> bool:
        """Meet our own next records, compared byte for byte by the log; returns False if they are not what comes next."""
        records = self.parking.records
        if instance != self.instance or self.state is not State.ACTIVE or not records:
            return False
        if records[0].header != first_header or not self.ownership.owns() or len(records) < count:
            return False
        self.records_met += count
        self.position = base_offset + count
        self._meet_own(count, base_offset)
        self._release()
        return True

    def position_reached(self, instance: int, next_offset: int) -> None:
        """Learn that the tail stands here: what lay below was met, or is no record."""
        if instance == self.instance and self.state in (State.LOADING, State.ACTIVE):
            self.position = max(self.position, next_offset)
            self._release()

    def read_index(self, round_number: int, offset: int) -> None:
        """Learn the read index of all answers that asked in this round or before."""
        self.parking.set_read_index(round_number, offset)
        self._release()

    def records_deleted(self, log_start_offset: int) -> None:
        """Learn the new log start."""
        self.log_start = max(self.log_start, log_start_offset)
        if self.log_start == self.checkpoint_offset:
            self.bytes_cut = self.checkpoint_bytes

    # ---- callers ask -------------------------------------------------------------------------------------------------

    def write(self, operation: Operation, now_ms: int) -> None:
        """Decide, replay, append, park; or answer with what stands in the way."""
        if self.state is not State.ACTIVE:
            self._reply(operation, self._not_serving())
            return
        machine = self.machine
        assert machine is not None
        parking = self.parking
        if len(parking.records) + parking.answers >= self.config.parked_writes_max:
            self._reply(operation, NotAvailable(f"{self.config.parked_writes_max} operations wait already"))
            return
        try:
            decision = operation.decide(machine, now_ms)
        except CoordinatorError as refusal:
            self._reply(operation, refusal)
            return
        except Exception as bug:
            self._note("error", "deciding failed", operation=operation.name, error=repr(bug), exc_info=bug)
            self._reply(operation, OperationFailed("deciding failed"))
            return
        records, response, is_malformed = decision
        if records:
            self._append_records(operation, records, response, machine, now_ms)
        elif is_malformed:
            self._reply(operation, response)
        else:
            index_round = self._ports.request_read_index(self.index)
            parking.wait(operation, response, self.ownership.sequence - 1, index_round)

    def read(self, query: Callable[[Any, int], T]) -> T | CoordinatorError:
        """Answer from the state at the last committed position, at once."""
        if self.state is not State.ACTIVE:
            return self._not_serving()
        return query(self.machine, self.committed_sequence)

    def refresh(self, now_ms: int, cut_offset: int = -1) -> bool:
        """Append our checkpoint again, under the next sequence; returns whether it was handed over.

        With a cut offset it says that all that is needed stands at that offset or behind it, and is nothing to cut to itself.
        """
        if self.state is not State.ACTIVE or len(self.parking) >= self.config.parked_writes_max:
            return False
        return self._append_checkpoint(self.ownership.sequence, now_ms, cut_offset)

    def delete_records(self, before_offset: int) -> None:
        """Cut the log below one of our own checkpoints that the tail has met; only an owner does."""
        if self.state is not State.ACTIVE:
            return
        assert before_offset <= self.checkpoint_offset
        self._effects.append(DeleteRecords(self.index, before_offset))

    def new_metadata_image(self, image: object) -> None:
        """Keep the newest image; an ACTIVE machine learns of it now, others when they are loaded."""
        self.image = image
        if self.state is State.ACTIVE and self.machine is not None:
            self.machine.on_new_metadata_image(image)

    def validate(self) -> None:
        """Check the invariants; cheap enough to run after each step of a test."""
        sequences = [parked.sequence for parked in self.parking.records]
        if self.state is not State.ACTIVE:
            assert not len(self.parking), "answers wait behind a partition that does not serve"
            return
        assert self.machine is not None
        assert self.ownership.owns()
        assert sequences == list(range(self.committed_sequence + 1, self.ownership.sequence))

    # ---- tail --------------------------------------------------------------------------------------------------------

    def _tail(self, records: list[LogRecord], now_ms: int) -> None:
        parked = self.parking.records
        self.records_met += len(records)
        for record in records:
            offset, key_bytes, value_bytes, header = record
            self.position = offset + 1
            head = parked[0] if parked else None
            # The whole record is compared: it counts exactly if it is the one we sent under this sequence.
            if head is None or header != head.header or key_bytes != head.key_bytes or value_bytes != head.value_bytes:
                if not self._meet_unexpected(record, now_ms):
                    return
                continue
            self._meet_own(1, offset)
        self._release()

    def _meet_own(self, count: int, base_offset: int) -> None:
        """Meet the next records that we sent, in the log from `base_offset` on."""
        machine, meet_next, reply = self.machine, self.parking.records.popleft, self._replies.append
        assert machine is not None
        for offset in range(base_offset, base_offset + count):
            sequence, _, key_bytes, value_bytes, key, value, operation, response = meet_next()
            self.committed_sequence = sequence
            self.committed_offset = offset + 1
            size = len(key_bytes) + (len(value_bytes) if value_bytes else 0)
            self.bytes_met += size
            if key_bytes == CHECKPOINT_KEY:
                self.ownership.winner_offset = offset
                if value is None:
                    self.checkpoint_offset = offset
                    self.checkpoint_bytes = self.bytes_met
                else:
                    self.cut_offset = value
                continue
            if operation is not None and not operation.is_done:
                operation.is_done = True
                reply((operation, response))
            machine.committed(key, value, offset, sequence, size)
        self.ownership.met_own(self.committed_sequence)
        self._ports.metrics.records_met.value += count

    def _release(self) -> None:
        if self.parking.answers:
            for waiter in self.parking.release(self.committed_sequence, self.position):
                self._reply(waiter.operation, waiter.response)

    # ---- write -------------------------------------------------------------------------------------------------------

    def _append_records(
        self,
        operation: Operation,
        records: tuple[tuple[Any, Any], ...],
        response: object,
        machine: StateMachine,
        now_ms: int,
    ) -> None:
        ownership = self.ownership
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
            self._note("error", "replay failed", operation=operation.name, error=repr(bug), exc_info=bug)
            self._revert(base - 1, now_ms)
            self._reply(operation, OperationFailed("replay failed"))
            return
        append, park, index = self._ports.append, self.parking.records.append, self.index
        for parked in replayed:
            sequence, header, key_bytes, value_bytes, key, _, _, _ = parked
            try:
                append(index, key_bytes, value_bytes, header)
            except AppendRefused as refused:
                self._ports.metrics.appends_refused.value += 1
                self._revert(sequence - 1, now_ms)
                self._reply(operation, self._refusal(refused, key, key_bytes, value_bytes, now_ms))
                return
            park(parked)
            ownership.sequence = sequence + 1

    def _refusal(
        self, refused: AppendRefused, key: object, key_bytes: bytes, value: bytes | None, now_ms: int
    ) -> CoordinatorError:
        if not refused.is_too_large:
            return NotAvailable(f"the log takes no more now: {refused.reason}")
        size = len(key_bytes) + len(value or b"")
        # Whoever sent it may send it again at once, and so does pruning: one line tells of all since the one before.
        if now_ms >= self._too_large_line_ms:
            self._note(
                "error", "record too large", key=str(key), size_bytes=size, reason=refused.reason, **self._unsaid()
            )
            self._too_large_line_ms = now_ms + self.config.repeated_line_ms
            self._too_large_unsaid = 0
        else:
            self._too_large_unsaid += 1
        return RecordTooLarge(f"a record of {size} bytes is larger than the log takes: {refused.reason}", key)

    def _unsaid(self) -> dict[str, object]:
        return {"others_since": self._too_large_unsaid} if self._too_large_unsaid else {}

    def _revert(self, sequence: int, now_ms: int) -> None:
        assert self.machine is not None
        try:
            self.machine.revert(sequence)
        except Exception as bug:
            self._note("error", "undo failed", error=repr(bug), exc_info=bug)
            self.fail(OperationFailed("an operation could not be undone"), now_ms)
