"""Changes of share partitions, in the order of the log, turned into answers: the states at an instant, the history of an offset.

An instant is a time; the state of a share partition at it is the one after the newest of its own changes that is no later, and
all of its changes before that one, because the clock of a broker may be set back, though by no more than a day.
So the answer about a share partition depends only on its own changes and the gaps of its log partition, and on nothing else
that a command asks for.
"""

from collections import Counter
from collections.abc import Iterator
from enum import Enum
from typing import Final, NamedTuple

from holdfast.records.share.batches import STATE_NAMES
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


class Step(NamedTuple):
    """The effect of a change on one offset of the user's topic partition."""

    change: LogChange
    text: str  #: acknowledged, archived, available, or a few words where no delivery state applies
    delivery_count: int | None  #: None: not delivered yet, or not known


class OffsetHistory:
    """The steps of one offset of a share partition."""

    def __init__(self, offset: int) -> None:
        self._offset = offset
        self._known: KnownState | None = None
        self._described: tuple[str, int | None] | None = None

    def take(self, change: LogChange | HistoryGap) -> Iterator[Step]:
        """Take the next change of the share partition; yields a step if it did something to the offset."""
        if isinstance(change, HistoryGap):
            if self._known is not None:
                self._known = self._known._replace(status=Status.UNCERTAIN)
            return
        self._known = after(self._known, change)
        described = self._describe(self._known)
        if described != self._described:
            self._described = described
            yield Step(change, *described)

    def _describe(self, known: KnownState) -> tuple[str, int | None]:
        state = known.state
        if state is None:
            return ("share partition deleted" if known.status is Status.DELETED else "unknown"), None
        if self._offset < state.start_offset:
            # Only the steps before know its last state.
            before = self._described or ("", None)
            if before[0].startswith("below the start offset"):
                return before
            return f"below the start offset{f', {before[0]} before' if before[1] is not None else ''}", before[1]
        for batch in state.state_batches:
            if batch.first_offset <= self._offset <= batch.last_offset:
                return str(STATE_NAMES.get(batch.delivery_state, batch.delivery_state)), batch.delivery_count
        return "not delivered", None
