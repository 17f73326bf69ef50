"""Fold a log partition, batch of records by batch, into entries and manifests of the snapshot topic.

The fold of the records [s, O] depends on these records alone, however they were cut into batches. It carries a `Mark`, and per
share partition what `Held` says, in a store that the caller keeps: both together are the state of a job between two batches.

It is as lazy as a load, and by the same runs (`records.share.pending_runs`): what a later snapshot or tombstone of the same batch replaces
is dropped unread. The rule which records count is `records.log.fencing`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol

from holdfast.records.errors import ForeignHeader, RecordError
from holdfast.records.log.checkpoint import CHECKPOINT_KEY, decode_checkpoint
from holdfast.records.log.fencing import START, Position, is_next
from holdfast.records.log.header import decode_header
from holdfast.records.log.log_start import Beginning
from holdfast.records.share.codecs import avro
from holdfast.records.share.codecs.codec import Kind, peek_kind
from holdfast.records.share.pending_runs import PendingRuns, Run, Unusable
from holdfast.records.share.replay import ShareState
from holdfast.records.share.snapshot_store.entries import (
    DELETED,
    DIGEST_MODULUS,
    Entry,
    Manifest,
    ManifestKey,
    decode_entry,
    digest,
    encode_entry,
    encode_entry_key,
    encode_manifest,
)
from holdfast.records.share.snapshot_store.last_read import LastRead, digest_record
from holdfast.records.share.values import Snapshot

#: Never reached: a fold counts updates since the newest snapshot in the log, as a load does.
_UPDATES_MAX: Final = 1 << 31


class RawRecord(NamedTuple):
    """One record of the log as it lies there."""

    offset: int
    key: bytes | None
    value: bytes | None
    #: Value of the `hf` header, None without one.
    header: bytes | None


class Mark(NamedTuple):
    """How far a log partition is folded, and what its live share partitions add up to."""

    #: Offset of the record to be folded next; None before the first.
    next_offset: int | None
    #: After the records folded.
    position: Position
    #: Value of the newest checkpoint of that epoch; empty before the first.
    checkpoint: bytes
    #: Offset of the last counting record folded; -1 before the first.
    covered_offset: int
    #: Offset of the last checkpoint by which an admin accepted the log as it was; -1: none.
    accepted_offset: int
    live_count: int
    #: Sum of the digests of the entries of all live share partitions, modulo `DIGEST_MODULUS`.
    digest_sum: int
    #: Share partitions of which updates were read and no snapshot, which was cut off.
    waiting_count: int
    #: Offset of the newest checkpoint; -1 before the first.
    checkpoint_offset: int = -1
    #: Offset at which the fold began, until the log is proven whole; 0: it is, or the log starts there.
    unproven_start: int = 0
    #: Digest of the record before `next_offset`, by `last_read.digest_record`; empty: not known.
    last_digest: bytes = b""

    def last_read(self) -> LastRead | None:
        """Return what the log must still hold for the fold to go on, None where nothing is known of it."""
        if self.next_offset is None or not self.last_digest:
            return None
        return LastRead(self.next_offset - 1, self.last_digest, self.checkpoint_offset, self.checkpoint)


#: Before the first record of a log that is complete from its start on.
NEW: Final = Mark(None, START, b"", -1, -1, 0, 0, 0)


class Held(NamedTuple):
    """The values that are kept of one share partition between two batches."""

    #: Offset of the last record about it.
    covered_offset: int
    #: Value of its entry as it is written; None: it waits for a snapshot.
    entry: bytes | None


class Store(Protocol):
    """A store of `Held` by the bytes of `avro.encode_key`, for one log partition."""

    def get(self, key: bytes) -> Held | None:
        """Return what is held of a share partition, or None when it is not live."""

    def put(self, key: bytes, held: Held) -> None:
        """Hold something of a share partition."""

    def remove(self, key: bytes) -> None:
        """Hold nothing of a share partition that was held."""

    def items(self) -> Iterable[tuple[bytes, Held]]:
        """Return all that is held."""

    def clear(self) -> None:
        """Hold nothing at all."""


class Folded(NamedTuple):
    """The result of one batch of records."""

    mark: Mark
    #: (key, value) of the entries of all share partitions that changed.
    entries: list[tuple[bytes, bytes]]
    #: (key, value), to be written when the entries are; None: nothing counted, a share partition waits for a snapshot, or it is
    #: not found yet from where on the log is whole.
    manifest: tuple[bytes, bytes] | None
    #: Indexes, among the records given, of those that count and are about a share partition.
    changes: list[int]
    #: Records that do not count.
    void_records: int
    #: Records of a type this version does not know, and null updates.
    skipped_records: int
    #: Offset from which the fold began again, because the log was cut after its mark; None: it went on.
    cut_at: int | None


class FoldStopped(Exception):
    """A record that stops the fold of its log partition; nothing of the batch was stored."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(f"Offset {offset} cannot be folded: {reason}")
        self.offset = offset


