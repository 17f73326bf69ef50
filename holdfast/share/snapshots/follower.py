"""The follower of the snapshot topic, for the log partitions that load or serve on this node.

A load first reads its partition of the topic to the end that it has then, and begins with the newest manifest that agrees.
The topic is read as the log is, by a `Log` of its own, so a slow or silent broker of it delays only the loads that wait for it,
and those wait no longer than `read_timeout_ms`.

The memory for it has a bound. Beyond the bound the partition that takes most is put aside, whichever partition grew: so the
fewest go without. It is followed again when it is loaded, or when there is room for what it took and some growth.
"""

from collections.abc import Generator
from typing import Final, NamedTuple, Protocol

from holdfast.records.share.snapshot_store.snapshot_set import SnapshotSet
from holdfast.runtime.log_protocol import LogRecord, ReadError
from holdfast.runtime.partition.restore_point import RestorePoint
from holdfast.runtime.partition.states import State
from holdfast.share.snapshots.metrics import SnapshotMetrics
from holdfast.share.snapshots.restore import NoRestorePoint, Refusal, choose_restore_point
from holdfast.share.snapshots.verifier import PartitionVerifier, SnapshotHost, SnapshotVerifier

_RETRY_MS: Final = 30_000
#: A partition that was put aside is followed again when there is room for a quarter more than it took.
_GROWTH: Final = 4
#: Refusals that need no action; there is one for each load where no job has run yet.
_USUAL: Final = frozenset({Refusal.MISSING, Refusal.EMPTY})


class SnapshotTopic(Protocol):
    """The part of `Log` that the follower uses, for the snapshot topic."""

    def has_partition(self, partition: int) -> bool:
        """Return whether the topic is known to have this partition."""

    def start_reading(self, partition: int, instance: int) -> None:
        """See `Log.start_reading`."""

    def stop_reading(self, partition: int) -> None:
        """See `Log.stop_reading`."""


class Bounds(NamedTuple):
    """How much is read, and how long."""

    #: How long a load waits for the snapshot topic.
    read_timeout_ms: int
    #: Bytes of everything that is kept in memory.
    bytes_max: int
    #: How long the event loop may be occupied.
    slice_ms: int


class _Query(NamedTuple):
    """A load that waits for its restore point."""

    instance: int
    log_start: int
    deadline_ms: int


class _Followed:
    """One partition of the snapshot topic."""

    __slots__ = ("entries", "instance", "is_at_end", "query", "verifier")

    def __init__(self, entries: SnapshotSet, instance: int, verifier: PartitionVerifier) -> None:
        self.entries = entries
        self.instance = instance
        #: The end it had when reading began is reached.
        self.is_at_end = False
        self.query: _Query | None = None
        self.verifier = verifier


