"""What Spark fails with comes to one line that says what to look at."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError  # type: ignore[import-untyped]
from pyspark.errors import StreamingQueryException

from holdfast.compaction.spark import failures
from holdfast.compaction.spark.failures import (
    SPARK_ERRORS,
    DamagedLog,
    JavaEnd,
    explain,
    find_damage,
    reason,
    silence_py4j,
)
from holdfast.compaction.spark.java_process import LastWords, cause_in


class Java:
    """An exception of Java's, as py4j gives it."""

    def __init__(self, text: str, cause: Java | None = None) -> None:
        self._text = text
        self._cause = cause

    def getCause(self) -> Java | None:  # noqa: N802  # the name is Java's
        return self._cause

    def toString(self) -> str:  # noqa: N802  # the name is Java's
        return self._text


class JavaFailure(Py4JJavaError):  # type: ignore[misc] # it has no types
    """One without the connection that the real one asks."""

    def __init__(self, exception: Java, trace: str = "") -> None:
        self.java_exception = exception
        self._trace = trace

    def __str__(self) -> str:
        return f"An error occurred while calling o1.save.\n: {self.java_exception.toString()}\n{self._trace}"


NOBODY = JavaEnd(None, None)


@pytest.fixture
def java() -> Iterator[subprocess.Popen[bytes]]:
    """Give a process in the place of Java's."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


@pytest.mark.parametrize("error", [ConnectionRefusedError(111, "refused"), Py4JNetworkError("no answer"), EOFError()])
def test_a_java_that_was_killed_is_named_with_the_place_that_says_why(
    java: subprocess.Popen[bytes], error: Exception
) -> None:
    assert isinstance(error, SPARK_ERRORS)
    java.send_signal(signal.SIGKILL)
    assert str(explain(error, JavaEnd(java, None))) == (
        "Java was killed by SIGKILL; where it was killed for want of memory, the kernel's log (`dmesg`) has a line for it."
    )


def test_a_java_that_ended_by_itself_or_was_started_by_somebody_else_is_named(java: subprocess.Popen[bytes]) -> None:
    assert java.stdin is not None
    java.stdin.close()
    assert str(explain(Py4JError("no answer"), JavaEnd(java, None))) == "Java ended (exit code 1)."
    assert str(explain(Py4JError("no answer"), NOBODY)) == "Java does not answer any more; it may have been killed."


def run_until_its_end(script: str) -> JavaEnd:
    """Return what is left of a process in the place of Java's whose output is watched."""
    said = LastWords()
    process = subprocess.Popen([sys.executable, "-c", script], stdout=said.write_end, stderr=said.write_end)
    said.close_own_end()
    process.wait()
    return JavaEnd(process, said)


def test_a_java_that_ended_is_explained_by_its_last_words() -> None:
    end = run_until_its_end("import sys; sys.exit('java.lang.OutOfMemoryError: Java heap space')")
    assert str(explain(Py4JError("no answer"), end)) == (
        "Java ended (exit code 1); it said last: java.lang.OutOfMemoryError: Java heap space."
    )
    silent = run_until_its_end("raise SystemExit(3)")
    assert str(explain(Py4JError("no answer"), silent)) == "Java ended (exit code 3) and said nothing."


@pytest.mark.parametrize("script", ["raise SystemExit(143)", "import os; os.kill(os.getpid(), 15)"])
def test_a_java_that_somebody_ended_is_not_explained_by_memory(script: str) -> None:
    assert str(explain(Py4JError("no answer"), run_until_its_end(script))) == (
        "Java was ended by SIGTERM, which the kernel does not send."
    )


