"""What is written in C answers as its twin in Python; the build that ships has it, the pure one has not."""

from __future__ import annotations

import copy
import gc
import operator
import pickle
import struct
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from itertools import combinations, product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.api.share_state import pack_batches
from holdfast.records.batches import SettledBatches, StateBatch
from holdfast.records.codecs import avro
from holdfast.records.codecs.numbers import encode_numbers
from holdfast.records.combining import combine, combine_in_python, pack
from holdfast.records.replay import ShareState, replay
from holdfast.records.single_object import PREFIX_SIZE
from holdfast.records.values import Snapshot, Update
from holdfast.runtime.build import BUILD

try:
    from holdfast.records import native
except ImportError:
    assert BUILD == "pure", "the compiled build lacks what is written in C"
    pytest.skip("the pure build has nothing in C", allow_module_level=True)

LONGS = st.integers(-(2**63), 2**63 - 1)
KAFKA_BATCH = struct.Struct(">qqbhx")
#: Of batches that overlap, touch, are equal, or cover nothing.
CROWDED = st.builds(
    lambda first, more, state, count: StateBatch(first, first + more, state, count),
    st.integers(0, 40),
    st.integers(-1, 12),
    st.sampled_from((0, 2, 4)),
    st.integers(1, 3),
)
ANYWHERE = st.builds(StateBatch, LONGS, LONGS, st.integers(-128, 127), st.integers(-32_768, 32_767))
BATCHES = st.lists(CROWDED, max_size=24).map(tuple) | st.lists(CROWDED | ANYWHERE, max_size=4).map(tuple)


@given(BATCHES, BATCHES, st.integers(-1, 50) | LONGS)
def test_batches_are_combined_as_in_python(
    before: tuple[StateBatch, ...], incoming: tuple[StateBatch, ...], start_offset: int
) -> None:
    for current in (before, combine((), before, -1)):
        expected = combine_in_python(current, incoming, start_offset)
        for written in (incoming, pack(incoming)):
            combined = native.combine(current, written, start_offset)
            if combined is not None:
                assert tuple(combined) == expected
                assert type(expected) is SettledBatches
                assert {type(each) for each in combined} <= {StateBatch}
            assert combine(current, written, start_offset) == expected


def packed(batches: Iterable[StateBatch]) -> native.PackedBatches:
    found = native.pack(tuple(batches))
    assert found is not None
    return found


def _or_error(call: Callable[[], object]) -> object:
    try:
        return call()
    except (IndexError, ValueError) as error:
        return type(error)


def test_every_small_case_is_combined_as_in_python() -> None:
    batches = [
        StateBatch(first, last, *kind)
        for first in range(4)
        for last in range(first, 4)
        for kind in ((0, 1), (2, 1), (0, 2))
    ]
    states = {combine((), pair, -1) for pair in combinations(batches, 2)}
    assert {type(state) for state in states} >= {native.PackedBatches}
    for state, batch, start_offset in product(states, batches, (-1, 1, 2)):
        combined = native.combine(state, (batch,), start_offset)
        assert combined is None or tuple(combined) == combine_in_python(state, (batch,), start_offset)


@pytest.mark.parametrize("touched", [47, 48, 49, 50])
def test_as_many_batches_as_there_is_room_for_are_combined_in_c(touched: int) -> None:
    state = packed(StateBatch(10 * n, 10 * n + 8, 2, 1) for n in range(touched))
    incoming = (*(StateBatch(40 * n + 3, 40 * n + 5, 2, 2) for n in range(15)), StateBatch(0, 999, 0, 1))
    expected = combine_in_python(state, incoming, -1)
    combined = native.combine(state, incoming, -1)
    assert combined is None if touched > 48 else combined is not None and tuple(combined) == expected
    assert combine(state, incoming, -1) == expected


def test_the_usual_writes_are_combined_in_c() -> None:
    state = combine((), (StateBatch(0, 9, 2, 1), StateBatch(20, 29, 0, 1)), 0)
    joined = (StateBatch(30, 39, 0, 1),)
    for incoming in ((), joined, (StateBatch(20, 29, 2, 1),), (*joined, StateBatch(20, 29, 2, 1))):
        assert native.combine(state, incoming, 20) is not None


