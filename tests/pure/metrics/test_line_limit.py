"""Lines of one kind have a number per minute, and what was left out is counted."""

from holdfast.metrics.line_limit import LineLimit


def test_each_kind_has_its_own_share_of_each_minute_and_what_was_left_out_is_counted() -> None:
    now_s = 0.0
    limit = LineLimit(2, lambda: now_s)
    assert [limit.admit("a") for _ in range(5)] == [{}, {}, None, None, None]
    assert limit.admit("b") == {}
    now_s = 59.9
    assert limit.admit("a") is None
    now_s = 60.0
    assert [limit.admit("a"), limit.admit("a")] == [{"left_out": 4}, {}]


def test_beyond_a_number_of_kinds_counts_start_at_zero_and_the_next_line_tells_what_was_left_out() -> None:
    limit = LineLimit(1, lambda: 0.0)
    assert (limit.admit("a"), limit.admit("a")) == ({}, None)
    for number in range(999):
        assert limit.admit(str(number)) == {}
    assert limit.admit("999") == {"left_out": 1}
    assert limit.admit("a") == {}


def test_what_another_limit_left_out_is_told_by_the_line_that_is_written() -> None:
    limit = LineLimit(1, iter([0.0, 1.0, 61.0]).__next__)
    assert [limit.admit("a", 2), limit.admit("a", 3), limit.admit("a", 4)] == [{"left_out": 2}, None, {"left_out": 8}]
