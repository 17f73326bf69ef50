"""Brokers that asked for a pause are left alone until it is over."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.kafka.brokers.throttle import Throttle
from holdfast.metrics.instruments import Counter

MAX_MS = 1_000


def test_each_broker_is_left_alone_for_as_long_as_it_says() -> None:
    now_s, total_ms = [10.0], Counter()
    throttle = Throttle[int](MAX_MS, total_ms, lambda: now_s[0])
    assert throttle.on_answer(1, 250) == 250
    assert throttle.on_answer(2, 0) == 0
    assert throttle.wait_s(1) == pytest.approx(0.25)
    assert throttle.wait_s(2) == throttle.wait_s(3) == 0.0
    assert throttle.until_s(1) == pytest.approx(10.25)
    now_s[0] = 10.3
    assert throttle.wait_s(1) == 0.0
    assert total_ms.value == 250


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(-1, 2**31 - 1))))
def test_a_pause_is_bounded_and_never_cut_short(answers: list[tuple[int, int]]) -> None:
    now_ms, until_ms, total_ms = 0, 0, Counter()
    throttle = Throttle[str](MAX_MS, total_ms, lambda: now_ms / 1_000)
    wanted = 0
    for passed_ms, asked_ms in answers:
        now_ms += passed_ms
        pause_ms = min(max(asked_ms, 0), MAX_MS)
        assert throttle.on_answer("broker", asked_ms) == pause_ms
        if pause_ms:
            until_ms, wanted = max(until_ms, now_ms + pause_ms), wanted + pause_ms
        assert throttle.wait_s("broker") == pytest.approx(max(0, until_ms - now_ms) / 1_000)
    assert total_ms.value == wanted
