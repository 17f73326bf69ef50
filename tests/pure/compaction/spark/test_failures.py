"""What Spark fails with comes to one line that says what to look at."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark")

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError  # type: ignore[import-untyped]
from pyspark.errors import PySparkRuntimeError, StreamingQueryException

from holdfast.compaction.spark.failures import SPARK_ERRORS, DamagedLog, explain, find_damage, reason, silence_py4j


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


@pytest.fixture
def java() -> Iterator[subprocess.Popen[bytes]]:
    """Give a process in the place of Java's."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


@pytest.mark.parametrize("error", [ConnectionRefusedError(111, "refused"), Py4JNetworkError("no answer"), EOFError()])
def test_a_java_that_was_killed_is_named(java: subprocess.Popen[bytes], error: Exception) -> None:
    assert isinstance(error, SPARK_ERRORS)
    java.send_signal(signal.SIGKILL)
    assert str(explain(error, java)) == "Java ended (killed by SIGKILL?); see whether the machine has memory for it."


def test_a_java_that_ended_by_itself_or_was_started_by_somebody_else_is_named(java: subprocess.Popen[bytes]) -> None:
    assert java.stdin is not None
    java.stdin.close()
    assert str(explain(Py4JError("no answer"), java)).startswith("Java ended (exit code 1);")
    assert str(explain(Py4JError("no answer"), None)) == "Java does not answer any more; it may have been killed."


def test_a_java_that_never_came_is_named() -> None:
    error = PySparkRuntimeError("[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number.")
    assert str(explain(error, None)) == (
        "Java ended before Spark had started; see what it wrote, and whether the machine has memory for it."
    )


class Unasked(Java):
    """An exception of a Java that is gone before it is asked."""

    def getCause(self) -> Java | None:  # noqa: N802  # the name is Java's
        raise Py4JNetworkError("no answer")


def test_a_java_that_is_gone_before_it_has_reported_its_exception_is_named(java: subprocess.Popen[bytes]) -> None:
    java.kill()
    assert str(explain(JavaFailure(Unasked("x")), java)).startswith("Java ended (killed by SIGKILL?);")


WORKER_ENDED = """[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted due to stage failure: Task 0 failed
\tat org.apache.spark.api.python.BasePythonRunner.a(PythonRunner.scala:1)
Caused by: org.apache.spark.SparkException: Python worker exited unexpectedly (crashed): EOFException
\tat java.base/java.lang.Thread.run(Thread.java:1)
"""


def test_a_worker_that_was_killed_is_named_and_so_is_one_that_did_not_come() -> None:
    assert str(explain(StreamingQueryException(WORKER_ENDED), None)) == (
        "A Python process of Spark ended (killed?): Python worker exited unexpectedly; "
        "see whether the machine has memory for it."
    )
    lost = JavaFailure(
        Java("java.io.IOException: Stream closed"), "\tat org.apache.spark.api.python.PythonWorkerFactory.a"
    )
    assert str(explain(lost, None)).startswith("A Python process of Spark ended (killed?): Spark lost it;")
    late = JavaFailure(
        Java("x.SparkException: Job aborted", Java("x.SparkException: Python worker failed to connect back."))
    )
    assert "Python worker failed to connect back" in str(explain(late, None))


def test_anything_else_is_its_deepest_cause_in_one_line() -> None:
    deep = JavaFailure(Java("a.b.Outer: wrapped", Java("java.io.IOException: Mkdirs failed to create /x\n\tat a.b.C")))
    assert reason(deep) == "IOException: Mkdirs failed to create /x"
    assert str(explain(deep, None)) == "Spark cannot go on: IOException: Mkdirs failed to create /x."
    assert str(explain(OSError("/h/day=1 is there already."), None)) == "Spark cannot go on: /h/day=1 is there already."
    in_python = (
        "[PYTHON] An exception\nTraceback (most recent call last):\n  File x\n    fold()\nValueError: a bug\n\n\tat x\n"
    )
    assert reason(StreamingQueryException(in_python)) == "ValueError: a bug"
    assert len(str(explain(OSError("x" * 9_000), None))) < 600
    assert str(explain(OSError(), None)) == "Spark cannot go on: no reason is given."


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