@pytest.mark.parametrize(
    ("current", "incoming"),
    [
        ([StateBatch(0, 9, 2, 1)], ()),
        ((StateBatch(0, 9, 2, 1),), ()),
        ((), [StateBatch(0, 9, 2, 1)]),
        ((), (StateBatch(0, 9, 2, 1),) * 17),
        ((), (StateBatch(9, 8, 2, 1),)),
        ((), (StateBatch(0, sys.maxsize, 2, 1),)),
        (tuple(StateBatch(10 * n, 10 * n + 8, 2, 1) for n in range(9)), (StateBatch(0, 999, 2, 2),)),
        ((), (StateBatch(0, 9, 2, 1 << 31),)),
        ((), (StateBatch(0, 9, -1 << 33, 1),)),
        ((), (StateBatch(0, 1 << 63, 2, 1),)),
    ],
)
def test_unusual_batches_are_left_to_python(current: tuple[StateBatch, ...], incoming: tuple[StateBatch, ...]) -> None:
    assert native.combine(current, incoming, -1) is None
    assert combine(current, incoming, -1) == combine_in_python(current, incoming, -1)


def test_many_batches_that_a_write_touches_are_left_to_python() -> None:
    current, incoming = packed(StateBatch(10 * n, 10 * n + 8, 2, 1) for n in range(99)), (StateBatch(0, 999, 2, 2),)
    assert native.combine(current, incoming, -1) is None
    combined = combine(current, incoming, -1)
    assert combined == incoming
    assert isinstance(combined, native.PackedBatches)


@given(st.lists(CROWDED | ANYWHERE, max_size=6).map(tuple))
def test_what_is_packed_is_what_python_calls_settled(batches: tuple[StateBatch, ...]) -> None:
    is_settled = type(combine_in_python(batches, (), -1)) is SettledBatches and len(batches) == sum(
        1 for each in batches if each.first_offset <= each.last_offset
    )
    found = native.pack(batches)
    assert found is None or (tuple(found) == batches and is_settled)
    settled = combine_in_python((), batches, -1)
    if type(settled) is SettledBatches:
        assert native.pack(settled) == settled


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


def test_packed_batches_are_made_by_these_functions_alone_and_cannot_be_changed() -> None:
    batches = packed((StateBatch(0, 9, 2, 1),))
    with pytest.raises(TypeError):
        native.PackedBatches()
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
        assert native.encode_batches(batches) is None
        with pytest.raises(struct.error):
            pack_batches(batches)
        return
    assert native.encode_batches(batches) == native.encode_batches(pack(batches)) == pack_batches(batches) == expected
    decoded = native.decode_batches(memoryview(b"12" + expected + b"3"), 2, len(batches))
    found = native.pack(batches)
    assert decoded == found
    if batches:
        with_tags = expected[:-1] + b"\1"
        assert native.decode_batches(with_tags, 0, len(batches)) is None


def test_batches_outside_of_the_bytes_are_refused() -> None:
    for begin, count in ((-1, 1), (0, 2), (1, 1), (22, 0), (0, -1), (0, sys.maxsize)):
        with pytest.raises(ValueError, match="outside"):
            native.decode_batches(bytes(20), begin, count)
    assert native.decode_batches(bytes(20), 20, 0) == ()


@given(st.binary(max_size=40))
def test_any_bytes_are_read_as_in_python_or_left_to_it(data: bytes) -> None:
    for prefix, read, read_in_python in (
        (avro.UPDATE_PREFIX, native.decode_update, avro.decode_update_in_python),
        (avro.SNAPSHOT_PREFIX, native.decode_snapshot, avro.decode_snapshot_in_python),
    ):
        found = read(prefix + data, PREFIX_SIZE)
        assert found is None or found == read_in_python(prefix + data)


