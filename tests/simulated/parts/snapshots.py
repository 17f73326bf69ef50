"""The snapshot topic of a life, the jobs that fold the log into it, and what can go wrong with either."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from holdfast.records.errors import RecordError
from holdfast.records.share.snapshot_store.entries import (
    EntryKey,
    ManifestKey,
    decode_entry,
    decode_key,
    decode_manifest,
    encode_entry,
    encode_manifest,
)
from holdfast.records.share.snapshot_store.folding import NEW, FoldStopped, Held, Mark, RawRecord, fold
from holdfast.records.share.snapshot_store.snapshot_set import Disagreement, SnapshotSet
from tests.simulated.checks.invariants import Invariant, violate
from tests.simulated.memory_log import MemoryLog, MemoryPartition, MemoryTopic, Move

if TYPE_CHECKING:
    from tests.simulated.parts.world import World

MESSAGE_BYTES_MAX = 100_000
JOBS = (1, 1, 2)


class Store(dict[bytes, Held]):
    """What a job holds of a log partition."""

    def put(self, key: bytes, held: Held) -> None:
        """Hold it."""
        self[key] = held

    def remove(self, key: bytes) -> None:
        """Forget it."""
        del self[key]


class Job:
    """A job as Spark runs it: it folds a batch of each log partition, writes what came of it, and only then keeps its new state."""

    def __init__(self, world: World, topic: MemoryTopic) -> None:
        self._world = world
        self._topic = topic
        self._times_made = world.topic.times_made
        self._marks: dict[int, Mark] = {}
        self._stores: dict[int, Store] = {}
        #: (log partition, key, value) of the batch in flight, in the order of their writing
        self.queue: deque[tuple[int, bytes, bytes]] = deque()
        self._folded: tuple[int, Mark, Store] | None = None

    def fold(self, index: int, records_max: int) -> None:
        """Begin a batch of a log partition."""
        world = self._world
        if self._times_made != world.topic.times_made:  # it asks for the topic's id
            self._times_made = world.topic.times_made
            self._marks.clear()
            self._stores.clear()
        log = world.topic.partitions[index]
        if self._has_lost(index, log):
            world.count("job begins again after a lost end")
            self._marks.clear()
            self._stores.clear()
        mark = self._marks.get(index, NEW)
        begin = max(log.log_start_offset, mark.next_offset or 0)
        records = [RawRecord(*record) for record in log.records[begin : log.high_watermark][:records_max]]
        store = Store(self._stores.get(index, {}))
        identity = world.topic.identity
        try:
            folded = fold(identity.topic_id, index, identity.partition_count, mark, store, records)
        except FoldStopped:
            world.count("job stopped at what it cannot read")
            return
        world.count("batch folded")
        if folded.cut_at is not None:
            world.count("batch behind a cut")
        manifests = [] if folded.manifest is None else [folded.manifest]
        self.queue.extend((index, *message) for message in (*folded.entries, *manifests))
        self._folded = index, folded.mark, store

    def _has_lost(self, index: int, log: MemoryPartition) -> bool:
        """Tell whether the log is another one than the one that was folded, where it was not cut past that."""
        last_read = self._marks.get(index, NEW).last_read()
        if last_read is None or log.log_start_offset > last_read.offset + 1:
            return False
        held = log.records[log.log_start_offset : log.high_watermark]
        found = {record.offset: RawRecord(*record) for record in held if record.offset in last_read.offsets()}
        return bool(last_read.refusal(log.log_start_offset, found))

    def write(self) -> None:
        """Write the next entry or manifest of the batch."""
        index, key, value = self.queue.popleft()
        self._topic.write_foreign(index, key, value, None)

    def commit(self) -> None:
        """Keep the state after the batch, all of which is written."""
        assert self._folded is not None
        index, self._marks[index], self._stores[index] = self._folded
        self._folded = None

    def is_folding(self) -> bool:
        """Tell whether a batch is in flight."""
        return self._folded is not None

    def kill(self) -> None:
        """Lose what is not kept; some of the batch may be written."""
        self.queue.clear()
        self._folded = None

    def lose_state(self) -> None:
        """Lose everything, so that it begins at the log's start."""
        self.kill()
        self._marks.clear()
        self._stores.clear()


