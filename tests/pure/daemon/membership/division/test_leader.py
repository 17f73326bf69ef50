"""What the leader hands out: generations, twins, members that cannot be read, absent nodes, and a mismatch of the config."""

from dataclasses import replace
from typing import Final

from holdfast.daemon.membership.division.assignment import (
    Assignment,
    AssignmentError,
    decode_assignment,
    encode_assignment,
)
from holdfast.daemon.membership.division.bounds import FORMER_OWNERS_MAX, GENERATION_MAX, GENERATION_STEP
from holdfast.daemon.membership.division.leader import LastDivision, Meeting, assign_all, refuse_all
from holdfast.daemon.membership.division.metadata import MemberMetadata
from holdfast.daemon.membership.division.ownership_map import AbsentNode, FormerOwner, OwnershipMap, Work
from holdfast.daemon.server.cluster_view import Node

TASKS: Final = range(4)
DELAY_MS: Final = 30_000
HANDOVER_MS: Final = 60_000


def member(
    node_id: int,
    tasks: tuple[int, ...] = (),
    *,
    generation: int = 0,
    seen: int = 0,
    offset: int = -1,
    port: int = 0,
    machine: str = "",
    may_serve: tuple[FormerOwner, ...] = (),
) -> MemberMetadata:
    node = Node(node_id, "h", port or 9000 + node_id)
    duties = ("compaction",)
    return MemberMetadata(node, machine, offset, generation, max(seen, generation), tasks, (), duties, may_serve)


def meeting(**members: MemberMetadata) -> Meeting:
    return Meeting(min(members), members, {})


def given(
    met: Meeting, last: LastDivision | None = None, *, delay_ms: int = 0, offset: int = -1
) -> dict[str, Assignment]:
    return assign_all(met, TASKS, offset, last, delay_ms, HANDOVER_MS)


def works(assignments: dict[str, Assignment]) -> dict[str, Work]:
    return {member_id: each.work for member_id, each in assignments.items()}


def test_everybody_gets_the_whole_map_without_work_too() -> None:
    found = assign_all(meeting(a=member(1), b=member(2), c=member(3)), range(1), 7, None, 0, HANDOVER_MS)
    assert works(found) == {"a": Work((), ("compaction",)), "b": Work((0,)), "c": Work()}
    assert len({encode_assignment(each._replace(work=Work())) for each in found.values()}) == 1
    shown = found["c"]
    assert (shown.error, shown.leader_id, shown.leader, shown.config_offset) == (0, "a", Node(1, "h", 9001), 7)
    assert [(each.member_id, each.node.node_id, each.work) for each in shown.map.members] == [
        ("a", 1, Work((), ("compaction",))),
        ("b", 2, Work((0,))),
        ("c", 3, Work()),
    ]


def test_an_ownership_generation_is_above_all_that_any_member_has_seen() -> None:
    assert given(meeting(a=member(1), b=member(2)))["a"].map.generation == 1
    # A group that was forgotten begins at 1 again; what a log has seen does not.
    assert given(meeting(a=member(1, generation=3, seen=3), b=member(2, seen=7)))["a"].map.generation == 8


def test_what_one_member_claims_to_have_seen_raises_a_generation_by_a_step_at_most() -> None:
    for claimed in (GENERATION_STEP + 9, 2**40, GENERATION_MAX - 1, GENERATION_MAX):
        divided = given(meeting(a=member(1, generation=5), b=member(2, generation=5, seen=claimed)))["a"].map
        assert divided.generation == 5 + GENERATION_STEP + 1
        # It never outlives the member: the next division is one further.
        assert given(meeting(a=member(1, generation=divided.generation)))["a"].map.generation == divided.generation + 1
    # Whatever was seen in the log, a division can be sent.
    most = given(meeting(a=member(1, seen=GENERATION_MAX)))["a"]
    assert decode_assignment(encode_assignment(most)) == most


