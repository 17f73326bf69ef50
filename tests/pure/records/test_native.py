"""Functions in C answer as their twins in Python; the build that ships has them, the pure one has not."""

from __future__ import annotations

import gc
import pickle
import struct
import sys
from collections.abc import Callable, Iterable
from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.records.log.header import encode_header, encode_in_python
from holdfast.records.log.single_object import PREFIX_SIZE
from holdfast.records.native import maker, twins
from holdfast.records.share.batches import SettledBatches, StateBatch
from holdfast.records.share.codecs import avro
from holdfast.records.share.codecs.numbers import encode_numbers
from holdfast.records.share.combining import combine, combine_in_python, pack
from holdfast.records.share.replay import ShareState, replay, replay_update_in_python
from holdfast.records.share.values import Snapshot, Update, make_update
from holdfast.runtime.build import BUILD
from tests.leaks import assert_no_leak

if twins is None:
    assert BUILD == "pure", "the compiled build lacks what is written in C"
    pytest.skip("the pure build has nothing in C", allow_module_level=True)

LONGS = st.integers(-(2**63), 2**63 - 1)
#: Batches that overlap, touch, are equal, or cover nothing.
CROWDED = st.builds(
    lambda first, more, state, count: StateBatch(first, first + more, state, count),
    st.integers(0, 40),
    st.integers(-1, 12),
    st.sampled_from((0, 2, 3, 4)),
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
            combined = twins.combine(current, written, start_offset)
            if combined is not None:
                assert tuple(combined) == expected
                assert type(expected) is SettledBatches
                assert {type(each) for each in combined} <= {StateBatch}
            assert combine(current, written, start_offset) == expected


def packed(batches: Iterable[StateBatch]) -> twins.PackedBatches:
    found = twins.pack(tuple(batches))
    assert found is not None
    return found


def test_every_small_case_is_combined_as_in_python() -> None:
    batches = [
        StateBatch(first, last, *kind)
        for first in range(4)
        for last in range(first, 4)
        for kind in ((0, 1), (2, 1), (0, 2))
    ]
    states = {combine((), pair, -1) for pair in combinations(batches, 2)}
    assert {type(state) for state in states} >= {twins.PackedBatches}
    for state, batch, start_offset in product(states, batches, (-1, 1, 2)):
        combined = twins.combine(state, (batch,), start_offset)
        assert combined is None or tuple(combined) == combine_in_python(state, (batch,), start_offset)


def test_uncut_settled_batches_are_unchanged_by_a_merge_with_nothing() -> None:
    many = packed(StateBatch(10 * n, 10 * n + 8, 2, 1) for n in range(99))
    for start_offset in (-1, 0):
        assert twins.combine((), many, start_offset) is many
    few, last = packed(many[:2]), packed((StateBatch(5, sys.maxsize, 2, 1),))
    below = packed((StateBatch(-2, -1, 2, 1), StateBatch(3, 4, 2, 1)))
    for batches, start_offset in ((few, 1), (few, 18), (few, 19), (last, -1), (below, -1), (below, 0), (below, -5)):
        assert combine((), batches, start_offset) == combine_in_python((), batches, start_offset)
        assert twins.combine((), batches, start_offset) is not batches


@pytest.mark.parametrize("touched", [47, 48, 49, 50])
def test_as_many_batches_as_there_is_room_for_are_combined_in_c(touched: int) -> None:
    state = packed(StateBatch(10 * n, 10 * n + 8, 2, 1) for n in range(touched))
    incoming = (*(StateBatch(40 * n + 3, 40 * n + 5, 2, 2) for n in range(15)), StateBatch(0, 999, 0, 1))
    expected = combine_in_python(state, incoming, -1)
    combined = twins.combine(state, incoming, -1)
    assert combined is None if touched > 48 else combined is not None and tuple(combined) == expected
    assert combine(state, incoming, -1) == expected


def test_the_usual_writes_are_combined_in_c() -> None:
    state = combine((), (StateBatch(0, 9, 2, 1), StateBatch(20, 29, 0, 1)), 0)
    joined = (StateBatch(30, 39, 0, 1),)
    for incoming in ((), joined, (StateBatch(20, 29, 2, 1),), (*joined, StateBatch(20, 29, 2, 1))):
        assert twins.combine(state, incoming, 20) is not None


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
    assert twins.combine(current, incoming, -1) is None
    assert combine(current, incoming, -1) == combine_in_python(current, incoming, -1)


def test_many_batches_that_a_write_touches_are_left_to_python() -> None:
    current, incoming = packed(StateBatch(10 * n, 10 * n + 8, 2, 1) for n in range(99)), (StateBatch(0, 999, 2, 2),)
    assert twins.combine(current, incoming, -1) is None
    combined = combine(current, incoming, -1)
    assert combined == incoming
    assert isinstance(combined, twins.PackedBatches)


@given(st.binary(max_size=40))
def test_any_bytes_are_read_as_in_python_or_left_to_it(data: bytes) -> None:
    for prefix, read, read_in_python in (
        (avro.UPDATE_PREFIX, twins.decode_update, avro.decode_update_in_python),
        (avro.SNAPSHOT_PREFIX, twins.decode_snapshot, avro.decode_snapshot_in_python),
    ):
        found = read(prefix + data, PREFIX_SIZE)
        assert found is None or found == read_in_python(prefix + data)


UPDATES = st.builds(Update, LONGS, LONGS, LONGS, LONGS, st.lists(ANYWHERE, max_size=30).map(tuple))
SNAPSHOTS = st.builds(Snapshot, *[LONGS] * 7, st.lists(ANYWHERE, max_size=30).map(tuple), LONGS, LONGS)


@given(UPDATES | SNAPSHOTS, st.binary(max_size=3))
def test_values_are_written_and_read_as_in_python(value: Update | Snapshot, behind: bytes) -> None:
    encoded = avro.encode_value_in_python(value)
    is_update = type(value) is Update
    assert twins.encode_value(value, 4 if is_update else 7, encoded[:PREFIX_SIZE]) == encoded
    read = twins.decode_update if is_update else twins.decode_snapshot
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
        lambda: twins.combine((), ()),  # type: ignore[call-arg]
        lambda: twins.combine((), ((1, 2, 3),), -1),  # type: ignore[arg-type]
        lambda: twins.combine((), ((1, 2, 3, "4"),), -1),  # type: ignore[arg-type]
        lambda: twins.replay_update(STATE, None),  # type: ignore[arg-type]
        lambda: twins.replay_update(STATE, make_update((1, 2))),
        lambda: twins.replay_update(EMPTY, Update(0, 5, 10, -1, ((1, 2, 3),))),  # type: ignore[arg-type]
        lambda: twins.pack([StateBatch(0, 9, 2, 1)]),
        lambda: twins.pack((1, 2)),  # type: ignore[arg-type]
        lambda: twins.pack(((),)),  # type: ignore[arg-type]
        lambda: twins.pack(((1, 2, 3, ActsAsNumber()),)),  # type: ignore[arg-type]
        lambda: twins.encode_batches((1, 2)),  # type: ignore[arg-type]
        lambda: twins.decode_batches("text", 0, 0),  # type: ignore[arg-type]
        lambda: twins.decode_batches(b"", "0", 0),  # type: ignore[arg-type]
        lambda: twins.decode_batches(b"", 0, None),  # type: ignore[arg-type]
        lambda: twins.decode_batches(b"", 0),  # type: ignore[call-arg]
        lambda: twins.combine((), ((1, 2, 3, ActsAsNumber()),), -1),  # type: ignore[arg-type]
        lambda: twins.encode_value(("1", ()), 1, b""),  # type: ignore[arg-type]
        lambda: twins.encode_value((ActsAsNumber(), ()), 1, b""),  # type: ignore[arg-type]
        lambda: twins.encode_value((1, ()), 1, "prefix"),  # type: ignore[arg-type]
        lambda: twins.encode_value(1, 1, b""),  # type: ignore[arg-type]
        lambda: twins.encode_value((1, 2), 4, b""),  # type: ignore[arg-type]
        lambda: twins.encode_value((1, 2), 2, b""),  # type: ignore[arg-type]
        lambda: twins.encode_value((1, 2, ("a",)), 2, b""),  # type: ignore[arg-type]
        lambda: twins.decode_update("text", 0),  # type: ignore[arg-type]
        lambda: twins.encode_header("1", 1),  # type: ignore[arg-type]
        lambda: twins.encode_header(1),  # type: ignore[call-arg]
        lambda: twins.fold_updates((), [], 0, b"", b""),  # type: ignore[arg-type]
    ],
)
def test_objects_that_are_no_value_are_refused(call: Callable[[], object]) -> None:
    with pytest.raises(TypeError):
        call()


