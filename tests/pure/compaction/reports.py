"""Reports of batches, for tests."""

from __future__ import annotations

from typing import Any

from holdfast.compaction.report import BatchReport, PartitionReport


def partition(number: int = 0, **fields: Any) -> PartitionReport:
    usual: dict[str, Any] = {
        "next_offset": 101,
        "covered_offset": 100,
        "live_count": 20,
        "waiting_count": 0,
        "records": 100,
        "void_records": 1,
        "skipped_records": 0,
    }
    return PartitionReport(log_partition=number, **(usual | fields))


def batch(*partitions: PartitionReport, **fields: Any) -> BatchReport:
    usual: dict[str, Any] = {
        "batch_id": 1,
        "state_topic_id": "AAECAwQFBgcICQoLDA0ODw",
        "duration_ms": 500.0,
        "fold_ms": 300.0,
        "snapshots_ms": 100.0,
        "history_ms": 50.0,
        "records": 100,
        "bytes_in": 10_000,
        "bytes_out": 2_000,
        "entries": 18,
        "manifests": 1,
        "history_rows": 99,
        "lag": {0: 5},
    }
    return BatchReport(partitions=partitions or (partition(),), **(usual | fields))
