"""What is measured: the job, and two jobs of Spark that read the same log and keep nothing of it."""

import time
from collections.abc import Callable
from typing import Any, Final

from benchmarks.machine import memory_mib
from benchmarks.spark.processes import cpu_used, own_processes
from holdfast.compaction.config import CompactionConfig
from holdfast.compaction.group import topics_of
from holdfast.compaction.job import run
from holdfast.compaction.report import BatchReport
from holdfast.compaction.spark.log_stream import FETCH_WAIT_MS, POLL_RECORDS
from holdfast.compaction.spark.session import make_session

_SUMS: Final = (
    "fold_ms",
    "snapshots_ms",
    "history_ms",
    "entries",
    "manifests",
    "history_rows",
    "bytes_in",
    "bytes_out",
)


def measure_job(config: CompactionConfig) -> dict[str, Any]:
    """Run the job to the log's end; its seconds begin when Spark has started, and end with the last batch."""
    reports: list[BatchReport] = []
    cpu_s: dict[str, Any] = {}
    batches: list[dict[str, float]] = []
    ended = 0.0

    def on_progress(report: BatchReport) -> None:
        nonlocal ended
        ended = time.perf_counter()
        reports.append(report)
        cpu_s.update(cpu_used())
        java, python = own_processes()
        resident = {"java_mib": round(memory_mib(java)), "python_mib": round(memory_mib(python))}
        batches.append({"records": report.records, "seconds": round(report.duration_ms / 1_000, 1), **resident})

    began = time.perf_counter()
    make_session(config)  # the job finds it
    started = time.perf_counter()
    run(config, topics_of(config), once=True, on_progress=on_progress)
    records = sum(report.records for report in reports)
    return {
        "records": records,
        "batches": len(reports),
        "seconds": round(ended - started, 1),
        "batch_seconds": round(sum(report.duration_ms for report in reports) / 1_000, 1),
        "records_per_second": round(records / (ended - started)),
        "with_start_seconds": round(ended - began, 1),
        **cpu_s,
        "each_batch": batches,
        **{name: round(sum(getattr(report, name) for report in reports)) for name in _SUMS},
    }


def measure_quick_floor(config: CompactionConfig) -> dict[str, Any]:
    """Read the log, bring each log partition together, and add up the sizes of its records; no Python takes part.

    It reads by the job's settings of Kafka's consumer: with Spark's own it would wait at the end of each log partition, and a job
    that is compared with it would be rewarded for waiting.
    """
    began = time.perf_counter()
    spark = make_session(config)
    start = time.perf_counter()
    records = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", config.bootstrap_servers)
        .option("subscribe", config.state_topic)
        .option("includeHeaders", "true")
        .option("kafka.fetch.max.wait.ms", str(FETCH_WAIT_MS))
        .option("kafka.max.poll.records", str(POLL_RECORDS))
        .load()
        .repartition(config.state_partitions, "partition")
        .selectExpr("partition", "length(key) + length(value) + length(headers[0].value) AS size")
        .groupBy("partition")
        .agg({"size": "sum", "*": "count"})
    )
    count = sum(row["count(1)"] for row in records.collect())
    ended = time.perf_counter()
    cpu_s = cpu_used()
    spark.stop()
    return {
        "records": count,
        "seconds": round(ended - start, 1),
        "records_per_second": round(count / (ended - start)),
        "with_start_seconds": round(ended - began, 1),
        **cpu_s,
    }


#: By name, in the order in which they take turns.
CONTENDERS: Final[dict[str, Callable[[CompactionConfig], dict[str, Any]]]] = {
    "quick-floor": measure_quick_floor,
    "job": measure_job,
}
