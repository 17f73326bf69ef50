"""Who gets which log partitions (tasks) and duties: balanced, and moved as little as balance allows.

Where nobody holds anything, it is one ring of the members sorted by id: each duty in order goes to the next member, and then
each task in numeric order, going on where the duties ended; so one duty for each member and an even number of nodes put
duties and tasks on all of them.

    members a b c, duties x y, tasks 0 … 4        a: x 1 4     b: y 2     c: 0 3

Afterwards what a member holds stays with it, as long as nobody has two more than another; what is free goes round the ring.
A duty is a load like a task.
What a member cannot reach goes to the others, where balance ends if it must: a task that somebody can do comes first.
Where the two disagree, what is held wins: after a member came or left, the division is not what the ring would give.

Source: Kafka Connect's `EagerAssignor.performTaskAssignment` (the ring), KIP-54 (sticky).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from holdfast.daemon.membership.division.ownership_map import Work


class Claim(NamedTuple):
    """What one member holds, and since when."""

    #: Ownership generation of the assignment that gave it; of two members that claim the same, the newer one has it.
    generation: int = 0
    held: Work = Work()
    #: Duties that the member can do.
    duties_offered: tuple[str, ...] = ()
    #: Tasks that the member cannot do now, while another one can.
    out_of_reach: frozenset[int] = frozenset()


def divide(claims: Mapping[str, Claim], tasks: Iterable[int], duties: Iterable[str]) -> dict[str, Work]:
    """Return the work of each member, by member id; the order in which anything is given makes no difference.

    Args:
        claims: of all members that may get work, by member id.
        tasks: log partitions to be divided.
        duties: to be divided; one that no member offers goes to nobody.
    """
    members = sorted(claims)
    if not members:
        return {}
    reached_by_none = frozenset.intersection(*(claim.out_of_reach for claim in claims.values()))
    if reached_by_none:  # it has to wait somewhere, and moving it helps nobody
        claims = {
            member: claim._replace(out_of_reach=claim.out_of_reach - reached_by_none)
            for member, claim in claims.items()
        }
    items: list[int | str] = [*sorted(set(duties)), *sorted(set(tasks))]
    items = [each for each in items if any(_can_do(claims[member], each) for member in members)]
    held = _settle_claims(claims, items)
    room = _quotas(members, {member: len(held[member]) for member in members}, len(items))
    given: dict[str, list[int | str]] = {member: held[member][: room[member]] for member in members}
    kept = {each for mine in given.values() for each in mine}
    for member in members:
        room[member] -= len(given[member])
    turn = 0
    for item in items:
        if item in kept:
            continue
        ring = members[turn:] + members[:turn]
        able = [member for member in ring if _can_do(claims[member], item)]
        taker = next((member for member in able if room[member] > 0), None) or max(able, key=lambda each: room[each])
        if isinstance(item, str) and room[taker] <= 0 and given[taker] and isinstance(given[taker][-1], int):
            kept.discard(given[taker].pop())  # nobody else can do the duty, and others can have the task
            room[taker] += 1
        given[taker].insert(0, item)
        room[taker] -= 1
        turn = (members.index(taker) + 1) % len(members)
    return {member: _work(given[member]) for member in members}


def _can_do(claim: Claim, item: int | str) -> bool:
    return item not in claim.out_of_reach if isinstance(item, int) else item in claim.duties_offered


def _settle_claims(claims: Mapping[str, Claim], items: list[int | str]) -> dict[str, list[int | str]]:
    """Return what each member holds of the items, in their order; each item with one member at most."""
    holders: dict[int | str, str] = {}
    for member in sorted(claims, key=lambda each: (-claims[each].generation, each)):
        for item in claims[member].held.items:
            if _can_do(claims[member], item):
                holders.setdefault(item, member)
    held: dict[str, list[int | str]] = {member: [] for member in claims}
    for item in items:
        if item in holders:
            held[holders[item]].append(item)
    return held


def _quotas(members: list[str], held: Mapping[str, int], count: int) -> dict[str, int]:
    """Return how many items each member gets; those that hold the most get one more where it does not come out even."""
    least, more = divmod(count, len(members))
    ranked = sorted(members, key=lambda member: (-held[member], member))
    return {member: least + (rank < more) for rank, member in enumerate(ranked)}


def _work(items: list[int | str]) -> Work:
    tasks = sorted(each for each in items if isinstance(each, int))
    return Work(tuple(tasks), tuple(sorted(each for each in items if isinstance(each, str))))
