"""How long records linger for a broker: as long as its answers usually take, within bounds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.runtime.kafka_log.linger import Linger


def test_before_the_first_answer_it_is_the_least_time() -> None:
    linger = Linger(0.001, 0.02)
    linger.on_sent(5)
    assert linger.end_s == pytest.approx(5.001)


def test_it_comes_to_be_what_answers_take() -> None:
    linger = Linger(0.001, 0.02)
    linger.on_sent(5)
    for _ in range(100):
        linger.on_answered(0.01)
    assert linger.end_s == pytest.approx(5.01, abs=1e-6)
    linger.on_answered(0.05)
    assert linger.end_s == pytest.approx(5.015, abs=1e-6), "an eighth of the way to the newest"


def test_nothing_lingers_where_the_longest_time_is_none() -> None:
    linger = Linger(0.001, 0)
    linger.on_sent(5)
    linger.on_answered(0.01)
    assert linger.end_s == 5


@given(st.lists(st.floats(0, 1_000)))
def test_it_stays_within_its_bounds(answers: list[float]) -> None:
    linger = Linger(0.001, 0.02)
    linger.on_sent(0)
    for took_s in answers:
        linger.on_answered(took_s)
        assert 0.001 <= linger.end_s <= 0.02