def fold(
    state_topic_id: bytes,
    log_partition: int,
    partition_count: int,
    mark: Mark,
    store: Store,
    records: Iterable[RawRecord],
) -> Folded:
    """Fold `records`, offsets ascending, into what `mark` and `store` hold; the store is changed, nothing else.

    Offsets below the mark were folded before and are passed over. The offsets of a log have no gaps, so one that is missing
    was cut off: all that was held is forgotten, and the fold begins there. The rule from where the log is whole is `records.log.log_start`;
    values from below are forgotten once that is found.

    Raises:
        FoldStopped: a record that counts cannot be decoded; the store is as before.
    """
    reading = _Reading(mark)
    reading.read(records)
    before = mark if reading.cut_at is None else NEW
    settlement = _Settlement(state_topic_id, reading, before, store)
    settlement.remove_outdated()
    for run in reading.pending.take_all():
        settlement.settle(run)
    # The first finding that was read is named; findings of decoded runs come after those.
    if settlement.finding is not None:
        raise FoldStopped(settlement.finding.offset, str(settlement.finding.error)) from settlement.finding.error
    settlement.change_store()
    after = reading.mark(settlement)
    manifest = None
    is_whole = not after.unproven_start or after.accepted_offset >= 0
    if is_whole and after.waiting_count == 0 and after.covered_offset > before.covered_offset:
        manifest = encode_manifest(
            ManifestKey(state_topic_id, log_partition, after.covered_offset),
            Manifest(
                partition_count,
                after.position,
                after.checkpoint,
                after.live_count,
                after.digest_sum,
                after.checkpoint_offset,
            ),
        )
    return Folded(
        after,
        settlement.entries,
        manifest,
        [index for _, index in reading.changes],
        reading.void_records,
        reading.skipped_records,
        reading.cut_at,
    )


class _Finding(NamedTuple):
    """A record that stops the fold, unless a later checkpoint accepts the log."""

    offset: int
    error: RecordError


