"""Busy polling: the loop takes turns until an answer or a request comes or their time is over, and then sleeps."""

import pytest

from holdfast.daemon.settings.components.log import LogSettings
from holdfast.kafka.brokers import busy_poll
from tests.pure.kafka.brokers.polled_loop import Loop


@pytest.fixture
def loop() -> Loop:
    return Loop()


def test_loop_is_awake_when_answer_and_next_request_come_in_time(loop: Loop) -> None:
    for _ in range(1_000):
        assert loop.exchange(0.000_4, 0.000_9) == (True, True)
    assert len(loop.due) == 1, "one turn of the loop is enough for all"


def test_polling_ends_after_the_window(loop: Loop) -> None:
    loop.send()
    assert loop.take_turns(60) in (50, 51)
    assert not loop.due


def test_loop_sleeps_until_late_answer_and_polls_after_it(loop: Loop) -> None:
    assert loop.exchange(0.005, 0.000_9) == (False, True)
    assert loop.exchange(0.000_4, 0.005) == (True, False)


def test_loop_never_polls_by_default(loop: Loop) -> None:
    assert LogSettings().busy_poll_us == 0
    loop.polling = loop.make_polling(0)
    assert loop.exchange(0.000_4, 0.000_2) == (False, False)
    assert not loop.turns


def test_window_after_answer_begins_when_it_was_taken_in(loop: Loop) -> None:
    assert loop.exchange(0.000_4, 0.000_7, 0.002) == (True, True)
    assert loop.exchange(0.000_4, 0.001_1, 0.002) == (True, False)


def test_polling_goes_on_for_request_after_which_another_is_answered(loop: Loop) -> None:
    loop.send()
    loop.take_turns(0.000_4)
    loop.send()
    loop.take_turns(0.000_7)
    loop.answer()
    loop.take_turns(0.000_9)
    assert loop.due
    assert loop.take_turns(1) <= 7


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
    ("window_us", "more_than_ms", "most_ms"),
    [(1, 0, 11), (10, 0, 11), (1_000, 180, 209), (10_000, 180, 209)],  # each time one turn of 20 µs, or 20
)
def test_what_polling_takes_of_the_processor_is_counted_and_what_is_done_meanwhile_is_not(
    loop: Loop, window_us: int, more_than_ms: int, most_ms: int
) -> None:
    loop.polling = loop.make_polling(window_us)
    for _ in range(500):
        loop.send()
        loop.take_turns(0.000_4)
        loop.work(0.000_3)
    assert more_than_ms < loop.polled_ms.value <= most_ms
