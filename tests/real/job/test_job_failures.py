"""What the Spark job says and how it ends when a process, a directory or a signal comes in its way, and what is there then."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest

pytest.importorskip("pyspark")

from structlog.testing import capture_logs

from holdfast.compaction.errors import CompactionError
from holdfast.compaction.group import topics_of
from holdfast.compaction.history.writer import HistoryWriter
from holdfast.compaction.job import run
from holdfast.compaction.report import BatchReport
from holdfast.compaction.sink import Sink
from holdfast.compaction.spark.files import Directory
from holdfast.compaction.topics import Topics
from holdfast.kafka.topic_ids import format_topic_id
from tests.pure.records.share.snapshot_store.test_folding import load
from tests.real.job.folded_logs import FoldedLogs
from tests.real.job.job_process import JobProcess, job_process
from tests.real.job.quick_spark import QUICK
from tests.real.job.test_compaction import assert_as_loaded, assert_history_holds_each_change_once
from tests.real.job.test_supervised_job import processes_of
from tests.real.shared_kafka import NewTopicFactory
from tests.waiting import SPARK_PATIENCE_S, wait_until

pytestmark = [
    pytest.mark.real,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"),
]

long_form = pytest.mark.skipif(
    os.environ.get("HISTORY_LONG") != "1", reason="takes minutes; HISTORY_LONG=1 runs it, and so does `make soak`"
)


@pytest.fixture
def logs(kafka: str, new_topic: NewTopicFactory, tmp_path: Path) -> FoldedLogs:
    """Give two logs that take a job several batches."""
    snapshot_topic = new_topic(2, cleanup_policy="compact", max_message_bytes=str(64 << 20))
    logs = FoldedLogs(kafka, new_topic(2), snapshot_topic, tmp_path, 2)
    logs.grow(600)
    return logs


def settings_of(logs: FoldedLogs, **more: object) -> dict[str, object]:
    config = logs.config
    return {
        "kafka.bootstrap.servers": config.bootstrap_servers,
        "state_topic": config.state_topic,
        "snapshots.topic": config.snapshot_topic,
        "compaction.group": config.group,
        "compaction.checkpoint.dir": config.checkpoint_dir,
        "compaction.history.dir": config.history_dir,
        "compaction.master": "local[2]",
        "compaction.state.partitions": 2,
        "compaction.offsets.per.trigger.max": 200,
        "compaction.trigger.interval.ms": 0,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        **QUICK,
        **more,
    }


def command_of(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def kill_processes(job: JobProcess, is_wanted: Callable[[str], bool]) -> None:
    """End processes of the job's by SIGKILL."""
    assert job.pid is not None
    for process in processes_of(job.pid):
        if process != job.pid and is_wanted(command_of(process)):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


def is_java(command: str) -> bool:
    return "SparkSubmit" in command


def is_worker(command: str) -> bool:
    return "pyspark" in command and not is_java(command)


async def end_of(job: JobProcess, is_wanted: Callable[[str], bool]) -> tuple[int, list[str]]:
    """Kill processes of a job until it ends, for one between two tasks is not missed; returns exit code and lines of its log."""

    def has_ended() -> bool:
        kill_processes(job, is_wanted)
        return not job.is_running()

    await wait_until(has_ended, "a job that ends", SPARK_PATIENCE_S)
    return job.exit_code(), job.said().splitlines()


async def begun(job: JobProcess, reports_before: int) -> None:
    """Wait until a job has a batch behind it since it had written so many reports, and so is in the next one."""
    await wait_until(lambda: len(job.reports()) > reports_before or not job.is_running(), "a batch", SPARK_PATIENCE_S)
    assert job.is_running(), job.last_words()


