"""The strip of offsets: bounded, whole, and with the stuck record in it however large the window is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.page.source import StateRange, WindowView
from holdfast.page.web.strip import AFTER, HEIGHT, MARKS_MAX, UNTOLD, WIDTH, Strip, draw_in_steps, with_gaps


def window(ranges: list[StateRange], start: int | None = 0, log_end: int | None = None) -> WindowView:
    end = ranges[-1].last_offset + 1 if ranges else start
    return WindowView(0, "g", "t", "id", 0, {}, start, end, tuple(ranges), 0, log_end, "")


def draw_strip(view: WindowView) -> Strip | None:
    steps = draw_in_steps(view)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            strip: Strip | None = end.value
            return strip


def drawn(ranges: list[StateRange], start: int | None = 0, log_end: int | None = None) -> Strip:
    strip = draw_strip(window(ranges, start, log_end))
    assert strip is not None
    return strip


def acked(first: int, last: int) -> StateRange:
    return StateRange(first, last, "acknowledged", 1)


def tried(first: int, count: int) -> StateRange:
    return StateRange(first, first, "available", count)


def test_each_range_and_gap_of_a_small_window_is_a_mark() -> None:
    strip = drawn([acked(10, 12), tried(13, 4), acked(16, 19)], start=10)
    shown = [(mark.first_offset, mark.last_offset, mark.state, mark.is_pinned) for mark in strip.marks]
    assert shown == [
        (10, 12, "acknowledged", False),
        (13, 13, "available", True),
        (14, 15, UNTOLD, False),
        (16, 19, "acknowledged", False),
    ]
    assert strip.marks[1].text == "offset 13: to be given out again, 4 deliveries"
    assert strip.summary == "Offsets 10 to 19 in 3 ranges; a record that is not finished was delivered 4 times."


@pytest.mark.parametrize("count", [241, 50_000, 3_000_000])
def test_one_stuck_record_of_a_large_window_is_seen(count: int) -> None:
    at = count * 2 // 3
    strip = drawn([acked(0, at - 1), tried(at, 4), acked(at + 1, count - 1)])
    (pinned,) = [mark for mark in strip.marks if mark.is_pinned]
    assert pinned.target == at
    assert pinned.width >= WIDTH / MARKS_MAX
    assert f"{at}: to be given out again, 4 deliveries" in pinned.text


def test_fifty_thousand_ranges_are_a_bounded_number_of_marks() -> None:
    ranges = [acked(place, place) if place % 2 else tried(place, 1) for place in range(50_000)]
    ranges[31_337] = tried(31_337, 5)
    strip = drawn(ranges, log_end=90_000)
    assert len(strip.marks) <= MARKS_MAX
    assert [mark.target for mark in strip.marks if mark.is_pinned] == [31_337]


def test_the_records_that_come_after_leave_the_window_its_room() -> None:
    strip = drawn([tried(0, 2)], log_end=10_000_000)
    record, after = strip.marks
    assert record.width > WIDTH * 0.9
    assert (after.state, after.first_offset, after.last_offset, after.target) == (AFTER, 1, 9_999_999, None)


def test_a_share_partition_without_a_start_offset_has_no_strip() -> None:
    assert draw_strip(window([], start=None)) is None


def test_a_share_partition_with_nothing_to_do_has_no_mark() -> None:
    strip = drawn([], start=57, log_end=57)
    assert (strip.marks, strip.summary) == ((), "No record waits from offset 57 on.")


def test_offsets_below_the_start_offset_are_not_shown() -> None:
    assert list(with_gaps([acked(0, 3), acked(4, 8)], 6, 10)) == [acked(6, 8), StateRange(9, 9, UNTOLD, 0)]


lengths = st.lists(
    st.tuples(st.integers(0, 400), st.integers(1, 400), st.sampled_from(["available", "acknowledged", "archived"])),
    max_size=80,
)


@given(lengths, st.integers(0, 2**62), st.integers(1, 7), st.booleans())
def test_marks_cover_the_strip_without_overlaps(
    given_lengths: list[tuple[int, int, str]], start: int, count: int, has_more: bool
) -> None:
    ranges, due = [], start
    for gap, size, state in given_lengths:
        ranges.append(StateRange(due + gap, due + gap + size - 1, state, count))
        due = ranges[-1].last_offset + 1
    strip = drawn(ranges, start, due + 5 if has_more else due)
    assert len(strip.marks) <= MARKS_MAX
    at, offset = 0.0, start
    for mark in strip.marks:
        assert mark.x == pytest.approx(at, abs=0.02)
        assert mark.first_offset == offset
        assert 0 < mark.height <= HEIGHT
        at, offset = mark.x + mark.width, mark.last_offset + 1
    if strip.marks:
        assert at == pytest.approx(WIDTH, abs=0.02)


def test_a_state_that_a_newer_kafka_has_is_shown_as_one_that_is_not_known() -> None:
    strip = drawn([acked(0, 3), StateRange(4, 4, "7", 1)])
    mark = strip.marks[1]
    assert (mark.state, mark.height) == ("7", HEIGHT)
    assert mark.text == "offset 4: in state 7, which this page does not know, 1 delivery"


def test_a_large_window_is_drawn_in_steps() -> None:
    ranges = [tried(2 * place, 1) for place in range(50_000)]
    # With a gap after each but the last.
    assert sum(1 for _ in draw_in_steps(window(ranges))) == 99
