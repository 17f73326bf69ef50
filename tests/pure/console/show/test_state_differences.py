"""Before → after and what is lost, compared with looking at every single offset."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from holdfast.console.show.state_differences import describe, losses, range_changes
from holdfast.records.share.batches import ACKNOWLEDGED, ARCHIVED, AVAILABLE, STATE_NAMES, StateBatch
from holdfast.records.share.combining import combine
from holdfast.records.share.replay import ShareState

OFFSETS = range(24)


def state(start_offset: int, *batches: StateBatch) -> ShareState:
    return ShareState(0, 1, 2, start_offset, -1, 0, 0, combine((), batches, start_offset), 2, 1, 0)


batches = st.lists(
    st.builds(
        lambda first, length, delivery_state, count: StateBatch(first, first + length, delivery_state, count),
        st.integers(0, 19),
        st.integers(0, 4),
        st.sampled_from((AVAILABLE, ACKNOWLEDGED, ARCHIVED)),
        st.integers(1, 2),
    ),
    max_size=6,
)
states = st.none() | st.builds(lambda start, found: state(start, *found), st.integers(-1, 22), batches)


def covering(one: ShareState | None, offset: int) -> StateBatch | None:
    found = () if one is None else one.state_batches
    return next((batch for batch in found if batch[0] <= offset <= batch[1]), None)


def text(one: ShareState | None, offset: int) -> str:
    batch = covering(one, offset)
    return "none" if batch is None else f"{STATE_NAMES[batch[2]]}:{batch[3]}"


@given(states, states)
def test_the_ranges_that_change_are_those_of_the_single_offsets(
    before: ShareState | None, after: ShareState | None
) -> None:
    start = -1 if after is None else after.start_offset
    single = {
        offset: (text(before, offset), "below the start" if offset < start else text(after, offset))
        for offset in OFFSETS
        if covering(before, offset) or covering(after, offset)
    }
    changes = list(range_changes(before, after))
    found = {
        offset: (change.before, change.after)
        for change in changes
        for offset in range(change.first_offset, change.last_offset + 1)
    }
    assert found == {offset: pair for offset, pair in single.items() if pair[0] != pair[1]}
    for one, other in pairwise(changes):
        is_neighbour = one.last_offset + 1 == other.first_offset
        assert one.last_offset < other.first_offset
        assert not (is_neighbour and one[2:] == other[2:]), "neighbours that change alike are one range"


@given(states, states, st.integers(0, 10), st.integers(0, 14))
def test_what_is_lost_is_what_single_offsets_lose(
    before: ShareState | None, after: ShareState | None, first: int, length: int
) -> None:
    found = losses(before, after, (first, first + length))
    start = -1 if after is None else after.start_offset
    forgotten = {
        offset
        for offset in OFFSETS
        if offset >= start and covering(before, offset) is not None and covering(after, offset) is None
    }
    assert any("what became of" in loss for loss in found) == bool(forgotten)
    begun = -1 if before is None else before.start_offset
    assert any("is decided again" in loss for loss in found) == (begun != -1 and start == -1)
    assert any("goes back" in loss for loss in found) == (begun > start >= 0)
    finished = {ACKNOWLEDGED, ARCHIVED}
    passed = {
        offset
        for offset in range(max(begun, first), min(start, first + length))
        if begun != -1 and ((batch := covering(before, offset)) is None or batch[2] not in finished)
    }
    assert any("passes over" in loss for loss in found) == bool(passed)


def test_numbers_are_reported_as_ranges_and_none_as_what_it_means() -> None:
    before = state(5, StateBatch(5, 6, ACKNOWLEDGED, 1), StateBatch(9, 9, AVAILABLE, 2))
    assert describe(before, state(-1)) == [
        "start offset: 5 → -1 (not decided)",
        "offsets 5-6: acknowledged:1 → none",
        "offset 9: available:2 → none",
    ]
    assert losses(before, state(-1)) == [
        "what became of 3 offsets (5 to 9) is forgotten",
        "the start offset 5 is forgotten, and where the group goes on is decided again",
    ]
    assert losses(before, state(12)) == [
        "the start offset passes over offsets 7-11, which are not finished and will not be delivered any more"
    ]


def test_a_large_change_is_shown_in_part() -> None:
    many = state(0, *(StateBatch(2 * number, 2 * number, AVAILABLE, 1) for number in range(30)))
    lines = describe(state(0), many)
    assert (len(lines), lines[-1]) == (21, "… and 10 more ranges of offsets, which --json shows")
