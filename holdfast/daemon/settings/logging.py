"""What the node says: one line an event, JSON for machines or text for people on a terminal, on stderr.

Events are short sentences; what varies is in named fields. Lines of libraries come out in the same form, from *warning* on whatever
`log_level` says: below, they show what they send and receive, a login by password or token with it, and many may set the level.
Fields whose names say that they hold a secret are hidden, and so are the secrets of the settings in any value.
Names of events and of fields are not rewritten here: they are ours, alarms look for them, and a password may be a word of theirs.
"""

from __future__ import annotations

import json
import logging
import logging.handlers
import os
import sys
from collections import deque
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from io import TextIOWrapper
from types import MappingProxyType
from typing import IO, Any, Final

import structlog

from holdfast.daemon.settings.declarations import is_secret
from holdfast.daemon.settings.models import LoggingSettings
from holdfast.daemon.settings.traceback_limit import TracebackLimit, bound_text
from holdfast.hidden_texts import HIDDEN_TEXTS, REDACTED
from holdfast.metrics.instruments import Counter
from holdfast.metrics.line_limit import LineLimiter

_log = structlog.get_logger(__name__)

#: A client may put anything into what it sends; its part of a line is cut to so many characters.
_CLIENT_TEXT_MAX: Final = 300
#: And so many are looked through for secrets, which takes time.
_CLIENT_TEXT_SEEN_MAX: Final = 10_000

#: Of a kept line that is longer, the beginning says what it is about.
_KEPT_CHARACTERS_MAX: Final = 1_000
#: Lines kept for `holdfast debug bundle`: the last minutes of a node in trouble, in half a megabyte at most.
LINES_KEPT: Final = 500
#: Lines per minute of one kind that clients can cause: enough to find out who causes them, and no guessing fills a disk.
CLIENT_LINES_PER_MINUTE_MAX: Final = 10
#: Lines per minute of one kind that librdkafka may write: it repeats what it said.
LIBRARY_LINES_PER_MINUTE_MAX: Final = 2

#: Of the lines of libraries, the least important that are written.
_LIBRARIES_LEVEL: Final = logging.WARNING
_OURS: Final = "holdfast"
_PRIVATE_MODE: Final = 0o600
#: Fields that name what a line is about.
_NAMING: Final = frozenset({"event", "level", "logger", "timestamp"})
#: Fields of structlog's formatter, which no line shows; the first is False in the lines of libraries, and is not there in ours.
_IS_OURS: Final = "_from_structlog"
_OF_STRUCTLOG: Final = frozenset({_IS_OURS, "_record"})
#: The logger of who did what; `log_level` is not about its lines.
AUDIT_LOGGER: Final = "audit"


class LastLines:
    """The last lines of this process, kept for whoever has to find out what went wrong."""

    def __init__(self) -> None:
        self._events: deque[dict[str, Any]] = deque(maxlen=0)

    def keep(self, lines_max: int) -> None:
        """Keep so many lines from now on, and forget those that were kept."""
        self._events = deque(maxlen=lines_max)

    def __call__(self, _: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:  # noqa: ANN401
        """Keep a line, and forget the oldest where there are enough; for structlog's chain, where nothing secret is left in it."""
        self._events.append(dict(event))
        return event

    def lines(self) -> list[str]:
        """Return the lines as JSON, the oldest first; long ones are cut."""
        return [json.dumps(event, ensure_ascii=False, default=repr)[:_KEPT_CHARACTERS_MAX] for event in self._events]


#: As the logging itself, these are of the process.
LAST_LINES: Final = LastLines()
#: Lines of the audit log that its file did not take.
AUDIT_UNWRITTEN: Final = Counter()


def configure_logging(
    settings: LoggingSettings,
    stream: IO[str] | None = None,
    *,
    may_be_coloured: bool = True,
    fields: Mapping[str, object] = MappingProxyType({}),
    secrets: Sequence[str] = (),
    lines_kept: int = LINES_KEPT,
) -> None:
    """Send all lines of this process to `stream` (by default stderr), in the form that the settings name.

    Text for people has colours where they may be and `stream` is a terminal.
    Each line has these fields, unless it has one of that name itself, and none of these secrets, texts of errors included; `HIDDEN_TEXTS`
    takes those that come later.
    """
    stream = stream or sys.stderr
    HIDDEN_TEXTS.replace(secrets)
    people = form_for_people(settings, stream, may_be_coloured=may_be_coloured)
    form: Any = people or structlog.processors.JSONRenderer(ensure_ascii=False)
    shared: list[Any] = [
        *([_add(fields)] if fields else ()),
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _hide_secrets,
        _to_text,
        # Not the renderer's, which shows local variables, and with them what must not be shown.
        structlog.processors.format_exc_info,
        _hide_values,
        bound_text,
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(stream)
    # Some libraries set the levels of their loggers themselves.
    handler.addFilter(_is_to_be_written)
    handler.addFilter(TracebackLimit(CLIENT_LINES_PER_MINUTE_MAX, LineLimiter()))
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, _put_first, LAST_LINES, form],
            foreign_pre_chain=shared,
        )
    )
    LAST_LINES.keep(lines_kept)
    root = logging.getLogger()
    for earlier in root.handlers[:]:
        root.removeHandler(earlier)
    root.addHandler(handler)
    logging.getLogger(AUDIT_LOGGER).setLevel(logging.INFO)
    set_level(settings.log_level)
    logging.captureWarnings(True)


