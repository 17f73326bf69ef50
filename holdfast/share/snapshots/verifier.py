"""The owner's checks of the snapshot topic: entries are compared with its own state, manifests verified, dead messages removed.

All of it is done in small turns, one partition after the other, and costs nothing where nothing was written.
The contents of the topic are in the follower's sets; a turn holds only references to them.

Source: `removable` in tests/model/manifests.py.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Final, Protocol

from holdfast.records.errors import RecordError
from holdfast.records.share.keys import format_key
from holdfast.records.share.snapshot_store.entries import EntryKey, ManifestKey, decode_entry, decode_key
from holdfast.records.share.snapshot_store.snapshot_set import Disagreement, SnapshotSet
from holdfast.runtime.partition.lifecycle import Partition
from holdfast.runtime.partition.restore_point import RestorePoint
from holdfast.runtime.partition.states import State
from holdfast.runtime.settings import LogIdentity
from holdfast.share.decisions import ShareShard
from holdfast.share.snapshots.metrics import SnapshotMetrics

#: Entries compared before the clock is looked at again.
_STEP: Final = 50
#: Entries that wait to be compared; beyond, the oldest are left out.
_ARRIVED_MAX: Final = 10_000
#: Keys that wait to be removed.
_FOREIGN_MAX: Final = 10_000


class RemovalRefused(Exception):
    """A message of the snapshot topic cannot be removed, also not a little later; the text says why."""


class SnapshotHost(Protocol):
    """The part of the node that the follower and the verifier of the snapshot topic use."""

    @property
    def log_identity(self) -> LogIdentity:
        """Return the log that is loaded; it changes when the state topic is recreated."""

    @property
    def partitions(self) -> Mapping[int, Partition]:
        """Return the log partitions of this node, in any state, by index."""

    def now_ms(self) -> int:
        """Return the time of any clock that never goes back."""

    def continue_soon(self, task: Callable[[], None]) -> None:
        """Run a task after what already waits on the event loop."""

    def note(self, level: str, event: str, fields: dict[str, object]) -> None:
        """Write a log line."""

    def restore_point_found(self, partition: int, instance: int, point: RestorePoint | None) -> None:
        """Give a load what it restores from, or None; see `CoordinatorRuntime.restore_point_found`."""

    def is_gone(self, topic_id: bytes) -> bool:
        """Tell whether it is beyond doubt that no topic of the cluster has an id any more."""

    def remove(self, partition: int, key: bytes) -> bool:
        """Remove a message of the snapshot topic; returns False if it cannot take more now.

        Raises:
            RemovalRefused: it cannot be removed, also not a little later.
        """


class RemovalRate:
    """How many messages may be removed now; all partitions share it."""

    def __init__(self, per_second_max: int, now_ms: int) -> None:
        """Create a rate whose time begins at `now_ms`; nothing is removed yet."""
        self._per_second_max = per_second_max
        self._room = 0.0
        self._ticked_ms = now_ms

    def tick(self, now_ms: int) -> None:
        """Make room for the time that has passed, for a second's worth at most."""
        room = self._room + (now_ms - self._ticked_ms) * self._per_second_max / 1_000
        self._room, self._ticked_ms = min(room, float(self._per_second_max)), now_ms

    def has_room(self) -> bool:
        """Return whether one more may be removed."""
        return self._room >= 1

    def take(self) -> None:
        """Count one that was removed."""
        self._room -= 1