def test_batches_that_do_not_end_or_are_not_there_are_left_to_fastavro() -> None:
    numbers = [1, 2, 3, 4, 1, 0, 9, 2, 1]
    assert twins.decode_update(encode_numbers([*numbers, 0]), 0) == Update(1, 2, 3, 4, (StateBatch(0, 9, 2, 1),))
    assert twins.decode_update(encode_numbers([*numbers, 1]), 0) is None
    assert twins.decode_update(encode_numbers([1, 2, 3, 4, 2**50]), 0) is None


def test_a_place_outside_of_the_bytes_is_refused() -> None:
    for place in (-1, 4):
        with pytest.raises(ValueError, match="outside"):
            twins.decode_update(b"abc", place)


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
    folded, end = twins.fold_updates(state, records, begin, avro.KEY_PREFIX, avro.UPDATE_PREFIX)
    assert begin <= end <= len(values)
    expected: ShareState | None = state
    for each in values[begin:end]:
        assert type(each) is Update
        expected = replay(expected, each, 500)
    assert folded == expected
    assert type(folded) is ShareState
    assert end == begin or type(folded.state_batches) is twins.PackedBatches


@given(STATES, CHANGES, st.booleans())
def test_an_update_is_replayed_as_in_python(state: ShareState, update: Update, is_packed: bool) -> None:
    if is_packed:
        state = state._replace(state_batches=pack(tuple(state.state_batches)))
    replayed, expected = twins.replay_update(state, update), replay_update_in_python(state, update)
    assert replayed is None or (replayed == expected and type(replayed) is ShareState)
    assert replayed is None or not gc.is_tracked(replayed)
    assert replay(state, update, 500) == expected


