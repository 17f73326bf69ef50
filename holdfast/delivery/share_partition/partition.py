"""One share partition on its leader: the calls of its life.

A share partition is loaded from the coordinator, then its members acquire offsets, each range under a lock, and acknowledge them. An
acknowledgement changes states at once, and they stay *under way* until the coordinator has answered the write that it gave: until
then nobody acquires them, and the start offset does not pass them. If the write succeeds, they are settled. If it fails,
the member holds them again, unless its lock has ended. A lock that ends gives offsets back at once, and its write only tells so.

Events are calls with the time as an argument; what they want done is what they return. The caller sends each write to the coordinator
and hands its answer to `write_done`; it calls `tick` when the next deadline comes; and after anything that may wake it lets the
fetches that wait try again.

Kafka's own share partition is the source of all rules, but for these, where it throws or stops for ever: a record under way keeps its
write and its one lock when its batch is split; the start offset never goes down; nothing below it is acquired or fetched.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from holdfast.delivery.group_config import GroupConfig
from holdfast.delivery.share_partition.acknowledging import Acknowledgement, release
from holdfast.delivery.share_partition.acquiring import Acquisition
from holdfast.delivery.share_partition.archiving import move_log_start
from holdfast.delivery.share_partition.loading import load
from holdfast.delivery.share_partition.locks import Locks, end_locks, end_locks_under_way
from holdfast.delivery.share_partition.settling import close_write, commit, progress_after, roll_back
from holdfast.delivery.share_partition.values import (
    FENCING_ERRORS,
    NOTHING_ACQUIRED,
    AcknowledgedRange,
    Acquired,
    AcquireMode,
    Condition,
    OffsetRange,
    RecordBatch,
    Refused,
    Settled,
    StateWrite,
    WriteValues,
    callers_error,
)
from holdfast.delivery.share_partition.window import Window
from holdfast.records.share.batches import ARCHIVED, AVAILABLE, StateBatch


class SharePartition:
    """The records in flight of one group in one partition of a topic."""

    __slots__ = ("_leader_epoch", "_locks", "_state_epoch", "_written", "condition", "config", "window")

    def __init__(self, leader_epoch: int, config: GroupConfig) -> None:
        self._leader_epoch: Final = leader_epoch
        #: May be replaced at any time; it counts from the next event on.
        self.config = config
        self.condition = Condition.EMPTY
        self._state_epoch = 0
        #: Start offset and count of what is done with, as a write told them last.
        self._written = (-1, -1)
        #: Its known offsets.
        self.window: Final = Window()
        self._locks: Final = Locks(self.window)

    # Life

    def begin_load(self) -> None:
        """Note that the state is being read."""
        assert self.condition is Condition.EMPTY
        self.condition = Condition.LOADING

    def loaded(self, state_epoch: int, start_offset: int, batches: Sequence[StateBatch]) -> str | None:
        """Begin with the state that was read; return what is wrong with it, or None."""
        if self.condition is not Condition.LOADING:
            return None
        self._state_epoch = state_epoch
        wrong = load(self.window, start_offset, batches)
        self._written = start_offset, self.window.complete_count
        self.condition = Condition.ACTIVE if wrong is None else Condition.FAILED
        return wrong

    def load_failed(self) -> None:
        """Note that the state could not be read."""
        if self.condition is Condition.LOADING:
            self.condition = Condition.FAILED

    def fence(self) -> None:
        """Acquire nothing more: this leader is none any longer."""
        self.condition = Condition.FENCED

    # Fetching

    def next_fetch_offset(self) -> int:
        """Return where the next fetch begins."""
        return self.window.next_fetch_offset()

    def can_acquire(self) -> bool:
        """Tell whether a fetch could bring something to acquire."""
        window, locks_max = self.window, self.config.partition_max_record_locks
        if not window.batches or window.next_fetch_offset() != window.end_offset + 1:
            return True
        if window.end_offset - window.start_offset + 1 < locks_max:
            return True
        if not window.is_all_settled():
            return False
        # Nobody holds anything, so nothing else moves the start offset over what ended without a word of a member.
        window.pass_settled()
        return not window.batches or window.end_offset - window.start_offset + 1 < locks_max

    def acquire(
        self,
        now_ms: float,
        member_id: str,
        mode: AcquireMode,
        batch_size: int,
        records_max: int,
        fetch_offset: int,
        batches: Sequence[RecordBatch],
        aborted: Sequence[OffsetRange] = (),
    ) -> Acquired:
        """Acquire records for a member from what a fetch brought.

        Args:
            now_ms: the time.
            member_id: of whom.
            mode: how exactly `records_max` is kept.
            batch_size: a range of new records ends where a record batch does, once it has as many offsets.
            records_max: how many records are wanted.
            fetch_offset: where the fetch began.
            batches: what it brought, ascending.
            aborted: what of it aborted transactions wrote, see `record_batches.find_aborted`; empty where uncommitted records
                are read too.
        """
        window = self.window
        if self.condition is not Condition.ACTIVE or records_max <= 0 or not batches:
            return NOTHING_ACQUIRED
        last = batches[-1].last_offset
        if last < window.start_offset:
            return NOTHING_ACQUIRED
        in_flight = window.end_offset - window.start_offset + 1 if window.batches else 0
        wanted = min(records_max, self.config.partition_max_record_locks - in_flight)
        if wanted <= 0:
            # No more locks, but what is known already has a place.
            wanted = min(records_max, window.end_offset - fetch_offset + 1)
            last = min(last, window.end_offset)
            if wanted <= 0:
                return NOTHING_ACQUIRED
        is_limited = mode == AcquireMode.RECORD_LIMIT
        acquisition = Acquisition(
            window, self._locks, self.config, batches, now_ms, member_id, batch_size, is_limited=is_limited
        )
        return acquisition.run(wanted, fetch_offset, last, aborted)

    def move_log_start(self, log_start: int) -> bool:
        """Note that the log begins later than the start offset, as a fetch told; tell whether it does."""
        return move_log_start(self.window, log_start, AVAILABLE)

    # Settling

    def acknowledge(
        self, now_ms: float, member_id: str, batches: Sequence[AcknowledgedRange]
    ) -> StateWrite | Refused | None:
        """Take what a member says of the offsets that it acquired.

        Returns:
            The write that must succeed before the member is answered; why all of it is refused; or None where nothing must be
            written, and the member is answered that it succeeded.
        """
        write = self._make_write(member_id)
        acknowledgement = Acknowledgement(self.window, self._locks, self.config, now_ms, member_id, write)
        refused = acknowledgement.run(batches)
        if refused is not None:
            if write.batches:
                roll_back(self.window, write)
            return refused
        return close_write(self.window, write) if write.batches else None

    def release(self, member_id: str, *, is_gone: bool = False) -> StateWrite | None:
        """Give back all that a member holds, because its session has ended.

        Args:
            member_id: of whom.
            is_gone: it does not come again, so its locks end now: where a write of its fails, this one or one that is under way,
                the records are available. Else the member holds them again, as in Kafka.
        """
        write = self._make_write(member_id)
        release(self.window, self.config, member_id, write)
        if is_gone:
            end_locks_under_way(self.window, member_id)
        return close_write(self.window, write) if write.batches else None

    def tick(self, now_ms: float) -> StateWrite | None:
        """End the locks whose time is over; return the write that tells the coordinator, after which fetches that wait try again."""
        ended = self._locks.pop_ended(now_ms)
        if not ended:
            return None
        write = self._make_write("", is_of_locks=True)
        for batch in ended:
            end_locks(self.window, batch, now_ms, write)
        return close_write(self.window, write) if write.batches else None

    def settle(self) -> StateWrite | None:
        """Return a write of the start offset alone, if what was written last does not tell how far all is done, or what was given up.

        A caller asks for it when nothing was written for a while: what ended without a write is told only by a later one.
        """
        window = self.window
        window.pass_settled()
        if self.condition is not Condition.ACTIVE or (self.is_told and self._written == progress_after(window, ())):
            return None
        return close_write(window, self._make_write(""))

    def join_writes(self, writes: Sequence[StateWrite]) -> WriteValues:
        """Return what one call must write for several writes, in the order in which they were made.

        None of them may be under way: the start offset is the one that holds when all of them have succeeded. Records that were given
        up go with them. Each is handed to `write_done` with the answer.
        """
        window = self.window
        start_offset, complete_count = progress_after(window, writes)
        window.given_up = [batch for batch in window.given_up if batch.last_offset >= start_offset]
        batches = [*window.given_up, *(batch for write in writes for batch in write.batches)]
        return WriteValues(self._state_epoch, self._leader_epoch, start_offset, complete_count, tuple(batches))

    def write_done(self, write: StateWrite, error_code: int) -> Settled:
        """Take the coordinator's answer to a write; any code of the coordinator's, 0 for success, -1 for no answer."""
        window = self.window
        error = callers_error(error_code)
        if not error:
            self._written = write.start_offset, write.delivery_complete_count
            window.written_start = max(window.written_start, write.start_offset)
            window.given_up.clear()
        is_moved = is_available = False
        if write.is_of_locks:
            if error:
                window.given_up += [batch for batch in write.batches if batch.delivery_state == ARCHIVED]
            is_moved = window.move_start()
        elif error:
            is_available = roll_back(window, write)
        else:
            is_available = commit(window, write)
            is_moved = window.move_start()
        return Settled(error, is_moved, is_available, error in FENCING_ERRORS)

    def next_deadline_ms(self) -> float | None:
        """Return when `tick` must be called next, or None."""
        return self._locks.next_ms()

    def _make_write(self, member_id: str, *, is_of_locks: bool = False) -> StateWrite:
        limit = self.config.delivery_count_limit
        return StateWrite(self._state_epoch, self._leader_epoch, member_id, limit, is_of_locks=is_of_locks)

    # Its offsets

    @property
    def is_told(self) -> bool:
        """Tell whether the log knows all that was given up."""
        return not self.window.given_up

    @property
    def start_offset(self) -> int:
        """Return the first offset that is still of interest."""
        return self.window.start_offset

    @property
    def end_offset(self) -> int:
        """Return the last offset that was ever acquired; where nothing is known, the next one to fetch."""
        return self.window.end_offset

    @property
    def first_new_offset(self) -> int:
        """Return the first offset that was never acquired, nor settled by an earlier leader."""
        window = self.window
        return window.end_offset + 1 if window.batches else window.end_offset

    @property
    def delivery_complete_count(self) -> int:
        """Return how many offsets from the start offset on are never delivered again."""
        return self.window.complete_count
