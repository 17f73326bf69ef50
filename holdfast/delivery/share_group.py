"""Members of a share group: who they are, whether they live, and the partitions that each fetches.

All of it is memory. A share assignment excludes nobody: a lock at a leader does. So a coordinator that has just begun tells each member
once that it does not know it, and the member joins again with its next heartbeat.

Source: KIP-932; Apache Kafka 4.3.1 `GroupMetadataManager.shareGroupHeartbeat`. An unknown group is UNKNOWN_MEMBER_ID here, for clients
take GROUP_ID_NOT_FOUND as the end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple, TypeAlias

from holdfast.delivery.assignment import Assignment, Place, assign
from holdfast.delivery.group_config import GroupConfig

#: A group so small is divided again at once when a member joins, so that a worker that starts need not wait for its second heartbeat.
_SMALL_GROUP: Final = 32

#: Epochs stay below it. librdkafka 2.16 takes the member id of an answer for text that a zero byte ends, and the epoch comes next: the
#: highest byte of it must be zero, as it always is in Kafka, where groups begin at 1.
EPOCH_END: Final = 1 << 24

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1

UNKNOWN_MEMBER_ID: Final = 25
INVALID_REQUEST: Final = 42
GROUP_MAX_SIZE_REACHED: Final = 81
FENCED_MEMBER_EPOCH: Final = 110

#: Topic id and number of partitions, by name; only topics that there are.
Topics: TypeAlias = Mapping[str, tuple[bytes, int]]


class Heartbeat(NamedTuple):
    """A sign of life of a member."""

    member_id: str
    #: 0: it joins; -1: it leaves.
    member_epoch: int
    rack_id: str | None
    #: None: unchanged.
    topic_names: tuple[str, ...] | None
    client_id: str = ""
    client_host: str = ""


class Refused(NamedTuple):
    """Why a heartbeat changes nothing."""

    error_code: int
    text: str


class Accepted(NamedTuple):
    """The answer to a member."""

    member_epoch: int
    #: None: unchanged.
    assignment: frozenset[Place] | None


class Member:
    """One member."""

    __slots__ = (
        "assigned",
        "client_host",
        "client_id",
        "deadline_ms",
        "epoch",
        "epoch_before",
        "rack_id",
        "topic_names",
    )

    def __init__(self) -> None:
        self.epoch = 0
        self.epoch_before = -1
        self.rack_id: str | None = None
        self.topic_names: tuple[str, ...] = ()
        self.client_id = ""
        self.client_host = ""
        #: As it was told last.
        self.assigned: frozenset[Place] = frozenset()
        #: When it is taken for dead.
        self.deadline_ms = 0.0


class ShareGroup:
    """The members of one group.

    Args:
        config: of the group.
        members_max: a further member is refused.
        topics: returns the topics that there are, of those that are subscribed to.
    """

    def __init__(self, config: GroupConfig, members_max: int, topics: Callable[[Collection[str]], Topics]) -> None:
        self.config = config
        self.members: Final[dict[str, Member]] = {}
        self.epoch = 0
        #: Epoch for which the target was made.
        self.assignment_epoch = -1
        self._members_max = members_max
        self._find_topics = topics
        self._topics: Topics = {}
        self._target: Assignment = {}
        self._assigned_ms = float("-inf")

    @property
    def next_deadline_ms(self) -> float | None:
        """Return when a member must have been heard of; None: there is none."""
        return min((member.deadline_ms for member in self.members.values()), default=None)

    @property
    def topic_names(self) -> set[str]:
        """Return all names that members subscribe to."""
        return {name for member in self.members.values() for name in member.topic_names}

    def heartbeat(self, now_ms: float, epoch_min: int, beat: Heartbeat) -> Accepted | Refused:
        """Take a heartbeat.

        Args:
            now_ms: the time.
            epoch_min: a new epoch of the group is this at least, so that a coordinator that has just begun gives no lower one.
            beat: of the member.
        """
        if beat.member_epoch == LEAVE_EPOCH:
            return self._leave(beat.member_id, epoch_min)
        member = self.members.get(beat.member_id)
        if member is None:
            if beat.member_epoch != JOIN_EPOCH:
                return _unknown(beat.member_id)
            if len(self.members) >= self._members_max:
                return Refused(
                    GROUP_MAX_SIZE_REACHED, f"the group has {self._members_max} members, as many as it may; stop some"
                )
            member = self.members[beat.member_id] = Member()
            self._new_epoch(epoch_min)
        elif beat.member_epoch not in (JOIN_EPOCH, member.epoch, member.epoch_before):
            return Refused(
                FENCED_MEMBER_EPOCH,
                f"the member epoch is {beat.member_epoch}, and {member.epoch} holds; join with epoch 0",
            )
        member.deadline_ms = now_ms + self.config.session_timeout_ms
        member.client_id, member.client_host = beat.client_id, beat.client_host
        if beat.rack_id is not None:
            member.rack_id = beat.rack_id
        if beat.topic_names is not None:
            names = tuple(sorted(set(beat.topic_names)))
            if names != member.topic_names:
                member.topic_names = names
                self._new_epoch(epoch_min)
        if self._has_topics_changed():
            self._new_epoch(epoch_min)
        is_joining = beat.member_epoch == JOIN_EPOCH
        self._assign(now_ms, at_once=is_joining and len(self.members) <= _SMALL_GROUP)
        is_told = is_joining or beat.topic_names is not None
        return self._tell(member, beat.member_id, is_told=is_told)

    def tick(self, now_ms: float, epoch_min: int) -> list[str]:
        """Forget members that were not heard of in time, and return them."""
        dead = [member_id for member_id, member in self.members.items() if member.deadline_ms <= now_ms]
        for member_id in dead:
            del self.members[member_id]
        if dead:
            self._new_epoch(epoch_min)
        return dead

    def _leave(self, member_id: str, epoch_min: int) -> Accepted | Refused:
        if self.members.pop(member_id, None) is None:
            return _unknown(member_id)
        self._new_epoch(epoch_min)
        return Accepted(LEAVE_EPOCH, None)

    def _new_epoch(self, epoch_min: int) -> None:
        epoch = max(epoch_min, self.epoch + 1)
        self.epoch = epoch if epoch < EPOCH_END else 1

    def _has_topics_changed(self) -> bool:
        """Look at the topics again; tells whether any came, went or grew."""
        found = self._find_topics(self.topic_names)
        if found == self._topics:
            return False
        self._topics = found
        return True

    def _assign(self, now_ms: float, *, at_once: bool) -> None:
        if self.assignment_epoch == self.epoch:
            return
        if not at_once and now_ms - self._assigned_ms < self.config.assignment_interval_ms:
            return
        ids = {name: topic_id for name, (topic_id, _) in self._topics.items()}
        subscriptions = {
            member_id: [ids[name] for name in member.topic_names if name in ids]
            for member_id, member in self.members.items()
        }
        self._target = assign(subscriptions, dict(self._topics.values()), self._target)
        self.assignment_epoch, self._assigned_ms = self.epoch, now_ms

    def _tell(self, member: Member, member_id: str, *, is_told: bool) -> Accepted:
        subscribed = {self._topics[name][0] for name in member.topic_names if name in self._topics}
        target = self._target.get(member_id, frozenset())
        assigned = frozenset(place for place in target if place[0] in subscribed)
        if member.epoch != self.assignment_epoch:
            member.epoch_before, member.epoch = member.epoch, self.assignment_epoch
        is_changed = assigned != member.assigned
        member.assigned = assigned
        return Accepted(member.epoch, assigned if is_told or is_changed else None)


def _unknown(member_id: str) -> Refused:
    return Refused(UNKNOWN_MEMBER_ID, f"member {member_id} is not known here; join with epoch 0")
