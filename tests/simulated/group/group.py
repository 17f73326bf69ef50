"""Kafka's classic group as its coordinator keeps it: members, generation, what each waits for.

Source: Apache Kafka `GroupMetadataManager` (`classicGroup…`), `ClassicGroup`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from typing import NamedTuple

from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.membership import JoinedMember, MembershipSettings
from holdfast.membership.requests import (
    Acknowledged,
    Answer,
    Heartbeat,
    Joined,
    JoinGroup,
    LeaveGroup,
    Refused,
    Request,
    Synced,
    SyncGroup,
)

Respond = Callable[[Answer], None]
EMPTY, PREPARING, COMPLETING, STABLE = "empty", "preparing", "completing", "stable"


class Enclosed(NamedTuple):
    """A request and what else its bytes say."""

    request: Request
    settings: MembershipSettings


class Place:
    """A member, as the coordinator knows it."""

    def __init__(self, member_id: str, enclosed: Enclosed) -> None:
        settings = enclosed.settings
        self.member_id = member_id
        self.instance_id = settings.group_instance_id
        self.session_timeout_ms = settings.session_timeout_ms
        self.rebalance_timeout_ms = settings.rebalance_timeout_ms
        self.protocols: tuple[tuple[str, bytes], ...] = ()
        self.assignment = b""
        #: What it waits for.
        self.join: Respond | None = None
        self.sync: Respond | None = None
        self.expires_ms = 0

    @property
    def is_waiting(self) -> bool:
        """Whether the coordinator keeps a request of this member, and so expects no heartbeat of it."""
        return self.join is not None or self.sync is not None


class Group:
    """One group; every answer goes through the `Respond` of its request."""

    def __init__(self, now_ms: Callable[[], int], make_id: Callable[[], str], initial_delay_ms: int) -> None:
        self._now_ms = now_ms
        self._make_id = make_id
        self._initial_delay_ms = initial_delay_ms
        self.state = EMPTY
        self.generation = 0
        self.places: dict[str, Place] = {}
        #: Ids that were handed out with MEMBER_ID_REQUIRED, and until when they may be used.
        self.pending: dict[str, int] = {}
        self.leader_id = ""
        self.protocol = ""
        self._deadline_ms = 0
        self._is_first = False
        self.rebalances = 0
        #: Another broker coordinates, and the one that has this copy does not know; nothing that it writes is kept.
        self.is_former = False
        #: Looks at what a leader hands in.
        self.handed_in: Callable[[Group, Mapping[str, bytes]], None] = lambda group, given: None
        self.written = self._copy()

    def handle(self, enclosed: Enclosed, respond: Respond) -> None:
        """Take a request."""
        match enclosed.request:
            case JoinGroup() as request:
                self._join(request, enclosed, respond)
            case SyncGroup() as request:
                self._sync(request, enclosed, respond)
            case Heartbeat() as request:
                respond(self._heartbeat(request, enclosed))
            case LeaveGroup() as request:
                respond(self._leave(request))

    # ---- what a new coordinator reads --------------------------------------------------------------------------------

    def _copy(self) -> Group:
        group = copy(self)
        group.places = {}
        for member_id, place in self.places.items():
            kept = group.places[member_id] = copy(place)
            kept.join = kept.sync = None
        group.pending = {}
        return group

    def reload(self) -> Group:
        """Return the group as the coordinator reads it that comes next: as it was when it was stable or empty last."""
        group = self.written._copy()
        group.written, group.rebalances = self.written, self.rebalances
        for place in group.places.values():
            place.expires_ms = self._now_ms() + place.session_timeout_ms
        return group

    def let_go(self) -> None:
        """Answer all that waits, because another broker coordinates now."""
        for place in self.places.values():
            for respond in (place.join, place.sync):
                if respond is not None:
                    respond(Refused(ErrorCode.NOT_COORDINATOR))
            place.join = place.sync = None

    # ---- requests ----------------------------------------------------------------------------------------------------

    def _check(self, request: Request, enclosed: Enclosed) -> tuple[Place | None, Refused | None]:
        place = self.places.get(request.generation.member_id)
        instance_id = enclosed.settings.group_instance_id
        if place is None:
            is_replaced = instance_id is not None and self._of_instance(instance_id) is not None
            code = ErrorCode.FENCED_INSTANCE_ID if is_replaced else ErrorCode.UNKNOWN_MEMBER_ID
            return None, Refused(code)
        if place.instance_id != instance_id:
            return None, Refused(ErrorCode.FENCED_INSTANCE_ID)
        return place, None

    def _of_instance(self, instance_id: str) -> Place | None:
        return next((each for each in self.places.values() if each.instance_id == instance_id), None)

    def _join(self, request: JoinGroup, enclosed: Enclosed, respond: Respond) -> None:
        member_id, instance_id = request.generation.member_id, enclosed.settings.group_instance_id
        if not member_id and instance_id is None:
            new_id = self._make_id()
            self.pending[new_id] = self._now_ms() + enclosed.settings.session_timeout_ms
            respond(Refused(ErrorCode.MEMBER_ID_REQUIRED, member_id=new_id))
        elif not member_id:
            self._join_static(request, enclosed, respond)
        elif member_id in self.pending:
            del self.pending[member_id]
            self._add(member_id, request, enclosed, respond)
        else:
            place, refused = self._check(request, enclosed)
            if place is None:
                assert refused is not None
                respond(refused)
            else:
                self._join_again(place, request, respond)

    def _join_static(self, request: JoinGroup, enclosed: Enclosed, respond: Respond) -> None:
        assert enclosed.settings.group_instance_id is not None
        before = self._of_instance(enclosed.settings.group_instance_id)
        if before is None:
            self._add(self._make_id(), request, enclosed, respond)
            return
        if self.is_former:
            respond(Refused(ErrorCode.NOT_COORDINATOR))
            return
        for waiting in (before.join, before.sync):
            if waiting is not None:
                waiting(Refused(ErrorCode.FENCED_INSTANCE_ID))
        place = Place(self._make_id(), enclosed)
        place.assignment = before.assignment
        place.protocols = request.protocols
        was_leader = before.member_id == self.leader_id
        del self.places[before.member_id]
        self.places[place.member_id] = place
        if was_leader:
            self.leader_id = place.member_id
        if self.state == STABLE and self._choose() == self.protocol:
            # The metadata changed, and nobody looks: the assignment stays (KIP-345, KIP-814).
            self._renew(place)
            members = self._members() if was_leader else ()
            answer = Joined(self.generation, place.member_id, self.protocol, self.leader_id, members, was_leader)
            self.written = self._copy()
            respond(answer)
        else:
            place.join = respond
            self._prepare()

    def _add(self, member_id: str, request: JoinGroup, enclosed: Enclosed, respond: Respond) -> None:
        place = self.places[member_id] = Place(member_id, enclosed)
        place.protocols, place.join = request.protocols, respond
        self._prepare()

    def _join_again(self, place: Place, request: JoinGroup, respond: Respond) -> None:
        is_same = place.protocols == request.protocols
        is_leader = place.member_id == self.leader_id
        if self.state == COMPLETING and is_same:
            self._renew(place)
            members = self._members() if is_leader else ()
            respond(Joined(self.generation, place.member_id, self.protocol, self.leader_id, members, False))
        elif self.state == STABLE and is_same and not is_leader:
            # What a follower wants is not looked at as long as it says the same of itself.
            self._renew(place)
            respond(Joined(self.generation, place.member_id, self.protocol, self.leader_id, (), False))
        else:
            place.protocols, place.join = request.protocols, respond
            self._prepare()

    def _sync(self, request: SyncGroup, enclosed: Enclosed, respond: Respond) -> None:
        place, refused = self._check(request, enclosed)
        if place is None:
            assert refused is not None
            respond(refused)
        elif request.generation.id != self.generation:
            respond(Refused(ErrorCode.ILLEGAL_GENERATION))
        elif self.state == PREPARING:
            respond(Refused(ErrorCode.REBALANCE_IN_PROGRESS))
        elif self.state == STABLE:
            self._renew(place)
            respond(Synced(place.assignment))
        else:
            place.sync = respond
            if place.member_id == self.leader_id:
                self._take_assignments(request)

    def _take_assignments(self, request: SyncGroup) -> None:
        given = dict(request.assignments)
        if self.is_former:
            for place in self.places.values():
                respond, place.sync = place.sync, None
                if respond is not None:
                    respond(Refused(ErrorCode.NOT_COORDINATOR))
            self._prepare()
            return
        self.handed_in(self, given)
        self.state = STABLE
        for place in self.places.values():
            place.assignment = given.get(place.member_id, b"")
        self.written = self._copy()
        for place in self.places.values():
            respond, place.sync = place.sync, None
            self._renew(place)
            if respond is not None:
                respond(Synced(place.assignment))

    def _heartbeat(self, request: Heartbeat, enclosed: Enclosed) -> Answer:
        place, refused = self._check(request, enclosed)
        if place is None:
            assert refused is not None
            return refused
        if request.generation.id != self.generation:
            return Refused(ErrorCode.ILLEGAL_GENERATION)
        self._renew(place)
        return Refused(ErrorCode.REBALANCE_IN_PROGRESS) if self.state == PREPARING else Acknowledged()

    def _leave(self, request: LeaveGroup) -> Answer:
        member_id = request.generation.member_id
        if self.pending.pop(member_id, None) is not None:
            self._complete_if_all_came()
            return Acknowledged()
        if member_id not in self.places:
            return Refused(ErrorCode.UNKNOWN_MEMBER_ID)
        self._remove(member_id)
        return Acknowledged()

    # ---- rebalances --------------------------------------------------------------------------------------------------

    def _renew(self, place: Place) -> None:
        place.expires_ms = self._now_ms() + place.session_timeout_ms

    def _choose(self) -> str:
        offers = [dict(place.protocols) for place in self.places.values()]
        return next(name for name in offers[0] if all(name in offer for offer in offers))

    def _members(self) -> tuple[JoinedMember, ...]:
        return tuple(
            JoinedMember(each.member_id, each.instance_id, dict(each.protocols)[self.protocol])
            for each in self.places.values()
        )

    def _prepare(self) -> None:
        """Begin a rebalance, or see whether the one that goes on is complete."""
        if self.state != PREPARING:
            for place in self.places.values():
                respond, place.sync = place.sync, None
                if respond is not None:
                    self._renew(place)
                    respond(Refused(ErrorCode.REBALANCE_IN_PROGRESS))
            longest_ms = max((place.rebalance_timeout_ms for place in self.places.values()), default=0)
            self._is_first = self.state == EMPTY
            self._deadline_ms = self._now_ms() + (self._initial_delay_ms if self._is_first else longest_ms)
            self.state = PREPARING
        self._complete_if_all_came()

    def _complete_if_all_came(self) -> None:
        is_early = self._is_first and self._now_ms() < self._deadline_ms if self.state == PREPARING else True
        if not is_early and not self.pending and all(place.join for place in self.places.values()):
            self._complete()

    def _complete(self) -> None:
        for member_id, place in [*self.places.items()]:
            if place.join is None and place.instance_id is None:
                del self.places[member_id]
        self.generation += 1
        self.rebalances += 1
        came = [place for place in self.places.values() if place.join is not None]
        if not self.places:
            self.state, self.leader_id, self.protocol = EMPTY, "", ""
            self.written = self._copy()
            return
        if not came:  # static ones only, none of which has come: wait on
            self.generation -= 1
            self._deadline_ms = self._now_ms() + max(each.rebalance_timeout_ms for each in self.places.values())
            return
        if self.leader_id not in {place.member_id for place in came}:
            self.leader_id = came[0].member_id
        self.protocol, self.state = self._choose(), COMPLETING
        self._deadline_ms = self._now_ms() + max(each.rebalance_timeout_ms for each in self.places.values())
        for place in self.places.values():
            respond, place.join = place.join, None
            self._renew(place)
            if respond is not None:
                members = self._members() if place.member_id == self.leader_id else ()
                respond(Joined(self.generation, place.member_id, self.protocol, self.leader_id, members, False))

    def _remove(self, member_id: str) -> None:
        place = self.places.pop(member_id)
        for respond in (place.join, place.sync):
            if respond is not None:
                respond(Refused(ErrorCode.UNKNOWN_MEMBER_ID))
        if self.state in (STABLE, COMPLETING):
            self._prepare()
        elif self.state == PREPARING:
            self._complete_if_all_came()

    def tick(self) -> None:
        """End what is over: sessions, ids that nobody used, the wait for members and for the leader's assignment."""
        now_ms = self._now_ms()
        for member_id, until_ms in [*self.pending.items()]:
            if now_ms >= until_ms:
                del self.pending[member_id]
        for member_id, place in [*self.places.items()]:
            if member_id in self.places and not place.is_waiting and now_ms >= place.expires_ms:
                self._remove(member_id)
        if self.state == PREPARING and now_ms >= self._deadline_ms:
            self._complete()
        elif self.state == PREPARING:
            self._complete_if_all_came()
        elif self.state == COMPLETING and now_ms >= self._deadline_ms:
            for place in [*self.places.values()]:
                if place.sync is None and place.member_id in self.places:
                    self._remove(place.member_id)
