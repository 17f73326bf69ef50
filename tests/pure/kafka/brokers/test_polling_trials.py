"""A loop sleeps where trials show that answers come no sooner for polling, as beside processes that compute without a pause."""

import pytest

from tests.pure.kafka.brokers.polled_loop import Loop

_STALL_S = 0.003


@pytest.fixture
def loop() -> Loop:
    return Loop()


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


def test_answers_that_come_late_for_a_trial_to_sleep_make_no_rest(loop: Loop) -> None:
    loop.wake_s = 0.000_8
    awake = [loop.exchange(0.001_5 if i % 10 < 4 else 0.000_4, 0.000_2)[1] for i in range(9_000)]
    assert not any(awake[8_000:8_063]), "a trial"
    assert sum(awake[8_064:]) > 500
