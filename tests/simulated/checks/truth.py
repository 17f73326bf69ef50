"""The truth: the whole log, never pruned, folded by straightforward code that shares nothing with the runtime."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from holdfast.records.log.checkpoint import CHECKPOINT_KEY, decode_checkpoint
from holdfast.records.share.codecs.codec import decode_record
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.replay import ShareState, replay
from holdfast.records.share.values import NOOP
from holdfast.runtime.log_protocol import LogRecord
from tests.simulated.checks.invariants import Invariant, violate
from tests.simulated.memory_log import Append, MemoryPartition

Content = tuple[object, ...]

_HEADER = Struct(">xiq")


def content(state: ShareState | None) -> Content | None:
    """Return what two replays must agree on: Kafka's fields and both fences, without timestamps and update count."""
    return None if state is None else state[:5] + state[7:10]


class Truth:
    """One log partition as every reader must see it, up to the high watermark."""

    def __init__(self, log: MemoryPartition, updates_per_snapshot: int, start_offset: int = 0) -> None:
        self.log = log
        self.updates_per_snapshot = updates_per_snapshot
        self.is_judged = True  #: False once the topic was recreated, or holds what was meant for its earlier namesake
        self.awaits_load = False  #: it is judged again when somebody loads
        self.start_offset = start_offset
        self.next_offset = start_offset
        self.counts: list[bool] = []  #: by offset, from the start offset on
        self.owners: list[bytes | None] = []  #: by offset: the attempt that owns the log after that record
        self.counted: dict[Append, int] = {}
        self.void: dict[Append, int] = {}  #: offset of its last void copy
        #: by key: (offset behind the record, state after it), ascending
        self.versions: dict[SharePartitionKey, list[tuple[int, ShareState | None]]] = {}
        self.floor = 0  #: an answer given now must reflect the log up to here
        self.answered: dict[SharePartitionKey, list[int]] = {}  #: offsets of answered writes
        self.epoch = 0
        self._attempt: bytes | None = None
        self._next_sequence = -1
        self._opened = 0  #: how many checkpoints opened an epoch

    def fold(self) -> Iterator[tuple[int, Append, SharePartitionKey | None]]:
        """Go on to the high watermark; yields offset, append and key (None: a checkpoint) of each record that counts."""
        log = self.log
        while self.next_offset < log.high_watermark:
            offset = self.next_offset
            record, append = log.records[offset], log.origins[offset]
            is_counted = self._judge(record)
            self.next_offset += 1
            self.counts.append(is_counted)
            self.owners.append(self._attempt)
            if not is_counted:
                self.void[append] = offset
                continue
            self.counted[append] = offset
            if record.key == CHECKPOINT_KEY:
                yield offset, append, None
                continue
            key, value, _ = decode_record(record.key, record.value)
            assert value is not NOOP
            versions = self.versions.setdefault(key, [])
            before = versions[-1][1] if versions else None
            versions.append((offset + 1, replay(before, value, self.updates_per_snapshot)))
            yield offset, append, key

    def _judge(self, record: LogRecord) -> bool:
        if record.header is None:
            return False
        if len(record.header) != _HEADER.size or record.header[0] != 1:
            return False  # nobody can read it
        epoch, sequence = _HEADER.unpack(record.header)
        attempt = self._attempt
        if record.key == CHECKPOINT_KEY:
            attempt = decode_checkpoint(record.value or b"").attempt_id
            if epoch > self.epoch:
                self._opened += 1
                self.epoch, self._attempt, self._next_sequence = epoch, attempt, sequence + 1
                return True
            # Only who won an epoch refreshes in it: a start that fell back onto a claim that had lost looks like its owner's.
            is_of_winner = self.start_offset > 0 and self._opened == 1 and epoch == self.epoch and sequence > 0
            if is_of_winner and attempt != self._attempt:
                self._attempt, self._next_sequence = attempt, sequence + 1
                return True
        if epoch == self.epoch and sequence == self._next_sequence and attempt == self._attempt:
            self._next_sequence += 1
            return True
        return False

    def counts_at(self, offset: int) -> bool:
        """Tell whether the record at an offset counts."""
        return self.counts[offset - self.start_offset]

    def owner_at(self, offset: int) -> bytes | None:
        """Return the attempt that owns the log after the record at an offset."""
        return self.owners[offset - self.start_offset] if offset >= self.start_offset else None

    def state(self, key: SharePartitionKey, end: int) -> ShareState | None:
        """Return the state of a key after all records below the offset `end`."""
        for at, state in reversed(self.versions.get(key, ())):
            if at <= end:
                return state
        return None

    def contents(self, end: int) -> dict[SharePartitionKey, Content]:
        """Return the content of every key that lives after all records below `end`."""
        states = {key: self.state(key, end) for key in self.versions}
        return {key: state[:5] + state[7:10] for key, state in states.items() if state is not None}

    def ends_with(self, key: SharePartitionKey, first: int) -> Iterator[tuple[int, ShareState | None]]:
        """Yield (end, state) of a key for each end from `first` on where the state is another than before."""
        yield first, self.state(key, first)
        for at, state in self.versions.get(key, ()):
            if at > first:
                yield at, state

    def check_fresh_reader(self) -> None:
        """Compare with a reader that begins at the log start of now."""
        start = self.log.log_start_offset
        reader = Truth(self.log, self.updates_per_snapshot, start)
        for _ in reader.fold():
            pass
        mine = self.counts[start - self.start_offset : self.log.high_watermark - self.start_offset]
        if reader.counts != mine:
            differs = next(i for i, (a, b) in enumerate(zip(reader.counts, mine, strict=True)) if a != b)
            violate(Invariant.PRUNED_IS_JUDGED_ALIKE, f"offset {start + differs} after a cut at {start}")
        found, wanted = reader.contents(self.log.high_watermark), self.contents(self.log.high_watermark)
        if found != wanted:
            violate(Invariant.PRUNED_IS_REPLACED, f"after a cut at {start}: {found} in place of {wanted}")
