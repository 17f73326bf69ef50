"""A checkpoint directory that was moved ends the job with a line, and a link where it was lets the job go on."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

pytest.importorskip("pyspark")

from holdfast.compaction.errors import CompactionError
from tests.pure.records.logs import LogWriter
from tests.real.job.folded_logs import FoldedLogs
from tests.real.job.test_compaction import assert_as_loaded
from tests.real.shared_kafka import NewTopicFactory

pytestmark = [
    pytest.mark.real,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"),
]


def test_a_moved_checkpoint_is_refused_and_with_a_link_taken_over(
    kafka: str, new_topic: NewTopicFactory, tmp_path: Path
) -> None:
    logs = FoldedLogs(kafka, new_topic(2), new_topic(2, cleanup_policy="compact"), tmp_path, 2)
    logs.random = Random("moved")
    logs.logs = [LogWriter(Random(f"moved/{number}")) for number in range(2)]
    logs.grow(60)
    newest = logs.fold()[-1].batch_id
    before = Path(logs.config.checkpoint_dir)
    after = before.with_name("moved")
    before.rename(after)
    logs.config = replace(logs.config, checkpoint_dir=str(after))
    folded = [len(log.records) for log in logs.logs]
    logs.grow(90)
    with pytest.raises(
        CompactionError, match=rf"^The checkpoint in {re.escape(str(after))}/\S+ was moved: it names file:{before}/"
    ):
        logs.fold()
    (about,) = after.glob("*/v1/query/state/0/_metadata/v2/0")
    whole = about.read_text()
    about.write_text(whole.replace(f"file:{before}", "hdfs://nowhere/checkpoint"))
    with pytest.raises(CompactionError, match=r" was moved: it names hdfs://nowhere/checkpoint/"):
        logs.fold()
    about.write_text(whole)
    before.symlink_to(after)
    reports = logs.fold()
    assert reports[0].batch_id == newest + 1, "it went on from the checkpoint"
    assert sum(report.records for report in reports) == sum(len(log.records) for log in logs.logs) - sum(folded)
    assert_as_loaded(logs)
