"""The leader epochs of the records that a share partition was brought, by which a broker tells whether its log is still the same.

A reader that begins anywhere but at the end of what it read knows no epoch. Epochs ascend with offsets, so two records of one epoch have
no other between them, and a few numbers tell the epoch of all that was brought.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from holdfast.kafka.records.batches import Batch

#: Epochs that are remembered, the newest: each is an election of the partition.
_EPOCHS_MAX: Final = 16


@final
class LeaderEpochs:
    """The epochs of records, as far as they were brought."""

    __slots__ = ("_ranges",)

    def __init__(self) -> None:
        #: First and last offset of the record batches that were brought of each epoch.
        self._ranges: dict[int, tuple[int, int]] = {}

    def learn(self, batches: Sequence[Batch]) -> None:
        """Learn the epochs of batches that follow one another."""
        first, last = batches[0], batches[-1]
        if first.leader_epoch == last.leader_epoch:
            self._add(first.leader_epoch, first.base_offset, last.last_offset)
        else:
            for batch in batches:
                self._add(batch.leader_epoch, batch.base_offset, batch.last_offset)

    def before(self, offset: int) -> int:
        """Return the epoch of the record below an offset; -1: it is not known."""
        for epoch, (first, last) in self._ranges.items():
            if first < offset <= last + 1:
                return epoch
        return -1

    def cut(self, end_offset: int) -> None:
        """Forget all from an offset on: the log has other records there."""
        ranges = {epoch: (first, min(last, end_offset - 1)) for epoch, (first, last) in self._ranges.items()}
        self._ranges = {epoch: each for epoch, each in ranges.items() if each[0] <= each[1]}

    def _add(self, epoch: int, first: int, last: int) -> None:
        if epoch < 0:
            return
        ranges = self._ranges
        known = ranges.get(epoch)
        if known is not None:
            first, last = min(first, known[0]), max(last, known[1])
        elif len(ranges) == _EPOCHS_MAX:
            del ranges[min(ranges)]
        ranges[epoch] = first, last
