"""Which prefix of a log partition nobody needs any more.

Every live key's newest snapshot, and so every update it needs, lies at or above the smallest offset kept here. It is
fed with committed records only, so it never goes back.

Source: the offsets tracker of Apache Kafka 4.3.1, as recorded in the offsets vectors.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator

from holdfast.records.keys import SharePartitionKey


class RedundantOffsetTracker:
    """Track the offset of each live key's newest snapshot in one log partition."""

    def __init__(self) -> None:
        #: Live key to the offset of its newest snapshot, in ascending order of offsets.
        self._offsets: OrderedDict[SharePartitionKey, int] = OrderedDict()
        #: Smallest offset still needed as of the latest snapshot record, that record included; None before the first.
        self._needed: int | None = None

    def __len__(self) -> int:
        return len(self._offsets)

    def begin_with(self, offsets: Iterable[tuple[SharePartitionKey, int]]) -> None:
        """Begin with live keys and the offsets of their newest snapshots, ascending, as if all had been told to `update`."""
        self._offsets = OrderedDict(offsets)
        self._needed = next(iter(self._offsets.values()), None)

    def update(self, key: SharePartitionKey, offset: int, is_tombstone: bool) -> None:
        """Take note of a snapshot or a tombstone of `key` at `offset`, which is above all offsets before."""
        offsets = self._offsets
        offsets[key] = offset
        offsets.move_to_end(key)
        self._needed = next(iter(offsets.values()))
        if is_tombstone:
            # The tombstone itself still counts above, as in Kafka; a deleted key must not hold the offset back after
            # that.
            del offsets[key]

    def last_redundant_offset(self) -> int | None:
        """Return the offset below which no record is needed, or None when nothing can go.

        It moves with snapshots and tombstones only: after a tombstone it still names that record at most.
        """
        return self._needed or None

    def newest_snapshot_offset(self, key: SharePartitionKey) -> int | None:
        """Return the offset of the newest snapshot of `key`, or None when the key is not live."""
        return self._offsets.get(key)

    def oldest(self) -> tuple[SharePartitionKey, int] | None:
        """Return the live key in the way of pruning and its newest snapshot's offset, or None without live keys."""
        return next(iter(self._offsets.items()), None)

    def below(self, offset: int) -> Iterator[SharePartitionKey]:
        """Yield the live keys whose newest snapshot lies below `offset`, oldest first; nothing may change meanwhile."""
        for key, newest in self._offsets.items():
            if newest >= offset:
                return
            yield key
