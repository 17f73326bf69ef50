"""What the batches of a run come to together, and their reports as JSON."""

from __future__ import annotations

import json

import pytest

from holdfast.compaction.progress import RunProgress, from_json, to_json
from holdfast.compaction.report import progress_fields
from holdfast.daemon.snapshots.job_metrics import JobMetrics
from holdfast.metrics.registry import Registry
from tests.pure.compaction.reports import batch, partition


def test_a_report_goes_through_json_and_back() -> None:
    report = batch(partition(3), partition(4, cut_at=7, stopped_reason="a record", stopped_offset=9), lag={3: 1, 4: 0})
    assert from_json(json.loads(json.dumps(to_json(report)))) == report


@pytest.mark.parametrize("change", [{"unknown": 1}, {"partitions": [{"log_partition": 1}]}])
def test_a_report_of_another_version_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(TypeError):
        from_json(to_json(batch()) | change)


def test_a_run_is_the_sum_of_its_batches_and_the_last_of_each_partition() -> None:
    progress = RunProgress()
    assert (progress.records_per_second, progress.compaction_ratio, progress.keys) == (0, 0, 0)
    progress.take(batch(partition(0, live_count=5), partition(1, live_count=7, waiting_count=2)))
    progress.take(batch(partition(1, live_count=6, waiting_count=1), bytes_out=0, records=50))
    assert progress.totals.batches == 2
    assert progress.totals.records == 150
    assert progress.keys == 11
    assert progress.waiting_count == 1
    assert progress.records_per_second == 100
    assert progress.compaction_ratio == 10
    assert progress.stopped == []
    progress.take(batch(partition(0, stopped_reason="version 9", stopped_offset=3)))
    assert [found.log_partition for found in progress.stopped] == [0]


#: As Spark says it, without what is not used.
OF_SPARK = {
    "durationMs": {"addBatch": 400, "getBatch": 2, "latestOffset": 10, "triggerExecution": 500},
    "stateOperators": [
        {"numRowsTotal": 24, "memoryUsedBytes": 5_000, "commitTimeMs": 90, "customMetrics": {"rocksdbSstFileSize": 700}}
    ],
}


def test_a_batch_of_which_spark_says_little_has_what_it_says() -> None:
    assert progress_fields({}) == {"source_ms": 0}
    assert progress_fields({"durationMs": {"latestOffset": 4}, "stateOperators": []}) == {"source_ms": 4}


def test_a_recreated_topic_has_none_of_the_keys_of_the_former() -> None:
    progress = RunProgress()
    progress.take(batch(partition(0, live_count=5)))
    progress.take(batch(partition(1, live_count=7), state_topic_id="another"))
    assert progress.keys == 7


def test_metrics_follow_the_reports_and_survive_a_partition_that_is_given_up() -> None:
    registry = Registry()
    metrics, progress = JobMetrics(registry), RunProgress()
    for report in (
        batch(partition(0, cut_at=4), lag={0: 5, 1: 6}),
        batch(partition(1, stopped_reason="version 9", stopped_offset=3), lag={1: 2}, **progress_fields(OF_SPARK)),
    ):
        progress.take(report)
        metrics.take(report, progress)
        registry.remove(partition=0)
    numbers = dict(registry.numbers())
    assert numbers["holdfast_compaction_records_total"] == 200
    assert numbers["holdfast_compaction_read_bytes_total"] == 20_000
    assert numbers["holdfast_compaction_written_bytes_total"] == 4_000
    assert numbers["holdfast_compaction_ratio"] == 5
    assert numbers["holdfast_compaction_entries_total"] == 36
    assert numbers["holdfast_compaction_manifests_total"] == 2
    assert numbers["holdfast_compaction_history_rows_total"] == 198
    assert numbers["holdfast_compaction_state_rows"] == 24
    assert numbers["holdfast_compaction_state_memory_bytes"] == 5_000
    assert numbers["holdfast_compaction_state_file_bytes"] == 700
    assert numbers["holdfast_compaction_state_commit_time_seconds"] == 0.09
    assert numbers["holdfast_compaction_source_time_seconds"] == 0.012
    assert numbers["holdfast_compaction_share_partitions"] == 40
    assert numbers["holdfast_compaction_cuts_total"] == 1
    assert numbers["holdfast_compaction_partitions_stopped"] == 1
    assert (
        numbers["holdfast_compaction_batch_time_seconds_sum"]
        == 0.5 * numbers["holdfast_compaction_batch_time_seconds_count"]
    )
    assert numbers["holdfast_compaction_lag_records{partition=1}"] == 2
    assert "holdfast_compaction_lag_records{partition=0}" not in numbers


def test_gauges_of_a_job_that_another_node_runs_now_are_as_before_its_first_batch() -> None:
    registry = Registry()
    metrics, progress = JobMetrics(registry), RunProgress()
    unused = dict(registry.numbers())
    report = batch(partition(1, stopped_reason="version 9", stopped_offset=3), lag={1: 2}, **progress_fields(OF_SPARK))
    progress.take(report)
    metrics.take(report, progress)
    counted = dict(registry.numbers())
    metrics.forget()
    for name, value in registry.numbers():
        is_counter = name.endswith(("_total", "_count", "_sum", "_p50", "_p99"))
        assert value == (counted if is_counter else unused)[name], name
    assert "holdfast_compaction_lag_records{partition=1}" not in dict(registry.numbers())
