"""How failures are printed."""

from __future__ import annotations

import pytest

from holdfast.console.outcomes import Failure


def test_a_failure_is_one_line_and_lines_of_a_log_follow_it(capsys: pytest.CaptureFixture[str]) -> None:
    Failure("The group 'a\nb' is gone.", log_lines=["The end of node.log:", "\x1b[2Jfirst", "second"]).show()
    shown = capsys.readouterr()
    assert (shown.out, shown.err.splitlines()) == (
        "",
        ["Error: The group 'a\\nb' is gone.", "The end of node.log:", "\\x1b[2Jfirst", "second"],
    )
