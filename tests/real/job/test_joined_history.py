"""The files of the history are joined by a real Spark while the job folds, dies and starts again."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from holdfast.compaction.history.joining import Joiner, unfinished_batches
from holdfast.compaction.spark.files import Directory
from holdfast.console.sources.history_files import HistoryFiles
from holdfast.console.sources.history_states import KeyFilter, LogChange
from holdfast.history import schema
from holdfast.history.place import HistoryPlace
from tests.real.job.folded_logs import FoldedLogs
from tests.real.job.killed_join import STEPS, Step, command
from tests.real.job.test_compaction import assert_as_loaded, assert_history_holds_each_change_once
from tests.real.job.test_job_failures import long_form
from tests.real.job.test_supervised_job import processes_of
from tests.real.shared_kafka import NewTopicFactory
from tests.waiting import SPARK_PATIENCE_S, block_until

pytestmark = [
    pytest.mark.real,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"),
]

#: Where the rows of some files are there twice, and those of others once.
WORST = Step("remove", schema.DAY, 1)


class KilledHere(BaseException):
    """What a step of a join ends with; the job does not handle it."""


@pytest.fixture
def logs(kafka: str, new_topic: NewTopicFactory, tmp_path: Path) -> FoldedLogs:
    """Give two logs whose records are of two days that are over and of today, by a clock that is set back."""
    logs = FoldedLogs(kafka, new_topic(2), new_topic(2, cleanup_policy="compact"), tmp_path, 2)
    # No broker takes a time that is to come.
    begin = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    days = [round((begin - timedelta(days=back)).timestamp() * 1_000) for back in (2, 1, 2, 0)]
    # Some batches, so each day has some files.
    logs.config = replace(logs.config, offsets_per_trigger_max=100)
    logs.clock_ms = lambda offset: days[offset // 20 % 4]
    return logs


def files_by_day(logs: FoldedLogs) -> dict[str, list[str]]:
    (place,) = Path(logs.config.history_dir).glob("state_topic_id=*")
    return {day.name: sorted(path.name for path in day.glob("*.parquet")) for day in sorted(place.glob("day=*"))}


def directories_beside(logs: FoldedLogs) -> list[str]:
    (place,) = Path(logs.config.history_dir).glob("state_topic_id=*")
    return [path.name for path in place.glob("_*") if path.is_dir()]


def assert_days_that_are_over_are_joined(logs: FoldedLogs) -> None:
    *closed, today = files_by_day(logs).values()
    assert [len(names) for names in closed] == [1, 1]
    assert not any(name.startswith("joined") for name in today)
    assert directories_beside(logs) == ["_covered"]


def test_each_change_is_there_once_whatever_comes_after_a_day_was_joined(logs: FoldedLogs) -> None:
    logs.grow(120)
    assert len(logs.fold()) > 1
    assert_days_that_are_over_are_joined(logs)
    assert_history_holds_each_change_once(logs)

    logs.grow(60)  # rows for each of the days, which come late for two of them
    logs.fold()
    assert_days_that_are_over_are_joined(logs)
    assert_history_holds_each_change_once(logs)

    # What the log still holds is folded again, and is in the joined files.
    shutil.rmtree(logs.config.checkpoint_dir)
    before = files_by_day(logs)
    logs.fold()
    assert files_by_day(logs) == before
    logs.grow(20)
    logs.fold()
    assert_as_loaded(logs)
    assert_history_holds_each_change_once(logs)


def killed_after(calls: int, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the job end before a call of a step of a join."""
    whole: Callable[..., object] = getattr(Directory, step)
    made = 0

    def dying(directory: Directory, *names: str) -> object:
        nonlocal made
        if any(schema.JOINING in name or "joined" in name or name.startswith("day=") for name in names):
            if made == calls:
                raise KilledHere
            made += 1
        return whole(directory, *names)

    monkeypatch.setattr(Directory, step, dying)


