"""Share sessions: epochs, partitions, connections and bounds, rule by rule."""

from collections.abc import Collection

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from holdfast.delivery.sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    MemberKey,
    Place,
    Refusal,
    Session,
    ShareSessions,
    Turn,
)
from holdfast.kafka.protocol.error_codes import ErrorCode

TOPIC = bytes(15) + b"\x01"
A, B, C, D = ((TOPIC, partition) for partition in range(4))
KEY = ("g", "m")
EPOCH_MAX = (1 << 31) - 1


def turn_of(turn: Turn | Refusal) -> Turn:
    assert isinstance(turn, Turn)
    return turn


def code_of(turn: Turn | Refusal) -> int:
    assert isinstance(turn, Refusal)
    assert "; " in turn.text  # what is wrong, and what to do
    return turn.error_code


class Node:
    """The sessions of a node, asked with fewer words."""

    def __init__(self, *bounds: int) -> None:
        self.sessions = ShareSessions(*(bounds or (2_000,)))

    def fetch(
        self,
        epoch: int,
        added: Collection[Place] = (),
        forgotten: Collection[Place] = (),
        *,
        key: MemberKey = KEY,
        connection: object = "c1",
    ) -> Turn | Refusal:
        return self.sessions.fetch(key, epoch, connection, added, forgotten)

    def begin(self, *added: Place, key: MemberKey = KEY, connection: object = "c1") -> Session:
        turn = turn_of(self.fetch(0, added, key=key, connection=connection))
        assert turn.is_first
        return turn.session

    def acknowledge(self, epoch: int, connection: object = "c1") -> Turn | Refusal:
        return self.sessions.acknowledge(KEY, epoch, connection)

    def close(self, connection: object) -> list[MemberKey]:
        return [session.key for session in self.sessions.close_connection(connection)]


def test_epoch_0_begins_and_the_next_is_1() -> None:
    node = Node()
    turn = turn_of(node.fetch(0, [A, B, A]))
    assert (list(turn.session.places), turn.session.epoch, turn.is_first, turn.is_last) == ([A, B], 1, True, False)
    turn = turn_of(node.fetch(1))
    assert (list(turn.session.places), turn.session.epoch, turn.is_first, turn.is_last) == ([A, B], 2, False, False)


def test_epoch_0_replaces_what_the_member_had() -> None:
    node = Node()
    first, second = node.begin(A, B), node.begin(C)
    assert node.sessions.find(KEY) is second is not first
    assert (len(node.sessions), list(second.places)) == (1, [C])
    # The member may still hold records of the others.
    assert second.touched == {A, B, C}


def test_session_begun_before_the_last_has_ended_has_what_it_held() -> None:
    node = Node()
    first = node.begin(A, B)
    assert turn_of(node.fetch(FINAL_EPOCH)).is_last
    second = node.begin(C)
    assert (second.touched, second.stay) == ({A, B, C}, first.stay)
    node.sessions.closed(first)
    node.sessions.closed(turn_of(node.fetch(FINAL_EPOCH)).session)
    third = node.begin(C)
    assert third.touched == {C}
    assert third.stay is not first.stay


def test_session_begun_after_the_records_went_back_is_a_stay_of_its_own() -> None:
    node = Node()
    first = node.begin(A)
    assert turn_of(node.fetch(FINAL_EPOCH)).is_last
    first.stay.is_over = True
    assert not node.begin(A).stay.is_over


def test_epoch_0_with_acknowledgements_is_invalid_and_keeps_the_session() -> None:
    node = Node()
    session = node.begin(A)
    refused = node.sessions.fetch(KEY, 0, "c1", [A], [], has_acknowledgements=True)
    assert code_of(refused) == ErrorCode.INVALID_REQUEST
    assert node.sessions.find(KEY) is session


@pytest.mark.parametrize("epoch", [1, 7, -1, -2, EPOCH_MAX])
def test_request_without_session_is_not_found(epoch: int) -> None:
    node = Node()
    assert code_of(node.fetch(epoch, [A])) == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert code_of(node.acknowledge(epoch)) == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert len(node.sessions) == 0


@pytest.mark.parametrize("epoch", [2, 3, EPOCH_MAX, -2])
def test_wrong_epoch_is_refused_and_changes_nothing(epoch: int) -> None:
    node = Node()
    session = node.begin(A)
    assert code_of(node.fetch(epoch, [B], [A], connection="c2")) == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert code_of(node.acknowledge(epoch, "c2")) == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert (session.epoch, list(session.places), session.connection) == (1, [A], "c1")


