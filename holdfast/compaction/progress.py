"""The progress of a run of the job: its batch reports as JSON and back, and their sums."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, NamedTuple

from holdfast.compaction.report import BatchReport, PartitionReport


def to_json(report: BatchReport) -> dict[str, Any]:
    """Return a report as a value for JSON."""
    return asdict(report)


def from_json(data: Mapping[str, Any]) -> BatchReport:
    """Return the report that `to_json` was given, also after it went through JSON text.

    Raises:
        TypeError: it has other fields, as one of another version may.
    """
    lag = {int(partition): behind for partition, behind in data["lag"].items()}
    partitions = tuple(PartitionReport(**partition) for partition in data["partitions"])
    return BatchReport(**{**data, "lag": lag, "partitions": partitions})


class Totals(NamedTuple):
    """Sums over all batches of a run."""

    batches: int
    records: int
    bytes_in: int
    bytes_out: int
    entries: int
    manifests: int
    history_rows: int


class RunProgress:
    """The progress of one run of the job, from the reports of its batches."""

    def __init__(self) -> None:
        #: Offsets of the log that the job had not folded when the run began; None: not known yet.
        self.offsets_to_fold: int | None = None
        self.totals = Totals(0, 0, 0, 0, 0, 0, 0)
        self.last: BatchReport | None = None
        self._partitions: dict[int, PartitionReport] = {}

    def take(self, report: BatchReport) -> None:
        """Add the report of the next batch."""
        if self.last is not None and self.last.state_topic_id != report.state_topic_id:
            self._partitions.clear()  # the topic was recreated
        self.last = report
        self._partitions |= {partition.log_partition: partition for partition in report.partitions}
        before = self.totals
        self.totals = Totals(
            before.batches + 1,
            before.records + report.records,
            before.bytes_in + report.bytes_in,
            before.bytes_out + report.bytes_out,
            before.entries + report.entries,
            before.manifests + report.manifests,
            before.history_rows + report.history_rows,
        )

    @property
    def keys(self) -> int:
        """Live share partitions in all log partitions reported so far."""
        return sum(partition.live_count for partition in self._partitions.values())

    @property
    def stopped(self) -> list[PartitionReport]:
        """The log partitions whose fold is stopped, by number."""
        found = [partition for partition in self._partitions.values() if partition.stopped_reason is not None]
        return sorted(found, key=lambda partition: partition.log_partition)

    @property
    def waiting_count(self) -> int:
        """Share partitions whose base snapshot was pruned from the log."""
        return sum(partition.waiting_count for partition in self._partitions.values())

    @property
    def records_per_second(self) -> float:
        """Records of the last batch by its duration."""
        return 0.0 if self.last is None else self.last.records * 1_000 / max(self.last.duration_ms, 1)

    @property
    def compaction_ratio(self) -> float:
        """Bytes of the log read for each byte written to the snapshot topic; 0 before anything was written."""
        return self.totals.bytes_in / self.totals.bytes_out if self.totals.bytes_out else 0.0
