"""Members of a share group: who they are, whether they live, and the partitions that each fetches.

All of it is memory. A share assignment excludes nobody: a lock at a leader does. So a coordinator that has just begun tells each member
once that it does not know it, and the member joins again with its next heartbeat.

Source: KIP-932; Apache Kafka 4.3.1 `GroupMetadataManager.shareGroupHeartbeat`. An unknown group is UNKNOWN_MEMBER_ID here, for clients
take GROUP_ID_NOT_FOUND as the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple, TypeAlias

from holdfast.delivery.assignment import Assignment, Place, assign
from holdfast.delivery.group_config import GroupConfig
from holdfast.kafka.protocol.error_codes import ErrorCode

#: A group so small is divided again at once when a member joins, so that a worker that starts need not wait for its second heartbeat.
_SMALL_GROUP: Final = 32

#: Epochs stay below it. librdkafka 2.16 takes the member id of an answer for text that a zero byte ends, and the epoch comes next: the
#: highest byte of it must be zero, as it always is in Kafka, where groups begin at 1.
EPOCH_END: Final = 1 << 24

#: Characters that are kept of a text that is only shown: client id, host and rack.
_SHOWN_CHARACTERS_MAX: Final = 249

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1


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
        "holds_more",
        "rack_id",
        "told_ms",
        "topic_names",
        "topics",
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
        #: When it was told of another assignment last.
        self.told_ms = float("-inf")
        #: It keeps partitions for a moment that are no more in its target.
        self.holds_more = False
        #: The topics that there were then.
        self.topics: Topics | None = None
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
        #: How many members subscribe to a name.
        self._name_counts: Counter[str] = Counter()
        #: No member's deadline is before it. Heartbeats move deadlines on and leave it, so that they cost the same in any group.
        self._deadline_ms = float("inf")

    @property
    def next_deadline_ms(self) -> float | None:
        """Return when to call `tick`: some member may not have been heard of in time then. None: there is no member."""
        return self._deadline_ms if self.members else None

    @property
    def topic_names(self) -> set[str]:
        """Return all names that members subscribe to."""
        return set(self._name_counts)

    def heartbeat(self, now_ms: float, epoch_min: int, beat: Heartbeat) -> Accepted | Refused:
        """Take a heartbeat.

        The answer has the assignment where the member joins or names topics, where the assignment has changed, and where the member's epoch
        is the one before: it did not hear the last answer, which may have had a change.

        Args:
            now_ms: the time.
            epoch_min: a new epoch of the group is this at least, so that a coordinator that has just begun gives no lower one.
            beat: of the member.
        """
        member_id, member_epoch, rack_id, topic_names, client_id, client_host = beat
        if member_epoch == LEAVE_EPOCH:
            return self._leave(member_id, epoch_min)
        is_joining = member_epoch == JOIN_EPOCH
        member = self.members.get(member_id)
        if member is None and not is_joining:
            return _unknown(member_id)
        if member is not None and not is_joining and member_epoch not in (member.epoch, member.epoch_before):
            return Refused(
                ErrorCode.FENCED_MEMBER_EPOCH,
                f"the member epoch is {member_epoch}, and {member.epoch} holds; join with epoch 0",
            )
        if member is None:
            if len(self.members) >= self._members_max:
                return Refused(
                    ErrorCode.GROUP_MAX_SIZE_REACHED,
                    f"the group has {self._members_max} members, as many as it may; stop some",
                )
            member = self.members[member_id] = Member()
        member.deadline_ms = now_ms + self.config.session_timeout_ms
        self._deadline_ms = min(self._deadline_ms, member.deadline_ms)
        if client_id != member.client_id or client_host != member.client_host:
            member.client_id = client_id[:_SHOWN_CHARACTERS_MAX]
            member.client_host = client_host[:_SHOWN_CHARACTERS_MAX]
        if rack_id is not None:
            member.rack_id = rack_id[:_SHOWN_CHARACTERS_MAX]
        is_changed = not member.epoch
        if topic_names is not None:
            is_changed |= self._subscribe(member, topic_names)
        if self._has_topics_changed() or is_changed:
            self._new_epoch(epoch_min)
        if self.assignment_epoch != self.epoch:
            self._assign(now_ms, at_once=is_joining and len(self.members) <= _SMALL_GROUP)
        is_told = topic_names is not None or member_epoch != member.epoch
        is_due = member.epoch != self.assignment_epoch or member.topics is not self._topics or member.holds_more
        if is_told or is_due:
            return self._tell(now_ms, member, member_id, is_told=is_told)
        return Accepted(member_epoch, None)

    def tick(self, now_ms: float, epoch_min: int) -> list[str]:
        """Forget members that were not heard of in time, and return them."""
        if now_ms < self._deadline_ms:
            return []
        dead = [member_id for member_id, member in self.members.items() if member.deadline_ms <= now_ms]
        for member_id in dead:
            self._remove(member_id)
        if dead:
            self._new_epoch(epoch_min)
        self._deadline_ms = min((member.deadline_ms for member in self.members.values()), default=float("inf"))
        return dead

    def _leave(self, member_id: str, epoch_min: int) -> Accepted | Refused:
        if member_id not in self.members:
            return _unknown(member_id)
        self._remove(member_id)
        self._new_epoch(epoch_min)
        return Accepted(LEAVE_EPOCH, None)

    def _remove(self, member_id: str) -> None:
        self._count_names(self.members.pop(member_id).topic_names, -1)

    def _subscribe(self, member: Member, topic_names: Collection[str]) -> bool:
        """Take the names of a heartbeat; tells whether there were others before."""
        names = tuple(sorted(set(topic_names)))
        if names == member.topic_names:
            return False
        self._count_names(names, 1)
        self._count_names(member.topic_names, -1)
        member.topic_names = names
        return True

    def _count_names(self, names: Collection[str], step: int) -> None:
        counts = self._name_counts
        for name in names:
            counts[name] += step
            if not counts[name]:
                del counts[name]

    def _new_epoch(self, epoch_min: int) -> None:
        epoch = max(epoch_min, self.epoch + 1)
        self.epoch = epoch if epoch < EPOCH_END else 1

    def _has_topics_changed(self) -> bool:
        """Look at the topics again; tells whether any came, went or grew."""
        found = self._find_topics(self._name_counts.keys())
        if found == self._topics:
            return False
        self._topics = found
        return True

    def _assign(self, now_ms: float, *, at_once: bool) -> None:
        if not at_once and now_ms - self._assigned_ms < self.config.assignment_interval_ms:
            return
        ids = {name: topic_id for name, (topic_id, _) in self._topics.items()}
        # Members that name the same topics have one list, which the assignment looks at once.
        of_names: dict[tuple[str, ...], list[bytes]] = {}
        subscriptions: dict[str, list[bytes]] = {}
        for member_id, member in self.members.items():
            names = member.topic_names
            if names not in of_names:
                of_names[names] = [ids[name] for name in names if name in ids]
            subscriptions[member_id] = of_names[names]
        self._target = assign(subscriptions, dict(self._topics.values()), self._target)
        self.assignment_epoch, self._assigned_ms = self.epoch, now_ms

    def _tell(self, now_ms: float, member: Member, member_id: str, *, is_told: bool) -> Accepted:
        """Return the assignment of a member, which keeps what it was given within the last heartbeat interval.

        Java's consumer fails acknowledgements of a partition that leaves while its first fetch is on the way, and members that start
        together take partitions from each other several times. Two members that fetch one partition for a moment hurt nobody.
        """
        # Only topics that it subscribes to now, and partitions that there are: the target may be older.
        subscribed = dict(self._topics[name] for name in member.topic_names if name in self._topics)
        target = self._target.get(member_id, frozenset())
        assigned = frozenset(place for place in target if place[1] < subscribed.get(place[0], 0))
        if member.epoch != self.assignment_epoch:
            member.epoch_before, member.epoch = member.epoch, self.assignment_epoch
        if now_ms - member.told_ms < self.config.heartbeat_interval_ms:
            kept = {place for place in member.assigned if place[1] < subscribed.get(place[0], 0)}
            member.holds_more = not kept <= assigned
            assigned |= kept
        else:
            member.holds_more = False
        is_changed = assigned != member.assigned
        if is_changed:
            member.told_ms = now_ms
        member.assigned, member.topics = assigned, self._topics
        return Accepted(member.epoch, assigned if is_told or is_changed else None)


def _unknown(member_id: str) -> Refused:
    return Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"member {member_id} is not known here; join with epoch 0")