def test_acknowledge_with_epoch_0_is_a_wrong_epoch() -> None:
    node = Node()
    assert code_of(node.acknowledge(INITIAL_EPOCH)) == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    node.begin(A)
    assert code_of(node.acknowledge(INITIAL_EPOCH)) == ErrorCode.INVALID_SHARE_SESSION_EPOCH


def test_fetches_and_acknowledgements_share_the_epoch() -> None:
    node = Node()
    node.begin(A)
    assert turn_of(node.acknowledge(1)).session.epoch == 2
    assert code_of(node.fetch(1)) == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert turn_of(node.fetch(2)).session.epoch == 3


def test_epoch_wraps_to_1() -> None:
    node = Node()
    node.begin(A).epoch = EPOCH_MAX
    turn_of(node.fetch(EPOCH_MAX))
    turn_of(node.acknowledge(1))


@pytest.mark.parametrize("call", ["fetch", "acknowledge"])
def test_final_epoch_ends_the_session_whatever_its_epoch(call: str) -> None:
    node = Node()
    session = node.begin(A)
    turn = turn_of(node.fetch(FINAL_EPOCH, [B]) if call == "fetch" else node.acknowledge(FINAL_EPOCH))
    assert (turn.session, turn.is_last, turn.session.touched) == (session, True, {A})
    assert not node.sessions.has_sessions("g")
    assert (len(node.sessions), node.sessions.place_count, node.close("c1")) == (0, 0, [])


def test_partitions_are_added_and_forgotten() -> None:
    node = Node()
    session = node.begin(A, B)
    turn_of(node.fetch(1, [C, C, A], [B, D]))
    assert list(session.places) == [A, C]
    assert session.touched == {A, B, C}


def test_partition_named_and_forgotten_is_forgotten() -> None:
    node = Node()
    session = node.begin(A)
    assert list(turn_of(node.fetch(1, [B], [B])).session.places) == [A]
    assert session.choose_answers([], [], [B]) == [A, B]


def test_partition_acknowledged_and_not_known_is_fetched() -> None:
    node = Node()
    node.begin(A)
    turn = turn_of(node.sessions.fetch(KEY, 1, "c1", [B], [], has_acknowledgements=True))
    assert list(turn.session.places) == [A, B]


# ---- what may have changed ---------------------------------------------------------------------------------------------


class Waiting:
    """A fetch that waits (`sessions.Waiter`)."""

    def __init__(self, since_s: float = 0.0, order: list[float] | None = None) -> None:
        self.since_s = since_s
        self.wakes = 0
        self._order = [] if order is None else order

    def wake(self) -> None:
        self.wakes += 1
        self._order.append(self.since_s)


def test_all_that_was_added_may_have_something() -> None:
    node = Node()
    session = node.begin(B, A)
    assert list(session.changed) == [B, A]
    session.changed.clear()
    turn_of(node.fetch(1, [A, C], [B]))
    assert list(session.changed) == [C]
    turn_of(node.fetch(2, [D], [C]))
    assert list(session.changed) == [D]
    assert list(node.begin(A).changed) == [A]


def test_change_is_told_to_sessions_of_its_group_with_the_partition() -> None:
    node, waiting = Node(), [Waiting() for _ in range(4)]
    sessions = [node.begin(A, B, key=("g", "m1")), node.begin(A, key=("g", "m2")), node.begin(B, key=("g", "m3"))]
    sessions.append(node.begin(A, key=("h", "m1")))
    for session, waiter in zip(sessions, waiting, strict=True):
        session.changed.clear()
        session.waiter = waiter
    node.sessions.changed("g", A)
    node.sessions.changed("g", A)
    node.sessions.changed("g", D)
    assert [list(session.changed) for session in sessions] == [[A], [A], [], []]
    assert [waiter.wakes for waiter in waiting] == [2, 2, 0, 0]


def test_who_has_waited_longest_is_woken_first() -> None:
    node, order = Node(), list[float]()
    for since_s in (3.0, 1.0, 2.0):
        node.begin(A, key=("g", f"m{since_s}")).waiter = Waiting(since_s, order)
    node.sessions.changed("g", A)
    assert order == [1.0, 2.0, 3.0]


def test_change_waits_for_a_fetch_and_keeps_its_turn() -> None:
    node = Node()
    session = node.begin(A, B, C)
    session.changed.clear()
    for place in (C, A, C):
        node.sessions.changed("g", place)
    assert list(session.changed) == [C, A]