@pytest.mark.parametrize(
    ("is_wanted", "said"),
    [
        pytest.param(is_java, "Java was killed by SIGKILL;", id="java"),
        pytest.param(is_worker, "A Python process of Spark ended", id="worker", marks=long_form),
    ],
)
async def test_a_killed_process_of_spark_is_one_line_and_the_next_run_makes_up_for_it(
    logs: FoldedLogs, tmp_path: Path, is_wanted: Callable[[str], bool], said: str
) -> None:
    """As after the kernel, short of memory, has killed one."""
    with job_process(tmp_path, settings_of(logs)) as job:
        # It goes on until it is killed, however late that comes.
        job.launch()
        await begun(job, 0)
        # On a busy machine a Python that PySpark gave up has told so: the job tried again, and that is not what this is about.
        said_before = len(job.said().splitlines())
        code, lines = await end_of(job, is_wanted)
        lines = lines[said_before:]
        assert code == 1
        assert lines[-1].startswith(f"Error: {said}"), "\n".join(lines[-20:])
        assert not [line for line in lines if "Traceback" in line], "\n".join(lines)
        await job.run_once()
    assert_as_loaded(logs)
    assert_history_holds_each_change_once(logs)


def test_a_directory_in_the_way_or_a_damaged_file_is_one_line_and_nothing_is_lost(
    logs: FoldedLogs, tmp_path: Path
) -> None:
    """Whether the directory is one that the settings name, or one in it, halfway; each file that the job reads at its start."""
    # One batch for each fold.
    logs.config = replace(logs.config, offsets_per_trigger_max=5_000)
    (tmp_path / "file").write_text("in the way of a directory")
    elsewhere = str(tmp_path / "file" / "directory")
    wrong = {
        "compaction.checkpoint.dir": replace(logs.config, checkpoint_dir=elsewhere),
        "compaction.history.dir": replace(logs.config, history_dir=elsewhere),
    }
    for setting, config in wrong.items():
        with pytest.raises(CompactionError, match=f"^{setting} is {elsewhere}, which cannot be written to: [^\n]*$"):
            logs.fold(config)
    logs.fold()

    place = Path(logs.config.history_dir) / f"state_topic_id={format_topic_id(logs.state_topic_id())}"
    aside = tmp_path / "aside"
    for target in (place / "_covered", *place.glob("day=*")):
        logs.grow(20)
        target.rename(aside)
        target.write_text("in the way")
        with pytest.raises(CompactionError, match=r"^Spark cannot go on: [^\n]*$"):
            logs.fold()
        target.unlink()
        aside.rename(target)
    logs.fold()
    logs.grow(20)
    own = Path(logs.config.checkpoint_dir) / format_topic_id(logs.state_topic_id()) / "v1"
    # Of the newest batch that Spark has behind it; what is planned behind that is Spark's own to tell of.
    newest = max((own / "query" / "commits").glob("[0-9]*"), key=lambda path: int(path.name)).name
    offsets = own / "query" / "offsets" / newest
    (covered,) = (place / "_covered").glob("*.json")
    # Where the checksum beside a file tells, and where it does not.
    for damaged, kept, cure in (
        (own / "history.json", 20, f"stop the job and remove {own}, and"),
        (covered, 0, "remove it, and"),
        (offsets, 20, f"stop the job and remove {own}, and"),
    ):
        whole = damaged.read_bytes()
        damaged.write_bytes(whole[:kept])
        with pytest.raises(CompactionError, match=rf"{damaged} is damaged \([^\n]*\); {cure} [^\n]*\.$"):
            logs.fold()
        damaged.write_bytes(whole)
    covered.unlink()
    (place / "_covered" / f"_{covered.name}.partial").write_text("")
    logs.fold()
    assert_as_loaded(logs)
    assert_history_holds_each_change_once(logs)


# ---- the long forms --------------------------------------------------------------------------------------------------


STEPS = (
    (Topics, "describe"),
    (Sink, "write"),
    (Topics, "write"),
    (HistoryWriter, "write"),
    (Directory, "move"),
    (Directory, "write_text"),
    (Topics, "ends"),
    (Topics, "commit"),
)


