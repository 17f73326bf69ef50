"""Entries and manifests as bytes: the hand-written forms against fastavro, and what a damaged topic comes to."""

from __future__ import annotations

import json
from importlib.resources import files
from io import BytesIO
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.records.errors import RecordError, Undecodable, UnknownVersion
from holdfast.records.log.fencing import Position
from holdfast.records.share.batches import StateBatch
from holdfast.records.share.codecs import avro
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.snapshot_store import entries
from holdfast.records.share.snapshot_store.entries import (
    DELETED,
    Entry,
    EntryKey,
    Manifest,
    ManifestKey,
    decode_entry,
    decode_key,
    decode_manifest,
    digest,
    encode_entry,
    encode_entry_key,
    encode_manifest,
    is_live_entry,
    snapshot_offset_of,
)
from holdfast.records.share.snapshot_store.snapshot_set import Disagreement, SnapshotSet
from holdfast.records.share.values import Snapshot
from tests.pure.records.strategies import int32s, int64s, keys, snapshots, topic_ids

any_entries = st.builds(Entry, snapshots, int32s, int64s) | st.just(DELETED)
entry_keys = st.builds(EntryKey, topic_ids, keys, int64s)
manifest_keys = st.builds(ManifestKey, topic_ids, int32s, int64s)
manifests = st.builds(
    Manifest,
    int32s,
    st.builds(Position, int32s, topic_ids, int64s),
    st.binary(max_size=80),
    int64s,
    st.integers(0, (1 << 128) - 1),
    int64s,
)


def encode_key(key: EntryKey) -> bytes:
    return encode_entry_key(key.state_topic_id, avro.encode_key(key.key), key.covered_offset)


def read_with_fastavro(schema_name: str, data: bytes) -> Any:
    text = files("holdfast.records").joinpath("schemas", f"{schema_name}.avsc").read_text()
    return fastavro.schemaless_reader(BytesIO(data[10:]), fastavro.parse_schema(json.loads(text)), None)


@given(entry_keys)
def test_an_entry_key_is_read_back_also_by_fastavro(key: EntryKey) -> None:
    data = encode_key(key)
    assert decode_key(data) == key
    assert read_with_fastavro("share_entry_key", data) == {
        "state_topic_id": key.state_topic_id,
        **key.key._asdict(),
        "covered_offset": key.covered_offset,
    }


@given(any_entries)
def test_an_entry_is_read_back_also_by_fastavro(entry: Entry) -> None:
    data = encode_entry(entry)
    assert decode_entry(data) == entry
    fields = read_with_fastavro("share_entry", data)
    state = fields.pop("state")
    if state is not None:
        state["state_batches"] = tuple(StateBatch(**batch) for batch in state["state_batches"])
        state = Snapshot(**state)
    assert Entry(state, **fields) == entry


@given(any_entries)
def test_peeking_at_an_entry_agrees_with_decoding_it(entry: Entry) -> None:
    data = encode_entry(entry)
    assert (is_live_entry(data), snapshot_offset_of(data)) == (entry.snapshot is not None, entry.snapshot_offset)


@given(manifest_keys, manifests)
def test_a_manifest_is_read_back(key: ManifestKey, manifest: Manifest) -> None:
    key_bytes, value_bytes = encode_manifest(key, manifest)
    assert (decode_key(key_bytes), decode_manifest(value_bytes)) == (key, manifest)


@given(entry_keys, any_entries, st.data())
def test_an_entry_that_is_cut_short_or_goes_on_is_refused(key: EntryKey, entry: Entry, data: st.DataObject) -> None:
    for whole, decode in ((encode_key(key), decode_key), (encode_entry(entry), decode_entry)):
        size = data.draw(st.integers(0, len(whole) - 1))
        with pytest.raises(Undecodable):
            decode(whole[:size])
        with pytest.raises(Undecodable):
            decode(whole + b"\x00")


def test_another_schema_is_named() -> None:
    with pytest.raises(UnknownVersion, match="0102030405060708"):
        decode_key(b"\xc3\x01\x08\x07\x06\x05\x04\x03\x02\x01 more")
    with pytest.raises(Undecodable, match="there is none"):
        decode_key(None)


# ---- sets ----------------------------------------------------------------------------------------------------------

TOPIC, OTHER_TOPIC = b"T" * 16, b"U" * 16
ONE, TWO = (SharePartitionKey(group_id, bytes(16), 0) for group_id in ("one", "two"))
STATE = Snapshot(0, 0, 0, 5, 0, 1, 1, (), 0, 0)


