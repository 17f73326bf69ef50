"""Batches take in as many records as fit."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.compaction.batch_sizer import RECORDS_MIN, BatchSizer
from tests.pure.compaction.reports import batch

RECORDS_MAX, BYTES_MAX = 1_000_000, 1 << 28


def take(sizer: BatchSizer, record_bytes: int) -> bool:
    return sizer.adapt(batch(records=sizer.records, bytes_in=sizer.records * record_bytes))


@given(st.lists(st.integers(1, 1 << 20), min_size=1))
def test_the_second_batch_of_a_size_fits(sizes: list[int]) -> None:
    sizer = BatchSizer(RECORDS_MAX, BYTES_MAX)
    for record_bytes in sizes:
        take(sizer, record_bytes)
        assert sizer.records * record_bytes <= BYTES_MAX or sizer.records == RECORDS_MIN
        assert RECORDS_MIN <= sizer.records <= RECORDS_MAX


@given(st.integers(1, 1 << 20))
def test_it_comes_to_rest(record_bytes: int) -> None:
    sizer = BatchSizer(RECORDS_MAX, BYTES_MAX)
    assert [take(sizer, record_bytes) for _ in range(30)][1:] == [False] * 29


def test_small_records_let_it_recover() -> None:
    sizer = BatchSizer(RECORDS_MAX, BYTES_MAX)
    take(sizer, 1 << 16)
    assert sizer.records < 5_000
    while take(sizer, 50):
        pass
    assert sizer.records == RECORDS_MAX


def test_a_batch_that_is_far_from_full_says_nothing() -> None:
    sizer = BatchSizer(RECORDS_MAX, BYTES_MAX)
    take(sizer, 1 << 16)
    assert not sizer.adapt(batch(records=10, bytes_in=500))
