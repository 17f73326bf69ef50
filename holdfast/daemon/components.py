"""From the settings of a node to what each of its components is given.

A component has its own frozen configuration and knows no settings; here, and nowhere else, the one becomes the other.
Fields have the setting's name wherever the component means the same by it.
"""

from collections.abc import Callable
from typing import Final

from holdfast.daemon.pruning.log_readers import Change, LogReaders
from holdfast.daemon.settings.models import Settings
from holdfast.daemon.share.config import ShardConfig
from holdfast.daemon.share.state_bounds import StateBounds, StateTotals
from holdfast.daemon.snapshots.follower import Bounds
from holdfast.daemon.topics.state_topic import StateTopic
from holdfast.kafka.connection import ConnectionOptions
from holdfast.records.codecs.codec import Codec
from holdfast.runtime.kafka_log.accumulator import RECORD_OVERHEAD_BYTES
from holdfast.runtime.kafka_log.log import KafkaLogConfig
from holdfast.runtime.settings import LogIdentity, PartitionConfig

#: What a snapshot takes beside its state batches, with the longest group id; then each batch, for offsets that are not
#: extreme. It bounds their number; near it, shards look at the bytes.
_SNAPSHOT_ROOM_BYTES: Final = 34_000
_STATE_BATCH_BYTES: Final = 20
#: Combining so many takes a good part of a second, for which the other shards wait.
_STATE_BATCHES_MAX: Final = 50_000
#: An append that is neither read back nor reported as failed is given up after so many times its own timeout.
_MESSAGE_TIMEOUTS_PER_STALL: Final = 2


def state_batches_max(message_bytes_max: int) -> int:
    """Return how many state batches a share partition may have, so that its snapshot fits into a batch of the state topic."""
    return min(_STATE_BATCHES_MAX, max(1, (message_bytes_max - _SNAPSHOT_ROOM_BYTES) // _STATE_BATCH_BYTES))


def state_bounds(settings: Settings) -> StateBounds:
    """Return how much state this node may serve."""
    share = settings.share
    return StateBounds(
        share.share_partitions_max,
        share.share_partitions_per_group_max,
        share.state_bytes_max,
        share.group_id_bytes_max,
    )


def shard_config(settings: Settings, topic: StateTopic, totals: StateTotals) -> ShardConfig:
    """Return what each share shard is given; all of them share `totals`."""
    return ShardConfig(
        updates_per_snapshot=settings.share.snapshot_update_records_per_snapshot,
        state_batches_max=state_batches_max(topic.max_message_bytes),
        snapshot_bytes_max=max(1, topic.max_message_bytes - RECORD_OVERHEAD_BYTES),
        codec=Codec(settings.log.codec),
        totals=totals,
    )


def partition_config(settings: Settings, log: LogIdentity, advertised_address: str) -> PartitionConfig:
    """Return what each log partition is given; clients reach this node at `advertised_address` (`host:port`)."""
    load = settings.load
    return PartitionConfig(
        node_id=str(settings.node_id),
        log=log,
        advertised_address=advertised_address,
        parked_writes_max=settings.log.parked_writes_max,
        load_timeout_ms=load.load_timeout_ms,
        load_stall_ms=load.load_stall_ms,
        append_stall_ms=_MESSAGE_TIMEOUTS_PER_STALL * settings.log.message_timeout_ms,
        retry_backoff_ms=load.retry_backoff_ms,
        retry_backoff_ms_max=load.retry_backoff_max_ms,
        alarm_backoff_ms=load.alarm_backoff_ms,
    )


def state_log_config(settings: Settings, topic: StateTopic, connection: ConnectionOptions) -> KafkaLogConfig:
    """Return how the log itself is written and read."""
    log = settings.log
    return KafkaLogConfig(
        topic=topic.name,
        connection=connection,
        message_bytes_max=topic.max_message_bytes,
        message_timeout_ms=log.message_timeout_ms,
        compression=log.state_topic_compression_codec,
        linger_ms=max(0, log.append_linger_ms),
        append_gather_max_ms=log.append_gather_max_ms,
        append_records_max=log.producer_queue_records_max,
        append_bytes_max=log.producer_queue_bytes_max,
        append_requests_in_flight_max=log.produce_requests_in_flight_max,
        fetch_wait_ms=log.fetch_wait_ms,
        slice_records_max=log.read_batch_records_max,
        fetch_bytes_max=log.fetch_bytes_max,
        fetch_partition_bytes_max=log.fetch_partition_bytes_max,
        request_timeout_ms=log.admin_timeout_ms,
        leader_silence_max_ms=log.leader_silence_max_ms,
        throttle_max_ms=log.throttle_max_ms,
    )


def snapshot_log_config(settings: Settings, connection: ConnectionOptions) -> KafkaLogConfig:
    """Return how the snapshot topic is read; nothing is appended to it by this way."""
    log, snapshots = settings.log, settings.snapshots
    return KafkaLogConfig(
        topic=snapshots.topic,
        connection=connection,
        fetch_wait_ms=snapshots.fetch_wait_ms,
        slice_records_max=log.read_batch_records_max,
        fetch_bytes_max=log.fetch_bytes_max,
        fetch_partition_bytes_max=log.fetch_partition_bytes_max,
        request_timeout_ms=log.admin_timeout_ms,
        leader_silence_max_ms=log.leader_silence_max_ms,
        throttle_max_ms=log.throttle_max_ms,
    )


def snapshot_bounds(settings: Settings) -> Bounds:
    """Return how much of the snapshot topic is read, and for how long."""
    snapshots = settings.snapshots
    return Bounds(snapshots.read_timeout_ms, snapshots.read_bytes_max, settings.load.slice_ms)


def log_readers(
    settings: Settings, clock_ms: Callable[[], int], on_change: Callable[[Change, str, int], None]
) -> LogReaders:
    """Return the readers that are registered: those an admin named, and the job that writes the snapshot topic.

    A job that no node runs holds nothing before its first commit: one that runs elsewhere is known by its commits.
    """
    pruning, compaction = settings.pruning, settings.compaction
    job = (compaction.group,) if settings.snapshots.topic else ()
    return LogReaders(
        (*pruning.log_readers, *job),
        pruning.reader_timeout_ms,
        clock_ms,
        on_change,
        from_first_commit=() if compaction.run else set(job) - set(pruning.log_readers),
        drop_after_ms=pruning.reader_drop_after_ms,
    )
