"""The number of records in a batch, so that its bytes stay within a bound whatever the size of records."""

from __future__ import annotations

from typing import Final

from holdfast.compaction.report import BatchReport

RECORDS_MIN: Final = 1_000
#: Share of `bytes_max` below which batches grow; far enough from the bound, so that their size does not swing.
_FEW: Final = 0.25


class BatchSizer:
    """The bound of records in a batch, which follows the size of the records.

    Args:
        records_max: upper bound of `records`.
        bytes_max: keys and values of a batch; after one with more, `records` falls.
    """

    def __init__(self, records_max: int, bytes_max: int) -> None:
        self._records_max = records_max
        self._bytes_max = bytes_max
        #: Records that a batch takes in at most.
        self.records = records_max

    def adapt(self, report: BatchReport) -> bool:
        """Adapt to the report of a batch; returns whether `records` has changed."""
        before = self.records
        if report.bytes_in > self._bytes_max:
            fit = report.records * self._bytes_max // report.bytes_in
            self.records = min(before, max(RECORDS_MIN, fit))
        elif report.bytes_in < self._bytes_max * _FEW and report.records > before // 2:
            self.records = min(self._records_max, before * 2)
        return self.records != before
