"""`holdfast compact`, with a stand-in for Spark: what it refuses, what it shows, and how it ends."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from threading import Event
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from holdfast.cli import main
from holdfast.compaction.config import CompactionConfig
from holdfast.compaction.errors import CompactionError
from holdfast.compaction.machine import Obstacle
from holdfast.compaction.progress import RunProgress, from_json
from holdfast.compaction.report import BatchReport
from holdfast.compaction.topics import Topics
from holdfast.console import job_output, job_process
from holdfast.console.outcomes import Exit
from holdfast.console.show.job_progress import bytes_text, view_of
from holdfast.distribution import how_to_install
from holdfast.kafka.errors import LoginDenied
from tests.pure.compaction.reports import batch, partition

SETTINGS = {"kafka.bootstrap.servers": "127.0.0.1:1", "compaction.checkpoint.dir": "/checkpoint"}
WAIT_S = 30

Job = Callable[[Callable[[BatchReport], None], Event], None]


def compact(*arguments: str, **settings: str) -> Result:
    named = {name.replace("__", "."): value for name, value in settings.items()}
    flags = [part for name, value in (SETTINGS | named).items() for part in ("--set", f"{name}={value}")]
    result = CliRunner(env={"JAVA_HOME": None}).invoke(main, ["compact", *flags, *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    return result


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> Callable[[Job], list[Any]]:
    """Give a function that puts a job in the place of Spark's; what it was called with is in the list that it returns."""

    def put(job: Job) -> list[Any]:
        called: list[Any] = []

        def run(config: CompactionConfig, topics: Topics, *, once: bool, on_progress: Any, stop: Event) -> None:
            called.append((config, once))
            job(on_progress, stop)

        module = ModuleType("holdfast.compaction.job")
        module.run = run  # type: ignore[attr-defined] # as the real one
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setattr(job_process, "_check_environment", lambda _: None)
        monkeypatch.setattr(job_process, "_ensure_topic", lambda _: None)
        monkeypatch.setattr(Topics, "offsets_to_fold", lambda _: 10_008)
        return called

    monkeypatch.setenv("PYSPARK_PYTHON", "")  # to be put back in the end
    monkeypatch.delenv("PYSPARK_PYTHON")
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    monkeypatch.setattr(job_process, "find_denied_login", lambda _: None)
    return put


# ---- what it refuses -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"compaction.checkpoint.dir": ""}, "compaction.checkpoint.dir is not set; name a directory"),
        ({"snapshots.topic": ""}, "snapshots.topic is empty; name a topic"),
        ({"compaction.state.partitions": "0"}, "it must be a whole number from 1"),
        ({"compaction.master": "nonsense"}, "it must be local[N], local[*], spark://host:port, yarn or k8s://"),
        ({"compaction.masters": "yarn"}, "did you mean compaction.master?"),
    ],
)
def test_a_wrong_setting_is_named(settings: dict[str, str], what: str) -> None:
    result = compact(**settings)
    assert result.exit_code == Exit.WRONG_USAGE
    assert what in result.stderr


def test_packages_that_are_missing_are_named_with_what_installs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_process, "find_spec", lambda module: None if module in ("pyspark", "pandas") else module)
    result = compact()
    assert result.exit_code == Exit.REFUSED_TO_START
    assert result.stderr == (
        f"Error: The compaction job needs pyspark, pandas, not installed here; {how_to_install('spark')}.\n"
    )


def test_a_java_that_is_missing_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_process, "find_spec", lambda module: module)
    monkeypatch.setenv("PATH", "/nowhere")
    result = compact()
    assert result.exit_code == Exit.REFUSED_TO_START
    assert result.stderr.startswith("Error: The compaction job needs Java 17 to 25 and no java is on the path; install")


