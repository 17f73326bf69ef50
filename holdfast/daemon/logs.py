"""What the node says: one line an event, JSON for machines or text for people, on stderr.

Events are short sentences; what varies stands in named fields. Lines of libraries come out in the same form.
Fields whose names say that they hold a secret are hidden, wherever they come from.
"""

import logging
import sys
from collections.abc import Callable, MutableMapping
from time import monotonic
from typing import IO, Any, Final

import structlog

from holdfast.daemon.broker_silence import IsLeftOut, none_left_out
from holdfast.daemon.declarations import REDACTED, is_secret
from holdfast.daemon.log_limits import LineLimit, TracebackLimit, bound_text
from holdfast.daemon.settings import LoggingSettings

_log = structlog.get_logger(__name__)

#: A client may put anything into what it sends; its part of a line is cut to so many characters.
_CLIENT_TEXT_MAX: Final = 300

#: The logger of everything that does not use structlog.
_ROOT_LEVEL: Final = logging.WARNING


def configure_logging(settings: LoggingSettings, stream: IO[str] | None = None) -> None:
    """Send all lines of this process to `stream` (by default stderr), in the form that the settings name."""
    stream = stream or sys.stderr
    is_json = settings.log_format == "json"
    render: Any = (
        structlog.processors.JSONRenderer(ensure_ascii=False)
        if is_json
        else structlog.dev.ConsoleRenderer(colors=stream.isatty())
    )
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _hide_secrets,
        _to_text,
        # Not the renderer's, which shows local variables, and with them what must not be shown.
        structlog.processors.format_exc_info,
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
    handler.addFilter(TracebackLimit(settings.client_lines_per_minute_max))
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, render],
            foreign_pre_chain=shared,
        )
    )
    root = logging.getLogger()
    for earlier in root.handlers[:]:
        root.removeHandler(earlier)
    root.addHandler(handler)
    level = settings.log_level.upper()
    # Ours at the level asked for; libraries only when something is wrong, or when everything is wanted.
    root.setLevel(level if level == "DEBUG" else max(_ROOT_LEVEL, logging.getLevelNamesMapping()[level]))
    logging.getLogger("holdfast").setLevel(level)
    logging.captureWarnings(True)


class ClientLines:
    """Lines that clients can cause: each names its client, and only so many a minute of one kind are written."""

    def __init__(self, per_minute_max: int, clock: Callable[[], float] = monotonic) -> None:
        """See `LineLimit`."""
        self._limit = LineLimit(per_minute_max, clock)

    def __call__(self, kind: str, peer: str, text: str) -> None:
        """Write one line about what the client at address `peer` did, if the kind has not had its share."""
        fields = self._limit.admit(kind)
        if fields is not None:
            _log.warning(kind, peer=peer, text=text[:_CLIENT_TEXT_MAX], **fields)


class LibraryLines:
    """What librdkafka says: warnings and errors, as warnings, for it calls many things errors that pass by themselves."""

    def __init__(
        self,
        per_minute_max: int,
        clock: Callable[[], float] = monotonic,
        is_left_out: IsLeftOut = none_left_out,
    ) -> None:
        """See `LineLimit` and `IsLeftOut`."""
        self._limit = LineLimit(per_minute_max, clock)
        self._is_left_out = is_left_out

    def __call__(self, level: int, kind: str, client: str, text: str) -> None:
        """Write one line, if it matters and the kind has not had its share."""
        is_told = level >= logging.WARNING and not self._is_left_out(None)
        fields = self._limit.admit(kind) if is_told else None
        if fields is not None:
            _log.warning("librdkafka says", kind=kind, client=client, text=text, **fields)


def _hide_secrets(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:  # noqa: ANN401
    for name, value in event.items():
        event[name] = REDACTED if is_secret(name.replace("_", ".")) or is_secret(name) else _hide_inside(value)
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
