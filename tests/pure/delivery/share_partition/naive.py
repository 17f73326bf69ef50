"""A naive share partition: a dictionary from offset to state, written from the rules alone, that watches a real one.

It does not choose what is acquired. It says of each offset that is handed out whether it may be, works out each acknowledgement,
release, end of a lock and answer of a write offset by offset, and compares everything with the real one after every event.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from holdfast.delivery.group_config import GroupConfig
from holdfast.delivery.share_partition.partition import SharePartition
from holdfast.delivery.share_partition.values import (
    ACCEPT,
    ACQUIRED,
    RELEASE,
    RENEW,
    Acquired,
    AcquireMode,
    OffsetRange,
    Refused,
    StateWrite,
)
from holdfast.records.share.batches import ACKNOWLEDGED, ARCHIVED, AVAILABLE, StateBatch
from tests.pure.delivery.share_partition.world import Head

TERMINAL = (ACKNOWLEDGED, ARCHIVED)


@dataclass
class Offset:
    """The state of one offset."""

    state: int
    count: int
    member: str = ""
    lock: float = -1
    is_lock_over: bool = False
    write: StateWrite | None = None

    def is_done(self) -> bool:
        return self.state in TERMINAL and self.write is None


class Watched:
    """A real share partition, and the naive one beside it."""

    def __init__(self, config: GroupConfig, start_offset: int, batches: Sequence[StateBatch]) -> None:
        self.config = config
        self.now = 0.0
        self.real = SharePartition(1, config)
        self.real.begin_load()
        assert self.real.loaded(1, start_offset, batches) is None
        self.offsets: dict[int, Offset] = {}
        for first, last, state, count in batches:
            self.offsets |= {offset: Offset(state, count) for offset in range(first, last + 1)}
        #: Below it nothing is of interest.
        self.start = start_offset
        self.log_start = 0
        #: The highest start offset that a write brought into the log.
        self.written_start = 0
        #: Offsets of record batches that are in the log.
        self.in_log: set[int] = set()
        #: Offsets whose accept or reject was answered without an error.
        self.settled: set[int] = set()
        #: The newest delivery count that was written, by offset.
        self.persisted: dict[int, int] = {offset: each.count for offset, each in self.offsets.items()}

    # Events

    def acquire(
        self,
        member: str,
        mode: AcquireMode,
        batch_size: int,
        wanted: int,
        fetch_offset: int,
        batches: Sequence[Head],
        aborted: Sequence[OffsetRange] = (),
    ) -> Acquired:
        before = self.real.start_offset
        acquired = self.real.acquire(self.now, member, mode, batch_size, wanted, fetch_offset, batches, aborted)
        assert acquired.offset_count == sum(last - first + 1 for first, last, _ in acquired.ranges)
        if mode is AcquireMode.RECORD_LIMIT:
            assert acquired.offset_count <= wanted, "more than wanted"
        sent = batches[acquired.first_index : acquired.end_index]
        taken: set[int] = set()
        for first, last, count in acquired.ranges:
            assert first >= before, "handed out below the start offset"
            records = {offset for head in batches for offset in range(head.base_offset, head.last_offset + 1)}
            unsent = records.intersection(range(first, last + 1)).difference(
                offset for head in sent for offset in range(head.base_offset, head.last_offset + 1)
            )
            assert not unsent, "handed out without its record batch"
            for offset in range(first, last + 1):
                assert offset not in taken, "handed out twice"
                taken.add(offset)
                assert offset not in self.settled, "handed out after it was settled"
                at = self.offsets.get(offset, Offset(AVAILABLE, 0))
                assert at.state == AVAILABLE, "handed out while it is not available"
                assert at.write is None, "handed out while a write is under way"
                assert count == at.count + 1, "counted wrongly"
                self.offsets[offset] = Offset(ACQUIRED, count, member, self.now + self.config.record_lock_duration_ms)
        self._archive_what_is_gone(fetch_offset, batches[0].base_offset)
        for first, last in aborted:
            self._archive_aborted(first, last, taken)
        self.check()
        return acquired

    def _archive_what_is_gone(self, first: int, end: int) -> None:
        """Compaction removed what was known between the fetch offset and the first record batch, if nobody holds it."""
        real = self.real_offsets()
        for offset in range(first, end):
            at = self.offsets.get(offset, Offset(AVAILABLE, 0))
            if at.state == AVAILABLE and real.get(offset, at).state == ARCHIVED:
                self.offsets[offset] = replace(at, state=ARCHIVED, lock=-1, is_lock_over=False)

    def _archive_aborted(self, first: int, last: int, taken: set[int]) -> None:
        """Take over what became archived because its transaction was aborted."""
        real = self.real_offsets()
        for offset in range(first, last + 1):
            assert offset not in taken, "an aborted record was handed out"
            if offset in real and real[offset].state == ARCHIVED and offset not in self.settled:
                at = self.offsets.get(offset)
                assert at is None or at.state in (AVAILABLE, ACQUIRED, ARCHIVED)
                if at is None or at.state != ARCHIVED:
                    self.offsets[offset] = replace(real[offset])

    def acknowledge(
        self, member: str, batches: Sequence[tuple[int, int, Sequence[int]]]
    ) -> StateWrite | Refused | None:
        answer = self.real.acknowledge(self.now, member, batches)
        asked = {
            offset: types[0] if len(types) == 1 else types[offset - first]
            for first, last, types in batches
            for offset in range(max(first, self.start), last + 1)
        }
        held = {
            offset: at
            for offset in asked
            if (at := self.offsets.get(offset)) is not None and at.state == ACQUIRED and at.member == member
        }
        renewed = {
            offset
            for first, last, types in batches
            for offset in range(first, last + 1)
            if (types[0] if len(types) == 1 else types[offset - first]) == RENEW and offset >= self.start
        }
        is_renewing = bool(renewed)
        is_allowed = self.config.renew_acknowledge_enable or not is_renewing
        is_overlapping = sum(max(0, last + 1 - max(first, self.start)) for first, last, _ in batches) > len(asked)
        if isinstance(answer, Refused):
            assert not is_allowed or is_overlapping or len(held) < len(asked), f"refused: {answer.message}"
            # Those before the one that is refused were renewed.
            self._take_over_renewals(held, renewed)
        else:
            assert is_allowed, "renewed against the config"
            known = {offset for offset in asked if offset in self.real_offsets()}
            assert known <= set(held), "acknowledged what the member does not hold"
            expected: dict[int, tuple[int, int]] = {}
            for offset, at in held.items():
                if offset in renewed:
                    at.lock = self.now + self.config.record_lock_duration_ms
                if asked[offset] == RENEW:
                    continue
                at.state = ACKNOWLEDGED if asked[offset] == ACCEPT else ARCHIVED
                if asked[offset] == RELEASE and at.count < self.config.delivery_count_limit:
                    at.state = AVAILABLE
                at.member, at.write = "", answer
                expected[offset] = at.state, at.count
            self._check_write(answer, expected)
        self.check()
        return answer

    def _take_over_renewals(self, held: dict[int, Offset], renewed: set[int]) -> None:
        real = self.real_offsets()
        for offset, at in held.items():
            if offset in renewed and real[offset].lock == self.now + self.config.record_lock_duration_ms:
                at.lock = real[offset].lock

    def release(self, member: str, *, is_gone: bool = False) -> StateWrite | None:
        write = self.real.release(member, is_gone=is_gone)
        expected = {}
        for offset, at in self.offsets.items():
            if at.state == ACQUIRED and at.member == member and offset in self.known_before:
                is_over = offset < self.start or at.count >= self.config.delivery_count_limit
                at.state = ARCHIVED if is_over else AVAILABLE
                at.member, at.write = "", write
                expected[offset] = at.state, at.count
            if is_gone and at.write is not None and at.write.member_id == member:
                at.is_lock_over = True
        self._check_write(write, expected)
        self.check()
        return write

    def tick(self, now: float) -> StateWrite | None:
        deadline = self.real.next_deadline_ms()
        locks = [
            at.lock for at in self.offsets.values() if at.lock >= 0 and not at.is_lock_over and at.state != AVAILABLE
        ]
        assert deadline is None or deadline >= 0
        assert deadline is not None or not [at for at in self.offsets.values() if at.state == ACQUIRED], (
            locks,
            "no deadline",
        )
        self.now = now
        write = self.real.tick(now)
        expected = {}
        for offset, at in self.offsets.items():
            if at.lock < 0 or at.lock > now or offset not in self.known_before:
                continue
            if at.write is not None:
                at.is_lock_over = True
            elif at.state == ACQUIRED:
                is_over = offset < self.start or at.count >= self.config.delivery_count_limit
                self.offsets[offset] = Offset(ARCHIVED if is_over else AVAILABLE, at.count)
                expected[offset] = self.offsets[offset].state, at.count
        self._check_write(write, expected)
        later = self.real.next_deadline_ms()
        assert later is None or later > now, "a lock did not end"
        self.check()
        return write

    def write_done(self, write: StateWrite, error_code: int) -> None:
        before = self.real.start_offset
        settled = self.real.write_done(write, error_code)
        assert (settled.error_code == 0) == (error_code == 0)
        for offset, at in self.offsets.items():
            if write.is_of_locks or at.write is not write:
                continue
            at.write = None
            if not error_code:
                at.lock, at.is_lock_over = -1, False
                if at.state in TERMINAL:
                    self.settled.add(offset)
            elif at.lock < 0:
                pass  # it was archived meanwhile
            elif at.is_lock_over:
                is_over = offset < self.start or at.count >= write.delivery_count_limit
                self.offsets[offset] = Offset(ARCHIVED if is_over else AVAILABLE, at.count)
            else:
                at.state, at.member = ACQUIRED, write.member_id
        if not error_code:
            self.check_passed(write.start_offset)
            self.written_start = max(self.written_start, write.start_offset)
        assert settled.is_moved == (self.real.start_offset > before)
        self.check()

    def move_log_start(self, log_start: int) -> None:
        self.log_start = log_start
        self.in_log -= {offset for offset in self.in_log if offset < log_start}
        for offset, at in self.offsets.items():
            if self.start <= offset < log_start and at.state == AVAILABLE and offset in self.known_before:
                self.offsets[offset] = replace(at, state=ARCHIVED, lock=-1, is_lock_over=False)
        self.real.move_log_start(log_start)
        self.check()

    # Rules

    def real_offsets(self) -> dict[int, Offset]:
        """Return the real one's offsets."""
        return {
            offset: Offset(run.state, run.count, run.member_id, run.lock_until_ms, run.is_lock_over, run.write)
            for batch in self.real.window.batches
            for run in batch.runs
            for offset in range(run.first, run.last + 1)
        }

    def _check_write(self, write: StateWrite | None, expected: dict[int, tuple[int, int]]) -> None:
        batches = write.batches if write is not None else []
        assert write is None or write.start_offset >= self.written_start, "the start offset falls in the log"
        written = {offset: (state, count) for first, last, state, count in batches for offset in range(first, last + 1)}
        for offset, (_, count) in written.items():
            assert count >= self.persisted.get(offset, 0), "a persisted delivery count fell"
            self.persisted[offset] = count
        assert len(written) == sum(last - first + 1 for first, last, _, _ in batches), "written twice"
        # Offsets below the start offset are locked with their record batch, and nobody was given them.
        hidden = {offset for offset in written if offset < self.start and offset not in expected}
        assert all(written[offset][0] == ARCHIVED for offset in hidden)
        assert {offset: each for offset, each in written.items() if offset not in hidden} == expected

    def check(self) -> None:
        """Compare everything, and judge how far the start offset moved."""
        real, start = self.real_offsets(), self.real.start_offset
        assert start >= self.start, "the start offset fell"
        self.check_passed(start)
        self.start = start
        for offset, at in real.items():
            if offset >= start and at != (ours := self.offsets.get(offset, Offset(AVAILABLE, 0))):
                raise AssertionError(f"offset {offset}: {at}, not {ours}")
        for offset, at in self.offsets.items():
            assert offset < start or offset in real or at.is_done(), f"{offset} was forgotten"
        window = self.real.window
        assert window.firsts == [batch.first for batch in window.batches]
        ends = [end for batch in window.batches for end in (batch.first, batch.last)]
        assert ends == sorted(ends), "batches overlap"
        for batch in window.batches:
            runs = [end for run in batch.runs for end in (run.first, run.last + 1)]
            assert runs[0] == batch.first
            assert runs[-1] == batch.last + 1
            assert runs[1:-1:2] == runs[2::2], "runs have a hole"
            assert batch.is_split or len(batch.runs) == 1
        complete = sum(at.state in TERMINAL for offset, at in real.items() if offset >= start)
        assert self.real.delivery_complete_count == complete, "the count of what is done with is wrong"
        self._check_next_fetch_offset(real)
        self.known_before = set(real)

    def check_passed(self, start: int) -> None:
        """Check that nothing from the start offset up to another one is still of interest."""
        for offset in range(self.start, start):
            at = self.offsets.get(offset)
            is_absent = at is None and offset not in self.in_log
            assert is_absent or offset < self.log_start or (at is not None and at.is_done()), f"{offset} was skipped"

    def _check_next_fetch_offset(self, real: dict[int, Offset]) -> None:
        offset = self.real.next_fetch_offset()
        assert offset >= self.start, "fetched below the start offset"
        available = min((at for at in real if at >= self.start and is_free(real[at])), default=None)
        if available is None:
            gap_start = self.real.window.gap_start()
            assert offset > self.real.end_offset - 1 or gap_start >= 0
        else:
            assert offset <= available, "what is available is not fetched"
        assert offset == available or offset not in real, "nothing is available where it is fetched"


def is_free(at: Offset) -> bool:
    return at.state == AVAILABLE and at.write is None


def runs_of(offsets: Iterable[int]) -> list[tuple[int, int]]:
    """Return ascending offsets as ranges."""
    ranges: list[tuple[int, int]] = []
    for offset in sorted(offsets):
        if ranges and ranges[-1][1] + 1 == offset:
            ranges[-1] = ranges[-1][0], offset
        else:
            ranges.append((offset, offset))
    return ranges
