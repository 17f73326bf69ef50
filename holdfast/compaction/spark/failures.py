"""Failures of Spark, its processes and its file systems, as one line for people."""

from __future__ import annotations

import logging
import re
import signal
from subprocess import Popen, TimeoutExpired
from typing import Any, Final, NamedTuple

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from holdfast.compaction.errors import CompactionError

#: What a call fails with when Java is gone, or refuses it.
SPARK_ERRORS: Final = (PySparkException, Py4JError, OSError, EOFError)

_LINE_CHARACTERS_MAX: Final = 500
#: How long a process may take to end that has closed its connections.
_JAVA_END_TIMEOUT_S: Final = 5.0
#: Spark's own words for workers of Python that are gone, or never came; and where it starts them and talks to them.
_WORKER_ENDED: Final = re.compile(r"Python worker (exited unexpectedly|failed to connect back)")
_WORKER_LOST: Final = re.compile(r"at org\.apache\.spark\.api\.python\.PythonWorkerFactory")
_JAVA_NEVER_CAME: Final = "JAVA_GATEWAY_EXITED"
_TRACEBACK: Final = "Traceback (most recent call last):"
_CAUSE: Final = re.compile(r"^Caused by: (.*)$", re.MULTILINE)
#: The words of Kafka's consumer for a record batch that it cannot parse; they do not always name the offset.
_DAMAGE: Final = (
    re.compile(
        r"Record batch for partition (?P<place>\S+) at offset (?P<offset>\d+) is invalid, cause: (?P<why>[^\n]*)"
    ),
    re.compile(
        r"Encountered corrupt (?P<why>message) when fetching offset (?P<offset>\d+) for topic-partition (?P<place>\S+)"
    ),
    re.compile(r"Received (?P<why>exception when fetching the next record) from (?P<place>\S+?)\."),
)
_PACKAGE: Final = re.compile(r"^(?:[a-z]\w*\.)+(?=[A-Z])")


class DamagedLog(NamedTuple):
    """A record batch that Spark cannot parse."""

    log_partition: int
    offset: int | None  #: of the batch; None: not known
    why: str


def find_damage(error: BaseException, topic: str) -> DamagedLog | None:
    """Return the damaged record batch of a topic that an error names, None where its cause is another one."""
    try:
        text = str(error)
    except SPARK_ERRORS:  # the text of an exception of Java's comes from Java, which may be gone
        return None
    for pattern in _DAMAGE:
        found = pattern.search(text)
        if found is None:
            continue
        name, _, number = found["place"].rpartition("-")
        if name == topic and number.isdecimal():
            offset = found.groupdict().get("offset")
            why = found["why"].strip().removesuffix(".")[:_LINE_CHARACTERS_MAX]
            return DamagedLog(int(number), None if offset is None else int(offset), why)
    return None


def explain(error: BaseException, java: Popen[bytes] | None) -> CompactionError:
    """Return an error that says in one line why the job cannot go on.

    Args:
        error: one of `SPARK_ERRORS`.
        java: Java's process; None: this process did not start it, as under `spark-submit`.
    """
    try:
        if isinstance(error, (PySparkException, Py4JJavaError)):
            return CompactionError(_explain_spark(error))
    except SPARK_ERRORS as no_answer:
        # The text of an exception of Java's comes from Java.
        error = no_answer
    code = _exit_code(java)
    if code is not None:
        return CompactionError(f"Java ended ({_end_text(code)}); see whether the machine has memory for it.")
    if isinstance(error, Py4JError):
        return CompactionError("Java does not answer any more; it may have been killed.")
    return CompactionError(f"Spark cannot go on: {reason(error)}.")


def _explain_spark(error: PySparkException | Py4JJavaError) -> str:
    trace = str(error)
    if _JAVA_NEVER_CAME in trace:
        return "Java ended before Spark had started; see what it wrote, and whether the machine has memory for it."
    found = _WORKER_ENDED.search(trace)
    if found is not None or _WORKER_LOST.search(trace) is not None:
        words = "Spark lost it" if found is None else found[0]
        return f"A Python process of Spark ended (killed?): {words}; see whether the machine has memory for it."
    return f"Spark cannot go on: {reason(error)}."


def reason(error: BaseException) -> str:
    """Return the deepest cause of one of `SPARK_ERRORS`, in one line without a full stop at its end."""
    return _one_line(_text_of(error))


def silence_py4j() -> None:
    """Keep the bridge to Java from writing a traceback for each call that fails; `explain` reports the failure."""
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    root = logging.getLogger()
    root.removeFilter(_is_not_of_py4j)
    root.addFilter(_is_not_of_py4j)


def silence_accumulators(spark: SparkSession) -> None:
    """Keep the thread that takes in accumulators from writing a traceback when Java ends, which `explain` reports."""
    context: Any = spark.sparkContext
    context._accumulatorServer.handle_error = lambda request, client_address: None


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in record.pathname.split("/") or record.levelno >= logging.CRITICAL


def _exit_code(java: Popen[bytes] | None) -> int | None:
    if java is None:
        return None
    try:
        return java.wait(_JAVA_END_TIMEOUT_S)
    except TimeoutExpired:
        return None


def _end_text(code: int) -> str:
    return f"killed by {signal.Signals(-code).name}?" if code < 0 else f"exit code {code}"


def _text_of(error: BaseException) -> str:
    if isinstance(error, Py4JJavaError):
        cause: Any = error.java_exception
        while (deeper := cause.getCause()) is not None:
            cause = deeper
        return str(cause.toString())
    return str(error)


def _one_line(text: str) -> str:
    """Return the deepest cause that a text with a stack trace names, the error of a Python traceback in it, or its first line."""
    _, is_python, below = text.rpartition(_TRACEBACK)
    causes = [] if is_python else _CAUSE.findall(text)
    # The last line of a traceback is the one that is not below another one.
    lines = [
        line
        for line in (below if is_python else text).splitlines()
        if line.strip() and not (is_python and line[0] == " ")
    ]
    line = causes[-1] if causes else lines[0] if lines else "no reason is given"
    return _PACKAGE.sub("", line.strip())[:_LINE_CHARACTERS_MAX].removesuffix(".")
