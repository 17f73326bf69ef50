"""Busy polling: the loop takes turns until an answer or a request comes or their time is over, and sleeps where that is worth nothing."""

from collections.abc import Callable

import pytest

from holdfast.kafka.brokers import busy_poll
from holdfast.kafka.brokers.busy_poll import BusyPolling
from holdfast.metrics.instruments import Counter

_MAX_US = 1_000
_TURN_S = 0.000_02


class Loop:
    """Stands in for the event loop and its clock; a turn takes 20 µs, and longer where others want the processor."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.turn_s = _TURN_S  #: of one in which it has nothing to do
        self.taken_s = 0.0  #: what others have of each turn
        self.wake_s = 0.0  #: what an answer takes longer where it sleeps
        self.stalled_s = 0.0  #: what one in 61 takes longer where it polls, beside a busy process that is not preempted
        self.answers = 0
        self.turns = 0
        self.polled_ms = Counter()
        self.due: list[tuple[Callable[..., None], tuple[object, ...]]] = []
        self.polling = self.make_polling(_MAX_US)

    def make_polling(self, max_us: int) -> BusyPolling:
        return BusyPolling(max_us, self.polled_ms, lambda: self.now_s)

    def call_soon(self, call: Callable[..., None], *arguments: object) -> None:
        self.due.append((call, arguments))

    def work(self, took_s: float) -> None:
        """Take a turn in which it has other work to do."""
        self.now_s += took_s

    def take_turns(self, for_s: float) -> int:
        """Take turns for a time or until the loop would sleep, which it then does for the rest; returns how many."""
        until_s, turns = self.now_s + for_s, 0
        while self.due and self.now_s < until_s:
            due, self.due = self.due, []
            for call, arguments in due:
                call(*arguments)
            self.now_s += self.turn_s + self.taken_s
            turns += 1
        self.turns += turns
        self.now_s = max(self.now_s, until_s)
        return turns

    def send(self) -> float:
        return self.polling.on_sent(self)  # type: ignore[arg-type]

    def exchange(self, answered_s: float, followed_s: float, work_s: float = 0.0) -> tuple[bool, bool]:
        """Send a request that is answered after a time, and wait for the next one; returns whether it is awake at either end."""
        sent_s = self.send()
        self.take_turns(answered_s)
        is_awake = bool(self.due)
        self.answers += 1
        if not is_awake:
            self.work(self.wake_s)
        elif self.answers % 61 == 0:
            self.work(self.stalled_s)
        self.polling.on_answered(sent_s)
        self.work(work_s)
        self.take_turns(followed_s)
        return is_awake, bool(self.due)


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
        turns = 2 * round(answered_s / _TURN_S)
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
    loop.taken_s = _TURN_S / 4
    assert share_awake(loop, 0.000_2, 0.000_1)[0] == 1
    loop.taken_s = 5 * _TURN_S
    share_awake(loop, 0.000_2, 0.000_1)
    assert 0.05 < share_awake(loop, 0.000_2, 0.000_1)[0] < 0.25
    loop.taken_s = 0
    for _ in range(6):
        share_awake(loop, 0.000_2, 0.000_1)
    assert min(share_awake(loop, 0.000_2, 0.000_1)) > 0.95


_STALL_S = 0.003


def awake_at_answers(loop: Loop, answers: int, stalled_s: float = 0.0, answered_s: float = 0.000_2) -> int:
    """Return at how many of the answers the loop is awake."""
    loop.stalled_s = stalled_s
    return sum(loop.exchange(answered_s, 0.000_1)[0] for _ in range(answers))


def test_where_a_busy_process_holds_up_a_loop_that_polls_it_sleeps_but_for_trials(loop: Loop) -> None:
    loop.wake_s = 0.000_02
    awake_at_answers(loop, 40_000, _STALL_S)
    assert 590 <= awake_at_answers(loop, 24_600, _STALL_S) < 800


def test_it_does_not_poll_behind_answers_either_where_it_sleeps(loop: Loop) -> None:
    loop.wake_s = 0.000_02
    awake_at_answers(loop, 40_000, _STALL_S)
    while awake_at_answers(loop, 1, _STALL_S):
        pass
    turns = loop.turns
    awake_at_answers(loop, 4_000, _STALL_S)
    assert loop.turns - turns <= 200 * 20, "but for a trial"


@pytest.mark.parametrize("stalled_s", [_STALL_S, 1.0])
def test_once_the_busy_process_is_gone_it_polls_again(loop: Loop, stalled_s: float) -> None:
    loop.wake_s = 0.000_03
    awake_at_answers(loop, 60_000, stalled_s)
    assert awake_at_answers(loop, 8_000, stalled_s) < 800
    awake_at_answers(loop, 50_000)
    assert awake_at_answers(loop, 10_000) > 9_800


@pytest.mark.parametrize(("first_s", "then_s"), [(0.000_8, 0.000_2), (0.000_2, 0.000_8)])
def test_it_goes_on_to_poll_where_answers_become_quicker_or_slower(loop: Loop, first_s: float, then_s: float) -> None:
    loop.wake_s = 0.000_05
    for _ in range(5):
        assert awake_at_answers(loop, 4_000, answered_s=first_s) > 3_900
        assert awake_at_answers(loop, 4_064, answered_s=then_s) > 3_900


def test_where_answers_come_a_little_sooner_for_it_it_goes_on_to_poll_and_does_not_begin_to(loop: Loop) -> None:
    loop.wake_s = 0.000_015
    awake_at_answers(loop, 40_000)
    assert awake_at_answers(loop, 16_200) > 16_000
    awake_at_answers(loop, 60_000, _STALL_S)
    loop.wake_s = 0.000_01
    awake_at_answers(loop, 40_000)
    assert awake_at_answers(loop, 16_400) < 500


def test_what_a_broker_answers_late_now_and_then_does_not_make_it_sleep(loop: Loop) -> None:
    loop.wake_s = 0.000_05
    for _ in range(50):
        assert awake_at_answers(loop, 997) > 900
        loop.exchange(0.1, 0.000_1)


def test_a_trial_to_sleep_is_a_short_one(loop: Loop) -> None:
    loop.wake_s = 0.000_05
    assert 60 <= 16_400 - awake_at_answers(loop, 16_400) <= 2 * 64


def wait_for_answers_of_an_outage(loop: Loop) -> None:
    sent = [loop.send() for _ in range(10)]
    loop.take_turns(30)
    for sent_s in sent:
        loop.polling.on_answered(sent_s)


def test_an_outage_does_not_make_it_sleep(loop: Loop) -> None:
    loop.wake_s = 0.000_05
    awake_at_answers(loop, 7_980)
    wait_for_answers_of_an_outage(loop)
    assert awake_at_answers(loop, 200) < 200, "a trial"
    assert awake_at_answers(loop, 2_000) == 2_000


def test_an_outage_does_not_make_it_poll_beside_a_busy_process(loop: Loop) -> None:
    loop.wake_s = 0.000_02
    awake_at_answers(loop, 60_000, _STALL_S)
    while not awake_at_answers(loop, 1, _STALL_S):
        pass
    awake_at_answers(loop, 8_150, _STALL_S)
    wait_for_answers_of_an_outage(loop)
    assert awake_at_answers(loop, 500, _STALL_S) > 150, "a trial"
    assert awake_at_answers(loop, 4_000, _STALL_S) == 0


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
