"""Packed batches are a sequence as their twin in Python is, and have Kafka's form; see `test_native` for what makes them."""

from __future__ import annotations

import copy
import gc
import operator
import pickle
import struct
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.api.share_state import pack_batches
from holdfast.records.native import twins
from holdfast.records.share.batches import (
    ACKNOWLEDGED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    OFFSET_MAX,
    SettledBatches,
    StateBatch,
)
from holdfast.records.share.combining import combine, combine_in_python, pack
from holdfast.runtime.build import BUILD

if twins is None:
    assert BUILD == "pure", "the compiled build lacks what is written in C"
    pytest.skip("the pure build has nothing in C", allow_module_level=True)

from tests.pure.records.test_native import ANYWHERE, CROWDED, LONGS, packed

KAFKA_BATCH = struct.Struct(">qqbhx")


def _or_error(call: Callable[[], object]) -> object:
    try:
        return call()
    except (IndexError, ValueError) as error:
        return type(error)


@given(st.lists(CROWDED | ANYWHERE, max_size=6).map(tuple))
def test_packing_agrees_with_python_about_settled_batches(batches: tuple[StateBatch, ...]) -> None:
    is_settled = type(combine_in_python(batches, (), -1)) is SettledBatches and len(batches) == sum(
        1 for each in batches if each.first_offset <= each.last_offset
    )
    found = twins.pack(batches)
    assert found is None or (tuple(found) == batches and is_settled)
    settled = combine_in_python((), batches, -1)
    if type(settled) is SettledBatches:
        assert twins.pack(settled) == settled


SETTLED_BATCHES = (
    st.lists(CROWDED, max_size=9)
    .map(lambda batches: combine_in_python((), batches, -1))
    .filter(lambda batches: type(batches) is SettledBatches)
)


@given(SETTLED_BATCHES, SETTLED_BATCHES, st.slices(9), st.integers(-12, 12))
def test_packed_batches_are_a_sequence_as_their_twin_is(
    twin: tuple[StateBatch, ...], other: tuple[StateBatch, ...], part: slice, index: int
) -> None:
    batches = packed(twin)
    assert (len(batches), bool(batches), repr(batches)) == (len(twin), bool(twin), repr(twin))
    assert list(batches) == list(twin)
    assert list(reversed(batches)) == list(reversed(twin))
    assert batches[part] == twin[part]
    assert type(batches[part]) is tuple
    assert _or_error(lambda: batches[index]) == _or_error(lambda: twin[index])
    pairs: list[tuple[Any, Any]]
    pairs = [(batches, packed(other)), (batches, other), (twin, packed(other)), (batches, packed(twin))]
    for compare in (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge):
        for one, two in pairs:
            assert compare(one, two) == compare(tuple(one), tuple(two))
    assert hash(batches) == hash(twin) == hash(tuple(twin))
    for each in {*twin, *other}:
        assert (each in batches, batches.count(each)) == (each in twin, twin.count(each))
        assert _or_error(partial(batches.index, each)) == _or_error(partial(twin.index, each))
    assert batches != list(twin)


def test_packed_batches_are_copied_and_sent_as_their_twin() -> None:
    batches = packed((StateBatch(0, 9, 2, 1), StateBatch(10, 19, 0, 3)))
    for made in (copy.deepcopy(batches), copy.copy(batches), pickle.loads(pickle.dumps(batches))):
        assert type(made) is SettledBatches
        assert made == batches


def test_packed_batches_are_made_here_alone_and_cannot_be_changed() -> None:
    batches = packed((StateBatch(0, 9, 2, 1),))
    with pytest.raises(TypeError):
        twins.PackedBatches()
    with pytest.raises(TypeError):
        iter(batches).__class__()
    with pytest.raises(TypeError):
        batches[0] = StateBatch(0, 8, 2, 1)  # type: ignore[index]
    with pytest.raises(AttributeError):
        batches.more = 1  # type: ignore[attr-defined]
    with pytest.raises(TypeError):
        batches["0"]  # type: ignore[call-overload]


