"""Calls about groups as rows of the table of calls; all but ListGroups and LeaveGroup take many groups in every version.

A group is described by the call of its type, and for each of the three types there is one.

Source: Apache Kafka's message schemas ListGroups v3 to v5, DescribeGroups v5 and v6, DeleteGroups v2 (spoken by brokers from 2.4 to 4.x),
ConsumerGroupDescribe v0 and v1 (KIP-848, from 3.7), ShareGroupDescribe v1 (KIP-932, from 4.1),
LeaveGroup v5 for members by their ids (KIP-345, from 3.2).
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from kio.schema.consumer_group_describe.v0.request import ConsumerGroupDescribeRequest as ConsumerRequest0
from kio.schema.consumer_group_describe.v0.response import ConsumerGroupDescribeResponse as ConsumerResponse0
from kio.schema.consumer_group_describe.v1.request import ConsumerGroupDescribeRequest as ConsumerRequest1
from kio.schema.consumer_group_describe.v1.response import ConsumerGroupDescribeResponse as ConsumerResponse1
from kio.schema.delete_groups.v2.request import DeleteGroupsRequest
from kio.schema.delete_groups.v2.response import DeleteGroupsResponse
from kio.schema.describe_groups.v5.request import DescribeGroupsRequest as DescribeRequest5
from kio.schema.describe_groups.v5.response import DescribeGroupsResponse as DescribeResponse5
from kio.schema.describe_groups.v6.request import DescribeGroupsRequest as DescribeRequest6
from kio.schema.describe_groups.v6.response import DescribeGroupsResponse as DescribeResponse6
from kio.schema.leave_group.v5.request import LeaveGroupRequest, MemberIdentity
from kio.schema.leave_group.v5.response import LeaveGroupResponse
from kio.schema.list_groups.v3.request import ListGroupsRequest as ListRequest3
from kio.schema.list_groups.v3.response import ListGroupsResponse as ListResponse3
from kio.schema.list_groups.v4.request import ListGroupsRequest as ListRequest4
from kio.schema.list_groups.v4.response import ListGroupsResponse as ListResponse4
from kio.schema.list_groups.v5.request import ListGroupsRequest as ListRequest5
from kio.schema.list_groups.v5.response import ListGroupsResponse as ListResponse5
from kio.schema.share_group_describe.v1.request import ShareGroupDescribeRequest
from kio.schema.share_group_describe.v1.response import ShareGroupDescribeResponse
from kio.schema.types import GroupId

from holdfast.kafka.discovery.calls import Answer, Call
from holdfast.kafka.exchange import from_bytes, to_bytes, to_ms
from holdfast.kafka.protocol import api_keys
from holdfast.kafka.protocol.error_codes import ErrorCode

#: The one item of ListGroups: all groups that a broker coordinates.
ALL: Final = "groups"
#: Types of groups, by Kafka's names.
CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
SHARE: Final = "share"
#: In the place of the error that a broker gives from DescribeGroups v6 on for a group that it does not know.
_DEAD: Final = "Dead"
_ERROR_TEXT_FROM: Final = 6

_LIST_REQUESTS: Final[dict[int, Any]] = {3: ListRequest3, 4: ListRequest4, 5: ListRequest5}
_LIST_RESPONSES: Final[dict[int, Any]] = {3: ListResponse3, 4: ListResponse4, 5: ListResponse5}
_CONSUMER_REQUESTS: Final[dict[int, Any]] = {0: ConsumerRequest0, 1: ConsumerRequest1}
_CONSUMER_RESPONSES: Final[dict[int, Any]] = {0: ConsumerResponse0, 1: ConsumerResponse1}
_SHARE_REQUESTS: Final[dict[int, Any]] = {1: ShareGroupDescribeRequest}
_SHARE_RESPONSES: Final[dict[int, Any]] = {1: ShareGroupDescribeResponse}


class Listed(NamedTuple):
    """A group in a list; texts are Kafka's, empty where the version of the broker does not say."""

    group: str
    protocol_type: str
    state: str
    #: classic, consumer, share or streams.
    group_type: str


class Listing(NamedTuple):
    """The groups that one broker coordinates, or why they are not known."""

    groups: tuple[Listed, ...] = ()
    error_code: int = 0
    reason: str = ""


