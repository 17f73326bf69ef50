"""Users in a file: no password in it, replaced at once, and each wrong line is named."""

from __future__ import annotations

import os
from errno import EACCES
from pathlib import Path

import pytest

from holdfast.daemon.login.credentials import SECRET_BYTES, KeptUsers, PasswordRefused, Users, derive, is_password
from holdfast.daemon.login.users_file import UsersFileWrong, read_kept, read_users, why_no_name, write_kept
from holdfast.kafka.protocol.scram import SCRAM_SHA_256, SCRAM_SHA_512, Keys
from tests.world.identity.mechanisms import SCRAM

KEYS = Keys(b"salt" * 4, b"s" * 32, b"k" * 32, 4_096)
LINE = (
    "alice SCRAM-SHA-256 salt=c2FsdHNhbHRzYWx0c2FsdA==,stored_key=c3Nzc3Nzc3Nzc3Nzc3Nzc3Nzc3Nzc3Nzc3Nzc3Nzc3M=,"
    "server_key=a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s=,iterations=4096"
)

SECRET = b"h" * SECRET_BYTES
SECRET_LINE = "secret aGhoaGhoaGhoaGhoaGhoaGhoaGhoaGhoaGhoaGhoaGg="


def test_a_file_is_lines_in_the_form_of_kafkas_tools_and_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "users"
    longer = KEYS._replace(stored_key=b"s" * 64, server_key=b"k" * 64)
    credentials = {"bob": {SCRAM_SHA_512: longer}, "alice": {SCRAM_SHA_512: longer, SCRAM_SHA_256: KEYS}}
    kept = KeptUsers(credentials, SECRET)
    write_kept(path, kept)
    assert path.stat().st_mode & 0o777 == 0o600
    assert [line.split()[:2] for line in path.read_text().splitlines()[2:]] == [
        ["alice", SCRAM_SHA_256],
        ["alice", SCRAM_SHA_512],
        ["bob", SCRAM_SHA_512],
    ]
    assert path.read_text().splitlines()[1:3] == [SECRET_LINE, LINE]
    assert read_kept(path) == kept


def test_who_may_read_the_file_may_read_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, given = tmp_path / "users", []
    write_kept(path, KeptUsers({}))
    path.chmod(0o644)
    monkeypatch.setattr(os, "fchown", lambda _, user, group: given.append((user, group)))
    write_kept(path, KeptUsers({"alice": {SCRAM_SHA_256: KEYS}}))
    assert path.stat().st_mode & 0o777 == 0o640  # and nobody else
    assert given == [(path.stat().st_uid, path.stat().st_gid)]


def test_a_file_that_cannot_be_replaced_stays_and_leaves_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "users"
    write_kept(path, KeptUsers({"alice": {SCRAM_SHA_256: KEYS}}))
    before = path.read_text()

    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(UsersFileWrong, match="No space left"):
        write_kept(path, KeptUsers({}))
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
        ("secret !", "line 3: secret is not base64"),
        ("secret c2Fs", "line 3: secret has 3 bytes; it must have 32"),
        (SECRET_LINE + "\n" + SECRET_LINE, "line 4: secret is there twice"),
    ],
)
def test_a_wrong_line_is_named_with_its_field(tmp_path: Path, line: str, why: str) -> None:
    path = tmp_path / "users"
    path.write_text(f"# head\n\n{line}\n")
    with pytest.raises(UsersFileWrong, match=f"users is wrong in {why}"):
        read_kept(path)


def test_a_file_that_is_missing_or_no_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "users"
    with pytest.raises(UsersFileWrong, match=r"users cannot be read \(No such file"):
        read_kept(path)
    assert read_kept(path, may_be_missing=True) == KeptUsers({})
    path.write_bytes(b"\xff")
    with pytest.raises(UsersFileWrong, match=r"is not UTF-8; write it so, or name another\.$"):
        read_kept(path)
    with pytest.raises(UsersFileWrong, match=r"cannot be read \(Is a directory\); name another\.$"):
        read_kept(tmp_path)
    with pytest.raises(UsersFileWrong, match=r"cannot be read \(Not a directory\); name another\.$"):
        read_kept(path / "inner", may_be_missing=True)
    with pytest.raises(UsersFileWrong, match=r"cannot be written \(Not a directory\); name one in a directory that"):
        write_kept(path / "inner", KeptUsers({}))