def test_what_the_machine_lacks_is_named_before_spark_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_process, "find_spec", lambda module: module)
    monkeypatch.setattr(job_process, "find_spark_java", lambda: "java")
    monkeypatch.setattr(job_process, "find_obstacles", lambda *_, is_local: [Obstacle(f"local: {is_local}", "mend it")])
    result = compact(**{"compaction.master": "local[2]"})
    assert (result.exit_code, result.stderr) == (Exit.REFUSED_TO_START, "Error: local: True; mend it.\n")
    assert compact(**{"compaction.master": "yarn"}).stderr == "Error: local: False; mend it.\n"
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert "mend it" not in compact(request_timeout_ms="200").stderr, "its Java runs already"


def test_a_kafka_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_process, "_check_environment", lambda _: None)
    result = compact(request_timeout_ms="200")
    assert result.exit_code == Exit.UNREACHABLE
    assert "see kafka.bootstrap.servers" in result.stderr


def test_a_job_that_cannot_go_on_says_why(spark: Callable[[Job], list[Any]]) -> None:
    def fail(*_: object) -> None:
        raise CompactionError("There is no topic state.")

    spark(fail)
    result = compact()
    assert (result.exit_code, result.stderr) == (Exit.FAILED, "Error: There is no topic state.\n")


# ---- what it does and shows ------------------------------------------------------------------------------------------


def test_settings_reach_the_job(spark: Callable[[Job], list[Any]]) -> None:
    called = spark(lambda *_: None)
    settings = {
        "compaction.history.dir": "hdfs://nn/history",
        "kafka.security.protocol": "SSL",
        "spark.executor.memory": "4g",
        "compaction.checkpoint.dir": "relative",
        "compaction.trigger.interval.ms": "7",
    }
    assert compact("--once", "--master", "local[3]", **settings).exit_code == Exit.DONE
    ((config, once),) = called
    assert once
    assert config.bootstrap_servers == "127.0.0.1:1"
    assert config.kafka_properties == {"security.protocol": "SSL"}
    assert config.master == "local[3]"
    assert config.checkpoint_dir == str(Path("relative").absolute())
    assert config.history_dir == "hdfs://nn/history"
    assert config.trigger_interval_ms == 7
    assert config.spark_properties == {"spark.executor.memory": "4g"}


def test_workers_on_other_machines_get_our_code(spark: Callable[[Job], list[Any]]) -> None:
    called = spark(lambda *_: None)
    compact("--master", "spark://elsewhere:7077")
    path = called[0][0].spark_properties["spark.submit.pyFiles"]
    assert Path(path).name == "holdfast.zip"
    assert os.environ["PYTHONPATH"] == f"{path}:/elsewhere"
    compact("--master", "spark://elsewhere:7077", **{"spark.submit.pyFiles": "hdfs://nn/holdfast.zip"})
    assert called[1][0].spark_properties == {"spark.submit.pyFiles": "hdfs://nn/holdfast.zip"}