UPDATES = st.builds(Update, LONGS, LONGS, LONGS, LONGS, st.lists(ANYWHERE, max_size=30).map(tuple))
SNAPSHOTS = st.builds(Snapshot, *[LONGS] * 7, st.lists(ANYWHERE, max_size=30).map(tuple), LONGS, LONGS)


@given(UPDATES | SNAPSHOTS, st.binary(max_size=3))
def test_values_are_written_and_read_as_in_python(value: Update | Snapshot, behind: bytes) -> None:
    encoded = avro.encode_value_in_python(value)
    is_update = type(value) is Update
    assert native.encode_value(value, 4 if is_update else 7, encoded[:PREFIX_SIZE]) == encoded
    read = native.decode_update if is_update else native.decode_snapshot
    read_in_python = avro.decode_update_in_python if is_update else avro.decode_snapshot_in_python
    decoded = read(encoded, PREFIX_SIZE)
    # Numbers of more than 56 bits are left to fastavro.
    assert decoded is None or (decoded == value == read_in_python(encoded) and type(decoded) is type(value))
    for end in (len(encoded) - 1, len(encoded)):
        damaged = encoded[:end] + behind
        assert (
            damaged == encoded
            or read(damaged, PREFIX_SIZE) is None
            or read_in_python(damaged) == read(damaged, PREFIX_SIZE)
        )


class ActsAsNumber:
    """Becomes a number by code of its own, which none of the functions runs."""

    def __index__(self) -> int:
        raise AssertionError("code of others runs in the midst of ours")