def test_session_hears_nothing_of_partitions_that_it_lost() -> None:
    node = Node()
    first = node.begin(A, B)
    turn_of(node.fetch(1, [], [B]))
    second = node.begin(C)
    for session in (first, second):
        session.changed.clear()
    for place in (A, B):
        node.sessions.changed("g", place)
        assert not node.sessions.is_fetched("g", place)
    assert (list(first.changed), list(second.changed)) == ([], [])
    node.sessions.end(KEY)
    assert not node.sessions._by_place


def test_somebody_waits_for_a_partition_while_a_session_that_has_it_does() -> None:
    node = Node()
    session, other = node.begin(A), node.begin(B, key=("g", "m2"))
    other.waiter = Waiting()
    assert (node.sessions.is_awaited("g", A), node.sessions.is_awaited("g", B)) == (False, True)
    assert not node.sessions.is_awaited("h", B)
    session.waiter = Waiting()
    assert node.sessions.is_awaited("g", A)


def test_other_rights_have_all_partitions_asked_again() -> None:
    session = Node().begin(A, B)
    session.renew_rights("some")
    del session.changed[A]
    session.renew_rights("some")
    assert list(session.changed) == [B]
    session.renew_rights("others")
    assert list(session.changed) == [B, A]


def test_answer_names_all_at_first_then_only_where_something_is() -> None:
    node = Node()
    session = node.begin(C, A, B)
    assert session.choose_answers([B], [], []) == [C, A, B]
    assert session.choose_answers([], [], []) == []
    assert session.choose_answers([B], [], []) == [B]
    assert session.choose_answers([], [], [C]) == [C]
    assert session.choose_answers([C], [A], [C]) == [C, A]
    # The error of A is over.
    assert session.choose_answers([], [], []) == [A]
    assert session.choose_answers([], [], []) == []
    turn_of(node.fetch(1, [D, A]))
    assert session.choose_answers([], [], []) == [D]
    assert session.choose_answers([], [], []) == []


def test_answer_names_what_is_acknowledged_outside_of_the_session() -> None:
    session = Node().begin(A)
    assert session.choose_answers([], [C], [B, B]) == [A, C, B]
    assert session.choose_answers([], [], []) == []


def test_forgotten_partition_needs_no_answer() -> None:
    node = Node()
    session = node.begin(A, B)
    turn_of(node.fetch(1, [], [A]))
    assert session.choose_answers([], [], []) == [B]


def test_connection_that_ends_gives_back_its_sessions_in_order() -> None:
    node = Node()
    for key, connection in ((("g", "m1"), 1), (("g", "m2"), 2), (("h", "m1"), 1), (("h", "m0"), 1)):
        node.begin(A, key=key, connection=connection)
    assert node.close(1) == [("g", "m1"), ("h", "m1"), ("h", "m0")]
    assert node.close(1) == []
    assert (node.sessions.has_sessions("g"), node.sessions.has_sessions("h")) == (True, False)
    assert node.close(2) == [("g", "m2")]
    assert not node.sessions.has_sessions("g")


def test_old_connection_does_not_end_the_session_of_a_new_one() -> None:
    node = Node()
    node.begin(A)
    node.begin(A, connection="c2")
    assert node.close("c1") == []
    assert node.close("c2") == [KEY]


@pytest.mark.parametrize("call", ["fetch", "acknowledge"])
def test_session_moves_with_its_member_to_another_connection(call: str) -> None:
    node = Node()
    node.begin(A)
    turn_of(node.fetch(1, connection="c2") if call == "fetch" else node.acknowledge(1, "c2"))
    assert node.close("c1") == []
    assert node.close("c2") == [KEY]


def test_session_beyond_the_limit_is_refused_and_live_ones_stay() -> None:
    node = Node(2)
    node.begin(A, key=("g", "m1"), connection=1)
    node.begin(A, key=("g", "m2"), connection=2)
    assert code_of(node.fetch(0, [A])) == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    # A member that has one may begin it again.
    node.begin(A, key=("g", "m2"), connection=2)
    node.close(1)
    node.begin(A)


def test_session_with_too_many_partitions_is_refused_as_it_was() -> None:
    node = Node(10, 2)
    assert code_of(node.fetch(0, [A, B, C])) == ErrorCode.INVALID_REQUEST
    session = node.begin(A, B, B)
    assert code_of(node.fetch(1, [C])) == ErrorCode.INVALID_REQUEST
    assert code_of(node.fetch(0, [A, B, C])) == ErrorCode.INVALID_REQUEST
    assert (node.sessions.find(KEY), session.epoch, list(session.places)) == (session, 1, [A, B])


