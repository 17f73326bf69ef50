"""A node as a member: what it says, begins and gives up, over rebalances that a test orders."""

from collections.abc import Mapping, Sequence

import pytest
from structlog.testing import capture_logs

from holdfast.daemon.membership.division.assignment import AssignmentError, decode_assignment
from holdfast.daemon.membership.division.metadata import decode_metadata
from holdfast.daemon.membership.division.ownership_map import FormerOwner
from tests.pure.daemon.membership.world import CONFIG_MS, HANDOVER_MS, STALE_MS, Clock, Config, Group, Member


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def group() -> Group:
    return Group()


def events(lines: Sequence[Mapping[str, object]]) -> list[object]:
    return [line["event"] for line in lines]


def mapped(member: Member) -> dict[int, tuple[int, ...]]:
    assert member.view.map is not None
    return {each.node.node_id: each.work.tasks for each in member.view.map.members}


async def test_one_node_begins_everything(clock: Clock, group: Group) -> None:
    a = Member(1, clock)
    assert not a.coordinator.is_at_rest
    assert (a.coordinator.needs_rejoin, a.coordinator.why_not_ready()) == (
        True,
        "the node has no assignment of its group yet",
    )
    await group.rebalance(a)
    assert a.done() == ["begin [0, 1, 2, 3] under 1", "duties ['compaction']"]
    assert (a.coordinator.needs_rejoin, a.coordinator.why_not_ready()) == (False, "")


async def test_what_a_member_says_of_itself(clock: Clock, group: Group) -> None:
    a = Member(1, clock, Config(7))
    names = [name for name, _ in a.coordinator.metadata()]
    assert names == ["cooperative-1", "eager-1"]
    assert [name for name, _ in Member(1, clock, rebalance_protocol="eager").coordinator.metadata()] == ["eager-1"]
    await group.rebalance(a)
    a.taken(3, 5)
    said = decode_metadata(a.coordinator.metadata()[0][1])
    assert (said.node, said.config_offset, said.generation, said.generation_seen) == (a.node, 7, 1, 5)
    assert (said.tasks, said.duties, said.duties_offered) == ((0, 1, 2, 3), ("compaction",), ("compaction",))


async def test_a_join_begins_with_a_fresh_look_at_the_config_topic(clock: Clock, group: Group) -> None:
    a = Member(1, clock, Config(7))
    a.config.end = 9
    await a.coordinator.on_join_prepare(-1, "")
    assert decode_metadata(a.coordinator.metadata()[0][1]).config_offset == 9


async def test_only_what_moves_is_let_go_and_is_served_until_it_is_taken(clock: Clock, group: Group) -> None:
    a, b = Member(1, clock), Member(2, clock)
    await group.rebalance(a)
    a.done()
    await group.rebalance(a, b)
    assert a.done() == ["begin [0, 1] under 2"]
    assert b.done() == ["begin [2, 3] under 2"]
    assert (a.serving, a.holdings.released) == ({0, 1, 2, 3}, [2, 3])
    assert (a.coordinator.is_at_rest, b.coordinator.is_at_rest) == (False, True)
    assert [a.view.owner(task) for task in range(4)] == [a.node] * 4
    assert not a.taken(2, 2), "it was not to keep it"
    assert [a.view.owner(task) for task in range(4)] == [a.node, a.node, b.node, a.node]
    clock.now_ms += HANDOVER_MS
    a.coordinator.tick()
    assert (a.done(), a.holdings.released) == (["end [3]"], [])
    assert a.coordinator.is_at_rest
    a.coordinator.tick()
    assert a.done() == []


async def test_what_is_not_served_is_given_up_at_once(clock: Clock, group: Group) -> None:
    a, b = Member(1, clock), Member(2, clock)
    await group.rebalance(a)
    a.serving -= {3}
    a.done()
    await group.rebalance(a, b)
    assert (a.done(), a.holdings.released) == (["end [3]", "begin [0, 1] under 2"], [2])


async def test_what_comes_back_before_it_was_taken_goes_on(clock: Clock, group: Group) -> None:
    a, b = Member(1, clock), Member(2, clock)
    await group.rebalance(a)
    await group.rebalance(a, b)
    a.done()
    await group.rebalance(a)
    assert (a.done(), a.holdings.released) == (["begin [0, 1, 2, 3] under 3"], [])
    clock.now_ms += 2 * HANDOVER_MS
    a.coordinator.tick()
    assert a.done() == []


