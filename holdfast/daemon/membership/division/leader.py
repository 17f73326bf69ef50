"""What the leader of the group does: from what all members say of themselves to an assignment for each.

Nothing here waits or remembers: the time, the config offset and the last division are arguments.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from holdfast.daemon.membership.division.assignment import Assignment, AssignmentError
from holdfast.daemon.membership.division.assignor import Claim, divide
from holdfast.daemon.membership.division.bounds import FORMER_OWNERS_MAX, GENERATION_MAX, GENERATION_STEP
from holdfast.daemon.membership.division.metadata import MemberMetadata
from holdfast.daemon.membership.division.ownership_map import AbsentNode, FormerOwner, MappedMember, OwnershipMap, Work
from holdfast.daemon.server.cluster_view import Node
from holdfast.kafka.addresses import format_address

#: Members say them again next to what they know themselves.
_FORMER_OWNERS_DIVIDED_MAX: Final = FORMER_OWNERS_MAX // 2
#: Where the leader is, for members that it could not read: none of them needs it.
_NOWHERE = Node(-1, "", 0)


class LastDivision(NamedTuple):
    """What was divided the last time, as far as this member knows."""

    map: OwnershipMap
    #: How long ago.
    age_ms: int


class Meeting(NamedTuple):
    """Who has joined, as the leader reads it."""

    leader_id: str
    #: By member id.
    members: Mapping[str, MemberMetadata]
    #: Why a member's metadata cannot be read, by member id.
    unreadable: Mapping[str, str]

    @property
    def config_offset(self) -> int:
        """Highest offset of the config topic that a member has read; -1: nobody has read anything."""
        return max((each.config_offset for each in self.members.values()), default=-1)

    @property
    def leader(self) -> Node:
        """Where the leader is reached."""
        metadata = self.members.get(self.leader_id)
        return _NOWHERE if metadata is None else metadata.node

    @property
    def next_generation(self) -> int:
        """The ownership generation of a new division: one above all that any member has seen.

        What others have seen and the leader has not raises it by a step at most: whatever a member claims, the number never runs out.
        One that has truly seen more finds itself outranked in the log, and has the group divide again.
        """
        leader = self.members.get(self.leader_id)
        known = 0 if leader is None else leader.generation_seen
        seen = max((each.generation_seen for each in self.members.values()), default=0)
        return min(1 + min(seen, known + GENERATION_STEP), GENERATION_MAX)

    def twins(self, last: OwnershipMap | None) -> dict[str, str]:
        """Return the members whose node id or address another member keeps, by member id, with a sentence that names both.

        The member keeps it that had it in the last division, then the leader, then the one that most others know as an owner.
        What a member says of itself comes after all that: who says that it holds log partitions keeps it, then who has the lower member id.
        Two members at one address are one node that was started again: the former one is gone, and its session will end.
        That does not hold for an address that leads to another node on each machine.
        """
        by_id: dict[int, MemberMetadata] = {}
        by_address: dict[tuple[str, int], MemberMetadata] = {}
        refused = {}
        places = {} if last is None else {each.member_id: each.node for each in last.members}

        def rank(member_id: str) -> tuple[bool, bool, int, bool, str]:
            member = self.members[member_id]
            is_known = places.get(member_id) == member.node
            return (
                not is_known,
                member_id != self.leader_id,
                -self._known_by(member.node),
                not member.tasks,
                member_id,
            )

        for member_id in sorted(self.members, key=rank):
            ours = self.members[member_id]
            same_id = by_id.get(ours.node.node_id, ours)
            same_address = by_address.get((ours.node.host, ours.node.port), ours)
            if same_address.machine != ours.machine:
                refused[member_id] = (
                    f"node {same_address.node.node_id} at {_place(same_address)} and node {ours.node.node_id} at {_place(ours)} have "
                    f"one address: set `advertised_listener` of each to one that other machines reach, and give each its own `node_id`"
                )
            elif same_id.node != ours.node:
                is_near = same_id.machine == ours.machine
                keeps, comes = (_address(each) if is_near else _place(each) for each in (same_id, ours))
                refused[member_id] = (
                    f"node id {ours.node.node_id} belongs to the node at {keeps}, and the one at {comes} has it "
                    f"too: give this one another `node_id`, or stop that one"
                )
            else:
                by_id[ours.node.node_id] = by_address[ours.node.host, ours.node.port] = ours
        return refused

    def _known_by(self, node: Node) -> int:
        """Return how many members at other places know a node as one that may serve."""
        return sum(
            each.node != node and any(owner.node == node for owner in each.may_serve) for each in self.members.values()
        )


def _address(member: MemberMetadata) -> str:
    return format_address(member.node.host, member.node.port)


def _place(member: MemberMetadata) -> str:
    address = _address(member)
    return f"{address} on {member.machine}" if member.machine else address


def refuse_all(meeting: Meeting, config_offset_held: int) -> dict[str, Assignment]:
    """Return the assignments where the leader could not read the config topic as far as a member has: nobody gets work."""
    missed = meeting.config_offset
    reason = f"the leader {meeting.leader_id} has read the config topic to offset {config_offset_held}, and a member to {missed}"
    refusal = Assignment(
        AssignmentError.CONFIG_MISMATCH, reason, meeting.leader_id, meeting.leader, missed, Work(), OwnershipMap(0, ())
    )
    return dict.fromkeys((*meeting.members, *meeting.unreadable), refusal)


def assign_all(
    meeting: Meeting,
    tasks: Collection[int],
    config_offset: int,
    last: LastDivision | None,
    rebalance_delay_ms: int,
    handover_timeout_ms: int,
) -> dict[str, Assignment]:
    """Return an assignment for each member.

    Args:
        meeting: who has joined.
        tasks: all log partitions.
        config_offset: that the leader divides for; at least that of any member.
        last: the last division, whose members that are absent now are waited for; None: there was none.
        rebalance_delay_ms: for so long what a node had waits for its return; 0: not at all.
        handover_timeout_ms: for so long at most a former owner may serve, whatever a member says of it.
    """
    refused = meeting.twins(None if last is None else last.map)
    able = {member_id: each for member_id, each in meeting.members.items() if member_id not in refused}
    absent = _wait_for(able, last, rebalance_delay_ms)
    waiting = {each for absence in absent for each in absence.work.items}
    claims = _claims(able, last)
    duties = {duty for each in able.values() for duty in each.duties_offered}
    division = divide(claims, set(tasks) - waiting, duties - waiting)
    members = tuple(MappedMember(each, able[each].node, division[each]) for each in sorted(able))
    divided = OwnershipMap(meeting.next_generation, members, absent)
    divided = replace(divided, former=_former_owners(divided, tasks, able, handover_timeout_ms + rebalance_delay_ms))

    def assignment(error: AssignmentError, reason: str, work: Work) -> Assignment:
        return Assignment(error, reason, meeting.leader_id, meeting.leader, config_offset, work, divided)

    return (
        {each: assignment(AssignmentError.NONE, "", work) for each, work in division.items()}
        | {each: assignment(AssignmentError.NODE_ID_IN_USE, why, Work()) for each, why in refused.items()}
        | {
            each: assignment(AssignmentError.METADATA_UNREADABLE, why, Work())
            for each, why in meeting.unreadable.items()
        }
    )


def _claims(able: Mapping[str, MemberMetadata], last: LastDivision | None) -> dict[str, Claim]:
    """Return what each member holds; one that comes back without an assignment claims what its node had, after all others."""
    had: dict[int, Work] = {}
    if last is not None:
        had = {each.node.node_id: each.work for each in last.map.members}
        had |= {each.node_id: each.work for each in last.map.absent}
    return {
        member_id: Claim(
            each.generation,
            Work(each.tasks, each.duties) if each.generation else had.get(each.node.node_id, Work()),
            each.duties_offered,
            frozenset(each.out_of_reach),
        )
        for member_id, each in able.items()
    }


def _former_owners(
    divided: OwnershipMap, tasks: Collection[int], able: Mapping[str, MemberMetadata], wait_ms_max: int
) -> tuple[FormerOwner, ...]:
    """Return who may still serve log partitions that another node has now, as far as any member knows: the leader may know of nobody.

    Of too many, those are kept that most members know.
    """
    waits_ms: dict[tuple[Node, int], int] = {}
    known_by: Counter[Node] = Counter()
    for member in able.values():
        known_by.update({owner.node for owner in member.may_serve})
        for node, theirs, wait_ms in member.may_serve:
            for task in theirs:
                if task in tasks and node != divided.owner(task):
                    waits_ms[node, task] = max(min(wait_ms, wait_ms_max), waits_ms.get((node, task), 0))
    former: dict[tuple[Node, int], list[int]] = {}
    for (node, task), wait_ms in sorted(waits_ms.items()):
        former.setdefault((node, wait_ms), []).append(task)
    owners = [FormerOwner(node, tuple(theirs), wait_ms) for (node, wait_ms), theirs in former.items()]
    kept = sorted(owners, key=lambda owner: -known_by[owner.node])[:_FORMER_OWNERS_DIVIDED_MAX]
    return tuple(sorted(kept))


def _wait_for(able: Mapping[str, MemberMetadata], last: LastDivision | None, delay_ms: int) -> tuple[AbsentNode, ...]:
    """Return the nodes that have left and are waited for, with what nobody else has claimed meanwhile."""
    if last is None or not delay_ms:
        return ()
    present = {each.node.node_id for each in able.values()}
    claimed_tasks = {task for each in able.values() for task in each.tasks}
    claimed_duties = {duty for each in able.values() for duty in each.duties}
    left = {each.node_id: (each.wait_ms - last.age_ms, each.work) for each in last.map.absent}
    left |= {each.node.node_id: (delay_ms, each.work) for each in last.map.members}
    absent = []
    for node_id, (wait_ms, (tasks, duties)) in sorted(left.items()):
        work = Work(
            tuple(each for each in tasks if each not in claimed_tasks),
            tuple(each for each in duties if each not in claimed_duties),
        )
        if node_id not in present and wait_ms > 0 and any(work):
            absent.append(AbsentNode(node_id, wait_ms, work))
    return tuple(absent)
