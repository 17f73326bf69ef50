"""Members of a share group: heartbeats, rule by rule, and groups whose members come, go and change their minds."""

from collections.abc import Collection

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from holdfast.delivery.assignment import Place
from holdfast.delivery.group_config import GroupConfig
from holdfast.delivery.share_group import (
    EPOCH_END,
    JOIN_EPOCH,
    LEAVE_EPOCH,
    Accepted,
    Heartbeat,
    Refused,
    ShareGroup,
    Topics,
)
from holdfast.kafka.protocol.error_codes import ErrorCode

A, B, C = (bytes([number]) * 16 for number in (1, 2, 3))
#: The least epoch when a test begins; it rises each second.
BEGIN_EPOCH = 1_000
INTERVAL_MS = GroupConfig().assignment_interval_ms
TIMEOUT_MS = GroupConfig().session_timeout_ms


class Group:
    """A group, its topics and a clock."""

    def __init__(self, members_max: int = 200) -> None:
        self.topics: dict[str, tuple[bytes, int]] = {"a": (A, 4), "b": (B, 2)}
        self.now_ms = 0.0
        self.group = ShareGroup(GroupConfig(), members_max, self.find_topics)

    def find_topics(self, names: Collection[str]) -> Topics:
        return {name: self.topics[name] for name in names if name in self.topics}

    @property
    def epoch_min(self) -> int:
        return BEGIN_EPOCH + int(self.now_ms) // 1_000

    def beat(self, member_id: str, epoch: int, names: Collection[str] | None = None) -> Accepted | Refused:
        heartbeat = Heartbeat(member_id, epoch, None, None if names is None else tuple(names))
        return self.group.heartbeat(self.now_ms, self.epoch_min, heartbeat)

    def join(self, member_id: str, *names: str) -> Accepted:
        return accepted(self.beat(member_id, JOIN_EPOCH, names or ("a",)))

    def go_on(self, member_id: str) -> Accepted:
        return accepted(self.beat(member_id, self.group.members[member_id].epoch))

    def tick(self) -> list[str]:
        return self.group.tick(self.now_ms, self.epoch_min)

    def assigned(self) -> dict[str, frozenset[Place]]:
        return {member_id: member.assigned for member_id, member in self.group.members.items()}


@pytest.fixture
def group() -> Group:
    return Group()


def accepted(answer: Accepted | Refused) -> Accepted:
    assert isinstance(answer, Accepted), answer
    return answer


def refused(answer: Accepted | Refused) -> int:
    assert isinstance(answer, Refused), answer
    assert "; " in answer.text  # what is wrong, and what to do
    return answer.error_code


def places(topic_id: bytes, *partitions: int) -> frozenset[Place]:
    return frozenset((topic_id, partition) for partition in partitions)


def test_first_member_has_all_partitions_with_its_first_heartbeat(group: Group) -> None:
    assert group.join("m") == Accepted(BEGIN_EPOCH, places(A, 0, 1, 2, 3))
    assert group.go_on("m") == Accepted(BEGIN_EPOCH, None)


def test_members_that_start_together_take_partitions_from_each_other_once(group: Group) -> None:
    heartbeat_ms = GroupConfig().heartbeat_interval_ms
    told = [group.join("m1").assignment]
    for number in range(2, 9):
        group.now_ms += 50
        group.join(f"m{number}")
        told.append(group.go_on("m1").assignment)
    assert told == [places(A, 0, 1, 2, 3), *[None] * 7], "it keeps all while its first fetch is on the way"
    group.now_ms = heartbeat_ms
    assert len(group.go_on("m1").assignment or ()) == 1
    for number in range(2, 9):
        group.now_ms += heartbeat_ms
        group.go_on(f"m{number}")
    assert {len(mine) for mine in group.assigned().values()} == {1}


def test_partitions_that_are_gone_leave_at_once(group: Group) -> None:
    group.join("m", "a", "b")
    group.topics["a"] = (A, 2)
    group.now_ms += INTERVAL_MS
    assert group.go_on("m").assignment == places(A, 0, 1) | places(B, 0, 1)
    group.now_ms += INTERVAL_MS
    assert accepted(group.beat("m", group.group.members["m"].epoch, ["b"])).assignment == places(B, 0, 1)