def test_a_claim_that_nothing_proves_does_not_outrank_who_had_the_node_id() -> None:
    claims = member(1, (0, 1, 2, 3), generation=9, port=1)
    honest, other = member(1, (0, 1), generation=1), member(2, (2, 3), generation=1)
    # Its member id is the lowest, too.
    met = Meeting("z", {"0": claims, "a": honest, "z": other}, {})
    before = replace(BEFORE, members=(BEFORE.members[0], BEFORE.members[1]._replace(member_id="z")))
    leader_is_twin = met._replace(leader_id="a")
    others_know = met._replace(
        members={**met.members, "z": other._replace(may_serve=(FormerOwner(honest.node, (0, 1), 60),))}
    )
    for case, last in ((met, LastDivision(before, 0)), (leader_is_twin, None), (others_know, None)):
        found = given(case, last)
        assert {each: found[each].error for each in found} == {
            "0": AssignmentError.NODE_ID_IN_USE,
            "a": AssignmentError.NONE,
            "z": AssignmentError.NONE,
        }
        assert works(found)["a"].tasks == (0, 1)
    # The same for its address, under another node id and from another machine.
    at_address = Meeting("z", {**met.members, "0": member(7, (0,), generation=9, port=9001, machine="evil")}, {})
    found = given(at_address, LastDivision(before, 0))
    assert (found["0"].error, found["a"].error) == (AssignmentError.NODE_ID_IN_USE, AssignmentError.NONE)


def test_former_owners_that_a_member_makes_up_are_bounded_in_number_and_time() -> None:
    known = FormerOwner(Node(9, "h", 9009), (3,), 20)
    made_up = tuple(FormerOwner(Node(number, "evil", 1), (0, 1, 2, 3), 2**40) for number in range(2_000, 3_000))
    met = meeting(
        a=member(1, may_serve=(known,)),
        b=member(2, may_serve=(known,)),
        c=member(3, may_serve=made_up),
    )
    former = given(met)["a"].map.former
    assert known in former
    assert len(former) <= FORMER_OWNERS_MAX // 2
    assert {each.wait_ms for each in former if each != known} == {HANDOVER_MS}


def test_what_is_held_stays_and_the_newer_claim_wins() -> None:
    met = meeting(a=member(1, (0, 1), generation=2), b=member(2, (1, 2), generation=3), c=member(3))
    assert works(given(met)) == {"a": Work((0,), ("compaction",)), "b": Work((1, 2)), "c": Work((3,))}


def test_a_mismatch_gives_work_to_nobody_and_says_which_offset_was_missed() -> None:
    met = meeting(a=member(1, offset=3), b=member(2, offset=9))._replace(unreadable={"c": "why"})
    refused = refuse_all(met, 5)
    assert set(refused) == {"a", "b", "c"}
    for each in refused.values():
        assert (each.error, each.config_offset, each.work) == (AssignmentError.CONFIG_MISMATCH, 9, Work())
        assert (each.leader_id, each.leader, each.map.members) == ("a", Node(1, "h", 9001), ())
        assert each.reason == "the leader a has read the config topic to offset 5, and a member to 9"


def test_a_member_that_cannot_be_read_costs_itself_its_work_alone() -> None:
    found = given(meeting(a=member(1), b=member(2))._replace(unreadable={"c": "it is cut off"}))
    assert (found["c"].error, found["c"].reason) == (AssignmentError.METADATA_UNREADABLE, "it is cut off")
    assert found["c"].work == Work()
    assert {task for each in found.values() for task in each.work.tasks} == set(TASKS)
    assert [each.member_id for each in found["c"].map.members] == ["a", "b"]


def test_of_two_nodes_with_one_id_the_one_that_holds_something_keeps_it() -> None:
    found = given(meeting(a=member(1), b=member(2, (2,), generation=1), c=member(2, port=9), d=member(2, port=8)))
    assert found["b"].error is AssignmentError.NONE
    assert (found["c"].error, found["c"].work) == (AssignmentError.NODE_ID_IN_USE, Work())
    assert found["c"].reason == (
        "node id 2 belongs to the node at h:9002, and the one at h:9 has it too: "
        "give this one another `node_id`, or stop that one"
    )
    assert found["d"].error is AssignmentError.NODE_ID_IN_USE
    assert [each.member_id for each in found["a"].map.members] == ["a", "b"]


def test_a_node_that_was_started_again_is_no_twin_of_itself() -> None:
    found = given(meeting(a=member(1, (0, 1), generation=1), b=member(1)))
    assert {each.error for each in found.values()} == {AssignmentError.NONE}