class _Reading:
    """The records of one batch as they are read: which of them count, and what still matters of them."""

    def __init__(self, mark: Mark) -> None:
        self._next_offset = mark.next_offset
        self._position = mark.position
        self._checkpoint = mark.checkpoint
        self._covered_offset = mark.covered_offset
        self._unproven_start = mark.unproven_start
        self._last_digest = mark.last_digest
        self._beginning = Beginning(mark.unproven_start, mark.checkpoint_offset)
        self.accepted_offset = mark.accepted_offset
        #: Offset from which the fold began again, because the log was cut after the mark; None: it went on.
        self.cut_at: int | None = None
        #: Values that are held from below this offset are forgotten; 0: none are.
        self.begins_at = 0
        #: The first record after the newest accepted checkpoint that cannot be read.
        self.finding: _Finding | None = None
        self.pending = PendingRuns(_UPDATES_MAX)
        #: (offset, index among the records) of those that count and are about a share partition.
        self.changes: list[tuple[int, int]] = []
        self.void_records = 0
        self.skipped_records = 0

    def read(self, records: Iterable[RawRecord]) -> None:
        next_offset, covered_offset = self._next_offset, self._covered_offset
        current_epoch, attempt_id, next_sequence = self._position
        for index, (offset, key, value, header) in enumerate(records):
            if offset != next_offset and next_offset is not None:
                if offset < next_offset:
                    continue
                self._begin_again(offset)
                next_offset, covered_offset = None, -1
                current_epoch, attempt_id, next_sequence = START
            if next_offset is None:
                self._beginning = Beginning(offset)
                self._unproven_start = offset
            next_offset = offset + 1
            if header is None or key is None:
                self.void_records += 1
                continue
            try:
                owner_epoch, sequence = decode_header(header)
                if key == CHECKPOINT_KEY:
                    checkpoint = decode_checkpoint(value or b"")
                    (current_epoch, attempt_id, next_sequence), counts = self._beginning.step(
                        Position(current_epoch, attempt_id, next_sequence), offset, owner_epoch, sequence, checkpoint
                    )
                    if counts:
                        covered_offset = offset
                        self._on_checkpoint(offset, value or b"", is_accepting=checkpoint.reason is not None)
                    else:
                        self.void_records += 1
                elif is_next(current_epoch, next_sequence, owner_epoch, sequence):
                    next_sequence += 1
                    covered_offset = offset
                    self._file(index, key, value, offset)
                else:
                    self.void_records += 1
            except ForeignHeader:
                self.void_records += 1
            except RecordError as error:
                if self.finding is None:
                    self.finding = _Finding(offset, error)
        if next_offset != self._next_offset and next_offset is not None:
            self._last_digest = digest_record(key, value, header)
        self._next_offset, self._covered_offset = next_offset, covered_offset
        self._position = Position(current_epoch, attempt_id, next_sequence)

    def mark(self, settlement: _Settlement) -> Mark:
        """Return how far the log partition is folded once `settlement` is written."""
        return Mark(
            self._next_offset,
            self._position,
            self._checkpoint,
            self._covered_offset,
            self.accepted_offset,
            settlement.live_count,
            settlement.digest_sum % DIGEST_MODULUS,
            settlement.waiting_count,
            self._beginning.checkpoint_offset,
            self._unproven_start,
            self._last_digest,
        )

    def _on_checkpoint(self, offset: int, value: bytes, is_accepting: bool) -> None:
        self._checkpoint = value
        self._beginning.checkpoint_offset = offset
        if self._beginning.is_found and self._unproven_start:
            self._begin_at(self._beginning.offset)
        if is_accepting:
            self.accepted_offset = offset
            self.finding = None

    def _begin_at(self, offset: int) -> None:
        """Forget what this batch brought from below the offset from which the log is whole."""
        if offset > self._unproven_start:
            self.begins_at = offset
            for run in self.pending.runs():
                if 0 <= run.reset_offset < offset:
                    self.pending.drop(run)
            self.changes = [(at, index) for at, index in self.changes if at >= offset]
            if self.finding is not None and self.finding.offset < offset:
                self.finding = None
        self._unproven_start = 0

    def _begin_again(self, offset: int) -> None:
        """Forget everything: the log was cut off between what was folded and this offset."""
        self._checkpoint = b""
        self.accepted_offset = -1
        self.cut_at = offset
        self.begins_at = 0
        self.finding = None
        self.pending = PendingRuns(_UPDATES_MAX)

    def _file(self, index: int, key: bytes, value: bytes | None, offset: int) -> None:
        kind = peek_kind(key, value)
        if kind in (Kind.NOOP, Kind.UNKNOWN):
            self.skipped_records += 1
            return
        self.pending.file(kind, key, value, offset)
        self.changes.append((offset, index))


