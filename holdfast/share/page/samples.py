"""Records that the share partitions of a node finished in each minute of the last hour, by a look a minute from its start on.

A look compares three numbers of each share partition with those of the look before, and describes nothing. It takes 30 ms a
minute with 10,000 groups, and 8 MB are kept. A minute is known of a log partition that this node served at both its ends.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from holdfast.daemon.partitions.partitions import Partitions
from holdfast.page.book import finished_between
from holdfast.page.source import SPARK_MINUTES
from holdfast.records.share.keys import SharePartitionKey
from holdfast.runtime.partition.states import State
from holdfast.share.shard_kind import serving

_MINUTE_MS: Final = 60_000
_LATE_MS: Final = 50
#: A node that has more share partitions counts from the first look at its page on: it would keep more than forty megabytes.
KEYS_MAX: Final = 50_000
#: The minutes of a group that has finished nothing, and of which nothing is known.
_NOTHING: Final = array("Q", bytes(8 * SPARK_MINUTES))
_UNKNOWN: Final = (None,) * SPARK_MINUTES
#: A millisecond or so of work.
_KEYS_PER_SLICE: Final = 1_000


class _Mark(NamedTuple):
    """A share partition at a look."""

    state_epoch: int
    start_offset: int
    delivery_complete_count: int


class Samples:
    """The looks of the last hour.

    Args:
        partitions: the log partitions of the node.
        now_ms: the time, in ms since 1970.
    """

    def __init__(self, partitions: Partitions, now_ms: Callable[[], int]) -> None:
        self._partitions = partitions
        self._now_ms = now_ms
        self._marks: dict[SharePartitionKey, _Mark] = {}
        #: By group and topic id, the records finished in each minute, at the place of the minute modulo their number.
        self._counts: dict[tuple[str, bytes], array[int]] = {}
        #: By log partition, the shard that was looked at and the first minute that is known.
        self._since: dict[int, tuple[object, int]] = {}
        #: The minute in which the last look was; None: there was none.
        self._minute: int | None = None

    async def follow(self) -> None:
        """Look when the minute is over, and not before: the clock of the loop is another one."""
        await asyncio.sleep((_MINUTE_MS + _LATE_MS - self._now_ms() % _MINUTE_MS) / 1_000)
        await self.look()

    async def look(self) -> None:
        """Count what was finished since the last look, in slices of the loop's time; it belongs to the minute that has ended."""
        minute = self._now_ms() // _MINUTE_MS
        if self._minute is not None and minute != self._minute + 1:  # the node stood still, or the clock was set
            self._clear()
        served = {partition.index: (partition, shard) for partition, shard in serving(self._partitions.active())}
        if sum(len(shard.state.timeline.current) for _, shard in served.values()) > KEYS_MAX:
            self._clear()
            return
        for counts in self._counts.values():
            counts[(minute - 1) % SPARK_MINUTES] = 0
        marks: dict[SharePartitionKey, _Mark] = {}
        since: dict[int, tuple[object, int]] = {}
        for index, (partition, shard) in served.items():
            keys = list(shard.state.timeline.current)
            for place, key in enumerate(keys):
                if place % _KEYS_PER_SLICE == 0:
                    await asyncio.sleep(0)
                # A change that is decided is in the log in a moment, or the log partition is loaded again.
                if (state := shard.state.newest(key)) is None:
                    continue
                mark = _Mark(state.state_epoch, state.start_offset, state.delivery_complete_count)
                if (before := self._marks.get(key)) == mark:
                    mark = before
                elif (finished := finished_between(before, mark)) > 0:
                    self._add(key, minute - 1, finished)
                marks[key] = mark
            if partition.state is State.ACTIVE and partition.machine is shard:
                known = self._since.get(index)
                since[index] = known if known is not None and known[0] is shard else (shard, minute)
        self._marks, self._since, self._minute = marks, since, minute
        self._counts = {place: counts for place, counts in self._counts.items() if any(counts)}

    def of_last_minutes(
        self, group: str, topic_id: bytes, log_partitions: Collection[int], now_ms: int
    ) -> tuple[int | None, ...]:
        """Return the counts of `SPARK_MINUTES` minutes, the last one that of now; None: not known.

        Args:
            group: its name.
            topic_id: of the topic.
            log_partitions: those that have its share partitions.
            now_ms: the time, in ms since 1970.
        """
        if self._minute is None or not all(each in self._since for each in log_partitions):
            return _UNKNOWN
        after = now_ms // _MINUTE_MS + 1
        first = after - SPARK_MINUTES
        since = max((self._since[each][1] for each in log_partitions), default=after)
        begin, end = max(first, since), min(self._minute, after)
        if begin >= end:
            return _UNKNOWN
        counts, place = self._counts.get((group, topic_id), _NOTHING), first % SPARK_MINUTES
        in_order = (counts[place:] + counts[:place])[begin - first : end - first]
        return (*_UNKNOWN[: begin - first], *in_order, *_UNKNOWN[: after - end])

    def _add(self, key: SharePartitionKey, minute: int, finished: int) -> None:
        place = key.group_id, key.topic_id
        counts = self._counts.get(place)
        if counts is None:
            counts = self._counts[place] = array("Q", bytes(8 * SPARK_MINUTES))
        counts[minute % SPARK_MINUTES] += finished

    def _clear(self) -> None:
        self._marks, self._counts, self._since, self._minute = {}, {}, {}, None
