"""Whatever the snapshot topic holds is compared with a fold of the log, and each difference is found and shown."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.console.sources.snapshot_reader import Verification, compare
from holdfast.records.share.codecs import avro
from holdfast.records.share.keys import format_key
from holdfast.records.share.snapshot_store.entries import (
    DELETED,
    EntryKey,
    ManifestKey,
    decode_entry,
    decode_key,
    decode_manifest,
    encode_entry,
    encode_entry_key,
    encode_manifest,
)
from holdfast.records.share.snapshot_store.folding import NEW, fold
from holdfast.records.share.snapshot_store.snapshot_set import SnapshotSet
from tests.pure.records.logs import (
    LOG_PARTITION,
    PARTITION_COUNT,
    STATE_TOPIC_ID,
    DictStore,
    LogWriter,
    logs,
    write_log,
)

UNCUT = ("write", "write", "write", "snapshot", "delete", "take", "refresh", "gap", "zombie", "foreign", "unknown")


def fold_all(log: LogWriter, random: Random) -> dict[bytes, bytes]:
    """Return what a job writes that folds all of a log, in batches of any size."""
    topic: dict[bytes, bytes] = {}
    mark, store, records = NEW, DictStore(), log.records
    while records:
        size = random.randint(1, 12)
        folded = fold(STATE_TOPIC_ID, LOG_PARTITION, PARTITION_COUNT, mark, store, records[:size])
        mark, records = folded.mark, records[size:]
        topic |= dict(folded.entries)
        topic |= dict([folded.manifest] if folded.manifest else [])
    return topic


def verify(topic: dict[bytes, bytes], log: LogWriter, covered_offset: int | None = None) -> Verification:
    """Compare at an offset, or at that of the newest manifest."""
    snapshots = SnapshotSet(STATE_TOPIC_ID, LOG_PARTITION)
    for key, value in topic.items():
        snapshots.add(key, value)
    offset = snapshots.manifest_offsets()[0] if covered_offset is None else covered_offset
    records = log.records[log.log_start : offset + 1]
    return compare(snapshots, STATE_TOPIC_ID, LOG_PARTITION, PARTITION_COUNT, offset, records)


@given(logs(UNCUT), st.randoms(use_true_random=False))
def test_what_a_job_wrote_is_what_the_log_says(log: LogWriter, random: Random) -> None:
    topic = fold_all(log, random)
    manifests = [key for key in map(decode_key, topic) if isinstance(key, ManifestKey)]
    for _, _, covered_offset in manifests:
        verdict = verify(topic, log, covered_offset)
        assert (verdict.differences, verdict.open_question) == ([], "")


@given(logs(), st.randoms(use_true_random=False))
def test_a_log_that_was_cut_is_no_difference(log: LogWriter, random: Random) -> None:
    """The job has seen it whole; what it knows from before the cut is left open until newer records say it again."""
    topic = fold_all(log, random)
    for _, _, covered_offset in [key for key in map(decode_key, topic) if isinstance(key, ManifestKey)]:
        if covered_offset >= log.log_start:
            assert verify(topic, log, covered_offset).differences == []


@given(logs(UNCUT), st.randoms(use_true_random=False))
def test_a_deleted_share_partition_needs_no_entry(log: LogWriter, random: Random) -> None:
    topic = fold_all(log, random)
    deleted = {key.key for key, value in entries(topic).items() if decode_entry(value).snapshot is None}
    kept = {
        key: value
        for key, value in topic.items()
        if not isinstance(known := decode_key(key), EntryKey) or known.key not in deleted - log.states.keys()
    }
    assert verify(kept, log).differences == []


def entries(topic: dict[bytes, bytes]) -> dict[EntryKey, bytes]:
    decoded = {decode_key(key): value for key, value in topic.items()}
    return {key: value for key, value in decoded.items() if isinstance(key, EntryKey)}


@pytest.fixture
def log() -> LogWriter:
    """Give a log with a live share partition at its end."""
    log = write_log(7, ["write"] * 20 + ["delete", "take"] + ["write"] * 9)
    assert log.states
    return log


@pytest.fixture
def topic(log: LogWriter) -> dict[bytes, bytes]:
    """Give what one batch of a job writes of it."""
    folded = fold(STATE_TOPIC_ID, LOG_PARTITION, PARTITION_COUNT, NEW, DictStore(), log.records)
    assert folded.manifest is not None
    return dict([*folded.entries, folded.manifest])


def newest_entry(topic: dict[bytes, bytes], log: LogWriter) -> EntryKey:
    return max((key for key in entries(topic) if key.key in log.states), key=lambda key: key.covered_offset)


def test_an_entry_with_another_content_is_shown_beside_the_logs(topic: dict[bytes, bytes], log: LogWriter) -> None:
    key = newest_entry(topic, log)
    key_bytes = encode_entry_key(STATE_TOPIC_ID, avro.encode_key(key.key), key.covered_offset)
    entry = decode_entry(topic[key_bytes])
    assert entry.snapshot is not None
    topic[key_bytes] = encode_entry(entry._replace(snapshot=entry.snapshot._replace(start_offset=987)))
    (difference,) = verify(topic, log).differences
    assert difference.subject == format_key(key.key)
    assert difference.in_topic.startswith(f"at {key.covered_offset}: ")
    assert "start_offset 987" in difference.in_topic
    assert difference.in_topic.replace("start_offset 987", f"start_offset {entry.snapshot.start_offset}") == (
        difference.from_log
    )


def test_an_entry_that_is_missing_or_too_many_is_a_difference(topic: dict[bytes, bytes], log: LogWriter) -> None:
    key = newest_entry(topic, log)
    key_bytes = encode_entry_key(STATE_TOPIC_ID, avro.encode_key(key.key), key.covered_offset)
    value = topic.pop(key_bytes)
    (missing,) = verify(topic, log).differences
    assert (missing.subject, missing.in_topic) == (format_key(key.key), "nothing")
    stranger = key.key._replace(group_id="stranger")
    topic[key_bytes] = value
    topic[encode_entry_key(STATE_TOPIC_ID, avro.encode_key(stranger), key.covered_offset)] = value
    (too_many,) = verify(topic, log).differences
    assert (too_many.subject, too_many.from_log) == (format_key(stranger), "nothing")


def test_a_live_entry_is_not_taken_for_a_deleted_one(topic: dict[bytes, bytes], log: LogWriter) -> None:
    key = newest_entry(topic, log)
    topic[encode_entry_key(STATE_TOPIC_ID, avro.encode_key(key.key), key.covered_offset)] = encode_entry(DELETED)
    (difference,) = verify(topic, log).differences
    assert difference.in_topic == f"at {key.covered_offset}: deleted"


@pytest.mark.parametrize("field", ["live_count", "digest_sum", "partition_count", "position"])
def test_a_manifest_that_says_something_else_is_a_difference(
    topic: dict[bytes, bytes], log: LogWriter, field: str
) -> None:
    (key_bytes,) = (key for key in topic if isinstance(decode_key(key), ManifestKey))
    key, manifest = decode_key(key_bytes), decode_manifest(topic[key_bytes])
    assert isinstance(key, ManifestKey)
    value = getattr(manifest, field)
    other = value._replace(next_sequence=value.next_sequence + 1) if field == "position" else value + 1
    topic |= dict([encode_manifest(key, manifest._replace(**{field: other}))])
    (difference,) = verify(topic, log).differences
    assert difference.subject == "manifest"
    assert difference.in_topic != difference.from_log


def test_what_cannot_be_read_is_said(topic: dict[bytes, bytes], log: LogWriter) -> None:
    (manifest_key,) = (key for key in topic if isinstance(decode_key(key), ManifestKey))
    broken = topic | {manifest_key: b"?"}
    (difference,) = verify(broken, log).differences
    assert (difference.subject, "cannot be decoded" in difference.in_topic) == ("manifest", True)
    key = newest_entry(topic, log)
    key_bytes = encode_entry_key(STATE_TOPIC_ID, avro.encode_key(key.key), key.covered_offset)
    (difference,) = verify(topic | {key_bytes: b"?"}, log).differences
    assert "cannot be decoded" in difference.in_topic
    last = len(log.records) - 1
    log.records[last] = log.records[last]._replace(value=b"?")
    assert "cannot be folded" in verify(topic, log).open_question
    log.records.clear()
    assert verify(topic, log, 5).open_question == "the log does not hold its offset any more"