def test_lines_of_java_are_passed_on(capfd: pytest.CaptureFixture[str]) -> None:
    run_until_its_end("print('first'); print('second')").said.after_the_end()  # type: ignore[union-attr]
    assert capfd.readouterr().err == "first\nsecond\n"


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (
            "Error occurred during initialization of boot layer\n"
            "java.lang.module.FindException: Module jdk.incubator.vector not found\n",
            "Error occurred during initialization of boot layer; "
            "java.lang.module.FindException: Module jdk.incubator.vector not found",
        ),
        (
            "Unrecognized VM option 'UseNoSuchGC'\nError: Could not create the Java Virtual Machine.\n"
            "Error: A fatal exception has occurred. Program will exit.\n",
            "Unrecognized VM option 'UseNoSuchGC'",
        ),
        (
            'Exception in thread "main" x.KerberosAuthException: failure to login\n\tat a.b.C(C.java:1)\n'
            "Caused by: x.LoginException: invalid null input: name\n\t... 7 more\n",
            'Exception in thread "main" x.KerberosAuthException: failure to login; '
            "Caused by: x.LoginException: invalid null input: name",
        ),
        (
            "bin/spark-submit: line 27: exec: java: Permission denied\n",
            "bin/spark-submit: line 27: exec: java: Permission denied",
        ),
        ("WARNING: Using incubator modules: jdk.incubator.vector\n\n", ""),
    ],
)
def test_the_cause_is_found_in_what_java_said(said: str, words: str) -> None:
    assert cause_in(said.splitlines()) == words


class Unasked(Java):
    """An exception of a Java that is gone before it is asked."""

    def getCause(self) -> Java | None:  # noqa: N802  # the name is Java's
        raise Py4JNetworkError("no answer")


def test_a_java_that_is_gone_before_it_has_reported_its_exception_is_named(java: subprocess.Popen[bytes]) -> None:
    java.kill()
    assert str(explain(JavaFailure(Unasked("x")), JavaEnd(java, None))).startswith("Java was killed by SIGKILL;")


WORKER_ENDED = """[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted due to stage failure: Task 0 failed
\tat org.apache.spark.api.python.BasePythonRunner.a(PythonRunner.scala:1)
Caused by: org.apache.spark.SparkException: Python worker exited unexpectedly (crashed): EOFException
\tat java.base/java.lang.Thread.run(Thread.java:1)
"""


def test_a_worker_that_was_killed_is_named_and_so_is_one_that_did_not_come() -> None:
    assert str(explain(StreamingQueryException(WORKER_ENDED), NOBODY)) == (
        "A Python process of Spark ended: Python worker exited unexpectedly; "
        "where it was killed for want of memory, the kernel's log (`dmesg`) has a line for it."
    )
    end = run_until_its_end(
        "print('ModuleNotFoundError: No module named numpy'); print('26/11/21 11:30:00 ERROR Query: terminated with error')"
    )
    assert end.said is not None
    end.said.after_the_end()
    assert str(explain(StreamingQueryException(WORKER_ENDED), end)).startswith(
        "A Python process of Spark ended: Python worker exited unexpectedly, "
        "and the last error was: ModuleNotFoundError: No module named numpy; "
    )
    lost = JavaFailure(
        Java("java.io.IOException: Stream closed"), "\tat org.apache.spark.api.python.PythonWorkerFactory.a"
    )
    assert str(explain(lost, NOBODY)).startswith("A Python process of Spark ended: Spark lost it;")
    late = JavaFailure(
        Java("x.SparkException: Job aborted", Java("x.SparkException: Python worker failed to connect back."))
    )
    assert "Python worker failed to connect back" in str(explain(late, NOBODY))


def test_anything_else_is_its_deepest_cause_in_one_line() -> None:
    deep = JavaFailure(Java("a.b.Outer: wrapped", Java("java.io.IOException: Mkdirs failed to create /x\n\tat a.b.C")))
    assert reason(deep) == "IOException: Mkdirs failed to create /x"
    assert str(explain(deep, NOBODY)) == "Spark cannot go on: IOException: Mkdirs failed to create /x."
    assert (
        str(explain(OSError("/h/day=1 is there already."), NOBODY)) == "Spark cannot go on: /h/day=1 is there already."
    )
    in_python = (
        "[PYTHON] An exception\nTraceback (most recent call last):\n  File x\n    fold()\nValueError: a bug\n\n\tat x\n"
    )
    assert reason(StreamingQueryException(in_python)) == "ValueError: a bug"
    assert len(str(explain(OSError("x" * 9_000), NOBODY))) < 600
    assert str(explain(OSError(), NOBODY)) == "Spark cannot go on: no reason is given."


