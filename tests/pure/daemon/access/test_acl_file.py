"""The file of access rules: what it takes, what it says of wrong lines, and how it is replaced."""

from __future__ import annotations

import json
import os
from errno import EACCES
from pathlib import Path

import pytest
from hypothesis import given

from holdfast.daemon.access.acl import Acl, Operation, PatternType
from holdfast.daemon.access.acl_file import AclFileError, Line, _parse, line_of, read_acls, read_lines, write_lines
from tests.pure.daemon.access.test_rules import acls
from tests.world.identity.access import group_acl

RULE = '{"principal": "User:a", "permission": "ALLOW", "operation": "READ", "resource": "GROUP", "name": "orders"}'


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


@given(acls())
def test_a_rule_is_read_as_it_was_written(acl: Acl) -> None:
    line = line_of(acl)
    assert "\n" not in line.text
    assert list(_parse([line.text], Path("acls"))) == [line]


def test_comments_and_empty_lines_stay_where_they_are(tmp_path: Path) -> None:
    text = f"# orders team\n{RULE}\n\n  # the rest\n"
    path = write(tmp_path / "acls", text)
    assert read_acls(path) == {group_acl(Operation.READ, "orders", principal="User:a")}
    write_lines(path, read_lines(path))
    assert path.read_text() == text


def test_an_empty_file_has_no_rules(tmp_path: Path) -> None:
    assert read_lines(write(tmp_path / "acls", "")) == []


def test_usual_fields_are_left_out_and_names_are_readable() -> None:
    line = line_of(group_acl(Operation.WRITE, "bøker-", principal="User:a", pattern=PatternType.PREFIXED))
    assert "bøker-" in line.text
    assert list(json.loads(line.text)) == ["principal", "permission", "operation", "resource", "name", "pattern"]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"principal": "orders"}, "principal is 'orders'; it must be User: and a name, as in User:orders"),
        ({"principal": "Group:x"}, "principal is 'Group:x'; it must be User: and a name, as in User:orders"),
        ({"principal": "User:Zoe\u0308"}, r"principal is 'User:Zoe\u0308'; it must be normalised by Unicode's NFKC"),
        ({"principal": 7}, "principal is 7; it must be a text"),
        ({"permission": "allow"}, "permission is 'allow'; it must be one of ALLOW, DENY"),
        (
            {"operation": "ALTER"},
            "operation is ALTER, which means nothing for a GROUP; it takes ALL, DELETE, DESCRIBE,",
        ),
        ({"resource": "USER"}, "resource is 'USER'; it must be one of GROUP, TOPIC, CLUSTER"),
        (
            {"resource": "TOPIC", "operation": "WRITE"},
            "operation is WRITE, which means nothing for a TOPIC; it takes ALL, DESCRIBE, READ",
        ),
        ({"name": ""}, "name is ''; it must be a text that can be printed"),
        ({"name": "a\nb"}, r"name is 'a\nb'; it must be a text that can be printed"),
        ({"pattern": "MATCH"}, "pattern is 'MATCH'; it must be one of LITERAL, PREFIXED"),
        ({"host": ""}, "host is ''; it must be a text that can be printed"),
        *(
            ({"host": host}, f"host is '{host}'; it must be an IP address as clients have it, or *")
            for host in ("10.0.0.0/8", "2001:DB8::1", "db1.example", "010.0.0.1")
        ),
        ({"hosts": "*"}, "'hosts' is no field of a rule; they are principal, permission, "),
        (
            {"resource": "CLUSTER", "operation": "ALTER"},
            "name is 'orders'; the one CLUSTER is 'kafka-cluster', LITERAL",
        ),
    ],
)
def test_a_wrong_line_is_named_with_its_field(tmp_path: Path, change: dict[str, object], problem: str) -> None:
    wrong = json.dumps(json.loads(RULE) | change)
    path = write(tmp_path / "acls", f"# all\n{RULE}\n{wrong}\n{RULE}\n")
    with pytest.raises(AclFileError) as caught:
        read_acls(path)
    assert str(caught.value).startswith(f"{path}, line 3: {problem}")


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("[]", ", line 1: it is not a JSON object"),
        ("{", ", line 1 is not JSON ("),
        (RULE + ",", ", line 1 is not JSON ("),
        ("[" * 100_000, ", line 1 is not JSON ("),
        (RULE.replace('"User:a"', '"User:a", "principal": "User:b"'), ", line 1: a field is there twice"),
        (RULE.replace('"principal": "User:a", ', ""), ", line 1: principal is missing"),
    ],
)
def test_what_is_no_rule_is_refused(tmp_path: Path, line: str, problem: str) -> None:
    with pytest.raises(AclFileError) as caught:
        read_acls(write(tmp_path / "acls", f"{line}\n"))
    assert str(caught.value).startswith(f"{tmp_path / 'acls'}{problem}")


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    with pytest.raises(AclFileError, match=r"cannot be read \(No such file or directory\); `holdfast acls add` makes"):
        read_acls(tmp_path / "missing")
    with pytest.raises(AclFileError, match=r"cannot be read \(Is a directory\); name another\.$"):
        read_acls(tmp_path)
    (tmp_path / "latin").write_bytes(b"# \xe9\n")
    with pytest.raises(AclFileError, match=r"is not UTF-8; write it so, or name another\.$"):
        read_acls(tmp_path / "latin")
    with pytest.raises(AclFileError, match=r"cannot be read \(Not a directory\); name another\.$"):
        read_acls(tmp_path / "latin" / "inner")


def test_a_file_that_others_alone_may_read_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> str:
        raise PermissionError(EACCES, os.strerror(EACCES))

    monkeypatch.setattr(Path, "read_text", refuse)
    with pytest.raises(AclFileError, match=r"\(Permission denied\); name a file that this user may read\.$"):
        read_acls(tmp_path / "acls")


def test_a_change_replaces_the_file_whole_and_keeps_its_mode(tmp_path: Path) -> None:
    path = write(tmp_path / "acls", "# old\n")
    path.chmod(0o640)
    before = path.stat().st_ino
    write_lines(path, [Line("# new", None)])
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("# new\n", 0o640)
    assert path.stat().st_ino != before
    assert [each.name for each in tmp_path.iterdir()] == ["acls"]


def test_a_file_that_cannot_be_written_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "acls"
    with pytest.raises(
        AclFileError, match=r"cannot be written \(No such file or directory\); name one in a directory that"
    ):
        write_lines(path, [])