@pytest.mark.parametrize("epoch", [1, 7, LEAVE_EPOCH, -2])
def test_unknown_member_is_told_so_and_never_that_its_group_is_unknown(group: Group, epoch: int) -> None:
    assert refused(group.beat("m", epoch)) == int(ErrorCode.UNKNOWN_MEMBER_ID) == 25
    group.join("other")
    assert refused(group.beat("m", epoch, ["a"])) == ErrorCode.UNKNOWN_MEMBER_ID
    assert list(group.group.members) == ["other"]


def test_epoch_that_is_neither_the_current_nor_the_one_before_is_fenced(group: Group) -> None:
    first = group.join("m").member_epoch
    second = accepted(group.beat("m", first, ["b"])).member_epoch
    group.now_ms += INTERVAL_MS
    third = group.go_on("m").member_epoch
    assert first == second < third
    accepted(group.beat("m", second))
    for epoch in (third + 1, first - 1, 1, -2):
        assert refused(group.beat("m", epoch)) == int(ErrorCode.FENCED_MEMBER_EPOCH) == 110
    accepted(group.beat("m", third))


def test_member_that_did_not_hear_its_last_answer_is_told_again(group: Group) -> None:
    before = group.join("m").member_epoch
    group.topics["a"] = (A, 5)
    group.now_ms += INTERVAL_MS
    told = accepted(group.beat("m", before))
    assert told.assignment == places(A, 0, 1, 2, 3, 4)
    assert accepted(group.beat("m", before)) == told
    assert accepted(group.beat("m", told.member_epoch)) == Accepted(told.member_epoch, None)


def test_known_member_with_epoch_0_goes_on_and_is_told_its_assignment(group: Group) -> None:
    first = group.join("m")
    epoch = group.group.epoch
    assert group.join("m") == first
    assert accepted(group.beat("m", JOIN_EPOCH)) == first
    assert group.group.epoch == epoch


def test_heartbeat_that_names_topics_is_told_its_assignment(group: Group) -> None:
    first = group.join("m", "b", "a")
    assert accepted(group.beat("m", first.member_epoch, ["a", "b", "a"])) == first


def test_member_beyond_the_limit_is_refused_and_a_known_one_is_not() -> None:
    group = Group(members_max=2)
    group.join("m1")
    group.join("m2")
    assert refused(group.beat("m3", JOIN_EPOCH, ["a"])) == int(ErrorCode.GROUP_MAX_SIZE_REACHED) == 81
    group.join("m2")
    accepted(group.beat("m1", LEAVE_EPOCH))
    group.join("m3")


def test_member_that_leaves_is_answered_and_others_take_over(group: Group) -> None:
    group.join("m1")
    group.join("m2")
    epoch = group.group.epoch
    assert group.beat("m1", LEAVE_EPOCH) == Accepted(LEAVE_EPOCH, None)
    assert group.group.epoch == epoch + 1
    group.now_ms += INTERVAL_MS
    assert group.go_on("m2") == Accepted(epoch + 1, places(A, 0, 1, 2, 3))
    assert refused(group.beat("m1", LEAVE_EPOCH)) == ErrorCode.UNKNOWN_MEMBER_ID


def test_silent_member_goes_when_its_session_ends(group: Group) -> None:
    group.join("m1")
    group.now_ms = 10_000
    group.join("m2")
    group.now_ms = TIMEOUT_MS - 1
    assert group.group.next_deadline_ms == TIMEOUT_MS
    assert group.tick() == []
    epoch = group.group.epoch
    group.now_ms = TIMEOUT_MS
    assert group.tick() == ["m1"]
    assert group.group.epoch == max(epoch + 1, group.epoch_min)
    assert group.group.next_deadline_ms == 10_000 + TIMEOUT_MS
    assert group.go_on("m2").assignment == places(A, 0, 1, 2, 3)


def test_heartbeat_moves_the_deadline_on(group: Group) -> None:
    group.join("m")
    group.now_ms = TIMEOUT_MS - 1
    group.go_on("m")
    group.now_ms = TIMEOUT_MS
    assert group.tick() == []
    assert group.group.next_deadline_ms == 2 * TIMEOUT_MS - 1
    accepted(group.beat("m", LEAVE_EPOCH))
    assert group.group.next_deadline_ms is None


