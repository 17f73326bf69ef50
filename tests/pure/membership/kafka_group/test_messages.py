"""The requests and answers of a member, as Kafka's messages: each field stands where Kafka looks for it."""

from __future__ import annotations

from datetime import timedelta
from io import BytesIO
from typing import Any

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.schema.heartbeat.v4.response import HeartbeatResponse
from kio.schema.join_group.v9.response import JoinGroupResponse, JoinGroupResponseMember
from kio.schema.leave_group.v5.response import LeaveGroupResponse, MemberResponse
from kio.schema.sync_group.v5.response import SyncGroupResponse
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i32, i32Timedelta

from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.membership import Generation, JoinedMember, MembershipSettings
from holdfast.membership.kafka_group.messages import GroupResponse, from_message, to_message
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

SETTINGS = MembershipSettings(
    group_id="g",
    group_instance_id="i",
    session_timeout_ms=1_001,
    heartbeat_interval_ms=300,
    rebalance_timeout_ms=5_001,
)
GENERATION = Generation(7, "m", "p")
NO_TIME = i32Timedelta.parse(timedelta(0))


@pytest.mark.parametrize(
    ("request_of_ours", "fields"),
    [
        (
            JoinGroup(Generation(-1, "m", None), (("b", b"2"), ("a", b"1")), "x" * 300),
            {
                "group_id": "g",
                "session_timeout": timedelta(milliseconds=1_001),
                "rebalance_timeout": timedelta(milliseconds=5_001),
                "member_id": "m",
                "group_instance_id": "i",
                "protocol_type": "sort",
                "reason": "x" * 255,
            },
        ),
        (
            SyncGroup(GENERATION, (("m", b"1"), ("n", b""))),
            {
                "group_id": "g",
                "generation_id": 7,
                "member_id": "m",
                "group_instance_id": "i",
                "protocol_type": "sort",
                "protocol_name": "p",
            },
        ),
        (Heartbeat(GENERATION), {"group_id": "g", "generation_id": 7, "member_id": "m", "group_instance_id": "i"}),
        (LeaveGroup(GENERATION, "why"), {"group_id": "g"}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_request_says_who_and_where(request_of_ours: Request, fields: dict[str, object]) -> None:
    message, _ = to_message(request_of_ours, SETTINGS, "sort")
    buffer = BytesIO()
    entity_writer(type(message))(buffer, message)
    read: Any
    read, size = entity_reader(type(message))(buffer.getvalue(), 0)
    assert size == len(buffer.getvalue())
    assert {name: getattr(read, name) for name in fields} == fields
    if isinstance(request_of_ours, JoinGroup):
        assert [(each.name, each.metadata) for each in read.protocols] == [("b", b"2"), ("a", b"1")]
    if isinstance(request_of_ours, SyncGroup):
        assert [(each.member_id, each.assignment) for each in read.assignments] == [("m", b"1"), ("n", b"")]
    if isinstance(request_of_ours, LeaveGroup):
        assert [(each.member_id, each.group_instance_id, each.reason) for each in read.members] == [("m", "i", "why")]


def joined(error: KioErrorCode, *, skip: bool = False) -> JoinGroupResponse:
    member = JoinGroupResponseMember(member_id="m", group_instance_id="i", metadata=b"2")
    return JoinGroupResponse(
        throttle_time=NO_TIME,
        error_code=error,
        generation_id=i32(7),
        protocol_name="p",
        leader="l",
        skip_assignment=skip,
        member_id="m",
        members=(member,),
    )


def left(error: KioErrorCode, of_member: KioErrorCode) -> LeaveGroupResponse:
    member = MemberResponse(member_id="m", group_instance_id=None, error_code=of_member)
    return LeaveGroupResponse(throttle_time=NO_TIME, error_code=error, members=(member,))


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        (joined(KioErrorCode.none), Joined(7, "m", "p", "l", (JoinedMember("m", "i", b"2"),), False)),
        (joined(KioErrorCode.none, skip=True), Joined(7, "m", "p", "l", (JoinedMember("m", "i", b"2"),), True)),
        (joined(KioErrorCode.member_id_required), Refused(ErrorCode.MEMBER_ID_REQUIRED, member_id="m")),
        (
            SyncGroupResponse(throttle_time=NO_TIME, error_code=KioErrorCode.none, assignment=b"1"),
            Synced(b"1"),
        ),
        (
            SyncGroupResponse(throttle_time=NO_TIME, error_code=KioErrorCode.rebalance_in_progress, assignment=b""),
            Refused(ErrorCode.REBALANCE_IN_PROGRESS),
        ),
        (HeartbeatResponse(throttle_time=NO_TIME, error_code=KioErrorCode.none), Acknowledged()),
        (
            HeartbeatResponse(throttle_time=NO_TIME, error_code=KioErrorCode.illegal_generation),
            Refused(ErrorCode.ILLEGAL_GENERATION),
        ),
        (left(KioErrorCode.none, KioErrorCode.none), Acknowledged()),
        (left(KioErrorCode.none, KioErrorCode.unknown_member_id), Refused(ErrorCode.UNKNOWN_MEMBER_ID)),
        (left(KioErrorCode.not_coordinator, KioErrorCode.none), Refused(ErrorCode.NOT_COORDINATOR)),
    ],
)
def test_an_answer_is_what_kafka_said(response: GroupResponse, answer: Answer) -> None:
    assert from_message(response) == answer
