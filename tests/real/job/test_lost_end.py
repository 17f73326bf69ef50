"""A broker that comes back without the end of its log, which a job had read: the job sees it, although the log has grown over it."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

import structlog
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from holdfast.broker import EmbeddedKafka
from holdfast.compaction.group import topics_of
from holdfast.records.share.snapshot_store.folding import NEW, fold
from tests.pure.records.logs import DictStore
from tests.real.job.folded_logs import FoldedLogs
from tests.real.job.test_compaction import assert_as_loaded
from tests.real.quick_java import QUICK_KAFKA
from tests.waiting import PATIENCE_S

pytestmark = [
    pytest.mark.real,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"),
]

COUNT = 2
STATE = {"cleanup.policy": "delete", "retention.ms": "-1"}


def segments_of(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("state-*/*.log")}


def put_back(directory: Path, segments: dict[Path, bytes]) -> None:
    """Give the broker the segments of an earlier time; what it keeps beside them it makes again."""
    for path in directory.rglob("state-*/*"):
        if path in segments:
            path.write_bytes(segments[path])
        elif path.name != "partition.metadata":
            path.unlink()


def newest_manifests(logs: FoldedLogs) -> list[bytes]:
    return [entries._manifests[entries.manifest_offsets()[0]] for entries in logs.snapshots()]


def manifests_of_whole_logs(logs: FoldedLogs) -> list[bytes]:
    found = []
    for number, log in enumerate(logs.logs):
        folded = fold(logs.state_topic_id(), number, COUNT, NEW, DictStore(), log.kept())
        assert folded.manifest is not None
        found.append(folded.manifest[1])
    return found


def test_a_log_that_lost_its_end_and_grew_over_it_is_folded_from_its_start(tmp_path: Path) -> None:
    with EmbeddedKafka(data_dir=tmp_path / "kafka", jvm_options=QUICK_KAFKA) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        snapshots = NewTopic("snapshots", COUNT, 1, config={"cleanup.policy": "compact"})
        for made in admin.create_topics([NewTopic("state", COUNT, 1, config=STATE), snapshots]).values():
            made.result(PATIENCE_S)
        logs = FoldedLogs(kafka.bootstrap_servers, "state", "snapshots", tmp_path, COUNT)
        logs.grow(40)
        kept, segments = logs.copies(), segments_of(tmp_path)
        logs.grow(20)
        logs.fold()
        read_to = logs.committed()
        assert newest_manifests(logs) == manifests_of_whole_logs(logs)

        kafka.stop()
        put_back(tmp_path, segments)
        kafka.restart()
        logs.lose_end(kept)
        logs.grow(90)
        assert all(len(log.records) > end for log, end in zip(logs.logs, read_to, strict=True))
        with structlog.testing.capture_logs() as lines:
            logs.fold()
        (line,) = [line for line in lines if line["event"] == "log_end_lost"]
        assert line["offset"] == read_to[line["log_partition"]] - 1
        assert newest_manifests(logs) == manifests_of_whole_logs(logs)

        logs.cut()  # what was written of the lost end lies below the log's start then
        logs.fold()
        assert_as_loaded(logs)


def test_single_records_are_read_and_those_that_the_log_does_not_hold_are_missing(tmp_path: Path) -> None:
    with EmbeddedKafka(data_dir=tmp_path / "kafka", jvm_options=QUICK_KAFKA) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        for made in admin.create_topics([NewTopic("state", COUNT, 1), NewTopic("snapshots", COUNT, 1)]).values():
            made.result(PATIENCE_S)
        logs = FoldedLogs(kafka.bootstrap_servers, "state", "snapshots", tmp_path, COUNT)
        logs.grow(10)
        logs.cut()
        log, other = logs.logs
        last, start = len(log.records) - 1, log.log_start
        places = [(0, start - 1), (0, start), (0, last), (0, last + 1), (1, len(other.records) - 1)]
        assert topics_of(logs.config).read_records(places) == {
            0: {start: log.records[start], last: log.records[last]},
            1: {len(other.records) - 1: other.records[-1]},
        }
