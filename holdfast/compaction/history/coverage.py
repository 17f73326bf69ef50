"""Up to which offset the history covers each log partition, and where it has a gap.

The history states this itself, by a small file of each job beside its rows. No committed offset can: a job commits also while it
keeps no history, and Kafka forgets what a group committed. For each log partition the file names the offset below which every
change is in the history, from its first row on and but for its gaps; of several files the highest offset holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple


class Stretch(NamedTuple):
    """Offsets of a log partition that a batch read, with none missing between them."""

    first_offset: int
    end: int  #: exclusive
    timestamp_ms: int  #: of the first record


class Interval(NamedTuple):
    """Offsets of a log partition whose changes are in the history."""

    log_partition: int
    first_offset: int
    last_offset: int  #: inclusive


class CoverageGap(NamedTuple):
    """Lost changes of a log partition: those below an offset and behind the ones in the history."""

    log_partition: int
    end: int
    timestamp_ms: int  #: of the record at `end`


class Coverage:
    """What one history covers, batch by batch.

    Args:
        covered: offset by log partition, exclusive, below which every change is in the history; no entry: none is.
        unfinished: changes at or above these offsets that are in the history all the same, from a batch that was not finished.
    """

    def __init__(self, covered: Mapping[int, int], unfinished: Iterable[Interval] = ()) -> None:
        self.covered = dict(covered)
        self._unfinished = list(unfinished)

    def begin_at(self, starts: Mapping[int, int]) -> dict[int, int]:
        """Let log partitions that the history does not cover begin where the log starts; returns those, with these offsets.

        Written down before anything is read, it makes a gap of what is pruned behind it, also for another job that begins later.
        """
        begins = {
            log_partition: offset for log_partition, offset in starts.items() if log_partition not in self.covered
        }
        self.covered |= begins
        return begins

    def gaps(self, read: Mapping[int, Sequence[Stretch]]) -> list[CoverageGap]:
        """Return the gaps in front of what a batch read: stretches with ascending offsets.

        A log partition that was not covered so far begins with the batch; that is no gap.
        """
        found = []
        for log_partition, stretches in read.items():
            expected = self.covered.get(log_partition)
            for stretch in stretches:
                if expected is not None and stretch.first_offset > expected:
                    found.append(CoverageGap(log_partition, stretch.first_offset, stretch.timestamp_ms))
                expected = max(stretch.end, expected or 0)
        return found

    def lags(self, folded: Mapping[int, int], starts: Mapping[int, int]) -> bool:
        """Tell whether the log still holds something that a job has folded and the history lacks.

        Args:
            folded: offset by log partition, exclusive, up to which the job has folded it.
            starts: where each log partition starts.
        """
        return any(
            max(self.covered.get(log_partition, 0), starts.get(log_partition, 0)) < offset
            for log_partition, offset in folded.items()
        )

    def known(self, read: Mapping[int, Sequence[Stretch]]) -> list[Interval]:
        """Return what a batch need not write, because it is in the history already."""
        known = [
            Interval(log_partition, 0, self.covered[log_partition] - 1)
            for log_partition, stretches in read.items()
            if stretches[0].first_offset < self.covered.get(log_partition, 0)
        ]
        known += [
            interval
            for interval in self._unfinished
            if interval.log_partition in read and read[interval.log_partition][0].first_offset <= interval.last_offset
        ]
        return known

    def raise_to(self, covered: Mapping[int, int]) -> None:
        """Add what another job covers."""
        for log_partition, offset in covered.items():
            self.covered[log_partition] = max(offset, self.covered.get(log_partition, 0))

    def add(self, read: Mapping[int, Sequence[Stretch]]) -> None:
        """Add a batch that is in the history by now."""
        self.raise_to({log_partition: stretches[-1].end for log_partition, stretches in read.items()})


def find_stretches(offsets: Sequence[int], timestamps_ms: Sequence[int]) -> list[Stretch]:
    """Return the stretches of ascending offsets."""
    if not offsets:
        return []
    starts = [0]
    if offsets[-1] - offsets[0] >= len(offsets):
        starts += [index + 1 for index, (former, later) in enumerate(pairwise(offsets)) if later != former + 1]
    ends = [*starts[1:], len(offsets)]
    return [
        Stretch(offsets[start], offsets[end - 1] + 1, timestamps_ms[start])
        for start, end in zip(starts, ends, strict=True)
    ]