class Member(NamedTuple):
    """A member of a group."""

    member_id: str
    #: None: a dynamic member, as all are of a share group.
    instance_id: str | None
    client_id: str
    host: str
    #: What it says of itself under the protocol of the group; empty while the group rebalances, and where the group is not classic.
    metadata: bytes = b""


class Described(NamedTuple):
    """What a coordinator says of a group, or why it does not."""

    state: str = ""
    #: classic, consumer or share; empty with an error, but for that of a group which is only listed.
    group_type: str = ""
    #: Of a classic group: what its members are; of the others the same as the type.
    protocol_type: str = ""
    #: What the members agreed on, or the coordinator chose; an assignor as a rule.
    protocol: str = ""
    members: tuple[Member, ...] = ()
    error_code: int = 0
    reason: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether it is known to have no members."""
        return self.error_code == ErrorCode.GROUP_ID_NOT_FOUND or not (self.error_code or self.members)

    @property
    def is_only_listed(self) -> bool:
        """Whether no more is known than what a list of groups says."""
        return self.error_code == ErrorCode.UNSUPPORTED_VERSION and bool(self.state)


class Deleted(NamedTuple):
    """Whether a group is gone; 0: it is."""

    error_code: int = 0
    reason: str = ""


class Dismissal(NamedTuple):
    """A dynamic member that a group is to be without."""

    group: str
    member_id: str
    #: For the lines of the broker.
    why: str


class Dismissed(NamedTuple):
    """Whether a member is out of its group; 0: it is, and so is one that is unknown there."""

    error_code: int = 0
    reason: str = ""


def _decode_list(version: int, items: Sequence[str], body: bytes) -> Answer[str, Listing]:
    response = from_bytes(_LIST_RESPONSES[version], body)
    groups = tuple(
        Listed(
            str(group.group_id),
            group.protocol_type,
            group.group_state if version >= 4 else "",
            group.group_type if version >= 5 else "",
        )
        for group in response.groups
    )
    listing = Listing(groups, int(response.error_code))
    return Answer(to_ms(response.throttle_time), {items[0]: listing})


def _encode_describe(version: int, groups: Sequence[str]) -> bytes:
    make = DescribeRequest6 if version >= _ERROR_TEXT_FROM else DescribeRequest5
    return to_bytes(make(groups=tuple(map(GroupId, groups)), include_authorized_operations=False))


def _decode_describe(version: int, _: Sequence[str], body: bytes) -> Answer[str, Described]:
    response: Any = from_bytes(DescribeResponse6 if version >= _ERROR_TEXT_FROM else DescribeResponse5, body)
    values = {}
    for group in response.groups:
        error_code = int(group.error_code)
        if not error_code and group.group_state == _DEAD:
            error_code = ErrorCode.GROUP_ID_NOT_FOUND
        members = tuple(
            Member(
                each.member_id, each.group_instance_id, each.client_id, each.client_host, bytes(each.member_metadata)
            )
            for each in group.members
        )
        reason = (group.error_message or "") if version >= _ERROR_TEXT_FROM else ""
        values[str(group.group_id)] = Described(
            group.group_state,
            "" if error_code else CLASSIC,
            group.protocol_type,
            group.protocol_data,
            members,
            error_code,
            reason,
        )
    return Answer(to_ms(response.throttle_time), values)


def _encode_describe_typed(requests: dict[int, Any], version: int, groups: Sequence[str]) -> bytes:
    group_ids = tuple(map(GroupId, groups))
    return to_bytes(requests[version](group_ids=group_ids, include_authorized_operations=False))


def _decode_describe_typed(
    group_type: str, responses: dict[int, Any], version: int, _: Sequence[str], body: bytes
) -> Answer[str, Described]:
    response = from_bytes(responses[version], body)
    values = {
        str(group.group_id): Described(
            group.group_state,
            "" if int(group.error_code) else group_type,
            group_type,
            group.assignor_name,
            tuple(
                Member(each.member_id, getattr(each, "instance_id", None), each.client_id, each.client_host)
                for each in group.members
            ),
            int(group.error_code),
            group.error_message or "",
        )
        for group in response.groups
    }
    return Answer(to_ms(response.throttle_time), values)


def _refuse_describe(error_code: int, reason: str) -> Described:
    return Described(error_code=error_code, reason=reason)


def _encode_delete(_: int, groups: Sequence[str]) -> bytes:
    return to_bytes(DeleteGroupsRequest(groups_names=tuple(map(GroupId, groups))))


def _decode_delete(_: int, __: Sequence[str], body: bytes) -> Answer[str, Deleted]:
    response = from_bytes(DeleteGroupsResponse, body)
    values = {str(each.group_id): Deleted(int(each.error_code)) for each in response.results}
    return Answer(to_ms(response.throttle_time), values)


def _encode_leave(_: int, leavers: Sequence[Dismissal]) -> bytes:
    members = tuple(MemberIdentity(member_id=each.member_id, reason=each.why) for each in leavers)
    return to_bytes(LeaveGroupRequest(group_id=GroupId(leavers[0].group), members=members))


def _decode_leave(_: int, leavers: Sequence[Dismissal], body: bytes) -> Answer[Dismissal, Dismissed]:
    response = from_bytes(LeaveGroupResponse, body)
    error_code = int(response.error_code)
    if error_code:  # then it names no members
        return Answer(to_ms(response.throttle_time), dict.fromkeys(leavers, Dismissed(error_code)))
    codes = {each.member_id: int(each.error_code) for each in response.members}
    gone = {member_id for member_id, code in codes.items() if code == ErrorCode.UNKNOWN_MEMBER_ID}
    values = {
        each: Dismissed(0 if each.member_id in gone else codes[each.member_id])
        for each in leavers
        if each.member_id in codes
    }
    return Answer(to_ms(response.throttle_time), values)


LIST_GROUPS: Final[Call[str, Listing]] = Call(
    api_key=api_keys.LIST_GROUPS,
    name="ListGroups",
    versions=(3, 5),
    flexible_from=3,
    batched_from=None,
    encode=lambda version, _: to_bytes(_LIST_REQUESTS[version]()),
    decode=_decode_list,
    refuse=lambda error_code, reason: Listing((), error_code, reason),
    error_of=lambda listing: listing.error_code,
)

DESCRIBE_GROUPS: Final[Call[str, Described]] = Call(
    api_key=api_keys.DESCRIBE_GROUPS,
    name="DescribeGroups",
    versions=(5, 6),
    flexible_from=5,
    batched_from=0,
    encode=_encode_describe,
    decode=_decode_describe,
    refuse=_refuse_describe,
    error_of=lambda described: described.error_code,
)


def _describe_typed(
    api_key: int, name: str, group_type: str, requests: dict[int, Any], responses: dict[int, Any]
) -> Call[str, Described]:
    """Return the call that describes groups of one type, in the versions that there are requests for."""
    return Call(
        api_key=api_key,
        name=name,
        versions=(min(requests), max(requests)),
        flexible_from=0,
        batched_from=0,
        encode=partial(_encode_describe_typed, requests),
        decode=partial(_decode_describe_typed, group_type, responses),
        refuse=_refuse_describe,
        error_of=lambda described: described.error_code,
    )


CONSUMER_GROUP_DESCRIBE: Final = _describe_typed(
    api_keys.CONSUMER_GROUP_DESCRIBE, "ConsumerGroupDescribe", CONSUMER, _CONSUMER_REQUESTS, _CONSUMER_RESPONSES
)
SHARE_GROUP_DESCRIBE: Final = _describe_typed(
    api_keys.SHARE_GROUP_DESCRIBE, "ShareGroupDescribe", SHARE, _SHARE_REQUESTS, _SHARE_RESPONSES
)

#: The calls that describe groups of types that DescribeGroups does not know.
DESCRIBE_OTHERS: Final = (CONSUMER_GROUP_DESCRIBE, SHARE_GROUP_DESCRIBE)

DELETE_GROUPS: Final[Call[str, Deleted]] = Call(
    api_key=api_keys.DELETE_GROUPS,
    name="DeleteGroups",
    versions=(2, 2),
    flexible_from=2,
    batched_from=0,
    encode=_encode_delete,
    decode=_decode_delete,
    refuse=Deleted,
    error_of=lambda deleted: deleted.error_code,
)

LEAVE_GROUP: Final[Call[Dismissal, Dismissed]] = Call(
    api_key=api_keys.LEAVE_GROUP,
    name="LeaveGroup",
    versions=(5, 5),
    flexible_from=4,
    batched_from=0,
    encode=_encode_leave,
    decode=_decode_leave,
    refuse=Dismissed,
    error_of=lambda dismissed: dismissed.error_code,
    kind=lambda leaver: leaver.group,
)
