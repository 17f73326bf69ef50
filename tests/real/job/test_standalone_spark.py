"""The job on a Spark cluster: a master and workers on loopback, which get our code from the job alone.

SPARK_WORKERS=2 has two of them (one by default), each of which must have had work.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from holdfast.records.share.batches import ACKNOWLEDGED, StateBatch
from tests.real.job.quick_spark import QUICK, QUICK_JAVA
from tests.real.job.standalone_spark import make_python_without_us, run_holdfast, standalone_spark
from tests.real.nodes import topic_id_of
from tests.real.running_node import make_settings, running
from tests.real.shared_kafka import NewTopicFactory

pytestmark = pytest.mark.real

SHARE_PARTITIONS = 20
UPDATES = 10
WORKERS = int(os.environ.get("SPARK_WORKERS", "1"))


async def test_the_job_runs_on_a_cluster_whose_workers_have_none_of_our_code(
    kafka: str, topic: str, new_topic: NewTopicFactory, tmp_path: Path
) -> None:
    orders = topic_id_of(kafka, new_topic(SHARE_PARTITIONS))
    async with running(make_settings(kafka, topic, **{"share.coordinator.state.topic.num.partitions": 4})) as node:
        for number in range(SHARE_PARTITIONS):
            await node.client.initialize("group", orders, number, 1, 0)
            for turn in range(UPDATES):
                await node.client.write("group", orders, number, 1, 0, turn, [StateBatch(turn, turn, ACKNOWLEDGED, 1)])
    python = make_python_without_us(tmp_path / "python")
    settings = {
        "kafka.bootstrap.servers": kafka,
        "state_topic": topic,
        "snapshots.topic": f"{topic}-snapshots",
        "compaction.group": f"{topic}-job",
        "compaction.checkpoint.dir": tmp_path / "checkpoint",
        "compaction.history.dir": tmp_path / "history",
        "compaction.state.partitions": 2,
        "compaction.worker.start.attempts.max": 100,
        "spark.pyspark.python": python,
        "spark.executor.memory": "512m",
        "spark.executor.cores": 1,
        "spark.cores.max": WORKERS,
        "spark.executor.extraJavaOptions": QUICK_JAVA,
        **QUICK,
    }
    flags = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    with standalone_spark(tmp_path / "spark", WORKERS) as url:
        ended = run_holdfast(tmp_path, "compact", "--once", "--json", "--master", url, *flags)
        assert ended.returncode == 0, ended.stderr[-5_000:]
    reports = [json.loads(line) for line in ended.stdout.splitlines()]
    assert sum(report["entries"] for report in reports) == SHARE_PARTITIONS
    assert sum(report["records"] for report in reports) > SHARE_PARTITIONS * UPDATES
    assert set(reports[-1]["lag"].values()) == {0}
    for number in range(WORKERS):
        assert list((tmp_path / "spark" / f"worker-{number}").glob("app-*/*/holdfast.zip")), (
            f"worker {number} had no work"
        )
    names = ("--state-topic", topic, "--snapshot-topic", f"{topic}-snapshots", "--bootstrap-server", kafka)
    verified = run_holdfast(tmp_path, "snapshots", "verify", *names)
    assert verified.returncode == 0, verified.stderr + verified.stdout
