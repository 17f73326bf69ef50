"""How many records one batch takes in, so that its bytes stay within a bound whatever the size of records."""

from __future__ import annotations

from typing import Final

from holdfast.compaction.report import BatchReport

RECORDS_MIN: Final = 1_000
#: A batch with fewer of the bytes allowed is a reason to take in more; far enough from the bound, so that it does not swing.
_FEW: Final = 0.25


class Pace:
    """Follow the size of records.

    Args:
        records_max: never more records than that in a batch.
        bytes_max: keys and values of a batch; one that has more was the last of its size.
    """

    def __init__(self, records_max: int, bytes_max: int) -> None:
        self._records_max = records_max
        self._bytes_max = bytes_max
        #: Records that a batch takes in at most.
        self.records = records_max

    def adapt(self, report: BatchReport) -> bool:
        """Learn from a batch; returns whether `records` is another number now."""
        before = self.records
        if report.bytes_in > self._bytes_max:
            fit = report.records * self._bytes_max // report.bytes_in
            self.records = min(before, max(RECORDS_MIN, fit))
        elif report.bytes_in < self._bytes_max * _FEW and report.records > before // 2:
            self.records = min(self._records_max, before * 2)
        return self.records != before