class SnapshotFollower:
    """The finder of restore points (`RestorePointFinder`) in what is read of the snapshot topic (`LogListener`)."""

    def __init__(
        self,
        topic: SnapshotTopic,
        bounds: Bounds,
        host: SnapshotHost,
        metrics: SnapshotMetrics,
        verifier: SnapshotVerifier,
    ) -> None:
        """Create a follower, which reads nothing before the first load.

        Args:
            topic: the snapshot topic.
            bounds: of time and memory.
            host: the node, whose loads are answered.
            metrics: what is counted.
            verifier: does what is due where log partitions serve.
        """
        self._topic = topic
        self._bounds = bounds
        self._host = host
        self._metrics = metrics
        self._verifier = verifier
        self._followed: dict[int, _Followed] = {}
        #: By partition that was put aside, the most bytes that it took; until it is read to its end again.
        self._put_aside: dict[int, int] = {}
        #: When partitions that serve and are not followed are looked for.
        self._retry_at_ms = 0
        self._instances = 0

    # ---- queries of loads (RestorePointFinder) -----------------------------------------------------------------------

    def find_restore_point(self, partition: int, instance: int, log_start: int) -> None:
        """See `RestorePointFinder.find_restore_point`."""
        query = _Query(instance, log_start, self._host.now_ms() + self._bounds.read_timeout_ms)
        followed = self._followed.get(partition)
        if followed is not None and followed.entries.state_topic_id != self._host.log_identity.topic_id:
            self.forget(partition)
            followed = None
        if followed is None:
            if not self._topic.has_partition(partition):
                self._host.continue_soon(
                    lambda: self._refuse(partition, query, Refusal.MISSING, "there is no such topic")
                )
                return
            followed = self._follow(partition)
        followed.query = query
        if followed.is_at_end:
            self._choose(partition, followed, query)

    def restore_point_judged(self, partition: int, offset: int, refusal: str) -> None:
        """See `RestorePointFinder.restore_point_judged`."""
        if refusal:
            self._metrics.refusals[Refusal.REFUSED].value += 1
        else:
            self._metrics.restores.value += 1

    def forget(self, partition: int) -> None:
        """Follow a partition no more, because this node neither loads nor serves it."""
        self._put_aside.pop(partition, None)
        self._stop(partition)

    def tick(self, now_ms: int) -> bool:
        """Let no load wait too long, and let the owner of what serves here do its work; return whether there is more of that."""
        for partition, followed in list(self._followed.items()):
            query = followed.query
            if query is not None and now_ms >= query.deadline_ms:
                followed.query = None
                text = f"the snapshot topic could not be read within {self._bounds.read_timeout_ms} ms"
                self._refuse(partition, query, Refusal.LATE, text)
        if now_ms >= self._retry_at_ms:
            self._retry_at_ms = now_ms + _RETRY_MS
            self._follow_what_serves()
        partitions = self._host.partitions
        at_end = [(index, each) for index, each in self._followed.items() if each.is_at_end and index in partitions]
        if at_end:
            first = now_ms % len(at_end)  # none of them is always the last
            self._verifier.tick((each.verifier, partitions[index]) for index, each in at_end[first:] + at_end[:first])
        return any(each.verifier.has_work for each in self._followed.values())

    def _follow_what_serves(self) -> None:
        """Follow partitions whose topic could not be read when they were loaded, or that were put aside and fit now."""
        partitions = self._host.partitions.items()
        missing = [index for index, each in partitions if each.state is State.ACTIVE and index not in self._followed]
        for index in sorted(missing, key=lambda each: self._put_aside.get(each, 0)):  # so that the most fit
            if self._fits(index):
                self._follow(index)

    def _fits(self, partition: int) -> bool:
        """Tell whether there is room for a partition, and for some growth, or it would soon be read for nothing again.

        One that took more than all may is not read again before a load wants it.
        """
        followed, before, bytes_max = self._followed.items(), self._put_aside, self._bounds.bytes_max
        wanted = before.get(partition, 0)
        if wanted <= bytes_max:
            wanted = min(wanted + wanted // _GROWTH, bytes_max)
        # A partition that is read again will take at least as much as before.
        taken = sum(max(each.entries.size_bytes, before.get(index, 0)) for index, each in followed)
        return taken + wanted <= bytes_max

    # ---- what the log reports (LogListener) ------------------------------------------------------------------------

    def read_started(self, partition: int, instance: int, start_offset: int, end_offset: int) -> None:
        """See `LogListener.read_started`."""

    def records_read(self, partition: int, instance: int, records: list[LogRecord]) -> None:
        """See `LogListener.records_read`."""
        followed = self._find(partition, instance)
        if followed is None:
            return
        entries, verifier = followed.entries, followed.verifier
        for _, key, value, _ in records:
            foreign_records = entries.foreign_records
            about = entries.add(key, value)
            if followed.is_at_end:
                verifier.record_read(about, value)
            elif entries.foreign_records > foreign_records and key is not None and value is not None:
                verifier.foreign_read(key)
        self._keep_to_bound()

    def own_records_read(
        self, partition: int, instance: int, base_offset: int, count: int, first_header: bytes
    ) -> bool:
        """See `LogListener.own_records_read`."""
        return False

    def position_reached(self, partition: int, instance: int, next_offset: int) -> None:
        """See `LogListener.position_reached`."""

    def caught_up(self, partition: int, instance: int, next_offset: int) -> None:
        """See `LogListener.caught_up`."""
        followed = self._find(partition, instance)
        if followed is not None:
            followed.is_at_end = True
            self._put_aside.pop(partition, None)
            followed.verifier.end_reached()
            if followed.query is not None:
                self._choose(partition, followed, followed.query)

    def read_failed(self, partition: int, instance: int, error: ReadError) -> None:
        """See `LogListener.read_failed`."""
        followed = self._find(partition, instance)
        if followed is not None:
            self._give_up(partition, followed, Refusal.UNREADABLE, error.text)

    def append_failed(self, partition: int, header: bytes | None, text: str) -> None:
        """Ignore it: nothing is appended by this `Log`."""

    def log_start_moved(self, partition: int, instance: int, log_start_offset: int) -> None:
        """Ignore it: what was deleted was read."""

    def log_start_found(self, partition: int, instance: int, log_start_offset: int | None) -> None:
        """Ignore it: the follower requests none."""

    def latest_offsets(self, round_number: int, offsets: dict[int, int | None]) -> None:
        """Ignore it: the follower requests none."""

    def records_deleted(self, partition: int, log_start_offset: int | None, why: str) -> None:
        """Ignore it: the follower deletes none."""

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _follow(self, partition: int) -> _Followed:
        self._instances += 1
        entries = SnapshotSet(self._host.log_identity.topic_id, partition)
        followed = self._followed[partition] = _Followed(entries, self._instances, self._verifier.open(entries))
        self._topic.start_reading(partition, self._instances)
        return followed

    def _find(self, partition: int, instance: int) -> _Followed | None:
        followed = self._followed.get(partition)
        return followed if followed is not None and followed.instance == instance else None

    def _keep_to_bound(self) -> None:
        """Put aside the partitions that take most, until the others fit."""
        followed, bytes_max = self._followed, self._bounds.bytes_max
        taken = sum(each.entries.size_bytes for each in followed.values())
        while taken > bytes_max:
            largest = max(followed, key=lambda index: followed[index].entries.size_bytes)
            each = followed[largest]
            size = each.entries.size_bytes
            # It may be in the middle of being read again.
            self._put_aside[largest] = max(size, self._put_aside.get(largest, 0))
            text = f"{taken} bytes would be kept of the snapshot topic, which may be {bytes_max}, and most is of this partition"
            taken -= size
            if each.query is None:
                fields: dict[str, object] = {"partition": largest, "bytes": size, "why": text}
                self._host.note("warning", "snapshots_put_aside", fields)
            self._give_up(largest, each, Refusal.TOO_LARGE, text)

    def _stop(self, partition: int) -> None:
        if self._followed.pop(partition, None) is not None:
            self._topic.stop_reading(partition)

    def _give_up(self, partition: int, followed: _Followed, refusal: Refusal, text: str) -> None:
        self._stop(partition)
        query, followed.query = followed.query, None
        if query is not None:
            self._refuse(partition, query, refusal, text)

    def _choose(self, partition: int, followed: _Followed, query: _Query) -> None:
        choice = choose_restore_point(followed.entries, query.log_start, self._host.log_identity)

        def choose_slice() -> None:
            if followed.query is not query:
                return  # it was answered meanwhile, or a new load queries again
            try:
                point = self._run_slice(choice)
            except NoRestorePoint as none:
                followed.query = None
                self._refuse(partition, query, none.refusal, str(none))
                return
            if point is None:
                self._host.continue_soon(choose_slice)
                return
            followed.query = None
            self._host.restore_point_found(partition, query.instance, point)

        self._host.continue_soon(choose_slice)

    def _run_slice(self, choice: Generator[None, None, RestorePoint]) -> RestorePoint | None:
        """Go on choosing until the time of this slice is up; returns the restore point if it is chosen."""
        ends_ms = self._host.now_ms() + self._bounds.slice_ms
        try:
            while True:
                next(choice)
                if self._host.now_ms() >= ends_ms:
                    return None
        except StopIteration as end:
            point: RestorePoint = end.value
            return point

    def _refuse(self, partition: int, query: _Query, refusal: Refusal, text: str) -> None:
        self._metrics.refusals[refusal].value += 1
        fields: dict[str, object] = {"partition": partition, "reason": refusal.value, "why": text}
        self._host.note("debug" if refusal in _USUAL else "warning", "restore_refused", fields)
        self._host.restore_point_found(partition, query.instance, None)