class Snapshots:
    """The snapshot topic and its jobs."""

    def __init__(self, world: World, random: Random) -> None:
        self._world = world
        self._random = random
        self.topic = MemoryTopic(len(world.topic.partitions), MESSAGE_BYTES_MAX)
        self.jobs = [Job(world, self.topic) for _ in range(random.choice(JOBS))]
        self.is_missing = False
        self.removals: deque[tuple[int, bytes]] = deque()
        self._damage: set[tuple[int, int]] = set()  #: (log partition, offset) of what strangers wrote

    def open_log(self) -> MemoryLog:
        """Return the log of one more process."""
        log = self.topic.open_log()
        log.has_batches = False
        return log

    def commits(self) -> list[Move]:
        """Return what the broker may do next."""
        return [move for move in self.topic.moves() if move.kind == "commit"]

    def job_moves(self, *, may_begin: bool) -> list[tuple[str, Callable[[], None]]]:
        """Return what the jobs may do next."""
        moves: list[tuple[str, Callable[[], None]]] = []
        if self.removals:
            moves.append(("removal lands", self._land_removal))
        for job in self.jobs:
            if job.queue:
                moves.append(("job writes", job.write))
            elif job.is_folding():
                moves.append(("job commits", job.commit))
            elif may_begin:
                moves.append(("job folds", lambda job=job: self._fold(job)))  # type: ignore[misc]
        return moves

    def _fold(self, job: Job) -> None:
        index = self._random.randrange(len(self.topic.partitions))
        job.fold(index, self._random.choice((1, 3, 10, 1_000)))

    def remove(self, index: int, key: bytes, read_offset: int) -> bool:
        """Let a removal be on its way, from which it may be lost, by an owner that has read the topic up to an offset."""
        self._world.count("removal")
        self._check_dead(index, key, read_offset)
        if self._random.random() < 0.9:
            self.removals.append((index, key))
        return True

    def _check_dead(self, index: int, key: bytes, read_offset: int) -> None:
        """Check it against what the topic holds, without the damage that its owner cannot know of yet."""
        world = self._world
        if not world.truth_of(
            None, index
        ).is_judged:  # it may be the removal of an owner that knows an earlier topic only
            return
        log = world.topic.partitions[index]
        entries = SnapshotSet(world.topic.identity.topic_id, index)
        partition = self.topic.partitions[index]
        for record in partition.records:
            is_unknown_damage = (index, record.offset) in self._damage and record.offset >= read_offset
            if record.offset not in partition.holes and not is_unknown_damage:
                entries.add(record.key, record.value)
        good = [
            at for at in entries.manifest_offsets() if at >= log.log_start_offset and self._agrees(entries, at, log)
        ]
        entries.add(key, None)
        if good and not (good[0] in entries.manifest_offsets() and self._agrees(entries, good[0], log)):
            violate(Invariant.REMOVED_IS_DEAD, f"{decode_key(key)} was needed by the manifest at {good[0]}")

    def _agrees(self, entries: SnapshotSet, covered_offset: int, log: MemoryPartition) -> bool:
        try:
            entries.verify(covered_offset, log.log_start_offset)
        except Disagreement:
            return False
        return True

    def _land_removal(self) -> None:
        index, key = self.removals.popleft()
        self.topic.write_foreign(index, key, None, None)

    # ---- faults ----------------------------------------------------------------------------------------------------

    def kill_job(self) -> bool:
        """Kill a job in the middle of a batch."""
        job = self._random.choice(self.jobs)
        is_folding = job.is_folding()
        job.kill()
        return is_folding

    def lose_job_state(self) -> bool:
        """Let a job lose all that it holds."""
        self._random.choice(self.jobs).lose_state()
        return True

    def compact(self) -> bool:
        """Remove some records that a later one of their key replaces, and some nulls with nothing before them."""
        has_removed = False
        for partition in self.topic.partitions:
            newest: dict[bytes | None, int] = {}
            first: dict[bytes | None, int] = {}
            kept = [
                record
                for record in partition.records[: partition.high_watermark]
                if record.offset not in partition.holes
            ]
            for record in kept:
                newest[record.key] = record.offset
                first.setdefault(record.key, record.offset)
            for record in kept:
                is_superseded = newest[record.key] != record.offset
                is_idle_null = record.value is None and first[record.key] == record.offset
                if (is_superseded or is_idle_null) and self._random.random() < 0.7:
                    partition.holes.add(record.offset)
                    has_removed = True
        return has_removed

    def corrupt(self) -> bool:
        """Write an entry's key again, with another state."""
        index = self._random.randrange(len(self.topic.partitions))
        records = self.topic.partitions[index].records[-20:]
        for record in self._random.sample(records, len(records)):
            try:
                key, entry = decode_key(record.key), decode_entry(record.value or b"")
            except RecordError:
                continue
            if isinstance(key, EntryKey) and entry.snapshot is not None:
                changed = entry.snapshot._replace(start_offset=entry.snapshot.start_offset + 1)
                self._damage_with(index, record.key, encode_entry(entry._replace(snapshot=changed)))
                return True
        return False

    def forge(self) -> bool:
        """Write a manifest again, as if the log held another record at its offset."""
        index = self._random.randrange(len(self.topic.partitions))
        for record in reversed(self.topic.partitions[index].records):
            try:
                key, manifest = decode_key(record.key), decode_manifest(record.value or b"")
            except RecordError:
                continue
            if isinstance(key, ManifestKey):
                # A log that lost its end may come to hold the very record that a near forgery names.
                step = 1_000 if self._world.alarm_reasons else 1
                next_sequence = manifest.position.next_sequence + self._random.choice((-step, step))
                forged = manifest._replace(position=manifest.position._replace(next_sequence=next_sequence))
                self._damage_with(index, *encode_manifest(key, forged))
                return True
        return False

    def scribble(self) -> bool:
        """Write something that nobody can read, over an entry or a manifest or beside them."""
        index = self._random.randrange(len(self.topic.partitions))
        records = self.topic.partitions[index].records
        key = self._random.choice(records).key if records and self._random.random() < 0.7 else b"?"
        self._damage_with(index, key, b"scribble")
        return True

    def _damage_with(self, index: int, key: bytes | None, value: bytes) -> None:
        self._damage.add((index, len(self.topic.partitions[index].records)))
        self.topic.write_foreign(index, key, value, None)

    def vanish(self) -> bool:
        """Let the topic be unknown to the nodes, or known again."""
        self.is_missing = not self.is_missing
        return self.is_missing
