"""One share partition that this node leads: its state machine, its records and its Writes.

It loads by "read, or initialize where there is nothing to read": the start offset of a new group is in the log before the first record
leaves. A share partition whose load failed, or that another leader fenced, has ended: the leader forgets it, and the next fetch loads it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol, final

from holdfast.api.results import ReadOrInitializeResult, WritePartition, WriteResult
from holdfast.api.share_consumer import AcknowledgedRange
from holdfast.api.share_state_access import ShareStateAccess
from holdfast.delivery.group_config import GroupConfig, OffsetReset
from holdfast.delivery.sessions import ShareSessions
from holdfast.delivery.share_partition.partition import SharePartition
from holdfast.delivery.share_partition.values import AcquiredRange, AcquireMode, Refused, StateWrite, WriteValues
from holdfast.gateway.leading.starts import NoStart
from holdfast.gateway.leading.window import OpenReader, RecordWindow
from holdfast.gateway.leading.writes import Done, Writes
from holdfast.gateway.metrics import GatewayMetrics
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.kafka.records.batches import Batch
from holdfast.kafka.records.partition_reader import (
    LogTruncated,
    OffsetOutOfRange,
    ReadFailed,
    TopicGone,
    TopicRecreated,
)
from holdfast.records.share.keys import SharePartitionKey


class Ended(NamedTuple):
    """Why a share partition serves no more."""

    #: Any code of Kafka's: `api.share_errors` says what leaves.
    error_code: int
    text: str


#: So long after the last Write of an idle share partition the log is told what ended without a Write.
_SETTLE_AFTER_MS: Final = 1_000
#: The longest pause before it is told again what was given up: each Write that fails doubles the pause.
_SETTLE_AFTER_MAX_MS: Final = 60_000
#: The log does not answer now; it is asked again after a pause.
_NO_ANSWER: Final = frozenset(
    (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT)
)
_ASK_AGAIN_AFTER_MS: Final = 500
#: A number of suspicions that no leader has.
_IN_DOUBT: Final = -1
#: Another node leads, or the topic is gone: neither is a fault.
_QUIET: Final = frozenset((ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_ID))
_UNUSED: Final = Ended(ErrorCode.NONE, "nobody used the share partition")


class Acknowledged(NamedTuple):
    """The outcome of the acknowledgements of one request."""

    error_code: int = ErrorCode.NONE
    text: str = ""


ACKNOWLEDGED: Final = Acknowledged()


class Given(NamedTuple):
    """The records that a fetch gets of one share partition."""

    ranges: Sequence[AcquiredRange]
    #: Record batches that hold them.
    batches: Sequence[Batch]
    #: Offsets that were acquired.
    record_count: int
    #: Bytes of the record batches.
    size_bytes: int


class Wanted(NamedTuple):
    """The wish of a fetch to each of its share partitions."""

    member_id: str
    mode: AcquireMode
    batch_size: int


class LeaderParts(Protocol):
    """The parts of the leader that each of its share partitions uses."""

    @property
    def access(self) -> ShareStateAccess:
        """Return the way to states."""

    @property
    def metrics(self) -> GatewayMetrics:
        """Return the instruments, and lines."""

    @property
    def sessions(self) -> ShareSessions:
        """Return the sessions of members, which learn what may have changed."""

    @property
    def suspicions(self) -> int:
        """Return how often another node may have begun to lead without this one's knowledge."""

    def now_ms(self) -> float:
        """Return the time of locks."""

    def open_reader(self, key: SharePartitionKey) -> OpenReader:
        """Return what opens a reader of the topic partition."""

    def find_start(self, key: SharePartitionKey, reset: OffsetReset, respond: Callable[[int | NoStart], None]) -> None:
        """Ask the log where a new group begins."""

    def deadline_changed(self, led: LedPartition) -> None:
        """Look at the next deadline of a share partition again."""

    def ended(self, led: LedPartition) -> None:
        """Forget a share partition that has ended."""

    def written(self, led: LedPartition) -> None:
        """Forget a share partition that has ended, whose last Write was answered."""

    def failed(self, led: LedPartition, ended: Ended) -> None:
        """Leave a share partition alone for a moment, which ends because it cannot be served."""

    def hold(self, key: SharePartitionKey) -> None:
        """Count a share partition among those that are held, until it gives records."""

    def give_again(self, key: SharePartitionKey) -> None:
        """Count a share partition no more among those that are held."""