def test_group_epoch_is_the_least_or_the_next_and_rises_with_each_change(group: Group) -> None:
    group.join("m1")
    assert group.group.epoch == BEGIN_EPOCH
    group.now_ms = 60_000
    group.join("m2")
    assert group.group.epoch == BEGIN_EPOCH + 60
    group.now_ms = 0
    group.join("m3")
    assert group.group.epoch == BEGIN_EPOCH + 61


def test_group_epoch_keeps_its_highest_byte_zero(group: Group) -> None:
    beat = Heartbeat("m", JOIN_EPOCH, None, ("a",))
    assert accepted(group.group.heartbeat(0, EPOCH_END - 1, beat)).member_epoch == EPOCH_END - 1
    group.topics["a"] = (A, 5)
    told = accepted(group.group.heartbeat(INTERVAL_MS, 0, Heartbeat("m", EPOCH_END - 1, None, None)))
    assert told == Accepted(1, places(A, 0, 1, 2, 3, 4))
    assert accepted(group.group.heartbeat(INTERVAL_MS, 0, Heartbeat("m", 1, None, None))) == Accepted(1, None)


def test_changed_subscription_is_assigned_when_the_interval_has_passed(group: Group) -> None:
    first = group.join("m")
    epoch = group.group.epoch
    # Nothing that it does not subscribe to now, though there is no other assignment yet.
    assert accepted(group.beat("m", first.member_epoch, ["b"])) == Accepted(first.member_epoch, frozenset())
    assert group.group.epoch == epoch + 1
    group.now_ms = INTERVAL_MS - 1
    assert group.go_on("m") == Accepted(first.member_epoch, None)
    group.now_ms = INTERVAL_MS
    assert group.go_on("m") == Accepted(epoch + 1, places(B, 0, 1))


def test_topics_that_come_grow_and_go_change_the_assignment(group: Group) -> None:
    group.join("m", "a", "c")
    group.topics |= {"c": (C, 1), "a": (A, 5), "other": (bytes(16), 1)}
    group.now_ms += INTERVAL_MS
    assert group.go_on("m").assignment == places(A, 0, 1, 2, 3, 4) | places(C, 0)
    epoch = group.group.epoch
    group.topics["other"] = (bytes(16), 2)
    assert group.go_on("m").assignment is None
    assert group.group.epoch == epoch
    del group.topics["a"]
    # At once, though the next assignment must wait.
    assert group.go_on("m").assignment == places(C, 0)
    assert group.group.epoch == epoch + 1


def test_topic_made_again_is_assigned_under_its_new_id(group: Group) -> None:
    group.join("m")
    group.topics["a"] = (C, 4)
    group.now_ms += INTERVAL_MS
    assert group.go_on("m").assignment == places(C, 0, 1, 2, 3)


def test_member_may_subscribe_to_nothing_that_there_is(group: Group) -> None:
    assert group.join("m", "none").assignment == frozenset()
    epoch = group.group.members["m"].epoch
    assert accepted(group.beat("m", epoch, [])).assignment == frozenset()
    assert group.group.topic_names == set()


def test_many_members_wait_for_the_interval_and_few_do_not(group: Group) -> None:
    group.topics["a"] = (A, 64)
    for number in range(32):
        assert group.join(f"m{number:02}").assignment
    assert group.join("m32").assignment == frozenset()
    group.now_ms += INTERVAL_MS
    assert group.go_on("m32").assignment


def test_texts_that_are_only_shown_are_cut(group: Group) -> None:
    beat = Heartbeat("m", 0, "r" * 9_999, ("a",), "c" * 9_999, "h" * 9_999)
    accepted(group.group.heartbeat(0, 0, beat))
    member = group.group.members["m"]
    assert [len(text or "") for text in (member.rack_id, member.client_id, member.client_host)] == [249] * 3


