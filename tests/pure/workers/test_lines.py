"""The lines of workers in one stream."""

from __future__ import annotations

import io
import json

from structlog.testing import capture_logs

from holdfast.daemon.settings.logging import LineForPeople
from holdfast.workers.lines import WorkerLines

LINE = json.dumps(
    {"event": "node_ready", "level": "info", "timestamp": "2026-11-22T14:46:33.4Z", "node_id": 2, "seconds": 1}
)


def test_lines_of_our_log_are_passed_on_as_they_are() -> None:
    stream = io.StringIO()
    forward = WorkerLines(stream, None, 10)
    forward(2, LINE)
    assert stream.getvalue() == LINE + "\n"


def test_for_people_they_become_text() -> None:
    stream = io.StringIO()
    WorkerLines(stream, LineForPeople(is_coloured=False), 10)(2, LINE)
    assert stream.getvalue() == "14:46:33 info    node_ready  node_id=2 seconds=1\n"


def test_what_libraries_wrote_past_our_log_is_a_line_with_its_worker_and_bounded() -> None:
    stream = io.StringIO()
    forward = WorkerLines(stream, None, 2)
    with capture_logs() as lines:
        for text in ("Fatal Python error: Aborted", "", "{no json", "[1, 2]"):
            forward(2, text)
        forward(3, '{"no": "event"}')
    assert [(line["event"], line["node_id"], line["text"]) for line in lines] == [
        ("worker_line_foreign", 2, "Fatal Python error: Aborted"),
        ("worker_line_foreign", 2, "{no json"),
        ("worker_line_foreign", 3, '{"no": "event"}'),
    ]
    assert stream.getvalue() == ""


class Closed(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError


def test_a_stream_that_nobody_reads_ends_no_worker() -> None:
    WorkerLines(Closed(), None, 10)(2, LINE)
