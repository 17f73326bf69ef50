"""The lazy fold: what is left of a log gives the states that replay of every record gives."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.records.errors import Undecodable
from holdfast.records.share.codecs.codec import Codec, Kind, encode_key
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.pending_runs import PendingRuns, Run, Unusable
from holdfast.records.share.replay import ShareState, replay
from holdfast.records.share.values import Snapshot, Update, Value
from tests.pure.records.strategies import batch_lists
from tests.world.records import encode_record

KEYS = [SharePartitionKey("group", bytes(16), partition) for partition in range(3)]
KEY = KEYS[0]
SNAPSHOT = Snapshot(0, 0, 0, 5, 0, 1, 1, (), 0, 0)
UPDATE = Update(0, 2, -1, 1, ())

snapshots = st.builds(
    SNAPSHOT._replace,
    snapshot_epoch=st.integers(0, 9),
    leader_epoch_fence=st.integers(0, 9),
    start_offset=st.integers(0, 9),
)
updates = st.builds(
    UPDATE._replace,
    leader_epoch=st.integers(-1, 9),
    start_offset=st.integers(-1, 9),
    state_batches=batch_lists.map(tuple),
)
values = st.one_of(snapshots, updates, updates, updates, st.none())
records = st.lists(st.tuples(st.sampled_from(KEYS), values, st.sampled_from(Codec)), max_size=40)


def kind_of(value: Value) -> Kind:
    return Kind.TOMBSTONE if value is None else Kind.UPDATE if isinstance(value, Update) else Kind.SNAPSHOT


def file(pending: PendingRuns, key: SharePartitionKey, value: Value, offset: int, codec: Codec = Codec.AVRO) -> Run:
    return pending.file(kind_of(value), *encode_record(codec, key, value), offset)


@pytest.mark.parametrize("drops_tombstones", [True, False])
@given(log=records)
def test_the_runs_that_are_left_give_the_states_of_a_whole_replay(
    drops_tombstones: bool, log: list[tuple[SharePartitionKey, Value, Codec]]
) -> None:
    pending, states = PendingRuns(1 << 31), dict[SharePartitionKey, ShareState]()
    for offset, (key, value, codec) in enumerate(log):
        if isinstance(value, Update) and key not in states:
            continue
        run = file(pending, key, value, offset, codec)
        if value is None and drops_tombstones:
            pending.drop(run)
        # Our snapshots carry the fences of all that stands before them, so the state after one is its own.
        after = replay(states.get(key) if isinstance(value, Update) else None, value, 1 << 31)
        states.pop(key, None)
        if after is not None:
            states[key] = after
    folded = {run.key: pending.fold(run, None) for run in pending.take_all()}
    assert {key: state for key, state in folded.items() if state is not None} == states
    assert not drops_tombstones or set(folded) == set(states)
    assert pending.runs() == []


def test_the_runs_keep_the_order_in_which_they_began() -> None:
    pending = PendingRuns(500)
    for offset, key in enumerate([KEYS[2], KEYS[0], KEYS[2], KEYS[1]]):
        file(pending, key, SNAPSHOT, offset)
    pending.drop(pending.runs()[1])
    file(pending, KEYS[0], SNAPSHOT, 4)
    assert [(run.key, run.reset_offset, run.covered_offset) for run in pending.runs()] == [
        (KEYS[2], 2, 2),
        (KEYS[1], 3, 3),
        (KEYS[0], 4, 4),
    ]


def test_a_run_goes_on_from_what_is_known_unless_a_snapshot_replaces_it() -> None:
    pending = PendingRuns(500)
    known = ShareState(*SNAPSHOT, 7)
    run = Run(KEY, b"an entry")
    pending.begin_with({KEY: run})
    assert file(pending, KEY, UPDATE, 3) is run
    assert (run.entry, run.reset_offset, run.covered_offset) == (b"an entry", -1, 3)
    assert pending.fold(run, known) == replay(known, UPDATE, 500)
    file(pending, KEY, SNAPSHOT, 4)
    assert (run.entry, run.reset_offset, run.covered_offset, len(run.records)) == (None, 4, 4, 1)


@pytest.mark.parametrize(("accepted_offset", "is_usable"), [(2, False), (3, True)])
def test_an_update_without_state_is_left_out_up_to_the_accepted_offset(accepted_offset: int, is_usable: bool) -> None:
    pending = PendingRuns(500)
    run = file(pending, KEY, UPDATE, 3)
    pending.accepted_offset = accepted_offset
    if is_usable:
        assert pending.fold(run, None) is None
        assert pending.left_out_records == 1
        return
    with pytest.raises(Unusable, match="no snapshot before it") as raised:
        pending.fold(run, None)
    assert (raised.value.offset, raised.value.error) == (3, None)


def test_a_value_that_cannot_be_decoded_is_named_with_its_cause() -> None:
    pending = PendingRuns(500)
    raw_key, raw_value = encode_record(Codec.AVRO, KEY, SNAPSHOT)
    assert raw_value is not None
    run = pending.file(Kind.SNAPSHOT, raw_key, raw_value[:-1], 3)
    with pytest.raises(Unusable) as raised:
        pending.fold(run, None)
    assert isinstance(raised.value.error, Undecodable)
    assert raised.value.offset == 3


def test_a_key_that_cannot_be_decoded_files_nothing() -> None:
    pending = PendingRuns(500)
    with pytest.raises(Undecodable):
        pending.file(Kind.SNAPSHOT, encode_key(Codec.AVRO, KEY, Kind.SNAPSHOT)[:-1], b"", 3)
    assert pending.runs() == []
