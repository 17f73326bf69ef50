"""The settings of the snapshot store, and of compaction, the Spark job that writes it."""

import re
from typing import Annotated, Final, Self

from pydantic import AfterValidator, model_validator

from holdfast.daemon.settings.declarations import MIB, Component, Properties, count, setting, time_ms

#: Properties of Spark that the job fixes, and what to say instead.
OWNED_SPARK_PROPERTIES: Final = {
    "spark.master": "use compaction.master",
    "spark.sql.shuffle.partitions": "use compaction.state.partitions",
    "spark.sql.session.timeZone": "the days of the history are those of UTC",
    "spark.sql.streaming.checkpointLocation": "use compaction.checkpoint.dir",
    "spark.sql.streaming.stateStore.providerClass": "the state is always kept in RocksDB",
}


#: What Spark takes; of another text its Java says so on standard error, and ends.
#: Source: `SparkMasterRegex` and `SparkSubmit` of Spark 4.2.
_MASTER: Final = re.compile(
    r"yarn|spark://.+|k8s://.+|local(\[(\d+|\*)(\s*,\s*\d+)?\])?|local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]"
)


def _check_master(master: str) -> str:
    if not _MASTER.fullmatch(master):
        raise ValueError("it must be local[N], local[*], spark://host:port, yarn or k8s://https://host:port")
    return master


class SnapshotSettings(Component):
    """The snapshot store: the topic of snapshots that loads may begin with."""

    name_prefix = "snapshots."

    topic: str = setting(
        "holdfast-share-snapshots",
        "Topic that holds the snapshots, with as many partitions and copies as the state topic; each state topic needs one of its own. "
        "If it exists, nodes load from it; empty: they never look.",
        max_length=249,
        pattern=r"^[a-zA-Z0-9._-]*$",
    )
    read_timeout_ms: int = time_ms(
        30_000, "How long a load waits for the snapshot topic; then it reads the whole log.", minimum=100
    )
    read_bytes_max: int = setting(
        512 * MIB,
        "Memory for what a node keeps of the snapshot topic, about a kilobyte for a share partition. If it is not enough, the partition "
        "that takes most is put aside: a load that waits for it reads the log alone, and its owner neither verifies nor removes snapshots "
        "until it is loaded again or there is room for a quarter more than it took.",
        ge=MIB,
        le=1024 * 1024 * MIB,
    )


class CompactionSettings(Component):
    """The Spark job, which folds the log into the snapshot store and the history."""

    name_prefix = "compaction."

    run: bool = setting(
        False,
        "Whether this node runs the job, as a child process that it starts again when it ends. Needs Java 17 to 25 and "
        "the extra `spark` of `holdfast-kafka`, and `compaction.checkpoint.dir`.",
    )
    group: str = setting(
        "holdfast-compaction",
        "Consumer group whose committed offsets on the state topic are the job's progress. It is a reader of the log "
        "like those of `log_readers`, from its first commit on, or from the start where `compaction.run` is true.",
        min_length=1,
        max_length=249,
    )
    checkpoint_dir: str = setting(
        "",
        "Place where the job keeps its state: a directory, or any URI that Hadoop knows, as in hdfs://nn/holdfast/checkpoint. "
        "Lost, it is built again from the log.",
    )
    history_dir: str = setting(
        "",
        "Place for the history, which the job writes as Parquet files: a directory or a URI as above. Empty: no history is kept.",
    )
    master: Annotated[str, AfterValidator(_check_master)] = setting(
        "local[*]",
        "Master on which the job runs, as in `spark.master`: local[N], local[*], spark://host:7077, yarn or k8s://https://host:6443.",
    )
    state_partitions: int = count(
        8,
        "Parts of the job's state, each of them work for one core. Fixed when the checkpoint directory is new.",
        most=10_000,
    )
    offsets_per_trigger_max: int = count(
        1_000_000, "Records of the log that one batch takes in: this bounds the job's memory."
    )
    trigger_interval_ms: int = time_ms(
        10_000,
        "How often a batch begins, where the last one has ended; a batch that finds nothing costs nothing.",
        minimum=0,
    )
    worker_start_attempts_max: int = count(
        5,
        "Tries of a query that Spark gives up because Python took more than ten seconds to start, as on a busy machine; raise it there.",
        most=1_000,
    )
    stop_timeout_ms: int = time_ms(
        10_000,
        "How long a job may take to finish its batch when the node stops; then it is killed, which loses nothing.",
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.run and not self.checkpoint_dir:
            raise ValueError(
                "compaction.run is true and compaction.checkpoint.dir is not set; name a directory for the job's state"
            )
        return self


class SparkSettings(Properties):
    """Properties of Spark, for the job alone."""

    name_prefix = "spark."
    keeps_prefix = True

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name in self.properties:
            if name in OWNED_SPARK_PROPERTIES:
                raise ValueError(f"{name} cannot be set: {OWNED_SPARK_PROPERTIES[name]}; remove it")
        return self
