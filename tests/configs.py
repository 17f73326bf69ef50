"""The configurations that tests give to components: what production takes from its settings, with the values that tests rely on."""

from dataclasses import fields
from typing import Any, Final

from holdfast.compaction.config import CompactionConfig
from holdfast.kafka.connection_options import ConnectionOptions
from holdfast.records.share.codecs.codec import Codec
from holdfast.runtime.kafka_log.fetch_loop import FetcherConfig
from holdfast.runtime.kafka_log.log import KafkaLogConfig
from holdfast.runtime.kafka_log.sending.accumulator import AccumulatorConfig
from holdfast.runtime.kafka_log.sending.pace import PaceConfig
from holdfast.runtime.kafka_log.sending.sender import SenderConfig
from holdfast.runtime.settings import LogIdentity, PartitionConfig
from holdfast.share.config import ShardConfig
from holdfast.share.state_bounds import StateBounds, StateTotals

#: Of what no test wants bounded.
_UNBOUNDED: Final = 2**62
_MIB: Final = 1_048_576


def shard_config(**given: Any) -> ShardConfig:
    """Return what a share shard is given, with totals of its own that have no bounds."""
    values: dict[str, Any] = {
        "snapshot_update_records_per_snapshot": 500,
        "state_batches_max": 50_000,
        "snapshot_bytes_max": 1_048_000,
        "codec": Codec.AVRO,
        "totals": StateTotals(state_bounds()),
    }
    return ShardConfig(**{**values, **given})


def state_bounds(**given: int) -> StateBounds:
    """Return how much state a node may hold: without bounds but those given."""
    return StateBounds(**{**dict.fromkeys(StateBounds._fields, _UNBOUNDED), **given})


def partition_config(node_id: str, log: LogIdentity, **given: Any) -> PartitionConfig:
    """Return what a log partition is given."""
    values: dict[str, Any] = {
        "advertised_address": "",
        "parked_writes_max": 10_000,
        "load_timeout_ms": 600_000,
        "load_stall_ms": 30_000,
        "append_stall_ms": 60_000,
        "loads_max": 64,
        "retry_backoff_ms": 200,
        "retry_backoff_max_ms": 30_000,
        "alarm_backoff_ms": 300_000,
        "write_timeout_ms": 5_000,
    }
    return PartitionConfig(node_id=node_id, log=log, **{**values, **given})


def kafka_log_config(topic: str, connection: ConnectionOptions, **given: Any) -> KafkaLogConfig:
    """Return how a log on Kafka is reached."""
    values: dict[str, Any] = {
        "message_bytes_max": _MIB,
        "message_timeout_ms": 30_000,
        "state_topic_compression_codec": 0,
        "append_linger_ms": -1,
        "append_linger_max_ms": 100,
        "producer_queue_records_max": 100_000,
        "producer_queue_bytes_max": 64 * _MIB,
        "produce_requests_in_flight_max": 4,
        "fetch_wait_ms": 100,
        "fetch_bytes_max": 4 * _MIB,
        "fetch_partition_bytes_max": _MIB,
        "fetch_batch_bytes_max": 16 * _MIB,
        "slice_records_max": 200,
        "request_timeout_ms": 10_000,
        "busy_poll_us": 0,
        "leader_silence_max_ms": 3_000,
        "throttle_max_ms": 300_000,
        "client": "native",
    }
    return KafkaLogConfig(topic=topic, connection=connection, **{**values, **given})


def accumulator_config(**given: Any) -> AccumulatorConfig:
    """Return the bounds of what waits in a small accumulator."""
    values: dict[str, Any] = {
        "batch_bytes_max": 1_000,
        "state_topic_compression_codec": 0,
        "producer_queue_records_max": 100_000,
        "producer_queue_bytes_max": 64 * _MIB,
    }
    return AccumulatorConfig(**{**values, **given})


def sender_config(accumulator: AccumulatorConfig, message_timeout_ms: int, **given: Any) -> SenderConfig:
    """Return the bounds of a sender; those of its pace are given by their names, too."""
    values: dict[str, Any] = {
        "append_linger_ms": -1,
        "append_linger_max_ms": 100,
        "produce_requests_in_flight_max": 4,
        "throttle_max_ms": 300_000,
        **given,
    }
    pace = PaceConfig(**{each.name: values.pop(each.name) for each in fields(PaceConfig) if each.name in values})
    return SenderConfig(accumulator=accumulator, pace=pace, message_timeout_ms=message_timeout_ms, **values)


def fetcher_config(**given: Any) -> FetcherConfig:
    """Return the bounds of a fetcher of small batches that hardly waits."""
    values: dict[str, Any] = {
        "fetch_wait_ms": 10,
        "fetch_bytes_max": 10_000,
        "fetch_partition_bytes_max": 1_000,
        "fetch_batch_bytes_max": 100_000,
        "slice_records_max": 2,
        "throttle_max_ms": 300_000,
        "retry_backoff_ms": 1,
    }
    return FetcherConfig(**{**values, **given})


def compaction_config(**given: Any) -> CompactionConfig:
    """Return what the Spark job is given: names and bounds of a job that reads nothing, keeps no history and gives up at once."""
    values: dict[str, Any] = {
        "bootstrap_servers": "localhost:9092",
        "state_topic": "state",
        "snapshot_topic": "snapshots",
        "group": "group",
        "checkpoint_dir": "/checkpoint",
        "history_dir": "",
        "master": None,
        "state_partitions": 1,
        "offsets_per_trigger_max": 1,
        "trigger_interval_ms": 0,
        "worker_start_attempts_max": 1,
        "request_timeout_ms": 1,
    }
    return CompactionConfig(**{**values, **given})


def offset_query_bounds(**given: int) -> dict[str, int]:
    """Return the bounds of offset queries, as keywords."""
    return {"leader_silence_max_ms": 3_000, "throttle_max_ms": 300_000, "request_timeout_ms": 10_000, **given}
