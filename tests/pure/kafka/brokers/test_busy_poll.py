"""Busy polling: the loop takes turns until an answer or a request comes or their time is over, and sleeps where that is worth nothing."""

import pytest

from holdfast.kafka.brokers import busy_poll
from tests.pure.kafka.brokers.polled_loop import TURN_S, Loop


@pytest.fixture
def loop() -> Loop:
    return Loop()


def share_awake(loop: Loop, answered_s: float, followed_s: float, work_s: float = 0.0) -> tuple[float, float]:
    """Return in which share of a second's requests the loop is awake when the answer comes, and when the next request does."""
    begins_s, seen = loop.now_s, []
    while loop.now_s < begins_s + 1:
        seen.append(loop.exchange(answered_s, followed_s, work_s))
    answered, followed = zip(*seen, strict=True)
    return sum(answered) / len(seen), sum(followed) / len(seen)


def exchange_until_it_rests(loop: Loop, answered_s: float, followed_s: float, work_s: float = 0.0) -> None:
    for _ in range(200):
        turns = loop.turns
        loop.exchange(answered_s, followed_s, work_s)
        if loop.turns == turns:
            return
    pytest.fail("it does not rest")


def test_the_loop_does_not_sleep_until_the_answer_is_there_nor_until_the_next_request(loop: Loop) -> None:
    assert share_awake(loop, 0.000_4, 0.000_2) == (1, 1)
    assert len(loop.due) == 1, "one turn of the loop is enough for all"


def test_polling_ends_with_its_time(loop: Loop) -> None:
    loop.send()
    assert loop.take_turns(60) in (50, 51)
    assert not loop.due


def test_an_answer_that_comes_later_than_any_polling_begins_none(loop: Loop) -> None:
    sent_s = loop.send()
    loop.take_turns(0.01)
    loop.polling.on_answered(sent_s)
    assert not loop.due


def test_none_is_polled_for_where_that_is_off(loop: Loop) -> None:
    loop.polling = loop.make_polling(0)
    assert loop.send() == 0
    assert not loop.due


def test_the_time_behind_an_answer_begins_when_it_was_taken_in(loop: Loop) -> None:
    assert loop.exchange(0.000_4, 0.000_7, 0.002) == (True, True)
    assert loop.exchange(0.000_4, 0.000_9, 0.002) == (True, False)


def test_it_ends_behind_twice_what_answers_usually_take_for_whoever_is_to_answer_may_want_this_processor(
    loop: Loop,
) -> None:
    for _ in range(100):
        loop.exchange(0.000_2, 0.000_1)
    loop.send()
    assert loop.take_turns(60) in (20, 21)
    assert not loop.due


def test_behind_answers_it_rests_where_requests_follow_later_than_it_polls_for_them(loop: Loop) -> None:
    loop.wake_s = 0.000_1
    for _ in range(6):
        share_awake(loop, 0.000_1, 0.000_4)
    answered, followed = share_awake(loop, 0.000_1, 0.000_4)
    assert answered > 0.95
    assert followed == 0
    turns = loop.turns
    loop.exchange(0.000_1, 0.000_4)
    assert loop.turns - turns <= 8, "for the answer alone"


def test_it_begins_again_behind_an_answer_that_came_a_little_later(loop: Loop) -> None:
    for _ in range(100):
        loop.exchange(0.000_2, 0.000_1)
    assert loop.exchange(0.000_9, 0.000_1) == (False, True)
    assert loop.exchange(0.001_1, 0.000_1) == (False, False)


def test_what_answers_usually_take_follows_them_whether_they_become_slower_or_quicker(loop: Loop) -> None:
    for answered_s in (0.000_1, 0.000_4, 0.000_05):
        for _ in range(100):
            loop.exchange(answered_s, 0.000_01)
        loop.send()
        turns = 2 * round(answered_s / TURN_S)
        assert turns <= loop.take_turns(60) <= 1.5 * turns + 2, answered_s
        loop.polling.on_answered(loop.now_s - 60)


