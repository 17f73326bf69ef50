"""Lines of one kind have a number per minute, and what was left out is counted."""

from holdfast.metrics.line_limit import LineLimiter


def test_each_kind_has_its_own_share_of_each_minute_and_what_was_left_out_is_counted() -> None:
    now_ms = 0
    limiter = LineLimiter(lambda: now_ms)
    assert [limiter.admit("line", 2, "a") for _ in range(5)] == [{}, {}, None, None, None]
    assert limiter.admit("line", 2, "b") == {}
    assert limiter.admit("other_line", 2, "a") == {}
    now_ms = 59_900
    assert limiter.admit("line", 2, "a") is None
    now_ms = 60_000
    assert [limiter.admit("line", 2, "a"), limiter.admit("line", 2, "a")] == [{"left_out": 4}, {}]


def test_beyond_a_number_of_kinds_counts_start_at_zero_and_the_next_line_tells_what_was_left_out() -> None:
    limiter = LineLimiter(lambda: 0)
    assert (limiter.admit("line", 1, "a"), limiter.admit("line", 1, "a")) == ({}, None)
    assert (limiter.admit("other_line", 1), limiter.admit("other_line", 1)) == ({}, None)
    for number in range(999):
        assert limiter.admit("line", 1, str(number)) == {}
    assert limiter.admit("line", 1, "999") == {"left_out": 1}
    assert limiter.admit("line", 1, "a") == {}
    assert limiter.admit("other_line", 1) is None, "the kinds of one event give up no count of another"


def test_what_another_limit_left_out_is_told_by_the_line_that_is_written() -> None:
    limiter = LineLimiter(iter([0, 1_000, 61_000]).__next__)
    found = [limiter.admit("line", 1, untold=untold) for untold in (2, 3, 4)]
    assert found == [{"left_out": 2}, None, {"left_out": 8}]


def test_lines_about_a_silent_broker_are_left_out_once_a_watch_tells_them() -> None:
    limiter = LineLimiter()
    assert not limiter.leave_out()
    limiter.leave_effects_to(lambda partition: partition in (None, 3))
    assert (limiter.leave_out(), limiter.leave_out(3), limiter.leave_out(4)) == (True, True, False)
