"""Failures of Spark, its processes and its file systems, as one line for people."""

from __future__ import annotations

import logging
import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from typing import Any, Final, NamedTuple

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from holdfast.compaction.errors import OTHER_JOB, CompactionError
from holdfast.compaction.machine import full_places
from holdfast.compaction.spark.java_process import LastWords

#: What a call fails with when Java is gone, or refuses it.
SPARK_ERRORS: Final = (PySparkException, Py4JError, OSError, EOFError)

_LINE_CHARACTERS_MAX: Final = 500
#: How long a process may take to end that has closed its connections.
_JAVA_END_TIMEOUT_S: Final = 5.0
#: Spark's own words for workers of Python that are gone, or never came; and where it starts them and talks to them.
_WORKER_ENDED: Final = re.compile(r"Python worker (exited unexpectedly|failed to connect back)")
_WORKER_LOST: Final = re.compile(r"at org\.apache\.spark\.api\.python\.PythonWorkerFactory")
_SHELL_SIGNAL: Final = 128
#: The kernel says nothing to whom it kills, and all to its own log.
_WHO_KILLED: Final = "where it was killed for want of memory, the kernel's log (`dmesg`) has a line for it"
#: Java's words and the system's for a file system without room, or for a user whose share of it is used up.
_NO_ROOM: Final = re.compile(r"No space left on device|Disk quota exceeded|There is not enough space", re.IGNORECASE)
_NO_ROOM_FOR: Final = "Make room there, or name another directory: {}"
#: Spark's words where another query has written to the checkpoint.
_CONCURRENT: Final = re.compile(r"CONCURRENT_STREAM_LOG_UPDATE|Multiple streaming (jobs|queries)")
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


@dataclass(frozen=True, slots=True)
class JavaEnd:
    """What is left of a Java that may have ended, and what may have been in its way."""

    #: None: this process did not start it, as under `spark-submit`.
    process: Popen[bytes] | None
    said: LastWords | None
    #: Directories on this machine that the job writes to, by the settings that name them.
    places: Mapping[str, Path] = field(default_factory=dict)


def explain(error: BaseException, java: JavaEnd) -> CompactionError:
    """Return an error that says in one line why the job cannot go on.

    Args:
        error: one of `SPARK_ERRORS`.
        java: the Java that it came from.
    """
    try:
        if isinstance(error, (PySparkException, Py4JJavaError)):
            return CompactionError(_explain_spark(error, java))
    except SPARK_ERRORS as no_answer:
        # The text of an exception of Java's comes from Java.
        error = no_answer
    code = _exit_code(java.process)
    if code == -signal.SIGTERM:
        return CompactionError("Java was ended by SIGTERM, which the kernel does not send.")
    if code == -signal.SIGKILL:
        return CompactionError(f"Java was killed by SIGKILL; {_WHO_KILLED}.")
    if code is not None:
        said = java.said.after_the_end() if java.said is not None else ""
        return CompactionError(f"Java ended ({_end_text(code)}){said}.")
    if isinstance(error, Py4JError):
        return CompactionError("Java does not answer any more; it may have been killed.")
    return CompactionError(_cannot_go_on(error, str(error), java.places))


def _explain_spark(error: PySparkException | Py4JJavaError, java: JavaEnd) -> str:
    trace = str(error)
    found = _WORKER_ENDED.search(trace)
    if found is not None or _WORKER_LOST.search(trace) is not None:
        words = "Spark lost it" if found is None else found[0]
        said = java.said.so_far() if java.said is not None else ""
        return f"A Python process of Spark ended: {words}{said}; {_WHO_KILLED}."
    return _cannot_go_on(error, trace, java.places)


def _cannot_go_on(error: BaseException, trace: str, places: Mapping[str, Path]) -> str:
    """Return why Spark cannot go on, with the directory that is full where there is no room."""
    if _CONCURRENT.search(trace) is not None:
        return OTHER_JOB.format("compaction.checkpoint.dir")
    line = f"Spark cannot go on: {reason(error)}"
    if _NO_ROOM.search(trace) is None:
        return f"{line}."
    full = full_places(places) or [f"{name} ({path})" for name, path in places.items()]
    return f"{line}. {_NO_ROOM_FOR.format(', '.join(full))}."


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
        code = java.wait(_JAVA_END_TIMEOUT_S)
    except TimeoutExpired:
        return None
    # A Java that ends in order at SIGTERM gives the number as shells do.
    return -signal.SIGTERM if code == _SHELL_SIGNAL + signal.SIGTERM else code


def _end_text(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


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
