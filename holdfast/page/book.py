"""All share partitions as they are now, with how fast each group finishes records; pure.

It is given the records of the log partitions one by one, and the time where it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

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


class Pace:
    """Records that a group finished in each of the last minutes, by the times at which the log has it."""

    __slots__ = ("_by_minute",)

    def __init__(self) -> None:
        self._by_minute: dict[int, int] = {}

    def add(self, at_ms: int, count: int) -> None:
        """Count records that were finished at a time."""
        minute = at_ms // _MINUTE_MS
        self._by_minute[minute] = self._by_minute.get(minute, 0) + count
        # One more than are shown: the clocks of brokers differ.
        while len(self._by_minute) > SPARK_MINUTES + 1:
            del self._by_minute[min(self._by_minute)]

    def of_last_minutes(self, now_ms: int) -> tuple[int, ...]:
        """Return the counts of `SPARK_MINUTES` minutes, the last one that of now."""
        last = now_ms // _MINUTE_MS
        return tuple(self._by_minute.get(minute, 0) for minute in range(last - SPARK_MINUTES + 1, last + 1))


class Book:
    """The states of share partitions, log partition by log partition."""

    def __init__(self) -> None:
        self.logs: dict[int, LogFold] = {}
        #: By group and topic id; of those that have a share partition.
        self._paces: dict[tuple[str, bytes], Pace] = {}
        self._described: dict[SharePartitionKey, Described] = {}
        #: By log partition, the offset up to which the paces have its records: they are not counted again where it is read again.
        self._paced_to: dict[int, int] = {}
        #: It is raised by every change.
        self.version = 0

    def begin(self, log_partition: int, start: int) -> LogFold:
        """Begin with a log partition, or once more; what was known of it is forgotten, but how fast groups are."""
        self.version += 1
        fold = self.logs[log_partition] = LogFold(start)
        return fold

    def clear(self) -> None:
        """Forget everything: the topic is gone."""
        self.logs.clear()
        self._paces.clear()
        self._paced_to.clear()
        self._described.clear()
        self.version += 1

    def take(self, log_partition: int, record: TopicRecord) -> None:
        """Take the next record of a log partition."""
        folded = self.logs[log_partition].take(record)
        if folded is None:
            return
        self.version += 1
        if record.offset < self._paced_to.get(log_partition, 0):
            return
        self._paced_to[log_partition] = record.offset + 1
        finished = finished_between(folded.before, folded.after)
        if finished > 0:
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

    def finished_by_minute(self, group: str, topic_id: bytes, now_ms: int) -> tuple[int, ...]:
        """Return how many records a group finished in each of the last minutes, oldest first."""
        pace = self._paces.get((group, topic_id))
        return (0,) * SPARK_MINUTES if pace is None else pace.of_last_minutes(now_ms)

    def _describe_all(self, leaders: Mapping[int, int]) -> Iterator[tuple[SharePartitionKey, Described]]:
        for number, fold in self.logs.items():
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


def finished_between(before: ShareState | None, after: ShareState | None) -> int:
    """Return how many records were finished by a change; 0 where the share partition began, or was set to another place."""
    if before is None or after is None or before.state_epoch != after.state_epoch:
        return 0
    if before.start_offset < 0:  # the first write says where the group began, too, or how far it is already
        return max(0, after.delivery_complete_count)
    return _done(after) - _done(before)


def _done(state: ShareState) -> int:
    return state.start_offset + max(0, state.delivery_complete_count)