@pytest.mark.parametrize(
    "call",
    [
        lambda: native.combine((), ()),  # type: ignore[call-arg]
        lambda: native.combine((), ((1, 2, 3),), -1),  # type: ignore[arg-type]
        lambda: native.combine((), ((1, 2, 3, "4"),), -1),  # type: ignore[arg-type]
        lambda: native.pack([StateBatch(0, 9, 2, 1)]),
        lambda: native.pack((1, 2)),  # type: ignore[arg-type]
        lambda: native.pack(((),)),  # type: ignore[arg-type]
        lambda: native.pack(((1, 2, 3, ActsAsNumber()),)),  # type: ignore[arg-type]
        lambda: native.encode_batches((1, 2)),  # type: ignore[arg-type]
        lambda: native.decode_batches("text", 0, 0),  # type: ignore[arg-type]
        lambda: native.decode_batches(b"", "0", 0),  # type: ignore[arg-type]
        lambda: native.decode_batches(b"", 0, None),  # type: ignore[arg-type]
        lambda: native.decode_batches(b"", 0),  # type: ignore[call-arg]
        lambda: native.combine((), ((1, 2, 3, ActsAsNumber()),), -1),  # type: ignore[arg-type]
        lambda: native.encode_value(("1", ()), 1, b""),  # type: ignore[arg-type]
        lambda: native.encode_value((ActsAsNumber(), ()), 1, b""),  # type: ignore[arg-type]
        lambda: native.encode_value((1, ()), 1, "prefix"),  # type: ignore[arg-type]
        lambda: native.encode_value(1, 1, b""),  # type: ignore[arg-type]
        lambda: native.encode_value((1, 2), 4, b""),  # type: ignore[arg-type]
        lambda: native.encode_value((1, 2), 2, b""),  # type: ignore[arg-type]
        lambda: native.encode_value((1, 2, ("a",)), 2, b""),  # type: ignore[arg-type]
        lambda: native.decode_update("text", 0),  # type: ignore[arg-type]
        lambda: native.fold_updates((), [], 0, b"", b""),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_value_is_refused(call: Callable[[], object]) -> None:
    with pytest.raises(TypeError):
        call()


def test_batches_that_do_not_end_or_are_not_there_are_left_to_fastavro() -> None:
    numbers = [1, 2, 3, 4, 1, 0, 9, 2, 1]
    assert native.decode_update(encode_numbers([*numbers, 0]), 0) == Update(1, 2, 3, 4, (StateBatch(0, 9, 2, 1),))
    assert native.decode_update(encode_numbers([*numbers, 1]), 0) is None
    assert native.decode_update(encode_numbers([1, 2, 3, 4, 2**50]), 0) is None


def test_a_place_outside_of_the_bytes_is_refused() -> None:
    for place in (-1, 4):
        with pytest.raises(ValueError, match="outside"):
            native.decode_update(b"abc", place)


NUMBERS = st.integers(-1, 60) | st.integers(-(2**55), 2**55 - 1)
STATES = st.builds(
    ShareState,
    *[NUMBERS] * 7,
    st.lists(CROWDED, max_size=12).map(lambda batches: combine_in_python((), batches, -1)),
    *[NUMBERS] * 3,
)
CHANGES = st.builds(Update, NUMBERS, NUMBERS, st.integers(-1, 50), NUMBERS, st.lists(CROWDED, max_size=6).map(tuple))


@given(STATES, st.lists(CHANGES | SNAPSHOTS, max_size=12), st.integers(0, 3))
def test_updates_are_folded_as_they_are_replayed(
    state: ShareState, values: list[Update | Snapshot], begin: int
) -> None:
    begin = min(begin, len(values))
    records = [(avro.KEY_PREFIX + b"key", avro.encode_value_in_python(each), at) for at, each in enumerate(values)]
    folded, end = native.fold_updates(state, records, begin, avro.KEY_PREFIX, avro.UPDATE_PREFIX)
    assert begin <= end <= len(values)
    expected: ShareState | None = state
    for each in values[begin:end]:
        assert type(each) is Update
        expected = replay(expected, each, 500)
    assert folded == expected
    assert type(folded) is ShareState
    assert end == begin or type(folded.state_batches) is native.PackedBatches


def test_what_is_no_usual_update_is_left_to_python() -> None:
    state = ShareState(0, 1, 2, 3, 4, 5, 6, SettledBatches(), 7, 8, 9)
    usual = (avro.KEY_PREFIX, avro.encode_value_in_python(Update(0, 5, 10, -1, (StateBatch(10, 19, 2, 1),))), 7)
    unusual: list[tuple[bytes, bytes, int]] = [
        (b"\0\0", usual[1], 8),
        (usual[0], usual[1][:-1], 8),
        (usual[0], usual[1] + b"\0", 8),
        (usual[0], avro.encode_value_in_python(Update(0, 5, 10, -1, (StateBatch(10, 9, 2, 1),))), 8),
    ]
    for each in unusual:
        folded, end = native.fold_updates(state, [usual, usual, each, usual], 0, avro.KEY_PREFIX, avro.UPDATE_PREFIX)
        assert end == 2
        assert folded == ShareState(0, 1, 5, 10, -1, 5, 6, (StateBatch(10, 19, 2, 1),), 7, 8, 11)


def test_the_collector_looks_at_no_tuple_of_numbers_and_at_any_that_holds_what_it_looks_at() -> None:
    batches = (StateBatch(0, 9, 2, 1),)
    state = ShareState(0, 1, 2, 3, 4, 5, 6, (empty := SettledBatches()), 7, 8, 9)
    odd: tuple[object, ...] = (1, [])
    for value in (batches[0], batches, SettledBatches(batches), state, odd):
        native.untrack(value)
    assert [gc.is_tracked(each) for each in (batches[0], batches, odd)] == [False, False, True]
    assert gc.is_tracked(state)  # of an empty tuple of batches that was not made known
    native.untrack(empty)
    native.untrack(state)
    assert not gc.is_tracked(state)
    with pytest.raises(TypeError):
        native.untrack([])  # type: ignore[arg-type]


SETTLED = SettledBatches(StateBatch(10 * n, 10 * n + 8, 2, 1) for n in range(9))
PACKED = packed(SETTLED)
ENCODED = avro.encode_value_in_python(Update(1, 2, 3, 4, SETTLED))
STATE = ShareState(0, 1, 2, 3, 4, 5, 6, SETTLED, 7, 8, 9)
ODD_STATE = STATE._replace(state_batches=(1,))  # type: ignore[arg-type]
USUAL = (avro.KEY_PREFIX, avro.encode_value_in_python(Update(0, 5, 10, -1, (StateBatch(90, 99, 2, 1),))), 7)
#: Attributes, timestamp, offset, key, value, one header, behind their length.
RECORD = b"\x1a\0\0\0\x02k\x02v\x02\x04hf\x02h"


@pytest.mark.parametrize(
    "call",
    [
        lambda: native.combine(PACKED, (StateBatch(25, 47, 2, 2),), 12),
        lambda: native.combine(PACKED, PACKED, 12),
        lambda: native.combine(PACKED, (), -1),
        lambda: native.combine(PACKED, (), 1000),
        lambda: native.combine((), (), -1),
        lambda: native.combine(PACKED, (StateBatch(25, 47, 2, 2), (1, 2, 3)), 12),  # type: ignore[arg-type]
        lambda: native.combine(PACKED, (StateBatch(0, 9, 2, 1 << 40),), 12),
        lambda: [list(PACKED), PACKED[0], PACKED[1:7:2], PACKED[-1:], next(iter(PACKED))],
        lambda: [
            PACKED == SETTLED,
            SETTLED == PACKED,
            PACKED[:1] == PACKED,
            PACKED == 1,
            PACKED != PACKED,
        ],
        lambda: [hash(PACKED), repr(PACKED), PACKED.index(SETTLED[1]), PACKED.count(SETTLED[1])],
        lambda: pickle.loads(pickle.dumps(PACKED)),
        lambda: PACKED.index(),  # type: ignore[call-arg]
        lambda: PACKED["0"],  # type: ignore[call-overload]
        lambda: [native.pack(SETTLED), native.pack(PACKED), native.pack(()), native.pack((SETTLED[1], SETTLED[0]))],
        lambda: native.pack((SETTLED[0], 1)),  # type: ignore[arg-type]
        lambda: [native.encode_batches(SETTLED), native.encode_batches(PACKED), native.encode_batches(())],
        lambda: [
            native.encode_batches((StateBatch(0, 9, 1 << 7, 1),)),
            native.encode_batches((StateBatch(1 << 70, 9, 0, 1),)),
        ],
        lambda: [native.decode_batches(bytes(40), 20, 1), native.decode_batches(bytes(40), 0, 2)],
        lambda: native.decode_batches("", 0, 0),  # type: ignore[arg-type]
        lambda: native.encode_value(Update(1, 2, 3, 4, SETTLED), 4, b""),
        lambda: native.encode_value(Update(1, 2, 3, 4, (*SETTLED * 9, (1,))), 4, b""),  # type: ignore[arg-type]
        lambda: native.decode_update(ENCODED, PREFIX_SIZE),
        lambda: native.fold_updates(STATE, [USUAL, USUAL, (b"", b"", 9)], 0, avro.KEY_PREFIX, avro.UPDATE_PREFIX),
        lambda: native.fold_updates(STATE, [(b"", b"", 9)], 0, avro.KEY_PREFIX, avro.UPDATE_PREFIX),
        lambda: native.fold_updates(ODD_STATE, [], 0, b"", b""),
        lambda: native.untrack(StateBatch(2**40, 2**41, 2, 1)),
        lambda: native.decode_records(StateBatch, b"hf", RECORD * 2, 0, 2, 2**40, 0),  # type: ignore[type-var]
        lambda: native.decode_records(StateBatch, b"hf", RECORD + RECORD[:-1], 0, 2, 2**40, 0),  # type: ignore[type-var]
        lambda: native.decode_update(ENCODED[:-1], PREFIX_SIZE),
        lambda: native.decode_update(ENCODED + b"0", PREFIX_SIZE),
    ],
)
def test_nothing_is_leaked(call: Callable[[], object]) -> None:
    def calls() -> None:
        for _ in range(1_000):
            with suppress(TypeError):
                call()

    calls()
    before = sys.getallocatedblocks()
    calls()
    assert sys.getallocatedblocks() - before < 500
