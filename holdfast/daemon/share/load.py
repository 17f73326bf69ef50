"""Loading a share shard lazily: keep the raw bytes that still matter, decode and fold them at the end.

Most of a log is dead: what a later snapshot or tombstone of the same key replaces is dropped unread, so a record costs about a microsecond
while the log streams in, and only what is left is decoded. The fold goes in slices, so other shards get their turn.

A load may begin with the entries of a snapshot topic: each of them stands for the records of its share partition up to some offset,
and is decoded at the end as they are, if nothing later replaced it.

One share partition may appear under several raw keys (Kafka's codec has one per record type, and a log may hold both codecs);
they share one run, so its records stay in the order of the log.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

import structlog

from holdfast.records.codecs.codec import Kind, decode_key, decode_value, peek_kind
from holdfast.records.errors import RecordError
from holdfast.records.keys import SharePartitionKey, format_key
from holdfast.records.redundant_offsets import RedundantOffsetTracker
from holdfast.records.replay import ShareState, replay
from holdfast.records.snapshot_store.entries import decode_entry
from holdfast.records.values import Update
from holdfast.runtime.errors import LoadFailed

_log = structlog.get_logger(__name__)


class Run:
    """The records of one share partition that still matter: a snapshot or an entry, and the updates after it."""

    __slots__ = ("entry", "key", "raw_keys", "records")

    def __init__(self, key: SharePartitionKey, entry: bytes | None = None) -> None:
        self.key = key
        #: value of the snapshot topic's entry that stands before all records; None: a snapshot does
        self.entry = entry
        #: every raw key under which the share partition was met
        self.raw_keys: list[bytes] = []
        #: (raw key, raw value, offset), offsets ascending
        self.records: list[tuple[bytes, bytes, int]] = []


class ShareBase(NamedTuple):
    """What the entries of a snapshot topic say about a log partition up to an offset."""

    offset: int
    #: live share partitions, each with its entry
    runs: dict[SharePartitionKey, Run]
    #: of their newest snapshots, ascending
    snapshot_offsets: list[tuple[SharePartitionKey, int]]


class ShareLoad:
    """Collect raw records in offset order with `take`, then turn them into states with `fold`.

    Args:
        updates_per_snapshot: as in `records.replay.replay`.
        offsets: is fed with every snapshot and tombstone.
    """

    def __init__(self, updates_per_snapshot: int, offsets: RedundantOffsetTracker) -> None:
        self._updates_per_snapshot = updates_per_snapshot
        self._offsets = offsets
        self._runs: dict[SharePartitionKey, Run] = {}
        #: raw key to the run of its share partition; what lets a record be filed without decoding its key again
        self._runs_by_raw_key: dict[bytes, Run] = {}
        self._waiting: deque[Run] | None = None
        #: records of a type this version does not know, and null updates; skipped
        self.skipped_records = 0
        #: records that could not be used and that an admin accepted to lose
        self.left_out_records = 0
        self._newest_offset = -1
        #: up to here an admin accepted the log as it is
        self._accepted_offset = -1
        #: whether an admin accepted the log as it was
        self.is_accepted = False
        self._skipped_kinds: set[Kind] = set()
        #: values with bytes behind their end, which Kafka ignores and so do we
        self.values_with_trailing_bytes = 0

    def begin_with(self, base: ShareBase) -> None:
        """Begin with a base, which is this load's own from now on."""
        self._newest_offset = base.offset
        self._runs = base.runs
        self._offsets.begin_with(base.snapshot_offsets)

    def take(self, raw_key: bytes, raw_value: bytes | None, offset: int) -> None:
        """File one record.

        Raises:
            RecordError: its first bytes already say that it cannot be decoded.
        """
        self._newest_offset = offset
        kind = peek_kind(raw_key, raw_value)
        if kind is Kind.UPDATE:
            assert raw_value is not None
            run = self._runs_by_raw_key.get(raw_key) or self._find_run(raw_key)
            run.records.append((raw_key, raw_value, offset))
        elif kind is Kind.SNAPSHOT:
            assert raw_value is not None
            run = self._runs_by_raw_key.get(raw_key) or self._find_run(raw_key)
            run.records.clear()
            run.entry = None
            run.records.append((raw_key, raw_value, offset))
            self._offsets.update(run.key, offset, is_tombstone=False)
        elif kind is Kind.TOMBSTONE:
            run = self._runs_by_raw_key.get(raw_key) or self._find_run(raw_key)
            for known in run.raw_keys:
                del self._runs_by_raw_key[known]
            del self._runs[run.key]
            self._offsets.update(run.key, offset, is_tombstone=True)
        else:
            self._skip(kind, raw_key, offset)

    def accept(self) -> None:
        """Take note that an admin accepted the log up to here: what cannot be used of it is left out, not an error."""
        self._accepted_offset = self._newest_offset
        self.is_accepted = True

    def fold(self, is_time_up: Callable[[], bool]) -> Iterator[tuple[SharePartitionKey, ShareState]]:
        """Yield key and state of live share partitions until the time of this slice is up; at least one, while there are any.

        Raises:
            LoadFailed: a record cannot be decoded, or an update's base is not in the log; names offset and key.
        """
        if self._waiting is None:
            self._waiting = deque(self._runs.values())
            self._runs.clear()
            self._runs_by_raw_key.clear()
        while self._waiting:
            run = self._waiting.popleft()
            state = self._fold_run(run)
            if state is not None:
                yield run.key, state
            else:
                # As if it had been deleted: a share partition without a state must not hold pruning back.
                self._offsets.update(run.key, self._newest_offset, is_tombstone=True)
            if is_time_up():
                return

    @property
    def is_folded(self) -> bool:
        """Tell whether `fold` has yielded everything."""
        return self._waiting is not None and not self._waiting

    def _find_run(self, raw_key: bytes) -> Run:
        key = decode_key(raw_key)
        run = self._runs.get(key)
        if run is None:
            run = self._runs[key] = Run(key)
        run.raw_keys.append(raw_key)
        self._runs_by_raw_key[raw_key] = run
        return run

    def _fold_run(self, run: Run) -> ShareState | None:
        limit = self._updates_per_snapshot
        state: ShareState | None = None
        if run.entry is not None:
            state = self._decode_entry(run.key, run.entry)
        for raw_key, raw_value, offset in run.records:
            try:
                value, trailing_bytes = decode_value(raw_key, raw_value)
            except RecordError as error:
                self._leave_out(run.key, offset, str(error), error)
                continue
            if trailing_bytes:
                self.values_with_trailing_bytes += 1
            if state is not None or type(value) is not Update:
                state = replay(state, value, limit)
            else:
                self._leave_out(
                    run.key, offset, "The update has no snapshot before it; the log was cut between the two."
                )
        return state

    def _decode_entry(self, key: SharePartitionKey, value: bytes) -> ShareState | None:
        try:
            snapshot, update_count, _ = decode_entry(value)
        except RecordError as error:
            raise LoadFailed(f"the entry of share partition {format_key(key)}: {error}") from error
        return None if snapshot is None else ShareState(*snapshot, update_count)

    def _leave_out(self, key: SharePartitionKey, offset: int, reason: str, cause: RecordError | None = None) -> None:
        if offset > self._accepted_offset:
            raise LoadFailed(f"offset {offset}, share partition {format_key(key)}: {reason}") from cause
        self.left_out_records += 1

    def _skip(self, kind: Kind, raw_key: bytes, offset: int) -> None:
        self.skipped_records += 1
        if kind not in self._skipped_kinds:
            self._skipped_kinds.add(kind)
            _log.warning(
                "records without a meaning are skipped", kind=kind.name, first_offset=offset, key=raw_key[:64].hex()
            )
