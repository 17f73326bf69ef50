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
from holdfast.daemon.access.needs import Needs
from holdfast.daemon.access.rules import Rules
from holdfast.kafka.addresses import find_host

#: Decisions about longer group ids are not remembered, so that what is remembered has a bound in bytes.
_CACHED_GROUP_ID_MAX: Final = 256

#: Permissions that are remembered until the rules change: some megabytes, and more than clients of one node have.
_PERMISSIONS_CACHED_MAX: Final = 10_000


class Authorizer:
    """The decision about each request, of which the audit log knows."""

    def __init__(
        self,
        rules: Rules,
        audit: Audit,
        needs: Needs,
        *,
        is_open: bool = False,
        permissions_cached_max: int = _PERMISSIONS_CACHED_MAX,
    ) -> None:
        """Decide by `rules` about calls and commands with these needs; where `is_open`, everything is allowed."""
        self.needs = needs
        self._calls = needs.calls
        self._audit = audit
        self._permissions_cached_max = permissions_cached_max
        #: (API key, principal, group id, host) of what is allowed.
        self._allowed: set[tuple[int, str, str, str]] = set()
        #: (operation, principal, name, host) of what is allowed, by the type of the resource.
        self._allowed_of: dict[ResourceType, set[tuple[Operation, str, str, str]]] = {
            each: set() for each in ResourceType
        }
        self.is_open = is_open
        self.reconfigure(rules)

    def reconfigure(self, rules: Rules) -> None:
        """Decide by other rules from now on."""
        self.rules = rules
        self._has_hosts = rules.has_hosts
        self._allowed.clear()
        for allowed in self._allowed_of.values():
            allowed.clear()

    def may(
        self,
        client: Client,
        call: str,
        operation: Operation,
        resource: ResourceType,
        name: str,
        *,
        is_audited: bool = True,
    ) -> bool:
        """Return whether a client may do something to a resource, for a call that looks at more than groups.

        Args:
            client: asks.
            call: that it makes, for the audit log.
            operation: is asked about.
            resource: type of what it is about.
            name: of the group or topic.
            is_audited: whether a denial is one for the audit log; not where a list merely leaves the resource out.
        """
        if self.is_open:
            return True
        host = find_host(client.client_address) if self._has_hosts else ANY
        place = (operation, client.principal, name, host)
        allowed = self._allowed_of[resource]
        if place in allowed:
            return True
        if not self.rules.decide(client.principal, host, operation, resource, name).is_allowed:
            if is_audited:
                self._audit.denied(client, call, operation, resource, name)
            return False
        if len(name) <= _CACHED_GROUP_ID_MAX:
            if len(allowed) >= self._permissions_cached_max:
                allowed.clear()
            allowed.add(place)
        return True

    def may_call(self, client: Client, api_key: int, group_id: str) -> bool:
        """Return whether a client may make a call about a group: a share-state call, or FindCoordinator."""
        if self.is_open:
            return True
        place = (api_key, client.principal, group_id, find_host(client.client_address) if self._has_hosts else ANY)
        return place in self._allowed or self._decide(client, place)

    def refuse_command(self, client: Client, command: str, arguments: Mapping[str, Any]) -> str:
        """Return why a client may not run an admin command, for people; empty if it may."""
        operation, resource = need = self.needs.need_of(command)
        is_group = resource is ResourceType.GROUP
        name = str(arguments.get("group", "")) if is_group else CLUSTER_NAME
        host = find_host(client.client_address)

        def is_allowed(operation: Operation) -> bool:
            return self.is_open or self.rules.decide(client.principal, host, operation, resource, name).is_allowed

        if not is_allowed(operation):
            self._audit.denied(client, command, operation, resource, name)
            # A preview is followed by what it shows, which would be denied next.
            lacking = [
                operation,
                *(each for each in self.needs.operations_after(command, arguments) if not is_allowed(each)),
            ]
            lacking = list(dict.fromkeys(lacking))
            what = ("--group", name) if is_group else ("--cluster",)
            named = [part for each in lacking for part in ("--operation", each.value)]
            options = ("--allow-principal", client.principal, *named, *what)
            verbs = " and ".join(each.value for each in lacking)
            return (
                f"{client.principal} may not {verbs} the {resource.value}{f' {name!r}' if is_group else ''}, which "
                f"{command} needs; `holdfast acls add {shlex.join(options)}` on the host of the node allows it."
            )
        if need.is_change:
            self._audit.commanded(client, command, arguments)
        return ""

    def _decide(self, client: Client, place: tuple[int, str, str, str]) -> bool:
        """Decide about a call that is not remembered, and remember it if it is allowed."""
        api_key, principal, group_id, host = place
        name, operation = self._calls[api_key]
        if not self.rules.decide(principal, host, operation, ResourceType.GROUP, group_id).is_allowed:
            self._audit.denied(client, name, operation, ResourceType.GROUP, group_id)
            return False
        if len(group_id) <= _CACHED_GROUP_ID_MAX:
            if len(self._allowed) >= self._permissions_cached_max:
                self._allowed.clear()
            self._allowed.add(place)
        return True
