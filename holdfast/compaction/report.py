"""The report of one batch of the job."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReport:
    """The fold of one log partition after a batch."""

    log_partition: int
    #: Offset of the record to be folded next; the group's committed offset once Spark has finished this batch.
    next_offset: int
    #: Offset of the last counting record folded.
    covered_offset: int
    live_count: int
    #: Share partitions whose base snapshot was pruned from the log; no manifest is written meanwhile.
    waiting_count: int
    #: Records read in this batch, those of them that do not count, and those of an unknown type.
    records: int
    void_records: int
    skipped_records: int
    #: Whether the job knew nothing of this log partition before.
    is_new: bool = False
    #: Offset from which the fold began again, because the log was pruned past the job.
    cut_at: int | None = None
    #: Why the fold of this log partition is stopped, and the offset of the record that stopped it.
    stopped_reason: str | None = None
    stopped_offset: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    """Counts and durations of one batch."""

    batch_id: int
    #: Unpadded base64url.
    state_topic_id: str
    #: Of the whole batch, and of its steps.
    duration_ms: float
    fold_ms: float
    snapshots_ms: float
    history_ms: float
    records: int
    #: Keys and values of the records read.
    bytes_in: int
    #: Keys and values of the entries and manifests written.
    bytes_out: int
    entries: int
    manifests: int
    history_rows: int
    #: End of the log minus next offset, by log partition; as of the end of the batch.
    lag: dict[int, int]
    #: The log partitions that had records in this batch.
    partitions: tuple[PartitionReport, ...]
    #: What Spark says of the batch before this one, 0 in the first: rows of the state store, of all log partitions; its memory, native
    #: and in Java; its files; the time in which it was committed; and the time in which the source looked up what there is to read.
    state_rows: int = 0
    state_memory_bytes: int = 0
    state_file_bytes: int = 0
    state_commit_ms: int = 0
    source_ms: int = 0


def progress_fields(progress: Mapping[str, Any]) -> dict[str, int]:
    """Return the fields of a report that come from Spark's `StreamingQueryProgress`, as JSON; without what it does not say."""
    durations = progress.get("durationMs") or {}
    fields = {"source_ms": sum(durations.get(step, 0) for step in ("latestOffset", "getBatch"))}
    # The query has one stateful operator, and none in a batch without records.
    for state in progress.get("stateOperators") or ():
        fields |= {
            "state_rows": state.get("numRowsTotal", 0),
            "state_memory_bytes": state.get("memoryUsedBytes", 0),
            "state_file_bytes": (state.get("customMetrics") or {}).get("rocksdbSstFileSize", 0),
            "state_commit_ms": state.get("commitTimeMs", 0),
        }
    return {name: int(value) for name, value in fields.items()}
