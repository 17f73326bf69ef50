"""One log partition on this node, and the theory of operation of this whole room.

1. The problem
==============

The state of a log partition lives in the memory of one node, and the log is the only truth: a node can lose everything that it
remembers and read it again. Kafka does not fence the producers of this log. A paused node, a second node with our id or a group that
has moved the partition can each append while we believe that the partition is ours, and no broker stops them.

So ownership is decided in the log itself. Every record carries an owner epoch and a sequence (its `hf` header). One rule
(`records.log.fencing.step`) decides, record by record in log order, whether a record counts, and every reader applies the same rule. To
claim a partition, a node appends a checkpoint with a random attempt id under the next epoch. It owns the partition when it has read
that checkpoint back and the checkpoint counts; records of older epochs after it are void.

There is no lease and no clock in this. We never know that we still own a partition: we know that we owned it when the newest record
of ours was read back. All else follows from that sentence. A write is answered only after its record was read back and counted. A
read without records waits for a read index that was requested after it came.

2. The states
=============

`partition.states` has the table of transitions. Each state holds one object, in `Partition.phase`:

    INITIAL   Closed    listed, but not loaded so far
    LOADING   Load      reads the log, claims the partition, and reads on up to its own checkpoint
    ACTIVE    Serving   decides, appends, parks and answers
    FAILED    Failed    memory and log may disagree; loads again after a back-off
    CLOSED    Closed    belongs to another node, or was unloaded; may have a time at which it loads again

`Load`, `Serving` and their machine are used once. A load that starts over is a new object with a new machine, so no half-folded state
can survive. Two things outlive them: `Tenancy` (generation, an admin's orders, how far we have seen the log committed) lives as long as
the process, and `Reading` (position, findings, ownership) lives from the start of a load to the end of the serving after it.

3. The transitions
==================

    load(generation)      a group, or the start of a static node        INITIAL, FAILED, CLOSED -> LOADING
    take(), accept()      an admin                                      INITIAL, FAILED, CLOSED -> LOADING
    a tick after a pause  the runtime, when `is_retry_due`              FAILED, CLOSED -> LOADING
    Loaded                the load: all before our checkpoint is folded LOADING -> ACTIVE
    Fail                  the log, or a bug of ours                     LOADING, ACTIVE -> FAILED
    Lose                  the log: the checkpoint of another attempt    LOADING, ACTIVE -> CLOSED
    LeaveToOwner          the owner answers that it serves              LOADING -> CLOSED
    unload()              a group, or the end of the process            any but CLOSED -> CLOSED

`load` under an equal or older generation is ignored, because a group may repeat itself and its messages may come late. A newer one is
remembered while we load or serve. The log, not the generation, decides who owns; the generation only says who should try.

4. A load
=========

a. If the log is as we left it, ask where it starts, then look for a restore point (a state restored from snapshots). Start to read at
   the record that the restore point names. If the log holds another record there, load again without it.
b. Read up to the end that the log had when reading began. Records that count go to the machine. A finding (another program's record, a
   missing start, a lost end) is kept and does not stop the reading, because a later checkpoint may accept it on an admin's order.
c. Fold in slices, and before each slice look for an obstacle: a finding, an owner that must be asked first, a generation that forbids
   us to try.
d. Claim: append our checkpoint. Read on until it comes back. A checkpoint of a rival that comes first means that we have lost.
e. Fold the rest and serve.

From our claim to the end of the load no node serves the partition. Its callers wait, so this part must not grow with the log; that is
why the fold comes before the claim.

5. The ends
===========

`Fail` is the answer to any doubt, such as an append that was handed over and then failed: the record is replayed in memory and may be
missing in the log. We could try to find out, but later records may rest on it, and a load finds out with code that we need anyway. So
every waiting operation is told that it must look for the partition again, the machine is thrown away, and the log is read again. This
is slow and it has never been subtle.

An `Alarm` is a failure that a retry alone cannot clear, for example a lost end. The first one is retried soon, because one wrong
answer of a broker can cause it. Later retries have a longer pause, because each load reads the whole log. As a rule an alarm ends only
with an admin's `accept`, or when the log shows again what was missing.

`Lose` is no fault. If our generation still allows it, we try again after a back-off. Otherwise the partition stays closed, and the host
learns by `Superseded` who owns it.

6. Rules of this module
=======================

Events are methods, called one at a time with the time as an argument. An event of the log carries the number of its reading, and one of
an earlier reading is ignored. A handler calls nothing outside of the partition but `Ports`. All other effects, and all answers, go into
the outbox, and the runtime carries them out after the handler has returned or raised.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from holdfast.records.log.checkpoint import Checkpoint
from holdfast.runtime.effects import (
    DeleteRecords,
    Note,
    Outbox,
    RestorePointJudged,
    StateChanged,
    StopReading,
    Superseded,
)
from holdfast.runtime.errors import Alarm, CoordinatorError, LoadFailed, NotAvailable, NotCoordinator, OutcomeUnknown
from holdfast.runtime.log_protocol import LogRecord, ReadError
from holdfast.runtime.partition.ends import End, Fail, Lose
from holdfast.runtime.partition.load import BeginAtCut, BeginWithoutRestorePoint, LeaveToOwner, Load, Loaded, Step
from holdfast.runtime.partition.ownership import Ownership
from holdfast.runtime.partition.parking import Parking
from holdfast.runtime.partition.reading import Reading
from holdfast.runtime.partition.retries import Retries
from holdfast.runtime.partition.serving import RepeatedLine, Serving
from holdfast.runtime.partition.states import Closed, Failed, State, check_transition
from holdfast.runtime.partition.tenancy import Tenancy
from holdfast.runtime.settings import PartitionConfig, Ports
from holdfast.runtime.state_machine import Operation, StateMachine

T = TypeVar("T")


class Partition:
    """One log partition over all its loads."""

    def __init__(
        self,
        index: int,
        config: PartitionConfig,
        ports: Ports,
        make_machine: Callable[[int], StateMachine],
        outbox: Outbox,
    ) -> None:
        self.index = index
        self.state = State.INITIAL
        #: The object of the state; `Closed` while the machine of a load is being made.
        self.phase: Closed | Load | Serving | Failed = Closed(None)
        self.tenancy = Tenancy(index, config, ports.trust)
        #: The newest reading; it is over if nothing is loaded or served.
        self.reading = Reading(index, config.log, 0, 0)
        #: Why the partition failed or was closed; None once it serves.
        self.failure: str | None = None
        #: Whether an alarm was the reason.
        self.is_alarmed = False
        self._ports = ports
        self._make_machine = make_machine
        self._outbox = outbox
        self._retries = Retries(config, ports.jitter)
        self._too_large = RepeatedLine()

    def set_unloaded_reason(self, why: str | None) -> None:
        """Set why the partition must not be loaded yet, unless it was loaded before; None: it may be loaded now."""
        if self.state is State.INITIAL:
            self.failure = why

    # ---- ownership -------------------------------------------------------------------------------------------------

    def load(self, generation: int | None, now_ms: int) -> None:
        """Start to load under a generation; None means static.

        An equal or older generation is ignored; a newer one while LOADING or ACTIVE is only remembered.
        """
        tenancy = self.tenancy
        before = tenancy.generation
        if generation is not None:
            if before is not None and not tenancy.is_static and generation <= before:
                self._note("info", "load_ignored", event_generation=generation)
                return
            tenancy.assign(generation)
        if self.state in (State.LOADING, State.ACTIVE):
            self._note("debug", "load_remembered", event_generation=generation)
            return
        self._note("debug", "load_accepted", generation_before=before, owner_epoch=self.ownership.position.owner_epoch)
        self.start_load(now_ms)

    def unload(self, generation: int | None) -> None:
        """Stop serving; None unloads under any generation."""
        tenancy, before = self.tenancy, self.tenancy.generation
        if generation is not None and before is not None and generation <= before:
            self._note("info", "unload_ignored", event_generation=generation)
            return
        if generation is not None:
            tenancy.assign(generation)  # so that a late load of an older one is ignored
        tenancy.forget_acceptance()
        if self.state is State.CLOSED:
            self.phase = Closed(None)
            return
        self._note(
            "debug", "unload_accepted", generation_before=before, owner_epoch=self.ownership.position.owner_epoch
        )
        self._close("unloaded", NotCoordinator("the log partition was unloaded here"), None)

    def take(self, now_ms: int) -> None:
        """Load again and take the partition from its owner, on an admin's order (static nodes only)."""
        if self.state not in (State.LOADING, State.ACTIVE):
            self.tenancy.take_over()
            self.start_load(now_ms)

    def accept(self, reason: str, now_ms: int) -> None:
        """Load again and go on with the log as it is, on an admin's order; our checkpoint carries the reason.

        A partition that serves has nothing to accept; a later finding needs an order of its own.
        """
        if self.state is State.ACTIVE:
            return
        self.tenancy.accept(reason)
        if self.state is not State.LOADING:
            self.start_load(now_ms)

    def tick(self, now_ms: int) -> None:
        """Check whether the load or the tail stalls."""
        phase = self.phase
        if isinstance(phase, Load):
            self._follow(phase.tick(now_ms), now_ms)
        elif isinstance(phase, Serving):
            self._end(phase.tick(now_ms), now_ms)

    def is_retry_due(self, now_ms: int) -> bool:
        """Tell whether the runtime should load the partition again now."""
        return self.retry_at_ms is not None and now_ms >= self.retry_at_ms and self.tenancy.log_alarm() is None

    def log_trust_changed(self, alarm: Alarm | None, now_ms: int) -> None:
        """Handle an alarm about the log as a whole; None: it is over, and the next tick loads the partition again."""
        if alarm is None:
            if self.is_alarmed:
                self.retry_soon(now_ms)
        elif self.state in (State.LOADING, State.ACTIVE):
            self.fail(alarm, now_ms)
        elif self.state is State.FAILED:  # from now on this alarm is the reason why it cannot load
            self.failure, self.is_alarmed = str(alarm), True

    def retry_soon(self, now_ms: int) -> None:
        """Let a failed partition load again with the next tick, because the cause of its failure is gone."""
        if isinstance(self.phase, Failed):
            self.phase = Failed(now_ms)

    def fail(self, error: Exception, now_ms: int) -> None:
        """Enter FAILED: memory and log may disagree; load again from scratch after a back-off."""
        was_alarmed, self.is_alarmed = self.is_alarmed, isinstance(error, Alarm)
        if error is not self._ports.trust.alarm:  # that alarm has one line for all partitions
            self._note("error", "log_partition_failed", error=str(error), is_alarm=self.is_alarmed)
        outcome = NotCoordinator(f"the log partition failed here: {error}")
        pause_ms = self._retries.pause_ms(is_alarm=self.is_alarmed, is_second=was_alarmed)
        self._stop(State.FAILED, Failed(now_ms + pause_ms), str(error), outcome)

    # ---- the log ---------------------------------------------------------------------------------------------------

    def records_read(self, instance: int, records: list[LogRecord], now_ms: int) -> None:
        """Handle the next records of the log."""
        if instance != self.reading.instance:
            return
        phase = self.phase
        if isinstance(phase, Serving):
            self._end(phase.records_read(records), now_ms)
        elif isinstance(phase, Load):
            for step in phase.records_read(records, now_ms):
                self._follow(step, now_ms)

    def own_records_read(self, instance: int, base_offset: int, count: int, first_header: bytes) -> bool:
        """Handle our own next records, which the log has compared byte for byte; returns False if others should come next."""
        phase = self.phase
        if instance != self.reading.instance or not isinstance(phase, Serving):
            return False
        return phase.own_records_read(base_offset, count, first_header)

    def position_reached(self, instance: int, next_offset: int) -> None:
        """Move to an offset that the tail has reached: every record below it was read."""
        if instance != self.reading.instance:
            return
        phase = self.phase
        if isinstance(phase, Serving):
            phase.position_reached(next_offset)
        elif isinstance(phase, Load):
            self.reading.position_reached(next_offset)

    def read_failed(self, instance: int, error: ReadError, now_ms: int) -> None:
        """Fail, because the log cannot be read any further."""
        if instance == self.reading.instance and self.state in (State.LOADING, State.ACTIVE):
            text = f"reading stopped at offset {self.reading.position}: {error.text}"
            self.fail(Alarm(text) if error.is_alarm else LoadFailed(text), now_ms)

    def append_failed(self, header: bytes | None, text: str, now_ms: int) -> None:
        """Fail, because a record of this attempt (None: maybe of this attempt) may or may not be in the log."""
        ownership = self.ownership
        if self.state not in (State.LOADING, State.ACTIVE) or ownership.attempt_id is None:
            return
        if header is None or ownership.may_be_lost(header):
            self.fail(OutcomeUnknown(f"an append failed after it was handed to the log: {text}"), now_ms)

    def read_index_found(self, round_number: int, offset: int) -> None:
        """Handle the read index of all answers that requested it in this round or before."""
        if isinstance(self.phase, Serving):
            self.phase.read_index_found(round_number, offset)

    def records_deleted(self, log_start_offset: int) -> None:
        """Handle a new log start."""
        self.reading.records_deleted(log_start_offset)

    def log_start_found(self, instance: int, log_start_offset: int | None, now_ms: int) -> None:
        """Handle the answer to a query for the log start; None: the broker did not say."""
        if isinstance(self.phase, Serving) and instance == self.reading.instance:
            self.phase.log_start_found(log_start_offset)
        self.while_loading(instance, lambda load, now_ms: load.log_start_found(log_start_offset, now_ms), now_ms)

    # ---- the node --------------------------------------------------------------------------------------------------

    def while_loading(self, instance: int, handle: Callable[[Load, int], Step | None], now_ms: int) -> None:
        """Let the load handle an event of a reading, if that reading goes on, and carry out the step that follows."""
        if isinstance(self.phase, Load) and instance == self.reading.instance:
            self._follow(handle(self.phase, now_ms), now_ms)

    def new_metadata_image(self, image: object) -> None:
        """Give a newer image to the machine if it serves; others get the newest image when they are loaded."""
        if isinstance(self.phase, Serving):
            self.phase.machine.on_new_metadata_image(image)

    # ---- callers ---------------------------------------------------------------------------------------------------

    def write(self, operation: Operation, now_ms: int) -> None:
        """Run an operation, or refuse it with the reason."""
        phase = self.phase
        if isinstance(phase, Serving) and not self.tenancy.is_out_of_reach:
            end = phase.write(operation, now_ms)
            if end is not None:
                self._end(end, now_ms)
        else:
            self._outbox.reply(operation, self._not_serving())

    def read(self, query: Callable[[Any, int], T]) -> T | CoordinatorError:
        """Answer from the state at the last committed position, at once."""
        phase = self.phase
        return query(phase.machine, phase.committed_sequence) if isinstance(phase, Serving) else self._not_serving()

    def refresh(self, cut_offset: int = -1) -> bool:
        """Append our checkpoint again, under the next sequence; returns whether it was handed over.

        With a cut offset the checkpoint says that no record below that offset is needed, and the log is not cut at the checkpoint itself.
        """
        return isinstance(self.phase, Serving) and self.phase.refresh(cut_offset)

    def delete_records(self, before_offset: int) -> None:
        """Cut the log below one of our own checkpoints that was read back; only an owner does so."""
        if isinstance(self.phase, Serving):
            assert before_offset <= self.reading.checkpoint_offset
            self._outbox.effects.append(DeleteRecords(self.index, before_offset))

    def validate(self) -> None:
        """Check the invariants; cheap enough to run after each step of a test."""
        if isinstance(self.phase, Serving):
            self.phase.validate()
        kind = {State.LOADING: Load, State.ACTIVE: Serving, State.FAILED: Failed}.get(self.state, Closed)
        assert isinstance(self.phase, kind), f"a partition that is {self.state} holds a {type(self.phase).__name__}"

    # ---- transitions -----------------------------------------------------------------------------------------------

    def start_load(self, now_ms: int) -> None:
        """Start a load; the state must be one that LOADING may follow."""
        self._enter(State.LOADING)
        self.phase = Closed(None)
        load = self._new_load(now_ms, now_ms, 0)
        log_alarm = self.tenancy.log_alarm()
        if log_alarm is not None:  # reading the log would be in vain
            self.fail(log_alarm, now_ms)
        else:
            self._follow(load.begin(), now_ms)

    def _new_load(self, began_ms: int, now_ms: int, begins_at: int) -> Load:
        tenancy = self.tenancy
        reading = self.reading = Reading(self.index, tenancy.config.log, self.reading.instance + 1, began_ms)
        machine = self._make_machine(self.index)  # a bug in it fails the partition like any other bug
        load = self.phase = Load(tenancy, self._ports, reading, machine, now_ms, begins_at)
        return load

    def _load_again(self, load: Load, now_ms: int, begins_at: int) -> None:
        """Replace a load by a new one, which reads the log from its start or from where it was cut."""
        self.phase = Closed(None)
        self._unload_machine(load.machine)
        self._follow(self._new_load(self.reading.load_began_ms, now_ms, begins_at).read_from(None), now_ms)

    def _follow(self, step: Step | None, now_ms: int) -> None:
        """Carry out the step that follows from an event of a load."""
        load = self.phase
        if step is None or not isinstance(load, Load):
            return
        if isinstance(step, Fail | Lose):
            self._end(step, now_ms)
        elif isinstance(step, BeginWithoutRestorePoint):
            offset, why = step
            self._note("warning", "load_restarted_without_restore_point", restore_point_offset=offset, why=why)
            self._outbox.effects.append(RestorePointJudged(self.index, offset, why))
            self._load_again(load, now_ms, 0)
        elif isinstance(step, BeginAtCut):
            log_start, cut = self.log_start, step.cut_offset
            self._note("warning", "load_restarted_at_cut", log_start=log_start, cut_offset=cut)
            self._load_again(load, now_ms, cut)
        elif isinstance(step, LeaveToOwner):
            self._close(step.text, NotCoordinator(step.text), None)
        elif isinstance(step, Loaded):
            self._serve(load, now_ms)
        elif isinstance(step, Note):
            self._note(step.level, step.event, **step.fields)
        else:
            self._outbox.effects.append(step)

    def _serve(self, load: Load, now_ms: int) -> None:
        tenancy, reading = self.tenancy, self.reading
        self._enter(State.ACTIVE)
        self.phase = Serving(tenancy, self._ports, self._outbox, reading, load.machine, self._too_large)
        self.failure, self.is_alarmed = None, False
        tenancy.serve()
        reading.load_ended_ms = now_ms
        restored: dict[str, object] = {}
        if reading.restored_from_offset >= 0:
            restored["restored_from_offset"] = reading.restored_from_offset
            self._outbox.effects.append(RestorePointJudged(self.index, reading.restored_from_offset, ""))
        self._retries.on_served()
        self._note(
            "debug",
            "log_partition_loaded",
            owner_epoch=reading.ownership.epoch,
            records=reading.records_read,
            void_records=reading.void_records,
            load_ms=now_ms - reading.load_began_ms,
            **restored,
        )

    def _end(self, end: End | None, now_ms: int) -> None:
        if isinstance(end, Fail):
            self.fail(end.error, now_ms)
            if end.unanswered is not None:
                self._outbox.reply(*end.unanswered)
        elif isinstance(end, Lose):
            self._lose(end.winner, end.offset, now_ms)

    def _lose(self, winner: Checkpoint, offset: int, now_ms: int) -> None:
        tenancy, check = self.tenancy, self.reading.check
        is_accepted = tenancy.accept_reason is not None and check.is_of_this_log(winner)
        if check.finding is not None and not is_accepted:  # the winner wrote for another log, or the log is not whole
            self.fail(check.finding, now_ms)
            return
        where = f" at {winner.advertised_address}" if winner.advertised_address else ""
        text = f"node {winner.node_id}{where} took it with owner epoch {winner.owner_epoch} at offset {offset}"
        if is_ours_to_take := tenancy.may_take(winner):
            tenancy.outbid_twin(winner)
        # A node that is superseded for good writes one line for all of its log partitions together.
        level = "warning" if is_ours_to_take else "debug"
        self._note(level, "ownership_lost", winner=winner.node_id, owner_epoch=winner.owner_epoch, offset=offset)
        retry_at_ms = now_ms + self._retries.pause_ms() if is_ours_to_take else None
        self._close(text, NotCoordinator(text), retry_at_ms)
        if not is_ours_to_take:
            self._outbox.effects.append(Superseded(self.index, winner, offset))

    def _close(self, failure: str, outcome: CoordinatorError, retry_at_ms: int | None) -> None:
        self.is_alarmed = False
        if retry_at_ms is None and self.tenancy.is_static:  # a group may assign it again, and unloads it otherwise
            self.tenancy.forget_acceptance()
        self._stop(State.CLOSED, Closed(retry_at_ms), failure, outcome)

    def _stop(self, state: State, phase: Closed | Failed, failure: str, outcome: CoordinatorError) -> None:
        before = self.phase
        self._enter(state)
        self.phase = phase
        self.failure = failure
        self._outbox.effects.append(StopReading(self.index))
        if isinstance(before, Serving):
            before.stop(outcome)
        if isinstance(before, Load | Serving):
            self._unload_machine(before.machine)

    def _unload_machine(self, machine: StateMachine) -> None:
        try:
            machine.on_unloaded()
        except Exception as bug:
            self._note("error", "unload_hook_failed", error=repr(bug), exc_info=bug)
        self._ports.discard(self.tenancy.index, machine)

    def _enter(self, state: State) -> None:
        check_transition(self.index, self.state, state)
        self.state = state
        self._outbox.effects.append(StateChanged(self.index, state))

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _not_serving(self) -> CoordinatorError:
        if self.state is State.LOADING:
            return self.tenancy.refuse_while_loading()
        if self.state is State.ACTIVE:
            return NotAvailable("the broker that leads the log partition does not answer this node")
        why = self.failure or "it was not loaded yet"
        return NotCoordinator(f"this node does not serve log partition {self.index}: {why}")

    def _note(self, level: str, event: str, **fields: object) -> None:
        fields |= {"partition": self.index, "state": self.state.value, "generation": self.generation}
        self._outbox.effects.append(Note(level, event, fields))

    # ---- for readers -----------------------------------------------------------------------------------------------

    @property
    def machine(self) -> StateMachine | None:
        """Return the state machine while the partition loads or serves."""
        phase = self.phase
        return phase.machine if isinstance(phase, Load | Serving) else None

    @property
    def parking(self) -> Parking:
        """Return the writes and answers that wait for the log; empty unless the partition serves."""
        return self.phase.parking if isinstance(self.phase, Serving) else Parking()

    @property
    def committed_sequence(self) -> int:
        """Return the sequence of our newest record that counted; 0 unless the partition serves."""
        return self.phase.committed_sequence if isinstance(self.phase, Serving) else 0

    @property
    def retry_at_ms(self) -> int | None:
        """Return when the partition should be loaded again; None: not without an event."""
        return self.phase.retry_at_ms if isinstance(self.phase, Closed | Failed) else None

    @property
    def generation(self) -> int | None:
        """Return the generation under which the partition is taken; None: not known yet."""
        return self.tenancy.generation

    @property
    def committed_offset(self) -> int:
        """Return the offset after our newest record that counted, over all loads of this process."""
        return self.tenancy.committed_offset

    @property
    def ownership(self) -> Ownership:
        """Return the ownership of the newest reading."""
        return self.reading.ownership

    @property
    def log_start(self) -> int:
        """Return the newest log start that is known."""
        return self.reading.log_start
