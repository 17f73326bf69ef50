"""The fold of the config topic: the newest value of each setting, within its bound."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.daemon.config_topic.values import ClusterValues, TooManyValues

NAMES = st.sampled_from(["a", "bb", "moons_max"])
RECORDS = st.lists(st.tuples(NAMES, st.none() | st.text(max_size=3)))


@given(RECORDS, st.integers(0, 20))
def test_the_newest_value_holds_and_a_tombstone_unsets_in_whatever_pieces_it_is_read(
    written: list[tuple[str, str | None]], cut: int
) -> None:
    records = [
        (offset, name.encode(), None if text is None else text.encode()) for offset, (name, text) in enumerate(written)
    ]
    values = ClusterValues(bytes_max=100)
    assert values.add(records[:cut]) == []
    assert values.add(records[cut:]) == []
    assert values.texts() == {name: text for name, text in sorted(dict(written).items()) if text is not None}
    assert values.offset == len(records) - 1


@given(RECORDS)
def test_a_compacted_topic_gives_the_same_values(written: list[tuple[str, str | None]]) -> None:
    records = [
        (offset, name.encode(), None if text is None else text.encode()) for offset, (name, text) in enumerate(written)
    ]
    newest = {key: (offset, key, value) for offset, key, value in records}
    whole, compacted = ClusterValues(bytes_max=100), ClusterValues(bytes_max=100)
    whole.add(records)
    compacted.add(sorted(newest.values()))
    assert (compacted.values, compacted.offset) == (whole.values, whole.offset)


def test_what_is_no_setting_is_passed_over_and_named() -> None:
    values = ClusterValues(bytes_max=100)
    records = [(4, None, b"1"), (5, b"", b"1"), (6, b"\xff", b"1"), (7, b"a", b"\xff"), (9, b"a", b"1")]
    assert values.add(records) == [4, 5, 6, 7]
    assert (values.texts(), values.offset) == ({"a": "1"}, 9)
    values.reached(12)
    values.reached(5)
    assert values.offset == 11


def test_the_bound_counts_what_is_held_and_not_what_was_replaced() -> None:
    values = ClusterValues(bytes_max=5)
    values.add([(offset, b"a", b"1234") for offset in range(9)])
    values.add([(9, b"a", None), (10, b"b", b"\xc3\xa91")])
    with pytest.raises(TooManyValues, match="more than 5 bytes"):
        values.add([(11, b"c", b"1")])
    assert values.texts() == {"b": "é1"}