async def test_eager_gives_up_everything_once_before_it_joins(clock: Clock, group: Group) -> None:
    a, b = Member(1, clock), Member(2, clock, rebalance_protocol="eager")
    await group.rebalance(a)
    a.done()
    # The protocol of the assignment in effect counts: nothing is given up before the first eager one.
    await group.rebalance(a, b)
    assert a.done() == ["begin [0, 1] under 2"]
    await a.coordinator.on_join_prepare(2, a.id)
    assert a.done() == ["end [0, 1, 2, 3]", "duties []"]
    await a.coordinator.on_join_prepare(2, a.id)
    assert a.done() == [], "once"
    await group.rebalance(a, b)
    assert a.done() == ["begin [0, 1] under 3", "duties ['compaction']"], "what it had comes back to it"


async def test_eager_gives_nothing_up_for_an_assignment_that_failed(clock: Clock, group: Group) -> None:
    a = Member(1, clock, rebalance_protocol="eager")
    await group.rebalance(a)
    await group.rebalance(a)
    a.done()
    await a.coordinator.on_join_complete(3, a.id, "eager-1", b"\x00")
    await a.coordinator.on_join_prepare(3, a.id)
    assert a.done() == []


async def test_a_lone_member_that_leaves_serves_to_its_end_and_others_let_go(clock: Clock, group: Group) -> None:
    a, b = Member(1, clock), Member(2, clock)
    await group.rebalance(a)
    await a.coordinator.on_leave_prepare(1, a.id)
    assert a.holdings.released == []
    await group.rebalance(a, b)
    a.taken(2, 2)
    a.taken(3, 2)
    a.done()
    await a.coordinator.on_leave_prepare(2, a.id)
    assert (a.done(), a.holdings.released, a.serving) == (["duties []"], [0, 1], {0, 1})


async def test_a_member_whose_place_is_kept_lets_nothing_go(clock: Clock, group: Group) -> None:
    a, b = Member(1, clock, keeps_place=True), Member(2, clock)
    await group.rebalance(a, b)
    a.done()
    await a.coordinator.on_leave_prepare(1, a.id)
    assert (a.done(), a.holdings.released) == ([], [])


async def test_who_has_left_names_itself_for_what_it_serves_alone(clock: Clock, group: Group) -> None:
    a, b = Member(1, clock), Member(2, clock)
    await group.rebalance(a, b)
    await a.coordinator.on_leave_prepare(1, a.id)
    assert not a.taken(1, 2)
    assert [a.view.owner(task) for task in range(4)] == [b.node, None, b.node, a.node]


async def test_everybody_learns_who_had_what_moves_from_a_leader_that_knows_it(clock: Clock, group: Group) -> None:
    a, b, c = (Member(node_id, clock) for node_id in (1, 2, 3))
    await group.rebalance(a)
    await group.rebalance(a, b)
    b.serving.clear()  # it loads
    assert b.view.map is not None
    assert b.view.map.former == (FormerOwner(a.node, (2, 3), HANDOVER_MS),)
    b.former.answered(a.node, {2: 1, 3: 1}, clock.now_ms)
    await group.rebalance(b, c)  # a has left, and serves on
    assert c.view.map is not None
    assert [each for each in c.view.map.former if each.node == a.node] == [
        FormerOwner(a.node, (0, 1, 2, 3), HANDOVER_MS)
    ]


async def test_a_lone_member_lets_go_what_somebody_who_joins_is_to_take(clock: Clock, group: Group) -> None:
    a = Member(1, clock)
    await group.rebalance(a)
    await a.coordinator.on_join_prepare(1, a.id)
    await a.coordinator.on_leave_prepare(1, a.id)
    assert a.holdings.released == [0, 1, 2, 3]


async def test_a_log_with_a_higher_generation_heals_with_one_more_rebalance(clock: Clock, group: Group) -> None:
    a = Member(1, clock)
    await group.rebalance(a)
    with capture_logs():
        assert a.taken(0, 7)
    assert (a.coordinator.needs_rejoin, a.coordinator.take_rejoin()) == (True, "")
    clock.now_ms += 100
    assert a.coordinator.take_rejoin() == "log partition 0 was taken under ownership generation 7"
    assert a.coordinator.take_rejoin() == ""
    a.done()
    await group.rebalance(a)
    assert a.done() == ["begin [0, 1, 2, 3] under 8"]
    assert not a.coordinator.needs_rejoin


