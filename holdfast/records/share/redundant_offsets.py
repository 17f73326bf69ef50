"""Which prefix of a log partition is not needed any more.

Every live key's newest snapshot, and so every update it needs, lies at or above the smallest offset kept here. It is
fed with committed records only, so it never goes back.

Source: the offsets tracker of Apache Kafka 4.3.1, as recorded in the offsets vectors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from holdfast.records.native import twins
from holdfast.records.share.keys import SharePartitionKey


class RedundantOffsetTracker:
    """Track the offset of each live key's newest snapshot in one log partition."""

    def __init__(self) -> None:
        #: Live key to the offset of its newest snapshot, in ascending order of offsets. In a dictionary that keeps an order of its own
        #: an entry would take 56 bytes more; this one passes over what was removed, half of its entries at most.
        self._offsets: dict[SharePartitionKey, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def begin_with(self, offsets: Iterable[tuple[SharePartitionKey, int]]) -> None:
        """Begin with live keys and the offsets of their newest snapshots, ascending, as if each had been given to `update`."""
        self._offsets = dict(offsets)
        if twins is not None:
            twins.untrack_map(self._offsets)

    def update(self, key: SharePartitionKey, offset: int, is_tombstone: bool) -> None:
        """Note a snapshot or a tombstone of `key` at `offset`, which is above all offsets before."""
        offsets = self._offsets
        offsets.pop(key, None)
        if not is_tombstone:
            offsets[key] = offset
            if twins is not None:  # keys and numbers are part of no cycle
                twins.untrack_map(offsets)

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

    def discard(self) -> Iterator[None]:
        """Forget one key at each step, until none is left."""
        while self._offsets:
            self._offsets.popitem()
            yield
