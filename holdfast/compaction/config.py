"""What the job needs to know, apart from the node's settings that it comes from."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionConfig:
    """Say what is folded, where it goes, and with which bounds."""

    bootstrap_servers: str
    #: Of librdkafka, for security and the like.
    kafka_properties: Mapping[str, str] = field(default_factory=dict)
    state_topic: str
    snapshot_topic: str
    #: Consumer group whose committed offsets on the state topic are the job's progress.
    group: str
    #: A directory, or any URI that Hadoop knows; one directory per state topic id is made in it.
    checkpoint_dir: str
    #: As above; empty: no history is kept.
    history_dir: str = ""
    #: None: the master is already known, as under `spark-submit`.
    master: str | None = "local[*]"
    #: Properties of Spark, over ours.
    spark_properties: Mapping[str, str] = field(default_factory=dict)
    #: Parts of the job's state; what a checkpoint directory was made with stays.
    state_partitions: int = 8
    offsets_per_trigger_max: int = 1_000_000
    #: Keys and values of one batch; where records are large, batches take in fewer.
    bytes_per_trigger_max: int = 256 << 20
    trigger_interval_ms: int = 10_000
    #: Tries of a query, where Spark gives Python up because it starts slowly.
    worker_start_attempts_max: int = 5
    admin_timeout_ms: int = 10_000
    #: How often the state topic is looked at while nothing happens.
    topic_check_interval_ms: int = 5_000
