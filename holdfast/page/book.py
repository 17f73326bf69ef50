"""All share partitions as they are now, with how fast each group finishes records; pure.

It is given the records of the log partitions one by one, and the time where it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf
from typing import Final, NamedTuple, Protocol

from holdfast.page.decoding import TopicRecord
from holdfast.page.log_fold import LogFold
from holdfast.page.source import SPARK_MINUTES
from holdfast.records.share.deliveries import describe_state, sum_up_deliveries
from holdfast.records.share.group_lag import Row
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.replay import ShareState

_MINUTE_MS: Final = 60_000


class Described(NamedTuple):
    """A share partition as it is described, and of what state."""

    state: ShareState
    owner: str | None
    row: Row
    given_up: int


class Counted(Protocol):
    """The numbers of a state that tell how much is finished; those of a whole state, or these alone."""

    @property
    def state_epoch(self) -> int:
        """See `ShareState`."""

    @property
    def start_offset(self) -> int:
        """See `ShareState`."""

    @property
    def delivery_complete_count(self) -> int:
        """See `ShareState`."""


class Pace:
    """Records that a group finished in each of the last minutes, by the times at which the log has it."""

    __slots__ = ("_by_minute",)

    def __init__(self) -> None:
        #: None: it is not known how many.
        self._by_minute: dict[int, int | None] = {}

    def add(self, at_ms: int, count: int | None) -> None:
        """Count records that were finished at a time; None: some were, and it is not known how many."""
        minute = at_ms // _MINUTE_MS
        before = self._by_minute.get(minute, 0)
        self._by_minute[minute] = None if before is None or count is None else before + count
        # One more than are shown: the clocks of brokers differ.
        while len(self._by_minute) > SPARK_MINUTES + 1:
            del self._by_minute[min(self._by_minute)]

    def of_last_minutes(self, now_ms: int) -> tuple[int | None, ...]:
        """Return the counts of `SPARK_MINUTES` minutes, the last one that of now."""
        return tuple(self._by_minute.get(minute, 0) for minute in _last_minutes(now_ms))


class Book:
    """The states of share partitions, log partition by log partition.

    While a log partition is read once more from its start, its states stay as they were until it has been read to its end.
    """

    def __init__(self) -> None:
        #: As they are read.
        self.logs: dict[int, LogFold] = {}
        #: Those that are read once more, as they were when they had been read to their ends.
        self._former: dict[int, LogFold] = {}
        #: By group and topic id; of those that have a share partition.
        self._paces: dict[tuple[str, bytes], Pace] = {}
        self._described: dict[SharePartitionKey, Described] = {}
        #: By log partition, the offset up to which the paces have its records: they are not counted again where it is read again.
        self._paced_to: dict[int, int] = {}
        #: By log partition, the time in ms from which on they have all that it finished; -inf: nothing is missing.
        self._paced_since: dict[int, float] = {}
        #: It is raised by every change.
        self.version = 0

    def begin(self, log_partition: int, start: int, diverges_at: int | None = None) -> LogFold:
        """Begin with a log partition, or once more.

        Args:
            log_partition: its number.
            start: of its first record.
            diverges_at: the offset from which it has other records than those that were taken; None: it has the same.
        """
        before = self.logs.get(log_partition)
        if before is not None and before.was_whole:
            self._former[log_partition] = before
        if before is None or before.next_offset < start:
            # Records that nobody read were pruned, if any were there.
            self._paced_since.pop(log_partition, None)
        elif diverges_at is not None and before.last_ms is not None:
            self._paced_since[log_partition] = before.last_ms
            self._paced_to[log_partition] = diverges_at
        self.version += 1
        fold = self.logs[log_partition] = LogFold(start)
        return fold

    def note_whole(self, log_partition: int) -> None:
        """Note that a log partition has been read to its end: its states are those that it has now."""
        fold = self.logs[log_partition]
        if not fold.was_whole:
            fold.was_whole = True
            self._former.pop(log_partition, None)
            self.version += 1

    def shown(self, log_partition: int) -> LogFold:
        """Return the fold that has the states of a log partition: of the last reading that came to its end, or the first one."""
        return self._former.get(log_partition) or self.logs[log_partition]

    def clear(self) -> None:
        """Forget everything: the topic is gone."""
        self.logs.clear()
        self._former.clear()
        self._paces.clear()
        self._paced_to.clear()
        self._paced_since.clear()
        self._described.clear()
        self.version += 1

    def take(self, log_partition: int, record: TopicRecord) -> None:
        """Take the next record of a log partition."""
        fold = self.logs[log_partition]
        folded = fold.take(record)
        if log_partition not in self._paced_since and (fold.start == 0 or fold.since_ms is not None):
            self._paced_since[log_partition] = -inf if fold.since_ms is None else fold.since_ms
        if folded is None:
            return
        self.version += 1
        if record.offset < self._paced_to.get(log_partition, 0):
            return
        self._paced_to[log_partition] = record.offset + 1
        if folded.before is None and folded.after is not None and fold.start > 0 and folded.after.snapshot_epoch > 0:
            # The state before was pruned.
            finished = None
        else:
            finished = finished_between(folded.before, folded.after)
        if finished is None or finished > 0:
            place = folded.key.group_id, folded.key.topic_id
            self._paces.setdefault(place, Pace()).add(folded.timestamp_ms, finished)

    def describe(self, leaders: Mapping[int, int]) -> dict[SharePartitionKey, Described]:
        """Return all share partitions; what has not changed since the last time is the same object.

        Args:
            leaders: by log partition, the broker that leads it: the owner of what a broker wrote itself.
        """
        found = dict(self._describe_all(leaders))
        self._described = found
        places = {(key.group_id, key.topic_id) for key in found}
        for place in self._paces.keys() - places:
            del self._paces[place]
        return found

    def finished_by_minute(
        self, group: str, topic_id: bytes, read_to: Mapping[int, int], now_ms: int
    ) -> tuple[int | None, ...]:
        """Return how many records a group finished in each of the last minutes, oldest first; None: not known of all of the minute.

        Args:
            group: its name.
            topic_id: of the topic.
            read_to: the log partitions that have its share partitions, and the time up to which each was read.
            now_ms: the time, in ms since 1970.
        """
        pace = self._paces.get((group, topic_id))
        counts = (0,) * SPARK_MINUTES if pace is None else pace.of_last_minutes(now_ms)
        since_ms = max((self._paced_since.get(each, inf) for each in read_to), default=-inf)
        to_minute = min(read_to.values(), default=now_ms) // _MINUTE_MS
        minutes = _last_minutes(now_ms)
        if since_ms <= minutes[0] * _MINUTE_MS and to_minute >= minutes[-1]:
            return counts
        # The last one goes on; any other in which the reading ended has a part that was not read.
        end_minute = minutes[-1] + 1 if to_minute >= minutes[-1] else to_minute
        return tuple(
            count if since_ms <= minute * _MINUTE_MS and minute < end_minute else None
            for minute, count in zip(minutes, counts, strict=True)
        )

    def _describe_all(self, leaders: Mapping[int, int]) -> Iterator[tuple[SharePartitionKey, Described]]:
        for number in self.logs:
            fold = self.shown(number)
            owner = fold.owner
            if fold.is_foreign:
                leader = leaders.get(number, -1)
                owner = None if leader < 0 else str(leader)
            for key, state in fold.states.items():
                known = self._described.get(key)
                if known is None or known.state is not state or known.owner != owner:
                    row = describe_state(key, state, number, owner)
                    given_up = sum_up_deliveries(state.start_offset, state.state_batches).archived
                    known = Described(state, owner, row, given_up)
                yield key, known


def _last_minutes(now_ms: int) -> range:
    last = now_ms // _MINUTE_MS
    return range(last - SPARK_MINUTES + 1, last + 1)


def finished_between(before: Counted | None, after: Counted | None) -> int:
    """Return how many records were finished by a change; 0 where the share partition began, or was set to another place."""
    if before is None or after is None or before.state_epoch != after.state_epoch:
        return 0
    if before.start_offset < 0:  # the first write says where the group began, too, or how far it is already
        return max(0, after.delivery_complete_count)
    return _done(after) - _done(before)


def _done(state: Counted) -> int:
    return state.start_offset + max(0, state.delivery_complete_count)
