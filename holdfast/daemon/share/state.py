"""The state of the share partitions of one log partition: how it is loaded, replayed, undone and committed.

Only `replay` changes state, and the same rule (`records.replay`) serves live writes, loads, Spark and the CLI.
What may be decided about it is in `daemon.share.decisions`.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from mypy_extensions import mypyc_attr

from holdfast.daemon.share.load import ShareBase, ShareLoad
from holdfast.daemon.share.state_bounds import StateBounds, StateTotals
from holdfast.records.codecs.codec import Codec, Kind, encode_key, value_encoder
from holdfast.records.codecs.sizes import BATCH_BYTES_MAX, GROUP_ID_BYTES_MAX, room_bytes
from holdfast.records.keys import SharePartitionKey
from holdfast.records.redundant_offsets import RedundantOffsetTracker
from holdfast.records.replay import ShareState, replay
from holdfast.records.values import Snapshot, Update
from holdfast.runtime.timeline import TimelineMap

#: Position of everything that was loaded: below all that can be reverted to.
_LOADED = -1

#: Upper estimates of the bytes of a snapshot's key and value beside its group id, and of each of its batches. In Avro, whose
#: numbers take as much room as they need, for offsets up to 2^41.
_SIZES_BYTES = {Codec.AVRO: (76, 15), Codec.KAFKA: (88, 20)}


def _make_unbounded() -> StateTotals:
    return StateTotals(StateBounds())


class MetadataImage(Protocol):
    """What a shard asks of the cluster's metadata."""

    def partition_count(self, topic_id: bytes) -> int | None:
        """Return the number of partitions of the topic, or None when the id is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardConfig:
    """Settings of a share shard.

    Raises:
        ValueError: a setting is out of its bounds.
    """

    #: Updates between two snapshots of a share partition, 0…500; 0: every write is a snapshot. More make shorter records, longer loads.
    updates_per_snapshot: int = 500
    #: State batches of one share partition; a write that would make more is refused. A snapshot of so many must fit into the topic's
    #: `max.message.bytes` (50,000 fit into Kafka's default): a share partition that cannot be snapshotted could never be pruned.
    state_batches_max: int = 50_000
    #: Bytes of key and value that one record may have; a write after which a snapshot would have more is refused.
    snapshot_bytes_max: int = 1_048_000
    #: What new records are written in; records of any codec are read.
    codec: Codec = Codec.AVRO
    #: What all shards of the node hold together; each counts its own from the end of its load to its unload.
    totals: StateTotals = field(default_factory=_make_unbounded, compare=False)

    def __post_init__(self) -> None:
        if not 0 <= self.updates_per_snapshot <= 500:
            raise ValueError(f"updates_per_snapshot is {self.updates_per_snapshot}; use 0 to 500.")
        if self.state_batches_max < 1:
            raise ValueError(f"state_batches_max is {self.state_batches_max}; use 1 or more.")
        if self.snapshot_bytes_max < 1:
            raise ValueError(f"snapshot_bytes_max is {self.snapshot_bytes_max}; use 1 or more.")


@mypyc_attr(allow_interpreted_subclasses=True)
class ShardState:
    """All of `runtime.machine.StateMachine`; `daemon.share.decisions.ShareShard` adds the decisions."""

    def __init__(self, config: ShardConfig) -> None:
        self.config = config
        #: Newest snapshots of live share partitions; knows what is committed only.
        self.offsets = RedundantOffsetTracker()
        #: Upper estimate of the bytes of keys and values in the log if every live share partition had one snapshot in it.
        self.live_bytes = 0
        self._is_counted = False  #: in `config.totals`
        self._snapshot_size_bytes, self._batch_size_bytes = _SIZES_BYTES[config.codec]
        #: So many batches fit into a snapshot whatever their numbers and the group id are; only beyond is looked at them.
        self._batches_that_fit = min(
            config.state_batches_max,
            (config.snapshot_bytes_max - room_bytes(config.codec, GROUP_ID_BYTES_MAX)) // BATCH_BYTES_MAX[config.codec],
        )
        self._states: TimelineMap[SharePartitionKey, ShareState] = TimelineMap()
        #: Live share partitions by topic id, in order of their arrival.
        self._topics: dict[bytes, dict[SharePartitionKey, None]] = {}
        #: Snapshots decided and not yet met in the log: key to the position of the newest.
        self._pending_snapshots: dict[SharePartitionKey, int] = {}
        #: (snapshot key, update key) as bytes; bounded by the live share partitions, see `_encode_keys`.
        self._encoded_keys: dict[SharePartitionKey, tuple[bytes, bytes]] = {}
        self._encode_value = value_encoder(config.codec)
        self._image: MetadataImage | None = None
        self._load = ShareLoad(config.updates_per_snapshot, self.offsets)

    # ---- the state machine -----------------------------------------------------------------------------------------

    def load_base(self, content: ShareBase) -> None:
        """Begin to load with what the snapshot topic holds up to an offset, which is this shard's own from now on."""
        self._load.begin_with(content)

    def load_record(self, key: bytes, value: bytes | None, offset: int) -> None:
        """Take one raw record that counts, in offset order.

        Raises:
            RecordError: its first bytes already say that it cannot be decoded.
        """
        self._load.take(key, value, offset)

    def finish_load(self, is_time_up: Callable[[], bool]) -> bool:
        """Fold what was loaded; returns whether all is folded, or time was up before.

        Raises:
            LoadFailed: a record cannot be decoded, or an update's base is not in the log; names offset and key.
        """
        for key, state in self._load.fold(is_time_up):
            self._states.put(_LOADED, key, state)
            self._account(key, None, state)
        self._states.trim(_LOADED)
        return self._load.is_folded

    def on_log_accepted(self) -> None:
        """Learn, while loading, that an admin accepted the log so far: what cannot be used of it is left out."""
        self._load.accept()

    def on_loaded(self, image: Any) -> None:  # noqa: ANN401 - the runtime's type for any machine's image
        """Begin to serve with the metadata `image`, None while there is none."""
        self._image = image
        self._is_counted = True
        self.config.totals.add(self._states.current, self.live_bytes)

    def on_new_metadata_image(self, image: Any) -> None:  # noqa: ANN401
        """Take a newer metadata `image`."""
        self._image = image

    def on_unloaded(self) -> None:
        """Let go of the metadata; the instance sees nothing after this."""
        self._image = None
        if self._is_counted:
            self._is_counted = False
            self.config.totals.remove(self._states.current, self.live_bytes)

    def encode(self, key: SharePartitionKey, value: Snapshot | Update | None) -> tuple[bytes, bytes | None]:
        """Return the bytes of a record's key and value, None for a tombstone."""
        keys = self._encoded_keys.get(key) or self._encode_keys(key)
        if value is None:
            del self._encoded_keys[key]
            return keys[0], None
        return keys[type(value) is Update], self._encode_value(value)

    def replay(self, key: SharePartitionKey, value: Snapshot | Update | None, position: int) -> None:
        """Apply one record at `position`, which is above all positions before."""
        before = self._states.current.get(key)
        after = replay(before, value, self.config.updates_per_snapshot)
        if type(value) is Update:
            if before is None:
                return
        else:
            self._pending_snapshots[key] = position
        self._states.put(position, key, after)
        self._account(key, before, after)

    def revert(self, position: int) -> None:
        """Undo every replay above `position`."""
        for key, undone, restored in self._states.revert(position):
            self._account(key, undone, restored)
        pending = self._pending_snapshots
        for key in [key for key, at in pending.items() if at > position]:
            del pending[key]

    def committed(
        self, key: SharePartitionKey, value: Snapshot | Update | None, offset: int, position: int, size_bytes: int
    ) -> None:
        """Learn that the record replayed at `position` counts and lies at `offset`; `size_bytes` are its key and value."""
        self._states.trim(position)
        if type(value) is not Update:
            if self._pending_snapshots.get(key) == position:
                del self._pending_snapshots[key]
            self.offsets.update(key, offset, is_tombstone=value is None)

    # ---- queries ---------------------------------------------------------------------------------------------------

    def keys(self, topic_id: bytes | None = None) -> list[SharePartitionKey]:
        """Return all share partitions, or those of a topic, uncommitted ones included, in no order."""
        return list(self._states.current if topic_id is None else self._topics.get(topic_id, ()))

    def topic_ids(self) -> frozenset[bytes]:
        """Return the topics of all share partitions, uncommitted ones included."""
        return frozenset(self._topics)

    def topic_sizes(self) -> dict[bytes, int]:
        """Return the number of share partitions of each topic, uncommitted ones included."""
        return {topic_id: len(keys) for topic_id, keys in self._topics.items()}

    def share_partition_count(self, topic_ids: Iterable[bytes] | None = None) -> int:
        """Return how many share partitions there are, or belong to `topic_ids`, uncommitted ones included."""
        if topic_ids is None:
            return len(self._states.current)
        return sum(len(self._topics.get(topic_id, ())) for topic_id in topic_ids)

    def newest_state(self, key: SharePartitionKey) -> ShareState | None:
        """Return the state of `key` that decisions rest on, committed or not, or None."""
        return self._states.current.get(key)

    def state_at(self, position: int, key: SharePartitionKey) -> ShareState | None:
        """Return the state of `key` as it was at `position`, or None."""
        return self._states.get_at(position, key)

    def states_at(self, position: int) -> Iterator[tuple[SharePartitionKey, ShareState]]:
        """Yield every share partition and its state as they were at `position`."""
        return self._states.items_at(position)

    @property
    def is_log_accepted(self) -> bool:
        """Tell whether an admin accepted the log as it was, so that its state may be another cluster's."""
        return self._load.is_accepted

    @property
    def skipped_records(self) -> int:
        """Records met while loading that mean nothing to this version: of an unknown type, or a null update."""
        return self._load.skipped_records

    @property
    def values_with_trailing_bytes(self) -> int:
        """Values met while loading with bytes behind their end, which were ignored."""
        return self._load.values_with_trailing_bytes

    @property
    def left_out_records(self) -> int:
        """Records met while loading that could not be used and that an admin accepted to lose."""
        return self._load.left_out_records

    def estimate_size(self, key: SharePartitionKey, state: ShareState) -> int:
        """Return an upper estimate of the bytes of a snapshot's key and value."""
        batches_bytes = len(state.state_batches) * self._batch_size_bytes
        return self._snapshot_size_bytes + len(key.group_id.encode()) + batches_bytes

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _account(self, key: SharePartitionKey, before: ShareState | None, after: ShareState | None) -> None:
        if before is not None and after is not None:
            growth_bytes = (len(after.state_batches) - len(before.state_batches)) * self._batch_size_bytes
            self.live_bytes += growth_bytes
            if self._is_counted:
                self.config.totals.state_bytes += growth_bytes
        elif after is not None:
            size_bytes = self.estimate_size(key, after)
            self.live_bytes += size_bytes
            if self._is_counted:
                self.config.totals.add((key,), size_bytes)
            self._topics.setdefault(key.topic_id, {})[key] = None
        elif before is not None:
            size_bytes = self.estimate_size(key, before)
            self.live_bytes -= size_bytes
            if self._is_counted:
                self.config.totals.remove((key,), size_bytes)
            keys = self._topics[key.topic_id]
            del keys[key]
            if not keys:
                del self._topics[key.topic_id]

    def _encode_keys(self, key: SharePartitionKey) -> tuple[bytes, bytes]:
        # Undone Initializes and deleted share partitions leave entries behind; at twice the live ones it starts afresh.
        if len(self._encoded_keys) > 2 * len(self._states.current) + 1000:
            self._encoded_keys.clear()
        codec = self.config.codec
        of_snapshots, of_updates = encode_key(codec, key, Kind.SNAPSHOT), encode_key(codec, key, Kind.UPDATE)
        # In Avro both are the same, and a group id may be long.
        keys = of_snapshots, of_snapshots if of_updates == of_snapshots else of_updates
        self._encoded_keys[key] = keys
        return keys