@long_form
def test_a_stop_in_any_step_of_a_batch_lets_it_finish(logs: FoldedLogs, monkeypatch: pytest.MonkeyPatch) -> None:
    """What SIGTERM does is to set the event."""
    for step_class, step in STEPS:
        stop, whole = Event(), getattr(step_class, step)
        reports: list[BatchReport] = []
        logs.grow(30)

        def stopping(*arguments: object, whole: Callable[..., Any] = whole, stop: Event = stop) -> object:
            stop.set()
            return whole(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(step_class, step, stopping)
            run(logs.config, topics_of(logs.config), once=False, on_progress=reports.append, stop=stop)
        assert len(reports) <= 1, "a batch was begun after the stop"
    logs.fold()
    assert_as_loaded(logs)
    assert_history_holds_each_change_once(logs)


def contents_by_place(logs: FoldedLogs) -> dict[tuple[int, int, str], set[tuple[object, ...]]]:
    """Return what the history has under each (log partition, offset, kind), read by pyarrow alone."""
    found: dict[tuple[int, int, str], set[tuple[object, ...]]] = {}
    for number, rows in logs.history().items():
        for row in rows:
            content = (row["owner_epoch"], row["sequence"], row["key"], row["value"])
            found.setdefault((number, row["offset"], row["kind"]), set()).add(content)
    return found


@long_form
async def test_two_jobs_at_once_lose_nothing_and_contradict_each_other_nowhere(
    logs: FoldedLogs, tmp_path: Path
) -> None:
    """Both fold the same log, are killed in turn, and one loses its checkpoint."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    second = {"compaction.checkpoint.dir": tmp_path / "second", "compaction.offsets.per.trigger.max": 130}
    with (
        job_process(tmp_path / "a", settings_of(logs)) as first_job,
        job_process(tmp_path / "b", settings_of(logs, **second)) as second_job,
    ):
        reports = {first_job: 0, second_job: 0}
        first_job.launch()
        second_job.launch()
        for number in range(4):
            killed = (first_job, second_job)[number % 2]
            await begun(killed, reports[killed])
            reports[killed] = len(killed.reports())
            logs.grow(100)
            killed.kill_group()
            if number == 3:
                shutil.rmtree(tmp_path / "second")
            killed.launch()
        await wait_until(
            lambda: all("other_job_found" in job.said() for job in reports),
            "jobs that see each other",
            SPARK_PATIENCE_S,
        )
        first_job.kill_group()
        second_job.kill_group()
        await first_job.run_once()
        await second_job.run_once()
    assert_as_loaded(logs)
    found = contents_by_place(logs)
    assert all(len(contents) == 1 for contents in found.values())
    for number, log in enumerate(logs.logs):
        assert sorted(offset for of, offset, _ in found if of == number) == load(log.records)[2]


@long_form
def test_two_hundred_log_partitions_are_folded_and_a_lost_checkpoint_writes_nothing_twice(
    kafka: str, new_topic: NewTopicFactory, tmp_path: Path
) -> None:
    logs = FoldedLogs(kafka, new_topic(200), new_topic(200, cleanup_policy="compact"), tmp_path, 200)
    config = replace(logs.config, offsets_per_trigger_max=100_000)
    logs.grow(15)
    logs.fold(config)
    shutil.rmtree(config.checkpoint_dir)
    logs.grow(5)
    logs.fold(config)
    assert_as_loaded(logs)
    assert_history_holds_each_change_once(logs)


@long_form
def test_another_number_of_state_partitions_changes_nothing_with_the_checkpoint_or_without(logs: FoldedLogs) -> None:
    logs.fold()
    other = replace(logs.config, state_partitions=5)
    logs.grow(50)
    logs.end_spark()
    with capture_logs() as said:
        logs.fold(other)
    kept = {"event": "state_partitions_kept", "log_level": "warning", "kept": 2, "asked": 5}
    assert [line for line in said if line["event"] == "state_partitions_kept"] == [kept]
    assert_as_loaded(logs)
    shutil.rmtree(other.checkpoint_dir)
    logs.grow(50)
    logs.end_spark()
    logs.fold(replace(other, state_partitions=3))
    assert_as_loaded(logs)
    assert_history_holds_each_change_once(logs)
