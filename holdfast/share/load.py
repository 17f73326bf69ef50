"""Loading a share shard lazily: its records are filed as they come (`records.share.pending_runs`) and folded when the log was read.

The fold goes in slices, so other log partitions get their turn. Records that come meanwhile, or afterwards, are filed as well;
the fold goes on with them where it left off, so its last part costs no more than what came last.

A load may restore from a snapshot store: each of its entries stands for the records of its share partition up to some offset,
and is decoded at the end as they are, if nothing later replaced it.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

import structlog

from holdfast.records.errors import RecordError
from holdfast.records.share.codecs.codec import Kind, peek_kind
from holdfast.records.share.keys import SharePartitionKey, format_key
from holdfast.records.share.pending_runs import PendingRuns, Run, Unusable
from holdfast.records.share.redundant_offsets import RedundantOffsetTracker
from holdfast.records.share.replay import ShareState
from holdfast.records.share.snapshot_store.entries import decode_entry
from holdfast.runtime.errors import LoadFailed

_log = structlog.get_logger(__name__)


class RestoredRuns(NamedTuple):
    """The states of a log partition up to an offset, from the entries of a snapshot store."""

    offset: int
    #: Live share partitions, each with its entry.
    runs: dict[SharePartitionKey, Run]
    #: Offsets of their newest snapshots, ascending.
    snapshot_offsets: list[tuple[SharePartitionKey, int]]


class ShareLoad:
    """The load of one log partition: takes raw records in offset order, then turns them into states.

    Args:
        updates_per_snapshot: as in `records.share.replay.replay`.
        offsets: is fed with every snapshot and tombstone.
    """

    def __init__(self, updates_per_snapshot: int, offsets: RedundantOffsetTracker) -> None:
        self._offsets = offsets
        self._pending = PendingRuns(updates_per_snapshot)
        #: Runs being folded; what was filed since they were taken is folded after them.
        self._unfolded: deque[Run] = deque()
        self._has_begun_to_fold = False
        self._newest_offset = -1
        #: Whether an admin accepted the log as it was.
        self.is_accepted = False
        #: Records of a type this version does not know, and null updates; skipped.
        self.skipped_records = 0
        self._skipped_kinds: set[Kind] = set()

    def begin_with(self, restored: RestoredRuns) -> None:
        """Begin with what a snapshot store holds up to an offset, which is this load's own from now on."""
        self._newest_offset = restored.offset
        self._pending.begin_with(restored.runs)
        self._offsets.begin_with(restored.snapshot_offsets)

    def take(self, raw_key: bytes, raw_value: bytes | None, offset: int) -> None:
        """File one record.

        Raises:
            RecordError: its first bytes already say that it cannot be decoded.
        """
        self._newest_offset = offset
        kind = peek_kind(raw_key, raw_value)
        if kind is Kind.UPDATE:
            self._pending.file(kind, raw_key, raw_value, offset)
        elif kind is Kind.SNAPSHOT:
            run = self._pending.file(kind, raw_key, raw_value, offset)
            self._offsets.update(run.key, offset, is_tombstone=False)
        elif kind is Kind.TOMBSTONE:
            run = self._pending.file(kind, raw_key, raw_value, offset)
            if not self._has_begun_to_fold:  # later it may undo what is folded
                self._pending.drop(run)
            self._offsets.update(run.key, offset, is_tombstone=True)
        else:
            self._skip(kind, raw_key, offset)

    def accept(self) -> None:
        """Note that an admin accepted the log up to here: records that cannot be used are left out, and are no error."""
        self._pending.accepted_offset = self._newest_offset
        self.is_accepted = True

    def fold(
        self, folded: Callable[[SharePartitionKey], ShareState | None], is_time_up: Callable[[], bool]
    ) -> Iterator[tuple[SharePartitionKey, ShareState | None]]:
        """Yield share partitions with their states, None for none, until the time of this slice is up; at least one, while there are any.

        Args:
            folded: what was yielded for a share partition before.
            is_time_up: whether the slice ends.

        Raises:
            LoadFailed: a record cannot be decoded, or an update's snapshot is not in the log; names offset and key.
        """
        self._has_begun_to_fold = True
        while not self.is_folded:
            if not self._unfolded:
                self._unfolded.extend(self._pending.take_all())
            run = self._unfolded.popleft()
            state = self._fold_run(run, None if run.reset_offset >= 0 else folded(run.key))
            if state is None and not self._pending.has_run(run.key):
                # As if it had been deleted: a share partition without a state must not hold pruning back.
                self._offsets.update(run.key, self._newest_offset, is_tombstone=True)
            yield run.key, state
            if is_time_up():
                return

    def discard(self) -> Iterator[None]:
        """Forget at most one run of records at each step, until none is left."""
        while self._unfolded:
            self._unfolded.popleft()
            yield
        yield from self._pending.discard()

    @property
    def is_folded(self) -> bool:
        """Tell whether `fold` has yielded everything that was taken so far."""
        return not self._unfolded and not self._pending

    @property
    def left_out_records(self) -> int:
        """Return the number of records that could not be used and that an admin accepted to lose."""
        return self._pending.left_out_records

    @property
    def values_with_trailing_bytes(self) -> int:
        """Return the number of values with bytes after their end, which were ignored."""
        return self._pending.values_with_trailing_bytes

    def _fold_run(self, run: Run, state: ShareState | None) -> ShareState | None:
        if run.entry is not None:
            state = _decode_entry(run.key, run.entry)
        try:
            return self._pending.fold(run, state)
        except Unusable as found:
            place = f"offset {found.offset}, share partition {format_key(run.key)}"
            raise LoadFailed(f"{place}: {found}") from found.error

    def _skip(self, kind: Kind, raw_key: bytes, offset: int) -> None:
        self.skipped_records += 1
        if kind not in self._skipped_kinds:
            self._skipped_kinds.add(kind)
            _log.warning("unknown_record_skipped", kind=kind.name, first_offset=offset, key=raw_key[:64].hex())


def _decode_entry(key: SharePartitionKey, value: bytes) -> ShareState | None:
    try:
        snapshot, update_count, _ = decode_entry(value)
    except RecordError as error:
        raise LoadFailed(f"the entry of share partition {format_key(key)}: {error}") from error
    return None if snapshot is None else ShareState(*snapshot, update_count)
