"""Fold a log partition, batch of records by batch, into entries and manifests of the snapshot topic.

The fold of the records [s, O] depends on these records alone, however they were cut into batches. It carries a `Mark`, and per
share partition what `Held` says, in a store that the caller keeps: both together are the state of a job between two batches.

It is as lazy as a load: what a later snapshot or tombstone of the same batch replaces is dropped unread. State is that of
`records.replay`; who counts says `records.fencing`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol

from holdfast.records.checkpoint import CHECKPOINT_KEY, decode_checkpoint
from holdfast.records.codecs import avro
from holdfast.records.codecs.codec import Kind, decode_key, decode_value, peek_kind
from holdfast.records.errors import RecordError
from holdfast.records.fencing import START, Position
from holdfast.records.header import decode_header
from holdfast.records.log_start import Beginning
from holdfast.records.replay import ShareState, replay
from holdfast.records.snapshot_store.entries import (
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
from holdfast.records.values import Snapshot, Update

#: Never reached: a fold counts updates since the newest snapshot in the log, as a load does.
_UPDATES_MAX: Final = 1 << 31


class RawRecord(NamedTuple):
    """Hold one record of the log as it lies there."""

    offset: int
    key: bytes | None
    value: bytes | None
    #: Value of the `hf` header, None without one.
    header: bytes | None


class Mark(NamedTuple):
    """Say how far a log partition is folded, and what its live share partitions add up to."""

    #: Offset of the record to be folded next; None before the first.
    next_offset: int | None
    #: After the records folded.
    position: Position
    #: Value of the newest checkpoint of that epoch; empty before the first.
    checkpoint: bytes
    #: Of the last counting record folded; -1 before the first.
    covered_offset: int
    #: Of the last checkpoint by which an admin accepted the log as it was; -1: none.
    accepted_offset: int
    live_count: int
    #: Of the entries of all live share partitions, modulo `DIGEST_MODULUS`.
    digest_sum: int
    #: Share partitions whose updates were met without their base, which was cut off.
    waiting_count: int
    #: Of the newest checkpoint; -1 before the first.
    checkpoint_offset: int = -1
    #: Where the fold began, while it is not found yet from where on the log is whole; 0: it is, or the log starts there.
    unproven_start: int = 0


#: Before the first record of a log that is complete from its start on.
NEW: Final = Mark(None, START, b"", -1, -1, 0, 0, 0)


class Held(NamedTuple):
    """Hold what is kept of one share partition between two batches."""

    #: Of the last record about it.
    covered_offset: int
    #: Value of its entry as it is written; None: it waits for its base.
    entry: bytes | None


class Store(Protocol):
    """Keep `Held` by the bytes of `avro.encode_key`, for one log partition."""

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
    """Hold what one batch of records came to."""

    mark: Mark
    #: (key, value) of the entries of all share partitions that changed.
    entries: list[tuple[bytes, bytes]]
    #: (key, value), to be written when the entries are; None: nothing counted, a share partition waits for its base, or it is
    #: not found yet from where on the log is whole.
    manifest: tuple[bytes, bytes] | None
    #: Indexes, among the records given, of those that count and are about a share partition.
    changes: list[int]
    #: Records that do not count.
    void_records: int
    #: Records of a type this version does not know, and null updates.
    skipped_records: int
    #: Offset from which the fold began afresh, because the log was cut behind its mark; None: it went on.
    cut_at: int | None


class FoldStopped(Exception):
    """Say that a record stops the fold of its log partition; nothing of the batch was stored."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(f"Offset {offset} cannot be folded: {reason}")
        self.offset = offset


