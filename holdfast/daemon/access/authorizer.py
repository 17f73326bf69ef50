"""The access rules that hold now, and what they say of each request.

Every share-state call passes here, so what is allowed is remembered until the rules change. What is denied is not: who may
nothing cannot push out what others have.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, Final

from holdfast.daemon.access.acl import ANY, CLUSTER_NAME, Operation, ResourceType
from holdfast.daemon.access.audit import Audit, Client
from holdfast.daemon.access.needs import LOOK_UP, SHARE_CALLS, need_of
from holdfast.daemon.access.rules import Decision, Rules
from holdfast.kafka.addresses import find_host

#: Decisions about longer group ids are not remembered, so that what is remembered has a bound in bytes.
_CACHED_GROUP_ID_MAX: Final = 256


class Authorizer:
    """Decides about each request, and has the audit log know of it."""

    def __init__(
        self, rules: Rules, audit: Audit, *, is_open: bool = False, permissions_cached_max: int = 10_000
    ) -> None:
        """Decide by `rules`; where `is_open`, everything is allowed."""
        self._audit = audit
        self._permissions_cached_max = permissions_cached_max
        #: (principal, host, operation, group id) of what is allowed.
        self._allowed: set[tuple[str, str, str, str]] = set()
        self.is_open = is_open
        self.rules = rules

    def obey(self, rules: Rules) -> None:
        """Decide by other rules from now on."""
        self.rules = rules
        self._allowed.clear()

    def may_call(self, client: Client, api_key: int, group_id: str) -> bool:
        """Return whether a client may make a share-state call for a group."""
        return self.is_open or self._may(client, SHARE_CALLS[api_key], group_id, "share state")

    def may_look_up(self, client: Client, group_id: str) -> bool:
        """Return whether a client may know who coordinates a group."""
        return self.is_open or self._may(client, LOOK_UP, group_id, "FindCoordinator")

    def refuse_command(self, client: Client, command: str, arguments: Mapping[str, Any]) -> str:
        """Return why a client may not run an admin command, for people; empty if it may."""
        operation, resource = need = need_of(command)
        is_group = resource is ResourceType.GROUP
        name = str(arguments.get("group", "")) if is_group else CLUSTER_NAME
        if not self.is_open and not self._decide(client, operation, resource, name).is_allowed:
            self._audit.denied(client, command, operation, resource, name)
            what = ("--group", name) if is_group else ("--cluster",)
            options = ("--allow-principal", client.principal, "--operation", operation.value, *what)
            return (
                f"{client.principal} may not {operation.value} the {resource.value}{f' {name!r}' if is_group else ''}, which "
                f"{command} needs; `holdfast acls add {shlex.join(options)}` on the host of the node allows it."
            )
        if need.is_change:
            self._audit.commanded(client, command, arguments)
        return ""

    def _may(self, client: Client, operation: Operation, group_id: str, call: str) -> bool:
        # The value: an enumeration's hash is slow.
        place = (client.principal, self._host_of(client), operation.value, group_id)
        if place in self._allowed:
            return True
        if not self._decide(client, operation, ResourceType.GROUP, group_id).is_allowed:
            self._audit.denied(client, call, operation, ResourceType.GROUP, group_id)
            return False
        if len(group_id) <= _CACHED_GROUP_ID_MAX:
            if len(self._allowed) >= self._permissions_cached_max:
                self._allowed.clear()
            self._allowed.add(place)
        return True

    def _decide(self, client: Client, operation: Operation, resource: ResourceType, name: str) -> Decision:
        return self.rules.decide(client.principal, self._host_of(client), operation, resource, name)

    def _host_of(self, client: Client) -> str:
        return find_host(client.client_address) if self.rules.has_hosts else ANY
