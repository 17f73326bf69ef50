"""The member that this node was before it was killed: taken out of the group when the node joins again.

Kafka keeps a member that has died until its session is over, and a group that rebalances waits for it.
The log partitions of a node that starts again at once would have no owner for as long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import structlog

from holdfast.daemon.internal_errors import InternalErrors
from holdfast.daemon.membership.division.machine import this_machine
from holdfast.daemon.server.cluster_view import Node
from holdfast.kafka.addresses import format_address
from holdfast.kafka.discovery.group_calls import Described, Dismissal, Dismissed, Member
from holdfast.kafka.protocol.error_codes import error_name

_log = structlog.get_logger(__name__)

#: Kafka's word for a group whose members are to join again, and that waits for those who have not.
_WAITS_FOR_MEMBERS: Final = "PreparingRebalance"


class GroupCalls(Protocol):
    """What is needed of `kafka.discovery.groups.Groups`."""

    async def describe(self, groups: Sequence[str]) -> dict[str, Described]:
        """Return what each group is, errors included."""

    async def dismiss(self, dismissals: Sequence[Dismissal]) -> dict[Dismissal, Dismissed]:
        """Take dynamic members out of their groups."""


class FormerMember:
    """Whoever is in the group under this node's client id, and has come from the same host by the word of the broker.

    The client id is that of `name_place`. The host is what the broker sees, and one for all machines behind an address translation.
    It has one member at most as a rule, and more where this node was killed several times within a session.
    """

    def __init__(
        self,
        groups: GroupCalls,
        group: str,
        own_id: Callable[[], str],
        internal_errors: InternalErrors,
        *,
        session_timeout_ms: int,
        pause_ms: int,
    ) -> None:
        """Look at nothing yet.

        Args:
            groups: calls to the group coordinator.
            group: its id.
            own_id: gives the member id of this process; empty before it has one.
            internal_errors: where its bugs go.
            session_timeout_ms: after it the group is without the former member anyway.
            pause_ms: between two looks at the group.
        """
        self._groups = groups
        self._group = group
        self._own_id = own_id
        self._internal_errors = internal_errors
        self._session_timeout_ms = session_timeout_ms
        self._pause_ms = pause_ms
        self._found: list[str] = []

    async def dismiss(self) -> None:
        """Take it out when this process has joined and the group waits; earlier the group would be empty, and begin with its initial delay.

        Whatever fails is tried until the session is over.
        """
        while not self._own_id():
            await self._pause()
        try:
            async with asyncio.timeout(self._session_timeout_ms / 1_000):
                while await self._may_be_left():
                    await self._pause()
        except TimeoutError:
            if self._found:
                _log.info("former_member_expired", group=self._group, members=self._found)
        except Exception as bug:  # a start does not depend on it
            self._internal_errors.note_bug("former_member_watch_failed", bug, group=self._group)

    async def _pause(self) -> None:
        await asyncio.sleep(self._pause_ms / 1_000)

    async def _may_be_left(self) -> bool:
        """Take out whom the group waits for, and return whether there may be more."""
        described = (await self._groups.describe([self._group]))[self._group]
        ours = next((each for each in described.members if each.member_id == self._own_id()), None)
        if ours is None:  # or it is not known who is there
            return True
        self._found = [each.member_id for each in described.members if each != ours and _is_former(each, ours)]
        if not self._found or described.state != _WAITS_FOR_MEMBERS:  # who has joined again lives
            return False
        why = "the node was started again"
        dismissed = await self._groups.dismiss([Dismissal(self._group, each, why) for each in self._found])
        for (_, member_id, _), answer in dismissed.items():
            if answer.error_code:
                why = answer.reason or error_name(answer.error_code)
                _log.debug("former_member_dismissal_failed", group=self._group, member=member_id, why=why)
            else:
                _log.info("former_member_dismissed", group=self._group, member=member_id)
        return True


def name_place(client_id: str, node: Node) -> str:
    """Return the client id of a node's member, by which it is known after a kill: members show no metadata while their group rebalances.

    It names the node's id and address, and the machine: nodes on two machines may have one address each for itself, or by mistake.
    """
    machine = this_machine().replace(" ", "-")  # people and their tools split lists of members at blanks
    return f"{client_id}-node-{node.node_id}-{format_address(node.host, node.port)}-{machine}"


def _is_former(member: Member, ours: Member) -> bool:
    """Tell whether a member was this node; a static one waits for its own to come back, and needs nothing."""
    return (member.client_id, member.host) == (ours.client_id, ours.host) and member.instance_id is None
