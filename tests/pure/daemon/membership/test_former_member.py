"""A node that was killed and starts again: who in its group it was before, and when that one is taken out."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from structlog.testing import capture_logs

from holdfast.daemon.internal_errors import InternalErrors
from holdfast.daemon.membership.division.metadata import PROTOCOL_TYPE
from holdfast.daemon.membership.former_member import FormerMember
from holdfast.kafka.discovery.group_calls import Described, Dismissal, Dismissed, Member
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.metrics.instruments import Counter
from tests.waiting import PATIENCE_MS

#: What a node is called whose place is at this address.
US = "holdfast-node-1-h:9001-kelp-0a1b2c3d"
BUGS = Counter()


def member(member_id: str, client_id: str = US, host: str = "/h", instance_id: str | None = None) -> Member:
    return Member(member_id, instance_id, client_id, host)


class Group:
    """Answers by turns; the last of each stays."""

    def __init__(self, *described: Described, codes: Sequence[int] = (0,)) -> None:
        self.described = list(described)
        self.codes = list(codes)
        self.dismissals: list[Dismissal] = []
        self.looks = 0

    async def describe(self, groups: Sequence[str]) -> dict[str, Described]:
        assert groups == ["nodes"]
        self.looks += 1
        return {"nodes": self.described.pop(0) if len(self.described) > 1 else self.described[0]}

    async def dismiss(self, dismissals: Sequence[Dismissal]) -> dict[Dismissal, Dismissed]:
        self.dismissals += dismissals
        code = self.codes.pop(0) if len(self.codes) > 1 else self.codes[0]
        return dict.fromkeys(dismissals, Dismissed(code))


def group_in(state: str, *members: Member) -> Described:
    return Described(state, "classic", PROTOCOL_TYPE, "", members)


def waiting(*members: Member) -> Described:
    return group_in("PreparingRebalance", *members)


def former(
    group: Group, session_timeout_ms: int = PATIENCE_MS, own_ids: Sequence[str] = ("new",), pause_ms: int = 0
) -> FormerMember:
    ids = [*own_ids]
    own_id = lambda: ids.pop(0) if len(ids) > 1 else ids[0]  # noqa: E731
    times = {"session_timeout_ms": session_timeout_ms, "pause_ms": pause_ms}
    return FormerMember(group, "nodes", own_id, InternalErrors(BUGS), **times)


NEW = member("new")


@pytest.mark.parametrize(
    ("others", "found"),
    [
        ((member("a"), member("b", "holdfast-node-2-h:9002-kelp-0a1b2c3d"), member("c")), ["a", "c"]),
        ((member("same id, elsewhere", "holdfast-node-1-h:9002-kelp-0a1b2c3d"),), []),
        ((member("another id, same address", "holdfast-node-2-h:9001-kelp-0a1b2c3d"),), []),
        ((member("on another machine behind our address translation", "holdfast-node-1-h:9001-kelp-4d5e6f7a"),), []),
        ((member("on another host, where a loopback address leads to it", host="/i"),), []),
        ((member("static", instance_id="first"),), []),
        ((), []),
    ],
)
async def test_it_was_who_has_its_id_at_its_address_on_its_host(others: tuple[Member, ...], found: list[str]) -> None:
    # No member shows its metadata while the group waits.
    group = Group(waiting(NEW, *others), waiting(NEW))
    await former(group).dismiss()
    assert [each.member_id for each in group.dismissals] == found


async def test_it_is_taken_out_once_this_node_has_joined_and_the_group_waits_for_it() -> None:
    group = Group(
        group_in("Stable", member("a")),  # alone in it, it would leave an empty group behind
        Described(error_code=ErrorCode.NOT_COORDINATOR),
        waiting(member("a"), NEW),
        waiting(NEW),
    )
    with capture_logs() as lines:
        await former(group, own_ids=("", "", "new")).dismiss()
    assert [(each.group, each.member_id) for each in group.dismissals] == [("nodes", "a")]
    assert [(line["event"], line["member"]) for line in lines] == [("former_member_dismissed", "a")]


@pytest.mark.parametrize("state", ["Stable", "CompletingRebalance"])
async def test_who_has_joined_again_lives_and_stays(state: str) -> None:
    group = Group(group_in(state, member("a"), NEW))
    await former(group).dismiss()
    assert group.dismissals == []


async def test_a_refusal_is_tried_again() -> None:
    codes = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE]
    group = Group(waiting(member("a"), NEW), waiting(member("a"), NEW), waiting(NEW), codes=codes)
    await former(group).dismiss()
    assert len(group.dismissals) == 2


@pytest.mark.parametrize("described", [waiting(member("a"), NEW), waiting(member("a"))])
async def test_it_ends_with_the_session_whatever_fails(described: Described) -> None:
    group = Group(described, codes=[ErrorCode.COORDINATOR_NOT_AVAILABLE])
    with capture_logs() as lines:
        await former(group, session_timeout_ms=1).dismiss()
    events = [line["event"] for line in lines if line["log_level"] != "debug"]
    assert events == (["former_member_expired"] if NEW in described.members else [])


@pytest.mark.virtual_time
@pytest.mark.parametrize("described", [waiting(member("a"), NEW), Described(error_code=ErrorCode.NOT_COORDINATOR)])
async def test_it_looks_once_a_pause_from_when_this_node_has_joined_until_the_session_is_over(
    described: Described,
) -> None:
    group = Group(described, codes=[ErrorCode.COORDINATOR_NOT_AVAILABLE])
    own_ids = ("", "", "", "new")
    await former(group, session_timeout_ms=1_050, own_ids=own_ids, pause_ms=100).dismiss()
    assert group.looks == 11
    assert round(asyncio.get_running_loop().time(), 2) == 3 * 0.1 + 1.05


async def test_a_bug_in_it_keeps_no_node_from_starting() -> None:
    before = BUGS.value
    group = Group()  # has no answer, which raises
    with capture_logs() as lines:
        await former(group).dismiss()
    assert [line["event"] for line in lines] == ["former_member_watch_failed"]
    assert BUGS.value == before + 1
