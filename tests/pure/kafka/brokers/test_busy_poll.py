"""Busy polling: the loop takes turns until an answer comes or its time is over, and sleeps where answers take longer."""

from collections.abc import Callable

import pytest

from holdfast.kafka.brokers.busy_poll import BusyPoll, BusyPolling
from holdfast.metrics.instruments import Counter


class Loop:
    """Stands in for the event loop and its clocks; a turn takes a tenth of a millisecond, and of the processor a hundredth."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.worked_s = 7.0
        self.polled_ms = Counter()
        self.due: list[Callable[[], None]] = []

    def call_soon(self, call: Callable[[], None]) -> None:
        self.due.append(call)

    def clock_s(self) -> float:
        return self.now_s

    def clock_of_thread_s(self) -> float:
        return self.worked_s

    def take_turns(self, until_s: float) -> int:
        """Take turns until a time or until the loop would sleep, which it then does up to that time; returns how many."""
        turns = 0
        while self.due and self.now_s < until_s:
            due, self.due = self.due, []
            for call in due:
                call()
            self.now_s += 0.000_1
            self.worked_s += 0.000_01
            turns += 1
        self.now_s = max(self.now_s, until_s)
        return turns


@pytest.fixture
def loop() -> Loop:
    return Loop()


def make_polling(loop: Loop, max_us: int = 1_000) -> BusyPolling:
    return BusyPolling(max_us, loop.polled_ms, loop.clock_s, loop.clock_of_thread_s)


def make_poll(loop: Loop, polling: BusyPolling | None = None) -> BusyPoll:
    return BusyPoll(loop, polling or make_polling(loop))  # type: ignore[arg-type]


def exchange(loop: Loop, poll: BusyPoll, took_s: float) -> int:
    """Send a request that is answered after a time; returns how many turns the loop took meanwhile."""
    poll.on_sent()
    turns = loop.take_turns(loop.now_s + took_s)
    poll.on_answered(0)
    loop.take_turns(loop.now_s + 1)
    return turns


def test_the_loop_does_not_sleep_until_the_answer_is_there(loop: Loop) -> None:
    poll = make_poll(loop)
    poll.on_sent()
    assert loop.take_turns(loop.now_s + 0.000_45) == 5
    poll.on_answered(0)
    assert loop.take_turns(loop.now_s + 1) == 1  # in which it finds that there is nothing to wait for
    assert not loop.due


def test_polling_ends_with_its_time(loop: Loop) -> None:
    poll = make_poll(loop)
    poll.on_sent()
    assert loop.take_turns(loop.now_s + 60) in (11, 12)
    assert not loop.due


def test_polling_goes_on_while_another_request_is_in_flight(loop: Loop) -> None:
    poll = make_poll(loop)
    poll.on_sent()
    poll.on_sent()
    assert len(loop.due) == 1  # one turn of the loop is enough for both
    poll.on_answered(1)
    assert loop.take_turns(loop.now_s + 0.000_45) == 5
    poll.on_answered(0)
    assert loop.take_turns(loop.now_s + 1) == 1


def test_an_answer_begins_no_polling(loop: Loop) -> None:
    poll = make_poll(loop)
    exchange(loop, poll, 0.000_3)
    poll.on_answered(0)
    assert not loop.due


def test_where_answers_come_late_few_are_polled_for(loop: Loop) -> None:
    poll = make_poll(loop)
    polled = [number for number in range(140) if exchange(loop, poll, 0.002)]
    assert polled == [*range(5), *range(61, 69), *range(125, 133)]


def test_polling_goes_on_while_half_of_the_answers_come_in_time(loop: Loop) -> None:
    poll = make_poll(loop)
    assert all(exchange(loop, poll, took_s) for took_s in [0.002, 0.000_5] * 100)


def test_polling_rests_when_five_of_eight_answers_come_late(loop: Loop) -> None:
    poll = make_poll(loop)
    for took_s in [0.000_5] * 100 + [0.002, 0.002, 0.000_5, 0.002, 0.000_5, 0.002, 0.000_5, 0.002]:
        assert exchange(loop, poll, took_s)
    assert not exchange(loop, poll, 0.002)


def test_few_are_polled_for_while_few_come_in_time(loop: Loop) -> None:
    poll = make_poll(loop)
    polled = [exchange(loop, poll, 0.000_5 if number % 4 == 0 else 0.002) > 0 for number in range(640)]
    assert sum(polled[64:]) == 9 * 8


def test_polling_goes_on_again_when_four_of_eight_come_in_time_without(loop: Loop) -> None:
    poll = make_poll(loop)
    for _ in range(20):
        exchange(loop, poll, 0.002)
    assert [exchange(loop, poll, 0.000_5) > 0 for _ in range(6)] == [False] * 4 + [True] * 2


def test_connections_share_their_turns_and_the_last_one_ends_polling(loop: Loop) -> None:
    polling = make_polling(loop)
    one, other = make_poll(loop, polling), make_poll(loop, polling)
    one.on_sent()
    other.on_sent()
    assert len(loop.due) == 1
    one.on_answered(0)
    assert loop.take_turns(loop.now_s + 0.000_45) == 5
    other.on_answered(0)
    assert loop.take_turns(loop.now_s + 1) == 1


def test_a_connection_that_failed_is_not_polled_for(loop: Loop) -> None:
    poll = make_poll(loop)
    poll.on_sent()
    poll.stop()
    poll.stop()
    assert loop.take_turns(loop.now_s + 1) == 1
    assert exchange(loop, poll, 0.000_45) == 5


def test_none_is_polled_for_where_that_is_off(loop: Loop) -> None:
    poll = make_poll(loop, make_polling(loop, 0))
    assert [exchange(loop, poll, 0.000_1) for _ in range(3)] == [0, 0, 0]


def test_what_polling_takes_of_the_processor_is_counted_and_what_is_done_meanwhile_is_not(loop: Loop) -> None:
    poll = make_poll(loop)
    for _ in range(100):
        exchange(loop, poll, 0.000_85)
    assert loop.polled_ms.value in (8, 9)
    before_ms = loop.polled_ms.value
    for _ in range(100):
        poll.on_sent()
        loop.take_turns(loop.now_s + 0.000_15)
        loop.worked_s += 0.005  # whatever else the loop does in a turn
        loop.take_turns(loop.now_s + 0.000_15)
        poll.on_answered(0)
        loop.take_turns(loop.now_s + 1)
    assert loop.polled_ms.value - before_ms in (2, 3, 4)
