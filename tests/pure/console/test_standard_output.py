"""Standard output that cannot take what a command prints: one sentence, or escapes, and no traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.cli import main
from holdfast.console.outcomes import Exit
from holdfast.console.standard_output import RUN_UNSEEN
from tests.pure.console.conftest import Node

FULL = "Error: Standard output cannot be written (No space left on device); see where it goes.\n"
CLOSED = "Error: Standard output is closed; name a file or a pipe, or /dev/null.\n"


def redirected(redirection: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command with its standard output as a shell has it."""
    command = f'exec "$0" -m holdfast "$@" {redirection}'
    shell = ("sh", "-c", command, sys.executable, *arguments)
    return subprocess.run(shell, capture_output=True, text=True, check=False, env=os.environ | environment)


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", [("--help",), ("status",), ("metrics", "--json")], ids=" ".join)
def test_a_full_disk_is_one_sentence(node: Node, arguments: tuple[str, ...], unbuffered: str) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    failed = redirected(">/dev/full", *arguments, HOLDFAST_ADDRESS=node.address, PYTHONUNBUFFERED=unbuffered)
    assert (failed.returncode, failed.stderr) == (Exit.FAILED, FULL)


def test_another_error_of_the_system_is_not_taken_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise PermissionError(13, "no")

    monkeypatch.setattr("holdfast.console.commands.kafka_groups._ask", lambda *_: refuse(None))
    assert isinstance(CliRunner().invoke(main, ("groups", "kafka", "list")).exception, PermissionError)


def test_nothing_is_done_that_could_not_be_told_of(node: Node) -> None:
    for arguments in (("status",), ("metrics", "--json"), ("partitions", "take", "1", "--force")):
        failed = redirected(">&-", *arguments, HOLDFAST_ADDRESS=node.address)
        assert (failed.returncode, failed.stderr) == (Exit.FAILED, CLOSED)
    assert node.asked == []


@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("state", "read", "--help")], ids=" ".join)
def test_what_is_printed_in_the_place_of_a_command_needs_somebody_who_reads_it(arguments: tuple[str, ...]) -> None:
    unread = redirected(">&-", *arguments)
    assert (unread.returncode, unread.stderr) == (Exit.FAILED, CLOSED)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("serve", "--set", "listen"), "'listen' is not NAME=VALUE"),
        (("dev", "--listen", "nowhere"), "--listen is 'nowhere'"),
        (("compact", "--set", "codec"), "'codec' is not NAME=VALUE"),
    ],
    ids=RUN_UNSEEN,
)
def test_what_runs_something_needs_nobody_who_reads_what_it_prints(arguments: tuple[str, ...], said: str) -> None:
    begun = redirected(">&-", *arguments)
    assert (begun.returncode, said in begun.stderr) == (Exit.WRONG_USAGE, True), begun.stderr
    helped = redirected(">&-", arguments[0], "--help")
    assert (helped.returncode, helped.stderr) == (Exit.DONE, "")


@pytest.mark.parametrize("closed", [">&-", "<&- >&-"])
def test_what_is_printed_to_nobody_goes_to_no_file_that_is_opened_later(closed: str) -> None:
    """Nor what a child prints, which finds its standard output open."""
    script = """
import os, subprocess, sys
from holdfast.console.standard_output import print_to_nobody

print_to_nobody()
print("to nobody", flush=True)
own = os.fstat(1).st_rdev == os.stat(os.devnull).st_rdev
child = subprocess.run(["sh", "-c", "echo to nobody"]).returncode
print(own, child, file=sys.stderr)
"""
    shell = ("sh", "-c", f'exec "$0" -c "$1" {closed}', sys.executable, script)
    printed = subprocess.run(shell, capture_output=True, text=True, check=False)
    assert (printed.returncode, printed.stdout, printed.stderr) == (0, "", "True 0\n")


def test_characters_that_the_encoding_lacks_are_shown_by_their_escapes(node: Node) -> None:
    node.answers["settings"] = lambda _: {"name": "w\u00f6rkers\u20ac\U0001f600"}
    runner = CliRunner(charset="latin1", env={"HOLDFAST_ADDRESS": node.address})
    shown = runner.invoke(main, ("settings",))
    assert (shown.exit_code, shown.stdout.split()[2:]) == (Exit.DONE, ["name", "w\u00f6rkers\\u20ac\\U0001f600"])
    shown = runner.invoke(main, ("settings", "--json"))
    assert (shown.exit_code, json.loads(shown.stdout)) == (Exit.DONE, {"name": "w\u00f6rkers\u20ac\U0001f600"})


def left_by_its_reader(stream: str, *arguments: str, **environment: str) -> int:
    """Return the exit code of a command after whose beginning the reader of `stdout` or `stderr` has left."""
    reading, writing = os.pipe()
    os.close(reading)
    stdout, stderr = (writing if stream == each else subprocess.DEVNULL for each in ("stdout", "stderr"))
    command = (sys.executable, "-m", "holdfast", *arguments)
    try:
        return subprocess.run(
            command, check=False, env=os.environ | environment, stdout=stdout, stderr=stderr
        ).returncode
    finally:
        os.close(writing)


@pytest.mark.parametrize(
    "arguments", [("--help",), ("--version",), ("state", "--help"), ("status",), ("partitions", "--json")], ids=" ".join
)
def test_a_reader_that_has_all_that_it_needs_is_no_failure(node: Node, arguments: tuple[str, ...]) -> None:
    assert left_by_its_reader("stdout", *arguments, HOLDFAST_ADDRESS=node.address) == Exit.DONE


def test_a_change_that_could_not_be_shown_before_is_a_failure(node: Node) -> None:
    arguments = ("partitions", "take", "1", "--force")
    assert left_by_its_reader("stderr", *arguments, HOLDFAST_ADDRESS=node.address) == Exit.FAILED
    assert [name for name, _ in node.asked] == ["decision-preview"]
