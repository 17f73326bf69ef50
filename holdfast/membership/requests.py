"""The requests of a member to its group coordinator, and their answers, as values; the bytes are made elsewhere.

Each request carries the generation that it was sent under, and is answered once: with its answer, or with `Refused`.
"""

from typing import NamedTuple

from holdfast.membership.coordinator import JoinedMember
from holdfast.membership.generation import Generation


class JoinGroup(NamedTuple):
    """Join, or join again; answered when all members have, or the rebalance time-out is over."""

    generation: Generation
    #: (name, metadata), the preferred one first; at least one, each name once.
    protocols: tuple[tuple[str, bytes], ...]
    #: Why, for the broker's log.
    reason: str


class SyncGroup(NamedTuple):
    """Fetch the own assignment, which the leader hands in; answered when it has."""

    generation: Generation
    #: By member id; only the leader has any.
    assignments: tuple[tuple[str, bytes], ...]


class Heartbeat(NamedTuple):
    """The word that the member lives; its answer says whether the group rebalances."""

    generation: Generation


class LeaveGroup(NamedTuple):
    """Leave."""

    generation: Generation
    #: Why, for the broker's log.
    reason: str


Request = JoinGroup | SyncGroup | Heartbeat | LeaveGroup


class Joined(NamedTuple):
    """The answer to JoinGroup."""

    generation_id: int
    member_id: str
    #: The one that the broker chose.
    protocol: str
    leader_id: str
    #: Only the leader gets them.
    members: tuple[JoinedMember, ...]
    #: The leader came back, as a static member: the assignment that the group has stays.
    is_assignment_kept: bool


class Synced(NamedTuple):
    """The answer to SyncGroup."""

    assignment: bytes


class Acknowledged(NamedTuple):
    """The answer to Heartbeat and LeaveGroup."""


class Refused(NamedTuple):
    """An error, or that no answer came: NETWORK_EXCEPTION."""

    error_code: int
    message: str = ""
    #: With MEMBER_ID_REQUIRED, the id to join with.
    member_id: str = ""


Answer = Joined | Synced | Acknowledged | Refused
