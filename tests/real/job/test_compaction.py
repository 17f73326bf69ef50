"""The Spark job on a real broker: what it writes is what a load of the log finds."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from holdfast.compaction import sink
from holdfast.compaction.errors import CompactionError
from holdfast.compaction.group import topics_of
from holdfast.compaction.history.rows import unpack
from holdfast.compaction.history.writer import HistoryWriter
from holdfast.compaction.job import run
from holdfast.compaction.report import BatchReport
from holdfast.compaction.sink import Sink
from holdfast.compaction.spark.files import Directory
from holdfast.compaction.topics import Topics
from holdfast.history.schema import GAP
from holdfast.kafka.topic_ids import format_topic_id, parse_topic_id
from holdfast.page.source import HISTORY, LOG, TimelineView
from holdfast.page.timeline import tell
from holdfast.records.log.header import encode_header
from holdfast.records.share.codecs.codec import peek_kind
from holdfast.records.share.keys import SharePartitionKey
from tests.pure.console.history_writer import Stamped
from tests.pure.page.test_past import folded_log
from tests.pure.records.logs import KEYS
from tests.pure.records.share.snapshot_store.test_folding import load
from tests.real.job.folded_logs import FoldedLogs
from tests.real.page.opened import groups_when, page_of
from tests.real.shared_kafka import NewTopicFactory

pytestmark = [
    pytest.mark.real,
    # PySpark leaves its sockets and those of its workers to the garbage collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"),
]

LogsFactory = Callable[..., FoldedLogs]


@pytest.fixture
def new_logs(kafka: str, new_topic: NewTopicFactory, tmp_path: Path) -> LogsFactory:
    """Give a function that makes topics with so many partitions, and logs for them."""

    def create(count: int) -> FoldedLogs:
        return FoldedLogs(kafka, new_topic(count), new_topic(count, cleanup_policy="compact"), tmp_path, count)

    return create


def assert_as_loaded(logs: FoldedLogs) -> None:
    """The newest manifest of each log partition stands for what a load of the log finds at its end."""
    for log, entries in zip(logs.logs, logs.snapshots(), strict=True):
        position, states, _ = load(log.kept())
        newest = entries.manifest_offsets()[0]
        assert entries.verify(newest, log.log_start) == states
        assert entries.manifest(newest).position == position
    assert logs.committed() == [len(log.records) for log in logs.logs]


def assert_history_holds_each_change_once(logs: FoldedLogs) -> None:
    history = logs.history()
    for number, log in enumerate(logs.logs):
        rows = history[number]
        assert [row["offset"] for row in rows] == load(log.records)[2]
        for row in rows:
            _, key, value, header = log.records[row["offset"]]
            assert (row["key"], row["value"]) == (key, value)
            assert encode_header(row["owner_epoch"], row["sequence"]) == header
            assert row["kind"] == peek_kind(key, value).name.lower()


async def timelines(logs: FoldedLogs, offsets: Sequence[int]) -> list[TimelineView]:
    """Return what the page tells of some offsets of each share partition."""
    config = logs.config
    async with page_of(config.bootstrap_servers, (config.state_topic,), config.history_dir) as page:
        await groups_when(page)
        moment = await page.moment()
        keys = [(key.group_id, format_topic_id(key.topic_id), key.partition) for key in KEYS]
        known = [key for key in keys if key[0] in moment.group_names()]
        return [await page.timeline(*key, offset) for key in known for offset in offsets]


def assert_timelines_are_those_of_the_whole_log(logs: FoldedLogs) -> None:
    """The log and the history tell together what the log told before it was cut."""
    views = asyncio.run(timelines(logs, (0, 5, 20)))
    assert views
    for view in views:
        log, key = (
            logs.logs[view.log_partition],
            SharePartitionKey(view.group, parse_topic_id(view.topic_id), view.partition),
        )
        assert view.reaches_to_offset == log.log_start > 0
        whole, _ = folded_log([Stamped(record, 0) for record in log.records], 0, key, view.offset)
        expected = tell(whole).changes
        assert [change[1:6] + change[7:8] for change in view.changes] == [
            change[1:6] + change[7:8] for change in expected
        ]
        assert [each.source for each in view.changes] == [
            HISTORY if each.log_offset < log.log_start else LOG for each in view.changes
        ]
        assert view.history is not None
        assert view.history.problem == ""
        assert not any("not known" in sentence for sentence in view.unknown)
    assert {each.source for view in views for each in view.changes} == {HISTORY, LOG}


def test_snapshots_and_history_hold_what_a_load_finds_across_batches_restarts_and_lost_state(
    new_logs: LogsFactory,
) -> None:
    logs = new_logs(3)
    logs.grow(200)
    reports = logs.fold()
    assert len(reports) > 1
    assert [report.manifests for report in reports[:-1]] == [0] * (len(reports) - 1), "before the fold was complete"
    assert_as_loaded(logs)

    logs.grow(50)
    (report,) = logs.fold()
    assert report.batch_id == len(reports), "it went on from its checkpoint"
    assert report.lag == dict.fromkeys(range(3), 0)
    assert_as_loaded(logs)

    shutil.rmtree(logs.config.checkpoint_dir)
    rows_before = sum(map(len, logs.history().values()))
    logs.grow(20)
    again = logs.fold()
    assert again[0].batch_id == 0
    rows_added = sum(map(len, logs.history().values())) - rows_before
    assert sum(report.history_rows for report in again) == rows_added, "what a refold leaves out is not counted"
    assert_as_loaded(logs)
    assert_history_holds_each_change_once(logs)

    logs.cut()
    logs.grow(20)
    assert_timelines_are_those_of_the_whole_log(logs)


@pytest.mark.parametrize("kinds", [("offsets",), ("commits",), ("offsets", "commits")], ids="+".join)
def test_a_job_goes_on_where_a_lost_power_left_the_newest_file_empty(
    new_logs: LogsFactory, kinds: tuple[str, ...]
) -> None:
    logs = new_logs(2)
    logs.grow(30)
    batches = len(logs.fold())
    (query,) = Path(logs.config.checkpoint_dir).glob("*/*/query")
    for kind in kinds:
        number = batches if kinds == ("offsets",) else batches - 1
        (query / kind / f".{number}.crc").unlink(missing_ok=True)
        (query / kind / str(number)).write_bytes(b"")
    logs.grow(10)
    logs.fold()
    assert_as_loaded(logs)
    assert_history_holds_each_change_once(logs)


def test_a_cut_log_is_folded_from_its_start(new_logs: LogsFactory) -> None:
    """Whether the job had read what was cut, was behind the cut, or had nothing."""
    logs = new_logs(2)
    logs.grow(100)
    logs.fold()
    logs.grow(20)
    logs.cut()
    logs.grow(5)
    (report,) = logs.fold()
    assert [partition.cut_at for partition in report.partitions] == [log.log_start for log in logs.logs]
    gaps = {number: [row["offset"] for row in rows if row["kind"] == GAP] for number, rows in logs.history().items()}
    assert gaps == {number: [log.log_start] for number, log in enumerate(logs.logs)}
    assert_as_loaded(logs)

    logs.cut()
    shutil.rmtree(logs.config.checkpoint_dir)
    logs.fold()
    assert_as_loaded(logs)


def assert_history_tells_or_names_what_is_lost(logs: FoldedLogs) -> None:
    """Each change is there once, or lies between a gap and the row before it."""
    history = logs.history()
    for number, log in enumerate(logs.logs):
        found = [row["offset"] for row in history[number] if row["kind"] != GAP]
        gaps = [row["offset"] for row in history[number] if row["kind"] == GAP]
        assert len(found) == len(set(found))
        lost = set(load(log.records)[2]) - set(found)
        named = {offset for gap in gaps for offset in range(max((row for row in found if row < gap), default=-1), gap)}
        assert lost <= named


def test_a_log_cut_past_a_job_that_has_lost_its_place_too_leaves_a_gap(new_logs: LogsFactory) -> None:
    """Whether its checkpoint is gone, its fold had stopped, or the history was switched off for a while."""
    logs = new_logs(2)
    logs.grow(60)
    logs.fold()
    logs.grow(30)
    logs.cut()
    shutil.rmtree(logs.config.checkpoint_dir)
    logs.grow(5)
    logs.fold()
    gaps = {number: [row["offset"] for row in rows if row["kind"] == GAP] for number, rows in logs.history().items()}
    assert gaps == {number: [log.log_start] for number, log in enumerate(logs.logs)}
    assert_history_tells_or_names_what_is_lost(logs)

    logs.grow(30)
    logs.fold(replace(logs.config, history_dir=""))
    logs.grow(5)
    logs.fold()
    gaps_after = [len([row for row in rows if row["kind"] == GAP]) for rows in logs.history().values()]
    assert gaps_after == [1, 1], "the log still holds what was folded without a history"
    assert_history_tells_or_names_what_is_lost(logs)

    logs.grow(30)
    logs.fold(replace(logs.config, history_dir=""))
    logs.cut()
    logs.grow(5)
    logs.fold()
    assert {number: rows[-1]["offset"] for number, rows in logs.history().items()} == {
        number: load(log.records)[2][-1] for number, log in enumerate(logs.logs)
    }
    assert_history_tells_or_names_what_is_lost(logs)


def test_a_batch_that_dies_between_any_two_steps_is_repeated_and_nothing_is_there_twice(
    new_logs: LogsFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = new_logs(2)
    logs.grow(30)
    logs.fold()
    for step_class, step in ((Topics, "write"), (HistoryWriter, "write"), (Directory, "move"), (Topics, "commit")):
        logs.grow(10)
        with monkeypatch.context() as patch:
            patch.setattr(step_class, step, die)
            with pytest.raises(CompactionError, match="killed here"):
                logs.fold()
        logs.fold()
        assert_as_loaded(logs)
    assert_history_holds_each_change_once(logs)


def test_a_batch_that_dies_between_two_days_loses_nothing_though_the_clock_went_back_and_the_checkpoint_is_lost(
    new_logs: LogsFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest offsets lie in the earlier day, which is put in its place first."""
    logs = new_logs(2)
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    midnight_ms = round(today.timestamp() * 1_000)
    logs.clock_ms = lambda offset: midnight_ms + (1 if offset < 30 else -1) * 60_000
    logs.grow(60)
    move = Directory.move
    moved: list[str] = []

    def dying(directory: Directory, source: str, target: str) -> None:
        if "day=" in source:
            moved.append(source)
            if len(moved) == 2:
                raise OSError("killed here")
        move(directory, source, target)

    with monkeypatch.context() as patch:
        patch.setattr(Directory, "move", dying)
        with pytest.raises(CompactionError, match="killed here"):
            logs.fold()
    days = [(today - timedelta(days=1)).date(), today.date()]
    assert [Path(source).parent.name for source in moved] == [f"day={day.isoformat()}" for day in days]
    seen = {number: len(rows) for number, rows in logs.history().items()}
    shutil.rmtree(logs.config.checkpoint_dir)
    logs.fold()
    assert_as_loaded(logs)
    assert_history_holds_each_change_once(logs)
    assert all(len(logs.history()[number]) > count for number, count in seen.items())


