"""Whom a member names to clients for a log partition on its way, watched in code of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from holdfast.daemon.membership.division.ownership_map import OwnershipMap
from holdfast.daemon.server.cluster_view import Node as Place
from tests.simulated.checks.invariants import Invariant, violate

if TYPE_CHECKING:
    from tests.simulated.group.member import GroupMember
    from tests.simulated.group.node import GroupNode

#: How late a poll may begin or end, beside two slices in which time passes.
SLACK_MS = 150


class NamingWatch:
    """Who is named by one process, and who serves."""

    def __init__(self, member: GroupMember) -> None:
        self._member = member
        #: The map that was shown last, and when it was new.
        self._map: object = None
        self._adopted_ms = 0
        #: The generation of the newest map it had, though it may have dropped it since.
        self._learned = 0
        #: By log partition, by the clock of this process: since when a former owner is named that does not serve, ...
        self._empty_ms: dict[int, int] = {}
        #: ... and who serves, within reach, while somebody is named that does not.
        self._missed_ms: dict[int, tuple[Place, int]] = {}
        #: Since when each node serves each log partition, as often as this process looks.
        self._served_ms: dict[tuple[Place, int], int] = {}

    @property
    def learned(self) -> int:
        """The generation of the newest map that this process has had; 0: none."""
        return self._learned

    def check(self, now_ms: int, ran_ms: int) -> None:
        """Look at all log partitions.

        Args:
            now_ms: by the clock of this process.
            ran_ms: for so long it has run.
        """
        member, divided = self._member, self._member.view.map
        if divided is not self._map:
            self._map, self._adopted_ms = divided, now_ms
        if divided is not None:
            self._learned = divided.generation
        bound_ms = member.word_age_max_ms + 2 * member.world.time_slice_ms + SLACK_MS
        is_watched = divided is not None and not member.view.is_stale
        is_open = now_ms - self._adopted_ms < member.handover_ms
        served_ms: dict[tuple[Place, int], int] = {}
        for index in range(len(member.world.topic.partitions)):
            named = member.view.owner(index)
            mapped = None if divided is None else divided.owner(index)
            serving = self._serving(index)
            served_ms |= {(place, index): self._served_ms.get((place, index), now_ms) for place in serving}
            if named in (None, mapped, member.place) or named in serving:
                self._empty_ms.pop(index, None)
            elif now_ms - self._empty_ms.setdefault(index, now_ms) > bound_ms:
                self._fail(Invariant.NAMED_BY_ITS_WORD, f"names {named} for {index}, which {[*serving]} serve")
            age_ms = now_ms - self._adopted_ms
            # Who lost it meanwhile, though it took it again, may have been asked in between.
            since = {place for place in serving if served_ms[place, index] <= self._adopted_ms}
            known = (place for place in since if self._is_known(serving[place], index, age_ms))
            missed = next(known, None)
            is_taken = any(each.place == named and each.node.serves(index) for each in member.world.members.values())
            if is_taken or missed is None or not is_watched or not is_open:
                self._missed_ms.pop(index, None)
                continue
            before, since_ms = self._missed_ms.get(index, (missed, ran_ms))
            since_ms = since_ms if before == missed else ran_ms
            self._missed_ms[index] = missed, since_ms
            if ran_ms - since_ms > bound_ms:
                self._fail(Invariant.SERVED_IS_NAMED, f"names {named} for {index}, and {missed} serves it: {divided}")
        self._served_ms = served_ms

    def handed_out(self, divided: OwnershipMap, told: Mapping[str, int]) -> None:
        """Look at a division that this process has just made: of who serves, each member that has joined says what it knows.

        A JoinGroup may arrive late, and so may its answer; what members have learned by later maps, none could say.

        Args:
            divided: the map that is handed out.
            told: by member id, the ownership generation of the map by which it spoke; 0: it had none.
        """
        world = self._member.world
        known = {(each.node, task) for each in divided.former for task in each.tasks}
        joined = [
            member
            for each in divided.members
            if (member := world.members[chr(each.node.node_id)]).node.is_running
            and member.watch.naming.learned <= told[each.member_id]
        ]
        for index in range(len(world.topic.partitions)):
            serving = self._serving(index)
            for place, node in serving.items():
                held = node.partition(index)
                is_newer = held is not None and (held.generation or 0) >= divided.generation
                if place == divided.owner(index) or (place, index) in known or is_newer:
                    continue
                for member in joined:
                    if member.watch.naming.knows(place, index, is_alone=len(serving) == 1):
                        text = f"hands out {divided}, and {member.node.name} knows that {place} serves {index}"
                        self._fail(Invariant.FORMER_ARE_KNOWN, text)

    def knows(self, place: Place, index: int, *, is_alone: bool) -> bool:
        """Tell whether this process knows that a node may serve a log partition; nobody else does where it is alone."""
        member, before = self._member, self._member.view.map
        if place == member.place:
            return True
        if before is None:
            return False
        owner = member.view.owner(index)
        # Where this process serves, another one that thinks so, too, is superseded or has superseded it: it cannot know.
        if place == owner or (place == before.owner(index) and owner not in (None, member.place)):
            return True
        # Silent or not, while it serves on in the time that it has.
        age_ms = member.now_ms() - self._adopted_ms
        has_served = is_alone and self._served_ms.get((place, index), member.now_ms()) <= self._adopted_ms
        former = (each for each in before.former if each.node == place and index in each.tasks)
        # The map was adopted up to two slices before this watch saw it.
        seen_ms = age_ms + 2 * member.world.time_slice_ms + SLACK_MS
        return before is self._map and has_served and any(seen_ms < each.wait_ms for each in former)

    def _serving(self, index: int) -> dict[Place, GroupNode]:
        members = [member for member in self._member.world.members.values() if member.node.is_running]
        return {member.place: member.node for member in members if member.node.serves(index)}

    def _is_known(self, node: GroupNode, index: int, age_ms: int) -> bool:
        """Tell whether the map names a node that serves as a former owner, within reach; it did not take it by a newer map."""
        divided, network, held = self._member.view.map, self._member.world.network, node.partition(index)
        if divided is None or held is None or (held.generation or 0) > divided.generation:
            return False
        former = (each for each in divided.former if each.node.node_id == ord(node.name) and index in each.tasks)
        is_former = any(age_ms < each.wait_ms for each in former)
        return is_former and not network.dawdling and network.reaches(self._member.node.name, node.name)

    def _fail(self, invariant: Invariant, text: str) -> None:
        violate(invariant, f"{self._member.node.name} {text}")
