"""Batches take in as many records as fit."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.compaction.batch_sizer import RECORDS_MIN, Pace
from tests.pure.compaction.reports import batch

RECORDS_MAX, BYTES_MAX = 1_000_000, 1 << 28


def take(pace: Pace, record_bytes: int) -> bool:
    return pace.adapt(batch(records=pace.records, bytes_in=pace.records * record_bytes))


@given(st.lists(st.integers(1, 1 << 20), min_size=1))
def test_the_second_batch_of_a_size_fits(sizes: list[int]) -> None:
    pace = Pace(RECORDS_MAX, BYTES_MAX)
    for record_bytes in sizes:
        take(pace, record_bytes)
        assert pace.records * record_bytes <= BYTES_MAX or pace.records == RECORDS_MIN
        assert RECORDS_MIN <= pace.records <= RECORDS_MAX


@given(st.integers(1, 1 << 20))
def test_it_comes_to_rest(record_bytes: int) -> None:
    pace = Pace(RECORDS_MAX, BYTES_MAX)
    assert [take(pace, record_bytes) for _ in range(30)][1:] == [False] * 29


def test_small_records_let_it_recover() -> None:
    pace = Pace(RECORDS_MAX, BYTES_MAX)
    take(pace, 1 << 16)
    assert pace.records < 5_000
    while take(pace, 50):
        pass
    assert pace.records == RECORDS_MAX


def test_a_batch_that_is_far_from_full_says_nothing() -> None:
    pace = Pace(RECORDS_MAX, BYTES_MAX)
    take(pace, 1 << 16)
    assert not pace.adapt(batch(records=10, bytes_in=500))