async def test_a_higher_generation_seen_in_a_rebalance_is_looked_at_when_it_ends(clock: Clock, group: Group) -> None:
    a, b = Member(1, clock), Member(2, clock)
    await group.rebalance(a, b)
    assert mapped(a) == {1: (1, 3), 2: (0, 2)}
    await a.coordinator.on_join_prepare(1, a.id)
    protocol, joined = group.choose((a, b))
    assigned = await a.coordinator.perform_assignment(a.id, protocol, joined)
    # One that this very rebalance leaves to another member: no reason to join again.
    a.taken(2, 2)
    await a.coordinator.on_join_complete(2, a.id, protocol, assigned[a.id])
    assert not a.coordinator.needs_rejoin
    for seen, wanted in (
        (1, ""),
        # An earlier life of the group gave out the same number, and its owner cannot be outranked by it.
        (2, "log partition 1 was taken under ownership generation 2"),
        (9, "log partition 1 was taken under ownership generation 9"),
    ):
        await a.coordinator.on_join_prepare(2, a.id)
        a.taken(1, seen)
        clock.now_ms += 60_000
        assert a.coordinator.take_rejoin() == "", "it is joining"
        await a.coordinator.on_join_complete(3, a.id, protocol, assigned[a.id])
        clock.now_ms += 60_000
        assert a.coordinator.take_rejoin() == wanted


async def test_the_leader_catches_up_and_divides_for_the_highest_offset(clock: Clock, group: Group) -> None:
    cases = [  # leader's offset, what a look brings it to, the other's; what is handed out
        (5, 5, 5, 5),
        (3, 5, 5, 5),
        (3, 9, 5, 9),
        (7, 7, 5, 7),
        (-1, -1, -1, -1),
    ]
    for offset, end, others, handed_out in cases:
        a, b = Member(1, clock, Config(offset)), Member(2, clock, Config(others))
        protocol, joined = group.choose((a, b))
        a.config.end = end
        assigned = await a.coordinator.perform_assignment(a.id, protocol, joined)
        found = decode_assignment(assigned[b.id])
        assert (found.error, found.config_offset, a.config.offset) == (0, handed_out, handed_out)
        assert found.config_offset >= others
        assert a.config.refreshes == (offset < others)


async def test_a_mismatch_takes_nothing_away_and_is_tried_again_after_pauses(clock: Clock, group: Group) -> None:
    a, b = Member(1, clock), Member(2, clock)
    await group.rebalance(a, b)
    b.config.offset = b.config.end = 4
    a.config.is_current = False
    assert (a.done()[0], b.done()[0]) == ("begin [1, 3] under 1", "begin [0, 2] under 1")
    rebalances = 0
    with capture_logs() as lines:
        for _ in range(600):
            clock.now_ms += 100
            if a.coordinator.take_rejoin() or not rebalances:
                rebalances += 1
                assigned = await group.rebalance(a, b)
                assert {decode_assignment(each).error for each in assigned.values()} == {
                    AssignmentError.CONFIG_MISMATCH
                }
    assert (a.done(), b.done()) == ([], []), "both serve on"
    assert rebalances <= 10, "in a minute"
    assert {line["why"] for line in lines if line["event"] == "assignment_failed"} == {
        "the leader m-1 has read the config topic to offset -1, and a member to 4"
    }
    a.config.end, a.config.is_current = 4, True
    await group.rebalance(a, b)
    assert (a.coordinator.needs_rejoin, a.done(), b.done()) == (
        False,
        ["begin [1, 3] under 2"],
        ["begin [0, 2] under 2"],
    )


async def test_who_is_behind_keeps_what_it_serves_and_begins_the_rest_when_it_has_read_on(
    clock: Clock, group: Group
) -> None:
    a, b = Member(1, clock), Member(2, clock, Config(4))
    await group.rebalance(a)
    a.done()
    assigned = await group.rebalance(b, a, leader=b)
    assert decode_assignment(assigned[a.id]).config_offset == 4
    assert (a.done(), b.done()) == (["begin [0, 1] under 2"], ["begin [2, 3] under 2"])
    late, other = Member(4, clock), Group()
    await other.rebalance(b)
    assigned = await other.rebalance(b, late)
    assert decode_assignment(assigned[late.id]).work.tasks == (2, 3)
    assert (late.done(), late.coordinator.why_not_ready()) == ([], "the node waits for the config topic")
    assert not late.coordinator.is_at_rest
    late.coordinator.tick()
    assert late.done() == [], "not before it has read far enough"
    late.config.offset = 4
    late.coordinator.tick()
    assert late.done() == ["begin [2, 3] under 4"]
    assert late.coordinator.why_not_ready() == ""
    assert late.coordinator.is_at_rest


