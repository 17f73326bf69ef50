"""What a node says of what its child says."""

from __future__ import annotations

from typing import Any

import structlog
from structlog.testing import capture_logs

from holdfast.compaction.child_lines import LINES_PER_MINUTE_MAX, ChildLines


def hide(content: Any) -> Any:
    return content.replace("open sesame", "(hidden)") if isinstance(content, str) else content


def said(*lines: str) -> list[dict[str, Any]]:
    with capture_logs() as captured:
        forward = ChildLines(structlog.get_logger(), hide)
        for line in lines:
            forward(line)
    return [dict(line) for line in captured]


def test_our_lines_keep_level_and_fields() -> None:
    (line,) = said('{"event": "fold_stopped", "level": "error", "partition": 3, "timestamp": "now"}')
    assert line == {
        "event": "fold_stopped",
        "log_level": "error",
        "partition": 3,
    }


def test_sparks_lines_keep_their_level_and_a_stack_trace_belongs_to_its_line() -> None:
    lines = said(
        "Setting default log level to WARN",
        "26/11/21 11:30:00 WARN TaskSetManager: Lost task 0.0",
        "java.lang.IllegalStateException: no",
        "\tat org.apache.Spark",
        "Starting Streaming worker.",
        "26/11/21 11:30:00 INFO Utils: fine",
        "",
        '{"not": "ours"}',
    )
    assert [(line["log_level"], line["text"]) for line in lines] == [
        ("debug", "Setting default log level to WARN"),
        ("warning", "Lost task 0.0"),
        ("warning", "java.lang.IllegalStateException: no"),
        ("warning", "\tat org.apache.Spark"),
        ("debug", "Starting Streaming worker."),
        ("debug", "fine"),
        ("debug", '{"not": "ours"}'),
    ]
    assert lines[1]["logger_of_spark"] == "TaskSetManager"


def test_a_minute_has_its_share_and_the_next_one_counts_what_was_left_out() -> None:
    now_ms = 0
    with capture_logs() as lines:
        forward = ChildLines(structlog.get_logger(), hide, lambda: now_ms)
        for _ in range(LINES_PER_MINUTE_MAX + 3):
            forward("26/11/21 11:30:00 ERROR A: no")
        assert len(lines) == LINES_PER_MINUTE_MAX
        now_ms = 60_000
        forward("26/11/21 11:30:00 ERROR A: no")
    assert lines[-1]["left_out"] == 3


def test_a_line_has_no_secret_in_any_place_nor_a_part_of_one() -> None:
    lines = said(
        '{"event": "no open sesame", "level": "info", "open sesame": [{"open sesame": "open sesame"}]}',
        "26/11/21 11:30:00 WARN A: " + "x" * 995 + "open sesame",
        "x" * 995 + "open sesame",
    )
    assert lines[0] == {"event": "no (hidden)", "log_level": "info", "(hidden)": [{"(hidden)": "(hidden)"}]}
    assert [line["text"] for line in lines[1:]] == ["x" * 995 + "(hidd"] * 2
