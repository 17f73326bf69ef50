"""From the settings of a node to the configuration of the parts that know share state; see `daemon.components`."""

from typing import Final

from holdfast.daemon.settings.by_name import configure
from holdfast.daemon.settings.models import Settings
from holdfast.daemon.topics.state_topic import StateTopic
from holdfast.records.share.codecs.codec import Codec
from holdfast.runtime.kafka_log.sending.accumulator import RECORD_OVERHEAD_BYTES
from holdfast.runtime.load_slices import SLICE_MS
from holdfast.share.config import ShardConfig
from holdfast.share.settings import ShareSettings
from holdfast.share.snapshots.follower import Bounds
from holdfast.share.state_bounds import StateBounds, StateTotals

#: Bytes of a snapshot in addition to its state batches, with the longest group id; then of each batch, for offsets that are not
#: extreme. It bounds their number; near it, shards look at the bytes.
_SNAPSHOT_ROOM_BYTES: Final = 34_000
_STATE_BATCH_BYTES: Final = 20
#: Combining 50,000 takes a good part of a second, for which the other shards wait.
_STATE_BATCHES_MAX: Final = 50_000


def state_batches_max(message_bytes_max: int) -> int:
    """Return how many state batches a share partition may have, so that its snapshot fits into a batch of the state topic."""
    return min(_STATE_BATCHES_MAX, max(1, (message_bytes_max - _SNAPSHOT_ROOM_BYTES) // _STATE_BATCH_BYTES))


def state_bounds(settings: Settings) -> StateBounds:
    """Return how much state this node may serve."""
    return configure(StateBounds, settings.of(ShareSettings))


def shard_config(settings: Settings, topic: StateTopic, totals: StateTotals) -> ShardConfig:
    """Return what each share shard is given; all of them share `totals`."""
    return configure(
        ShardConfig,
        settings.of(ShareSettings),
        state_batches_max=state_batches_max(topic.max_message_bytes),
        snapshot_bytes_max=max(1, topic.max_message_bytes - RECORD_OVERHEAD_BYTES),
        codec=Codec(settings.log.codec),
        totals=totals,
    )


def snapshot_bounds(settings: Settings) -> Bounds:
    """Return how much of the snapshot topic is read, and for how long."""
    snapshots = settings.snapshots
    return Bounds(snapshots.read_timeout_ms, snapshots.read_bytes_max, SLICE_MS)