async def test_who_stays_behind_says_so_and_joins_again(clock: Clock, group: Group) -> None:
    leader, late = Member(1, clock, Config(4)), Member(2, clock)
    await group.rebalance(leader, late)
    clock.now_ms += CONFIG_MS
    with capture_logs() as lines:
        late.coordinator.tick()
    assert events(lines) == ["config_behind"]
    clock.now_ms += 60_000
    assert late.coordinator.take_rejoin() == "the config topic was read to offset -1, and 4 is wanted"
    assert late.done() == []


async def test_an_assignment_that_cannot_be_read_has_failed_and_is_not_an_empty_one(clock: Clock, group: Group) -> None:
    a = Member(1, clock)
    await group.rebalance(a)
    a.done()
    with capture_logs() as lines:
        await a.coordinator.on_join_complete(2, a.id, "cooperative-1", b"")
    assert (events(lines), a.done(), a.serving) == (["assignment_failed"], [], {0, 1, 2, 3})
    assert a.coordinator.needs_rejoin
    clock.now_ms += 60_000
    assert a.coordinator.take_rejoin().startswith("the assignment failed: ")


async def test_an_assignment_of_an_older_generation_changes_nothing(clock: Clock, group: Group) -> None:
    a, b = Member(1, clock), Member(2, clock)
    old = await group.rebalance(a)
    await group.rebalance(a, b)
    a.done()
    await a.coordinator.on_join_complete(1, a.id, "cooperative-1", old[a.id])
    assert (a.done(), mapped(a)) == ([], {1: (0, 1), 2: (2, 3)})


async def test_after_a_lost_session_a_group_that_begins_at_one_again_is_no_older_one(clock: Clock) -> None:
    a = Member(1, clock)
    await Group(generation=7).rebalance(a)
    a.done()
    with capture_logs():
        await a.coordinator.on_lost("the session expired")
    assert (a.serving, a.view.map, a.view.owner(0), a.view.owner(3)) == ({0, 1, 2, 3}, None, a.node, a.node)
    await Group().rebalance(a)
    assert a.done() == ["begin [0, 1, 2, 3] under 2"], "the ownership generation does not begin again"


async def test_metadata_that_cannot_be_read_costs_one_member_its_work(clock: Clock, group: Group) -> None:
    a, b = Member(1, clock), Member(2, clock)
    protocol, joined = group.choose((a, b))
    with capture_logs() as lines:
        assigned = await a.coordinator.perform_assignment(
            a.id, protocol, [joined[0], joined[1]._replace(metadata=b"\x01")]
        )
    named = [line["member"] for line in lines if line["log_level"] == "error"]
    assert named == ["m-2"]
    assert decode_assignment(assigned[a.id]).work.tasks == (0, 1, 2, 3)
    assert decode_assignment(assigned[b.id]).error is AssignmentError.METADATA_UNREADABLE


async def test_the_second_node_of_one_id_is_refused_and_both_addresses_are_named(clock: Clock, group: Group) -> None:
    a, b = Member(1, clock), Member(2, clock)
    twin = Member(2, clock)
    twin.id, twin.coordinator._node = "m-3", twin.node._replace(port=9100)
    await group.rebalance(a, b)
    await group.rebalance(a, b, twin)
    why = (
        "node id 2 belongs to the node at h:9002, and the one at h:9100 has it too: "
        "give this one another `node_id`, or stop that one"
    )
    assert twin.refusals == [(why, b.node)]
    assert twin.coordinator.why_not_ready() == f"the node has no assignment of its group yet: {why}"
    assert (a.refusals, b.refusals, twin.did) == ([], [], [])


