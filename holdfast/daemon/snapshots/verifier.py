"""The owner's look at the snapshot topic: entries are compared with its own state, manifests verified, dead messages removed.

All of it is done in small turns, one partition after the other, and costs nothing where nothing was written.
What is kept of the topic is in the follower's sets; beside them a turn holds references only.

Source: `removable` in tests/model/manifests.py.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from typing import Final, NamedTuple

from holdfast.daemon.share.decisions import ShareShard
from holdfast.daemon.snapshots.metrics import SnapshotMetrics
from holdfast.records.errors import RecordError
from holdfast.records.keys import format_key
from holdfast.records.snapshot_store.entries import EntryKey, ManifestKey, decode_entry
from holdfast.records.snapshot_store.snapshot_set import Disagreement, SnapshotSet
from holdfast.runtime.partition.lifecycle import Partition
from holdfast.runtime.partition.states import State

#: Entries compared before the clock is looked at again.
_STEP: Final = 50
#: Entries that wait to be compared; beyond, the oldest are left out.
_ARRIVED_MAX: Final = 10_000
#: Keys that wait to be removed.
_FOREIGN_MAX: Final = 10_000

Note = Callable[[str, str, dict[str, object]], None]


class RemovalRefused(Exception):
    """Say why a message of the snapshot topic cannot be removed, also not a little later."""


class Duties(NamedTuple):
    """What the owner of log partitions needs to do its work."""

    #: Removes a message of the snapshot topic: (partition, key); returns False if it cannot take more now, or raises
    #: `RemovalRefused`.
    remove: Callable[[int, bytes], bool]
    removals_per_second_max: int
    slice_ms: int  #: of each turn
    note: Note


class Tail:
    """What the owner of one log partition has still to do."""

    __slots__ = ("arrived", "early", "foreign", "is_due", "verified", "work")

    def __init__(self) -> None:
        self.arrived: deque[EntryKey] = deque(maxlen=_ARRIVED_MAX)
        #: Keys of messages about other state topics that were there before this one was loaded. What comes later may be about a
        #: topic made again, of which this node has not learned yet.
        self.foreign: deque[bytes] = deque(maxlen=_FOREIGN_MAX)
        #: Covered offsets of the two newest manifests that agreed, newest first.
        self.verified: list[int] = []
        self.is_due = False  #: a manifest came since the work under way began
        #: Covered offset of the first manifest that the owner had not read the log up to; there is work when it has.
        self.early: int | None = None
        #: Verifies the newest manifest, then removes what is dead; yields False where a removal has to wait.
        self.work: Generator[bool, None, None] | None = None

    def met(self, about: EntryKey | ManifestKey | None, value: bytes | None) -> None:
        """Learn of one record that came behind the end, and which the set has taken already."""
        if value is not None and about is not None:
            # What was verified before is as good as its messages: one that came anew may say something else.
            if isinstance(about, EntryKey):
                self.arrived.append(about)
                self.verified = [offset for offset in self.verified if offset < about.covered_offset]
            else:
                self.is_due = True
                self.verified = [offset for offset in self.verified if offset != about.covered_offset]


class SnapshotOwner:
    """Does this work for all log partitions that serve here."""

    def __init__(self, duties: Duties, metrics: SnapshotMetrics, clock_ms: Callable[[], int]) -> None:
        self._duties = duties
        self._metrics = metrics
        self._clock_ms = clock_ms
        self._room = 0.0  #: removals that may be sent now
        self._ticked_ms = clock_ms()

    def tick(self, tails: Iterable[tuple[Tail, SnapshotSet, Partition]]) -> None:
        """Take a turn."""
        duties, now_ms = self._duties, self._clock_ms()
        room = self._room + (now_ms - self._ticked_ms) * duties.removals_per_second_max / 1_000
        self._room, self._ticked_ms = min(room, float(duties.removals_per_second_max)), now_ms
        ends_ms = now_ms + duties.slice_ms
        for tail, entries, partition in tails:
            shard = partition.machine
            if partition.state is State.ACTIVE and isinstance(shard, ShareShard):
                self._compare_arrived(tail, entries, partition, shard, ends_ms)
                self._work(tail, entries, partition, ends_ms)
                if self._clock_ms() >= ends_ms:
                    return

    # ---- entries ---------------------------------------------------------------------------------------------------

    def _compare_arrived(
        self, tail: Tail, entries: SnapshotSet, partition: Partition, shard: ShareShard, ends_ms: int
    ) -> None:
        arrived = tail.arrived
        for number in range(len(arrived)):
            about = arrived.popleft()
            if about.covered_offset >= partition.committed_offset:
                arrived.append(about)  # the job is ahead of this node, or it is about a log that is not there
            elif (entry := entries.entry(about)) is not None:
                self._compare(about, entry, partition, shard)
            if number % _STEP == _STEP - 1 and self._clock_ms() >= ends_ms:
                return

    def _compare(self, about: EntryKey, value: bytes, partition: Partition, shard: ShareShard) -> None:
        """Compare an entry with the committed state, which holds all that the entry covers, if neither holds more."""
        snapshot_offset = shard.state.offsets.newest_snapshot_offset(about.key)
        state = shard.state.at(partition.committed_sequence, about.key)
        if state is None or snapshot_offset is None:
            return
        try:
            entry = decode_entry(value)
        except RecordError:
            return  # It makes its manifest disagree, and that is counted.
        is_ahead = entry.snapshot_offset > snapshot_offset
        is_deleted_since = entry.snapshot is None and about.covered_offset > snapshot_offset
        is_of_the_same_record = (entry.snapshot_offset, entry.update_count) == (snapshot_offset, state.update_count)
        if not (is_ahead or is_deleted_since or (is_of_the_same_record and entry.snapshot != state[:-1])):
            return
        self._metrics.divergences.value += 1
        self._metrics.divergence_alarm.value = 1
        fields = {
            "partition": partition.index,
            "share_partition": format_key(about.key),
            "offset": about.covered_offset,
            "snapshot": str(entry),
            "own_state": str(state),
            "own_snapshot_offset": snapshot_offset,
        }
        self._duties.note("error", "a snapshot says something else than the state of its owner", fields)

    # ---- manifests and removals ------------------------------------------------------------------------------------

    def _work(self, tail: Tail, entries: SnapshotSet, partition: Partition, ends_ms: int) -> None:
        if tail.early is not None and tail.early < partition.committed_offset:
            tail.is_due, tail.early = True, None
        if tail.work is None and tail.is_due:
            tail.is_due = False
            tail.work = self._verify_and_remove(tail, entries, partition)
        while tail.work is not None and self._clock_ms() < ends_ms:
            may_go_on = next(tail.work, None)
            if may_go_on is None:
                tail.work = None
            elif not may_go_on:
                return

    def _verify_and_remove(self, tail: Tail, entries: SnapshotSet, partition: Partition) -> Generator[bool, None, None]:
        log_start = partition.log_start
        end, manifests = partition.committed_offset, entries.manifest_offsets()
        tail.early = min((offset for offset in manifests if offset >= end), default=None)
        offsets = [offset for offset in manifests if log_start <= offset < end]
        if offsets and offsets[0] not in tail.verified:
            agreement = entries.agree(offsets[0], log_start)
            try:
                for _ in agreement:
                    yield True
            except Disagreement as disagreement:
                self._metrics.manifests_disagreeing.value += 1
                fields: dict[str, object] = {
                    "partition": partition.index,
                    "offset": offsets[0],
                    "why": str(disagreement),
                }
                self._duties.note("warning", "a manifest and its entries disagree", fields)
            else:
                self._metrics.manifests_verified.value += 1
                tail.verified = [offsets[0], *tail.verified][:2]
        tail.verified = [offset for offset in tail.verified if offset >= log_start]
        try:
            yield from self._remove_dead(tail, entries, partition.index, log_start)
        except RemovalRefused as refused:  # what is still there then is dead at the next manifest too
            self._duties.note(
                "warning",
                "dead messages of the snapshot topic cannot be removed",
                {"partition": partition.index, "why": str(refused)},
            )

    def _remove_dead(
        self, tail: Tail, entries: SnapshotSet, partition: int, log_start: int
    ) -> Generator[bool, None, None]:
        while tail.foreign:
            key = tail.foreign[0]
            while not self._remove(partition, key):
                yield False
            tail.foreign.popleft()
        for dead in entries.removable(log_start, tail.verified):
            if dead is None:
                yield True
                continue
            while not self._remove(partition, dead):
                yield False
            entries.add(dead, None)

    def _remove(self, partition: int, key: bytes) -> bool:
        if self._room < 1 or not self._duties.remove(partition, key):
            return False
        self._room -= 1
        self._metrics.removals.value += 1
        return True
