"""The four calls of a group member as Kafka's messages.

Source: Apache Kafka's message schemas JoinGroup v9, SyncGroup v5, Heartbeat v4, LeaveGroup v5 (all spoken by brokers from 3.2 to 4.x).
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from kio.schema.heartbeat.v4.request import HeartbeatRequest
from kio.schema.heartbeat.v4.response import HeartbeatResponse
from kio.schema.join_group.v9.request import JoinGroupRequest, JoinGroupRequestProtocol
from kio.schema.join_group.v9.response import JoinGroupResponse
from kio.schema.leave_group.v5.request import LeaveGroupRequest, MemberIdentity
from kio.schema.leave_group.v5.response import LeaveGroupResponse
from kio.schema.sync_group.v5.request import SyncGroupRequest, SyncGroupRequestAssignment
from kio.schema.sync_group.v5.response import SyncGroupResponse
from kio.schema.types import GroupId
from kio.static.primitive import i32, i32Timedelta

from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.membership.coordinator import JoinedMember
from holdfast.membership.requests import (
    Acknowledged,
    Answer,
    Heartbeat,
    Joined,
    JoinGroup,
    LeaveGroup,
    Refused,
    Request,
    Synced,
    SyncGroup,
)
from holdfast.membership.settings import MembershipSettings

#: The longest reason that a broker takes, in characters.
_REASON_CHARS_MAX: Final = 255

GroupRequest = JoinGroupRequest | SyncGroupRequest | HeartbeatRequest | LeaveGroupRequest
GroupResponse = JoinGroupResponse | SyncGroupResponse | HeartbeatResponse | LeaveGroupResponse


def to_message(
    request: Request, settings: MembershipSettings, protocol_type: str
) -> tuple[GroupRequest, type[GroupResponse]]:
    """Return the message of a request, and of what type its answer is."""
    group_id, instance_id = GroupId(settings.group_id), settings.group_instance_id
    generation = request.generation
    match request:
        case JoinGroup(protocols=protocols, reason=reason):
            return JoinGroupRequest(
                group_id=group_id,
                session_timeout=_milliseconds(settings.session_timeout_ms),
                rebalance_timeout=_milliseconds(settings.rebalance_timeout_ms),
                member_id=generation.member_id,
                group_instance_id=instance_id,
                protocol_type=protocol_type,
                protocols=tuple(JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols),
                reason=reason[:_REASON_CHARS_MAX] or None,
            ), JoinGroupResponse
        case SyncGroup(assignments=assignments):
            return SyncGroupRequest(
                group_id=group_id,
                generation_id=i32(generation.id),
                member_id=generation.member_id,
                group_instance_id=instance_id,
                protocol_type=protocol_type,
                protocol_name=generation.protocol,
                assignments=tuple(
                    SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
                    for member_id, assignment in assignments
                ),
            ), SyncGroupResponse
        case Heartbeat():
            return HeartbeatRequest(
                group_id=group_id,
                generation_id=i32(generation.id),
                member_id=generation.member_id,
                group_instance_id=instance_id,
            ), HeartbeatResponse
        case LeaveGroup(reason=reason):
            identity = MemberIdentity(
                member_id=generation.member_id, group_instance_id=instance_id, reason=reason[:_REASON_CHARS_MAX]
            )
            return LeaveGroupRequest(group_id=group_id, members=(identity,)), LeaveGroupResponse


def from_message(response: GroupResponse) -> Answer:
    """Return what an answer says."""
    error_code = int(response.error_code.value)
    if error_code != ErrorCode.NONE:
        return Refused(error_code, member_id=response.member_id if isinstance(response, JoinGroupResponse) else "")
    match response:
        case JoinGroupResponse():
            return Joined(
                int(response.generation_id),
                response.member_id,
                response.protocol_name or "",
                response.leader,
                tuple(JoinedMember(each.member_id, each.group_instance_id, each.metadata) for each in response.members),
                response.skip_assignment,
            )
        case SyncGroupResponse():
            return Synced(response.assignment)
        case LeaveGroupResponse():
            refused: Sequence[int] = [int(each.error_code.value) for each in response.members if each.error_code.value]
            return Refused(refused[0]) if refused else Acknowledged()
        case _:
            return Acknowledged()


def _milliseconds(count: int) -> i32Timedelta:
    return i32Timedelta.parse(timedelta(milliseconds=count))