async def test_what_an_absent_node_had_waits_and_the_leader_ends_the_wait(clock: Clock, group: Group) -> None:
    a, b, c = (Member(number, clock, rebalance_delay_ms=30_000) for number in (1, 2, 3))
    await group.rebalance(a, b, c)
    assert mapped(a) == {1: (2,), 2: (0, 3), 3: (1,)}
    await group.rebalance(a, c)
    assert (mapped(a), a.view.owner(0), a.view.owner(3)) == ({1: (2,), 3: (1,)}, None, None)
    assert [row["state"] for row in a.coordinator.describe_members()] == ["stable", "absent", "member"]
    clock.now_ms += 30_000
    a.coordinator.tick()
    c.coordinator.tick()
    clock.now_ms += 100
    assert a.coordinator.take_rejoin() == "what absent nodes had has waited for rebalance_delay_ms"
    assert c.coordinator.take_rejoin() == ""
    await group.rebalance(a, c)
    assert sorted(task for tasks in mapped(c).values() for task in tasks) == [0, 1, 2, 3]


async def test_a_leader_that_comes_back_into_its_place_leads_on(clock: Clock, group: Group) -> None:
    a, b, c = (Member(number, clock, rebalance_delay_ms=30_000) for number in (1, 2, 3))
    await group.rebalance(a, b, c)
    kept = await group.rebalance(a, c)
    again = Member(1, clock, rebalance_delay_ms=30_000)
    await again.coordinator.on_join_prepare(-1, "")
    await again.coordinator.on_join_complete(2, "m-9", "cooperative-1", kept[a.id])
    assert [row["state"] for row in again.coordinator.describe_members()] == ["stable", "absent", "member"]
    clock.now_ms += 30_000
    again.coordinator.tick()
    clock.now_ms += 100
    assert again.coordinator.take_rejoin() == "what absent nodes had has waited for rebalance_delay_ms"


async def test_a_map_is_stale_from_the_first_moment_of_a_rebalance(clock: Clock, group: Group) -> None:
    a, b = Member(1, clock), Member(2, clock)
    await group.rebalance(a, b)
    await a.coordinator.on_join_prepare(1, a.id)
    assert (a.view.is_stale, a.view.owner(0)) == (True, b.node)
    clock.now_ms += STALE_MS + 1
    assert (a.view.owner(1), a.view.owner(0)) == (a.node, None)
    await group.rebalance(a, b)
    assert (a.view.is_stale, a.view.owner(0)) == (False, b.node)


async def test_every_decision_is_a_line(clock: Clock, group: Group) -> None:
    a, b = Member(1, clock), Member(2, clock)
    with capture_logs() as lines:
        await group.rebalance(a, b)
    assert [(line["event"], line["log_level"]) for line in lines] == [
        ("assignment_started", "info"),
        ("work_assigned", "debug"),
        ("work_assigned", "debug"),
        ("assignment_finished", "info"),
        ("assignment_adopted", "info"),
        ("assignment_adopted", "info"),
    ]
    adopted = lines[-1]
    assert (adopted["leader"], adopted["generation"], adopted["ownership_generation"]) == ("m-1", 1, 1)
    assert (adopted["config_offset_wanted"], adopted["config_offset"], adopted["given_up"]) == (-1, -1, [])


async def test_too_many_rebalances_are_one_line_with_their_reasons(clock: Clock, group: Group) -> None:
    a = Member(1, clock)
    with capture_logs() as lines:
        for _ in range(25):
            await group.rebalance(a)
    alarms = [line for line in lines if line["event"] == "rebalances_exceeded"]
    assert [alarm["reasons"] for alarm in alarms] == [{"another member, or the broker": 21}]
    assert a.alarms.value == 1


async def test_a_static_member_that_comes_back_at_another_address_has_the_map_made_anew(
    clock: Clock, group: Group
) -> None:
    a, b = Member(1, clock), Member(2, clock, keeps_place=True)
    assigned = await group.rebalance(a, b)
    assert b.coordinator.take_rejoin() == ""
    moved = Member(2, clock, host="elsewhere", keeps_place=True)
    await moved.coordinator.on_join_prepare(-1, "")
    said = moved.coordinator.metadata()
    await moved.coordinator.on_join_complete(1, moved.id, "cooperative-1", assigned[b.id])
    assert moved.done() == ["begin [0, 2] under 1"], "it works meanwhile"
    clock.now_ms += 100
    assert moved.coordinator.take_rejoin() == "the map has this node at h:9002, and it is at elsewhere:9002"
    # Else the broker would answer a follower with the generation that there is.
    assert moved.coordinator.metadata() != said
    await group.rebalance(a, moved)
    assert (a.view.owner(0), moved.view.owner(0), moved.coordinator.take_rejoin()) == (moved.node, moved.node, "")
