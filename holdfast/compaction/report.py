"""What one batch of the job came to."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReport:
    """What the job knows of one log partition after a batch."""

    log_partition: int
    #: Offset of the record to be folded next; the group's committed offset once Spark has this batch behind it.
    next_offset: int
    #: Of the last counting record folded.
    covered_offset: int
    live_count: int
    #: Share partitions whose base was cut off the log; no manifest is written meanwhile.
    waiting_count: int
    #: Of this batch: records read, those that do not count, those of an unknown type.
    records: int
    void_records: int
    skipped_records: int
    #: Whether the job knew nothing of this log partition before.
    is_new: bool = False
    #: Offset from which the fold began afresh, because the log was cut behind it.
    cut_at: int | None = None
    #: Why the fold of this log partition stands still, and the offset in its way.
    stopped_reason: str | None = None
    stopped_offset: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    """What one batch read, folded and wrote."""

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
    #: Of the log partitions that had records in this batch.
    partitions: tuple[PartitionReport, ...]
