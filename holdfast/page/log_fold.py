"""One log partition of a state topic, folded record by record to the states of its share partitions; pure.

In a broker's own topic all records count, and an update whose snapshot was pruned is applied to an empty state, as Kafka does.
In a Holdfast's the rule of `records.log.fencing` says which count. Such a log that was pruned is read twice: once until it is found
from which offset it is whole, and once more from its start.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from holdfast.page.decoding import TopicRecord
from holdfast.records.errors import RecordError, Undecodable
from holdfast.records.log.checkpoint import Checkpoint, decode_checkpoint, is_checkpoint_key
from holdfast.records.log.fencing import START, Position, step
from holdfast.records.log.header import decode_header, find_header, is_foreign
from holdfast.records.log.log_start import Beginning
from holdfast.records.share.codecs.codec import Codec, Kind, decode_record, encode_key, peek_kind
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.replay import ShareState, fold_without_snapshot, replay
from holdfast.records.share.values import Noop, Update, Value

_OF_SHARE_PARTITIONS: Final = (Kind.SNAPSHOT, Kind.UPDATE, Kind.TOMBSTONE)
#: A key by Kafka's codec begins with its version.
_VERSION_BYTES: Final = 2
#: Only a count of updates depends on it, which is not shown.
_UPDATES_PER_SNAPSHOT: Final = 0


class Folded(NamedTuple):
    """A record that counts and is about a share partition, and what it did."""

    offset: int
    timestamp_ms: int
    owner_epoch: int | None  #: None: a broker wrote it
    key: SharePartitionKey
    before: ShareState | None  #: None: it was not known
    after: ShareState | None  #: None: it is deleted, or not known


class _Judged(NamedTuple):
    """Whether a record counts."""

    counts: bool
    owner_epoch: int | None = None
    checkpoint: Checkpoint | None = None
    problem: str = ""


class Gap(NamedTuple):
    """Records that count and could not be used."""

    records: int
    first_offset: int


class LogFold:
    """The fold of one log partition; it is given every record from the log's start, in offset order."""

    def __init__(self, start: int, only: SharePartitionKey | None = None) -> None:
        """Take what is wanted, and no record yet.

        Args:
            start: offset of the first record that is there.
            only: the share partition that is wanted, so that others may be left out; None: all are.
        """
        # Its records have the one key or the other; the version is what differs.
        self._only = None if only is None else encode_key(Codec.KAFKA, only, Kind.SNAPSHOT)[_VERSION_BYTES:]
        self.start = start
        #: The offset of the next record.
        self.next_offset = start
        #: When the first record was written, in ms since 1970; None: it did not come yet.
        self.first_ms: int | None = None
        #: When the newest record was written; None: none came yet.
        self.last_ms: int | None = None
        #: When the first record was written from which on the log is whole; None: none came yet, or nothing is missing before.
        self.since_ms: int | None = None
        #: It was read to its end once.
        self.was_whole = False
        self.states: dict[SharePartitionKey, ShareState] = {}
        #: The node that the newest checkpoint names; None in a broker's own topic.
        self.owner: str | None = None
        #: A broker wrote it; None before the first record.
        self.is_foreign: bool | None = None
        self.undecodable: Gap | None = None
        self.without_base: Gap | None = None
        #: No record of a coordinator is its first one: why.
        self.wrong_topic = ""
        self._position: Position = START
        #: Offset below which nothing counts; None: that is looked for.
        self._begins_at: int | None = 0 if start == 0 else None
        self._beginning = Beginning(start)

    @property
    def counts_from(self) -> int:
        """Return the offset from which its records count; what was before is known only where somebody has kept it."""
        return max(self.start, self._begins_at or 0)

    @property
    def is_looking(self) -> bool:
        """Tell whether it is looked for the offset from which the log is whole; nothing is folded meanwhile."""
        return self._begins_at is None and self.is_foreign is not True

    def take(self, record: TopicRecord) -> Folded | None:
        """Take the next record; returns what it did to a share partition."""
        header = find_header(record.headers)
        if self.is_foreign is None:
            self.is_foreign = is_foreign(header)
            self.first_ms = record.timestamp_ms
            self._check_first(record)
        self.next_offset, self.last_ms = record.offset + 1, record.timestamp_ms
        if self.is_looking:
            self._look(record, header)
            return None
        if self.since_ms is None and self.start > 0 and record.offset >= (self._begins_at or 0):
            self.since_ms = record.timestamp_ms
        if self._only is not None and self.is_foreign and (record.key or b"")[_VERSION_BYTES:] != self._only:
            return None
        judged = self._judge(record, header)
        if not judged.counts:
            return None
        if judged.checkpoint is not None:
            self.owner = judged.checkpoint.node_id
        return self._fold(record, judged)

    def read_again(self, is_at_end: bool) -> bool:
        """Tell whether the log must be read once more from its start, and prepare for that.

        Args:
            is_at_end: all records that are there were taken.
        """
        if not self.is_looking or not (self._beginning.is_found or is_at_end):
            return False
        if self.is_foreign is None:  # nothing is there
            return False
        self._begins_at = self._beginning.offset if self._beginning.is_found else 0
        self._position, self.next_offset = START, self.start
        return True

    def gaps(self) -> list[str]:
        """Return which records that count could not be used, a clause each."""
        kinds = (
            (self.undecodable, "cannot be decoded"),
            (self.without_base, "change a state whose snapshot is not in the log"),
        )
        return [
            f"{gap.records} of its records {what}, the first at offset {gap.first_offset}" for gap, what in kinds if gap
        ]

    def _check_first(self, record: TopicRecord) -> None:
        try:
            kind = peek_kind(record.key, record.value)
        except RecordError as error:
            self.wrong_topic = str(error)
            return
        if kind is Kind.UNKNOWN:
            self.wrong_topic = f"its record at offset {record.offset} is none of a coordinator"

    def _look(self, record: TopicRecord, header: bytes | None) -> None:
        try:
            owner_epoch, sequence = decode_header(header or b"")
            checkpoint = _find_checkpoint(record)
        except RecordError:
            return  # it counts for no reader
        if checkpoint is None:
            self._position, _ = step(self._position, owner_epoch, sequence, None)
        else:
            self._position, _ = self._beginning.step(self._position, record.offset, owner_epoch, sequence, checkpoint)

    def _judge(self, record: TopicRecord, header: bytes | None) -> _Judged:
        if header is None or is_foreign(header):
            return _Judged(bool(self.is_foreign))
        try:
            owner_epoch, sequence = decode_header(header)
            checkpoint = _find_checkpoint(record)
        except RecordError as error:
            return _Judged(bool(self.is_foreign), problem=str(error))
        counts = bool(self.is_foreign)
        if record.offset >= (self._begins_at or 0):
            self._position, counts = step(self._position, owner_epoch, sequence, checkpoint)
        return _Judged(counts, owner_epoch, checkpoint)

    def _fold(self, record: TopicRecord, judged: _Judged) -> Folded | None:
        try:
            if judged.problem:
                raise Undecodable("record", judged.problem)
            if peek_kind(record.key, record.value) not in _OF_SHARE_PARTITIONS:
                return None
            key, value, _ = decode_record(record.key, record.value)
        except RecordError:
            self.undecodable = one_more(self.undecodable, record.offset)
            return None
        assert not isinstance(value, Noop)
        before = self.states.get(key)
        if isinstance(value, Update) and before is None and judged.owner_epoch is not None:
            self.without_base = one_more(self.without_base, record.offset)
            return None
        after = fold(before, value)
        if after is None:
            self.states.pop(key, None)
        else:
            self.states[key] = after
        return Folded(record.offset, record.timestamp_ms, judged.owner_epoch, key, before, after)


def fold(before: ShareState | None, value: Value) -> ShareState | None:
    """Return the state after a record that counts, None: it is deleted. An update without a snapshot is a broker's."""
    if isinstance(value, Update) and before is None:
        return fold_without_snapshot(value)
    return replay(before, value, _UPDATES_PER_SNAPSHOT)


def one_more(gap: Gap | None, offset: int) -> Gap:
    """Return a gap with a record more."""
    return Gap(1, offset) if gap is None else gap._replace(records=gap.records + 1)


def _find_checkpoint(record: TopicRecord) -> Checkpoint | None:
    """Return the value of a checkpoint, None where a record is something else; raises RecordError."""
    return decode_checkpoint(record.value or b"") if is_checkpoint_key(record.key or b"") else None
