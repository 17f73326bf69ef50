"""The member that this node was before it was killed: taken out of the group when the node joins again.

Kafka keeps a member that has died until its session is over, and a group that rebalances waits for it.
The log partitions of a node that starts again at once would have no owner for as long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, Protocol

import structlog

from holdfast.daemon.membership.division.metadata import PROTOCOL_TYPE, decode_metadata
from holdfast.daemon.server.cluster_view import Node
from holdfast.kafka.discovery.group_calls import Described, Dismissal, Dismissed, Member
from holdfast.kafka.protocol.error_codes import error_name
from holdfast.kafka.protocol.primitives import MalformedBody

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
    """Whoever is in the group with this node's id at this node's address, where nobody else can listen.

    It has one member at most as a rule, and more where this node was killed several times within a session.
    """

    def __init__(
        self,
        groups: GroupCalls,
        group: str,
        this_node: Node,
        *,
        look_timeout_ms: int,
        session_timeout_ms: int,
        pause_ms: int,
    ) -> None:
        """Look at nothing yet.

        Args:
            groups: calls to the group coordinator.
            group: its id.
            this_node: where clients and other members reach it.
            look_timeout_ms: for so long a start waits to see whether it was a member.
            session_timeout_ms: after it the group is without the former member anyway.
            pause_ms: between two looks at the group.
        """
        self._groups = groups
        self._group = group
        self._this_node = this_node
        self._look_timeout_ms = look_timeout_ms
        self._session_timeout_ms = session_timeout_ms
        self._pause_ms = pause_ms

    async def find(self) -> tuple[str, ...]:
        """Return the ids of its members, before this node joins: a group that rebalances shows nobody's metadata.

        None are found while the group rebalances already, or where nobody answers in time; the start then waits for the end of the
        session, as it does for any other member.
        """
        try:
            async with asyncio.timeout(self._look_timeout_ms / 1_000):
                described = await self._describe()
        except TimeoutError:
            return ()
        except Exception:  # a start does not depend on it
            _log.exception("former_member_lookup_failed", group=self._group)
            return ()
        is_of_nodes = not described.error_code and described.protocol_type == PROTOCOL_TYPE
        return tuple(each.member_id for each in described.members if is_of_nodes and self._is_ours(each))

    async def dismiss(self, member_ids: Sequence[str]) -> None:
        """Take members out as soon as the group waits for them; earlier it would be empty, and begin with its initial delay.

        Whatever fails is tried until their session is over.
        """
        if not member_ids:
            return
        try:
            async with asyncio.timeout(self._session_timeout_ms / 1_000):
                while left := await self._try_dismiss(member_ids):
                    member_ids = left
                    await asyncio.sleep(self._pause_ms / 1_000)
        except TimeoutError:
            _log.info("former_member_expired", group=self._group, members=list(member_ids))
        except Exception:  # as above
            _log.exception("former_member_lookup_failed", group=self._group)

    async def _try_dismiss(self, member_ids: Sequence[str]) -> list[str]:
        """Return who is still to be taken out."""
        described = await self._describe()
        known = {each.member_id for each in described.members}
        left = list(member_ids) if described.error_code else [each for each in member_ids if each in known]
        if described.state != _WAITS_FOR_MEMBERS or not left:
            return left
        why = "the node was started again"
        dismissed = await self._groups.dismiss([Dismissal(self._group, each, why) for each in left])
        failed = {each.member_id: answer for each, answer in dismissed.items() if answer.error_code}
        for member_id in left:
            if member_id not in failed:
                _log.info("former_member_dismissed", group=self._group, member=member_id)
        for member_id, answer in failed.items():
            why = answer.reason or error_name(answer.error_code)
            _log.debug("former_member_dismissal_failed", group=self._group, member=member_id, why=why)
        return list(failed)

    async def _describe(self) -> Described:
        return (await self._groups.describe([self._group]))[self._group]

    def _is_ours(self, member: Member) -> bool:
        """Tell whether a member is this node; a static one waits for its own to come back, and needs nothing."""
        try:
            return member.instance_id is None and decode_metadata(member.metadata).node == self._this_node
        except MalformedBody:
            return False
