"""How failures are printed."""

from __future__ import annotations

import pytest

from holdfast.console.outcomes import Exit, Failure, wrong_settings


def test_a_failure_is_one_line_and_lines_of_a_log_follow_it(capsys: pytest.CaptureFixture[str]) -> None:
    Failure("The group 'a\nb' is gone.", more_lines=["The end of node.log:", "\x1b[2Jfirst", "second"]).show()
    shown = capsys.readouterr()
    assert (shown.out, shown.err.splitlines()) == (
        "",
        ["Error: The group 'a\\nb' is gone.", "The end of node.log:", "\\x1b[2Jfirst", "second"],
    )


def test_each_wrong_setting_has_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    failure = wrong_settings(["a is 1 (as a flag); it must be 2.", "b is unknown."])
    failure.show()
    assert capsys.readouterr().err.splitlines() == ["Error: a is 1 (as a flag); it must be 2.", "b is unknown."]
    assert failure.exit_code == Exit.WRONG_USAGE
