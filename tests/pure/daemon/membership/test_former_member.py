"""A node that was killed and starts again: who in its group it was before, and when that one is taken out."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from structlog.testing import capture_logs

from holdfast.daemon.membership.division.metadata import PROTOCOL_TYPE, MemberMetadata, encode_metadata
from holdfast.daemon.membership.former_member import FormerMember
from holdfast.daemon.server.cluster_view import Node
from holdfast.kafka.discovery.group_calls import Described, Dismissal, Dismissed, Member
from holdfast.kafka.protocol.error_codes import ErrorCode
from tests.waiting import PATIENCE_MS

US = Node(1, "h", 9001)


def member(member_id: str, node: Node = US, instance_id: str | None = None) -> Member:
    metadata = encode_metadata(MemberMetadata(node, -1, 3, 3, (0, 1), (), ()))
    return Member(member_id, instance_id, "holdfast", "/h", metadata)


class Group:
    """Answers by turns; the last of each stays."""

    def __init__(self, *described: Described, codes: Sequence[int] = (0,)) -> None:
        self.described = list(described)
        self.codes = list(codes)
        self.dismissals: list[Dismissal] = []

    async def describe(self, groups: Sequence[str]) -> dict[str, Described]:
        assert groups == ["nodes"]
        return {"nodes": self.described.pop(0) if len(self.described) > 1 else self.described[0]}

    async def dismiss(self, dismissals: Sequence[Dismissal]) -> dict[Dismissal, Dismissed]:
        self.dismissals += dismissals
        code = self.codes.pop(0) if len(self.codes) > 1 else self.codes[0]
        return dict.fromkeys(dismissals, Dismissed(code))


def stable(*members: Member, protocol_type: str = PROTOCOL_TYPE) -> Described:
    return Described("Stable", "classic", protocol_type, "cooperative-1", members)


def waiting(*member_ids: str) -> Described:
    members = tuple(Member(each, None, "holdfast", "/h") for each in member_ids)
    return Described("PreparingRebalance", "classic", PROTOCOL_TYPE, "", members)


def former(group: Group, session_timeout_ms: int = PATIENCE_MS) -> FormerMember:
    times = {"look_timeout_ms": PATIENCE_MS, "session_timeout_ms": session_timeout_ms, "pause_ms": 0}
    return FormerMember(group, "nodes", US, **times)


@pytest.mark.parametrize(
    ("described", "found"),
    [
        (stable(member("a"), member("b", Node(2, "h", 9002)), member("c")), ("a", "c")),
        (stable(member("same id, elsewhere", Node(1, "h", 9002))), ()),
        (stable(member("another id, same address", Node(2, "h", 9001))), ()),
        (stable(member("static", instance_id="first")), ()),
        (stable(Member("unreadable", None, "c", "/h", b"\x00")), ()),
        (stable(member("of another program"), protocol_type="consumer"), ()),
        (waiting("a"), ()),
        (Described(error_code=ErrorCode.GROUP_ID_NOT_FOUND), ()),
    ],
)
async def test_it_was_who_has_its_id_at_its_address(described: Described, found: tuple[str, ...]) -> None:
    assert await former(Group(described)).find() == found


async def test_it_is_taken_out_once_the_group_waits_for_it() -> None:
    group = Group(stable(member("a")), Described(error_code=ErrorCode.NOT_COORDINATOR), waiting("a", "new"))
    with capture_logs() as lines:
        await former(group).dismiss(["a"])
    assert [(each.group, each.member_id) for each in group.dismissals] == [("nodes", "a")]
    assert [(line["event"], line["member"]) for line in lines] == [("former_member_dismissed", "a")]


async def test_who_is_gone_already_is_not_taken_out() -> None:
    group = Group(waiting("a", "new"))
    await former(group).dismiss(["gone"])
    await former(group).dismiss([])
    assert group.dismissals == []


async def test_a_refusal_is_tried_again() -> None:
    group = Group(waiting("a", "new"), codes=[ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE])
    await former(group).dismiss(["a"])
    assert len(group.dismissals) == 2


async def test_it_ends_with_the_session_whatever_fails() -> None:
    group = Group(stable(member("a")))
    with capture_logs() as lines:
        await former(group, session_timeout_ms=1).dismiss(["a"])
    assert (group.dismissals, [line["event"] for line in lines]) == ([], ["former_member_expired"])


async def test_a_bug_in_it_keeps_no_node_from_starting() -> None:
    group = Group()  # has no answer, which raises
    with capture_logs() as lines:
        assert await former(group).find() == ()
        await former(group).dismiss(["a"])
    assert [line["event"] for line in lines] == ["former_member_lookup_failed"] * 2
