"""`holdfast users`: who logs in, in a file without a password."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast.cli import main
from holdfast.console.outcomes import Exit
from holdfast.daemon.login.credentials import SECRET_BYTES, is_password
from holdfast.daemon.login.users_file import read_kept
from holdfast.kafka.protocol.scram import SCRAM_SHA_256
from tests.world.identity.mechanisms import SCRAM


def run(path: Path, *arguments: str, said: str | None = None) -> Result:
    fewest = ("--iterations", "4096") if arguments[0] == "add" else ()
    return CliRunner().invoke(main, ["users", *arguments, *fewest, "--file", str(path)], input=said)


def test_a_user_is_added_given_a_new_password_and_removed(tmp_path: Path) -> None:
    path = tmp_path / "users"
    added = run(path, "add", "alice", "--password-file", "-", said="open sesame\n")
    assert (added.exit_code, added.stdout) == (Exit.DONE, "")
    assert added.stderr == "alice is added, with SCRAM-SHA-256, SCRAM-SHA-512.\n"
    assert "sesame" not in path.read_text()
    assert is_password(SCRAM_SHA_256, read_kept(path).credentials["alice"][SCRAM_SHA_256], "open sesame")
    assert run(path, "add", "bob", "--mechanism", SCRAM_SHA_256, said="secret\nsecret\n").exit_code == Exit.DONE
    changed = run(path, "add", "alice", "--password-file", "-", "--json", said="other\r\nmore\n")
    assert json.loads(changed.stdout) == {
        "name": "alice",
        "mechanisms": list(SCRAM),
        "is_new": False,
        "dry_run": False,
    }
    assert is_password(SCRAM_SHA_256, read_kept(path).credentials["alice"][SCRAM_SHA_256], "other")
    listed = run(path, "list", "--json")
    assert json.loads(listed.stdout) == [
        {"name": "alice", "mechanisms": list(SCRAM), "iterations": 4_096},
        {"name": "bob", "mechanisms": [SCRAM_SHA_256], "iterations": 4_096},
    ]
    assert [line.split()[0] for line in run(path, "list").stdout.splitlines()] == ["user", "alice", "bob"]
    secret = read_kept(path).secret
    assert len(secret) == SECRET_BYTES
    assert run(path, "remove", "alice").stderr == "alice is removed.\n"
    assert list(read_kept(path).credentials) == ["bob"]
    assert read_kept(path).secret == secret


def test_a_dry_run_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "users"
    tried = run(path, "add", "alice", "--password-file", "-", "--dry-run", said="x")
    assert tried.exit_code == Exit.DONE
    assert "alice would be " in tried.output
    assert not path.exists()
    run(path, "add", "alice", "--password-file", "-", said="x")
    before = path.read_text()
    assert run(path, "remove", "alice", "--dry-run").exit_code == Exit.DONE
    assert path.read_text() == before


@pytest.mark.parametrize(
    ("arguments", "said", "code", "why"),
    [
        (
            ("add", "a b", "--password-file", "-"),
            "x",
            Exit.WRONG_USAGE,
            "is no name of a user: a name is one printable",
        ),
        (("add", "alice", "--password-file", "-"), "", Exit.WRONG_USAGE, "a password has printable ASCII characters"),
        (("add", "alice", "--password-file", "-"), "søsame", Exit.WRONG_USAGE, "a password has printable ASCII"),
        (("add", "alice", "--password-file", "/nowhere"), None, Exit.WRONG_USAGE, "cannot be read from /nowhere"),
        (("remove", "alice"), None, Exit.NOT_FOUND, "users cannot be read"),
        (("list",), None, Exit.NOT_FOUND, "users cannot be read"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    tmp_path: Path, arguments: tuple[str, ...], said: str | None, code: Exit, why: str
) -> None:
    result = run(tmp_path / "users", *arguments, said=said)
    assert (result.exit_code, why in result.stderr) == (code, True), result.stderr
    assert result.stderr.startswith("Error: ")


@pytest.mark.parametrize("said", ["", "x\n", "x\ny\n"])
def test_without_a_terminal_the_option_for_a_password_is_named(tmp_path: Path, said: str) -> None:
    ended = add_without_terminal(tmp_path / "users", said)
    assert (ended.returncode, ended.stderr) == (
        Exit.WRONG_USAGE,
        "Error: There is no terminal, and no password was entered twice on the standard input; name a file that has it by "
        "--password-file, or - for the standard input.\n",
    )


def test_without_a_terminal_a_password_may_be_entered_on_the_standard_input(tmp_path: Path) -> None:
    ended = add_without_terminal(tmp_path / "users", "x\nx\n")
    assert (ended.returncode, ended.stderr) == (Exit.DONE, "alice is added, with SCRAM-SHA-256, SCRAM-SHA-512.\n")


def add_without_terminal(path: Path, said: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "holdfast", "users", "add", "alice", "--iterations", "4096", "--file", str(path)]
    return subprocess.run(command, input=said, capture_output=True, text=True, check=False, start_new_session=True)


def test_who_is_not_in_the_file_cannot_be_removed_and_a_wrong_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "users"
    run(path, "add", "alice", "--password-file", "-", said="x")
    missing = run(path, "remove", "bob")
    assert (missing.exit_code, "has no user 'bob'" in missing.stderr) == (Exit.NOT_FOUND, True)
    path.write_text("alice SCRAM-SHA-256\n")
    wrong = run(path, "add", "bob", "--password-file", "-", said="x")
    assert (wrong.exit_code, "line 1: it has 2 words" in wrong.stderr) == (Exit.WRONG_USAGE, True)
    assert path.read_text() == "alice SCRAM-SHA-256\n"
