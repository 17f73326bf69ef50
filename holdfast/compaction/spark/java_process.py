"""The Java that the job starts, and the last lines that it wrote: what it dies of it says there, or nowhere."""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Mapping
from threading import Thread
from typing import Any, Final

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway

from holdfast.compaction.errors import CompactionError

_LINES_KEPT: Final = 40
#: How long the last lines of a process that has ended may take to come; a child of its own may hold the pipe open.
_END_TIMEOUT_S: Final = 2.0
#: Part of what Java and Python write that says nothing of the cause: frames of stack traces, and closing words.
_EMPTY_WORDS: Final = re.compile(
    r"\s*(at .*|\.\.\. \d+ more|Error: Could not create the Java Virtual Machine\."
    r"|Error: A fatal exception has occurred\. Program will exit\.|WARNING: Using incubator modules.*"
    r"|.*Python worker (Starting|Completed|finish|received).*|Starting .* Python worker\.)?\s*"
)
#: A line that names an error, as both languages and Java's own start write it.
_ERROR_WORDS: Final = re.compile(
    r"(?i)\b\w*(Error|Exception)\b|\bfailed\b|cannot|not found|unrecognized|invalid|insufficient"
)
#: The last line of a traceback; lines of Spark's own log, which tell that a worker is gone, begin with a date.
_PYTHON_ERROR: Final = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Exit|Interrupt)\b")
_WORDS_LINES_MAX: Final = 3
_CLOSED: Final = -1


class LastWords:
    """The last lines that come from a pipe, each of which is passed on to standard error at once."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=_LINES_KEPT)
        read_end, self._write_end = os.pipe()
        self._thread = Thread(target=self._pass_on, args=(read_end,), name="java-lines", daemon=True)
        self._thread.start()

    @property
    def write_end(self) -> int:
        """The descriptor that the process writes to."""
        return self._write_end

    def close_own_end(self) -> None:
        """Leave the pipe to the process, so that it ends when the process does."""
        if self._write_end != _CLOSED:
            os.close(self._write_end)
            self._write_end = _CLOSED

    def after_the_end(self) -> str:
        """Return what a process that has ended said last, as the end of a sentence."""
        self.close_own_end()
        self._thread.join(_END_TIMEOUT_S)
        words = cause_in(list(self._lines))
        return f"; it said last: {words}" if words else " and said nothing"

    def so_far(self) -> str:
        """Return the last error of a Python that was said until now, as the middle of a sentence; empty: none."""
        words = cause_in([line for line in self._lines if _PYTHON_ERROR.match(line)][-1:])
        return f", and the last error was: {words}" if words else ""

    def _pass_on(self, read_end: int) -> None:
        with os.fdopen(read_end, "rb") as stream:
            for line in stream:
                self._lines.append(line.decode(errors="replace").rstrip())
                try:
                    os.write(2, line)
                except OSError:
                    continue  # whoever read it is gone, and the process must not wait for that


def cause_in(lines: list[str]) -> str:
    """Return what the last lines of a process say of its end, in one line; empty: nothing."""
    telling = [line.strip() for line in lines if not _EMPTY_WORDS.fullmatch(line)]
    errors = [line for line in telling if _ERROR_WORDS.search(line)]
    return "; ".join((errors or telling)[-_WORDS_LINES_MAX:]).removesuffix(".")


def start_java(properties: Mapping[str, str]) -> LastWords | None:
    """Start the Java of the session that this process makes next; None: there is one already, as under `spark-submit`.

    Raises:
        CompactionError: it ended at once; the text says what it said.
    """
    context: Any = SparkContext
    if context._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        return None
    said = LastWords()
    conf = SparkConf(loadDefaults=False)
    for name, value in properties.items():
        conf.set(name, value)
    try:
        launch: Any = launch_gateway
        gateway = launch(conf, {"stdout": said.write_end, "stderr": said.write_end})
    except PySparkException:
        raise CompactionError(f"Java ended before Spark had started{said.after_the_end()}.") from None
    finally:
        said.close_own_end()
    context._ensure_initialized(gateway=gateway)
    return said
