"""The configuration of the job, without the node's settings from which it is made."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionConfig:
    """What is folded, where it is written, and within which bounds; a field that is a setting has its name."""

    bootstrap_servers: str
    #: Properties of librdkafka, for security and the like.
    kafka_properties: Mapping[str, str] = field(default_factory=dict)
    state_topic: str
    snapshot_topic: str
    #: Consumer group whose committed offsets on the state topic are the job's progress.
    group: str
    #: A directory, or any URI that Hadoop knows; one directory per state topic id is created in it.
    checkpoint_dir: str
    #: As above; empty: no history is kept.
    history_dir: str
    #: None: the master is already known, as under `spark-submit`.
    master: str | None
    #: Properties of Spark, over ours.
    spark_properties: Mapping[str, str] = field(default_factory=dict)
    #: Partitions of the job's state; fixed when a checkpoint directory is created.
    state_partitions: int
    offsets_per_trigger_max: int
    #: Keys and values of one batch; where records are large, batches take in fewer.
    bytes_per_trigger_max: int = 256 << 20
    trigger_interval_ms: int
    #: Attempts of a query that Spark gives up because Python starts slowly.
    worker_start_attempts_max: int
    #: Of one request to a broker.
    request_timeout_ms: int
    #: How often the id of the state topic is checked while nothing happens.
    topic_check_interval_ms: int = 5_000

    @property
    def directories(self) -> dict[str, str]:
        """Return the directories that the job writes to, by the settings that name them."""
        return {"compaction.checkpoint.dir": self.checkpoint_dir, "compaction.history.dir": self.history_dir}

    @property
    def is_local(self) -> bool:
        """Tell whether Spark computes in the Java that the job starts."""
        return self.master is not None and self.master.startswith("local")
