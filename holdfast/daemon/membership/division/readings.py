"""The meeting as its leader reads it, and an assignment as a member reads it: bytes of others, which may hold anything."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from holdfast.daemon.membership.division.assignment import Assignment, decode_assignment
from holdfast.daemon.membership.division.bounds import NAME_CHARACTERS_MAX
from holdfast.daemon.membership.division.leader import Meeting
from holdfast.daemon.membership.division.metadata import MemberMetadata, decode_metadata
from holdfast.kafka.protocol.primitives import MalformedBody
from holdfast.membership import JoinedMember

_log = structlog.get_logger(__name__)


def read_meeting(leader_id: str, members: Sequence[JoinedMember]) -> Meeting:
    """Return who has joined; a member whose metadata cannot be read is named in an error line, and gets no work.

    The same holds for one whose name cannot be shown: it stands in the map that all members get.
    """
    read: dict[str, MemberMetadata] = {}
    unreadable: dict[str, str] = {}
    for member in members:
        try:
            if len(member.member_id) > NAME_CHARACTERS_MAX or not member.member_id.isprintable():
                raise MalformedBody("member id", 0, "it is too long, or cannot be printed")
            read[member.member_id] = decode_metadata(member.metadata)
        except MalformedBody as malformed:
            unreadable[member.member_id] = f"the leader cannot read the metadata of this member: {malformed}"
            _log.error("member_metadata_unreadable", member=member.member_id, why=str(malformed))
    return Meeting(leader_id, read, unreadable)


def read_assignment(data: bytes, partition_count: int) -> tuple[Assignment | None, str]:
    """Return an assignment, with why it gives no work; None and why where its bytes hold none that can be carried out."""
    try:
        found = decode_assignment(data)
    except MalformedBody as malformed:
        return None, str(malformed)
    works = [found.work, *(each.work for each in found.map.members), *(each.work for each in found.map.absent)]
    task = max((task for work in works for task in work.tasks), default=-1)
    if task >= partition_count:
        return None, f"it names log partition {task}, and the log has {partition_count}"
    return found, found.reason
