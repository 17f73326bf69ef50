"""The Spark job: one streaming query over the state topic, begun anew when that topic is made again."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Any, Final

import structlog
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from holdfast.compaction.batch_sizer import Pace
from holdfast.compaction.config import CompactionConfig
from holdfast.compaction.errors import CompactionError, TopicMadeAgain
from holdfast.compaction.history.writer import HistoryWriter
from holdfast.compaction.report import BatchReport, PartitionReport
from holdfast.compaction.sink import Sink
from holdfast.compaction.spark.failures import (
    SPARK_ERRORS,
    DamagedLog,
    explain,
    find_damage,
    reason,
    silence_accumulators,
    silence_py4j,
)
from holdfast.compaction.spark.files import Directory
from holdfast.compaction.spark.fold_processor import INPUT_COLUMNS, OUTPUT, FoldingProcessor
from holdfast.compaction.spark.query_log import QUERY, QueryLog
from holdfast.compaction.spark.worker_start import run_with_slow_starts
from holdfast.compaction.topics import Topics
from holdfast.jars.cache import spark_kafka_jars
from holdfast.kafka.java_properties import to_java
from holdfast.records.header import HEADER_NAME
from holdfast.records.keys import format_topic_id

#: Of what the job keeps; another one begins anew.
_STATE_VERSION: Final = 1
#: Stands in a query's directory when the fold of a log partition stands still.
_STOPPED_FILE: Final = "stopped"
#: Said once.
_HISTORY_LAGS: Final = "the history lacks what the log still holds, so the job reads the log again from its start"
_POLL_S: Final = 1
_FETCH_WAIT_MS: Final = 10
_LOG4J: Final = Path(__file__).with_name("log4j2.properties")
_POLL_RECORDS: Final = 10_000

_log = structlog.get_logger(__name__)


class _Ending(Exception):
    """A batch that would begin when the query is to end does not."""


def run(
    config: CompactionConfig,
    topics: Topics,
    *,
    once: bool,
    on_progress: Callable[[BatchReport], None] | None = None,
    stop: Event | None = None,
) -> None:
    """Fold the log until told to stop, or, with `once`, to its end as it is now.

    A stop takes effect between two batches.
    A log partition with a damaged record batch stands still, and the others are folded from the log's start again.

    Raises:
        CompactionError: the job cannot go on, or with `once` could not read a log partition to its end; the text says why.
    """
    silence_py4j()
    # Spark takes its time to start, and what was cut meanwhile would be missing from the history.
    topics.register()
    with _session(config) as spark:
        _prepare(spark, "compaction.checkpoint.dir", config.checkpoint_dir)
        _prepare(spark, "compaction.history.dir", config.history_dir)
        job = _Job(spark, config, topics, once, on_progress, stop or Event())
        while not run_with_slow_starts(job.run_query, config.worker_start_attempts_max):
            pass
        job.refuse_damage()


@contextmanager
def _session(config: CompactionConfig) -> Iterator[SparkSession]:
    """Give a session that ends with the block.

    Raises:
        CompactionError: Spark fails; the text says why in a line.
    """
    java = None
    try:
        spark = make_session(config)
        gateway: Any = spark.sparkContext._gateway
        java = getattr(gateway, "proc", None)
        silence_accumulators(spark)
        try:
            yield spark
        finally:
            # Where Java is gone already there is nothing left to end, and what went wrong first is to be told.
            with suppress(*SPARK_ERRORS):
                spark.stop()
    except SPARK_ERRORS as error:
        raise explain(error, java) from error


def _prepare(spark: SparkSession, setting: str, path: str) -> None:
    if not path:
        return
    try:
        Directory(spark, path).prepare()
    except (Py4JJavaError, OSError) as error:
        raise CompactionError(f"{setting} is {path}, which cannot be written to: {reason(error)}.") from error


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
            # A batch counts as a whole, pauses within it do not.
            properties["spark.driver.extraJavaOptions"] = "-XX:+UseParallelGC"
            # Spark puts these in front of the former, which a user may set.
            properties["spark.driver.defaultJavaOptions"] = f"-Dlog4j2.configurationFile={_LOG4J.as_uri()}"
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


def read_log(
    spark: SparkSession, config: CompactionConfig, records_per_batch: int, log_partitions: Sequence[int] | None = None
) -> DataFrame:
    """Return the stream of all records of the state topic, or of some log partitions, with the columns that the fold needs."""
    options = {f"kafka.{name}": value for name, value in to_java(config.kafka_properties).items()} | {
        "kafka.bootstrap.servers": config.bootstrap_servers,
        "kafka.isolation.level": "read_uncommitted",
        # A consumer is asked for the end of the log before it reads, and would wait there this long before it goes back.
        "kafka.fetch.max.wait.ms": str(_FETCH_WAIT_MS),
        "kafka.max.poll.records": str(_POLL_RECORDS),
        "kafka.enable.metrics.push": "false",
        **(
            {"subscribe": config.state_topic}
            if log_partitions is None
            else {"assign": json.dumps({config.state_topic: list(log_partitions)})}
        ),
        "startingOffsets": "earliest",
        # The log is cut at its start as a matter of course; the fold sees each cut by itself.
        "failOnDataLoss": "false",
        "includeHeaders": "true",
        "maxOffsetsPerTrigger": str(records_per_batch),
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


class _Job:
    """Run one query after the other, until all is done."""

    def __init__(
        self,
        spark: SparkSession,
        config: CompactionConfig,
        topics: Topics,
        once: bool,
        on_progress: Callable[[BatchReport], None] | None,
        stop: Event,
    ) -> None:
        self._spark = spark
        self._config = config
        self._topics = topics
        self._once = once
        self._on_progress = on_progress
        self._stop = stop
        self._pace = Pace(config.offsets_per_trigger_max, config.bytes_per_trigger_max)
        #: Of the topic that the last query read.
        self._state_topic_id = b""
        #: By log partition of that topic; such a one stands still until the job is started again.
        self._damaged: dict[int, PartitionReport] = {}

    def run_query(self) -> bool:
        """Fold the state topic that there is; returns whether all is done, False when another query is to go on."""
        topic = self._find_topic()
        if topic is None:
            return True
        state_topic_id, partition_count = topic
        config = self._config
        name = f"{format_topic_id(state_topic_id)}/v{_STATE_VERSION}"
        own = Directory(self._spark, f"{config.checkpoint_dir.rstrip('/')}/{name}")
        query_log = QueryLog(own)
        is_first = state_topic_id != self._state_topic_id
        if is_first and own.exists(_STOPPED_FILE):
            # Spark has read past the record that stopped the fold, so only from the log's start can it come back to it.
            own.remove()
        if is_first:
            self._damaged.clear()
        self._state_topic_id = state_topic_id
        writer = HistoryWriter(self._spark, config.history_dir, state_topic_id, own) if config.history_dir else None
        if is_first and writer is not None:
            starts = self._topics.starts(partition_count)
            if writer.lags(query_log.next_offsets(config.state_topic), starts):
                _log.warning(_HISTORY_LAGS)
                own.remove()
                # Until it has read them again, nobody may cut the records off that the history lacks.
                self._topics.commit(starts)
                writer = HistoryWriter(self._spark, config.history_dir, state_topic_id, own)
            writer.begin(starts)
        sink = Sink(
            config,
            self._topics,
            state_topic_id=state_topic_id,
            partition_count=partition_count,
            history_writer=writer,
            on_stopped=lambda: None if own.exists(_STOPPED_FILE) else own.write_text(_STOPPED_FILE, ""),
        )
        if not own.exists(_STOPPED_FILE):
            # A job that died may have left its last batch to Spark alone.
            self._topics.commit(query_log.next_offsets(config.state_topic))
        is_paced_anew = Event()
        failures: list[Exception] = []

        def write(batch: DataFrame, batch_id: int) -> None:
            try:
                if self._stop.is_set() or is_paced_anew.is_set():
                    raise _Ending
                report = sink.write(batch, batch_id)
                report = replace(report, partitions=(*report.partitions, *self._damaged.values()))
                if self._on_progress is not None:
                    self._on_progress(report)
                if self._pace.adapt(report):
                    is_paced_anew.set()
            except Exception as error:
                failures.append(error)
                raise

        processor = FoldingProcessor(state_topic_id, partition_count, writer is not None)
        whole = [number for number in range(partition_count) if number not in self._damaged] if self._damaged else None
        interval = f"{config.trigger_interval_ms} milliseconds"
        query = (
            fold_log(read_log(self._spark, config, self._pace.records, whole), processor)
            .writeStream.foreachBatch(write)
            .option("checkpointLocation", f"{own.path}/{QUERY}")
            .trigger(**{"availableNow": True} if self._once else {"processingTime": interval})
            .start()
        )

        def settle() -> None:
            sink.settle(query_log.is_behind)

        try:
            is_all_done = self._await_end(query, is_paced_anew, settle, failures)
            settle()
            return is_all_done
        except TopicMadeAgain:
            return self._stop.is_set()
        except SPARK_ERRORS as error:
            damage = find_damage(error, config.state_topic)
            if damage is None or damage.log_partition in self._damaged:
                raise
            query.stop()
            self._leave_out(damage, partition_count)
            # Spark has planned a batch with what is damaged, and would repeat it for ever.
            own.remove()
            own.write_text(_STOPPED_FILE, "")
            return self._stop.is_set()
        finally:
            with suppress(*SPARK_ERRORS):
                query.stop()

    def refuse_damage(self) -> None:
        """Tell that log partitions were not read to their end, where the job was to do that and no more.

        Raises:
            CompactionError: there are such.
        """
        if self._once and self._damaged:
            raise CompactionError(self._damage_text())

    def _leave_out(self, damage: DamagedLog, partition_count: int) -> None:
        """Let a log partition stand still.

        Raises:
            CompactionError: no other is left.
        """
        number = damage.log_partition
        where = "" if damage.offset is None else f" at offset {damage.offset}"
        self._damaged[number] = PartitionReport(
            log_partition=number,
            next_offset=damage.offset or 0,
            covered_offset=-1,
            live_count=0,
            waiting_count=0,
            records=0,
            void_records=0,
            skipped_records=0,
            stopped_reason=f"the record batch{where} is damaged: {damage.why}",
            stopped_offset=damage.offset,
        )
        if len(self._damaged) == partition_count:
            raise CompactionError(self._damage_text())
        _log.error(
            "a log partition stands still for the job, because a record batch is damaged",
            log_partition=number,
            offset=damage.offset,
            why=damage.why,
        )

    def _damage_text(self) -> str:
        places = (
            f"log partition {number} ({report.stopped_reason})" for number, report in sorted(self._damaged.items())
        )
        return f"The job cannot read {', '.join(places)}; let another broker lead each one, or restore the topic, and run the job again."

    def _find_topic(self) -> tuple[bytes, int] | None:
        """Return id and number of partitions of the state topic, None when the job is stopped before there is one."""
        while not self._stop.is_set():
            topic = self._topics.describe(self._config.state_topic)
            if topic is not None:
                self._topics.register()
                return topic
            if self._once:
                raise CompactionError(f"There is no topic {self._config.state_topic}.")
            self._stop.wait(self._config.topic_check_interval_ms / 1_000)
        return None

    def _is_same_topic(self) -> bool:
        topic = self._topics.describe(self._config.state_topic)
        is_same = topic is not None and topic[0] == self._state_topic_id
        if not is_same:
            _log.warning("state_topic_made_again", state_topic=self._config.state_topic)
        return is_same

    def _await_end(
        self, query: StreamingQuery, is_paced_anew: Event, settle: Callable[[], None], failures: list[Exception]
    ) -> bool:
        """Wait until the query ends, or is to end and is between two batches; returns whether all is done.

        What batches failed with stands in `failures`, oldest first.

        Raises:
            CompactionError: the query failed.
            Exception: what a batch failed with.
        """
        asked_at = monotonic()
        try:
            while not query.awaitTermination(_POLL_S):
                settle()
                if not query.status["isTriggerActive"] and (self._stop.is_set() or is_paced_anew.is_set()):
                    return self._stop.is_set()
                if monotonic() - asked_at > self._config.topic_check_interval_ms / 1_000:
                    if not self._is_same_topic():
                        return False
                    asked_at = monotonic()
        except StreamingQueryException as error:
            if not (failures and isinstance(failures[-1], _Ending)) and self._is_same_topic():
                raise (failures[-1] if failures else error) from None
            return self._stop.is_set()
        return True
