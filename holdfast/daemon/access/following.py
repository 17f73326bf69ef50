"""The access rules of a node, from its settings and from the file that they name, which is followed."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Final

import structlog

from holdfast.daemon.access.acl import Acl
from holdfast.daemon.access.acl_file import AclFileError, read_acls
from holdfast.daemon.access.audit import Audit
from holdfast.daemon.access.authorizer import Authorizer
from holdfast.daemon.access.needs import Needs
from holdfast.daemon.access.rules import Rules
from holdfast.daemon.context import NodeContext
from holdfast.daemon.file_watch import FileWatch
from holdfast.daemon.settings.logging import AUDIT_LOGGER, AUDIT_UNWRITTEN
from holdfast.daemon.settings.models import Settings
from holdfast.metrics.registry import Registry

_log = structlog.get_logger(AUDIT_LOGGER)

#: Of the rules that a reload brought; who wants all has the file's history.
_SHOWN_MAX: Final = 50


class AccessMetrics:
    """The instruments of what is allowed and denied."""

    def __init__(self, registry: Registry) -> None:
        self.denials = registry.counter(
            "access_denials", "Requests that were denied since the start; of a look-up each key; 0 is healthy."
        )
        registry.counter(
            "audit_lines_unwritten",
            "Lines of the audit log that `audit_file` did not take since the start; 0 is healthy.",
            lambda: AUDIT_UNWRITTEN.value,
        )


def is_open(settings: Settings) -> bool:
    """Return whether everything is allowed: no rules are named, nobody logs in, and only this machine reaches the node."""
    is_plain = settings.security.security_protocol == "PLAINTEXT"
    return not settings.access.acls_file and settings.listener.is_on_loopback and is_plain


def make_audit(context: NodeContext, needs: Needs) -> Audit:
    """Return the audit log."""
    return Audit(AccessMetrics(context.registry).denials, needs, context.limiter)


def make_authorizer(settings: Settings, audit: Audit, needs: Needs, files: FileWatch) -> Authorizer:
    """Return what decides by the settings and by the file of access rules, whose changes it takes over.

    Raises:
        AclFileError: the file cannot be read, or a line is no rule.
    """
    path, super_users = Path(settings.access.acls_file), settings.access.super_users
    # Its changes are looked for from before it is read on.
    if settings.access.acls_file:
        files.follow("acls_file", lambda: [path], lambda: _reload(path, authorizer))
    rules = Rules(read_acls(path) if settings.access.acls_file else (), super_users)
    opened = is_open(settings)
    authorizer = Authorizer(rules, audit, needs, is_open=opened)
    _log.info("access_rules_loaded", file=settings.access.acls_file, rules=len(rules.acls), is_open=opened)
    if not opened and not rules.acls and not super_users:
        _log.warning("access_closed", why="there are no access rules and no super users, so nobody may do anything")
    return authorizer


def _reload(path: Path, authorizer: Authorizer) -> bool:
    """Take over the rules of the file, and return whether it did; where it is wrong, those before it stay."""
    before = authorizer.rules
    try:
        rules = Rules(read_acls(path), before.super_users)
    except AclFileError as error:
        _log.error("access_rules_reload_failed", why=str(error))
        return False
    if rules.acls != before.acls:
        authorizer.reconfigure(rules)
        added, removed = _show(rules.acls - before.acls), _show(before.acls - rules.acls)
        _log.info("access_rules_reloaded", rules=len(rules.acls), added=added, removed=removed)
    return True


def _show(acls: Collection[Acl]) -> list[str]:
    """Return rules for people; beyond a number of them, how many more there are."""
    shown = sorted(map(str, acls))
    more = len(shown) - _SHOWN_MAX
    return shown if more <= 0 else [*shown[:_SHOWN_MAX], f"and {more} more"]