def runs_on() -> bool:
    """Tell whether Spark still works on a query: in a task, which may outlive its stage, or in the thread of the query.

    That one writes a batch to the history.
    """
    session = SparkSession.getActiveSession()
    if session is None:
        return False
    context = session.sparkContext
    assert context._jvm is not None
    threads = context._jvm.java.lang.Thread.getAllStackTraces().keySet()
    executors = context._jsc.sc().statusTracker().getExecutorInfos()
    return any(executor.numRunningTasks() for executor in executors) or any(
        thread.getName().startswith("stream execution thread") for thread in threads
    )


def test_a_job_that_dies_in_any_step_of_a_join_loses_nothing_and_the_next_one_finishes_it(
    logs: FoldedLogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    for calls, step in ((0, "sync"), (0, "write_text"), (1, "sync"), (0, "remove"), (1, "remove"), (2, "remove")):
        logs.grow(80)
        with monkeypatch.context() as patch:
            killed_after(calls, step, patch)
            with pytest.raises(KilledHere):
                logs.fold()
        read = HistoryFiles(HistoryPlace(logs.config.history_dir), logs.state_topic_id()).changes(KeyFilter())
        seen = {(change.log_partition, change.offset) for change in read if isinstance(change, LogChange)}
        assert seen == {(number, row["offset"]) for number, rows in logs.history().items() for row in rows}
        # The query that died may still write: a batch, whose files the next job would leave alone, or its state, which would
        # leave a directory that a new checkpoint may not have.
        block_until(lambda: not runs_on(), "the end of the query that died", SPARK_PATIENCE_S)
        if calls == 2:
            # A batch that was cut off is finished by its own job alone, which is gone with its checkpoint.
            if unfinished_batches(directories_beside(logs)):
                logs.fold()
            shutil.rmtree(logs.config.checkpoint_dir)
        logs.fold()
        assert_as_loaded(logs)
        assert_history_holds_each_change_once(logs)
        assert_days_that_are_over_are_joined(logs)


def rows_of(logs: FoldedLogs) -> list[tuple[object, ...]]:
    """Return what a reader finds in the history, each row once, in order."""
    rows = {
        (number, row["offset"], row["kind"]): tuple(row.items())
        for number, rows in logs.history().items()
        for row in rows
    }
    return [rows[place] for place in sorted(rows)]


@pytest.mark.parametrize(
    "step", [pytest.param(step, marks=() if step == WORST else long_form) for step in STEPS], ids=str
)
def test_a_process_that_is_killed_in_a_step_of_a_join_leaves_every_row_and_the_next_one_finishes_it(
    logs: FoldedLogs, monkeypatch: pytest.MonkeyPatch, step: Step
) -> None:
    logs.grow(120)
    with monkeypatch.context() as patch:
        patch.setattr(Joiner, "step", lambda _: False)
        logs.fold()
    before = rows_of(logs)
    *closed, _ = files_by_day(logs).values()
    assert all(len(names) > 1 for names in closed)

    process = subprocess.Popen(command(logs.config, step), start_new_session=True)
    try:
        block_until(lambda: process.poll() is not None, "the end of the job", SPARK_PATIENCE_S)
        assert process.returncode == -signal.SIGKILL
        block_until(lambda: not processes_of(process.pid), "the end of its Java")
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert rows_of(logs) == before
    (place,) = Path(logs.config.history_dir).glob("state_topic_id=*")
    assert list(place.glob(f"{schema.JOINING}*")), "it died in a join"

    logs.fold()
    assert rows_of(logs) == before
    assert_history_holds_each_change_once(logs)
    assert_days_that_are_over_are_joined(logs)


def test_batches_with_a_directory_of_their_own_are_moved_into_their_days_and_joined(logs: FoldedLogs) -> None:
    logs.grow(120)
    logs.fold()
    (place,) = Path(logs.config.history_dir).glob("state_topic_id=*")
    for path in list(place.glob("day=*/*.parquet")):
        former = path.parent / f"batch_id={schema.batch_of(path.name)}"
        former.mkdir()
        path.rename(former / "part-0.parquet")
    for checksum in place.glob("day=*/.*.crc"):
        checksum.unlink()
    logs.grow(60)
    logs.fold()
    assert not list(place.glob("day=*/batch_id=*"))
    assert_days_that_are_over_are_joined(logs)
    assert_history_holds_each_change_once(logs)
