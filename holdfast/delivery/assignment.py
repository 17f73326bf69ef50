"""The assignment of partitions to members: balance first, then as few moves as can be.

With M members and P partitions each partition is shared by S = ceil(M / P) members, and each member has as many partitions as any other,
or one more. Members that subscribe to different topics share each topic among its subscribers. Order decides every tie, so that one
input has one result.

Kafka numbers its members, and the number decides who has one more; so a member that leaves moves partitions of members that stay. Here
those have one more that have most already. Sizes are Kafka's, and fewer partitions move.

Source: KIP-932; Apache Kafka 4.3.1 `SimpleAssignor`, `SimpleHomogeneousAssignmentBuilder`, `SimpleHeterogeneousAssignmentBuilder`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeAlias

#: A topic id and a partition.
Place: TypeAlias = tuple[bytes, int]
#: Places by member id.
Assignment: TypeAlias = dict[str, frozenset[Place]]


def assign(
    subscriptions: Mapping[str, Collection[bytes]],
    partitions: Mapping[bytes, int],
    before: Mapping[str, Collection[Place]],
) -> Assignment:
    """Return the partitions of each member.

    Args:
        subscriptions: topic ids by member id; those that have no partitions are passed over.
        partitions: number of partitions of each topic.
        before: the assignment so far.
    """
    wanted = _wanted(subscriptions, partitions)
    if len(set(wanted.values())) <= 1:
        topics = next(iter(wanted.values()), frozenset())
        held = _held(wanted, topics, partitions, before)
        _share(held, _places(topics, partitions), dict.fromkeys(wanted, 0))
        return {member: frozenset(mine) for member, mine in held.items()}
    members_of: dict[bytes, list[str]] = {}
    for member, topics in wanted.items():
        for topic in topics:
            members_of.setdefault(topic, []).append(member)
    by_topic = _by_topic(before)
    assignment: dict[str, set[Place]] = {member: set() for member in wanted}
    loads = dict.fromkeys(wanted, 0)
    for topic in sorted(members_of):
        if partitions[topic] == 1:
            # Each subscriber shares it, and nothing can move.
            for member in members_of[topic]:
                assignment[member].add((topic, 0))
                loads[member] += 1
            continue
        held = _held(members_of[topic], (topic,), partitions, by_topic.get(topic, {}))
        _share(held, _places((topic,), partitions), loads)
        for member, mine in held.items():
            assignment[member] |= mine
            loads[member] += len(mine)
    return {member: frozenset(mine) for member, mine in assignment.items()}


def _wanted(
    subscriptions: Mapping[str, Collection[bytes]], partitions: Mapping[bytes, int]
) -> dict[str, frozenset[bytes]]:
    """Return the topics of each member that have partitions, in the order of members."""
    # Most members have one list of topics in common; it is looked at once.
    found: dict[int, frozenset[bytes]] = {}
    for topics in subscriptions.values():
        if id(topics) not in found:
            found[id(topics)] = frozenset(topic for topic in topics if partitions.get(topic, 0) > 0)
    return {member: found[id(subscriptions[member])] for member in sorted(subscriptions)}


def _places(topics: Iterable[bytes], partitions: Mapping[bytes, int]) -> list[Place]:
    return [(topic, partition) for topic in sorted(topics) for partition in range(partitions[topic])]


def _by_topic(before: Mapping[str, Collection[Place]]) -> dict[bytes, dict[str, list[Place]]]:
    found: dict[bytes, dict[str, list[Place]]] = {}
    for member, places in before.items():
        for place in places:
            found.setdefault(place[0], {}).setdefault(member, []).append(place)
    return found


def _held(
    members: Iterable[str],
    topics: Collection[bytes],
    partitions: Mapping[bytes, int],
    before: Mapping[str, Collection[Place]],
) -> dict[str, set[Place]]:
    """Return what each member had of these topics, as far as it exists still."""
    return {
        member: {place for place in before.get(member, ()) if place[0] in topics and place[1] < partitions[place[0]]}
        for member in members
    }


def _share(held: dict[str, set[Place]], places: Sequence[Place], loads: Mapping[str, int]) -> None:
    """Share places among members that all want all of them.

    Args:
        held: by member, what it had; what it has afterwards.
        places: to be shared.
        loads: by member, what it has of other topics.
    """
    if not held or not places:
        return
    sharing = -(-len(held) // len(places))
    quota, extra = divmod(sharing * len(places), len(held))
    by_size = sorted(held, key=lambda member: (-len(held[member]), loads[member], member))
    quotas = {member: quota + (number < extra) for number, member in enumerate(by_size)}
    holders: dict[Place, set[str]] = {place: set() for place in places}
    for member, mine in held.items():
        for place in mine:
            holders[place].add(member)
    _take_away(held, holders, quotas, sharing)
    _hand_out(held, holders, quotas, sharing)


def _take_away(
    held: dict[str, set[Place]], holders: dict[Place, set[str]], quotas: Mapping[str, int], sharing: int
) -> None:
    """Take what is too much of a member, and of a place; where one move is both, it comes first."""
    for member, mine in held.items():
        excess = len(mine) - quotas[member]
        if excess > 0:
            # The places that most members share.
            for place in sorted(mine, key=lambda place: (-len(holders[place]), place))[:excess]:
                mine.remove(place)
                holders[place].remove(member)
    for place, its_holders in holders.items():
        while len(its_holders) > sharing:
            # No member has more than its quota now; one that has most is missed least.
            member = min(its_holders, key=lambda member: (quotas[member] - len(held[member]), member))
            its_holders.remove(member)
            held[member].remove(place)


def _hand_out(
    held: dict[str, set[Place]], holders: dict[Place, set[str]], quotas: Mapping[str, int], sharing: int
) -> None:
    """Give each place that has fewer holders than it should to members that have less than their quota, in turn."""
    hungry = deque(member for member, mine in held.items() if len(mine) < quotas[member])
    stuck: list[Place] = []
    for place, its_holders in holders.items():
        passed: list[str] = []
        while len(its_holders) < sharing and hungry:
            member = hungry.popleft()
            mine = held[member]
            if member in its_holders:
                passed.append(member)
                continue
            mine.add(place)
            its_holders.add(member)
            if len(mine) < quotas[member]:
                passed.append(member)
        # Those that have waited longest, or have got least, come first for the next place.
        hungry.extend(passed)
        stuck += [place] * (sharing - len(its_holders))
    # Each that is hungry still holds each place that is open still. It takes another place from a member that can have
    # the open one instead; there is one, because the open place has fewer holders than the other.
    for place in stuck:
        member = hungry[0]
        mine, its_holders = held[member], holders[place]
        other = next(other for other in holders if other not in mine)
        giver = min(holders[other] - its_holders)
        held[giver].remove(other)
        held[giver].add(place)
        mine.add(other)
        holders[other].remove(giver)
        holders[other].add(member)
        its_holders.add(giver)
        if len(mine) >= quotas[member]:
            hungry.popleft()