def test_polling_goes_on_for_a_request_behind_which_another_is_answered(loop: Loop) -> None:
    for _ in range(6):
        share_awake(loop, 0.000_4, 0.005)  # so that answers alone are polled for
    one_s = loop.send()
    loop.take_turns(0.000_4)
    other_s = loop.send()
    loop.take_turns(0.000_4)
    loop.polling.on_answered(one_s)
    loop.take_turns(0.000_4)
    assert loop.due
    loop.polling.on_answered(other_s)
    assert loop.take_turns(1) == 1


def test_a_request_that_leaves_in_the_turn_of_an_answer_is_polled_for_where_answers_alone_are(loop: Loop) -> None:
    for _ in range(6):
        share_awake(loop, 0.000_4, 0.005)
    sent_s = loop.send()
    loop.take_turns(0.000_4)
    loop.polling.on_answered(sent_s)
    loop.send()
    loop.take_turns(0.000_7)
    assert loop.due


def test_requests_that_follow_at_once_are_not_late_for_what_was_done_with_an_answer(loop: Loop) -> None:
    for _ in range(1_000):
        assert loop.exchange(0.000_9, 0.000_2, 0.001_1) == (True, True)


def test_a_request_beside_others_in_flight_follows_no_answer(loop: Loop) -> None:
    sent = [loop.send()]
    for _ in range(4_000):
        sent.append(loop.send())
        loop.take_turns(0.000_5)
        loop.polling.on_answered(sent.pop(0))
    loop.polling.on_answered(sent.pop(0))
    assert loop.exchange(0.000_4, 0.000_2) == (True, True)


def test_where_answers_come_late_it_polls_for_a_part_of_the_time(loop: Loop) -> None:
    for _ in range(11):
        share_awake(loop, 0.005, 0.000_2)
    assert 0.3 < loop.polled_ms.value / 1_000 < 0.6  # where it would be 2
    for _ in range(22):
        share_awake(loop, 0.005, 0.000_2)
    assert 0.6 < loop.polled_ms.value / 1_000 < 1


def test_where_the_answers_to_many_in_flight_come_late_it_polls_for_a_part_of_the_time(loop: Loop) -> None:
    sent = [loop.send() for _ in range(8)]
    for _ in range(8_000):  # four seconds
        loop.take_turns(0.000_5)
        loop.polling.on_answered(sent.pop(0))
        sent.append(loop.send())
    assert 0.4 < loop.polled_ms.value / 1_000 < 0.7


@pytest.mark.parametrize(("late_of_ten", "rests"), [(4, False), (6, True)])
def test_it_rests_where_most_answers_come_late(loop: Loop, late_of_ten: int, rests: bool) -> None:
    awake = [loop.exchange(0.001_5 if i % 10 < late_of_ten else 0.000_4, 0.000_2)[1] for i in range(1_000)]
    assert (sum(awake) < 500 - late_of_ten * 50) == rests


@pytest.mark.parametrize(("late_of_ten", "rests"), [(4, False), (6, True)])
def test_it_rests_behind_answers_where_most_requests_come_late(loop: Loop, late_of_ten: int, rests: bool) -> None:
    awake = [loop.exchange(0.000_4, 0.001_5 if i % 10 < late_of_ten else 0.000_2)[1] for i in range(1_000)]
    assert sum(awake) < 250 if rests else sum(awake) == 600


def test_where_requests_do_not_follow_it_polls_for_answers_alone(loop: Loop) -> None:
    loop.wake_s = 0.000_1
    for _ in range(10):
        assert share_awake(loop, 0.000_4, 0.005) == (1, 0)
    answers_s = 10 * 0.000_4 / 0.005_4
    assert answers_s < loop.polled_ms.value / 1_000 < 1.5 * answers_s
    assert share_awake(loop, 0.000_4, 0.000_2)[0] == 1
    assert min(share_awake(loop, 0.000_4, 0.000_2)) > 0.95


def test_behind_a_pause_a_rest_is_a_short_one(loop: Loop) -> None:
    for _ in range(11):
        share_awake(loop, 0.005, 0.000_2)
    loop.take_turns(3_600)
    exchange_until_it_rests(loop, 0.005, 0.000_2)
    loop.now_s += 1
    loop.send()
    assert loop.due