class _Settlement:
    """The changes of a batch: entries of the snapshot store, values that are held of share partitions, and their sums."""

    def __init__(self, state_topic_id: bytes, reading: _Reading, before: Mark, store: Store) -> None:
        self._state_topic_id = state_topic_id
        self._reading = reading
        self._store = store
        self._accepted_offset = reading.pending.accepted_offset = reading.accepted_offset
        self.live_count = before.live_count
        self.digest_sum = before.digest_sum
        is_accepted_now = reading.accepted_offset > before.accepted_offset
        self.waiting_count = 0 if is_accepted_now else before.waiting_count
        self.finding = reading.finding
        #: (key, value) of entries to be written.
        self.entries: list[tuple[bytes, bytes]] = []
        #: New values to hold of share partitions; None: hold nothing any more.
        self._after: list[tuple[bytes, Held | None]] = []

    def remove_outdated(self) -> None:
        """Remove what is held from below the offset from which the log is whole, and the runs that go on from it."""
        begins_at, pending = self._reading.begins_at, self._reading.pending
        if not begins_at:
            return
        runs = {avro.encode_key(run.key): run for run in pending.runs()}
        kept = {share_key for share_key, run in runs.items() if run.reset_offset >= 0}
        for share_key, held in self._store.items() if self._reading.cut_at is None else ():
            if held.entry is not None and decode_entry(held.entry).snapshot_offset >= begins_at:
                kept.add(share_key)
            elif share_key not in kept:
                self._after.append((share_key, None))
                if held.entry is None:
                    self.waiting_count -= held.covered_offset > self._accepted_offset
                else:
                    entry_key = self._remove(share_key, held.covered_offset, held.entry)
                    self.entries.append((entry_key, encode_entry(DELETED)))
        for share_key, run in runs.items():
            if share_key not in kept:
                pending.drop(run)

    def settle(self, run: Run) -> None:
        """Turn a run into the share partition's entry, or let it wait for a snapshot."""
        share_key = avro.encode_key(run.key)
        held = self._store.get(share_key) if self._reading.cut_at is None else None
        before = DELETED
        if held is not None:
            if held.entry is None:
                self.waiting_count -= held.covered_offset > self._accepted_offset
            else:
                self._remove(share_key, held.covered_offset, held.entry)
                before = decode_entry(held.entry)
        try:
            entry = self._fold(run, before)
        except Unusable as unusable:
            if unusable.error is None:
                self.waiting_count += 1
                self._after.append((share_key, Held(run.covered_offset, None)))
            elif self.finding is None:
                self.finding = _Finding(unusable.offset, unusable.error)
            return
        entry_key = encode_entry_key(self._state_topic_id, share_key, run.covered_offset)
        value = encode_entry(entry)
        self.entries.append((entry_key, value))
        if entry.snapshot is not None:
            self.live_count += 1
            self.digest_sum += digest(entry_key, value)
            self._after.append((share_key, Held(run.covered_offset, value)))
        elif held is not None:
            self._after.append((share_key, None))

    def change_store(self) -> None:
        """Put the new values into the store."""
        if self._reading.cut_at is not None:
            self._store.clear()
        for share_key, held in self._after:
            if held is None:
                self._store.remove(share_key)
            else:
                self._store.put(share_key, held)

    def _fold(self, run: Run, before: Entry) -> Entry:
        state: ShareState | None = None
        snapshot_offset = run.reset_offset
        if run.reset_offset < 0 and before.snapshot is not None:
            state = ShareState(*before.snapshot, before.update_count)
            snapshot_offset = before.snapshot_offset
        state = self._reading.pending.fold(run, state)
        if state is None:
            return DELETED
        return Entry(Snapshot(*state[:-1]), state.update_count, snapshot_offset)

    def _remove(self, share_key: bytes, covered_offset: int, entry: bytes) -> bytes:
        """Count an entry no longer, and return its key."""
        entry_key = encode_entry_key(self._state_topic_id, share_key, covered_offset)
        self.live_count -= 1
        self.digest_sum -= digest(entry_key, entry)
        return entry_key