def entry_of(key: SharePartitionKey, covered_offset: int, entry: Entry, topic: bytes = TOPIC) -> tuple[bytes, bytes]:
    return encode_key(EntryKey(topic, key, covered_offset)), encode_entry(entry)


def manifest_of(covered_offset: int, *live: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
    total = sum(digest(*entry) for entry in live) % entries.DIGEST_MODULUS
    manifest = Manifest(5, Position(1, TOPIC, 9), b"", len(live), total)
    return encode_manifest(ManifestKey(TOPIC, 0, covered_offset), manifest)


OLD = entry_of(ONE, 3, Entry(STATE, 0, 3))
NEW = entry_of(ONE, 12, Entry(STATE._replace(start_offset=7), 1, 3))
BESIDE = entry_of(TWO, 11, Entry(STATE, 0, 11))


def set_of(*records: tuple[bytes, bytes | None]) -> SnapshotSet:
    found = SnapshotSet(TOPIC, 0)
    for record in records:
        found.add(*record)
    return found


def test_a_set_takes_the_highest_entries_up_to_the_manifest() -> None:
    found = set_of(NEW, OLD, BESIDE, manifest_of(11, OLD, BESIDE), manifest_of(12, NEW, BESIDE))
    assert found.manifest_offsets() == [12, 11]
    assert found.verify(11, 0) == {ONE: Entry(STATE, 0, 3), TWO: Entry(STATE, 0, 11)}
    assert found.verify(12, 0)[ONE].update_count == 1


def test_entries_below_the_log_start_are_nobodys() -> None:
    found = set_of(OLD, BESIDE, manifest_of(11, BESIDE))
    assert found.verify(11, 4).keys() == {TWO}
    with pytest.raises(Disagreement, match="2 share partitions are live where the manifest counts 1"):
        found.verify(11, 3)


def test_a_deleted_share_partition_is_not_live() -> None:
    gone = entry_of(ONE, 12, DELETED)
    assert set_of(OLD, BESIDE, gone, manifest_of(12, BESIDE)).verify(12, 0).keys() == {TWO}


def test_other_content_under_the_same_key_is_found_out() -> None:
    forged = NEW[0], encode_entry(Entry(STATE._replace(start_offset=8), 1, 3))
    with pytest.raises(Disagreement, match="add up to"):
        set_of(forged, BESIDE, manifest_of(12, NEW, BESIDE)).verify(12, 0)


def test_an_entry_that_cannot_be_decoded_is_a_disagreement() -> None:
    with pytest.raises(Disagreement, match="cannot be decoded"):
        set_of((NEW[0], b"\xc3\x01"), BESIDE, manifest_of(12, NEW, BESIDE)).verify(12, 0)


def test_an_entry_that_a_null_removed_counts_for_no_memory() -> None:
    assert set_of(OLD).size_bytes > 0
    assert set_of(OLD, (OLD[0], None)).size_bytes == 0


def test_a_null_removes_an_entry_or_a_manifest_and_tells_no_state() -> None:
    manifest = manifest_of(11, OLD, BESIDE)
    found = set_of(OLD, NEW, BESIDE, manifest, (NEW[0], None), (NEW[0], None))
    assert found.verify(11, 0).keys() == {ONE, TWO}
    assert len(found) == 2
    found.add(manifest[0], None)
    assert found.manifest_offsets() == []


def test_entries_that_another_owner_removes_meanwhile_do_no_harm() -> None:
    older, oldest = manifest_of(11, OLD, BESIDE), manifest_of(10, OLD)
    middle = entry_of(ONE, 5, Entry(STATE, 1, 3))
    found = set_of(OLD, middle, NEW, BESIDE, oldest, older, manifest_of(12, NEW, BESIDE))
    removable = found.removable(0, [12, 12])
    assert next(removable) == oldest[0]
    found.add(older[0], None)
    assert next(removable) == older[0]
    assert next(removable) == OLD[0]
    found.add(OLD[0], None)
    found.add(middle[0], None)
    assert list(removable) == [middle[0]]
    with pytest.raises(RecordError, match="removed meanwhile"):
        found.manifest(11)
    with pytest.raises(Disagreement, match="removed meanwhile"):
        found.verify(11, 0)


def test_foreign_and_unreadable_entries_are_passed_over() -> None:
    elsewhere = encode_manifest(ManifestKey(TOPIC, 1, 5), decode_manifest(manifest_of(5)[1]))
    found = set_of(entry_of(ONE, 3, DELETED, OTHER_TOPIC), elsewhere, (b"?", b"?"))
    assert found.add(None, b"?") is None
    assert (found.foreign_records, len(found)) == (2, 0)
    assert found.share_partitions() == []
    assert found.entries_of(ONE) == []