@final
class LedPartition:
    """A share partition on its leader.

    Args:
        key: its name.
        leader_epoch: under which it is led.
        config: of its group.
        leader: leads it.
    """

    def __init__(self, key: SharePartitionKey, leader_epoch: int, config: GroupConfig, leader: LeaderParts) -> None:
        self.key: Final = key
        self.core: Final = SharePartition(leader_epoch, config)
        #: None while it loads or serves.
        self.ended: Ended | None = None
        self.is_loading = True
        self.leader_epoch: Final = leader_epoch
        self._leader: Final = leader
        self._reset: Final = config.auto_offset_reset
        self._writes: Final = Writes(self.core.join_writes, self._send)
        self._window: Final = RecordWindow(leader.open_reader(key), self.wake, self._is_awaited)
        #: No session fetches it.
        self._is_unused = False
        #: It gave records.
        self._has_given = False
        #: The last offset from which records were at hand and none could be acquired.
        self._empty_at = -1
        #: Those of the leader when this one was last confirmed; another number: it gives nothing before the log has answered.
        self._suspicions = leader.suspicions
        #: When the log is asked again who leads; None: there is no pause.
        self._ask_ms: float | None = None
        #: When the log is told how far all is done; None: it knows.
        self._settle_ms: float | None = None
        self._settle_after_ms = _SETTLE_AFTER_MS

    @property
    def next_deadline_ms(self) -> float | None:
        """Return when `tick` is due, by the loop's clock; None: there is nothing to wait for."""
        if self.ended is not None:
            return None
        lock_ms = self.core.next_deadline_ms()
        if self._settle_ms is None and self._ask_ms is None:
            return lock_ms
        return min(each for each in (lock_ms, self._settle_ms, self._ask_ms) if each is not None)

    @property
    def is_written(self) -> bool:
        """Tell whether no Write is on its way."""
        return self._writes.are_done

    @property
    def is_held(self) -> bool:
        """Tell whether a member holds a record of it."""
        return self.core.next_deadline_ms() is not None

    # ---- its load ----------------------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Begin to load it."""
        self.core.begin_load()
        self._leader.access.read_or_initialize(self.key, self.leader_epoch, None, self._on_state)

    def _on_state(self, found: ReadOrInitializeResult) -> None:
        if self.ended is not None:
            return
        if found.error_code:
            self._fail(Ended(found.error_code, found.error_message or ""))
        elif not found.has_state:
            self._leader.find_start(self.key, self._reset, self._on_start)
        else:
            wrong = self.core.loaded(found.state_epoch, found.start_offset, found.state_batches)
            if wrong is not None:
                self._fail(Ended(ErrorCode.KAFKA_STORAGE_ERROR, wrong))
                return
            self.is_loading = False
            self._window.seek(self.core.next_fetch_offset())
            self.wake()

    def _on_start(self, start: int | NoStart) -> None:
        if self.ended is not None:
            return
        if isinstance(start, NoStart):
            self._fail(Ended(ErrorCode.KAFKA_STORAGE_ERROR, f"it is not known where the group begins: {start.text}"))
        else:
            self._leader.access.read_or_initialize(self.key, self.leader_epoch, start, self._on_state)

    def _confirm(self) -> None:
        """Ask the log whether this node leads still, and give nothing before its answer: another one may have records acknowledged.

        While the log does not answer, what is given could not be acknowledged either, and each delivery would count.
        """
        self.is_loading, suspicions = True, self._leader.suspicions

        def take(found: ReadOrInitializeResult) -> None:
            if self.ended is not None:
                return
            if found.error_code in _NO_ANSWER:
                self._ask_ms = self._leader.now_ms() + _ASK_AGAIN_AFTER_MS
                self._leader.deadline_changed(self)
                return
            if found.error_code or not found.has_state:
                code = found.error_code or ErrorCode.FENCED_STATE_EPOCH
                self.end(Ended(code, found.error_message or "the state was deleted"))
                return
            self.is_loading, self._suspicions = False, suspicions
            self.wake()

        self._leader.access.read_or_initialize(self.key, self.leader_epoch, None, take)

    # ---- records -----------------------------------------------------------------------------------------------------------

    def give(self, wanted: Wanted, records_max: int, bytes_max: int) -> Given | None:
        """Acquire records that are at hand for a member; None: there are none for anybody now, and `wake` is called when there may be."""
        core, self._is_unused = self.core, False
        if self._suspicions != self._leader.suspicions and not self.is_loading and self.ended is None:
            self._confirm()
        if self.is_loading or self.ended is not None or not core.can_acquire():
            return None
        offset = core.next_fetch_offset()
        try:
            batches, aborted = self._window.read(offset, records_max, bytes_max)
        except ReadFailed as failure:
            self._on_failure(failure)
            return None
        if not batches:
            if problem := self._window.problem:
                self._leader.metrics.note_unread(self.key, problem)
            return None
        acquired = core.acquire(
            self._leader.now_ms(),
            wanted.member_id,
            wanted.mode,
            wanted.batch_size,
            records_max,
            offset,
            batches,
            aborted,
        )
        self._leader.deadline_changed(self)
        if not acquired.ranges:
            # It may have archived records that are gone, and the next offset has moved.
            # A hole that has no records left is passed by the second try from the same offset.
            is_first, self._empty_at = self._empty_at != offset, offset
            if core.can_acquire() and (is_first or core.next_fetch_offset() != offset):
                self.wake()
            return None
        self._empty_at = -1
        if not self._has_given:
            self._has_given = True
            self._leader.give_again(self.key)
        sent = batches[acquired.first_index : acquired.end_index]
        given = Given(acquired.ranges, sent, acquired.offset_count, sum([len(batch.data) for batch in sent]))
        self._leader.metrics.records_given.value += given.record_count
        self._leader.metrics.bytes_given.value += given.size_bytes
        return given

    def _on_failure(self, failure: ReadFailed) -> None:
        """Go on where records can be read, or end."""
        core, first_new = self.core, self.core.first_new_offset
        # The log may begin above the next offset, or above what its reader had yet to read below it.
        if isinstance(failure, OffsetOutOfRange) and first_new <= failure.end_offset:
            core.move_log_start(failure.first_offset)
            self._read_on()
        elif isinstance(failure, LogTruncated) and failure.diverges_at >= first_new:
            # Only what was read ahead is lost; others have those offsets now.
            self._leader.metrics.note_unread(self.key, str(failure))
            self._read_on(failure.diverges_at)
        elif isinstance(failure, OffsetOutOfRange):
            self._hold(failure, failure.end_offset)
        elif isinstance(failure, LogTruncated):
            self._hold(failure, failure.diverges_at)
        else:
            is_gone = isinstance(failure, TopicGone | TopicRecreated)
            code = ErrorCode.UNKNOWN_TOPIC_ID if is_gone else ErrorCode.KAFKA_STORAGE_ERROR
            self._fail(Ended(code, str(failure)))

    def _read_on(self, diverges_at: int | None = None) -> None:
        """Forget what is at hand, and read again what is next."""
        self._window.seek(self.core.next_fetch_offset(), diverges_at)
        self._leader.deadline_changed(self)
        self.wake()

    def _hold(self, failure: ReadFailed, end_offset: int) -> None:
        """End because records that were acquired are lost, as by an unclean election; it is looked at again with the next fetch.

        Args:
            failure: as the reader tells it.
            end_offset: of the log, below what was acquired.
        """
        self._leader.metrics.note_held(self.key, self.core.first_new_offset, end_offset)
        self._leader.hold(self.key)
        self._fail(Ended(ErrorCode.KAFKA_STORAGE_ERROR, str(failure)), is_told=True)

    # ---- what members say --------------------------------------------------------------------------------------------------

    def acknowledge(
        self, member_id: str, batches: Sequence[AcknowledgedRange], respond: Callable[[Acknowledged], None]
    ) -> None:
        """Take acknowledgements; `respond` is called once they are in the log, maybe before this returns."""
        outcome = self.core.acknowledge(self._leader.now_ms(), member_id, batches)
        self._leader.deadline_changed(self)
        if outcome is None:
            respond(ACKNOWLEDGED)
        elif isinstance(outcome, Refused):
            self._leader.metrics.acknowledgements_failed.value += 1
            respond(Acknowledged(outcome.error_code, outcome.message))
        else:
            self._persist(outcome, lambda code: self._respond(respond, code))

    def _respond(self, respond: Callable[[Acknowledged], None], error_code: int) -> None:
        metrics = self._leader.metrics
        if error_code:
            metrics.acknowledgements_failed.value += 1
            respond(Acknowledged(error_code, "the acknowledgement was not written"))
        else:
            metrics.acknowledgements.value += 1
            respond(ACKNOWLEDGED)

    def release(self, member_id: str) -> None:
        """Give back all that a member holds that is gone."""
        write = self.core.release(member_id, is_gone=True)
        self._leader.deadline_changed(self)
        if write is not None:
            self._persist(write, _nobody_waits)

    def tick(self, now_ms: float) -> None:
        """End the locks whose time is over, and write how far all is done if the log does not know it.

        After its end neither is of interest, for another leader may have given the records away.
        """
        if self.ended is None and self._ask_ms is not None and self._ask_ms <= now_ms:
            self._ask_ms = None
            self._confirm()
        if self.ended is not None:
            return
        write = self.core.tick(now_ms)
        if write is not None:
            self._leader.metrics.locks_ended.value += 1
            self._persist(write, _nobody_waits)
        elif self._settle_ms is not None and self._settle_ms <= now_ms:
            self._settle_ms = None
            if self._writes.are_done and (trailing := self.core.settle()) is not None:
                self._persist(trailing, _nobody_waits)
        self._leader.deadline_changed(self)
        self.wake()

    # ---- its Writes --------------------------------------------------------------------------------------------------------

    def _persist(self, write: StateWrite, done: Done) -> None:
        def settle(error_code: int) -> None:
            if error_code == ErrorCode.INVALID_REQUEST:
                # Its state was deleted, and there is no epoch that fences this one.
                error_code = ErrorCode.FENCED_STATE_EPOCH
            settled = self.core.write_done(write, error_code)
            if error_code:
                self._suspicions = _IN_DOUBT
            if (write.batches and not error_code) or not self.core.is_told:
                self._settle_ms = self._leader.now_ms() + self._settle_after_ms
            self._settle_after_ms = (
                min(2 * self._settle_after_ms, _SETTLE_AFTER_MAX_MS) if error_code else _SETTLE_AFTER_MS
            )
            self._leader.deadline_changed(self)
            done(error_code)
            if self.ended is not None:
                if self.is_written:
                    self._leader.written(self)
            elif self._is_unused and self._writes.are_done and self.core.is_told:
                self.end(_UNUSED)
            elif settled.is_fenced:
                self.end(Ended(error_code, "another node leads the share partition, or its state was changed"))
            else:
                self.wake()

        self._writes.add(write, settle)

    def _send(self, write: WriteValues, done: Done) -> None:
        state_epoch, leader_epoch, start_offset, complete_count, batches = write
        group_id, topic_id, partition = self.key
        values = WritePartition(partition, state_epoch, leader_epoch, start_offset, complete_count, batches)

        def take(result: WriteResult) -> None:
            done(result.error_code)

        self._leader.access.write(group_id, topic_id, values, take)

    # ---- its end -----------------------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Have it asked again; each event that may give it records for somebody calls this, and nothing else tells those who wait."""
        group_id, topic_id, partition = self.key
        self._leader.sessions.changed(group_id, (topic_id, partition))

    def _is_awaited(self) -> bool:
        """Tell whether a fetch waits for its records."""
        group_id, topic_id, partition = self.key
        return self._leader.sessions.is_awaited(group_id, (topic_id, partition))

    def unload(self) -> None:
        """End it when its Writes are answered, and the log knows how far all is done, unless somebody has asked it by then."""
        self._is_unused = True
        if self._writes.are_done:
            trailing = self.core.settle()
            if trailing is None:
                self.end(_UNUSED)
            else:
                self._persist(trailing, _nobody_waits)

    def _fail(self, ended: Ended, *, is_told: bool = False) -> None:
        """End it because it cannot be served, and have it left alone for a moment."""
        if self.ended is None:
            self._leader.failed(self, ended)
        self.end(ended, is_told=is_told)

    def end(self, ended: Ended, *, is_told: bool = False) -> None:
        """Serve no more; a second end is ignored.

        Args:
            ended: why.
            is_told: a line says so already.
        """
        if self.ended is not None:
            return
        self.ended = ended
        if ended.error_code not in _QUIET and not is_told:
            is_fenced = ended.error_code == ErrorCode.FENCED_LEADER_EPOCH
            self._leader.metrics.note_unserved(self.key, ended.text, is_fenced=is_fenced)
        self.core.fence()
        self._window.close()
        self._leader.ended(self)
        self.wake()


def _nobody_waits(_: int) -> None:
    """Drop the outcome: what nobody holds any more is available, also if the log does not know it."""