def open_audit_file(path: str) -> None:
    """Send the lines of the audit log to a file of their own, as JSON and nowhere else; after `configure_logging`.

    Raises:
        OSError: it cannot be written.
    """
    handler = _AuditFile(path, encoding="utf-8")
    to_json = structlog.processors.JSONRenderer(ensure_ascii=False)
    processors: list[Any] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta, _put_first, to_json]
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(processors=processors))
    audit = logging.getLogger(AUDIT_LOGGER)
    audit.propagate = False
    audit.addHandler(handler)


class _AuditFile(logging.handlers.WatchedFileHandler):
    """A file that may be moved away; each that is made is its owner's alone, whatever the umask, and one that is there keeps its mode.

    A line that it does not take is counted, and told once a minute; where that is a bug of ours, it is told as one.
    """

    def __init__(self, path: str, *, encoding: str) -> None:
        super().__init__(path, encoding=encoding)
        self._limiter = LineLimiter()

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line; never raises, for what it tells of has happened."""
        try:
            super().emit(record)
        except OSError as error:  # there is no room, or the file was moved away, and no other one can be made
            AUDIT_UNWRITTEN.value += 1
            left_out = self._limiter.admit("audit_write_failed", 1)
            if left_out is not None:
                _log.error("audit_write_failed", file=self.baseFilename, why=str(error), **left_out)
        except Exception as bug:  # in no case of whoever did what the line tells of
            AUDIT_UNWRITTEN.value += 1
            _log.error("audit_line_failed", error=repr(bug), exc_info=bug)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 # logging's name and form
        """Leave the error that is being handled to `emit`; for `logging`, which would write a traceback each time."""
        error = sys.exception()
        assert error is not None
        raise error

    def _open(self) -> TextIOWrapper:
        try:
            made = os.open(self.baseFilename, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, _PRIVATE_MODE)
            os.fchmod(made, _PRIVATE_MODE)
        except FileExistsError:
            made = os.open(self.baseFilename, os.O_WRONLY | os.O_APPEND | os.O_CREAT, _PRIVATE_MODE)
        return open(made, "a", encoding=self.encoding)


def set_level(log_level: str) -> None:
    """Write lines of ours from a level on; of libraries those that tell of something wrong alone, and no more than of ours."""
    level = logging.getLevelNamesMapping()[log_level.upper()]
    logging.getLogger().setLevel(max(_LIBRARIES_LEVEL, level))
    logging.getLogger(_OURS).setLevel(level)


def _is_to_be_written(record: logging.LogRecord) -> bool:
    return record.levelno >= _LIBRARIES_LEVEL or record.name.partition(".")[0] in (_OURS, AUDIT_LOGGER)


def form_for_people(settings: LoggingSettings, stream: IO[str], *, may_be_coloured: bool) -> LineForPeople | None:
    """Return the form of the lines that go to `stream`; None: they are JSON."""
    if settings.log_format == "json" or (settings.log_format == "auto" and not stream.isatty()):
        return None
    return LineForPeople(is_coloured=may_be_coloured and stream.isatty())


class LineForPeople:
    """A line as text: time of day, level, event, then the fields; a traceback follows on lines of its own."""

    def __init__(self, *, is_coloured: bool) -> None:
        """Write warnings and errors in colours, or nothing."""
        self._is_coloured = is_coloured

    def __call__(self, _: Any, __: str, event: MutableMapping[str, Any]) -> str:  # noqa: ANN401
        """Return the line; for structlog's chain."""
        fields = dict(event)
        text, level = str(fields.pop("event", "")), str(fields.pop("level", ""))
        moment, traceback = str(fields.pop("timestamp", "")), fields.pop("exception", None)
        fields.pop("logger", None)
        shown = " ".join(f"{name}={_show(value)}" for name, value in fields.items())
        time_of_day = moment.partition("T")[2].partition(".")[0]
        line = f"{time_of_day} {self._paint(level, f'{level:<7}')} {self._paint(level, text)}{'  ' if shown else ''}{shown}"
        return f"{line}\n{traceback}" if traceback else line

    def _paint(self, level: str, text: str) -> str:
        colour = _COLOURS.get(level) if self._is_coloured else None
        return f"{colour}{text}\x1b[0m" if colour else text