def test_numbers_that_no_update_has_are_replayed_in_python() -> None:
    large = 1 << 70
    for state in (STATE, STATE._replace(leader_epoch_fence=large), STATE._replace(update_count=(1 << 63) - 1)):
        for update in (Update(0, large, -1, 0, ()), Update(0, 3, 4, large, ())):
            assert replay(state, update, 500) == replay_update_in_python(state, update)
    assert twins.replay_update(STATE._replace(start_offset=large), Update(0, 3, -1, 0, ())) is None


def test_an_unusual_update_is_left_to_python() -> None:
    state = ShareState(0, 1, 2, 3, 4, 5, 6, SettledBatches(), 7, 8, 9)
    usual = (avro.KEY_PREFIX, avro.encode_value_in_python(Update(0, 5, 10, -1, (StateBatch(10, 19, 2, 1),))), 7)
    unusual: list[tuple[bytes, bytes, int]] = [
        (b"\0\0", usual[1], 8),
        (usual[0], usual[1][:-1], 8),
        (usual[0], usual[1] + b"\0", 8),
        (usual[0], avro.encode_value_in_python(Update(0, 5, 10, -1, (StateBatch(10, 9, 2, 1),))), 8),
    ]
    for each in unusual:
        folded, end = twins.fold_updates(state, [usual, usual, each, usual], 0, avro.KEY_PREFIX, avro.UPDATE_PREFIX)
        assert end == 2
        assert folded == ShareState(0, 1, 5, 10, -1, 5, 6, (StateBatch(10, 19, 2, 1),), 7, 8, 11)


def test_more_updates_than_64_bits_count_are_replayed_in_python() -> None:
    state = ShareState(0, 1, 2, 3, 4, 5, 6, SettledBatches(), 7, 8, (1 << 63) - 2)
    record = (avro.KEY_PREFIX, avro.encode_value_in_python(Update(0, 5, 10, -1, (StateBatch(10, 19, 2, 1),))), 7)
    folded, end = twins.fold_updates(state, [record] * 3, 0, avro.KEY_PREFIX, avro.UPDATE_PREFIX)
    assert (end, folded.update_count) == (1, (1 << 63) - 1)
    for count in ((1 << 63) - 1, 1 << 63):
        beyond = state._replace(update_count=count)
        assert twins.fold_updates(beyond, [record], 0, avro.KEY_PREFIX, avro.UPDATE_PREFIX) == (beyond, 0)


