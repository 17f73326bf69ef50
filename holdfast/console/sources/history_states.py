"""Changes of share partitions, in the order of the log, turned into answers: the states at an instant, the history of an offset.

An instant is a time; the state of a share partition at it is the one after the newest of its own changes that is no later, and
all of its changes before that one, because the clock of a broker may be set back, though by no more than a day.
So the answer about a share partition depends only on its own changes and the gaps of its log partition, and on nothing else
that a command asks for.
"""

from collections import Counter
from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple

from holdfast.page.log_fold import Folded
from holdfast.page.source import LOG, Change
from holdfast.page.timeline import OffsetTimeline, tell
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.replay import ShareState, replay
from holdfast.records.share.values import Snapshot, Value

#: Never reached: the count of updates is not shown.
_UPDATES_MAX: Final = 1 << 31

#: The most by which the clock of a broker is set back: for an instant, changes that are later by more are not read.
DAY_MS: Final = 86_400_000


class KeyFilter(NamedTuple):
    """A choice of share partitions; None means any."""

    group_id: str | None = None
    topic_id: bytes | None = None
    partition: int | None = None

    def includes(self, key: SharePartitionKey) -> bool:
        """Tell whether a share partition is among them."""
        return all(wanted in (None, given) for wanted, given in zip(self, key, strict=True))


class LogChange(NamedTuple):
    """One record of the log that counts and is about a share partition."""

    log_partition: int
    offset: int
    timestamp_ms: int
    key: SharePartitionKey
    value: Value  #: None: a tombstone
    owner_epoch: int | None = None
    source: str = LOG  #: or `HISTORY`


class HistoryGap(NamedTuple):
    """A range of a log partition, between known changes before and after it, whose changes are lost."""

    log_partition: int
    end: int  #: offset after the last of them
    since_ms: int  #: time of the last record that is known before them; nothing is certain from then on


class Status(Enum):
    """The knowledge about a share partition."""

    LIVE = "live"
    DELETED = "deleted"
    #: It was there, but no snapshot of it was read, or a gap lies between that and an update.
    UNKNOWN = "unknown"
    #: As it was before a gap; in the gap a live one may have changed or been deleted, and a deleted one created again.
    UNCERTAIN = "uncertain"


class KnownState(NamedTuple):
    """A share partition at an instant."""

    status: Status
    state: ShareState | None  #: None where it is deleted or unknown, or was before a gap
    log_partition: int
    offset: int  #: of its newest change; -1: that one is not known
    timestamp_ms: int  #: of the same


class _Ahead(NamedTuple):
    """A share partition after changes that are later than an instant."""

    known: KnownState
    change_count: int  #: since the instant


class StatesAt:
    """The states of all share partitions at an instant, folded from changes."""

    def __init__(self, time_ms: int | None) -> None:
        """Choose the instant.

        Args:
            time_ms: the instant, in milliseconds since 1970; None: the end of all changes.
        """
        self.known: dict[SharePartitionKey, KnownState] = {}
        #: Number of changes that made a known state.
        self.change_counts: Counter[SharePartitionKey] = Counter()
        self._time_ms = time_ms
        #: States later than the instant, until a change of the same share partition follows that is not later.
        self._ahead: dict[SharePartitionKey, _Ahead] = {}
        #: Whether a share partition whose first change is later than the instant was there before.
        self._was_there: dict[SharePartitionKey, bool] = {}

    def take(self, change: LogChange | HistoryGap) -> None:
        """Take the next change; those of one log partition come in the order of their offsets."""
        if isinstance(change, HistoryGap):
            self._take_gap(change)
            return
        key = change.key
        former = self._ahead.pop(key, None)
        base, change_count = (self.known.get(key), 0) if former is None else former
        ahead = _Ahead(after(base, change), change_count + 1)
        if not self._is_later(change.timestamp_ms):
            self._set(key, ahead)
            return
        if key not in self.known:
            is_first = isinstance(change.value, Snapshot) and change.value.snapshot_epoch == 0
            self._was_there.setdefault(key, not is_first)
        self._ahead[key] = ahead

    def unknown(self) -> list[SharePartitionKey]:
        """Return the share partitions that existed at the instant, as a later change shows, in a state that is not known."""
        return [key for key, was_there in self._was_there.items() if was_there and key not in self.known]

    def _take_gap(self, gap: HistoryGap) -> None:
        states = {key: _Ahead(known, 0) for key, known in self.known.items()} | self._ahead
        for key, (known, change_count) in states.items():
            if known.log_partition != gap.log_partition:
                continue
            uncertain = _Ahead(known._replace(status=Status.UNCERTAIN), change_count)
            if self._is_later(gap.since_ms):
                self._ahead[key] = uncertain
            else:
                self._set(key, uncertain)

    def _set(self, key: SharePartitionKey, ahead: _Ahead) -> None:
        self._ahead.pop(key, None)
        self.known[key] = ahead.known
        self.change_counts[key] += ahead.change_count

    def _is_later(self, time_ms: int) -> bool:
        return self._time_ms is not None and time_ms > self._time_ms


def after(before: KnownState | None, change: LogChange) -> KnownState:
    """Return the known state of a share partition after its next change."""
    place = change.log_partition, change.offset, change.timestamp_ms
    if change.value is None:
        return KnownState(Status.DELETED, None, *place)
    if isinstance(change.value, Snapshot):
        # A snapshot after a gap is a whole state again.
        base = before.state if before is not None and before.status is Status.LIVE else None
        return KnownState(Status.LIVE, replay(base, change.value, _UPDATES_MAX), *place)
    if before is None or before.state is None or before.status is Status.UNCERTAIN:
        return KnownState(Status.UNKNOWN, None, *place)
    return KnownState(before.status, replay(before.state, change.value, _UPDATES_MAX), *place)


class OffsetHistory:
    """The changes of one offset of a share partition, as the page tells them."""

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self._known: KnownState | None = None
        #: By source; the history comes first.
        self._parts: dict[str, OffsetTimeline] = {}
        self._told = 0

    @property
    def is_known(self) -> bool:
        """Tell whether anything is known of the share partition."""
        return bool(self._parts)

    def take(self, change: LogChange | HistoryGap) -> Sequence[Change]:
        """Take the next change of the share partition; returns what it did to the offset, if anything."""
        before = self._known
        if isinstance(change, HistoryGap):
            if before is not None:
                self._known = before._replace(status=Status.UNCERTAIN)
            return ()
        self._known = known = after(before, change)
        if known.status is Status.UNKNOWN:
            return ()
        if change.source not in self._parts:
            self._parts[change.source] = OffsetTimeline(change.key, self.offset, change.log_partition, change.source)
        part = self._parts[change.source]
        told_before = part.first, part.later_count
        former = None if before is None else before.state
        part.take(Folded(change.offset, change.timestamp_ms, change.owner_epoch, change.key, former, known.state))
        if told_before == (part.first, part.later_count):
            return ()
        told = tell(*self._parts.values())
        added, self._told = told.total - self._told, told.total
        return told.changes[len(told.changes) - added :]