#: Of terminals.
_COLOURS: Final = {"warning": "\x1b[33m", "error": "\x1b[31m", "critical": "\x1b[31m"}


def _show(value: object) -> str:
    """Write a value so that one sees where it ends."""
    text = str(value)
    return repr(text) if not text or any(character.isspace() for character in text) else text


def _put_first(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:  # noqa: ANN401
    """Let a line begin with what it is about."""
    return {name: event[name] for name in ("event", "level", "timestamp") if name in event} | dict(event)


def warn_of_client(limiter: LineLimiter, event: str, client: str, text: str) -> None:
    """Write one line about what the client at address `client` did, if the event has not had its share of the minute."""
    left_out = limiter.admit(event, CLIENT_LINES_PER_MINUTE_MAX)
    if left_out is not None:
        # Before the cut, which could leave a part of a secret that nobody recognizes.
        shown = HIDDEN_TEXTS.hide(text[:_CLIENT_TEXT_SEEN_MAX])[:_CLIENT_TEXT_MAX]
        _log.warning(event, client=client, text=shown, **left_out)


def warn_of_library(limiter: LineLimiter, level: int, kind: str, client: str, text: str) -> None:
    """Write one line that librdkafka says, if it is about something wrong and its kind has not had its share of the minute.

    It is a warning at most, for librdkafka calls many things errors that pass by themselves.
    """
    if level < logging.WARNING or limiter.leave_out():
        return
    left_out = limiter.admit("librdkafka_warned", LIBRARY_LINES_PER_MINUTE_MAX, kind)
    if left_out is not None:
        _log.warning("librdkafka_warned", kind=kind, client=client, text=text, **left_out)


def _add(fields: Mapping[str, object]) -> Callable[[Any, str, MutableMapping[str, Any]], MutableMapping[str, Any]]:
    def add(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:  # noqa: ANN401
        return {**fields, **event}

    return add


def _hide_secrets(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:  # noqa: ANN401
    for name, value in event.items():
        event[name] = REDACTED if is_secret(name.replace("_", ".")) or is_secret(name) else _hide_inside(value)
    return event


def _hide_values(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:  # noqa: ANN401
    """Hide what may stand in any text, such as that of an error of a library."""
    for name, value in event.items():
        # What a library says has its text in the place of an event.
        is_name = name in _NAMING and not (name == "event" and event.get(_IS_OURS) is False)
        if not is_name and name not in _OF_STRUCTLOG:
            event[name] = HIDDEN_TEXTS.hide(value)
    return event


def _hide_inside(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, dict):
        return {key: REDACTED if is_secret(str(key)) else _hide_inside(inner) for key, inner in value.items()}
    return value


def _to_text(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:  # noqa: ANN401
    """Write bytes as hexadecimal digits, for topic ids and keys are bytes."""
    for name, value in event.items():
        if isinstance(value, bytes | bytearray | memoryview):
            event[name] = value.hex()
    return event