def test_session_that_had_too_many_in_turn_begins_anew() -> None:
    node = Node(10, 2)
    node.begin(A, B)
    turn_of(node.fetch(1, [], [A]))
    assert code_of(node.fetch(2, [C], [])) == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert node.begin(B, C).touched == {B, C}


def test_partitions_of_all_sessions_are_bounded() -> None:
    node = Node(10, 10, 3)
    node.begin(A, B, key=("g", "m1"))
    assert code_of(node.fetch(0, [A, B])) == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    node.begin(A)
    assert code_of(node.fetch(1, [B])) == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    node.sessions.closed(turn_of(node.fetch(FINAL_EPOCH)).session)
    node.begin(B)
    assert node.sessions.place_count == 3


class SessionMachine(RuleBasedStateMachine):
    """Members that fetch over connections that end, beside a list of what each should have."""

    def __init__(self) -> None:
        super().__init__()
        self.sessions = ShareSessions(3)
        #: Epoch, partitions and connection.
        self.known: dict[MemberKey, tuple[int, list[Place], int]] = {}

    keys = st.tuples(st.sampled_from("gh"), st.sampled_from("mno"))
    places = st.lists(st.sampled_from([A, B, C, D]), max_size=4)
    connections = st.integers(0, 3)

    @rule(key=keys, connection=connections, added=places)
    def begin(self, key: MemberKey, connection: int, added: list[Place]) -> None:
        turn = self.sessions.fetch(key, 0, connection, added, [])
        if key not in self.known and len(self.known) == 3:
            assert code_of(turn) == ErrorCode.SHARE_SESSION_LIMIT_REACHED
            return
        self.known[key] = 1, list(dict.fromkeys(added)), connection
        assert list(turn_of(turn).session.places) == self.known[key][1]

    @rule(key=keys, connection=connections, added=places, forgotten=places, late=st.integers(-1, 1))
    def go_on(self, key: MemberKey, connection: int, added: list[Place], forgotten: list[Place], late: int) -> None:
        epoch, places, _ = self.known.get(key, (5, [], 0))
        if epoch + late < 1:
            return
        turn = self.sessions.fetch(key, epoch + late, connection, added, forgotten)
        if key not in self.known:
            assert code_of(turn) == ErrorCode.SHARE_SESSION_NOT_FOUND
        elif late:
            assert code_of(turn) == ErrorCode.INVALID_SHARE_SESSION_EPOCH
        else:
            places = [place for place in dict.fromkeys(places + added) if place not in forgotten]
            self.known[key] = epoch + 1, places, connection
            assert list(turn_of(turn).session.places) == places

    @rule(key=keys, connection=connections)
    def acknowledge(self, key: MemberKey, connection: int) -> None:
        epoch, places, _ = self.known.get(key, (5, [], 0))
        turn = self.sessions.acknowledge(key, epoch, connection)
        if key in self.known:
            assert list(turn_of(turn).session.places) == places
            self.known[key] = epoch + 1, places, connection

    @rule(key=keys)
    def finish(self, key: MemberKey) -> None:
        turn = self.sessions.fetch(key, FINAL_EPOCH, 0, [], [])
        assert isinstance(turn, Turn) == (self.known.pop(key, None) is not None)

    @rule(connection=connections)
    def lose(self, connection: int) -> None:
        ended = {session.key for session in self.sessions.close_connection(connection)}
        assert ended == {key for key, (_, _, its) in self.known.items() if its == connection}
        self.known = {key: value for key, value in self.known.items() if key not in ended}

    @invariant()
    def sessions_are_as_known(self) -> None:
        assert len(self.sessions) == len(self.known)
        touched = 0
        for key, (epoch, places, connection) in self.known.items():
            session = self.sessions.find(key)
            assert session is not None
            assert (session.epoch, list(session.places), session.connection) == (epoch, places, connection)
            assert session.touched.issuperset(places)
            touched += len(session.touched)
        assert self.sessions.place_count == touched
        for group in "gh":
            for place in (A, B, C, D):
                having = [places for (of, _), (_, places, _) in self.known.items() if of == group and place in places]
                assert self.sessions.is_fetched(group, place) == bool(having)
                assert len(self.sessions._having(group, place)) == len(having)
            assert self.sessions.has_sessions(group) == any(key[0] == group for key in self.known)


TestSessionMachine = SessionMachine.TestCase
