"""Whose unknown topic ids are asked about next, and who goes where there is no room."""

from __future__ import annotations

from collections.abc import Collection

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.daemon.topics.look_ups import LookUp, LookUps


def ids(count: int, first: int = 0) -> list[bytes]:
    return [number.to_bytes(16, "big") for number in range(first, first + count)]


def ignore(not_queried: Collection[bytes]) -> None:
    """Take the end of a look-up."""


def add(look_ups: LookUps[bytes], caller: str, topic_ids: Collection[bytes]) -> LookUp[bytes]:
    look_up, dropped = look_ups.add(caller, topic_ids, ignore)
    assert look_up is not None
    assert dropped == []
    return look_up


def make(waiting_max: int = 100_000, per_request_max: int = 20_000) -> LookUps[bytes]:
    return LookUps(waiting_max, per_request_max)


def test_one_honest_id_is_in_the_next_query_whatever_other_connections_request() -> None:
    look_ups = make()
    for connection in range(6):
        for request in range(3):
            add(look_ups, f"10.0.0.1:{connection}", ids(5_000, 5_000 * (3 * connection + request)))
    (honest,) = ids(1, 10**6)
    add(look_ups, "10.0.0.1:99", [honest])
    assert honest in look_ups.next_query(100)


def test_one_honest_id_is_in_the_next_query_whatever_another_host_requests_over_a_thousand_connections() -> None:
    look_ups = make()
    for connection in range(900):
        add(look_ups, f"10.0.0.1:{connection}", ids(100, 100 * connection))
    (honest,) = ids(1, 10**6)
    add(look_ups, "[::1]:99", [honest])
    assert honest in look_ups.next_query(100)


def test_a_short_request_is_not_behind_the_long_ones_of_its_own_connection() -> None:
    look_ups = make()
    for request in range(20):
        add(look_ups, "10.0.0.1:1", ids(1_000, 1_000 * request))
    (honest,) = ids(1, 10**6)
    add(look_ups, "10.0.0.1:1", [honest])
    assert honest in look_ups.next_query(100)


def test_who_had_a_turn_comes_last_in_the_next_query() -> None:
    look_ups = make()
    for connection in range(10):
        add(look_ups, f"10.0.0.1:{connection}", ids(1, connection))
    asked = [set(look_ups.next_query(5)) for _ in range(2)]
    assert asked[0] | asked[1] == set(ids(10))


def test_an_id_that_many_wait_for_is_queried_once_and_answers_all_who_waited_before() -> None:
    look_ups = make()
    before = [add(look_ups, f"10.0.0.1:{connection}", ids(2)) for connection in range(5)]
    question = look_ups.next_query(100)
    assert list(question) == ids(2)
    later = add(look_ups, "10.0.0.1:9", ids(2))
    assert look_ups.answered(question) == before
    assert list(later.waiting) == ids(2), "the topic may have been made after this question"
    assert list(look_ups.next_query(100)) == ids(2)


def test_what_was_not_answered_is_queried_again_after_the_others() -> None:
    look_ups = make()
    waiting = add(look_ups, "10.0.0.1:1", ids(3))
    assert [list(look_ups.next_query(1)) for _ in range(4)] == [[each] for each in (*ids(3), ids(1)[0])]
    assert look_ups.answered(look_ups.next_query(3)) == [waiting]
    assert not look_ups


def test_of_a_request_with_too_many_unknown_ids_the_first_are_queried_and_the_others_reported() -> None:
    look_ups = make(per_request_max=3)
    look_up = add(look_ups, "10.0.0.1:1", ids(5))
    question = look_ups.next_query(100)
    assert list(question) == ids(3)
    assert look_ups.answered(question) == [look_up]
    assert list(look_up.left()) == ids(5)[3:]


def test_where_too_many_wait_the_connection_with_the_most_loses_its_newest() -> None:
    look_ups = make(waiting_max=10)
    greedy = [add(look_ups, "10.0.0.1:1", ids(4, 10 * number)) for number in range(2)]
    modest = add(look_ups, "10.0.0.2:1", ids(2, 100))
    honest, dropped = look_ups.add("10.0.0.3:1", ids(1, 200), ignore)
    assert honest is not None
    assert dropped == [greedy[1]]
    assert (greedy[1].is_over, list(greedy[1].left())) == (True, ids(4, 10))
    assert [greedy[0].is_over, modest.is_over] == [False, False]
    refused, dropped = look_ups.add("10.0.0.1:1", ids(9, 300), ignore)
    assert (refused, dropped) == (None, []), "it would be the one with the most itself"


def test_where_too_many_wait_an_address_with_many_small_connections_makes_room_for_others() -> None:
    look_ups = make(waiting_max=1_000)
    for connection in range(500):
        add(look_ups, f"10.0.0.1:{connection}", ids(2, 2 * connection))
    honest, dropped = look_ups.add("10.0.0.2:1", ids(30, 10**6), ignore)
    assert honest is not None
    assert {look_up.caller.partition(":")[0] for look_up in dropped} == {"10.0.0.1"}
    assert len(dropped) == 15
    assert look_ups.add("10.0.0.1:999", ids(3, 2 * 10**6), ignore) == (None, []), "it would have the most itself"


def test_an_answer_after_the_end_of_a_look_up_changes_nothing() -> None:
    look_ups = make()
    gone, stays = (add(look_ups, f"10.0.0.1:{number}", ids(2)) for number in range(2))
    question = look_ups.next_query(10)
    look_ups.remove(gone)
    assert look_ups.answered(question) == [stays]
    assert not look_ups
    assert look_ups.next_query(10) == {}


@settings(max_examples=200)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["add", "ask", "fail", "remove"]),
            st.integers(0, 3),  # host
            st.integers(0, 3),  # connection, or which look-up
            st.integers(1, 12),  # ids, or size of a question
            st.integers(0, 20),  # first id
        ),
        max_size=60,
    )
)
def test_every_look_up_ends_once_and_the_books_agree(steps: list[tuple[str, int, int, int, int]]) -> None:
    look_ups = make(waiting_max=40, per_request_max=10)
    waiting: list[LookUp[bytes]] = []
    for what, host, connection, count, first in steps:
        if what == "add":
            look_up, dropped = look_ups.add(f"10.0.0.{host}:{connection}", ids(count, first), ignore)
            waiting = [each for each in waiting if each not in dropped]
            assert all(each.is_over for each in dropped)
            if look_up is not None:
                waiting.append(look_up)
        elif what in ("ask", "fail"):
            question = look_ups.next_query(count)
            assert len(question) == min(count, len({each for held in waiting for each in held.waiting}))
            if what == "ask":
                done = look_ups.answered(question)
                assert all(not each.waiting and each.is_over for each in done)
                waiting = [each for each in waiting if each not in done]
        elif waiting:
            look_ups.remove(waiting.pop(connection % len(waiting)))
        assert look_ups._waiting_count == sum(len(each.waiting) for each in waiting) <= 40
        assert bool(look_ups) == bool(waiting)
    while look_ups:
        for each in look_ups.answered(look_ups.next_query(5)):
            waiting.remove(each)
    assert waiting == []
    assert (look_ups._hosts, look_ups._counts, look_ups._by_id) == ({}, {}, {})
