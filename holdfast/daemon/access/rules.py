"""The decision: may this principal do this? Pure, and the same whatever order the rules are in.

A rule that denies wins over all that allow; what no rule allows is denied. Super users may do everything.

Source: Apache Kafka's `StandardAuthorizerData`, whose order of looking is the same: super users, DENY, ALLOW, and what an
operation implies.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from holdfast.daemon.access.acl import (
    ANY,
    ANYBODY,
    CLUSTER_NAME,
    IMPLYING_DESCRIBE,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)


class Decision(NamedTuple):
    """Whether something may be done, and what decides it."""

    is_allowed: bool
    #: The rule that decides; None: a super user, or no rule at all.
    rule: Acl | None
    #: A clause for people.
    why: str


class Rules:
    """Access rules, found by the name of a resource."""

    def __init__(self, acls: Iterable[Acl] = (), super_users: Collection[str] = ()) -> None:
        """Hold rules, a double one once; super users are principals such as `User:admin`."""
        self.acls = frozenset(acls)
        self.super_users = frozenset(super_users)
        #: Whether a rule looks at where a client is.
        self.has_hosts = any(acl.host != ANY for acl in self.acls)
        self._literal: dict[tuple[ResourceType, str], list[Acl]] = {}
        self._prefixed: dict[tuple[ResourceType, str], list[Acl]] = {}
        # The decision does not rest on an order; which of several rules is named as its reason does.
        for acl in sorted(self.acls, key=_sort_key):
            table = self._literal if acl.pattern is PatternType.LITERAL else self._prefixed
            table.setdefault((acl.resource, acl.name), []).append(acl)
        self._prefix_lengths = sorted({len(name) for _, name in self._prefixed})

    def decide(self, principal: str, host: str, operation: Operation, resource: ResourceType, name: str) -> Decision:
        """Decide about one resource; `host` is the client's address without its port.

        What no rule for a group decides, CLUSTER_ACTION on the cluster allows.
        """
        if principal in self.super_users:
            return Decision(is_allowed=True, rule=None, why=f"{principal} is a super user")
        rule = self._find(principal, host, operation, resource, name)
        if rule is None and resource is ResourceType.GROUP:
            for_all = self._find(principal, host, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
            if for_all is not None and for_all.permission is Permission.ALLOW:
                rule = for_all
        if rule is None:
            return Decision(is_allowed=False, rule=None, why="no rule allows it")
        return Decision(is_allowed=rule.permission is Permission.ALLOW, rule=rule, why=str(rule))

    def _find(self, principal: str, host: str, operation: Operation, resource: ResourceType, name: str) -> Acl | None:
        """Return the rule that decides, None where none does: the first that denies, or else the first that allows."""
        allowing: Acl | None = None
        for acl in self._about(resource, name):
            if acl.principal not in (principal, ANYBODY) or acl.host not in (host, ANY):
                continue
            if acl.permission is Permission.DENY:
                if acl.operation in (operation, Operation.ALL):
                    return acl
            elif allowing is None and _allows(acl.operation, operation):
                allowing = acl
        return allowing

    def _about(self, resource: ResourceType, name: str) -> Iterator[Acl]:
        """Yield the rules whose names fit."""
        yield from self._literal.get((resource, name), ())
        if name != ANY:
            yield from self._literal.get((resource, ANY), ())
        for length in self._prefix_lengths:
            if length > len(name):
                break
            yield from self._prefixed.get((resource, name[:length]), ())


def _allows(allowed: Operation, wanted: Operation) -> bool:
    """Return whether who may do `allowed` may do `wanted`."""
    return allowed in (wanted, Operation.ALL) or (wanted is Operation.DESCRIBE and allowed in IMPLYING_DESCRIBE)


def _sort_key(acl: Acl) -> tuple[str, ...]:
    return tuple(part if isinstance(part, str) else part.value for part in acl)