@pytest.mark.parametrize("count", [16, 17, 48, 64, 65])
def test_an_update_with_too_many_batches_is_left_to_python(count: int) -> None:
    state = ShareState(0, 1, 2, 3, 4, 5, 6, SettledBatches(), 7, 8, 9)
    update = Update(0, 5, 10, -1, tuple(StateBatch(20 * n + 10, 20 * n + 19, 2, 1) for n in range(count)))
    records = [(avro.KEY_PREFIX, avro.encode_value_in_python(update), 7)]
    folded, end = twins.fold_updates(state, records, 0, avro.KEY_PREFIX, avro.UPDATE_PREFIX)
    assert end == (count == 16)
    assert folded == (replay(state, update, 500) if end else state)


def test_the_collector_tracks_a_tuple_only_if_it_holds_tracked_objects() -> None:
    batches = (StateBatch(0, 9, 2, 1),)
    state = ShareState(0, 1, 2, 3, 4, 5, 6, (empty := SettledBatches()), 7, 8, 9)
    odd: tuple[object, ...] = (1, [])
    for value in (batches[0], batches, SettledBatches(batches), state, odd):
        twins.untrack(value)
    assert [gc.is_tracked(each) for each in (batches[0], batches, odd)] == [False, False, True]
    assert gc.is_tracked(state)  # of an empty tuple of batches that was not made known
    twins.untrack(empty)
    twins.untrack(state)
    assert not gc.is_tracked(state)
    with pytest.raises(TypeError):
        twins.untrack([])  # type: ignore[arg-type]


@given(LONGS, LONGS | st.just(1 << 63))
def test_a_header_is_written_as_in_python(owner_epoch: int, sequence: int) -> None:
    for epoch in (owner_epoch, owner_epoch >> 32):
        try:
            expected = encode_in_python(epoch, sequence)
        except struct.error:
            assert twins.encode_header(epoch, sequence) is None
            with pytest.raises(struct.error):
                encode_header(epoch, sequence)
        else:
            assert twins.encode_header(epoch, sequence) == encode_header(epoch, sequence) == expected


def test_a_maker_makes_what_the_class_does() -> None:
    make = twins.maker(Update)
    made = make((1, 2, 3, 4, ()))
    assert type(made) is Update
    assert made == Update(1, 2, 3, 4, ())
    assert gc.is_tracked(made)
    assert maker(StateBatch)((1, 2, 3, 4)) == StateBatch(1, 2, 3, 4)
    calls: list[Callable[[], object]] = [
        make,  # type: ignore[list-item]
        lambda: make([1, 2, 3, 4, ()]),  # type: ignore[arg-type]
        lambda: make((1, 2), (3, 4)),  # type: ignore[call-arg]
        lambda: make(kind=(1, 2)),  # type: ignore[call-arg]
        lambda: twins.maker(list),  # type: ignore[type-var]
        lambda: twins.maker(1),  # type: ignore[arg-type]
        lambda: type(make)(Update),  # type: ignore[misc]
    ]
    for call in calls:
        with pytest.raises(TypeError):
            call()


def test_the_collector_tracks_a_dictionary_again_when_more_is_put_in() -> None:
    states: dict[int, tuple[int, ...]] = {1: StateBatch(0, 9, 2, 1)}
    assert gc.is_tracked(states)
    twins.untrack_map(states)
    twins.untrack_map(states)
    assert not gc.is_tracked(states)
    with pytest.raises(TypeError):
        twins.untrack_map([])  # type: ignore[arg-type]


SETTLED = SettledBatches(StateBatch(10 * n, 10 * n + 8, 2, 1) for n in range(9))
PACKED = packed(SETTLED)
MAKE_UPDATE = twins.maker(Update)
ENCODED = avro.encode_value_in_python(Update(1, 2, 3, 4, SETTLED))
STATE: ShareState = ShareState(0, 1, 2, 3, 4, 5, 6, SETTLED, 7, 8, 9)
ODD_STATE = STATE._replace(state_batches=(1,))  # type: ignore[arg-type]
EMPTY: ShareState = STATE._replace(state_batches=())
PACKED_STATE: ShareState = STATE._replace(state_batches=PACKED)
FULL_STATE: ShareState = PACKED_STATE._replace(update_count=(1 << 63) - 1)
USUAL = (avro.KEY_PREFIX, avro.encode_value_in_python(Update(0, 5, 10, -1, (StateBatch(90, 99, 2, 1),))), 7)
#: Attributes, timestamp, offset, key, value and one header, after their length.
RECORD = b"\x1a\0\0\0\x02k\x02v\x02\x04hf\x02h"


