"""The file of access rules: JSON, one rule a line, so that a change of it is a line that a person can review.

Empty lines and lines that begin with `#` are comments, and a change leaves them where they are.
A change replaces the file in one step, so a node never reads half of one.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from enum import Enum
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from holdfast.daemon.access.acl import ANY, Acl, Operation, PatternType, Permission, ResourceType
from holdfast.daemon.file_replacement import explain_unreadable, explain_unwritable, replace_file

E = TypeVar("E", bound=Enum)

#: Rules of a file; each is looked at when the file is read.
_RULES_MAX: Final = 100_000
_COMMENT: Final = "#"


class AclFileError(Exception):
    """The file of access rules cannot be used; the text names the file, the line and the field."""


class AclFileMissing(AclFileError):
    """There is no such file."""


class Line(NamedTuple):
    """A line of the file: a rule, or a comment."""

    text: str
    acl: Acl | None


def read_lines(path: Path) -> list[Line]:
    """Return the lines of a file.

    Raises:
        AclFileMissing: there is none.
        AclFileError: it cannot be read, or a line is no rule.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise AclFileMissing(
            f"The file of access rules {path} cannot be read ({error.strerror}); `holdfast acls add` makes one."
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise AclFileError(explain_unreadable(f"The file of access rules {path}", error)) from None
    # Only at line feeds: inside of a text, JSON may have what Python takes for line ends, too.
    return list(_parse(text.split("\n"), path))


def read_acls(path: Path) -> frozenset[Acl]:
    """Return the rules of a file.

    Raises:
        AclFileError: it cannot be read, or a line is no rule.
    """
    return frozenset(line.acl for line in read_lines(path) if line.acl is not None)


def write_lines(path: Path, lines: Collection[Line]) -> None:
    """Replace a file by these lines in one step; it keeps its mode and owner, and a new one is its owner's alone to write.

    Raises:
        AclFileError: it cannot be written.
    """
    try:
        replace_file(path, "".join(f"{line.text}\n" for line in lines), mode=0o644, mode_max=0o777)
    except OSError as error:
        raise AclFileError(explain_unwritable(f"The file of access rules {path}", error)) from None


def line_of(acl: Acl) -> Line:
    """Return the line of a rule; what is as usual (any host, LITERAL) is left out."""
    fields: dict[str, str] = {
        "principal": acl.principal,
        "permission": acl.permission.value,
        "operation": acl.operation.value,
        "resource": acl.resource.value,
        "name": acl.name,
    }
    if acl.pattern is not PatternType.LITERAL:
        fields["pattern"] = acl.pattern.value
    if acl.host != ANY:
        fields["host"] = acl.host
    return Line(json.dumps(fields, ensure_ascii=False), acl)


def _parse(texts: list[str], path: Path) -> Iterator[Line]:
    if texts and not texts[-1].strip():
        texts = texts[:-1]
    if len(texts) > _RULES_MAX:
        raise AclFileError(f"{path} has {len(texts)} lines; at most {_RULES_MAX} are read.")
    for number, text in enumerate(texts, 1):
        bare = text.strip()
        if not bare or bare.startswith(_COMMENT):
            yield Line(text, None)
            continue
        try:
            yield Line(text, _rule(json.loads(bare, object_pairs_hook=_once)))
        except _Wrong as wrong:
            raise AclFileError(f"{path}, line {number}: {wrong}.") from None
        except (ValueError, RecursionError) as error:
            raise AclFileError(f"{path}, line {number} is not JSON ({error}).") from None


class _Wrong(Exception):
    """What is wrong with a line, with its field."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise _Wrong("a field is there twice")
    return fields


def _rule(fields: object) -> Acl:
    if not isinstance(fields, dict):
        raise _Wrong("it is not a JSON object")
    if unknown := sorted(fields.keys() - set(Acl._fields)):
        raise _Wrong(f"{unknown[0]!r} is no field of a rule; they are {', '.join(Acl._fields)}")
    acl = Acl(
        _text(fields, "principal"),
        _member(fields, "permission", Permission),
        _member(fields, "operation", Operation),
        _member(fields, "resource", ResourceType),
        _text(fields, "name"),
        _member({"pattern": PatternType.LITERAL.value} | fields, "pattern", PatternType),
        _text({"host": ANY} | fields, "host"),
    )
    field, why = acl.problem()
    if field:
        raise _Wrong(f"{field} {why}")
    return acl


def _text(fields: dict[str, Any], name: str) -> str:
    if name not in fields:
        raise _Wrong(f"{name} is missing")
    value = fields[name]
    if not isinstance(value, str):
        raise _Wrong(f"{name} is {json.dumps(value)[:100]}; it must be a text")
    return value


def _member(fields: dict[str, Any], name: str, kind: type[E]) -> E:
    text = _text(fields, name)
    try:
        return kind(text)
    except ValueError:
        raise _Wrong(f"{name} is {text[:100]!r}; it must be one of {', '.join(each.value for each in kind)}") from None
