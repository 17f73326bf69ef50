"""The state of the share partitions of one log partition: how it is replayed, undone and committed.

Only `replay` changes it, and the same rule (`records.share.replay`) serves live writes, loads, Spark and the CLI.
Decisions about it are in `share.decisions`.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from holdfast.records.native import twins
from holdfast.records.share.codecs.codec import Kind, encode_key, value_encoder
from holdfast.records.share.codecs.sizes import ESTIMATES_BYTES
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.redundant_offsets import RedundantOffsetTracker
from holdfast.records.share.replay import ShareState, replay
from holdfast.records.share.values import Snapshot, Update
from holdfast.runtime.timeline import TimelineMap
from holdfast.share.config import ShardConfig

_untrack_map: Final = None if twins is None else twins.untrack_map

#: Position of everything that was loaded: below all that can be reverted to.
_LOADED: Final = -1


class ShardState:
    """The share partitions of one log partition, with what is not committed yet and can be undone."""

    def __init__(self, config: ShardConfig) -> None:
        #: Every share partition's state, by positions.
        self.timeline: TimelineMap[SharePartitionKey, ShareState] = TimelineMap()
        #: Live share partitions by topic id, in order of their arrival.
        self.topics: dict[bytes, dict[SharePartitionKey, None]] = {}
        #: Newest snapshots of live share partitions; knows what is committed only.
        self.offsets = RedundantOffsetTracker()
        #: Snapshots decided and not yet read back from the log: key to the position of the newest.
        self.pending_snapshots: dict[SharePartitionKey, int] = {}
        #: Upper estimate of the bytes of keys and values in the log if every live share partition had one snapshot in it.
        self.live_bytes = 0
        #: Upper estimates of the bytes of a snapshot beside its group id, and of each of its batches.
        self.snapshot_size_bytes, self.batch_size_bytes = ESTIMATES_BYTES[config.codec]
        self._codec = config.codec
        self._updates_per_snapshot = config.snapshot_update_records_per_snapshot
        self._totals = config.totals
        #: (snapshot key, update key) as bytes; bounded by the live share partitions, see `_encode_keys`.
        self._encoded_keys: dict[SharePartitionKey, tuple[bytes, bytes]] = {}
        self._encode_value = value_encoder(config.codec)

    # ---- changes ---------------------------------------------------------------------------------------------------

    def put_loaded(self, key: SharePartitionKey, state: ShareState | None) -> None:
        """Take what a load found of a share partition, None for nothing, in place of what it found before; it cannot be undone."""
        if twins is not None:  # a loaded state may stay for as long as the node
            twins.untrack(key)
            if state is not None:
                twins.untrack(state)
        before = self.timeline.current.get(key)
        self.timeline.put(_LOADED, key, state)
        self._account(key, before, state)
        self.timeline.trim(_LOADED)

    def encode(self, key: SharePartitionKey, value: Snapshot | Update | None) -> tuple[bytes, bytes | None]:
        """Return the bytes of a record's key and value, None for a tombstone."""
        keys = self._encoded_keys.get(key) or self._encode_keys(key)
        if value is None:
            del self._encoded_keys[key]
            return keys[0], None
        return keys[type(value) is Update], self._encode_value(value)

    def replay(self, key: SharePartitionKey, value: Snapshot | Update | None, position: int) -> None:
        """Apply one record at `position`, which is above all positions before."""
        before = self.timeline.current.get(key)
        after = replay(before, value, self._updates_per_snapshot)
        if type(value) is Update:
            if before is None:
                return
        else:
            self.pending_snapshots[key] = position
        self.timeline.put(position, key, after)
        self._account(key, before, after)

    def revert(self, position: int) -> None:
        """Undo every replay above `position`."""
        for key, undone, restored in self.timeline.revert(position):
            self._account(key, undone, restored)
        pending = self.pending_snapshots
        for key in [key for key, at in pending.items() if at > position]:
            del pending[key]

    def commit(self, key: SharePartitionKey, value: Snapshot | Update | None, offset: int, position: int) -> None:
        """Learn that the record replayed at `position` counts and lies at `offset`."""
        self.timeline.trim(position)
        if type(value) is not Update:
            if self.pending_snapshots.get(key) == position:
                del self.pending_snapshots[key]
            self.offsets.update(key, offset, is_tombstone=value is None)

    def discard(self) -> Iterator[None]:
        """Forget at most one share partition at each step, and count it no longer, until nothing is left."""
        timeline, totals = self.timeline, self._totals
        while timeline.current:
            key, state = timeline.pop()
            totals.remove(key, self.estimate_size(key, state))
            yield
        yield from self.offsets.discard()
        while self.topics:
            _, keys = self.topics.popitem()
            while keys:
                keys.popitem()
                yield
        for held in (self.pending_snapshots, self._encoded_keys):
            while held:
                held.popitem()
                yield

    # ---- queries ---------------------------------------------------------------------------------------------------

    def keys(self, topic_id: bytes | None = None) -> list[SharePartitionKey]:
        """Return all share partitions, or those of a topic, uncommitted ones included, in no order."""
        return list(self.timeline.current if topic_id is None else self.topics.get(topic_id, ()))

    def topic_ids(self) -> frozenset[bytes]:
        """Return the topics of all share partitions, uncommitted ones included."""
        return frozenset(self.topics)

    def topic_sizes(self) -> dict[bytes, int]:
        """Return the number of share partitions of each topic, uncommitted ones included."""
        return {topic_id: len(keys) for topic_id, keys in self.topics.items()}

    def share_partition_count(self, topic_ids: Iterable[bytes] | None = None) -> int:
        """Return how many share partitions there are, or belong to `topic_ids`, uncommitted ones included."""
        if topic_ids is None:
            return len(self.timeline.current)
        return sum(len(self.topics.get(topic_id, ())) for topic_id in topic_ids)

    def newest(self, key: SharePartitionKey) -> ShareState | None:
        """Return the state of `key` that decisions rest on, committed or not, or None."""
        return self.timeline.current.get(key)

    def at(self, position: int, key: SharePartitionKey) -> ShareState | None:
        """Return the state of `key` as it was at `position`, or None."""
        return self.timeline.get_at(position, key)

    def estimate_size(self, key: SharePartitionKey, state: ShareState) -> int:
        """Return an upper estimate of the bytes of a snapshot's key and value."""
        batches_bytes = len(state.state_batches) * self.batch_size_bytes
        return self.snapshot_size_bytes + len(key.group_id.encode()) + batches_bytes

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _account(self, key: SharePartitionKey, before: ShareState | None, after: ShareState | None) -> None:
        """Note a change that the timeline has; keys and states are part of no cycle, so the collector need not look at them."""
        if _untrack_map is not None:
            _untrack_map(self.timeline.current)
        if before is not None and after is not None:
            growth_bytes = (len(after.state_batches) - len(before.state_batches)) * self.batch_size_bytes
            self.live_bytes += growth_bytes
            self._totals.state_bytes += growth_bytes
        elif after is not None:
            size_bytes = self.estimate_size(key, after)
            self.live_bytes += size_bytes
            self._totals.add(key, size_bytes)
            keys = self.topics.setdefault(key.topic_id, {})
            keys[key] = None
            if _untrack_map is not None:
                _untrack_map(keys)
        elif before is not None:
            size_bytes = self.estimate_size(key, before)
            self.live_bytes -= size_bytes
            self._totals.remove(key, size_bytes)
            keys = self.topics[key.topic_id]
            del keys[key]
            if not keys:
                del self.topics[key.topic_id]

    def _encode_keys(self, key: SharePartitionKey) -> tuple[bytes, bytes]:
        # Undone Initializes and deleted share partitions leave entries; at twice the live ones it starts from scratch.
        if len(self._encoded_keys) > 2 * len(self.timeline.current) + 1000:
            self._encoded_keys.clear()
        codec = self._codec
        of_snapshots, of_updates = encode_key(codec, key, Kind.SNAPSHOT), encode_key(codec, key, Kind.UPDATE)
        # In Avro both are the same, and a group id may be long.
        keys = of_snapshots, of_snapshots if of_updates == of_snapshots else of_updates
        self._encoded_keys[key] = keys
        if _untrack_map is not None:
            _untrack_map(self._encoded_keys)
        return keys
