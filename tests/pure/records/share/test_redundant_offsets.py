"""The redundant offset: which prefix of a log nobody needs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.redundant_offsets import RedundantOffsetTracker
from tests.vectors.parity import last_redundant_offset

KEYS = [SharePartitionKey("group", bytes(16), partition) for partition in range(5)]


def test_the_worked_example() -> None:
    tracker, seen = RedundantOffsetTracker(), []
    for number, offset, is_tombstone in [
        (1, 0, False),
        (2, 1, False),
        (1, 3, False),
        (2, 5, False),
        (3, 6, False),
        (1, 8, False),
        (2, 9, True),
        (3, 12, False),
        (1, 13, True),
        (3, 14, True),
        (4, 20, False),
    ]:
        tracker.update(KEYS[number], offset, is_tombstone=is_tombstone)
        seen.append(last_redundant_offset(tracker, offset))
    assert seen == [None, None, 1, 3, 3, 5, 6, 8, 12, 14, 20]


def test_an_empty_tracker_has_nothing_to_prune() -> None:
    tracker = RedundantOffsetTracker()
    assert tracker.oldest() is None
    assert tracker.newest_snapshot_offset(KEYS[0]) is None
    assert len(tracker) == 0


@given(st.lists(st.tuples(st.sampled_from(KEYS), st.booleans()), max_size=30), st.integers(0, 40))
def test_the_tracker_agrees_with_a_search_through_all_live_keys(
    records: list[tuple[SharePartitionKey, bool]], below: int
) -> None:
    tracker, live, needed = RedundantOffsetTracker(), dict[SharePartitionKey, int](), None
    for offset, (key, is_tombstone) in enumerate(records, 1):
        tracker.update(key, offset, is_tombstone=is_tombstone)
        live[key] = offset
        needed = min(live.values())
        if is_tombstone:
            del live[key]
        assert last_redundant_offset(tracker, offset) == needed
        assert len(tracker) == len(live)
        assert tracker.oldest() == min(live.items(), key=lambda item: item[1], default=None)
        assert [tracker.newest_snapshot_offset(key) for key in KEYS] == [live.get(key) for key in KEYS]
    by_age = sorted(live, key=lambda key: live[key])
    assert list(tracker.below(below)) == [key for key in by_age if live[key] < below]
