"""Combining gives Kafka's shape, and per offset the greatest (count, state)."""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.records.share.batches import ACKNOWLEDGED, StateBatch
from holdfast.records.share.combining import _is_settled, _sweep, combine
from tests.pure.records.share.kafka_combiner import combine_literally
from tests.pure.records.strategies import batch_lists, close_batches, start_offsets
from tests.vectors.runner import DATA


def per_offset(batches: Iterable[StateBatch], start_offset: int) -> dict[int, tuple[int, int]]:
    """Return, by a simple model, the greatest (count, state) of all batches that cover an offset."""
    result: dict[int, tuple[int, int]] = {}
    for first, last, state, count in batches:
        for offset in range(first, last + 1):
            if offset >= start_offset or start_offset == -1:
                result[offset] = max(result.get(offset, (count, state)), (count, state))
    return result


def b(text: str) -> tuple[StateBatch, ...]:
    """Parse `"100-109 s0 c2, …"` as batches."""
    batches = []
    for piece in filter(None, text.split(", ")):
        offsets, state, count = piece.split(" ")
        first, last = offsets.split("-")
        batches.append(StateBatch(int(first), int(last), int(state[1:]), int(count[1:])))
    return tuple(batches)


@pytest.mark.parametrize(
    ("current", "incoming", "start_offset", "combined"),
    [
        ("100-109 s0 c2", "100-109 s2 c1", -1, "100-109 s0 c2"),
        ("100-109 s2 c1", "100-109 s4 c1", -1, "100-109 s4 c1"),
        ("100-119 s0 c1", "105-109 s2 c1", -1, "100-104 s0 c1, 105-109 s2 c1, 110-119 s0 c1"),
        ("100-109 s0 c3", "105-114 s0 c2", -1, "100-109 s0 c3, 110-114 s0 c2"),
        ("100-104 s0 c2", "100-109 s0 c1", -1, "100-104 s0 c2, 105-109 s0 c1"),
        ("100-109 s2 c1", "110-119 s2 c1", -1, "100-119 s2 c1"),
        ("100-109 s2 c1, 110-119 s0 c2", "120-129 s0 c1", 105, "105-109 s2 c1, 110-119 s0 c2, 120-129 s0 c1"),
        ("100-109 s0 c1, 110-119 s0 c2, 120-129 s0 c1", "120-129 s2 c1", 110, "110-119 s0 c2, 120-129 s2 c1"),
        ("0-4 s2 c1, 5-9 s0 c1", "5-9 s2 c1", -1, "0-9 s2 c1"),
        ("0-4 s2 c1, 5-9 s0 c1", "5-9 s2 c2, 10-14 s0 c1", 5, "5-9 s2 c2, 10-14 s0 c1"),
        ("0-3 s2 c2, 5-8 s0 c1", "5-9 s2 c2, 10-14 s0 c1", -1, "0-3 s2 c2, 5-9 s2 c2, 10-14 s0 c1"),
        ("100-109 s3 c1", "100-104 s4 c1, 105-109 s2 c1", -1, "100-104 s4 c1, 105-109 s3 c1"),
        (
            "100-129 s0 c1",
            "105-109 s2 c1, 105-114 s0 c2, 120-124 s4 c3",
            103,
            "103-104 s0 c1, 105-114 s0 c2, 115-119 s0 c1, 120-124 s4 c3, 125-129 s0 c1",
        ),
        ("", "", 100, ""),
        ("100-109 s0 c1", "", 110, ""),
        ("", "150-140 s0 c1", -1, "150-140 s0 c1"),
        ("100-109 s0 c1", "150-140 s0 c1", -1, "100-109 s0 c1"),
        ("150-140 s0 c1", "160-169 s0 c1", -1, "160-169 s0 c1"),
    ],
)
def test_combine_by_example(current: str, incoming: str, start_offset: int, combined: str) -> None:
    assert combine(b(current), b(incoming), start_offset) == b(combined)
    settled = combine((), b(current), -1)
    if settled == b(current):
        assert combine(settled, b(incoming), start_offset) == b(combined)


@given(batch_lists, batch_lists, start_offsets)
@example([*b("0-4 s2 c1, 5-9 s0 c1")], [*b("5-9 s2 c1")], -1)
def test_the_shape_is_that_of_the_literal_algorithm(
    current: list[StateBatch], incoming: list[StateBatch], start_offset: int
) -> None:
    assert list(combine(current, incoming, start_offset)) == combine_literally(current, incoming, start_offset)


@given(st.lists(st.tuples(batch_lists, start_offsets), min_size=1, max_size=6))
def test_the_shape_stays_that_of_the_literal_algorithm_over_many_writes(
    writes: list[tuple[list[StateBatch], int]],
) -> None:
    ours: Sequence[StateBatch] = ()
    literal: list[StateBatch] = []
    for incoming, start_offset in writes:
        ours = combine(ours, tuple(incoming), start_offset)
        literal = combine_literally(literal, incoming, start_offset)
        assert list(ours) == literal


