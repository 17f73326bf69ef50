"""Choose, among the manifests of a snapshot topic, the one that a load of a log partition may begin with.

A wrong, late, missing or stale snapshot costs time, never data: the entries must agree with a manifest, and
`runtime/partition/restore_point.py` compares the record at its offset with the log before a load goes on from there.

Source: `pick` in tests/model/manifests.py.
"""

from collections.abc import Generator
from enum import Enum
from typing import Final

from holdfast.records.errors import RecordError
from holdfast.records.log.checkpoint import decode_checkpoint
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.pending_runs import Run
from holdfast.records.share.snapshot_store.entries import snapshot_offset_of
from holdfast.records.share.snapshot_store.snapshot_set import Disagreement, RawEntry, SnapshotSet
from holdfast.runtime.partition.restore_point import RestorePoint
from holdfast.runtime.settings import LogIdentity
from holdfast.share.load import RestoredRuns

#: Manifests that a load tries at most, newest first.
MANIFESTS_TRIED_MAX: Final = 3

#: Share partitions taken over in about a third of a millisecond.
_SLICE: Final = 200


class Refusal(Enum):
    """Why a load reads the whole log; the label of a metric."""

    #: There is no snapshot topic, or it has not this partition.
    MISSING = "missing"
    #: No manifest lies at or above the log start.
    EMPTY = "empty"
    #: The snapshot topic could not be read in time.
    LATE = "late"
    #: A broker refused to let it be read.
    UNREADABLE = "unreadable"
    #: It holds more than may be kept in memory.
    TOO_LARGE = "too-large"
    #: A manifest or an entry has another schema, or is damaged.
    UNDECODABLE = "undecodable"
    #: The manifests are for another number of partitions, or by another owner.
    FOREIGN = "foreign"
    #: The entries do not add up to what the manifests say.
    DISAGREEMENT = "disagreement"
    #: The log does not hold the record that the manifest ends with, or its entries could not be loaded.
    REFUSED = "refused"


class NoRestorePoint(Exception):
    """No manifest can be restored from; the text says why."""

    def __init__(self, refusal: Refusal, text: str) -> None:
        super().__init__(text)
        self.refusal = refusal


def choose_restore_point(
    entries: SnapshotSet, log_start: int, identity: LogIdentity
) -> Generator[None, None, RestorePoint]:
    """Return the newest restore point for a log that starts there; yields now and then, so that other work gets its turn.

    Raises:
        NoRestorePoint: none of the newest manifests can be used; says why not the last of them.
    """
    offsets = [offset for offset in entries.manifest_offsets() if offset >= log_start]
    failure = NoRestorePoint(Refusal.EMPTY, f"no manifest lies at or above the log start {log_start}")
    for offset in offsets[:MANIFESTS_TRIED_MAX]:
        try:
            return (yield from _make_restore_point(entries, offset, log_start, identity))
        except NoRestorePoint as refused:
            failure = refused
    raise failure


def _make_restore_point(
    entries: SnapshotSet, offset: int, log_start: int, identity: LogIdentity
) -> Generator[None, None, RestorePoint]:
    where = f"the manifest at offset {offset}"
    try:
        manifest = entries.manifest(offset)
        checkpoint = decode_checkpoint(manifest.checkpoint)
    except RecordError as error:
        raise NoRestorePoint(Refusal.UNDECODABLE, f"{where}: {error}") from error
    if manifest.partition_count != identity.partition_count:
        raise NoRestorePoint(Refusal.FOREIGN, f"{where} is for {manifest.partition_count} partitions")
    if (checkpoint.owner_epoch, checkpoint.attempt_id) != manifest.position[:2]:
        raise NoRestorePoint(Refusal.FOREIGN, f"{where} does not name the owner of its epoch")
    if manifest.checkpoint_offset < 0:
        raise NoRestorePoint(Refusal.FOREIGN, f"{where} does not say where its newest checkpoint lies")
    try:
        live = yield from entries.agree(offset, log_start)
    except Disagreement as disagreement:
        refusal = Refusal.UNDECODABLE if disagreement.is_undecodable else Refusal.DISAGREEMENT
        raise NoRestorePoint(refusal, f"{where}: {disagreement}") from disagreement
    content = yield from _take_over(live, offset, where)
    return RestorePoint(
        offset, manifest.position, checkpoint, content, _record_size_bytes(live), manifest.checkpoint_offset
    )


def _take_over(live: dict[SharePartitionKey, RawEntry], offset: int, where: str) -> Generator[None, None, RestoredRuns]:
    runs: dict[SharePartitionKey, Run] = {}
    snapshot_offsets = []
    try:
        for number, (key, entry) in enumerate(live.items()):
            if number % _SLICE == _SLICE - 1:
                yield
            runs[key] = Run(key, entry.value_bytes)
            snapshot_offsets.append((key, snapshot_offset_of(entry.value_bytes)))
    except RecordError as error:
        raise NoRestorePoint(Refusal.UNDECODABLE, f"{where}: {error}") from error
    snapshot_offsets.sort(key=lambda pair: pair[1])
    return RestoredRuns(offset, runs, snapshot_offsets)


def _record_size_bytes(live: dict[SharePartitionKey, RawEntry]) -> int:
    """Estimate the bytes of one record of the log: most are updates, whose keys are those of entries without 20 bytes."""
    if not live:
        return _UPDATE_SIZE_BYTES
    sample = list(live.values())[:_SLICE]
    return sum(len(entry.key_bytes) for entry in sample) // len(sample) - 20 + _UPDATE_SIZE_BYTES


#: Bytes of the value of an update with one state batch, in either codec.
_UPDATE_SIZE_BYTES: Final = 30