@pytest.mark.parametrize(
    "call",
    [
        lambda: twins.combine(PACKED, (StateBatch(25, 47, 2, 2),), 12),
        lambda: twins.combine(PACKED, PACKED, 12),
        lambda: twins.combine(PACKED, (), -1),
        lambda: twins.combine(PACKED, (), 1000),
        lambda: twins.combine((), (), -1),
        lambda: twins.combine(PACKED, (StateBatch(25, 47, 2, 2), (1, 2, 3)), 12),  # type: ignore[arg-type]
        lambda: twins.combine(PACKED, (StateBatch(0, 9, 2, 1 << 40),), 12),
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
        lambda: [twins.pack(SETTLED), twins.pack(PACKED), twins.pack(()), twins.pack((SETTLED[1], SETTLED[0]))],
        lambda: twins.pack((SETTLED[0], 1)),  # type: ignore[arg-type]
        lambda: [twins.encode_batches(SETTLED), twins.encode_batches(PACKED), twins.encode_batches(())],
        lambda: [
            twins.encode_batches((StateBatch(0, 9, 1 << 7, 1),)),
            twins.encode_batches((StateBatch(1 << 70, 9, 0, 1),)),
        ],
        lambda: [twins.decode_batches(bytes(40), 20, 1), twins.decode_batches(bytes(40), 0, 2)],
        lambda: twins.decode_batches("", 0, 0),  # type: ignore[arg-type]
        lambda: twins.replay_update(PACKED_STATE, Update(1, 2, 3, 4, SETTLED)),
        lambda: twins.replay_update(PACKED_STATE, Update(1, 9, -1, 1 << 40, ())),
        lambda: twins.replay_update(FULL_STATE, Update(1, 9, -1, 1 << 40, ())),
        lambda: twins.replay_update(STATE, Update(1, 1 << 70, -1, 4, ())),
        lambda: twins.replay_update(EMPTY, Update(1, 2, -1, 4, (1,))),  # type: ignore[arg-type]
        lambda: twins.encode_value(Update(1, 2, 3, 4, SETTLED), 4, b""),
        lambda: twins.encode_value(Update(1, 2, 3, 4, (*SETTLED * 9, (1,))), 4, b""),  # type: ignore[arg-type]
        lambda: twins.decode_update(ENCODED, PREFIX_SIZE),
        lambda: twins.fold_updates(STATE, [USUAL, USUAL, (b"", b"", 9)], 0, avro.KEY_PREFIX, avro.UPDATE_PREFIX),
        lambda: twins.fold_updates(STATE, [(b"", b"", 9)], 0, avro.KEY_PREFIX, avro.UPDATE_PREFIX),
        lambda: twins.fold_updates(ODD_STATE, [], 0, b"", b""),
        lambda: twins.untrack(StateBatch(2**40, 2**41, 2, 1)),
        lambda: MAKE_UPDATE((1 << 40, 2, 3, 4, [])),
        lambda: MAKE_UPDATE([1 << 40]),  # type: ignore[arg-type]
        lambda: twins.maker(Update)((1 << 40,)),
        lambda: [
            twins.encode_header(1 << 30, 1 << 40),
            twins.encode_header(1 << 40, 1),
            twins.encode_header(1, 1 << 70),
        ],
        lambda: [twins.are_well_formed(PACKED), twins.are_well_formed(())],
        lambda: twins.combine((), PACKED, -1),
        lambda: twins.decode_records(StateBatch, b"hf", RECORD * 2, 0, 2, 2**40, 0),  # type: ignore[type-var]
        lambda: twins.decode_records(StateBatch, b"hf", RECORD + RECORD[:-1], 0, 2, 2**40, 0),  # type: ignore[type-var]
        lambda: twins.encode_records([(b"k", None, b"h"), (b"k", b"v", b"h")], b"hf", 1, 50, 42),
        lambda: twins.encode_records([(b"k", b"v", b"h"), (b"k", 1, b"h")], b"hf", 1, 1000, 42),  # type: ignore[list-item]
        lambda: twins.decode_update(ENCODED[:-1], PREFIX_SIZE),
        lambda: twins.decode_update(ENCODED + b"0", PREFIX_SIZE),
    ],
)
def test_nothing_is_leaked(call: Callable[[], object]) -> None:
    assert_no_leak(call, refusals=(TypeError,))
