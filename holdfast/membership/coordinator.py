"""The interface that a program implements to be a member of a group.

Source: Apache Kafka `AbstractCoordinator`, `WorkerCoordinator`.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable


class JoinedMember(NamedTuple):
    """A member of the group, as its leader sees it."""

    member_id: str
    #: None: a dynamic member.
    group_instance_id: str | None
    #: The answer of this member's `metadata` for the protocol that the group chose.
    metadata: bytes


class Coordinator(Protocol):
    """The work of the members of a group; all of them implement the same.

    Callbacks run one at a time: prepare, then in the leader perform, then complete. Heartbeats go on while they run.
    A program that also has the methods of `LeaveListener` or `LossListener` gets those calls, too.
    """

    #: The sort of this group, such as "connect"; not empty. Members of another sort are refused by the broker.
    protocol_type: str

    def metadata(self) -> Sequence[tuple[str, bytes]]:
        """Return what to say of this member: (protocol name, bytes), the protocol that it prefers first; each name once, at least one.

        Called again for each JoinGroup. The broker chooses a protocol that all members have.
        """

    async def on_join_prepare(self, generation: int, member_id: str) -> None:
        """Prepare to join or rejoin, with the former generation and id; -1 and "" before the first join and after the id was lost.

        Runs once before each join or rejoin, however often JoinGroup is sent in it; JoinGroup leaves when it has returned.
        If it raises, it runs again after a back-off.
        """

    async def perform_assignment(
        self, leader_id: str, protocol: str, members: Sequence[JoinedMember]
    ) -> Mapping[str, bytes]:
        """Return what each member must do, by member id: exactly the ids of `members`, empty bytes for one without work.

        Runs in the leader only, whose id is `leader_id`. If it raises, the group joins again after a back-off.
        """

    async def on_join_complete(self, generation: int, member_id: str, protocol: str, assignment: bytes) -> None:
        """Take the assignment over. This must be idempotent.

        If it raises, the member stays joined, heartbeats go on, and the same assignment is delivered again after a back-off, unless a newer
        generation came.
        """


@runtime_checkable
class LeaveListener(Protocol):
    """A program that does something before its member leaves."""

    async def on_leave_prepare(self, generation: int, member_id: str) -> None:
        """Give up what the member does. Runs before each `leave` and `close` of a member, and never because of a heartbeat."""


@runtime_checkable
class LossListener(Protocol):
    """A program that does something when its member lost its place in the group."""

    async def on_lost(self, reason: str) -> None:
        """Give up what the last assignment said: others may have it already. Runs once for each assignment that was lost."""
