"""What nodes make of claims that nothing proves: of other members, of a leader, and of the log."""

from collections.abc import Mapping, Sequence

import pytest
from structlog.testing import capture_logs

from holdfast.daemon.membership.division.assignment import AssignmentError, decode_assignment, encode_assignment
from holdfast.daemon.membership.division.ownership_map import OwnershipMap, Work
from tests.pure.daemon.membership.world import PARTITIONS, Clock, Config, Group, Member


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def group() -> Group:
    return Group()


def events(lines: Sequence[Mapping[str, object]]) -> list[object]:
    return [line["event"] for line in lines]


async def test_a_config_offset_beyond_the_end_of_the_topic_is_ignored(clock: Clock, group: Group) -> None:
    a, b, evil = Member(1, clock, Config(3)), Member(2, clock, Config(3)), Member(6, clock, Config(2**40))
    with capture_logs() as lines:
        assigned = await group.rebalance(a, b, evil)
    for each in assigned.values():
        found = decode_assignment(each)
        assert (found.error, found.config_offset) == (AssignmentError.NONE, 3)
    assert [line["members"] for line in lines if line["event"] == "config_offset_implausible"] == [["m-6"]]
    assert len(a.serving | b.serving | evil.serving) == PARTITIONS


async def test_a_node_that_serves_goes_on_whoever_claims_its_id(clock: Clock, group: Group) -> None:
    a, b = Member(1, clock), Member(2, clock)
    await group.rebalance(a, b)
    serving = set(b.serving)
    assigned = refuse_member(await group.rebalance(a, b), b.id)
    b.done()
    with capture_logs() as lines:
        await b.coordinator.on_join_complete(2, b.id, "cooperative-1", assigned)
    assert (b.refusals, b.done(), b.serving) == ([], [], serving)
    assert events(lines) == ["assignment_failed"]
    clock.now_ms += 60_000
    assert b.coordinator.take_rejoin() == "the assignment failed: node id 2 is claimed"


def refuse_member(assigned: dict[str, bytes], member_id: str) -> bytes:
    """Return the assignment of a member as if the leader had believed another one."""
    found = decode_assignment(assigned[member_id])
    refused = found._replace(
        error=AssignmentError.NODE_ID_IN_USE, reason="node id 2 is claimed", work=Work(), map=OwnershipMap(9, ())
    )
    return encode_assignment(refused)


async def test_an_assignment_of_log_partitions_that_do_not_exist_is_unreadable(clock: Clock, group: Group) -> None:
    a = Member(1, clock)
    found = decode_assignment((await group.rebalance(a))[a.id])
    a.done()
    with capture_logs() as lines:
        data = encode_assignment(found._replace(work=Work((0, 999_999))))
        await a.coordinator.on_join_complete(2, a.id, "cooperative-1", data)
    assert (events(lines), a.done()) == (["assignment_failed"], [])
    assert lines[0]["why"] == "it names log partition 999999, and the log has 4"


async def test_a_generation_in_the_log_that_no_group_reaches_is_not_taken_over(clock: Clock, group: Group) -> None:
    a, b = Member(1, clock), Member(2, clock)
    await group.rebalance(a, b)
    a.taken(1, 2**63 - 1)
    clock.now_ms += 60_000
    assert a.coordinator.take_rejoin() == "", "nothing that a group hands out outranks it"
    assigned = await group.rebalance(b, a)
    assert decode_assignment(assigned[a.id]).error is AssignmentError.NONE


async def test_a_member_whose_name_cannot_be_shown_gets_no_work(clock: Clock, group: Group) -> None:
    a = Member(1, clock)
    protocol, joined = group.choose((a,))
    for name in ("evil\x1b[2J-1", "m" * 1_025):
        with capture_logs():
            assigned = await a.coordinator.perform_assignment(
                a.id, protocol, [*joined, joined[0]._replace(member_id=name)]
            )
        assert decode_assignment(assigned[name]).error is AssignmentError.METADATA_UNREADABLE
        assert [each.member_id for each in decode_assignment(assigned[a.id]).map.members] == [a.id]
