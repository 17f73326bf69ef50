"""A load that begins with the snapshot topic ends as a load of the whole log does; what is wrong with it is named."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.records.log.fencing import Position
from holdfast.records.share.snapshot_store.entries import (
    ManifestKey,
    decode_entry,
    decode_key,
    encode_entry,
    encode_manifest,
)
from holdfast.records.share.snapshot_store.folding import NEW, RawRecord, fold
from holdfast.records.share.snapshot_store.snapshot_set import SnapshotSet
from holdfast.runtime.log_protocol import LogRecord
from holdfast.runtime.partition.ownership import Ownership, Verdict
from holdfast.runtime.partition.restore_point import RestorePoint
from holdfast.runtime.settings import LogIdentity
from holdfast.share.config import ShardConfig
from holdfast.share.decisions import ShareShard
from holdfast.share.snapshots.restore import NoRestorePoint, Refusal, choose_restore_point
from tests.configs import shard_config
from tests.pure.records.logs import (
    LOG_PARTITION,
    PARTITION_COUNT,
    STATE_TOPIC_ID,
    DictStore,
    LogWriter,
    logs,
    write_log,
)
from tests.shards import states_at, summarize

IDENTITY = LogIdentity("cluster", STATE_TOPIC_ID, PARTITION_COUNT)


def run_job(records: list[RawRecord], random: Random) -> dict[bytes, bytes | None]:
    """Return what a job wrote into the snapshot topic, however it cut the log into batches."""
    topic: dict[bytes, bytes | None] = {}
    store, mark = DictStore(), NEW
    while records:
        size = random.randint(1, 12)
        folded = fold(STATE_TOPIC_ID, LOG_PARTITION, PARTITION_COUNT, mark, store, records[:size])
        records, mark = records[size:], folded.mark
        topic.update(folded.entries)
        topic.update([folded.manifest] if folded.manifest is not None else [])
    return topic


def read(records: Iterable[tuple[bytes, bytes | None]]) -> SnapshotSet:
    entries = SnapshotSet(STATE_TOPIC_ID, LOG_PARTITION)
    for record in records:
        entries.add(*record)
    return entries


def finish(choice: Generator[None, None, RestorePoint]) -> RestorePoint:
    while True:
        try:
            next(choice)
        except StopIteration as end:
            point: RestorePoint = end.value
            return point


def load(
    records: list[RawRecord], config: ShardConfig, point: RestorePoint | None = None
) -> tuple[ShareShard, Ownership]:
    """Load as the runtime does."""
    shard, ownership = ShareShard(config), Ownership()
    found = [LogRecord(*record) for record in records]
    if point is not None:
        found = [record for record in found if record.offset >= point.offset]
        assert point.refusal(found.pop(0)) == ""
        ownership.begin_at(point.position, point.checkpoint, point.offset)
        shard.restore(point.content)
    for record in found:
        if ownership.judge(record) is Verdict.DATA:
            shard.load_record(record.key or b"", record.value, record.offset)
    assert shard.fold_loaded(lambda: False)
    shard.on_loaded(None)
    return shard, ownership


def outcome(shard: ShareShard, ownership: Ownership, end: int) -> dict[str, Any]:
    """Return all that a shard holds and would do next."""
    return {
        "states": states_at(shard, 0),
        "topics": shard.state.topic_sizes(),
        "offsets": list(shard.state.offsets._offsets.items()),
        "summary": summarize(shard),
        "prunes": shard.decide_pruning_slice(end, 1_000, 1 << 30).records,
        "position": ownership.position,
        "winner": ownership.winner,
        "generation": ownership.generation_max,
    }


@given(logs(), st.sampled_from([0, 1, 3, 500]), st.data(), st.randoms(use_true_random=False))
def test_a_restore_is_a_whole_load(log: LogWriter, updates: int, data: st.DataObject, random: Random) -> None:
    config = shard_config(snapshot_update_records_per_snapshot=updates)
    folded = data.draw(st.integers(1, len(log.records)))
    topic = run_job(log.records[:folded], random)
    try:
        point = finish(choose_restore_point(read(topic.items()), log.log_start, IDENTITY))
    except NoRestorePoint:
        assert log.log_start, "a log that was never cut has a manifest for each batch"
        return
    wanted = outcome(*load(log.kept(), config), len(log.records))
    assert outcome(*load(log.kept(), config, point), len(log.records)) == wanted


@given(logs(), st.randoms(use_true_random=False))
def test_a_job_that_has_seen_all_of_a_cut_log_makes_restores_possible(log: LogWriter, random: Random) -> None:
    point = finish(choose_restore_point(read(run_job(log.records, random).items()), log.log_start, IDENTITY))
    assert point.offset >= log.log_start


# ---- what is wrong -------------------------------------------------------------------------------------------------


def small_log() -> LogWriter:
    return write_log(7, ["write"] * 12)


def topic_of(log: LogWriter, *sizes: int) -> dict[bytes, bytes | None]:
    topic: dict[bytes, bytes | None] = {}
    store, mark, at = DictStore(), NEW, 0
    for size in sizes:
        folded = fold(STATE_TOPIC_ID, LOG_PARTITION, PARTITION_COUNT, mark, store, log.records[at : at + size])
        mark, at = folded.mark, at + size
        topic.update(folded.entries)
        topic.update([folded.manifest] if folded.manifest is not None else [])
    return topic


def refusal_of(topic: dict[bytes, bytes | None], log_start: int = 0, identity: LogIdentity = IDENTITY) -> Refusal:
    with pytest.raises(NoRestorePoint) as none:
        finish(choose_restore_point(read(topic.items()), log_start, identity))
    return none.value.refusal


def newest_entry(topic: dict[bytes, bytes | None]) -> bytes:
    return max(
        (key for key in topic if not isinstance(decode_key(key), ManifestKey)), key=lambda key: decode_key(key)[2]
    )


def test_without_manifests_there_is_nothing_to_begin_with() -> None:
    assert refusal_of({}) is Refusal.EMPTY
    assert refusal_of(topic_of(small_log(), 5, 8), log_start=13) is Refusal.EMPTY


def test_an_older_manifest_takes_the_place_of_one_that_does_not_agree() -> None:
    log = small_log()
    topic = topic_of(log, 5, 8)
    topic[newest_entry(topic)] = None
    assert finish(choose_restore_point(read(topic.items()), 0, IDENTITY)).offset == 4


def test_entries_that_do_not_add_up_are_refused() -> None:
    topic = topic_of(small_log(), 13)
    missing = dict(topic)
    del missing[newest_entry(topic)]
    assert refusal_of(missing) is Refusal.DISAGREEMENT
    key = newest_entry(topic)
    value = topic[key]
    assert value is not None
    decoded = decode_entry(value)
    topic[key] = encode_entry(decoded._replace(update_count=decoded.update_count + 1))
    assert refusal_of(topic) is Refusal.DISAGREEMENT


def test_undecodable_entry_is_refused() -> None:
    topic = topic_of(small_log(), 13)
    topic[newest_entry(topic)] = b"\xc3\x01"
    assert refusal_of(topic) is Refusal.UNDECODABLE
    topic = topic_of(small_log(), 13)
    for key in topic:
        if isinstance(decode_key(key), ManifestKey):
            topic[key] = b"?"
    assert refusal_of(topic) is Refusal.UNDECODABLE


def test_manifests_for_another_number_of_partitions_are_refused() -> None:
    assert refusal_of(topic_of(small_log(), 13), identity=IDENTITY._replace(partition_count=6)) is Refusal.FOREIGN


@pytest.mark.parametrize(
    "change",
    [
        lambda position: position._replace(owner_epoch=position.owner_epoch + 1),
        lambda position: position._replace(owner_epoch=position.owner_epoch - 1),
        lambda position: position._replace(attempt_id=b"?" * 16),
    ],
    ids=["a lower epoch", "a higher epoch", "another attempt of the same epoch"],
)
def test_a_manifest_whose_checkpoint_is_not_that_of_its_owner_is_refused(
    change: Callable[[Position], Position],
) -> None:
    topic = topic_of(small_log(), 13)
    entries = read(topic.items())
    (offset,) = entries.manifest_offsets()
    manifest = entries.manifest(offset)
    key, value = encode_manifest(
        ManifestKey(STATE_TOPIC_ID, LOG_PARTITION, offset), manifest._replace(position=change(manifest.position))
    )
    topic[key] = value
    assert refusal_of(topic) is Refusal.FOREIGN
