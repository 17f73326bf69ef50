"""Access rules for tests: everything allowed, or what is given."""

from __future__ import annotations

from collections.abc import Collection

from holdfast.daemon.access.acl import CLUSTER_NAME, Acl, Operation, PatternType, Permission, ResourceType
from holdfast.daemon.access.audit import Audit
from holdfast.daemon.access.authorizer import Authorizer
from holdfast.daemon.access.rules import Rules
from holdfast.metrics.instruments import Counter
from holdfast.metrics.line_limit import LineLimiter
from tests.world.tenants import NEEDS

AUDIT = Audit(Counter(), NEEDS, LineLimiter(), 1_000, 1_000)
#: Allows everything to everybody.
OPEN = Authorizer(Rules(), AUDIT, NEEDS, is_open=True)


def closed(*acls: Acl, super_users: Collection[str] = (), lines_per_minute_max: int = 1_000) -> Authorizer:
    """Return what allows only what these rules do."""
    audit = Audit(Counter(), NEEDS, LineLimiter(lambda: 0), lines_per_minute_max, lines_per_minute_max)
    return Authorizer(Rules(acls, super_users), audit, NEEDS)


def group_acl(
    operation: Operation,
    name: str,
    *,
    principal: str = "User:ANONYMOUS",
    permission: Permission = Permission.ALLOW,
    pattern: PatternType = PatternType.LITERAL,
    host: str = "*",
) -> Acl:
    return Acl(principal, permission, operation, ResourceType.GROUP, name, pattern, host)


def topic_acl(operation: Operation, name: str) -> Acl:
    return Acl("User:ANONYMOUS", Permission.ALLOW, operation, ResourceType.TOPIC, name)


def cluster_acl(
    operation: Operation,
    *,
    principal: str = "User:ANONYMOUS",
    permission: Permission = Permission.ALLOW,
    host: str = "*",
) -> Acl:
    return Acl(principal, permission, operation, ResourceType.CLUSTER, CLUSTER_NAME, host=host)