class _Run:
    """The records of one share partition in a batch that still matter."""

    __slots__ = ("base_offset", "covered_offset", "goes_on", "records", "share_key", "snapshot_offset")

    def __init__(self, share_key: bytes) -> None:
        self.share_key = share_key
        #: Whether what was held before this batch still matters.
        self.goes_on = True
        #: (raw key, raw value, offset), offsets ascending.
        self.records: list[tuple[bytes, bytes, int]] = []
        self.snapshot_offset = -1
        self.covered_offset = -1
        #: Of the newest snapshot or tombstone; -1: there is none in this batch.
        self.base_offset = -1


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
    was cut off: all that was held is forgotten, and the fold begins there. Where the log is whole from says `records.log_start`;
    what is held from below is forgotten once that is found.

    Raises:
        FoldStopped: a record that counts cannot be decoded; the store is as before.
    """
    batch = _Batch(mark)
    batch.take(records)
    return batch.settle(state_topic_id, log_partition, partition_count, store)


class _Batch:
    """One call of `fold`: `take` reads the records, `settle` turns what still matters of them into entries."""

    def __init__(self, mark: Mark) -> None:
        self._mark = mark
        self._covered_before = mark.covered_offset
        self._accepted_before = mark.accepted_offset
        self._cut_at: int | None = None
        #: What is held from below is forgotten; 0: nothing is.
        self._begins_at = 0
        #: The first record after the newest accepted checkpoint that cannot be read.
        self._finding: FoldStopped | None = None
        self._runs: dict[bytes, _Run] = {}
        self._runs_by_raw_key: dict[bytes, _Run] = {}
        self._changes: list[tuple[int, int]] = []  #: (offset, index among the records)
        self._void_records = 0
        self._skipped_records = 0

    # ---- reading ---------------------------------------------------------------------------------------------------

    def take(self, records: Iterable[RawRecord]) -> None:
        next_offset, (owner_epoch, attempt_id, next_sequence), newest_checkpoint, covered_offset = self._mark[:4]
        beginning = Beginning(self._mark.unproven_start, self._mark.checkpoint_offset)
        for index, (offset, key, value, header) in enumerate(records):
            if offset != next_offset and next_offset is not None:
                if offset < next_offset:
                    continue
                self._begin_afresh(offset)
                (owner_epoch, attempt_id, next_sequence), newest_checkpoint, covered_offset = START, b"", -1
                next_offset = None
            if next_offset is None:
                beginning = Beginning(offset)
                self._mark = self._mark._replace(unproven_start=offset)
            next_offset = offset + 1
            if header is None or key is None:
                self._void_records += 1
                continue
            try:
                record_epoch, sequence = decode_header(header)
                if key == CHECKPOINT_KEY:
                    checkpoint = decode_checkpoint(value or b"")
                    (owner_epoch, attempt_id, next_sequence), counts = beginning.step(
                        Position(owner_epoch, attempt_id, next_sequence), offset, record_epoch, sequence, checkpoint
                    )
                    if counts:
                        newest_checkpoint = value or b""
                        covered_offset = beginning.checkpoint_offset = offset
                        if beginning.is_found and self._mark.unproven_start:
                            self._begin_at(beginning.offset)
                        if checkpoint.reason is not None:
                            self._accept(offset)
                    else:
                        self._void_records += 1
                elif record_epoch == owner_epoch and sequence == next_sequence and sequence >= 0:
                    next_sequence += 1
                    covered_offset = offset
                    self._file(index, key, value, offset)
                else:
                    self._void_records += 1
            except RecordError as error:
                self._find(offset, error)
        self._mark = self._mark._replace(
            next_offset=next_offset,
            position=Position(owner_epoch, attempt_id, next_sequence),
            checkpoint=newest_checkpoint,
            covered_offset=covered_offset,
            checkpoint_offset=beginning.checkpoint_offset,
        )

    def _begin_at(self, offset: int) -> None:
        """Forget what this batch brought from below the offset from which the log is whole."""
        if offset > self._mark.unproven_start:
            self._begins_at = offset
            self._runs = {key: run for key, run in self._runs.items() if run.base_offset >= offset or run.goes_on}
            self._runs_by_raw_key.clear()
            self._changes = [(at, index) for at, index in self._changes if at >= offset]
            if self._finding is not None and self._finding.offset < offset:
                self._finding = None
        self._mark = self._mark._replace(unproven_start=0)

    def _begin_afresh(self, offset: int) -> None:
        self._mark = NEW
        self._covered_before = self._accepted_before = -1
        self._cut_at = offset
        self._finding = None
        self._runs.clear()
        self._runs_by_raw_key.clear()
        self._begins_at = 0

    def _accept(self, offset: int) -> None:
        self._mark = self._mark._replace(accepted_offset=offset)
        self._finding = None

    def _find(self, offset: int, error: RecordError) -> None:
        if self._finding is None:
            self._finding = FoldStopped(offset, str(error))
            self._finding.__cause__ = error

    def _file(self, index: int, key: bytes, value: bytes | None, offset: int) -> None:
        kind = peek_kind(key, value)
        if kind in (Kind.NOOP, Kind.UNKNOWN):
            self._skipped_records += 1
            return
        run = self._runs_by_raw_key.get(key) or self._find_run(key)
        self._changes.append((offset, index))
        if kind is not Kind.UPDATE:
            run.goes_on = False
            run.records.clear()
            run.snapshot_offset = offset if kind is Kind.SNAPSHOT else -1
            run.base_offset = offset
        if value is not None:
            run.records.append((key, value, offset))
        run.covered_offset = offset

    def _find_run(self, raw_key: bytes) -> _Run:
        share_key = avro.encode_key(decode_key(raw_key))
        run = self._runs.get(share_key)
        if run is None:
            run = self._runs[share_key] = _Run(share_key)
        self._runs_by_raw_key[raw_key] = run
        return run

    # ---- settling --------------------------------------------------------------------------------------------------

    def settle(self, state_topic_id: bytes, log_partition: int, partition_count: int, store: Store) -> Folded:
        mark = self._mark
        is_accepted_anew = mark.accepted_offset > self._accepted_before
        live_count, digest_sum = mark.live_count, mark.digest_sum
        waiting_count = 0 if is_accepted_anew else mark.waiting_count
        entries: list[tuple[bytes, bytes]] = []
        after: list[tuple[bytes, Held | None]] = []
        for share_key, below in self._outdated(store):
            after.append((share_key, None))
            if below.entry is None:
                waiting_count -= not is_accepted_anew or below.covered_offset > mark.accepted_offset
            else:
                live_count -= 1
                entry_key = encode_entry_key(state_topic_id, share_key, below.covered_offset)
                digest_sum -= digest(entry_key, below.entry)
                entries.append((entry_key, encode_entry(DELETED)))
        for run in self._runs.values():
            held = store.get(run.share_key) if self._cut_at is None else None
            base = DELETED
            if held is not None:
                if held.entry is None:
                    waiting_count -= held.covered_offset > mark.accepted_offset
                else:
                    live_count -= 1
                    held_key = encode_entry_key(state_topic_id, run.share_key, held.covered_offset)
                    digest_sum -= digest(held_key, held.entry)
                    base = decode_entry(held.entry)
            entry = self._fold_run(run, base)
            if entry is None:
                waiting_count += 1
                after.append((run.share_key, Held(run.covered_offset, None)))
                continue
            entry_key = encode_entry_key(state_topic_id, run.share_key, run.covered_offset)
            value = encode_entry(entry)
            entries.append((entry_key, value))
            if entry.snapshot is not None:
                live_count += 1
                digest_sum += digest(entry_key, value)
                after.append((run.share_key, Held(run.covered_offset, value)))
            elif held is not None:
                after.append((run.share_key, None))
        if self._finding is not None:
            raise self._finding
        self._change(store, after)
        digest_sum %= DIGEST_MODULUS
        mark = mark._replace(live_count=live_count, digest_sum=digest_sum, waiting_count=waiting_count)
        manifest = None
        is_whole = not mark.unproven_start or mark.accepted_offset >= 0
        if is_whole and waiting_count == 0 and mark.covered_offset > self._covered_before:
            manifest = encode_manifest(
                ManifestKey(state_topic_id, log_partition, mark.covered_offset),
                Manifest(
                    partition_count, mark.position, mark.checkpoint, live_count, digest_sum, mark.checkpoint_offset
                ),
            )
        return Folded(
            mark,
            entries,
            manifest,
            [index for _, index in self._changes],
            self._void_records,
            self._skipped_records,
            self._cut_at,
        )

    def _outdated(self, store: Store) -> list[tuple[bytes, Held]]:
        """Return what is held from below the offset from which the log is whole, and drop the runs that go on from it."""
        if not self._begins_at:
            return []
        outdated = []
        kept = {share_key for share_key, run in self._runs.items() if not run.goes_on}
        for share_key, held in store.items() if self._cut_at is None else ():
            if held.entry is not None and decode_entry(held.entry).snapshot_offset >= self._begins_at:
                kept.add(share_key)
            elif share_key not in kept:
                outdated.append((share_key, held))
        self._runs = {share_key: run for share_key, run in self._runs.items() if share_key in kept}
        return outdated

    def _fold_run(self, run: _Run, held: Entry) -> Entry | None:
        """Return what the share partition's entry is after the run, or None when it waits for its base."""
        state: ShareState | None = None
        snapshot_offset = run.snapshot_offset
        if run.goes_on and held.snapshot is not None:
            state = ShareState(*held.snapshot, held.update_count)
            snapshot_offset = held.snapshot_offset
        for raw_key, raw_value, offset in run.records:
            try:
                value, _ = decode_value(raw_key, raw_value)
            except RecordError as error:
                if offset > self._mark.accepted_offset:
                    self._find(offset, error)
                continue
            if state is None and type(value) is Update:
                if offset > self._mark.accepted_offset:
                    return None
                continue
            state = replay(state, value, _UPDATES_MAX)
        if state is None:
            return DELETED
        return Entry(Snapshot(*state[:-1]), state.update_count, snapshot_offset)

    def _change(self, store: Store, after: list[tuple[bytes, Held | None]]) -> None:
        if self._cut_at is not None:
            store.clear()
        for share_key, held in after:
            if held is None:
                store.remove(share_key)
            else:
                store.put(share_key, held)
