"""Random lives of a share partition over a log that grows, loses its beginning and is compacted.

A life ends well: all writes succeed, all locks end, and one member accepts all that it is given, until nothing is left. Then no record
may be left out.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from holdfast.delivery.group_config import GroupConfig
from holdfast.delivery.share_partition.record_batches import find_aborted
from holdfast.delivery.share_partition.values import ACQUIRED, AcquireMode, OffsetRange, StateWrite
from holdfast.records.share.batches import StateBatch
from tests.pure.delivery.share_partition.naive import Watched, runs_of
from tests.pure.delivery.share_partition.world import Head

MEMBERS = ("m1", "m2", "m3")
#: Answers of the coordinator: success half of the time.
CODES = (0, 0, 0, 0, 15, 7, -1)
#: Rounds in which all that is left must be settled.
ROUNDS_MAX = 400


class Life:
    """One life, all of whose choices come from a generator of random numbers."""

    def __init__(self, random: Random) -> None:
        self.random = random
        config = GroupConfig(
            record_lock_duration_ms=random.choice((100, 1_000)),
            delivery_count_limit=random.choice((2, 3, 5, 6)),
            partition_max_record_locks=random.choice((3, 20, 2_000)),
            renew_acknowledge_enable=random.random() < 0.8,
        )
        self.is_committed = random.random() < 0.3
        self.log: list[Head] = []
        self.log_end = random.randrange(5)
        self.log_start = self.log_end
        self.aborted: set[int] = set()
        start_offset, batches = self.log_end, []
        if random.random() < 0.5:
            offset = start_offset
            for _ in range(random.randrange(1, 5)):
                first = offset + random.choice((0, 0, 2, 5))
                last = first + random.randrange(6)
                batches.append(StateBatch(first, last, random.choice((0, 0, 2, 4)), random.randrange(1, 4)))
                offset = last + 1
            while self.log_end < offset:
                self.grow()
        self.partition = Watched(config, start_offset, batches)
        self.partition.log_start = self.log_start
        for head in self.log:
            self.put(head)
        self.partition.check()
        self.writes: list[StateWrite] = []

        self.events = (
            *(self.grow, self.fetch, self.fetch, self.fetch),
            *(self.acknowledge, self.acknowledge, self.acknowledge, self.answer, self.answer),
            *(self.wait, self.release, self.cut_log, self.compact, self.change_config),
        )

    def live(self, events: int) -> None:
        for _ in range(events):
            event = self.random.choice(self.events)
            event()
        self.end_well()

    def change_config(self) -> None:
        if self.random.random() < 0.2:
            config = replace(
                self.partition.config,
                delivery_count_limit=self.random.choice((2, 3, 5)),
                record_lock_duration_ms=self.random.choice((100, 1_000)),
                partition_max_record_locks=self.random.choice((3, 20, 2_000)),
            )
            self.partition.config = self.partition.real.config = config

    # The log

    def grow(self) -> None:
        first = self.log_end + (3 if self.random.random() < 0.1 else 0)
        last = first + self.random.choice((0, 1, 4, 9))
        kind = self.random.random()
        head = Head(first, last)
        if self.is_committed and kind < 0.4:
            producer_id = self.random.choice((1, 2))
            head = Head(first, last, producer_id, is_transactional=True)
            if kind < 0.2:
                self.aborted.add(first)
        self.log.append(head)
        self.log_end = last + 1
        if hasattr(self, "partition"):
            self.put(head)

    def put(self, head: Head) -> None:
        if head.base_offset not in self.aborted:
            self.partition.in_log |= set(range(head.base_offset, head.last_offset + 1))

    def cut_log(self) -> None:
        if self.random.random() < 0.7 or not self.log:
            return
        self.log_start = self.random.randrange(self.log_start, self.log_end + 1)
        self.log = [head for head in self.log if head.last_offset >= self.log_start]
        if self.partition.real.next_fetch_offset() < self.log_start:
            self.partition.move_log_start(self.log_start)
        else:
            self.partition.in_log -= set(range(self.log_start))

    def compact(self) -> None:
        if len(self.log) < 2:
            return
        head = self.log.pop(self.random.randrange(len(self.log) - 1))
        self.partition.in_log -= set(range(head.base_offset, head.last_offset + 1))

    def brought(self, offset: int) -> list[Head]:
        """Return what a fetch brings."""
        heads = [head for head in self.log if head.last_offset >= offset]
        return heads[: self.random.choice((1, 2, 5, 50))]

    # The partition

    def fetch(self, member: str | None = None, wanted: int | None = None) -> int:
        real = self.partition.real
        offset = real.next_fetch_offset()
        can_acquire = real.can_acquire()
        self.partition.check()
        if not can_acquire:
            return 0
        if offset < self.log_start:
            self.partition.move_log_start(self.log_start)
            return 0
        heads = self.brought(offset)
        if not heads:
            return 0
        aborted = self.find_aborted(heads)
        acquired = self.partition.acquire(
            member or self.random.choice(MEMBERS),
            self.random.choice((AcquireMode.BATCH_OPTIMIZED, AcquireMode.RECORD_LIMIT)),
            self.random.choice((1, 5, 500)),
            wanted or self.random.choice((1, 3, 10, 500)),
            offset,
            heads,
            aborted,
        )
        return acquired.offset_count

    def find_aborted(self, heads: list[Head]) -> list[OffsetRange]:
        """Return what is aborted, each batch as a transaction that a marker at its end ends."""
        marked: list[Head] = []
        for head in heads:
            marked.append(head)
            if head.base_offset in self.aborted:
                marker = head.last_offset
                marked.append(
                    Head(marker, marker, head.producer_id, is_transactional=True, is_control=True, is_abort=True)
                )
        transactions = [(head.producer_id, head.base_offset) for head in heads if head.base_offset in self.aborted]
        return find_aborted(marked, transactions, lambda head: head.is_abort)

    def acknowledge(self) -> None:
        member = self.random.choice(MEMBERS)
        held = [offset for offset, at in self.partition.offsets.items() if at.state == ACQUIRED and at.member == member]
        ranges = runs_of(held)
        batches = []
        for first, last in self.random.sample(ranges, min(len(ranges), self.random.randrange(1, 4))):
            if self.random.random() < 0.4:
                first, last = sorted((self.random.randint(first, last), self.random.randint(first, last)))
            batches.append((first, last, self.types(last - first + 1)))
        if not batches or self.random.random() < 0.1:
            first = self.random.randrange(self.log_end + 3)
            last = first + self.random.randrange(6)
            batches.append((first, last, self.types(last - first + 1)))
        batches.sort()
        answer = self.partition.acknowledge(member, batches)
        if isinstance(answer, StateWrite):
            self.later(answer)

    def types(self, length: int) -> list[int]:
        choices = (1, 1, 1, 2, 2, 3, 0, 4)
        if self.random.random() < 0.6:
            return [self.random.choice(choices)]
        return [self.random.choice(choices) for _ in range(length)]

    def later(self, write: StateWrite | None) -> None:
        if write is not None:
            if self.random.random() < 0.5:
                self.partition.write_done(write, self.random.choice(CODES))
            else:
                self.writes.append(write)

    def answer(self) -> None:
        if self.writes:
            write = self.writes.pop(self.random.randrange(len(self.writes)))
            self.partition.write_done(write, self.random.choice(CODES))

    def wait(self) -> None:
        self.later(self.partition.tick(self.partition.now + self.random.choice((1, 60, 700))))

    def release(self) -> None:
        if self.random.random() < 0.4:
            is_gone = self.random.random() < 0.5
            self.later(self.partition.release(self.random.choice(MEMBERS), is_gone=is_gone))

    # The end

    def end_well(self) -> None:
        for write in self.writes:
            self.partition.write_done(write, 0)
        self.end_locks()
        real = self.partition.real
        for _ in range(ROUNDS_MAX):
            if real.next_fetch_offset() >= self.log_end:
                break
            self.fetch("last", 500)
            held = [
                offset for offset, at in self.partition.offsets.items() if at.state == ACQUIRED and at.member == "last"
            ]
            for first, last in runs_of(held):
                answer = self.partition.acknowledge("last", [(first, last, [1])])
                if isinstance(answer, StateWrite):
                    self.partition.write_done(answer, 0)
            self.end_locks()
        else:
            raise AssertionError("a dead end: it does not come to the end of the log")
        if (settled := real.settle()) is not None:
            self.partition.write_done(settled, 0)
        assert real.settle() is None, "the newest write does not tell all"
        left = [
            offset
            for offset in self.partition.in_log
            if offset >= self.partition.start
            and (offset not in self.partition.offsets or not self.partition.offsets[offset].is_done())
        ]
        assert not left, f"left out: {left}"

    def end_locks(self) -> None:
        write = self.partition.tick(self.partition.now + 10_000)
        if write is not None:
            self.partition.write_done(write, 0)