def test_a_file_that_others_alone_may_read_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> str:
        raise PermissionError(EACCES, os.strerror(EACCES))

    monkeypatch.setattr(Path, "read_text", refuse)
    with pytest.raises(UsersFileWrong, match=r"\(Permission denied\); name a file that this user may read\.$"):
        read_kept(tmp_path / "users")


@pytest.mark.parametrize("mechanism", SCRAM)
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


def test_a_node_wants_the_secret_that_hides_who_exists(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_text(f"{LINE}\n")
    with pytest.raises(
        UsersFileWrong, match="has no line 'secret', which hides who exists; `holdfast users add` writes"
    ):
        read_users(path)
    write_kept(path, read_kept(path).changed({}))
    assert len(read_users(path)) == 0


def challenge(path: Path, name: str, mechanism: str) -> tuple[bytes, int, int]:
    """Return what a client is told of a user by a node that has started now: the salt, its length, the iterations."""
    keys = read_users(path).find(name, mechanism)
    return keys.salt, len(keys.salt), keys.iterations


@pytest.mark.parametrize("mechanism", SCRAM)
def test_who_exists_cannot_be_told_by_salt_or_iterations(tmp_path: Path, mechanism: str) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    kept = KeptUsers({}).changed(
        {name: {each: derive(each, name, 5_000) for each in SCRAM} for name in ("alice", "bob")}
    )
    for path in (here, there):  # two nodes of a cluster
        write_kept(path, kept)
    names = ("alice", "mallory", "trudy")
    before = [challenge(here, name, mechanism) for name in names]
    assert [challenge(there, name, mechanism) for name in names] == before
    assert [challenge(here, name, mechanism) for name in names] == before, "after a restart"
    assert len({salt for salt, _, _ in before}) == len(names)
    assert len({(length, iterations) for _, length, iterations in before}) == 1
    # Others come and go, and are given passwords with other iterations.
    eve = {each: derive(each, "eve", 9_000) for each in SCRAM}
    for credentials in ({**kept.credentials, "eve": eve}, {"eve": eve, "alice": kept.credentials["alice"]}):
        write_kept(here, read_kept(here).changed(credentials))
        assert [challenge(here, name, mechanism)[:2] for name in names] == [each[:2] for each in before]
    write_kept(here, read_kept(here).changed({**kept.credentials, "eve": eve}))
    assert [challenge(here, name, mechanism) for name in names] == before, "as most users have them"


def test_who_does_not_exist_is_checked_by_the_mechanism_that_most_users_have() -> None:
    own = {SCRAM_SHA_256: KEYS}
    users = Users(KeptUsers({"alice": own, "bob": own, "carol": {SCRAM_SHA_512: KEYS}}, SECRET))
    assert users.strongest_of("mallory") == users.strongest_of("alice") == SCRAM_SHA_256
    assert [len(each) for each in users.find("mallory", SCRAM_SHA_256)[:3]] == [16, 32, 32]
    # One who has no keys under this mechanism is treated like one who does not exist.
    assert len(users.find("alice", SCRAM_SHA_512).stored_key) == 64


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("Zoe\u0308", "all ways to write it are one name, which is 'Zoë'"),
        ("\ufb01le", "which is 'file'"),
        ("\U0001f600", "a name has characters that SASLprep"),
    ],
)
def test_a_name_is_written_in_one_way_only(tmp_path: Path, name: str, why: str) -> None:
    assert why in why_no_name(name)
    path = tmp_path / "users"
    path.write_text(LINE.replace("alice", name) + "\n", encoding="utf-8")
    with pytest.raises(UsersFileWrong, match="line 1: the name is"):
        read_kept(path)
    assert why_no_name("Zoë") == ""


def test_nobody_is_named_as_who_has_not_logged_in() -> None:
    assert "not logged in" in why_no_name("ANONYMOUS")
    assert why_no_name("anonymous") == ""
