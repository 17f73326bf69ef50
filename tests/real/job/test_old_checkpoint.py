"""A checkpoint that an earlier Spark wrote is taken over by this one.

`checkpoint-spark-4.0.5.tar.gz` is what a job on PySpark 4.0.5 left of the logs that `logs_of_the_checkpoint` begins with, and their
topic's id is the name of its directory.
"""

from __future__ import annotations

import re
import tarfile
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

pytest.importorskip("pyspark")

from holdfast.compaction.topics import Topics
from holdfast.kafka.librdkafka import DescribedTopic
from holdfast.kafka.topic_ids import parse_topic_id
from tests.pure.records.logs import LogWriter
from tests.real.job.folded_logs import FoldedLogs
from tests.real.job.test_compaction import assert_as_loaded
from tests.real.shared_kafka import NewTopicFactory

ARCHIVE = Path(__file__).with_name("checkpoint-spark-4.0.5.tar.gz")
SEED = "checkpoint of Spark 4.0"
#: Name of the topic when it was written.
FORMER_NAME = "state"

pytestmark = [
    pytest.mark.real,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"),
]


def logs_of_the_checkpoint(kafka: str, new_topic: NewTopicFactory, directory: Path) -> FoldedLogs:
    logs = FoldedLogs(kafka, new_topic(2), new_topic(2, cleanup_policy="compact"), directory, 2)
    logs.config = replace(logs.config, history_dir="")
    logs.random = Random(SEED)
    logs.logs = [LogWriter(Random(f"{SEED}/{number}")) for number in range(2)]
    logs.grow(60)
    return logs


def test_a_checkpoint_of_spark_4_0_is_taken_over(
    kafka: str, new_topic: NewTopicFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = logs_of_the_checkpoint(kafka, new_topic, tmp_path)
    checkpoint_dir = Path(logs.config.checkpoint_dir)
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(checkpoint_dir, filter="data")
    (former,) = checkpoint_dir.iterdir()
    plans = [path for path in former.glob("v1/query/offsets/*") if path.name.isdecimal()]
    for plan in plans:
        plan.write_text(plan.read_text().replace(f'"{FORMER_NAME}"', f'"{logs.config.state_topic}"'))
    # Spark keeps the whole path of a schema of its state, so the checkpoint names the directory in which it was written.
    for about in former.glob("v1/query/state/*/_metadata/v2/0"):
        about.write_text(re.sub(rf'"file:[^"]*(?=/{former.name}/)', f'"file:{checkpoint_dir}', about.read_text()))
    describe = Topics.describe

    def describe_as_before(topics: Topics, name: str) -> DescribedTopic | None:
        found = describe(topics, name)
        is_state_topic = found is not None and name == logs.config.state_topic
        return found._replace(topic_id=parse_topic_id(former.name)) if found and is_state_topic else found

    monkeypatch.setattr(Topics, "describe", describe_as_before)
    folded = [len(log.records) for log in logs.logs]
    logs.grow(90)
    reports = logs.fold()
    assert reports[0].batch_id == len(plans), "it went on from the checkpoint"
    assert sum(report.records for report in reports) == sum(len(log.records) for log in logs.logs) - sum(folded)
    assert_as_loaded(logs)
