"""Measure the Spark job: a log of updates folded into entries, manifests and history, beside what Spark takes to read it.

Example: python -m benchmarks.spark --records 1000000 --keys 20000 --cores 2
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.history import Appender, History, write_history
from benchmarks.machine import cpu_seconds
from holdfast.broker import development_kafka
from holdfast.compaction.config import CompactionConfig
from holdfast.compaction.group import topics_of
from holdfast.compaction.job import run
from holdfast.compaction.report import BatchReport
from holdfast.compaction.spark.session import make_session
from holdfast.daemon.settings.by_name import configure
from holdfast.daemon.settings.components.log import LogSettings
from holdfast.daemon.settings.components.snapshots import CompactionSettings
from holdfast.records.checkpoint import Checkpoint
from holdfast.records.codecs.codec import Codec

STATE_TOPIC: Final = "state"
SNAPSHOT_TOPIC: Final = "snapshots"
#: What each way of running measures, in a process of its own.
CONTENDERS: Final = ("floor", "job")


def main(arguments: Sequence[str]) -> int:
    """Run what the command line asks for; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--records", type=int, default=1_000_000, help="updates in the log")
    parser.add_argument("--keys", type=int, default=20_000, help="share partitions")
    parser.add_argument("--log-partitions", type=int, default=50)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--batches", type=int, default=1, help="batches that the job takes, roughly")
    parser.add_argument("--no-history", action="store_true", help="the job writes none")
    parser.add_argument("--contender", choices=CONTENDERS, action="append", help="these (default: all)")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.worker:
        print(json.dumps(_measure(CompactionConfig(**json.loads(options.worker)), options.contender[0])))
        return 0
    with development_kafka() as bootstrap_servers, tempfile.TemporaryDirectory() as scratch:
        _make_log(bootstrap_servers, options)
        for contender in options.contender or CONTENDERS:
            config = configure(
                CompactionConfig,
                CompactionSettings(),
                LogSettings(),
                bootstrap_servers=bootstrap_servers,
                state_topic=STATE_TOPIC,
                snapshot_topic=SNAPSHOT_TOPIC,
                group=contender,
                checkpoint_dir=f"{scratch}/{contender}/checkpoint",
                history_dir="" if options.no_history else f"{scratch}/{contender}/history",
                master=f"local[{options.cores}]",
                state_partitions=options.cores * 4,
                offsets_per_trigger_max=-(-2 * options.records // options.batches),
            )
            command = [sys.executable, "-m", "benchmarks.spark", "--contender", contender, "--worker"]
            done = subprocess.run([*command, json.dumps(asdict(config))], stdout=subprocess.PIPE, check=True)
            print(contender, done.stdout.splitlines()[-1].decode(), flush=True)
    return 0


def _make_log(bootstrap_servers: str, options: argparse.Namespace) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    topics = [
        NewTopic(STATE_TOPIC, options.log_partitions, 1),
        NewTopic(SNAPSHOT_TOPIC, options.log_partitions, 1, config={"cleanup.policy": "compact"}),
    ]
    for made in admin.create_topics(topics).values():
        made.result(30)
    history = History(updates=options.records, keys=options.keys)
    keys = history.share_partitions(bytes(range(16)), 64)
    checkpoint = Checkpoint(1, bytes(16), "a", 1, "cluster", bytes(16), options.log_partitions, None)
    appender = Appender(bootstrap_servers, STATE_TOPIC, options.log_partitions, checkpoint)
    began = time.perf_counter()
    written = write_history(history, keys, Codec.AVRO, appender, options.log_partitions)
    print(f"{written} records written in {time.perf_counter() - began:.0f} s", flush=True)


def _measure(config: CompactionConfig, contender: str) -> dict[str, Any]:
    return _measure_floor(config) if contender == "floor" else _measure_job(config)


def _measure_job(config: CompactionConfig) -> dict[str, Any]:
    reports: list[BatchReport] = []
    cpu_s: dict[str, float] = {}

    def on_progress(report: BatchReport) -> None:
        reports.append(report)
        cpu_s.update(_cpu_s())

    began = time.perf_counter()
    run(config, topics_of(config), once=True, on_progress=on_progress)
    seconds = sum(report.duration_ms for report in reports) / 1_000
    records = sum(report.records for report in reports)
    return {
        "records": records,
        "batches": len(reports),
        "seconds": round(seconds, 1),
        "records_per_second": round(records / seconds),
        "with_start_seconds": round(time.perf_counter() - began, 1),
        **cpu_s,
        **{
            name: round(sum(getattr(report, name) for report in reports))
            for name in (
                "fold_ms",
                "snapshots_ms",
                "history_ms",
                "entries",
                "manifests",
                "history_rows",
                "bytes_in",
                "bytes_out",
            )
        },
    }


def _measure_floor(config: CompactionConfig) -> dict[str, Any]:
    """Read the log, bring each log partition together, and add up the sizes of its records; no Python takes part."""
    began = time.perf_counter()
    spark = make_session(config)
    topics = topics_of(config)
    assert topics.describe(config.state_topic) is not None
    records = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", config.bootstrap_servers)
        .option("subscribe", config.state_topic)
        .option("includeHeaders", "true")
        .load()
        .repartition(config.state_partitions, "partition")
        .selectExpr("partition", "length(key) + length(value) + length(headers[0].value) AS size")
        .groupBy("partition")
        .agg({"size": "sum", "*": "count"})
    )
    start = time.perf_counter()
    count = sum(row["count(1)"] for row in records.collect())
    seconds = time.perf_counter() - start
    cpu_s = _cpu_s()
    spark.stop()
    return {
        "records": count,
        "seconds": round(seconds, 1),
        "records_per_second": round(count / seconds),
        "with_start_seconds": round(time.perf_counter() - began, 1),
        **cpu_s,
    }


def _cpu_s() -> dict[str, float]:
    """Return what this process and all below it have taken so far: Spark's JVM, and Python with its workers."""
    stats = {int(stat.parent.name): stat.read_text().rsplit(")", 1) for stat in Path("/proc").glob("[0-9]*/stat")}
    parents = {process: int(stat[1].split()[1]) for process, stat in stats.items()}
    own = {os.getpid()}
    while more := {child for child, parent in parents.items() if parent in own} - own:
        own |= more
    java = {process for process in own if stats[process][0].endswith("(java")}
    return {"java_cpu_s": round(cpu_seconds(java), 1), "python_cpu_s": round(cpu_seconds(own - java), 1)}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
