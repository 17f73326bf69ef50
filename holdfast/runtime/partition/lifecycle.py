"""How one log partition comes to serve on this node, and how it stops; what it does meanwhile is in `runtime.partition.serving`.

Events are methods, called one at a time with the time as an argument.
What they ask of the world is appended to `effects` and `replies`.

The rules (docs/architecture.md): a load ends at our own checkpoint, known by its attempt id.
A checkpoint that counts and is not ours ends the ownership.
"""

from collections.abc import Callable

from holdfast.records.checkpoint import CHECKPOINT_KEY, Checkpoint, encode_checkpoint
from holdfast.records.errors import RecordError
from holdfast.records.header import decode_header, encode_header
from holdfast.records.log_start import Beginning
from holdfast.runtime.effects import (
    AskLogStart,
    AskOwner,
    BaseJudged,
    ContinueLoad,
    FindBase,
    StartReading,
    StateChanged,
    StopReading,
    Superseded,
)
from holdfast.runtime.errors import (
    Alarm,
    AppendRefused,
    CoordinatorError,
    LoadFailed,
    LoadInProgress,
    NotCoordinator,
    OutcomeUnknown,
)
from holdfast.runtime.log import LogRecord, ReadError
from holdfast.runtime.machine import StateMachine
from holdfast.runtime.partition.data import PartitionData
from holdfast.runtime.partition.ownership import OWNER_EPOCH_MAX, Verdict, may_take
from holdfast.runtime.partition.parking import Parked
from holdfast.runtime.partition.restore_point import Base
from holdfast.runtime.partition.states import State, check_transition


