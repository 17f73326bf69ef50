"""Users and rules of the listener: the files that the settings name, read as the node reads them."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import Final

from holdfast.console.doctor.findings import Finding, Level, Subject, right, warning, wrong
from holdfast.daemon.access.acl_file import AclFileError, read_acls
from holdfast.daemon.access.following import is_open
from holdfast.daemon.login.principal_rules import PrincipalRules, RulesWrong
from holdfast.daemon.login.users_file import UsersFileWrong, read_users
from holdfast.daemon.settings.models import Settings

_LINE: Final = re.compile(r"\bline (\d+)\b")
#: Why a file that is there cannot be read.
_UNREADABLE: Final = (errno.EACCES, errno.EISDIR)
_RULES_RIGHT: Final = "set ssl.principal.mapping.rules as in RULE:^CN=([^,]*).*$/$1/,DEFAULT"


async def check_logins(subject: Subject) -> Sequence[Finding]:
    """Read the users, the access rules and the rules that map certificates to principals."""
    return judge_logins(subject.settings)


def judge_logins(settings: Settings) -> Sequence[Finding]:
    """Judge what the settings name of users and rules."""
    security = settings.security
    findings = []
    if security.has_login:
        findings.append(_judge_users(Path(security.users_file)))
    mapping = _judge_mapping(security.ssl_principal_mapping_rules)
    # A node reads them at its start whether clients show certificates or not.
    if mapping.level is not Level.RIGHT or security.security_protocol == "SSL":
        findings.append(mapping)
    if is_open(settings):
        return findings or [
            right("any program on this machine may do everything, because the node listens on loopback")
        ]
    return [*findings, _judge_acls(settings)]


def _judge_users(path: Path) -> Finding:
    try:
        users = read_users(path)
    except UsersFileWrong as error:
        return _refused(
            str(error),
            path,
            f"sed -i {{line}}d {path}, then `holdfast users add NAME --file {path}` for the user of that line",
            f"holdfast users add NAME --file {path}",
        )
    if not len(users):
        return warning(f"{path} has no users, so nobody can log in", f"holdfast users add NAME --file {path}")
    return right(f"{path} has {_number(len(users), 'user')}")


def _judge_mapping(text: str) -> Finding:
    try:
        PrincipalRules(text)
    except RulesWrong as error:
        return wrong(f"ssl.principal.mapping.rules is wrong: {error}", _RULES_RIGHT)
    return right("ssl.principal.mapping.rules can be read")


def _judge_acls(settings: Settings) -> Finding:
    path, super_users = settings.access.acls_file, settings.access.super_users
    rules, where = 0, Path(path or "/etc/holdfast/acls.jsonl")
    add = f"holdfast acls add --acls-file {where} --allow-principal User:NAME --operation ALL --group GROUP"
    if path:
        try:
            rules = len(read_acls(where))
        except AclFileError as error:
            # It may deny something, so without it somebody may do more than before.
            edit = f"mend that line and keep it: `vi +{{line}} {quote(path)}`"
            return _refused(str(error), where, f"{edit}, then `holdfast acls list --acls-file {quote(path)}`", add)
    if not rules and not super_users:
        set_it = "" if path else f", and set acls_file = {where}"
        return warning("there are no access rules and no super users, so nobody may do anything", f"{add}{set_it}")
    return right(f"{_number(rules, 'access rule')} and {_number(len(super_users), 'super user')}")


def _refused(why: str, path: Path, mend_line: str, make: str) -> Finding:
    """Return that a file cannot be used.

    Args:
        why: names the line, if it is one.
        path: of the file.
        mend_line: what to type about a line, whose number replaces `{line}`.
        make: what to type where the file is not there, or lacks something.
    """
    # As in a sentence that goes on.
    why = why.removesuffix(".")
    if found := _LINE.search(why):
        return wrong(why, mend_line.replace("{line}", found[1]))
    # Not by a look at the file: where a directory cannot be searched, there is none.
    if any(os.strerror(each) in why for each in _UNREADABLE):
        return wrong(why, f"see who may read it by `ls -ld {path}`; the user that the node runs as must")
    return wrong(why, make)


def _number(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
