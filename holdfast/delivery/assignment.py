"""The assignment of partitions to members: balance first, then as few moves as can be.

With M members and P partitions each partition is shared by S = ceil(M / P) members, and each member has as many partitions as any other,
or one more. Members that subscribe to different topics share each topic among its subscribers. Order decides every tie, so that one
input has one result.

Source: KIP-932; Apache Kafka 4.3.1 `SimpleAssignor`, `SimpleHomogeneousAssignmentBuilder`, `SimpleHeterogeneousAssignmentBuilder`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
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
    wanted = {member: frozenset(topics).intersection(partitions) for member, topics in subscriptions.items()}
    if len(set(wanted.values())) <= 1:
        topics = next(iter(wanted.values()), frozenset())
        return _share(list(wanted), _places(topics, partitions), before)
    assignment: dict[str, set[Place]] = {member: set() for member in wanted}
    for topic in sorted(frozenset[bytes]().union(*wanted.values())):
        members = [member for member, topics in wanted.items() if topic in topics]
        for member, places in _share(members, _places([topic], partitions), before).items():
            assignment[member] |= places
    return {member: frozenset(places) for member, places in assignment.items()}


def _places(topics: Collection[bytes], partitions: Mapping[bytes, int]) -> list[Place]:
    return [(topic, partition) for topic in sorted(topics) for partition in range(partitions[topic])]


def _share(members: Sequence[str], places: Sequence[Place], before: Mapping[str, Collection[Place]]) -> Assignment:
    """Share places among members that all want all of them."""
    if not members or not places:
        return dict.fromkeys(members, frozenset())
    member_count, place_count = len(members), len(places)
    sharing = -(-member_count // place_count)
    total = sharing * place_count
    ends = [-(-(number * total) // member_count) for number in range(member_count + 1)]
    quotas = [ends[number + 1] - ends[number] for number in range(member_count)]

    known = set(places)
    kept: dict[str, list[Place]] = {}
    counts: defaultdict[Place, int] = defaultdict(int)
    for member, quota in zip(members, quotas, strict=True):
        kept[member] = []
        for place in sorted(known.intersection(before.get(member, ()))):
            if len(kept[member]) < quota and counts[place] < sharing:
                kept[member].append(place)
                counts[place] += 1
    # Nothing is handed out of a place whose shares are all taken.
    open_places = [place for place in places if counts[place] < sharing]
    result = {member: set(held) for member, held in kept.items()}
    for member, quota in zip(members, quotas, strict=True):
        mine = result[member]
        passed: list[Place] = []
        while len(mine) < quota and open_places:
            place = open_places.pop()
            if place in mine:
                passed.append(place)
                continue
            mine.add(place)
            counts[place] += 1
            if counts[place] < sharing:
                passed.append(place)
        open_places += reversed(passed)
    _cover(result, places, counts)
    return {member: frozenset(mine) for member, mine in result.items()}


def _cover(result: dict[str, set[Place]], places: Sequence[Place], counts: dict[Place, int]) -> None:
    """Give each place that nobody got to a member that shares all of its own with others."""
    for place in places:
        if counts[place]:
            continue
        for mine in sorted(result.values(), key=len, reverse=True):
            shared = next((each for each in sorted(mine) if counts[each] > 1), None)
            if shared is not None:
                mine.remove(shared)
                counts[shared] -= 1
                mine.add(place)
                counts[place] += 1
                break