class PartitionLife(PartitionData):
    """The load, the ownership and the end of one log partition; `runtime.partition.serving.Partition` adds serving."""

    # ---- ownership ---------------------------------------------------------------------------------------------------

    def load(self, generation: int | None, now_ms: int) -> bool:
        """Begin to load under a generation; None means static. Returns whether a load began.

        An equal or older generation is ignored; a newer one while LOADING or ACTIVE is only remembered.
        """
        before = self.generation
        if generation is not None:
            if self.generation is not None and not self.is_static and generation <= self.generation:
                self._note("info", "load ignored", event_generation=generation)
                return False
            self.generation = generation
            self.is_static = False
        if self.state in (State.LOADING, State.ACTIVE):
            self._note("info", "load remembered", event_generation=generation)
            return False
        self._note("debug", "load accepted", generation_before=before, owner_epoch=self.ownership.position.owner_epoch)
        self._start_load(now_ms)
        return True

    def unload(self, generation: int | None) -> bool:
        """Stop serving; None unloads whatever the generation. Returns whether anything was stopped."""
        if generation is not None and self.generation is not None and generation <= self.generation:
            self._note("info", "unload ignored", event_generation=generation)
            return False
        before = self.generation
        if generation is not None:
            self.generation = generation  # a load of an older one that comes late is ignored
        self.retry_at_ms = None
        self._accept_reason = None
        if self.state is State.CLOSED:
            return False
        self.is_alarmed = False
        owner_epoch = self.ownership.position.owner_epoch
        self._note("debug", "unload accepted", generation_before=before, owner_epoch=owner_epoch)
        self._stop(State.CLOSED, "unloaded", NotCoordinator("the log partition was unloaded here"))
        return True

    def take(self, now_ms: int) -> None:
        """Load again over whoever won, because an admin says so (static nodes only)."""
        if self.state not in (State.LOADING, State.ACTIVE):
            self.generation = None
            self._takes_over = True
            self._start_load(now_ms)

    def accept(self, reason: str, now_ms: int) -> None:
        """Load again and go on with the log as it is, because an admin says so; the reason stands in our checkpoint.

        A partition that serves has nothing to accept: what is found later is another matter.
        """
        if self.state is State.ACTIVE:
            return
        self._accept_reason = reason
        if self.state is not State.LOADING:
            self._start_load(now_ms)

    def tick(self, now_ms: int) -> None:
        """Run what is due: timers, a load or a tail that stalls, a load to try again."""
        self.timers.tick(now_ms)
        if self.state is State.LOADING:
            self._check_load_progress(now_ms)
        elif self.state is State.ACTIVE:
            # Without it, appends lost without a word would wait for ever where nothing more may be parked behind them.
            if self.parking.stalled_ms(now_ms) >= (limit := self.config.append_stall_ms):
                self.fail(OutcomeUnknown(f"an append was neither met in the log nor reported for {limit} ms"), now_ms)
        elif self.retry_at_ms is not None and now_ms >= self.retry_at_ms and self._log_alarm() is None:
            self._start_load(now_ms)

    def log_trusted(self, now_ms: int) -> None:
        """Look at the log again with the next tick, because what was wrong with all of it is mended."""
        if self.is_alarmed and self.retry_at_ms is not None:
            self.retry_at_ms = now_ms

    def fail(self, error: Exception, now_ms: int) -> None:
        """Enter FAILED: memory and log may disagree; load again after a back-off, afresh."""
        self.is_alarmed = isinstance(error, Alarm)
        if error is not self._ports.log_alarm():  # which is told once, and not by each partition
            self._note("error", "partition failed", error=str(error), is_alarm=self.is_alarmed)
        self._stop(State.FAILED, str(error), NotCoordinator(f"the log partition failed here: {error}"))
        self._retry_later(now_ms)

    # ---- the log tells -----------------------------------------------------------------------------------------------

    def read_started(self, instance: int, start_offset: int, end_offset: int, now_ms: int) -> None:
        """Learn where the log starts and where its end was."""
        if instance == self.instance and self.state is State.LOADING:
            self.log_start = self.position = max(start_offset, self._begins_at)
            self.end_offset = end_offset
            if self._base is None:
                self.ownership.beginning = Beginning(self.log_start)
            self._progress_ms = now_ms
            # It may lose more before an admin accepts it; what was lost then begins at the lowest end.
            if end_offset < (self.committed_offset if self.lost_from is None else self.lost_from):
                self.lost_from = end_offset
            if self._base is not None and not start_offset <= self._base.offset < end_offset:
                self._start_over(self._base.offset, "the log does not hold its offset", now_ms)
            elif self.lost_from is not None:
                self._check.meet_lost_end(self.lost_from, self.committed_offset)

    def caught_up(self, instance: int, next_offset: int, now_ms: int) -> None:
        """Claim the partition: all that was in the log when reading began has been met."""
        if instance == self.instance and self.state is State.LOADING and self.ownership.attempt_id is None:
            self.position = max(self.position, next_offset)
            self._progress_ms = now_ms
            if self._base is not None:
                self._start_over(self._base.offset, "no record lies at its offset", now_ms)
                return
            self._claim(now_ms)

    def read_failed(self, instance: int, error: ReadError, now_ms: int) -> None:
        """Stop, because the log can't be read on."""
        if instance == self.instance and self.state in (State.LOADING, State.ACTIVE):
            text = f"reading stopped at offset {self.position}: {error.text}"
            self.fail(Alarm(text) if error.is_alarm else LoadFailed(text), now_ms)

    def append_failed(self, header: bytes | None, text: str, now_ms: int) -> None:
        """Stop, because a record of this attempt (None: maybe of this attempt) may or may not land."""
        if self.state not in (State.LOADING, State.ACTIVE) or self.ownership.attempt_id is None:
            return
        if header is None or decode_header(header)[0] == self.ownership.epoch:
            self.fail(OutcomeUnknown(f"an append failed after it was handed to the log: {text}"), now_ms)

    # ---- load --------------------------------------------------------------------------------------------------------

    def _start_load(self, now_ms: int) -> None:
        self._enter(State.LOADING)
        self.retry_at_ms = None
        self._begin_load(now_ms, now_ms)
        log_alarm = self._log_alarm()
        if log_alarm is not None:  # all of it would be read in vain
            self.fail(log_alarm, now_ms)
        elif self._may_use_base():
            self._effects.append(AskLogStart(self.index, self.instance))
        else:
            self._read_from(None)

    def _log_alarm(self) -> Alarm | None:
        """Return why no partition of this log may be taken, unless an admin accepts this one."""
        return None if self._accept_reason is not None else self._ports.log_alarm()

    def _begin_load(self, began_ms: int, now_ms: int) -> None:
        self._reset()
        self.instance += 1
        self.load_began_ms, self._progress_ms = began_ms, now_ms
        self.machine = self._make_machine(self.index)

    def _may_use_base(self) -> bool:
        """Tell whether the log is as it always was; one that lost its end, or that an admin accepts, is read as a whole."""
        return self._ports.has_bases and self._accept_reason is None and self.lost_from is None

    def _read_from(self, base: Base | None) -> None:
        self._base = base
        self._is_reading = True
        from_offset = self._begins_at if base is None else base.offset
        self._is_at_checkpoint = base is not None and base.reads_checkpoint(self.log_start)
        if base is not None and self._is_at_checkpoint:
            from_offset = base.checkpoint_offset
        self._effects.append(StartReading(self.index, self.instance, from_offset))

    def _compare_checkpoint(self, base: Base, record: LogRecord, now_ms: int) -> None:
        """Compare the base's newest checkpoint with the log, then read on where the base ends."""
        self._is_at_checkpoint = False
        refusal = base.checkpoint_refusal(record) if base.reads_checkpoint(self.log_start) else ""
        if refusal:
            self._start_over(base.offset, refusal, now_ms)
            return
        self.instance += 1
        self._effects.append(StartReading(self.index, self.instance, base.offset))

    def log_start_found(self, instance: int, log_start: int | None, now_ms: int) -> None:
        """Look for a base, now that it is known which ones can be of use."""
        if instance == self.instance and self.state is State.LOADING and not self._is_reading:
            self._progress_ms = now_ms
            if log_start is None:
                self._read_from(None)
            else:
                self.log_start = log_start
                self._effects.append(FindBase(self.index, self.instance, log_start))

    def base_found(self, instance: int, base: Base | None, now_ms: int) -> None:
        """Read the log from the base on, or from its start where there is none."""
        if instance == self.instance and self.state is State.LOADING and not self._is_reading:
            self._progress_ms = now_ms
            self._read_from(base if self._may_use_base() else None)

    def _stand_on(self, base: Base, record: LogRecord, now_ms: int) -> bool:
        """Go on behind the base if the record at its offset is the one it names; returns whether it is."""
        assert self.machine is not None
        refusal = base.refusal(record)
        if refusal:
            self._start_over(base.offset, refusal, now_ms)
            return False
        self._base, self.base_offset = None, base.offset
        self.position = base.offset + 1
        self.bytes_met = (base.offset + 1 - self.log_start) * base.record_size_bytes
        self.ownership.begin_at(base.position, base.checkpoint, base.offset)
        self.machine.load_base(base.content)
        self._meet_checkpoint(self.machine, base.checkpoint, base.offset)
        return True

    def _start_over(self, offset: int, refusal: str, now_ms: int) -> None:
        """Load from the log's start, because a base cannot be used."""
        self._note("warning", "load starts over without its base", base_offset=offset, why=refusal)
        self._effects.append(BaseJudged(self.index, offset, refusal))
        self._let_go()
        self._begin_load(self.load_began_ms, now_ms)
        self._read_from(None)

    def _begin_at_cut(self, cut_offset: int, now_ms: int) -> None:
        """Start over where the log was cut: a broker that was lost has given back what lay below."""
        self._note("warning", "load starts over where the log was cut", log_start=self.log_start, cut_offset=cut_offset)
        self._let_go()
        self._begin_load(self.load_began_ms, now_ms)
        self._begins_at = cut_offset
        self._read_from(None)

    def _claim(self, now_ms: int) -> None:
        ownership = self.ownership
        if self._begins_at and not ownership.beginning.is_found:
            self._check.meet_cut(self.log_start)  # the log has changed meanwhile, and nothing says that it is whole
        ownership.beginning.is_found = True  # otherwise as far as anybody can tell, or as an admin accepts it
        if ownership.winner is None:
            self._check.meet_cut(self.log_start)
        log_alarm = self._log_alarm()
        finding = log_alarm or self._check.finding
        if finding is not None and self._accept_reason is None:
            self.fail(finding, now_ms)
            return
        winner = ownership.winner
        if winner is not None and self._asks_first(winner):
            self._effects.append(AskOwner(self.index, self.instance, winner))
            return
        if self.generation is None:
            self.generation = ownership.generation_max + 1
        if winner is not None and self._accept_reason is not None and not self._check.is_of_this_log(winner):
            winner = None  # the generations of another log say nothing here
        if not may_take(winner, self.generation, self.config.node_id):
            self._lose(now_ms)
            return
        if ownership.highest_epoch() >= OWNER_EPOCH_MAX:
            self.fail(Alarm(f"owner epoch {OWNER_EPOCH_MAX} is the last one"), now_ms)
            return
        ownership.claim(self._ports.random_bytes(16))
        self._append_checkpoint(0, now_ms)

    def _asks_first(self, owner: Checkpoint) -> bool:
        """Tell whether an owner is asked before it is outranked: once, by a process that has never had the partition."""
        is_told = self._takes_over or self._accept_reason is not None
        is_asked = owner.attempt_id == self._silent_attempt_id
        return self._ports.asks_owners and self.generation is None and not is_told and not is_asked

    def owner_answered(self, instance: int, owner: Checkpoint, is_serving: bool, now_ms: int) -> None:
        """Take the partition after all, or leave it to its owner, which serves it."""
        if instance != self.instance or self.state is not State.LOADING or self.ownership.attempt_id is not None:
            return
        if not is_serving:
            self._silent_attempt_id = owner.attempt_id
            self._claim(now_ms)  # which asks again where another one has taken it meanwhile
            return
        text = f"node {owner.node_id} at {owner.advertised_address} serves it"
        self._stop(State.CLOSED, text, NotCoordinator(text))

    def _append_checkpoint(self, sequence: int, now_ms: int, cut_offset: int = -1) -> bool:
        ownership, config = self.ownership, self.config
        assert ownership.attempt_id is not None
        assert self.generation is not None
        identity = config.log
        checkpoint = Checkpoint(
            owner_epoch=ownership.epoch,
            attempt_id=ownership.attempt_id,
            node_id=config.node_id,
            generation=self.generation,
            cluster_id=identity.cluster_id,
            topic_id=identity.topic_id,
            partition_count=identity.partition_count,
            reason=self._accept_reason if sequence == 0 else None,
            advertised_address=config.advertised_address,
            accepted_reason=self._accept_reason or self._check.accepted_reason,
            cut_offset=cut_offset,
        )
        value_bytes = encode_checkpoint(checkpoint)
        header = encode_header(ownership.epoch, sequence)
        try:
            self._ports.append(self.index, CHECKPOINT_KEY, value_bytes, header)
        except AppendRefused as refused:
            self._ports.metrics.appends_refused.value += 1
            if self.state is State.LOADING:
                self.fail(LoadFailed(f"the log refused our checkpoint: {refused.reason}"), now_ms)
            return False
        self._ports.metrics.checkpoints_appended.value += 1
        if self.state is State.ACTIVE:
            ownership.sequence = sequence + 1
            cut = None if cut_offset < 0 else cut_offset
            self.parking.records.append(Parked(sequence, header, CHECKPOINT_KEY, value_bytes, None, cut, None, None))
        return True

    def _read_while_loading(self, records: list[LogRecord], now_ms: int) -> None:
        ownership, machine, check = self.ownership, self.machine, self._check
        assert machine is not None
        self._progress_ms = now_ms
        self.records_met += len(records)
        if self._base is not None:
            if self._is_at_checkpoint:
                self._compare_checkpoint(self._base, records[0], now_ms)
                return
            if not self._stand_on(self._base, records[0], now_ms):
                return
            records = records[1:]
        for record in records:
            offset, key, value, _ = record
            self.position = offset + 1
            if self._is_folding:  # behind our own checkpoint nothing is loaded, and nothing of ours was sent yet
                if not self._meet_unexpected(record, now_ms):
                    return
                continue
            try:
                verdict = ownership.judge(record)
                if verdict is Verdict.DATA:
                    self.bytes_met += len(key or b"") + len(value or b"")
                    machine.load_record(key or b"", value, offset)
                    continue
            except (RecordError, LoadFailed) as error:
                check.found(LoadFailed(f"offset {offset} cannot be read: {error}"))
                continue
            if verdict is Verdict.VOID:
                self._count_void()
                if ownership.winner is None:
                    check.meet_void_before_checkpoint(record, self.log_start)
                continue
            winner = ownership.winner
            assert winner is not None
            self._meet_checkpoint(machine, winner, offset)
            begins_at = ownership.beginning.offset
            if begins_at > self.log_start and ownership.beginning.is_found and self._accept_reason is None:
                self._begin_at_cut(begins_at, now_ms)
                return
            if verdict is Verdict.OWN:
                self._meet_own_checkpoint(offset, now_ms)
                if self.state is not State.LOADING:
                    return
            elif ownership.attempt_id is not None:  # a RIVAL after our claim
                self._lose(now_ms)
                return

    def _meet_checkpoint(self, machine: StateMachine, checkpoint: Checkpoint, offset: int) -> None:
        """Judge a checkpoint that counts; the machine learns whether an admin accepted the log, now or in a part that was cut."""
        was_accepted = self._check.accepted_reason is not None
        if self._check.meet_checkpoint(checkpoint, offset) or (
            self._check.accepted_reason is not None and not was_accepted
        ):
            machine.on_log_accepted()

    def _meet_own_checkpoint(self, offset: int, now_ms: int) -> None:
        if self._check.finding is not None:
            self.fail(self._check.finding, now_ms)
            return
        self.checkpoint_offset = offset
        self.checkpoint_bytes = self.bytes_met
        self.committed_offset = offset + 1
        self.lost_from = None
        self.records_loaded = self.records_met
        self._is_folding = True
        self._effects.append(ContinueLoad(self.index, self.instance))

    def continue_load(self, instance: int, is_time_up: Callable[[], bool], now_ms: int) -> None:
        """Fold another slice of what was loaded; serve when all of it is."""
        machine = self.machine
        if instance != self.instance or self.state is not State.LOADING or machine is None or not self._is_folding:
            return
        try:
            if not machine.finish_load(is_time_up):
                self._effects.append(ContinueLoad(self.index, self.instance))
                return
            machine.on_loaded(self.image)
        except Exception as error:  # a bug in one machine fails its partition, never the loop
            if self.base_offset >= 0:
                self._start_over(self.base_offset, f"loading failed: {error!r}", now_ms)
                return
            self.fail(error if isinstance(error, LoadFailed) else LoadFailed(f"loading failed: {error!r}"), now_ms)
            return
        self._is_folding = False
        self._enter(State.ACTIVE)
        self.failure = None
        self._accept_reason = None
        self._takes_over = False
        self.is_alarmed = False
        self.load_ended_ms = now_ms
        if self.base_offset >= 0:
            self._effects.append(BaseJudged(self.index, self.base_offset, ""))
        self._backoff_ms = self.config.retry_backoff_ms
        self._note(
            "debug",
            "partition loaded",
            owner_epoch=self.ownership.epoch,
            records=self.records_met,
            void_records=self.void_records,
            load_ms=now_ms - self.load_began_ms,
            **({"base_offset": self.base_offset} if self.base_offset >= 0 else {}),
        )

    def _check_load_progress(self, now_ms: int) -> None:
        where = f"at offset {self.position} (log start {self.log_start}, end was {self.end_offset})"
        if now_ms - self.load_began_ms >= self.config.load_timeout_ms:
            limit = self.config.load_timeout_ms
            self.fail(LoadFailed(f"the load did not end within {limit} ms; it stood {where}"), now_ms)
        elif now_ms - self._progress_ms >= self.config.load_stall_ms and not self._is_folding:
            self._progress_ms = now_ms
            waiting_for = "our own checkpoint" if self.ownership.attempt_id else "the next record"
            self._note("warning", "load stalls", where=where, waiting_for=waiting_for)

    def _meet_unexpected(self, record: LogRecord, now_ms: int) -> bool:
        """Meet a record that is not our next one; returns whether we still serve."""
        try:
            verdict = self.ownership.judge(record)
            is_ahead = verdict is Verdict.VOID and self.ownership.is_ahead(record)
        except RecordError as error:
            self.fail(LoadFailed(f"offset {record.offset} cannot be read: {error}"), now_ms)
            return False
        if verdict is Verdict.RIVAL:
            assert self.ownership.winner is not None
            self._check.meet_checkpoint(self.ownership.winner, record.offset)
            self._lose(now_ms)
            return False
        if verdict is Verdict.VOID and not is_ahead:
            self._count_void()
            return True
        self.fail(
            OutcomeUnknown(f"offset {record.offset} holds a record under our epoch that was not our next one"), now_ms
        )
        return False

    def _count_void(self) -> None:
        self.void_records += 1
        self._ports.metrics.records_void.value += 1

    # ---- stop --------------------------------------------------------------------------------------------------------

    def _lose(self, now_ms: int) -> None:
        if self._check.finding is not None:  # the winner is of another log, or what stands before it is not whole
            self.fail(self._check.finding, now_ms)
            return
        winner, offset = self.ownership.winner, self.ownership.winner_offset
        assert winner is not None
        assert self.generation is not None
        where = f" at {winner.advertised_address}" if winner.advertised_address else ""
        text = f"node {winner.node_id}{where} took it with owner epoch {winner.owner_epoch} at offset {offset}"
        is_ours_to_take = may_take(winner, self.generation, self.config.node_id)
        if is_ours_to_take and winner.generation == self.generation and self.is_static:
            # A twin under our node id would do the same for ever; a higher generation decides between the two.
            self.generation += 1
        # Who is superseded for good tells it of all its log partitions together.
        level = "warning" if is_ours_to_take else "debug"
        self._note(level, "ownership lost", winner=winner.node_id, owner_epoch=winner.owner_epoch, offset=offset)
        self.is_alarmed = False
        self._stop(State.CLOSED, text, NotCoordinator(text))
        if is_ours_to_take:
            self._retry_later(now_ms)
        else:
            self._effects.append(Superseded(self.index, winner, offset))

    def _stop(self, state: State, failure: str, outcome: CoordinatorError) -> None:
        self._enter(state)
        self.failure = failure
        self._effects.append(StopReading(self.index))
        self.timers.cancel_all()
        for operation in self.parking.drain():
            self._reply(operation, outcome)
        self._let_go()

    def _let_go(self) -> None:
        machine, self.machine = self.machine, None
        if machine is not None:
            try:
                machine.on_unloaded()
            except Exception as bug:
                self._note("error", "on_unloaded failed", error=repr(bug), exc_info=bug)

    def _retry_later(self, now_ms: int) -> None:
        backoff_ms = self.config.alarm_backoff_ms if self.is_alarmed else self._backoff_ms
        self.retry_at_ms = now_ms + int(backoff_ms * (0.5 + self._ports.jitter() / 2))
        self._backoff_ms = min(self._backoff_ms * 2, self.config.retry_backoff_ms_max)

    def _not_serving(self) -> CoordinatorError:
        if self.state is State.LOADING:
            return LoadInProgress("the log partition is being loaded")
        why = self.failure or "it was not loaded yet"
        return NotCoordinator(f"this node does not serve log partition {self.index}: {why}")

    def _enter(self, state: State) -> None:
        check_transition(self.index, self.state, state)
        self.state = state
        self._effects.append(StateChanged(self.index, state))
