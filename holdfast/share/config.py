"""The settings of a share shard."""

from dataclasses import dataclass, field

from holdfast.records.share.codecs.codec import Codec
from holdfast.share.state_bounds import StateTotals


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardConfig:
    """Settings of a share shard.

    Raises:
        ValueError: a setting is out of its bounds.
    """

    #: Updates between two snapshots of a share partition, 0…500; 0: every write is a snapshot. More make shorter records, longer loads.
    snapshot_update_records_per_snapshot: int
    #: State batches of one share partition; a write that would make more is refused. A snapshot of all of them must fit into the topic's
    #: `max.message.bytes` (50,000 fit into Kafka's default): a share partition that cannot be snapshotted could never be pruned.
    state_batches_max: int
    #: Bytes of key and value that one record may have; a write after which a snapshot would have more is refused.
    snapshot_bytes_max: int
    #: Codec of new records; records of any codec are read.
    codec: Codec
    #: Sums over all shards of the node; each counts its own states from their fold until they are freed.
    totals: StateTotals = field(compare=False)

    def __post_init__(self) -> None:
        updates = self.snapshot_update_records_per_snapshot
        if not 0 <= updates <= 500:
            raise ValueError(f"snapshot_update_records_per_snapshot is {updates}; use 0 to 500.")
        if self.state_batches_max < 1:
            raise ValueError(f"state_batches_max is {self.state_batches_max}; use 1 or more.")
        if self.snapshot_bytes_max < 1:
            raise ValueError(f"snapshot_bytes_max is {self.snapshot_bytes_max}; use 1 or more.")