def test_a_trial_that_was_worth_while_makes_the_next_rest_a_short_one(loop: Loop) -> None:
    for _ in range(11):
        share_awake(loop, 0.005, 0.000_2)
    for _ in range(6):
        share_awake(loop, 0.000_4, 0.000_2)
    exchange_until_it_rests(loop, 0.005, 0.000_2)
    loop.now_s += 1
    loop.send()
    assert loop.due


def test_a_rest_ends_after_five_seconds_though_it_was_tried_for_longer(loop: Loop) -> None:
    exchange_until_it_rests(loop, 0.005, 0.5)
    assert loop.now_s > 110  # it was tried for more than ten seconds
    loop.now_s += 5.1
    loop.send()
    assert loop.due


def test_a_rest_does_not_count_the_time_in_which_nothing_was_sent(loop: Loop) -> None:
    share_awake(loop, 0.000_4, 0.000_2)
    loop.take_turns(3_600)
    exchange_until_it_rests(loop, 0.000_2, 0.000_1, 0.002)
    loop.now_s += 1
    loop.send()
    assert loop.due


def test_where_the_loop_has_work_it_polls_for_a_part_of_the_time(loop: Loop) -> None:
    assert share_awake(loop, 0.000_2, 0.000_1, 0.000_5)[0] == 1
    share_awake(loop, 0.000_2, 0.000_1, 0.002)
    assert 0.05 < share_awake(loop, 0.000_2, 0.000_1, 0.002)[0] < 0.25


def test_where_others_want_the_processor_it_polls_for_a_part_of_the_time(loop: Loop) -> None:
    loop.wake_s = 0.000_1
    loop.taken_s = TURN_S / 4
    assert share_awake(loop, 0.000_2, 0.000_1)[0] == 1
    loop.taken_s = 5 * TURN_S
    share_awake(loop, 0.000_2, 0.000_1)
    assert 0.05 < share_awake(loop, 0.000_2, 0.000_1)[0] < 0.25
    loop.taken_s = 0
    for _ in range(6):
        share_awake(loop, 0.000_2, 0.000_1)
    assert min(share_awake(loop, 0.000_2, 0.000_1)) > 0.95


@pytest.mark.pure_build("it stands in for the system call")
def test_others_go_first_where_a_turn_had_nothing_to_do(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    yields: list[float] = []
    monkeypatch.setattr(busy_poll, "sched_yield", lambda: yields.append(loop.now_s))
    loop.exchange(0.000_4, 0.000_2)
    assert len(yields) == len(set(yields)) > 20
    before = len(yields)
    loop.send()
    loop.work(0.000_9)
    assert loop.take_turns(0.000_01) == 1
    assert len(yields) == before


@pytest.mark.pure_build("it stands in for the system call")
def test_nobody_goes_before_a_request_that_was_taken_off_its_socket(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    yields: list[float] = []
    monkeypatch.setattr(busy_poll, "sched_yield", lambda: yields.append(loop.now_s))
    loop.turn_s = 0.000_005
    loop.send()
    assert loop.take_turns(0.000_1) == 20
    assert len(yields) == 19, "at each turn behind a whole one"
    loop.work(0.000_007)
    assert loop.take_turns(0.000_004) == 1
    assert len(yields) == 19, "less than the time of a busy turn, and more than that of an idle one"
    assert loop.take_turns(0.000_004) == 1
    assert len(yields) == 20
    for _ in range(10):
        loop.work(0.000_007)
        assert loop.take_turns(0.000_004) == 1
    assert len(yields) == 20, "however many such turns follow each other"


@pytest.mark.parametrize(
    ("max_us", "more_than_ms", "most_ms"),
    [(1, 0, 11), (10, 0, 11), (1_000, 180, 209), (10_000, 180, 209)],  # each time one turn of 20 µs, or 20
)
def test_what_polling_takes_of_the_processor_is_counted_and_what_is_done_meanwhile_is_not(
    loop: Loop, max_us: int, more_than_ms: int, most_ms: int
) -> None:
    loop.polling = loop.make_polling(max_us)
    for _ in range(500):
        loop.send()
        loop.take_turns(0.000_4)
        loop.work(0.000_3)
    assert more_than_ms < loop.polled_ms.value <= most_ms