def test_nodes_of_several_machines_have_no_address_in_common() -> None:
    a, b, c = (member(1, machine=f"kelp {number}", port=9492) for number in (1, 1, 2))
    found = given(meeting(a=a, b=b, c=c, d=member(2, machine="kelp 2", port=9492)))
    assert found["b"].error is AssignmentError.NONE, "it was started again"
    for refused, node_id in (("c", 1), ("d", 2)):
        assert (found[refused].error, found[refused].work) == (AssignmentError.NODE_ID_IN_USE, Work())
        assert found[refused].reason == (
            f"node 1 at h:9492 on kelp 1 and node {node_id} at h:9492 on kelp 2 have one address: "
            "set `advertised_listener` of each to one that other machines reach, and give each its own `node_id`"
        )
    # A node that was given another id.
    assert {each.error for each in given(meeting(a=a, b=member(2, machine="kelp 1", port=9492))).values()} == {0}


def divided(*members: MemberMetadata) -> OwnershipMap:
    return given(meeting(**{chr(97 + index): each for index, each in enumerate(members)}))["a"].map


BEFORE: Final = divided(member(1, (0, 1), generation=1), member(2, (2, 3), generation=1))


def test_without_a_delay_the_work_of_who_left_is_divided_at_once() -> None:
    found = given(meeting(a=member(1, (0, 1), generation=2)), LastDivision(BEFORE, 0))
    assert (found["a"].work.tasks, found["a"].map.absent) == ((0, 1, 2, 3), ())


def test_the_work_of_who_left_waits_for_its_return() -> None:
    stays = meeting(a=member(1, (0, 1), generation=2))
    found = given(stays, LastDivision(BEFORE, 5_000), delay_ms=DELAY_MS)["a"]
    assert found.work == Work((0, 1), ("compaction",))
    assert found.map.absent == (AbsentNode(2, DELAY_MS, Work((2, 3))),)
    assert found.map.owner(2) is None
    # Another rebalance meanwhile does not begin the delay anew.
    again = given(stays, LastDivision(found.map, 10_000), delay_ms=DELAY_MS)["a"]
    assert again.map.absent == (AbsentNode(2, DELAY_MS - 10_000, Work((2, 3))),)
    over = given(stays, LastDivision(found.map, DELAY_MS), delay_ms=DELAY_MS)["a"]
    assert (over.work.tasks, over.map.absent) == ((0, 1, 2, 3), ())


def test_who_comes_back_gets_what_it_had() -> None:
    waits = given(meeting(a=member(1, (0, 1), generation=2)), LastDivision(BEFORE, 0), delay_ms=DELAY_MS)["a"].map
    met = meeting(a=member(1, (0, 1), generation=3), z=member(2))
    found = given(met, LastDivision(waits, 1_000), delay_ms=DELAY_MS)
    assert (works(found)["z"].tasks, found["a"].map.absent) == ((2, 3), ())
    # Without a delay, too, where it was quick enough.
    assert works(given(met, LastDivision(BEFORE, 0)))["z"].tasks == (2, 3)


def test_what_another_member_claims_does_not_wait() -> None:
    met = meeting(a=member(1, (0, 1, 2), generation=2))
    found = given(met, LastDivision(BEFORE, 0), delay_ms=DELAY_MS)["a"]
    assert found.map.absent == (AbsentNode(2, DELAY_MS, Work((3,))),)


def test_all_learn_who_may_serve_what_moves_as_far_as_any_member_knows() -> None:
    gone, a, b = Node(9, "h", 9009), Node(1, "h", 9001), Node(2, "h", 9002)
    met = meeting(
        a=member(1, (0, 1), generation=2, may_serve=(FormerOwner(a, (0, 1), 60), FormerOwner(gone, (2, 3, 99), 20))),
        b=member(2, (1, 2, 3), generation=3, may_serve=(FormerOwner(b, (1, 2, 3), 60), FormerOwner(gone, (3,), 30))),
        c=member(3, may_serve=()),
    )
    found = given(met._replace(leader_id="c"))
    assert works(found) == {"a": Work((0,), ("compaction",)), "b": Work((1, 2)), "c": Work((3,))}
    expected = (
        FormerOwner(a, (1,), 60),
        FormerOwner(b, (3,), 60),
        FormerOwner(gone, (2,), 20),
        FormerOwner(gone, (3,), 30),
    )
    assert {each.map.former for each in found.values()} == {expected}
    # What nobody has meanwhile may be served as well.
    knows = meeting(a=member(1, (0, 1), generation=2, may_serve=(FormerOwner(gone, (2,), 60),)))
    waits = given(knows, LastDivision(BEFORE, 0), delay_ms=DELAY_MS)["a"].map
    assert (waits.owner(2), waits.former) == (None, (FormerOwner(gone, (2,), 60),))
