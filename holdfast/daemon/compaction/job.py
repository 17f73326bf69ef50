"""The Spark job: one streaming query over the state topic, begun anew when that topic is made again."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from threading import Event
from time import monotonic
from typing import Final

import structlog
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from holdfast.broker.jars import spark_kafka_jars
from holdfast.daemon.compaction.config import CompactionConfig
from holdfast.daemon.compaction.errors import CompactionError, TopicMadeAgain
from holdfast.daemon.compaction.files import Directory
from holdfast.daemon.compaction.folding_processor import INPUT_COLUMNS, OUTPUT, FoldingProcessor
from holdfast.daemon.compaction.history_writer import HistoryWriter
from holdfast.daemon.compaction.java_properties import to_java
from holdfast.daemon.compaction.report import BatchReport
from holdfast.daemon.compaction.sink import Sink
from holdfast.daemon.compaction.topics import Topics
from holdfast.records.header import HEADER_NAME
from holdfast.records.keys import format_topic_id

#: Of what the job keeps; another one begins anew.
_STATE_VERSION: Final = 1
#: Stands in a query's directory when the fold of a log partition stands still.
_STOPPED_FILE: Final = "stopped"
_POLL_S: Final = 1

_log = structlog.get_logger(__name__)


class _Stopping(Exception):
    """A batch that would begin after the stop does not."""


def run(
    config: CompactionConfig,
    *,
    once: bool,
    on_progress: Callable[[BatchReport], None] | None = None,
    stop: Event | None = None,
) -> None:
    """Fold the log until told to stop, or, with `once`, to its end as it is now.

    A stop takes effect between two batches.

    Raises:
        CompactionError: the job cannot go on; the text says why.
    """
    stop = stop or Event()
    topics = Topics(config)
    spark = make_session(config)
    try:
        while not stop.is_set() and not _run_query(spark, config, topics, once, on_progress, stop):
            _log.warning("state_topic_made_again", state_topic=config.state_topic)
    finally:
        spark.stop()
        topics.close()


def make_session(config: CompactionConfig) -> SparkSession:
    """Return a session with what the job needs of Spark."""
    properties = {
        "spark.app.name": "holdfast-compaction",
        "spark.sql.shuffle.partitions": str(config.state_partitions),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.minBatchesToRetain": "10",
        # Spark warns of every state that is asked for and not there.
        "spark.log.level": "ERROR",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if config.master is not None:
        properties["spark.master"] = config.master
        if config.master.startswith("local"):
            properties["spark.driver.memory"] = "2g"
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
            # Nobody else has to reach this driver.
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    properties |= config.spark_properties
    if config.master is not None and "spark.jars.packages" not in properties:
        properties["spark.jars"] = ",".join(map(str, spark_kafka_jars()))
    builder = SparkSession.builder
    for name, value in properties.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def read_log(spark: SparkSession, config: CompactionConfig) -> DataFrame:
    """Return the stream of all records of the state topic, with the columns that the fold needs."""
    options = {f"kafka.{name}": value for name, value in to_java(config.kafka_properties).items()} | {
        "kafka.bootstrap.servers": config.bootstrap_servers,
        "kafka.isolation.level": "read_uncommitted",
        "subscribe": config.state_topic,
        "startingOffsets": "earliest",
        # The log is cut at its start as a matter of course; the fold sees each cut by itself.
        "failOnDataLoss": "false",
        "includeHeaders": "true",
        "maxOffsetsPerTrigger": str(config.offsets_per_trigger_max),
    }
    own_headers = f.filter("headers", lambda header: header.key == HEADER_NAME)
    return (
        spark.readStream.format("kafka")
        .options(**options)
        .load()
        .withColumn("header", f.try_element_at(own_headers, f.lit(-1)).value)
        .withColumn("log_partition", f.col("partition"))
        .withColumn("timestamp_ms", f.unix_millis("timestamp"))
        .select(*INPUT_COLUMNS)
    )


def fold_log(records: DataFrame, processor: FoldingProcessor) -> DataFrame:
    """Return what comes of the records, in rows of `folding_processor.OUTPUT`."""
    return records.groupBy("log_partition").transformWithStateInPandas(
        statefulProcessor=processor, outputStructType=OUTPUT, outputMode="Append", timeMode="None"
    )


def _run_query(
    spark: SparkSession,
    config: CompactionConfig,
    topics: Topics,
    once: bool,
    on_progress: Callable[[BatchReport], None] | None,
    stop: Event,
) -> bool:
    """Fold the state topic that there is; returns whether all is done, False when the topic is another one by now."""
    topic = topics.describe(config.state_topic)
    while topic is None:
        if once or stop.wait(config.topic_check_interval_ms / 1_000):
            raise CompactionError(f"There is no topic {config.state_topic}.")
        topic = topics.describe(config.state_topic)
    state_topic_id, partition_count = topic
    own = Directory(spark, f"{config.checkpoint_dir.rstrip('/')}/{format_topic_id(state_topic_id)}/v{_STATE_VERSION}")
    if own.exists(_STOPPED_FILE):
        # Spark has read past the record that stopped the fold, so only from the log's start can it come back to it.
        own.remove()
    # Asked after the start of the log was there to be read: see `Sink`.
    ends = topics.ends(partition_count)
    has_history = bool(config.history_dir)
    sink = Sink(
        config,
        topics,
        state_topic_id=state_topic_id,
        partition_count=partition_count,
        ends=ends,
        history_writer=HistoryWriter(spark, config.history_dir, state_topic_id, own) if has_history else None,
        on_stopped=lambda: own.write_text(_STOPPED_FILE, ""),
        on_progress=on_progress,
    )
    failures: list[Exception] = []

    def write(batch: DataFrame, batch_id: int) -> None:
        try:
            if stop.is_set():
                raise _Stopping
            sink.write(batch, batch_id)
        except Exception as error:
            failures.append(error)
            raise

    processor = FoldingProcessor(state_topic_id, partition_count, has_history)
    trigger = {"availableNow": True} if once else {"processingTime": f"{config.trigger_interval_ms} milliseconds"}
    query = (
        fold_log(read_log(spark, config), processor)
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", f"{own.path}/query")
        .trigger(**trigger)
        .start()
    )
    try:
        return _await_end(query, config, topics, state_topic_id, stop)
    except StreamingQueryException as error:
        if stop.is_set():
            return True
        if (failures and isinstance(failures[-1], TopicMadeAgain)) or topics.describe(config.state_topic) != topic:
            return False
        raise failures[-1] if failures else CompactionError(f"The query ended: {error}") from error
    finally:
        query.stop()


def _await_end(
    query: StreamingQuery, config: CompactionConfig, topics: Topics, state_topic_id: bytes, stop: Event
) -> bool:
    """Wait until the query ends or is to end; returns False when the state topic is another one.

    Raises:
        StreamingQueryException: the query failed.
    """
    asked_at = monotonic()
    while not query.awaitTermination(_POLL_S):
        if stop.is_set() and not query.status["isTriggerActive"]:
            break
        if monotonic() - asked_at > config.topic_check_interval_ms / 1_000:
            topic = topics.describe(config.state_topic)
            if topic is None or topic[0] != state_topic_id:
                return False
            asked_at = monotonic()
    return True
