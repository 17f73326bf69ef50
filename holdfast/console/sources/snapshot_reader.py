"""The snapshot store beside the log that it was folded from: what is in it, whether a load would use it, and whether it is right."""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from holdfast.console.sources.kafka_reader import KafkaReader, OffsetRange
from holdfast.console.sources.log_reader import find_placement
from holdfast.records.errors import RecordError
from holdfast.records.log.checkpoint import decode_checkpoint
from holdfast.records.log.header import find_header
from holdfast.records.share.codecs import avro
from holdfast.records.share.keys import SharePartitionKey, format_key
from holdfast.records.share.snapshot_store import folding
from holdfast.records.share.snapshot_store.entries import EntryKey, Manifest, decode_entry, decode_key
from holdfast.records.share.snapshot_store.folding import NEW, FoldStopped, RawRecord, fold
from holdfast.records.share.snapshot_store.snapshot_set import Disagreement, RawEntry, SnapshotSet
from holdfast.runtime.log_protocol import LogRecord
from holdfast.runtime.partition.restore_point import RestorePoint


class PartitionSnapshots(NamedTuple):
    """The content of the snapshot topic about a log partition."""

    log_partition: int
    snapshots: SnapshotSet
    size_bytes: int  #: of the records there, also of those about another topic, nulls and what is not yet compacted
    log: OffsetRange  #: of the log partition, queried after the snapshots were read

    def newest_manifest(self) -> int | None:
        """Return the covered offset of the newest manifest that the log still reaches; None: there is none."""
        return next((offset for offset in self.snapshots.manifest_offsets() if offset >= self.log.start), None)


class Difference(NamedTuple):
    """Something that the snapshot topic and the log do not agree on."""

    subject: str
    in_topic: str
    from_log: str


class Verification(NamedTuple):
    """The result of comparing the snapshot topic with the log, at the offset of a manifest."""

    covered_offset: int
    compared: int  #: entries
    differences: list[Difference]
    open_question: str  #: why something could not be compared; empty if all was


class SnapshotReader:
    """A reader of a snapshot topic and the log beside it.

    Raises:
        Failure: from each method, when a topic does not exist or no broker answers.
    """

    def __init__(self, kafka: KafkaReader, state_topic: str, snapshot_topic: str) -> None:
        self.state_topic_id = kafka.topic_id(state_topic)
        self.partition_count = len(kafka.partitions(state_topic))
        self.placement = find_placement(kafka, state_topic)
        self._kafka = kafka
        self._state_topic = state_topic
        self._snapshot_topic = snapshot_topic
        kafka.partitions(snapshot_topic)

    def read(self, log_partition: int) -> PartitionSnapshots:
        """Return what the topic holds about a log partition now."""
        snapshots = SnapshotSet(self.state_topic_id, log_partition)
        size_bytes = 0
        end = self._kafka.bounds(self._snapshot_topic, log_partition).end
        if end:
            for _, message in self._kafka.read(self._snapshot_topic, log_partition, end):
                key, value = message.key(), message.value()
                assert not isinstance(key, str)
                assert not isinstance(value, str)
                size_bytes += len(key or b"") + len(value or b"")
                snapshots.add(key, value)
        return PartitionSnapshots(
            log_partition, snapshots, size_bytes, self._kafka.bounds(self._state_topic, log_partition)
        )

    def refusal(self, held: PartitionSnapshots, covered_offset: int) -> str:
        """Return why a load would not begin with a manifest; empty if it would."""
        if not held.log.start <= covered_offset < held.log.end:
            return "the log does not hold its offset"
        try:
            held.snapshots.verify(covered_offset, held.log.start)
            manifest = held.snapshots.manifest(covered_offset)
            checkpoint = decode_checkpoint(manifest.checkpoint)
        except (Disagreement, RecordError) as error:
            return str(error)
        if manifest.partition_count != self.partition_count:
            return f"it counts {manifest.partition_count} log partitions where there are {self.partition_count}"
        point = RestorePoint(covered_offset, manifest.position, checkpoint, content=None, record_size_bytes=0)
        found = next(self.log_records(held.log_partition, covered_offset, covered_offset + 1), None)
        return "no record lies at its offset" if found is None else point.refusal(LogRecord(*found))

    def log_records(self, log_partition: int, from_offset: int, end: int) -> Iterator[RawRecord]:
        """Yield the records of a log partition from an offset to before another."""
        if from_offset >= end:
            return
        for offset, message in self._kafka.read(self._state_topic, log_partition, end, from_offset):
            key, value = message.key(), message.value()
            assert not isinstance(key, str)
            assert not isinstance(value, str)
            yield RawRecord(offset, key, value, find_header(message.headers()))

    def verify(self, held: PartitionSnapshots, covered_offset: int) -> Verification:
        """Recompute everything at the offset of a manifest from the log, and compare."""
        records = self.log_records(held.log_partition, held.log.start, covered_offset + 1)
        return compare(
            held.snapshots, self.state_topic_id, held.log_partition, self.partition_count, covered_offset, records
        )


class _Store(dict[bytes, folding.Held]):
    """The state of the fold, by share partition."""

    def put(self, key: bytes, held: folding.Held) -> None:
        self[key] = held

    def remove(self, key: bytes) -> None:
        del self[key]


