"""The fold of a log partition: `replay(compact(log)) == replay(log)`, however it is cut into batches and repeated."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.records.log.checkpoint import CHECKPOINT_KEY, Checkpoint, decode_checkpoint, encode_checkpoint
from holdfast.records.log.fencing import START, Position, step
from holdfast.records.log.header import decode_header, encode_header, is_foreign
from holdfast.records.share.codecs.codec import Codec
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.redundant_offsets import RedundantOffsetTracker
from holdfast.records.share.snapshot_store import folding
from holdfast.records.share.snapshot_store.entries import Entry, EntryKey, ManifestKey, decode_entry, decode_key
from holdfast.records.share.snapshot_store.folding import NEW, Folded, FoldStopped, Mark, RawRecord, fold
from holdfast.records.share.snapshot_store.snapshot_set import Disagreement, SnapshotSet
from holdfast.records.share.values import Snapshot, Update
from holdfast.share.load import ShareLoad
from tests.pure.records.logs import (
    KEYS,
    LOG_PARTITION,
    PARTITION_COUNT,
    STATE_TOPIC_ID,
    UNCUT,
    DictStore,
    LogWriter,
    logs,
    write_log,
)
from tests.world.records import encode_record


def fold_some(mark: Mark, store: folding.Store, records: list[RawRecord]) -> Folded:
    return fold(STATE_TOPIC_ID, LOG_PARTITION, PARTITION_COUNT, mark, store, records)


class Job:
    """A job that folds a log in batches and writes what comes of it into a snapshot topic, as a compacted topic holds it."""

    def __init__(self, topic: dict[bytes, bytes]) -> None:
        self.topic = topic
        self.store = DictStore()
        self.mark = NEW
        self.history: list[int] = []

    def run(self, records: list[RawRecord], random: Random) -> None:
        while records:
            size = random.randint(1, 12)
            batch, records = records[:size], records[size:]
            self.fold(batch, random)

    def fold(self, batch: list[RawRecord], random: Random) -> None:
        store = DictStore(self.store)
        folded = fold_some(self.mark, store, batch)
        written = folded.entries[: random.randint(0, len(folded.entries))]
        if random.random() < 0.3:  # Killed amid its writes; the batch is folded again from what was held before.
            self.topic.update(written)
            store = DictStore(self.store)
            assert fold_some(self.mark, store, batch) == folded
        self.store, self.mark = store, folded.mark
        self.topic.update(folded.entries)
        if folded.manifest is not None:
            key, value = folded.manifest
            assert self.topic.get(key, value) == value, "two jobs do not agree on a manifest"
            self.topic[key] = value
        self.history += [batch[index].offset for index in folded.changes]


def snapshot_set(topic: dict[bytes, bytes]) -> SnapshotSet:
    entries = SnapshotSet(STATE_TOPIC_ID, LOG_PARTITION)
    for key, value in topic.items():
        entries.add(key, value)
    return entries


def load(records: list[RawRecord]) -> tuple[Position, dict[SharePartitionKey, Entry], list[int]]:
    """Load a log the way the daemon does; returns also the offsets of the changes."""
    position = START
    tracker = RedundantOffsetTracker()
    shard = ShareLoad(500, tracker)
    changes = []
    for record in records:
        if record.header is None or is_foreign(record.header) or record.key is None:
            continue
        checkpoint = decode_checkpoint(record.value or b"") if record.key == CHECKPOINT_KEY else None
        position, counts = step(position, *decode_header(record.header), checkpoint)
        if counts and checkpoint is None:
            shard.take(record.key, record.value, record.offset)
            if record.key[:2] != (77).to_bytes(2, "big"):
                changes.append(record.offset)
    states = {key: state for key, state in shard.fold(lambda _: None, lambda: False) if state is not None}
    entries = {}
    for key, state in states.items():
        offset = tracker.newest_snapshot_offset(key)
        assert offset is not None
        entries[key] = Entry(Snapshot(*state[:-1]), state.update_count, offset)
    return position, entries, changes


@given(logs(UNCUT), st.randoms(use_true_random=False))
def test_every_manifest_stands_for_what_a_load_finds_at_its_offset(log: LogWriter, random: Random) -> None:
    job = Job({})
    job.run(log.records, random)
    entries = snapshot_set(job.topic)
    assert entries.manifest_offsets()
    for covered_offset in entries.manifest_offsets():
        position, states, _ = load(log.records[: covered_offset + 1])
        assert entries.verify(covered_offset, 0) == states
        manifest = entries.manifest(covered_offset)
        assert manifest.position == position
        owner = decode_checkpoint(manifest.checkpoint)
        assert (owner.owner_epoch, owner.attempt_id) == position[:2]


@given(logs(UNCUT), st.randoms(use_true_random=False))
def test_the_history_holds_each_change_that_counts_once(log: LogWriter, random: Random) -> None:
    job = Job({})
    job.run(log.records, random)
    assert job.history == load(log.records)[2]


@given(logs(), st.randoms(use_true_random=False))
def test_jobs_with_other_batches_and_without_their_state_agree(log: LogWriter, random: Random) -> None:
    topic: dict[bytes, bytes] = {}
    for _ in range(3):
        job = Job(topic)
        job.run(log.records, random)
    entries = snapshot_set(topic)
    for covered_offset in entries.manifest_offsets():
        assert entries.verify(covered_offset, 0) == load(log.records[: covered_offset + 1])[1]


@given(logs(), st.data(), st.randoms(use_true_random=False))
def test_a_cut_log_is_loaded_from_its_newest_manifest(log: LogWriter, data: st.DataObject, random: Random) -> None:
    """The topic may be written by a job that read the log before the cut, by one that lags, or by one that lost its state."""
    topic: dict[bytes, bytes] = {}
    early, late, fresh = Job(topic), Job(topic), Job(topic)
    early.run(log.records, random)
    seen = data.draw(st.integers(0, log.log_start))
    late.run(log.records[:seen], random)
    late.run(log.kept(), random)
    fresh.run(log.kept(), random)
    entries = snapshot_set(topic)
    position, states, _ = load(log.kept())
    newest = entries.manifest_offsets()[0]
    assert entries.verify(newest, log.log_start) == states
    assert states.keys() == log.states.keys()
    for covered_offset in entries.manifest_offsets():
        if covered_offset < log.log_start:
            continue
        try:
            live = entries.verify(covered_offset, log.log_start)
        except Disagreement:
            continue
        # A load that begins with this manifest and reads on holds the same as a fold that goes on from it.
        store = DictStore()
        manifest = entries.manifest(covered_offset)
        mark = Mark(covered_offset + 1, manifest.position, manifest.checkpoint, covered_offset, -1, 0, 0, 0)
        for raw in entries.select(covered_offset, log.log_start).values():
            key = decode_key(raw.key_bytes)
            assert isinstance(key, EntryKey)
            if key.key in live:
                share_key, _ = encode_record(Codec.AVRO, key.key, None)
                store.put(share_key, folding.Held(raw.covered_offset, raw.value_bytes))
        folded = fold_some(mark, store, log.records[covered_offset + 1 :])
        assert folded.mark.position == position
        assert sorted(decode_entry(held.entry or b"") for held in store.values()) == sorted(states.values())


def test_a_fold_that_reads_a_cut_forgets_what_it_held() -> None:
    log = write_log(1, [*["write"] * 4, *["delete"] * 4, "cut"])
    store = DictStore()
    folded = fold_some(NEW, store, log.records[:3])
    folded = fold_some(folded.mark, store, log.kept())
    assert folded.cut_at == log.log_start
    assert folded.mark.live_count == len(store) == len(log.states)


# ---- one record at a time ------------------------------------------------------------------------------------------

KEY = KEYS[0]
SNAPSHOT = Snapshot(0, 0, 0, 0, 0, 1, 1, (), 0, 0)
UPDATE = Update(0, -1, 3, 1, ())


def record(sequence: int, value: Snapshot | Update | None) -> RawRecord:
    return RawRecord(sequence, *encode_record(Codec.AVRO, KEY, value), encode_header(1, sequence))


def checkpoint_record(sequence: int, reason: str | None = None, cut_offset: int = -1) -> RawRecord:
    value = Checkpoint(1, bytes(16), "a", 1, "cluster", STATE_TOPIC_ID, PARTITION_COUNT, reason, cut_offset=cut_offset)
    return RawRecord(sequence, CHECKPOINT_KEY, encode_checkpoint(value), encode_header(1, sequence))


def test_an_update_without_base_delays_the_manifest_until_its_snapshot() -> None:
    store = DictStore()
    folded = fold_some(NEW, store, [checkpoint_record(0), record(1, UPDATE)])
    assert (folded.entries, folded.manifest, folded.mark.waiting_count) == ([], None, 1)
    folded = fold_some(folded.mark, store, [record(2, UPDATE), record(3, SNAPSHOT), record(4, UPDATE)])
    assert folded.mark.waiting_count == 0
    assert folded.manifest is not None
    assert decode_entry(folded.entries[0][1]) == Entry(
        SNAPSHOT._replace(start_offset=3, delivery_complete_count=1), 1, 3
    )


def test_a_tombstone_ends_the_wait_for_a_base() -> None:
    store = DictStore()
    folded = fold_some(NEW, store, [checkpoint_record(0), record(1, UPDATE)])
    folded = fold_some(folded.mark, store, [record(2, None)])
    assert folded.mark.waiting_count == 0
    assert folded.manifest is not None
    assert decode_entry(folded.entries[0][1]).snapshot is None
    assert not store


def test_an_accepted_log_leaves_out_what_waits_for_its_base() -> None:
    store = DictStore()
    folded = fold_some(NEW, store, [checkpoint_record(0), record(1, UPDATE)])
    folded = fold_some(folded.mark, store, [checkpoint_record(2, "the base is lost")])
    assert folded.mark.waiting_count == 0
    assert folded.manifest is not None
    folded = fold_some(folded.mark, store, [record(3, UPDATE)])
    assert (folded.manifest, folded.mark.waiting_count) == (None, 1)
    folded = fold_some(folded.mark, store, [record(4, SNAPSHOT)])
    assert (folded.mark.waiting_count, folded.mark.live_count) == (0, 1)


BROKEN = record(2, SNAPSHOT)._replace(value=b"\xc3\x01\x00\x00\x00\x00\x00\x00\x00\x00")
CUT_SHORT = record(2, SNAPSHOT)._replace(value=(record(2, SNAPSHOT).value or b"")[:-1])


@pytest.mark.parametrize("broken", [BROKEN, CUT_SHORT], ids=["unknown schema", "cut short"])
def test_an_undecodable_record_stops_the_fold_and_changes_nothing(broken: RawRecord) -> None:
    store = DictStore()
    begun = fold_some(NEW, store, [checkpoint_record(0), record(1, SNAPSHOT)])
    before = dict(store)
    with pytest.raises(FoldStopped, match="Offset 2 ") as stopped:
        fold_some(begun.mark, store, [broken, record(3, UPDATE)])
    assert stopped.value.offset == 2
    assert store == before
    folded = fold_some(begun.mark, store, [broken, checkpoint_record(3, "the record is lost"), record(4, SNAPSHOT)])
    assert folded.mark.live_count == 1


def test_records_that_were_folded_before_are_passed_over() -> None:
    store = DictStore()
    records = [checkpoint_record(0), record(1, SNAPSHOT), record(2, UPDATE)]
    first = fold_some(NEW, store, records[:2])
    again = fold_some(first.mark, store, records)
    assert again.changes == [2]
    assert again.mark.next_offset == 3


def test_a_batch_in_which_nothing_counts_has_no_manifest() -> None:
    store = DictStore()
    first = fold_some(NEW, store, [checkpoint_record(0), record(1, SNAPSHOT)])
    assert first.manifest is not None
    key = decode_key(first.manifest[0])
    assert key == ManifestKey(STATE_TOPIC_ID, LOG_PARTITION, 1)
    void = fold_some(first.mark, store, [RawRecord(2, KEY.group_id.encode(), b"", None)])
    assert (void.manifest, void.void_records) == (None, 1)


def test_pending_before_an_acceptance_is_kept_if_the_log_is_whole_above_it() -> None:
    store = DictStore()
    folded = fold_some(NEW, store, [checkpoint_record(5), record(6, UPDATE)])
    folded = fold_some(folded.mark, store, [checkpoint_record(7, "the base is lost"), checkpoint_record(8)])
    assert (folded.mark.waiting_count, folded.mark.unproven_start, len(store)) == (0, 5, 1)
    folded = fold_some(folded.mark, store, [checkpoint_record(9, cut_offset=8)])
    assert (folded.mark.waiting_count, folded.mark.unproven_start, len(store)) == (0, 0, 0)
    assert folded.manifest is not None
