"""What the doctor says of users, access rules and rules for certificates: which line is wrong, and what to type."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.cli import main
from holdfast.console.doctor.findings import Finding, Level
from holdfast.console.doctor.logins import judge_logins
from holdfast.node_settings import load_settings

RULE = '{"principal": "User:a", "permission": "ALLOW", "operation": "ALL", "resource": "GROUP", "name": "g"}\n'


def judged(**flags: object) -> list[Finding]:
    given = {name.replace("__", "."): value for name, value in flags.items()}
    return list(judge_logins(load_settings(flags={"kafka.bootstrap.servers": "a:1"} | given).settings))


def with_users(path: Path, **flags: object) -> list[Finding]:
    ours = {"listener__security__protocol": "SASL_PLAINTEXT", "listener__client__properties__file": "unused"}
    return judged(listener__users__file=str(path), super__users="User:admin", **ours, **flags)


@pytest.fixture
def users(tmp_path: Path) -> Path:
    path = tmp_path / "users"
    command = ["users", "add", "alice", "--file", str(path), "--password-file", "-"]
    assert CliRunner().invoke(main, command, input="open sesame\n").exit_code == 0
    return path


def test_a_node_on_loopback_with_nothing_named_is_open() -> None:
    [found] = judged()
    assert (found.level, "on loopback" in found.text) == (Level.RIGHT, True)


def test_right_files_say_what_they_hold(users: Path, tmp_path: Path) -> None:
    rules = tmp_path / "acls.jsonl"
    rules.write_text(RULE)
    assert with_users(users, acls_file=str(rules)) == [
        Finding(Level.RIGHT, f"{users} has 1 user"),
        Finding(Level.RIGHT, "1 access rule and 1 super user"),
    ]


def test_a_broken_users_file_names_the_line_and_what_to_type(users: Path) -> None:
    line = len(users.read_text().splitlines()) + 1
    users.write_text(f"{users.read_text()}bob SCRAM-SHA-512\n")
    found, _ = with_users(users)
    assert found.level is Level.WRONG
    assert found.text.startswith(f"The users file {users} is wrong in line {line}: it has 2 words")
    assert found.remedy.startswith(f"sed -i {line}d {users}, then `holdfast users add NAME")


def test_a_users_file_that_is_missing_or_empty_is_to_be_made(tmp_path: Path, users: Path) -> None:
    found, _ = with_users(tmp_path / "nowhere")
    assert (found.level, "No such file" in found.text) == (Level.WRONG, True)
    assert found.remedy == f"holdfast users add NAME --file {tmp_path / 'nowhere'}"
    kept = users.read_text().splitlines(keepends=True)
    users.write_text("".join(line for line in kept if not line.startswith("alice")))
    found, _ = with_users(users)
    assert (found.level, found.text) == (Level.WARNING, f"{users} has no users, so nobody can log in")


def test_a_directory_is_no_file_of_users(tmp_path: Path) -> None:
    found, _ = with_users(tmp_path)
    assert (found.level, found.remedy.startswith("see who may read it by `ls -ld ")) == (Level.WRONG, True)


def test_a_directory_that_cannot_be_searched_is_said_without_a_look_at_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, *_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    for name in ("open", "stat"):  # root may search any
        monkeypatch.setattr(Path, name, refuse)
    for found in (with_users(tmp_path / "users")[0], judged(acls_file=str(tmp_path / "acls.jsonl"))[0]):
        assert (found.level, found.remedy.startswith("see who may read it by `ls -ld ")) == (Level.WRONG, True)


def test_a_broken_file_of_rules_names_the_line_and_what_to_type(tmp_path: Path) -> None:
    rules = tmp_path / "acls.jsonl"
    rules.write_text(RULE + RULE.replace("ALLOW", "MAYBE"))
    [found] = judged(acls_file=str(rules))
    assert found.level is Level.WRONG
    assert found.text.startswith(f"{tmp_path}/acls.jsonl, line 2: permission is 'MAYBE'")
    mend = f"mend that line and keep it: `vi +2 {rules}`, then `holdfast acls list --acls-file {rules}`"
    assert found.remedy == mend, "it may deny something"
    [found] = judged(acls_file=str(tmp_path / "nowhere"))
    assert found.remedy.startswith(f"holdfast acls add --acls-file {tmp_path / 'nowhere'} ")


def test_a_node_at_which_nobody_may_do_anything_is_a_warning(tmp_path: Path) -> None:
    rules = tmp_path / "acls.jsonl"
    rules.write_text("# none yet\n")
    [found] = judged(acls_file=str(rules))
    assert (found.level, "nobody may do anything" in found.text) == (Level.WARNING, True)


def test_wrong_rules_for_certificates_show_right_ones() -> None:
    found, *_ = judged(ssl__principal__mapping__rules="default")
    assert (found.level, found.text.startswith("ssl.principal.mapping.rules is wrong: 'default'")) == (
        Level.WRONG,
        True,
    )
    [found] = judged(ssl__principal__mapping__rules=found.remedy.rpartition(" ")[2])
    assert "mapping" not in found.text