@given(batch_lists, batch_lists, start_offsets)
def test_the_greatest_count_and_state_of_each_offset_wins(
    current: list[StateBatch], incoming: list[StateBatch], start_offset: int
) -> None:
    combined = combine(current, incoming, start_offset)
    assert per_offset(combined, -1) == per_offset([*current, *incoming], start_offset)
    if len(current) + len(incoming) > 1:
        assert all(before.last_offset < after.first_offset for before, after in pairwise(combined))


@given(batch_lists, batch_lists, start_offsets)
def test_combining_again_changes_no_offset(
    current: list[StateBatch], incoming: list[StateBatch], start_offset: int
) -> None:
    combined = combine(current, incoming, start_offset)
    assert per_offset(combine(combined, incoming, start_offset), -1) == per_offset(combined, -1)
    assert per_offset(combine(combined, combined, start_offset), -1) == per_offset(combined, -1)


@given(batch_lists, batch_lists, start_offsets, st.randoms(use_true_random=False))
def test_neither_order_nor_duplicates_of_the_input_matter(
    current: list[StateBatch], incoming: list[StateBatch], start_offset: int, random: object
) -> None:
    everything = [*current, *incoming]
    if len(everything) < 2:
        return
    shuffled = everything + everything[:2]
    random.shuffle(shuffled)  # type: ignore[attr-defined] # hypothesis hands out a Random, typed as object here
    cut = len(shuffled) // 2
    assert combine(shuffled[:cut], shuffled[cut:], start_offset) == combine(current, incoming, start_offset)


@given(batch_lists, st.lists(close_batches(), max_size=3), start_offsets)
def test_batches_marked_as_settled_are_settled(
    current: list[StateBatch], incoming: list[StateBatch], start_offset: int
) -> None:
    combined = combine(combine((), current, -1), incoming, start_offset)
    is_settled = all(batch.first_offset <= batch.last_offset for batch in combined) and all(
        before.last_offset < after.first_offset
        and (before.last_offset + 1 < after.first_offset or before[2:] != after[2:])
        for before, after in pairwise(combined)
    )
    assert (type(combined) is not tuple) == is_settled


@given(st.lists(close_batches(), min_size=1, max_size=12))
def test_the_sweep_has_the_same_winners_and_the_smallest_shape(batches: list[StateBatch]) -> None:
    swept = _sweep(batches)
    assert per_offset(swept, -1) == per_offset(batches, -1)
    assert combine(list(swept), (), -1) == swept
    assert _is_settled(swept)


def test_thousands_of_batches_that_all_overlap_take_no_quadratic_time(monkeypatch: pytest.MonkeyPatch) -> None:
    put_back = 0

    def heapreplace(waiting: list[Any], entry: object) -> Any:
        nonlocal put_back
        put_back += 1
        return heapq.heapreplace(waiting, entry)

    monkeypatch.setattr("holdfast.records.share.combining.heapreplace", heapreplace)
    size = 2000
    tiles = [StateBatch(offset, offset, 2 * (offset % 2), 5) for offset in range(size)]
    long = [StateBatch(0, size + more, 0, 1) for more in range(size)]
    # The literal algorithm would cut each of the long ones at each tile, four million times.
    assert combine((), tiles + long, -1) == (*tiles, StateBatch(size, 2 * size - 1, 0, 1))
    assert 0 < put_back <= 16 * len(tiles + long)


@given(batch_lists, start_offsets)
def test_counts_of_unacknowledged_records_survive_a_move_of_the_start(
    current: list[StateBatch], start_offset: int
) -> None:
    state = combine((), current, -1)
    moved = combine(state, (StateBatch(60, 69, ACKNOWLEDGED, 1),), start_offset)
    waiting = {
        offset: count_and_state
        for offset, count_and_state in per_offset(state, start_offset).items()
        if count_and_state[1] == 0
    }
    assert waiting.items() <= per_offset(moved, -1).items()


def test_a_move_of_the_start_offset_keeps_the_counts_of_the_review() -> None:
    state = b("100-109 s0 c1, 110-119 s0 c2, 120-129 s0 c0")
    assert combine(state, b("120-129 s2 c0"), 110) == b("110-119 s0 c2, 120-129 s2 c0")


def test_every_recorded_case_is_also_right_in_two_writes() -> None:
    """The recorded cases start from raw batches; here the state goes through `combine` first, as in a shard."""
    with (DATA / "combiner.jsonl").open(encoding="utf-8") as lines:
        for line in lines:
            case = json.loads(line)["in"]
            current = combine((), [StateBatch(*batch) for batch in case["sofar"]], -1)
            incoming = [StateBatch(*batch) for batch in case["new"]]
            start_offset = case["startOffset"]
            assert list(combine(current, incoming, start_offset)) == combine_literally(current, incoming, start_offset)
