"""Busy polling: the loop takes turns until an answer or a request comes or their time is over, and sleeps where that is worth nothing."""

from collections.abc import Callable

import pytest

from holdfast.kafka.brokers.busy_poll import BusyPolling
from holdfast.metrics.instruments import Counter

_MAX_US = 1_000
_TURN_S = 0.000_02


class Loop:
    """Stands in for the event loop and its clocks; a turn takes 20 µs, and of the processor as long unless others want it."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.worked_s = 7.0
        self.taken_s = 0.0  #: what others have of each turn
        self.polled_ms = Counter()
        self.due: list[Callable[[], None]] = []
        self.polling = BusyPolling(_MAX_US, self.polled_ms, lambda: self.now_s, lambda: self.worked_s)

    def call_soon(self, call: Callable[[], None]) -> None:
        self.due.append(call)

    def work(self, took_s: float) -> None:
        """Take a turn in which it has other work to do."""
        self.now_s += took_s
        self.worked_s += took_s

    def take_turns(self, for_s: float) -> int:
        """Take turns for a time or until the loop would sleep, which it then does for the rest; returns how many."""
        until_s, turns = self.now_s + for_s, 0
        while self.due and self.now_s < until_s:
            due, self.due = self.due, []
            for call in due:
                call()
            self.now_s += _TURN_S + self.taken_s
            self.worked_s += _TURN_S
            turns += 1
        self.now_s = max(self.now_s, until_s)
        return turns

    def send(self) -> None:
        self.polling.on_sent(self)  # type: ignore[arg-type]

    def exchange(self, answered_s: float, followed_s: float, work_s: float = 0.0) -> tuple[bool, bool]:
        """Send a request that is answered after a time, and wait for the next one; returns whether it is awake at either end."""
        self.send()
        self.take_turns(answered_s)
        is_awake = bool(self.due)
        self.polling.on_answered()
        self.work(work_s)
        self.take_turns(followed_s)
        return is_awake, bool(self.due)


@pytest.fixture
def loop() -> Loop:
    return Loop()


def share_awake(loop: Loop, answered_s: float, followed_s: float, work_s: float = 0.0) -> tuple[float, float]:
    """Return in which share of a second the loop is awake when the answer comes, and when the next request does."""
    begins_s, seen = loop.now_s, []
    while loop.now_s < begins_s + 1:
        seen.append(loop.exchange(answered_s, followed_s, work_s))
    answered, followed = zip(*seen, strict=True)
    return sum(answered) / len(seen), sum(followed) / len(seen)


def test_the_loop_does_not_sleep_until_the_answer_is_there_nor_until_the_next_request(loop: Loop) -> None:
    assert share_awake(loop, 0.000_4, 0.000_2) == (1, 1)
    assert len(loop.due) == 1, "one turn of the loop is enough for all"


def test_polling_ends_with_its_time(loop: Loop) -> None:
    loop.send()
    assert loop.take_turns(60) in (50, 51)
    assert not loop.due


def test_an_answer_begins_no_polling(loop: Loop) -> None:
    loop.send()
    loop.take_turns(0.01)
    loop.polling.on_answered()
    assert not loop.due


def test_none_is_polled_for_where_that_is_off(loop: Loop) -> None:
    loop.polling = BusyPolling(0, loop.polled_ms, lambda: loop.now_s, lambda: loop.worked_s)
    assert share_awake(loop, 0.000_1, 0.000_1) == (0, 0)


def test_where_answers_come_late_it_polls_for_a_part_of_the_time(loop: Loop) -> None:
    for _ in range(11):
        share_awake(loop, 0.005, 0.000_2)
    assert 0.1 < loop.polled_ms.value / 1_000 < 0.4  # where it would be 2
    for _ in range(6):  # it rests for five seconds at most
        share_awake(loop, 0.000_4, 0.000_2)
    assert share_awake(loop, 0.000_4, 0.000_2) == (1, 1)


def test_where_requests_do_not_follow_it_polls_for_answers_alone(loop: Loop) -> None:
    for _ in range(10):
        assert share_awake(loop, 0.000_4, 0.005) == (1, 0)
    answers_s = 10 * 0.000_4 / 0.005_4
    assert answers_s < loop.polled_ms.value / 1_000 < 1.5 * answers_s
    for _ in range(6):
        assert share_awake(loop, 0.000_4, 0.000_2)[0] == 1
    assert share_awake(loop, 0.000_4, 0.000_2) == (1, 1)


@pytest.mark.parametrize("followed_s", [0.000_9, 0.001_1])
def test_polling_goes_on_while_most_of_it_is_not_in_vain(loop: Loop, followed_s: float) -> None:
    for _ in range(5):
        share_awake(loop, 0.000_9, 0.000_1)
        assert loop.exchange(0.000_9, followed_s) == (True, followed_s < 0.001)


def test_where_the_loop_has_work_it_polls_for_a_part_of_the_time(loop: Loop) -> None:
    assert share_awake(loop, 0.000_2, 0.000_1, 0.000_5)[0] == 1
    share_awake(loop, 0.000_2, 0.000_1, 0.002)
    assert 0.05 < share_awake(loop, 0.000_2, 0.000_1, 0.002)[0] < 0.25


def test_where_others_want_the_processor_it_polls_for_a_part_of_the_time(loop: Loop) -> None:
    loop.taken_s = _TURN_S
    assert share_awake(loop, 0.000_2, 0.000_1)[0] == 1
    loop.taken_s = 5 * _TURN_S
    share_awake(loop, 0.000_2, 0.000_1)
    assert 0.05 < share_awake(loop, 0.000_2, 0.000_1)[0] < 0.25
    loop.taken_s = 0
    share_awake(loop, 0.000_2, 0.000_1)
    assert share_awake(loop, 0.000_2, 0.000_1) == (1, 1)


def test_what_polling_takes_of_the_processor_is_counted_and_what_is_done_meanwhile_is_not(loop: Loop) -> None:
    loop.taken_s = _TURN_S / 2
    share_awake(loop, 0.000_4, 0.000_3, 0.000_3)
    assert 400 < loop.polled_ms.value < 480  # of the second 0.7 ms in 1 are polled, and others have a third of that
