"""The terminal in which the pages are typed: what a user would see of a command, and Ctrl-C."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.installed.terminal import Ended, Terminal
from tests.waiting import block_until


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path, dict(os.environ))
    yield terminal
    terminal.close()


def test_what_is_exported_stays_and_a_failure_inside_of_it_is_seen(terminal: Terminal) -> None:
    assert terminal.type("export ONE=$(echo 1) TWO=$(echo 2 3)  # both") == Ended(0, "")
    assert terminal.type("bash -c 'echo $ONE, $TWO'; false") == Ended(1, "1, 2 3\n")
    assert terminal.type("export THREE=$(false)") == Ended(1, "")


def test_a_command_sees_a_screen_and_no_questions_are_answered(terminal: Terminal) -> None:
    assert terminal.type("test -t 1 && test -t 2 && stty size <&2; cat") == Ended(0, "40 100\n")
    assert terminal.type("printf '\\033[1mbold\\033[0m'") == Ended(0, "bold")


def test_a_command_that_goes_on_is_ended_by_an_interrupt(terminal: Terminal) -> None:
    terminal.begin("bash -c \"trap 'exit 7' INT; echo at work; while true; do sleep 0.1; done\"")
    block_until(lambda: terminal.said() == "at work\n", "the command is at work")
    assert terminal.is_busy()
    terminal.interrupt()
    assert terminal.wait("its end") == Ended(7, "at work\n")
    assert terminal.type("echo next") == Ended(0, "next\n")


def test_the_end_of_the_shell_is_reported_with_what_it_said(terminal: Terminal) -> None:
    with pytest.raises(AssertionError, match="syntax error"):
        terminal.type("for x in")