def compare(
    snapshots: SnapshotSet,
    state_topic_id: bytes,
    log_partition: int,
    partition_count: int,
    covered_offset: int,
    records: Iterable[RawRecord],
) -> Verification:
    """Compare the snapshot store of a log partition at an offset with a fold of the log up to there.

    Args:
        snapshots: what the topic holds.
        state_topic_id: 16 bytes.
        log_partition: the one that it is about.
        partition_count: of the state topic.
        covered_offset: of the manifest in question.
        records: of the log, from its start to the covered offset.
    """
    records = iter(records)
    first = next(records, None)
    if first is None:
        return Verification(covered_offset, 0, [], "the log does not hold its offset any more")
    store = _Store()
    try:
        folded = fold(state_topic_id, log_partition, partition_count, NEW, store, chain((first,), records))
    except FoldStopped as error:
        return Verification(covered_offset, 0, [], str(error))
    waiting = {avro.decode_key(key) for key, held in store.items() if held.entry is None}
    from_log: dict[SharePartitionKey, RawEntry] = {}
    for key_bytes, value_bytes in folded.entries:
        key = decode_key(key_bytes)
        assert isinstance(key, EntryKey)
        from_log[key.key] = RawEntry(key.covered_offset, key_bytes, value_bytes)
    in_topic = snapshots.select(covered_offset, first.offset)
    subjects = sorted((from_log.keys() | in_topic.keys()) - waiting)
    differences = [
        Difference(format_key(key), _entry_text(in_topic.get(key)), _entry_text(from_log.get(key)))
        for key in subjects
        if not _agree(in_topic.get(key), from_log.get(key))
    ]
    open_question = ""
    mark = folded.mark
    recomputed = Manifest(
        partition_count, mark.position, mark.checkpoint, mark.live_count, mark.digest_sum, mark.checkpoint_offset
    )
    try:
        manifest = snapshots.manifest(covered_offset)
    except RecordError as error:
        differences.append(Difference("manifest", str(error), _manifest_text(recomputed, mark.covered_offset)))
        return Verification(covered_offset, len(subjects), differences, open_question)
    if waiting:
        open_question = (
            f"{len(waiting)} share partitions have updates whose base snapshot was pruned from the log, "
            f"as {format_key(min(waiting))}"
        )
    elif cut := _cut_off(snapshots, covered_offset, first.offset):
        open_question = (
            f"{len(cut)} share partitions are known from what was pruned from the log, as {format_key(min(cut))}"
        )
    if open_question:
        # The position is in the log all the same; count and sum do not.
        recomputed = recomputed._replace(live_count=manifest.live_count, digest_sum=manifest.digest_sum)
    if (manifest, covered_offset) != (recomputed, mark.covered_offset):
        texts = _manifest_text(manifest, covered_offset), _manifest_text(recomputed, mark.covered_offset)
        differences.append(Difference("manifest", *texts))
    return Verification(covered_offset, len(subjects), differences, open_question)


def _agree(in_topic: RawEntry | None, from_log: RawEntry | None) -> bool:
    """Tell whether an entry is the one that the log gives; that of a deleted share partition may have been removed."""
    if in_topic is None or from_log is None:
        return all(found is None or _is_deleted(found) for found in (in_topic, from_log))
    return in_topic == from_log or (_is_deleted(in_topic) and _is_deleted(from_log))


def _is_deleted(entry: RawEntry) -> bool:
    try:
        return decode_entry(entry.value_bytes).snapshot is None
    except RecordError:
        return False


def _cut_off(snapshots: SnapshotSet, covered_offset: int, log_start: int) -> list[SharePartitionKey]:
    """Return the share partitions that are live as far as the topic shows, by what lies before the log only."""
    kept = snapshots.select(covered_offset, log_start)
    everything = snapshots.select(covered_offset, 0)
    return [key for key, entry in everything.items() if key not in kept and not _is_deleted(entry)]


def _entry_text(raw: RawEntry | None) -> str:
    if raw is None:
        return "nothing"
    try:
        snapshot, update_count, snapshot_offset = decode_entry(raw.value_bytes)
    except RecordError as error:
        return str(error)
    where = f"at {raw.covered_offset}"
    if snapshot is None:
        return f"{where}: deleted"
    fields = ", ".join(f"{name} {value}" for name, value in snapshot._asdict().items() if name != "state_batches")
    batches = ", ".join("{}-{}:{}:{}".format(*batch) for batch in snapshot.state_batches)
    return f"{where}: {fields}, state_batches {batches or 'none'}, {update_count} updates since {snapshot_offset}"


def _manifest_text(manifest: Manifest, covered_offset: int) -> str:
    owner_epoch, attempt_id, next_sequence = manifest.position
    return (
        f"at {covered_offset}: {manifest.live_count} live, sum {manifest.digest_sum:032x}, owner epoch {owner_epoch}, attempt "
        f"{(attempt_id or b'').hex()[:8]}, next sequence {next_sequence}, {manifest.partition_count} log partitions, "
        f"newest checkpoint at {manifest.checkpoint_offset}"
    )
