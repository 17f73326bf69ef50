"""The lazy fold of a log, for loads and for the Spark job: keep the raw bytes that still matter, decode them at the end.

Most of a log is dead: what a later snapshot or tombstone of the same share partition replaces is dropped unread, so a record costs
about a microsecond while the log streams in, and only what is left is decoded.

One share partition may appear under several raw keys (Kafka's codec has one per kind of record, and a log may hold both codecs).
They share one run, so its records stay in the order of the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast.records.errors import RecordError
from holdfast.records.native import twins
from holdfast.records.share.codecs import avro
from holdfast.records.share.codecs.codec import Kind, decode_key, decode_value
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.replay import ShareState, replay
from holdfast.records.share.values import Update


class Unusable(Exception):
    """A record that still matters and cannot be used, and that no admin accepted to lose."""

    def __init__(self, offset: int, error: RecordError | None) -> None:
        super().__init__(
            "The update has no snapshot before it; the log was cut between the two." if error is None else str(error)
        )
        self.offset = offset
        #: Why it cannot be decoded; None: it is an update, and the snapshot that it changes was not read.
        self.error = error


class Run:
    """The records of one share partition that still matter: a snapshot, or what stands for one, and the updates after it."""

    __slots__ = ("covered_offset", "entry", "key", "raw_keys", "records", "reset_offset")

    def __init__(self, key: SharePartitionKey, entry: bytes | None = None) -> None:
        self.key = key
        #: Value of the snapshot store's entry that precedes all records; None: there is none, or a record replaced it.
        self.entry = entry
        #: Every raw key under which records of the share partition were filed.
        self.raw_keys: list[bytes] = []
        #: (raw key, raw value, offset), offsets ascending.
        self.records: list[tuple[bytes, bytes, int]] = []
        #: Offset of the newest snapshot or tombstone that was filed; -1: none was, and older knowledge still matters.
        self.reset_offset = -1
        #: Offset of the newest record that was filed.
        self.covered_offset = -1


class PendingRuns:
    """The runs of one log partition, between the reading of its records and their fold.

    Args:
        updates_per_snapshot: as in `records.share.replay.replay`.
    """

    def __init__(self, updates_per_snapshot: int) -> None:
        self._updates_per_snapshot = updates_per_snapshot
        #: In the order in which they began.
        self._runs: dict[SharePartitionKey, Run] = {}
        #: Raw key to the run of its share partition; what lets a record be filed without decoding its key again.
        self._runs_by_raw_key: dict[bytes, Run] = {}
        #: Group ids and topic ids, each by itself.
        self._names: dict[Any, Any] = {}
        #: Up to here an admin accepted the log as it was: what cannot be used of it is left out.
        self.accepted_offset = -1
        #: Records that were left out.
        self.left_out_records = 0
        #: Values with bytes after their end, which Kafka ignores and so do we.
        self.values_with_trailing_bytes = 0

    def __len__(self) -> int:
        return len(self._runs)

    def begin_with(self, runs: dict[SharePartitionKey, Run]) -> None:
        """Begin with runs that hold no records yet, which are this object's own from now on."""
        self._runs = runs

    def file(self, kind: Kind, raw_key: bytes, raw_value: bytes | None, offset: int) -> Run:
        """File one record, in offset order, and return its run.

        Args:
            kind: UPDATE, SNAPSHOT or TOMBSTONE, as `peek_kind` says; the last two replace what was filed before.
            raw_key: its key.
            raw_value: its value, None for a tombstone.
            offset: above all offsets before.

        Raises:
            RecordError: the key cannot be decoded.
        """
        run = self._runs_by_raw_key.get(raw_key) or self._find(raw_key)
        if kind is not Kind.UPDATE:
            run.records.clear()
            run.entry = None
            run.reset_offset = offset
        if raw_value is not None:
            run.records.append((raw_key, raw_value, offset))
        run.covered_offset = offset
        return run

    def drop(self, run: Run) -> None:
        """Forget a run; a later record of its share partition begins another one."""
        for raw_key in run.raw_keys:
            del self._runs_by_raw_key[raw_key]
        del self._runs[run.key]

    def has_run(self, key: SharePartitionKey) -> bool:
        """Tell whether anything of a share partition is filed."""
        return key in self._runs

    def runs(self) -> list[Run]:
        """Return the runs, in the order in which they began."""
        return list(self._runs.values())

    def take_all(self) -> list[Run]:
        """Return the runs, in the order in which they began, and keep none of them."""
        runs = list(self._runs.values())
        self._runs.clear()
        self._runs_by_raw_key.clear()
        self._names.clear()
        return runs

    def discard(self) -> Iterator[None]:
        """Forget at most one run at each step, until none is left."""
        for held in (self._runs_by_raw_key, self._runs, self._names):
            while held:
                held.popitem()
                yield

    def fold(self, run: Run, state: ShareState | None) -> ShareState | None:
        """Return the state of a share partition after its run, or None when there is none.

        Args:
            run: its records.
            state: what is known from before the first of them; None: nothing.

        Raises:
            Unusable: a record cannot be decoded, or is an update of what is not known.
        """
        records, at = run.records, 0
        while at < len(records):
            if twins is not None and state is not None:
                state, at = twins.fold_updates(state, records, at, avro.KEY_PREFIX, avro.UPDATE_PREFIX)
                if at == len(records):
                    break
            raw_key, raw_value, offset = records[at]
            at += 1
            try:
                value, trailing_bytes = decode_value(raw_key, raw_value)
            except RecordError as error:
                if offset > self.accepted_offset:
                    raise Unusable(offset, error) from error
                self.left_out_records += 1
                continue
            if trailing_bytes:
                self.values_with_trailing_bytes += 1
            if state is not None or type(value) is not Update:
                state = replay(state, value, self._updates_per_snapshot)
            elif offset > self.accepted_offset:
                raise Unusable(offset, None)
            else:
                self.left_out_records += 1
        return state

    def _find(self, raw_key: bytes) -> Run:
        group_id, topic_id, partition = decode_key(raw_key)
        # Each name is kept once, not once for each share partition.
        names = self._names
        key = SharePartitionKey(names.setdefault(group_id, group_id), names.setdefault(topic_id, topic_id), partition)
        run = self._runs.get(key)
        if run is None:
            run = self._runs[key] = Run(key)
        run.raw_keys.append(raw_key)
        self._runs_by_raw_key[raw_key] = run
        return run