def test_a_full_file_system_is_named_with_the_directory_and_its_setting(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    places = {"compaction.checkpoint.dir": tmp_path / "checkpoint", "compaction.history.dir": Path("/proc")}
    error = JavaFailure(Java("java.io.IOException: No space left on device"))
    line = "Spark cannot go on: IOException: No space left on device. Make room there, or name another directory: "
    monkeypatch.setattr(failures, "full_places", lambda _: ["compaction.checkpoint.dir (/c) has 0.1 MiB left"])
    assert str(explain(error, JavaEnd(None, None, places))) == f"{line}compaction.checkpoint.dir (/c) has 0.1 MiB left."
    # Where there is room again by now, all of them are named.
    monkeypatch.setattr(failures, "full_places", lambda _: [])
    assert str(explain(OSError(28, "No space left on device"), JavaEnd(None, None, places))).endswith(
        f"directory: compaction.checkpoint.dir ({tmp_path}/checkpoint), compaction.history.dir (/proc)."
    )


@pytest.mark.parametrize(
    "words",
    [
        "[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log. Multiple streaming jobs detected for 3.",
        "Multiple streaming queries are concurrently using file:/c/offsets",
    ],
)
def test_a_second_job_on_one_checkpoint_is_told_of_the_first(words: str) -> None:
    assert str(explain(StreamingQueryException(words), NOBODY)) == (
        "Another job runs with the same compaction.checkpoint.dir; stop one of the two, or give each a checkpoint directory of its own."
    )


def test_the_bridge_to_java_says_nothing_by_itself(caplog: pytest.LogCaptureFixture) -> None:
    root = logging.getLogger()
    filters = root.filters[:]
    try:
        silence_py4j()
        silence_py4j()
        assert len(root.filters) == len(filters) + 1
        root.handle(logging.LogRecord("root", logging.ERROR, "/x/py4j/java_gateway.py", 1, "sending", None, None))
        root.handle(logging.LogRecord("root", logging.ERROR, "/x/holdfast/y.py", 1, "ours", None, None))
        assert [record.getMessage() for record in caplog.records] == ["ours"]
    finally:
        root.filters[:] = filters
        logging.getLogger("py4j").setLevel(logging.NOTSET)


@pytest.mark.parametrize(
    ("cause", "found"),
    [
        (
            "Record batch for partition my-state-12 at offset 345 is invalid, cause: Record is corrupt (stored crc = 1).",
            DamagedLog(12, 345, "Record is corrupt (stored crc = 1)"),
        ),
        (
            "Encountered corrupt message when fetching offset 345 for topic-partition my-state-12",
            DamagedLog(12, 345, "message"),
        ),
        (
            "Received exception when fetching the next record from my-state-12. If needed, please seek past the record",
            DamagedLog(12, None, "exception when fetching the next record"),
        ),
        ("Record batch for partition state-12 at offset 345 is invalid, cause: another topic", None),
        ("Record batch for partition my-state at offset 345 is invalid, cause: no number", None),
        ("Failed to construct kafka consumer", None),
    ],
)
def test_a_damaged_batch_is_found_in_what_spark_fails_with(cause: str, found: DamagedLog | None) -> None:
    text = f"[STREAM_FAILED] Query [id = 1] terminated\nCaused by: org.apache.kafka.common.KafkaException: {cause}\n\tat a.b.C"
    assert find_damage(StreamingQueryException(text), "my-state") == found
