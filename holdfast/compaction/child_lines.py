"""Lines that the processes of the job write to standard error, logged in our own form.

Our own lines are JSON and keep their event, level and fields; those of Spark's Java side keep their level; any other line is for
debugging, unless it continues one of Spark's, as a stack trace does. The number of lines in a minute is bounded.
"""

import json
import re
from collections.abc import Callable
from typing import Any, Final

from holdfast.clock import now_ms
from holdfast.metrics.line_limit import LineLimiter

LINES_PER_MINUTE_MAX: Final = 60
#: All lines of the job are counted as one event: what the processes of Spark write has no names to be counted by.
_ANY: Final = ""
_TEXT_MAX: Final = 1_000

#: As Spark's log4j writes them: `26/11/21 11:30:00 WARN TaskSetManager: Lost task 0.0 in stage 1.0`.
_SPARK_LINE: Final = re.compile(r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d (TRACE|DEBUG|INFO|WARN|ERROR|FATAL) ([\w$.]+): (.*)")
#: What a stack trace of Java consists of.
_STACK_TRACE: Final = re.compile(r"\s|Caused by: |[\w.$]+(Exception|Error)\b")
_SPARK_LEVELS: Final = {"WARN": "warning", "ERROR": "error", "FATAL": "error"}
_OUR_LEVELS: Final = frozenset(("debug", "info", "warning", "error", "critical"))
_DROPPED_FIELDS: Final = ("level", "event", "timestamp", "logger")


class ChildLines:
    """The forwarding of the lines of one stream to a log."""

    def __init__(self, log: Any, hide: Callable[[Any], Any], clock_ms: Callable[[], int] = now_ms) -> None:  # noqa: ANN401
        """Log the lines through `log`, a logger of structlog, without the secrets that `hide` hides in texts."""
        self._log = log
        self._hide = hide
        self._limiter = LineLimiter(clock_ms)
        #: Level of the last line of Spark's.
        self._level = "debug"

    def __call__(self, line: str) -> None:
        """Log one line, unless the minute has its share already."""
        level, event, fields = self._parse(line.rstrip())
        if not event:
            return
        left_out = {} if level == "debug" else self._limiter.admit(_ANY, LINES_PER_MINUTE_MAX)
        if left_out is not None:
            getattr(self._log, level)(event, **fields | left_out)

    def _parse(self, line: str) -> tuple[str, str, dict[str, Any]]:
        """Return level, event and fields of a line."""
        if line.startswith("{"):
            try:
                fields = json.loads(line)
                level, event = str(fields["level"]), str(fields["event"])
            except (ValueError, KeyError):
                pass
            else:
                self._level = "debug"
                ours = {name: value for name, value in fields.items() if name not in _DROPPED_FIELDS}
                return level if level in _OUR_LEVELS else "info", self._hide(event), self._hide_all(ours)
        if (found := _SPARK_LINE.fullmatch(line)) is not None:
            level, logger, text = found.groups()
            self._level = _SPARK_LEVELS.get(level, "debug")
            return self._level, "spark_line_logged", {"logger_of_spark": logger, "text": self._cut(text)}
        if _STACK_TRACE.match(line) is None:
            self._level = "debug"
        return self._level, "spark_line_logged" if line else "", {"text": self._cut(line)}

    def _hide_all(self, content: Any) -> Any:  # noqa: ANN401
        """Hide secrets in names as well as in values: who writes such a line may not be the job, and then the names are not ours."""
        if isinstance(content, dict):
            return {self._hide(name): self._hide_all(value) for name, value in content.items()}
        if isinstance(content, list):
            return [self._hide_all(each) for each in content]
        return self._hide(content)

    def _cut(self, text: str) -> str:
        """Return the beginning of a text; a cut before could leave a part of a secret that nobody recognizes."""
        beginning: str = self._hide(text)[:_TEXT_MAX]
        return beginning
