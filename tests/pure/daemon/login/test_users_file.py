"""Users in a file: no password in it, replaced at once, and each wrong line is named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.daemon.login.credentials import PasswordRefused, Users, derive, is_password
from holdfast.daemon.login.users_file import UsersFileWrong, read_credentials, why_no_name, write_credentials
from holdfast.kafka.protocol.scram import KEY_BYTES, SCRAM_SHA_256, SCRAM_SHA_512, Keys

KEYS = Keys(b"salt" * 4, b"s" * 32, b"k" * 32, 4_096)
LINE = (
    "alice SCRAM-SHA-256 salt=c2FsdHNhbHRzYWx0c2FsdA==,stored_key=c3Nzc3Nzc3Nzc3Nzc3Nzc3Nzc3Nzc3Nzc3Nzc3Nzc3M=,"
    "server_key=a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s=,iterations=4096"
)


def test_a_file_is_lines_in_the_form_of_kafkas_tools_and_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "users"
    longer = KEYS._replace(stored_key=b"s" * 64, server_key=b"k" * 64)
    credentials = {"bob": {SCRAM_SHA_512: longer}, "alice": {SCRAM_SHA_512: longer, SCRAM_SHA_256: KEYS}}
    write_credentials(path, credentials)
    assert path.stat().st_mode & 0o777 == 0o600
    assert [line.split()[:2] for line in path.read_text().splitlines()[1:]] == [
        ["alice", SCRAM_SHA_256],
        ["alice", SCRAM_SHA_512],
        ["bob", SCRAM_SHA_512],
    ]
    assert path.read_text().splitlines()[1] == LINE
    assert read_credentials(path) == credentials


def test_who_may_read_the_file_may_read_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, given = tmp_path / "users", []
    write_credentials(path, {})
    path.chmod(0o644)
    monkeypatch.setattr(os, "fchown", lambda _, user, group: given.append((user, group)))
    write_credentials(path, {"alice": {SCRAM_SHA_256: KEYS}})
    assert path.stat().st_mode & 0o777 == 0o640  # and nobody else
    assert given == [(path.stat().st_uid, path.stat().st_gid)]


def test_a_file_that_cannot_be_replaced_stays_and_leaves_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "users"
    write_credentials(path, {"alice": {SCRAM_SHA_256: KEYS}})
    before = path.read_text()

    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(UsersFileWrong, match="No space left"):
        write_credentials(path, {})
    assert path.read_text() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("alice SCRAM-SHA-256", "line 3: it has 2 words"),
        (LINE.replace("-256", "-1"), "line 3: the mechanism is 'SCRAM-SHA-1'"),
        (LINE.replace("alice", "a" * 256), "line 3: the name is"),
        (LINE.replace("=4096", "=4095"), "line 3: iterations is '4095'; it must be a number from 4096 to 1000000"),
        (LINE.replace("=4096", "=1000001"), "line 3: iterations"),
        (LINE.replace("=4096", "=" + "9" * 5_000), "line 3: iterations"),
        (LINE.replace("=4096", "=x"), "line 3: iterations"),
        (LINE.replace("salt=c2Fs", "salt=!"), "line 3: salt is not base64"),
        (LINE.replace("salt=c2FsdHNhbHRzYWx0c2FsdA==", "salt=c2Fs"), "line 3: salt has 3 bytes"),
        (LINE.replace("server_key=a2tr", "server_key="), "line 3: server_key has 29 bytes; it must have 32"),
        (LINE.replace("stored_key", "storedkey"), "line 3: the credential has the fields salt, storedkey"),
        (LINE + "\n" + LINE, "line 4: alice has SCRAM-SHA-256 twice"),
    ],
)
def test_a_wrong_line_is_named_with_its_field(tmp_path: Path, line: str, why: str) -> None:
    path = tmp_path / "users"
    path.write_text(f"# head\n\n{line}\n")
    with pytest.raises(UsersFileWrong, match=f"users is wrong in {why}"):
        read_credentials(path)


def test_a_file_that_is_missing_or_no_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "users"
    with pytest.raises(UsersFileWrong, match=r"users cannot be read \(No such file"):
        read_credentials(path)
    assert read_credentials(path, may_be_missing=True) == {}
    path.write_bytes(b"\xff")
    with pytest.raises(UsersFileWrong, match="is not UTF-8"):
        read_credentials(path)


@pytest.mark.parametrize("mechanism", KEY_BYTES)
def test_what_is_kept_fits_its_password_and_no_other(mechanism: str) -> None:
    keys = derive(mechanism, "open sesame", 4_096)
    assert is_password(mechanism, keys, "open sesame")
    assert not is_password(mechanism, keys, "open sesam")
    assert not is_password(mechanism, keys, "open\0sesame")
    assert b"sesame" not in b"".join(keys[:3])


@pytest.mark.parametrize("password", ["", "søsame", "a\tb"])
def test_a_password_that_clients_would_send_in_different_bytes_is_refused(password: str) -> None:
    with pytest.raises(PasswordRefused):
        derive(SCRAM_SHA_256, password)


def test_who_does_not_exist_has_what_looks_like_the_keys_of_who_does() -> None:
    users = Users({"alice": {SCRAM_SHA_256: KEYS}})
    nobody = users.find("mallory", SCRAM_SHA_256)
    assert nobody == Users({"alice": {SCRAM_SHA_256: KEYS}}).find("mallory", SCRAM_SHA_256), "each node says the same"
    assert nobody.iterations == KEYS.iterations
    assert [len(each) for each in nobody[1:3]] == [32, 32]
    assert nobody.salt != users.find("trudy", SCRAM_SHA_256).salt
    assert users.strongest_of("mallory") == users.strongest_of("alice") == SCRAM_SHA_256
    # One who has no keys under this mechanism is treated like one who does not exist.
    assert len(users.find("alice", SCRAM_SHA_512).stored_key) == 64


def test_nobody_is_named_as_who_has_not_logged_in() -> None:
    assert "not logged in" in why_no_name("ANONYMOUS")
    assert why_no_name("anonymous") == ""