def test_the_group_reads_the_log_from_its_start_on_before_anything_is_folded_and_stays_where_it_is(
    new_logs: LogsFactory,
) -> None:
    logs = new_logs(2)
    logs.grow(60)
    logs.cut()
    topics = topics_of(logs.config)
    in_the_log = topics.offsets_to_fold()
    topics.register()
    starts = [log.log_start for log in logs.logs]
    assert any(starts)
    assert logs.committed() == starts
    assert topics.offsets_to_fold() == in_the_log == sum(topics.ends(2).values()) - sum(starts)
    topics.commit({1: starts[1] + 1})
    topics.register()
    assert logs.committed() == [starts[0], starts[1] + 1]
    assert topics.offsets_to_fold() == in_the_log - 1


def test_the_log_may_be_cut_up_to_a_batch_only_when_spark_will_not_repeat_it(
    new_logs: LogsFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = new_logs(2)
    logs.grow(30)
    logs.fold()
    folded = logs.committed()
    logs.grow(30)

    with monkeypatch.context() as patch:
        patch.setattr(sink, "BatchReport", die)  # it is made when all is written
        with pytest.raises(CompactionError, match="killed here"):
            logs.fold()
    assert logs.committed() == folded
    logs.fold()
    with monkeypatch.context() as patch:
        patch.setattr(Sink, "commit", lambda *_: None)
        logs.grow(30)
        logs.fold()
    assert logs.committed() != [len(log.records) for log in logs.logs]
    logs.fold()
    assert logs.committed() == [len(log.records) for log in logs.logs]
    assert_history_holds_each_change_once(logs)


def die(*_: object, **__: object) -> None:
    raise CompactionError("killed here")


def test_a_record_that_cannot_be_decoded_stops_its_log_partition_alone_until_the_job_starts_again(
    new_logs: LogsFactory,
) -> None:
    logs = new_logs(2)
    logs.grow(20)
    logs.fold()
    offset = logs.break_one(0)
    logs.grow(20)
    (report,) = logs.fold()
    stopped = next(partition for partition in report.partitions if partition.log_partition == 0)
    assert stopped.stopped_offset == offset
    assert stopped.stopped_reason is not None
    assert f"Offset {offset} " in stopped.stopped_reason
    assert logs.committed() == [offset, len(logs.logs[1].records)]
    assert logs.snapshots()[0].manifest_offsets()[0] < offset <= logs.snapshots()[1].manifest_offsets()[0]

    logs.mend_one(0)
    logs.grow(5)
    logs.fold()
    assert_as_loaded(logs)
    assert_history_holds_each_change_once(logs)


def test_two_jobs_agree_and_one_leaves_out_of_the_history_what_the_other_wrote_since_it_began(
    new_logs: LogsFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = new_logs(2)
    other = replace(logs.config, checkpoint_dir=str(tmp_path / "other"), offsets_per_trigger_max=100)
    state_topic_id = logs.state_topic_id()
    write = HistoryWriter.write
    twins: list[HistoryWriter] = []

    def write_twice(writer: HistoryWriter, changes: Iterable[tuple[int, bytes]], *batch: Any) -> int:
        spark = SparkSession.active()
        if not twins:
            twins.append(
                HistoryWriter(spark, logs.config.history_dir, state_topic_id, Directory(spark, str(tmp_path / "twin")))
            )
        twice = list(changes)
        added = write(writer, twice, *batch)
        assert added == sum(len(unpack(packed)) for _, packed in twice) > 0
        assert write(twins[0], twice, *batch) == 0
        return added

    logs.grow(40)
    with monkeypatch.context() as patch:
        patch.setattr(HistoryWriter, "write", write_twice)
        logs.fold()
    assert twins
    (place,) = Path(logs.config.history_dir).glob("state_topic_id=*")
    assert len(list((place / "_covered").glob("*.json"))) == 1
    logs.grow(20)
    logs.fold(other)
    logs.fold()
    assert_as_loaded(logs)
    assert_history_holds_each_change_once(logs)


def test_a_state_topic_that_is_recreated_is_folded_from_nothing(new_logs: LogsFactory) -> None:
    """While the job runs, which then ends its query and begins another one."""
    logs = new_logs(1)
    logs.grow(30)
    stop = Event()
    reports: list[BatchReport] = []

    def on_progress(report: BatchReport) -> None:
        reports.append(report)
        if len({found.state_topic_id for found in reports}) == 2:
            if [partition.next_offset for partition in report.partitions] == [len(logs.logs[0].records)]:
                stop.set()
        elif len(reports) == 1:
            logs.recreate()
            logs.grow(10)

    # Without a pause between its triggers, Spark looks for records as often as two processors can.
    config = replace(logs.config, topic_check_interval_ms=200, trigger_interval_ms=100)
    run(config, topics_of(config), once=False, on_progress=on_progress, stop=stop)
    assert_as_loaded(logs)
