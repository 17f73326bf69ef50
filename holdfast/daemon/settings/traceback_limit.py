"""What keeps the log small whatever a client sends: tracebacks have a number per minute and a length, text is printable."""

import logging
from collections.abc import MutableMapping
from typing import Any, Final

from holdfast.metrics.line_limit import LineLimiter

#: Lines with a traceback are counted as one event: those of libraries have texts of their own.
_TRACEBACK: Final = "traceback"
#: Of an event's text so much says what it is.
_KIND_CHARACTERS_MAX: Final = 100
#: The beginning of a text says what it is, and the end of a traceback where.
_HEAD_CHARACTERS: Final = 2_000
_TAIL_CHARACTERS: Final = 6_000


class TracebackLimit(logging.Filter):
    """The lines with a traceback of one kind that a minute may have; what was left out is counted in the next one.

    A bug of ours that a client can reach, it can reach as often as it likes.
    """

    def __init__(self, per_minute_max: int, limiter: LineLimiter) -> None:
        super().__init__()
        self._per_minute_max = per_minute_max
        self._limiter = limiter

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether a line may be written."""
        fields: dict[str, Any] | None = record.msg if isinstance(record.msg, dict) else None
        if fields is None:
            has_traceback, event = bool(record.exc_info), str(record.msg)
        else:
            has_traceback, event = bool(fields.get("exc_info") or fields.get("exception")), str(fields.get("event"))
        if not has_traceback:
            return True
        left_out = self._limiter.admit(
            _TRACEBACK, self._per_minute_max, f"{record.name} {event[:_KIND_CHARACTERS_MAX]}"
        )
        if left_out is None:
            return False
        if left_out and fields is not None:
            fields.update(left_out)
        elif left_out:
            text = f"{record.getMessage()} (and {left_out['left_out']} times more, not written)"
            record.msg, record.args = text, None
        return True


def bound_text(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:  # noqa: ANN401
    """Cut long texts in their middle and write what no terminal should see as an escape; for structlog's chain."""
    for name, value in event.items():
        if isinstance(value, str):
            event[name] = printable(value)
    return event


def printable(text: str) -> str:
    """Return a text of a bounded length in which only line ends and what can be printed is left as it is."""
    if len(text) > _HEAD_CHARACTERS + _TAIL_CHARACTERS:
        left_out = len(text) - _HEAD_CHARACTERS - _TAIL_CHARACTERS
        text = f"{text[:_HEAD_CHARACTERS]} … {left_out} characters … {text[-_TAIL_CHARACTERS:]}"
    if text.isprintable():
        return text
    return "".join(each if each == "\n" or each.isprintable() else _escape(each) for each in text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
