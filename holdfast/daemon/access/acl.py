"""One access rule, in Kafka's words: a principal at a host may, or may not, do an operation to a resource.

Source: Apache Kafka's `AclBinding`, `AclOperation` and `PatternType`; of its operations and resources these are the ones that
mean something here.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from ipaddress import ip_address
from typing import Final, NamedTuple

from holdfast.daemon.settings.components.listener import principal_problem

#: Stands for all principals, for all hosts, and as a literal name for all groups or all topics.
ANYBODY: Final = "User:*"
ANY: Final = "*"
#: The name of the one resource of the type CLUSTER.
CLUSTER_NAME: Final = "kafka-cluster"

#: A line of the file has a bound, and so has each text in it.
_TEXT_CHARACTERS_MAX: Final = 32_767


class Operation(Enum):
    """What may be done to a resource."""

    ALL = "ALL"
    READ = "READ"
    WRITE = "WRITE"
    DELETE = "DELETE"
    ALTER = "ALTER"
    DESCRIBE = "DESCRIBE"
    CLUSTER_ACTION = "CLUSTER_ACTION"


class ResourceType(Enum):
    """What a rule is about."""

    GROUP = "GROUP"
    TOPIC = "TOPIC"
    CLUSTER = "CLUSTER"


class PatternType(Enum):
    """How the name of a rule is compared with that of a resource."""

    #: It is the same, or the rule's is `*`.
    LITERAL = "LITERAL"
    #: The resource's begins with the rule's.
    PREFIXED = "PREFIXED"


class Permission(Enum):
    """What a rule does for whom it is about."""

    ALLOW = "ALLOW"
    DENY = "DENY"


#: Operations that mean something for a resource.
OPERATIONS: Final[Mapping[ResourceType, frozenset[Operation]]] = {
    ResourceType.GROUP: frozenset(
        {Operation.ALL, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.DESCRIBE}
    ),
    ResourceType.TOPIC: frozenset({Operation.ALL, Operation.READ, Operation.DESCRIBE}),
    ResourceType.CLUSTER: frozenset(
        {Operation.ALL, Operation.ALTER, Operation.DESCRIBE, Operation.CLUSTER_ACTION},
    ),
}

#: Who may do one of these may DESCRIBE as well.
IMPLYING_DESCRIBE: Final = frozenset({Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER})


class Acl(NamedTuple):
    """A rule."""

    #: `User:` and a name, or `User:*`.
    principal: str
    permission: Permission
    operation: Operation
    resource: ResourceType
    #: Name of a group or a topic, or `kafka-cluster`.
    name: str
    pattern: PatternType = PatternType.LITERAL
    #: An address as the node sees it, without a port, or `*`.
    host: str = ANY

    def __str__(self) -> str:
        """Return the rule as a clause for people."""
        verb = "may" if self.permission is Permission.ALLOW else "may not"
        at = "" if self.host == ANY else f" from {self.host}"
        if self.resource is ResourceType.CLUSTER:
            what = "CLUSTER"
        elif self.pattern is PatternType.PREFIXED:
            what = f"{self.resource.value.lower()}s that begin with {self.name!r}"
        else:
            what = f"any {self.resource.value}" if self.name == ANY else f"{self.resource.value} {self.name!r}"
        return f"{self.principal}{at} {verb} {self.operation.value} {what}"

    def problem(self) -> tuple[str, str]:
        """Return the field that is wrong and why; both empty where the rule means something."""
        for field, text in (("principal", self.principal), ("name", self.name), ("host", self.host)):
            if not text or len(text) > _TEXT_CHARACTERS_MAX or not text.isprintable():
                return field, f"is {text[:100]!r}; it must be a text that can be printed"
        if why := principal_problem(self.principal):
            return "principal", why
        if self.host != ANY and not _is_address(self.host):
            return "host", f"is {self.host!r}; it must be an IP address as clients have it, or *"
        if self.operation not in OPERATIONS[self.resource]:
            takes = ", ".join(sorted(each.value for each in OPERATIONS[self.resource]))
            return (
                "operation",
                f"is {self.operation.value}, which means nothing for a {self.resource.value}; it takes {takes}",
            )
        if self.resource is ResourceType.CLUSTER and (self.name, self.pattern) != (CLUSTER_NAME, PatternType.LITERAL):
            return "name", f"is {self.name!r}; the one CLUSTER is {CLUSTER_NAME!r}, LITERAL"
        return "", ""


def _is_address(text: str) -> bool:
    """Tell whether a text is an IP address in the form in which the node sees those of clients."""
    try:
        return str(ip_address(text)) == text
    except ValueError:
        return False