class PartitionVerifier:
    """The work of the owner of one log partition in its partition of the snapshot topic."""

    __slots__ = (
        "_arrived",
        "_early",
        "_entries",
        "_foreign",
        "_host",
        "_is_due",
        "_metrics",
        "_rate",
        "_work",
        "verified",
    )

    def __init__(self, entries: SnapshotSet, host: SnapshotHost, metrics: SnapshotMetrics, rate: RemovalRate) -> None:
        """Create a verifier of `entries`, which the reader of the topic fills; nothing is verified yet."""
        self._entries = entries
        self._host = host
        self._metrics = metrics
        self._rate = rate
        self._arrived: deque[EntryKey] = deque(maxlen=_ARRIVED_MAX)
        #: Keys of messages about other state topics that were there before this one was loaded; dead if their topic is gone.
        #: Later records may be about a recreated topic that this node does not know yet.
        self._foreign: deque[bytes] = deque(maxlen=_FOREIGN_MAX)
        #: Covered offsets of the two newest manifests that agreed, newest first.
        self.verified: list[int] = []
        #: A manifest came since the work in progress began.
        self._is_due = False
        #: Covered offset of the first manifest that the owner had not read the log up to; there is work when it has.
        self._early: int | None = None
        #: Verifies the newest manifest, then removes what is dead; yields False where a removal has to wait.
        self._work: Generator[bool, None, None] | None = None

    @property
    def has_work(self) -> bool:
        """Tell whether anything waits to be compared, verified or removed."""
        return bool(self._arrived) or self._is_due or self._work is not None

    def record_read(self, about: EntryKey | ManifestKey | None, value: bytes | None) -> None:
        """Handle one record after the end, which the set of entries has taken already."""
        if value is not None and about is not None:
            # A verified manifest is as good as its messages: one that came again may say something else.
            if isinstance(about, EntryKey):
                self._arrived.append(about)
                self.verified = [offset for offset in self.verified if offset < about.covered_offset]
            else:
                self._is_due = True
                self.verified = [offset for offset in self.verified if offset != about.covered_offset]

    def foreign_read(self, key: bytes) -> None:
        """Handle a message about another state topic that was there before the end."""
        self._foreign.append(key)

    def end_reached(self) -> None:
        """Note that all records were read that were there when reading began."""
        self._is_due = True

    def run(self, partition: Partition, ends_ms: int) -> None:
        """Compare what has arrived, and verify and remove what is due, until the time is up."""
        shard = partition.machine
        if partition.state is State.ACTIVE and isinstance(shard, ShareShard):
            self._compare_arrived(partition, shard, ends_ms)
            self._continue_work(partition, ends_ms)

    # ---- entries ---------------------------------------------------------------------------------------------------

    def _compare_arrived(self, partition: Partition, shard: ShareShard, ends_ms: int) -> None:
        arrived = self._arrived
        for number in range(len(arrived)):
            about = arrived.popleft()
            if about.covered_offset >= partition.committed_offset:
                arrived.append(about)  # the job is ahead of this node, or it is about a log that is not there
            elif (entry := self._entries.entry(about)) is not None:
                self._compare(about, entry, partition, shard)
            if number % _STEP == _STEP - 1 and self._host.now_ms() >= ends_ms:
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
        self._host.note("error", "snapshot_diverged", fields)

    # ---- manifests and removals ------------------------------------------------------------------------------------

    def _continue_work(self, partition: Partition, ends_ms: int) -> None:
        if self._early is not None and self._early < partition.committed_offset:
            self._is_due, self._early = True, None
        if self._work is None and self._is_due:
            self._is_due = False
            self._work = self._verify_and_remove(partition)
        while self._work is not None and self._host.now_ms() < ends_ms:
            may_go_on = next(self._work, None)
            if may_go_on is None:
                self._work = None
            elif not may_go_on:
                return

    def _verify_and_remove(self, partition: Partition) -> Generator[bool, None, None]:
        entries, log_start = self._entries, partition.log_start
        end, manifests = partition.committed_offset, entries.manifest_offsets()
        self._early = min((offset for offset in manifests if offset >= end), default=None)
        offsets = [offset for offset in manifests if log_start <= offset < end]
        if offsets and offsets[0] not in self.verified:
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
                self._host.note("warning", "manifest_refused", fields)
            else:
                self._metrics.manifests_verified.value += 1
                self.verified = [offsets[0], *self.verified][:2]
        self.verified = [offset for offset in self.verified if offset >= log_start]
        try:
            yield from self._remove_dead(partition.index, log_start)
        except RemovalRefused as refused:  # what is still there then is dead at the next manifest too
            self._host.note(
                "warning",
                "snapshot_removal_refused",
                {"partition": partition.index, "why": str(refused)},
            )

    def _remove_dead(self, partition: int, log_start: int) -> Generator[bool, None, None]:
        entries, foreign = self._entries, self._foreign
        for dead in entries.removable(log_start, self.verified):
            if dead is None:
                yield True
                continue
            while not self._remove(partition, dead):
                yield False
            entries.add(dead, None)
        for number in range(len(foreign)):
            key = foreign[0]
            topic_id = decode_key(key).state_topic_id
            # Our own topic's are of a log with other partitions.
            if topic_id == entries.state_topic_id or self._host.is_gone(topic_id):
                while not self._remove(partition, key):
                    yield False
                foreign.popleft()
            else:
                foreign.rotate(-1)  # the next manifest is another occasion
            if number % _STEP == _STEP - 1:
                yield True

    def _remove(self, partition: int, key: bytes) -> bool:
        if not self._rate.has_room() or not self._host.remove(partition, key):
            return False
        self._rate.take()
        self._metrics.removals.value += 1
        return True


class SnapshotVerifier:
    """The verifiers of all log partitions that serve here, and their turns."""

    def __init__(
        self, host: SnapshotHost, metrics: SnapshotMetrics, removals_per_second_max: int, slice_ms: int
    ) -> None:
        """Create a queue of work; a turn takes about `slice_ms`."""
        self._host = host
        self._metrics = metrics
        self._slice_ms = slice_ms
        self._rate = RemovalRate(removals_per_second_max, host.now_ms())

    def open(self, entries: SnapshotSet) -> PartitionVerifier:
        """Return the verifier of one partition of the topic, whose messages `entries` takes in."""
        return PartitionVerifier(entries, self._host, self._metrics, self._rate)

    def tick(self, verifiers: Iterable[tuple[PartitionVerifier, Partition]]) -> None:
        """Take a turn."""
        now_ms = self._host.now_ms()
        self._rate.tick(now_ms)
        ends_ms = now_ms + self._slice_ms
        for verifier, partition in verifiers:
            verifier.run(partition, ends_ms)
            if self._host.now_ms() >= ends_ms:
                return