def test_a_batch_takes_24_bytes_and_the_collector_knows_none() -> None:
    few, many = (packed(StateBatch(10 * n, 10 * n + 8, 2, 1) for n in range(size)) for size in (1, 6))
    assert sys.getsizeof(many) - sys.getsizeof(few) == 5 * 24
    assert not any(map(gc.is_tracked, (many, many[0])))


WIRE = st.builds(StateBatch, LONGS, LONGS, st.integers(-129, 128), st.integers(-32_769, 32_768))


@given(st.lists(WIRE | CROWDED, max_size=6).map(tuple))
def test_batches_have_kafkas_form_as_in_python(batches: tuple[StateBatch, ...]) -> None:
    try:
        expected = b"".join(KAFKA_BATCH.pack(*batch) for batch in batches)
    except struct.error:
        assert twins.encode_batches(batches) is None
        with pytest.raises(struct.error):
            pack_batches(batches)
        return
    assert twins.encode_batches(batches) == twins.encode_batches(pack(batches)) == pack_batches(batches) == expected
    decoded = twins.decode_batches(memoryview(b"12" + expected + b"3"), 2, len(batches))
    found = twins.pack(batches)
    assert decoded == found
    if batches:
        with_tags = expected[:-1] + b"\1"
        assert twins.decode_batches(with_tags, 0, len(batches)) is None


ASCENDING = st.lists(CROWDED | ANYWHERE, max_size=6).map(lambda batches: combine((), tuple(batches), -1))


@given(ASCENDING | st.lists(ANYWHERE, max_size=2).map(tuple).map(pack))
def test_packed_batches_are_looked_through_for_what_means_nothing(batches: Sequence[StateBatch]) -> None:
    mean_something = all(
        0 <= first <= last <= OFFSET_MAX and state in (AVAILABLE, ACKNOWLEDGED, ARCHIVING, ARCHIVED) and count >= 0
        for first, last, state, count in batches
    )
    assert twins.are_well_formed(batches) == (mean_something and isinstance(batches, twins.PackedBatches))


def test_of_each_field_of_a_batch_a_wrong_value_is_found() -> None:
    good = (StateBatch(0, 0, 0, 0), StateBatch(1, OFFSET_MAX, 4, 2**15 - 1))
    assert twins.are_well_formed(packed(good))
    assert twins.are_well_formed(packed(()))
    assert not twins.are_well_formed(good)
    assert twins.are_well_formed(packed((good[0]._replace(delivery_state=3), good[1])))
    assert not twins.are_well_formed(packed((good[0], good[1]._replace(last_offset=OFFSET_MAX + 1))))
    for wrong in ({"first_offset": -1}, {"delivery_state": 1}, {"delivery_state": -2}, {"delivery_count": -1}):
        assert not twins.are_well_formed(packed((good[0]._replace(**wrong), good[1])))


def test_batches_outside_of_the_bytes_are_refused() -> None:
    for begin, count in ((-1, 1), (0, 2), (1, 1), (22, 0), (0, -1), (0, sys.maxsize)):
        with pytest.raises(ValueError, match="outside"):
            twins.decode_batches(bytes(20), begin, count)
    assert twins.decode_batches(bytes(20), 20, 0) == ()


def test_packed_batches_are_a_sequence_for_python_too() -> None:
    batches = packed((StateBatch(0, 9, 2, 1), StateBatch(20, 29, 2, 1)))
    assert isinstance(batches, Sequence)
    match batches:
        case [first, last]:
            assert (first, last) == tuple(batches)
        case _:
            pytest.fail("no pattern of a sequence fits")


def test_a_start_offset_beyond_64_bits_is_left_to_python() -> None:
    batches = packed((StateBatch(0, 9, 2, 1),))
    assert combine(batches, (), 2**63) == combine_in_python(batches, (), 2**63) == ()