class GroupMachine(RuleBasedStateMachine):
    """Members that come, go, fall silent and lose answers, while topics come, grow and go."""

    def __init__(self) -> None:
        super().__init__()
        self.group = Group(members_max=5)
        #: Epoch and assignment, as each member believes them.
        self.believed: dict[str, tuple[int, frozenset[Place]]] = {}
        self.epochs: dict[str, int] = {}

    members = st.sampled_from(["m1", "m2", "m3", "m4", "m5", "m6"])
    names = st.sets(st.sampled_from(["a", "b", "c"]), min_size=1)

    def hear(self, member_id: str, answer: Accepted | Refused) -> None:
        if isinstance(answer, Refused):
            assert answer.error_code in (
                ErrorCode.UNKNOWN_MEMBER_ID,
                ErrorCode.FENCED_MEMBER_EPOCH,
                ErrorCode.GROUP_MAX_SIZE_REACHED,
            )
            self.believed.pop(member_id, None)
            return
        assert answer.member_epoch >= self.epochs.get(member_id, 1)
        self.epochs[member_id] = answer.member_epoch
        if answer.assignment is not None:
            subscribed = self.group.find_topics(self.group.group.members[member_id].topic_names)
            counts = dict(subscribed.values())
            assert all(partition < counts[topic] for topic, partition in answer.assignment)
        before = self.believed.get(member_id, (0, frozenset[Place]()))[1]
        assigned = before if answer.assignment is None else answer.assignment
        self.believed[member_id] = answer.member_epoch, assigned

    @rule(member_id=members, names=names)
    def join(self, member_id: str, names: set[str]) -> None:
        self.hear(member_id, self.group.beat(member_id, JOIN_EPOCH, names))

    @rule(member_id=members, names=st.none() | names, is_heard=st.booleans())
    def go_on(self, member_id: str, names: set[str] | None, is_heard: bool) -> None:
        if member_id in self.believed:
            answer = self.group.beat(member_id, self.believed[member_id][0], names)
            # A client that named topics and heard nothing names them again, so its belief may be wrong until then.
            if is_heard or names is not None:
                self.hear(member_id, answer)

    @rule(member_id=members)
    def leave(self, member_id: str) -> None:
        was_member = member_id in self.group.group.members
        answer = self.group.beat(member_id, LEAVE_EPOCH)
        assert isinstance(answer, Accepted) == was_member
        self.believed.pop(member_id, None)

    @rule(ms=st.sampled_from([1, 500, 1_000, 5_000, 30_000, 45_000]))
    def wait(self, ms: int) -> None:
        self.group.now_ms += ms
        deadlines = {member_id: member.deadline_ms for member_id, member in self.group.group.members.items()}
        silent = [member_id for member_id, deadline_ms in deadlines.items() if deadline_ms <= self.group.now_ms]
        assert self.group.tick() == silent

    @rule(name=st.sampled_from(["a", "b", "c"]), count=st.integers(0, 5), topic_id=st.sampled_from([A, B, C]))
    def change_topic(self, name: str, count: int, topic_id: bytes) -> None:
        others = {known: topic for known, topic in self.group.topics.items() if known != name}
        if topic_id not in {other for other, _ in others.values()}:
            self.group.topics = {**others, name: (topic_id, count)} if count else others

    @rule()
    def settle(self) -> None:
        """Check that one heartbeat of each is enough once nothing changes."""
        self.group.now_ms += INTERVAL_MS
        self.beat_all(self.alive())
        group = self.group.group
        for member_id in self.alive():
            epoch, assigned = self.believed[member_id]
            assert (epoch, assigned) == (group.epoch, group.members[member_id].assigned)
        subscribed = self.group.find_topics(group.topic_names)
        covered = {place for assigned in self.group.assigned().values() for place in assigned}
        if all(member_id in self.believed for member_id in group.members):
            assert covered == {(topic, number) for topic, count in subscribed.values() for number in range(count)}

    def alive(self) -> list[str]:
        return [member_id for member_id in self.believed if member_id in self.group.group.members]

    def beat_all(self, members: Collection[str]) -> None:
        for member_id in members:
            self.hear(member_id, self.group.beat(member_id, self.believed[member_id][0]))

    @invariant()
    def names_and_deadlines_are_those_of_the_members(self) -> None:
        members = self.group.group.members.values()
        assert self.group.group.topic_names == {name for member in members for name in member.topic_names}
        deadline_ms = self.group.group.next_deadline_ms
        assert (deadline_ms is None) == (not members)
        assert deadline_ms is None or deadline_ms <= min(member.deadline_ms for member in members)


TestGroupMachine = GroupMachine.TestCase