def test_workers_run_the_python_that_spark_is_given_or_else_this_one(
    spark: Callable[[Job], list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    spark(lambda *_: None)
    compact()
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    compact()
    assert os.environ["PYSPARK_PYTHON"] == "/opt/python"
    compact(**{"spark.pyspark.python": "./python/bin/python"})
    assert os.environ["PYSPARK_PYTHON"] == "./python/bin/python"


def test_under_spark_submit_the_master_is_known_already(
    spark: Callable[[Job], list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    called = spark(lambda *_: None)
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    compact()
    assert called[0][0].master is None
    assert "PYSPARK_PYTHON" not in os.environ


def test_a_batch_is_a_line_for_people_or_a_report_for_programs(
    spark: Callable[[Job], list[Any]], capfd: pytest.CaptureFixture[str]
) -> None:
    report = batch(partition(0, cut_at=4), partition(1, stopped_reason="version 9", stopped_offset=8))

    def two_batches(on_progress: Callable[[BatchReport], None], _: Event) -> None:
        on_progress(report)
        on_progress(report)

    spark(two_batches)
    text = compact()
    assert capfd.readouterr().err.splitlines()[0] == "Spark starts; 10,008 records wait up to the log's end."
    assert text.stdout.splitlines()[1] == (
        "batch 1: 100 records in 0.50 s (200/s), 18 snapshots, 1 manifests, lag 5, 40 share partitions, 9.8 KiB in, "
        "2.0 KiB out, ratio 5.0"
    )
    said = compact("--json")
    assert [from_json(json.loads(line)) for line in said.stdout.splitlines()] == [report, report]
    events = [json.loads(line) for line in said.stderr.splitlines()]
    assert [(event["event"], event["log_partition"], event["level"]) for event in events] == [
        ("fold_restarted", 0, "warning"),
        ("fold_stopped", 1, "error"),
        ("fold_restarted", 0, "warning"),
    ]
    assert events[1]["offset"] == 8
    assert events[1]["why"] == "version 9"


def test_a_single_run_fails_where_a_log_partition_makes_no_progress(spark: Callable[[Job], list[Any]]) -> None:
    stopped = [partition(number, stopped_reason="version 9", stopped_offset=8 * number) for number in (1, 2)]

    def job(on_progress: Callable[[BatchReport], None], _: Event) -> None:
        on_progress(batch(partition(0), *stopped))
        on_progress(batch(partition(0)))

    spark(job)
    result = compact("--once")
    assert result.exit_code == Exit.FAILED
    assert result.stderr.splitlines()[-1] == (
        "Error: The job cannot read on: log partition 1 is stopped at offset 8 (version 9), "
        "log partition 2 is stopped at offset 16 (version 9); upgrade it and run it again."
    )
    assert compact().exit_code == Exit.DONE, "it was told to stop"
    spark(lambda on_progress, _: on_progress(batch(partition(0))))
    assert compact("--once").exit_code == Exit.DONE


@pytest.mark.parametrize("is_refused_at_once", [True, False])
def test_a_login_that_is_refused_ends_with_8_before_the_job_or_in_it(
    spark: Callable[[Job], list[Any]], monkeypatch: pytest.MonkeyPatch, is_refused_at_once: bool
) -> None:
    looks = [None] * (not is_refused_at_once) + [LoginDenied("b:9092 says: Invalid username or password")]

    def job(*_: object) -> None:
        raise CompactionError("Topic state cannot be described: Local: Timed out.")

    monkeypatch.setattr(job_process, "find_denied_login", lambda _: looks.pop(0))
    called = spark(job)
    result = compact("--once")
    assert (result.exit_code, len(called)) == (Exit.DENIED, 0 if is_refused_at_once else 1)
    first, *more = result.stderr.splitlines()
    assert first == (
        "Error: Kafka refuses the login: b:9092 says: Invalid username or password; see the settings that begin with kafka.sasl."
    )
    assert more == ([] if is_refused_at_once else ["Topic state cannot be described: Local: Timed out."])


def test_a_job_that_fails_while_its_login_is_taken_ends_with_1_and_its_own_line(
    spark: Callable[[Job], list[Any]],
) -> None:
    def job(*_: object) -> None:
        raise CompactionError("The disk is full.")

    spark(job)
    result = compact("--once")
    assert (result.exit_code, result.stderr) == (Exit.FAILED, "Error: The disk is full.\n")


def test_on_a_terminal_a_table_follows_the_run_and_lines_stand_above_it(
    spark: Callable[[Job], list[Any]], capfd: pytest.CaptureFixture[str]
) -> None:
    def job(on_progress: Callable[[BatchReport], None], _: Event) -> None:
        on_progress(batch(partition(3, cut_at=4)))
        os.write(2, b"26/11/21 11:30:00 INFO Spark: chatter\n")

    spark(job)
    job_process.compact_until_stopped(job_process.settings_of(None, SETTINGS), once=True, output=job_output.terminal)
    shown, said = capfd.readouterr()
    assert "records, of 10,008 that waited at the start" in shown
    assert "compaction ratio 5.0" in shown
    assert "fold_restarted" in shown + said
    assert "chatter" not in shown + said


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_the_batch_finish(spark: Callable[[Job], list[Any]], number: signal.Signals) -> None:
    before = signal.getsignal(number)

    def job(on_progress: Callable[[BatchReport], None], stop: Event) -> None:
        os.kill(os.getpid(), number)
        assert stop.wait(WAIT_S)
        on_progress(batch())

    spark(job)
    result = compact("--json")
    assert result.exit_code == Exit.DONE
    assert len(result.stdout.splitlines()) == 1
    assert signal.getsignal(number) is before


def test_a_supervised_job_takes_its_settings_from_the_node_and_ends_with_it(tmp_path: Path) -> None:
    script = (
        "import sys, threading\n"
        "from holdfast.console import job_process\n"
        "settings = job_process.settings_of_the_node(sys.stdin.buffer)\n"
        "print(settings.compaction.checkpoint_dir, flush=True)\n"
        "threading.Event().wait()\n"
    )
    child = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(json.dumps(SETTINGS) + "\n")
        child.stdin.flush()
        assert child.stdout.readline() == "/checkpoint\n"
        assert child.poll() is None
        child.stdin.close()
        assert child.wait(WAIT_S) == Exit.FAILED


# ---- our code as a zip -----------------------------------------------------------------------------------------------


def test_the_zip_holds_what_workers_import_and_is_the_same_each_time(tmp_path: Path) -> None:
    path = tmp_path / "new" / "holdfast.zip"
    result = CliRunner().invoke(main, ["compact", "--write-py-files", str(path)])
    assert result.exit_code == Exit.DONE, result.stderr
    names = zipfile.ZipFile(path).namelist()
    assert {
        "holdfast/__init__.py",
        "holdfast/records/share/snapshot_store/folding.py",
        "holdfast/records/schemas/share_entry.avsc",
    } <= set(names)
    assert not [name for name in names if "__pycache__" in name]
    first = path.read_bytes()
    CliRunner().invoke(main, ["compact", "--write-py-files", str(path)])
    assert path.read_bytes() == first
    script = f"import sys; sys.path.insert(0, {str(path)!r}); import holdfast.records.share.snapshot_store.folding as f; print(f.__file__)"
    output = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path
    ).stdout
    assert output.startswith(str(path))


def test_a_zip_that_cannot_be_written_is_named() -> None:
    result = CliRunner().invoke(main, ["compact", "--write-py-files", "/proc/holdfast.zip"])
    assert result.exit_code == Exit.FAILED
    assert result.stderr.startswith("Error: The zip cannot be written: ")


# ---- the table -------------------------------------------------------------------------------------------------------


def shown(progress: RunProgress) -> str:
    console = Console(file=io.StringIO(), width=120)
    console.print(view_of(progress))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_table_follows_the_run() -> None:
    progress = RunProgress()
    assert "The job looks up how far it is. 0 s so far." in shown(progress)
    progress.offsets_to_fold = 0
    assert "Spark starts; the log has nothing new so far." in shown(progress)
    progress.offsets_to_fold = 1_000
    assert "Spark starts; 1,000 records wait up to the log's end." in shown(progress)
    progress.take(batch(lag=dict.fromkeys(range(3), 0)))
    assert "at the end of every log partition" in shown(progress)
    assert "100  records, of 1,000 that waited at the start" in shown(progress)
    stopped = partition(4, stopped_reason="version 9 is unknown", stopped_offset=77, waiting_count=3)
    progress.take(batch(partition(), stopped, lag=dict(enumerate([0, 4_000, *range(10, 20)]))))
    text = shown(progress)
    assert "4,145" in text
    assert "by log partition 1: 4,000, 11: 19" in text
    assert "Log partition 4 is stopped at offset 77: version 9 is unknown." in text
    assert "3 share partitions wait for a snapshot" in text
    assert "compaction ratio 5.0" in text


def test_bytes_have_the_unit_that_suits_them() -> None:
    assert [bytes_text(1_024**power * 3) for power in range(5)] == ["3 B", "3.0 KiB", "3.0 MiB", "3.0 GiB", "3.0 TiB"]
