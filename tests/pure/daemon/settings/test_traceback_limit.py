"""The log stays small and printable whatever a client sends."""

import io
import json
import logging
from typing import Any

import pytest
import structlog

from holdfast.daemon.settings.logging import configure_logging
from holdfast.daemon.settings.models import LoggingSettings
from holdfast.daemon.settings.traceback_limit import TracebackLimit, printable
from holdfast.metrics.line_limit import LineLimiter


def configured(**settings: object) -> io.StringIO:
    stream = io.StringIO()
    configure_logging(LoggingSettings.model_validate(settings), stream)
    return stream


def fail(text: str, logger: Any, event: str = "A request could not be handled.", **fields: object) -> None:
    try:
        raise ValueError(text)
    except ValueError:
        logger.exception(event, **fields)


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_a_bug_that_a_client_reaches_a_thousand_times_costs_ten_tracebacks_a_minute(log_format: str) -> None:
    stream = configured(log_format=log_format)
    ours, foreign = structlog.get_logger("holdfast.daemon.server.wire.protocol"), logging.getLogger("asyncio")
    for _ in range(1_000):
        fail("a bug", ours)
        fail("a bug", foreign, "Fatal error: protocol.data_received() call failed.")
    assert stream.getvalue().count("Traceback") == 20
    fail("a bug", ours, "admin_command_failed")
    assert stream.getvalue().count("Traceback") == 21, "another kind has its own share"
    ours.error("no traceback")
    assert "no traceback" in stream.getvalue()


def test_what_was_left_out_is_counted_in_the_next_line_of_its_kind() -> None:
    now_ms = 0
    limit = TracebackLimit(2, LineLimiter(lambda: now_ms))

    def passes(message: Any, *arguments: object) -> logging.LogRecord | None:
        error = ValueError()
        record = logging.LogRecord("x", 40, "", 0, message, arguments, (ValueError, error, None))
        return record if limit.filter(record) else None

    assert [passes({"event": "bug", "exception": "…"}) is not None for _ in range(5)] == [
        True,
        True,
        False,
        False,
        False,
    ]
    now_ms = 60_000
    after = passes({"event": "bug", "exception": "…"})
    assert after is not None
    assert after.msg == {"event": "bug", "exception": "…", "left_out": 3}
    for _ in range(3):
        passes("foreign %s", "a")
    now_ms = 120_000
    foreign = passes("foreign %s", "a")
    assert foreign is not None
    assert foreign.getMessage() == "foreign a (and 1 times more, not written)"


def test_a_traceback_has_a_bounded_length_and_ends_with_what_failed() -> None:
    stream = configured()
    fail("x" * 1_000_000 + " the end", structlog.get_logger("holdfast.x"), key="k" * 1_000_000)
    (line,) = stream.getvalue().splitlines()
    assert len(line) < 20_000
    found = json.loads(line)
    assert found["exception"].startswith("Traceback")
    assert found["exception"].endswith(" the end")


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_what_a_terminal_should_not_see_is_written_as_an_escape(log_format: str) -> None:
    stream = configured(log_format=log_format)
    fail("\x1b[31m \ud800 ä", structlog.get_logger("holdfast.x"), name="\x1b[2J\ud800")
    assert "\x1b" not in stream.getvalue()
    assert "\ud800" not in stream.getvalue()
    assert "\\ud800 ä" in stream.getvalue()


def test_text_that_can_be_printed_stays_as_it_is() -> None:
    assert printable("ärger\n  in zeile 2") == "ärger\n  in zeile 2"
    assert printable("\t\x00\u202e") == "\\t\\x00\\u202e"
