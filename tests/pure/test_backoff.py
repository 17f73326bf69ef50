"""Pauses between tries: how long, until when, and when they are short again."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from holdfast.backoff import Backoff


def test_pauses_double_up_to_the_longest_and_begin_again_when_things_go_well() -> None:
    backoff = Backoff(100, 350, lambda: 1.0)
    assert [backoff.fail(0) for _ in range(4)] == [100, 200, 350, 350]
    backoff.reset()
    assert [backoff.fail(0) for _ in range(2)] == [100, 200]


def test_the_first_failure_in_a_row_may_be_free() -> None:
    backoff = Backoff(100, 350, lambda: 1.0)
    assert [backoff.fail(0, is_first_free=True) for _ in range(3)] == [0, 200, 350]
    backoff.reset()
    assert backoff.fail(0, is_first_free=True) == 0


def test_a_pause_is_over_at_its_end() -> None:
    backoff = Backoff(100, 350, lambda: 0.0)
    assert backoff.is_over(0)
    assert (backoff.fail(1_000), backoff.until_ms()) == (50, 1_050)
    assert (backoff.is_over(1_049), backoff.is_over(1_050)) == (False, True)


def test_who_keeps_the_time_itself_is_told_the_same_pauses_and_sets_no_end() -> None:
    backoff, told = (Backoff(100, 350, lambda: 1.0) for _ in range(2))
    assert [told.next_pause_ms() for _ in range(4)] == [backoff.fail(0) for _ in range(4)]
    told.reset()
    assert [told.next_pause_ms(is_first_free=True) for _ in range(2)] == [0, 200]
    assert (told.until_ms(), backoff.until_ms()) == (0, 350)


@given(st.integers(1, 10_000), st.integers(1, 10_000_000), st.integers(0, 60), st.integers())
def test_a_pause_is_half_to_all_of_its_length(first_ms: int, longest_ms: int, failures: int, seed: int) -> None:
    backoff, longest = (Backoff(first_ms, longest_ms, jitter) for jitter in (Random(seed).random, lambda: 1.0))
    for _ in range(failures):
        backoff.fail(0)
        longest.fail(0)
    whole_ms = longest.fail(0)
    assert whole_ms // 2 <= backoff.fail(0) <= whole_ms <= longest_ms
