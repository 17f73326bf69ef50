"""The linger of records for a broker: within bounds as long as its answers usually take, and while more records come."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.runtime.kafka_log.linger import FlushRule, Linger


def test_before_the_first_answer_it_is_the_least_time() -> None:
    linger = Linger(0.001, 0.02, 0.005)
    linger.on_sent(5)
    assert linger.end_s == pytest.approx(5.001)


def test_it_comes_to_be_what_answers_take() -> None:
    linger = Linger(0.001, 0.02, 0.005)
    linger.on_sent(5)
    for _ in range(100):
        linger.on_answered(0.01)
    assert linger.end_s == pytest.approx(5.01, abs=1e-6)
    linger.on_answered(0.05)
    assert linger.end_s == pytest.approx(5.015, abs=1e-6), "an eighth of the way to the newest"


def test_nothing_lingers_where_the_longest_time_is_none() -> None:
    linger = Linger(0.001, 0, 0)
    linger.on_sent(5)
    linger.on_answered(0.01)
    assert linger.end_s == 5


@given(st.lists(st.floats(0, 1_000)))
def test_it_stays_within_its_bounds(answers: list[float]) -> None:
    linger = Linger(0.001, 0.02, 0.005)
    linger.on_sent(0)
    for took_s in answers:
        linger.on_answered(took_s)
        assert 0.001 <= linger.end_s <= 0.02


def test_request_after_slow_answer_waits_as_long_as_answers_take() -> None:
    assert _answered_in(0.004).patient_until_s == pytest.approx(7.004, abs=1e-5)


def test_it_waits_for_no_longer_than_the_longest_time() -> None:
    assert _answered_in(1).patient_until_s == pytest.approx(7.015)
    assert _answered_in(1, patience_max_s=0).patient_until_s == 0


def test_no_wait_after_a_quick_answer() -> None:
    assert _answered_in(0.0019).patient_until_s == 0


def test_end_of_patience_ends_the_wait_after_an_answer() -> None:
    linger = _answered_in(1)
    linger.end_patience()
    assert linger.patient_until_s == 0
    linger.on_ended(8)
    assert linger.patient_until_s == 0


@pytest.mark.parametrize(
    ("waiting", "records", "brokers", "completes_round"),
    [
        (57, 0, 3, False),
        (58, 0, 3, True),
        (19, 19, 3, False),
        (20, 20, 3, True),
        (29, 29, 2, False),
        (30, 30, 2, True),
        (29, 29, 1, False),
        (30, 30, 1, True),
    ],
)
def test_round_is_most_of_outstanding_or_equal_share_of_one_broker(
    waiting: int, records: int, brokers: int, completes_round: bool
) -> None:
    rule = FlushRule(0.005)
    _send(rule, 64)
    assert rule.completes_round(waiting, records, brokers) is completes_round


def test_equal_share_is_rounded_down_for_uneven_callers() -> None:
    rule = FlushRule(0.005)
    _send(rule, 16)
    assert [rule.completes_round(records, records, 3) for records in (4, 5, 6)] == [False, True, True]


def test_one_caller_alone_waits_for_no_round() -> None:
    rule = FlushRule(0.005)
    assert rule.completes_round(1, 1, 3), "nothing was ever outstanding"
    _send(rule, 1)
    assert rule.completes_round(1, 1, 3)


def test_a_record_that_comes_alone_waits_for_one_turn() -> None:
    rule = FlushRule(0.005)
    _send(rule, 64)
    assert not rule.is_complete(1, 0)
    assert rule.is_complete(1, 0)


def test_flush_waits_for_half_of_outstanding_while_turns_bring_some() -> None:
    rule = FlushRule(0.005)
    _send(rule, 64)
    assert [rule.is_complete(waiting, 0) for waiting in (1, 10, 31, 32)] == [False, False, False, True]


def test_flush_within_turn_needs_all_outstanding_and_resets_the_look() -> None:
    rule = FlushRule(0.005)
    _send(rule, 64)
    assert not rule.has_all(0)
    assert not rule.is_complete(10, 0)
    assert not rule.has_all(63), "what comes later in this turn would wait for an answer"
    assert rule.has_all(64)
    assert not rule.is_complete(10, 0), "as many as at the last look, but a flush was between"
    assert not FlushRule(0.005).has_all(0), "nothing is not enough, though nothing was ever outstanding"


def test_records_in_flight_are_outstanding_too() -> None:
    rule = FlushRule(0.005)
    rule.on_sent(32, 32)
    rule.on_sent(32, 0)
    rule.on_ended(32)
    rule.on_ended(32)
    assert not rule.is_complete(31, 0)
    assert rule.is_enough(32)


def test_one_caller_alone_never_waits() -> None:
    rule = FlushRule(0.005)
    assert rule.is_complete(1, 0), "the first record of all"
    for _ in range(10):
        _send(rule, 1)
        assert rule.is_complete(1, 0)


def test_callers_that_went_away_are_waited_for_less_and_less() -> None:
    rule = FlushRule(0.005)
    _send(rule, 64)
    sent = 0
    while not rule.is_enough(1):
        _send(rule, 1)
        sent += 1
    assert sent == 26, "an eighth less with each request"


def test_no_record_waits_longer_than_the_longest_time() -> None:
    rule = FlushRule(0.005)
    _send(rule, 1_000)
    assert [rule.is_complete(10 + turn, turn / 1_000) for turn in range(6)] == 5 * [False] + [True]
    assert not rule.is_complete(10, 0.006), "the time begins again with each flush"


def test_no_record_waits_where_the_longest_time_is_none() -> None:
    rule = FlushRule(0)
    _send(rule, 64)
    assert rule.is_complete(1, 0)


def _send(rule: FlushRule, records: int) -> None:
    rule.on_sent(records, 0)
    rule.on_ended(records)


def _answered_in(took_s: float, patience_max_s: float = 0.015) -> Linger:
    """Return the pace of requests after answers that took this long, at 7 s, when the last one has come."""
    linger = Linger(0.001, 0.02, patience_max_s)
    for _ in range(100):
        linger.on_sent(5)
        linger.on_answered(took_s)
    linger.on_ended(7)
    return linger
