"""The Spark job: one streaming query after the other over the state topic, until the job is stopped or has reached the log's end.

Another query follows where batches are to have another size, where a record batch of a log partition is damaged, and where the
state topic was recreated: each topic id has a checkpoint of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from threading import Event
from time import monotonic
from typing import Final

import structlog
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from holdfast.compaction.batch_sizer import BatchSizer
from holdfast.compaction.config import CompactionConfig
from holdfast.compaction.errors import CompactionError
from holdfast.compaction.history.writer import HistoryWriter
from holdfast.compaction.presence import BEAT_INTERVAL_S, Presence
from holdfast.compaction.query import EndWhen, Query, QueryCalls, QueryEnd
from holdfast.compaction.report import BatchReport, PartitionReport
from holdfast.compaction.sink import Sink
from holdfast.compaction.spark.failures import SPARK_ERRORS, DamagedLog, find_damage, reason, silence_py4j
from holdfast.compaction.spark.files import Directory
from holdfast.compaction.spark.fold_processor import FoldingProcessor
from holdfast.compaction.spark.log_stream import fold_log, read_log
from holdfast.compaction.spark.query_files import QueryFiles
from holdfast.compaction.spark.session import open_session
from holdfast.compaction.spark.worker_start import run_with_slow_starts
from holdfast.compaction.topics import Topics
from holdfast.kafka.librdkafka import DescribedTopic
from holdfast.kafka.topic_ids import format_topic_id

#: Version of the state that a checkpoint holds; another version has a checkpoint of its own, and reads the log from its start.
_STATE_VERSION: Final = 1

_log = structlog.get_logger(__name__)


def run(
    config: CompactionConfig,
    topics: Topics,
    *,
    once: bool,
    on_progress: Callable[[BatchReport], None] | None = None,
    stop: Event | None = None,
) -> None:
    """Fold the log until `stop` is set, or, with `once`, to its end as it is now.

    A stop takes effect between two batches.
    A log partition with a damaged record batch is left out, and the others are folded from the log's start again.

    Raises:
        CompactionError: the job cannot go on, or with `once` could not read a log partition to its end; the text says why.
    """
    silence_py4j()
    # Spark takes its time to start, and what is pruned before the group is registered would be missing from the history.
    topics.register()
    with open_session(config) as spark:
        _prepare(spark, "compaction.checkpoint.dir", config.checkpoint_dir)
        _prepare(spark, "compaction.history.dir", config.history_dir)
        job = _Job(spark, config, topics, once, on_progress, stop or Event())
        try:
            while not run_with_slow_starts(job.run_query, config.worker_start_attempts_max):
                pass
        finally:
            job.end_presence()
        job.refuse_damage()


def _prepare(spark: SparkSession, setting: str, path: str) -> None:
    if not path:
        return
    try:
        Directory(spark, path).prepare()
    except (Py4JJavaError, PySparkException, OSError) as error:
        why = reason(error)
        remedy = "" if path.isascii() else "; if Java cannot name it, set LC_ALL to a locale of UTF-8 that is here"
        raise CompactionError(f"{setting} is {path}, which cannot be written to: {why}{remedy}.") from error


def _nothing_to_tidy(_: bool) -> bool:
    return False


class _Job:
    """What outlives a query: the topic that the last one folded, log partitions that are left out, and the size of batches."""

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
        self._batch_sizer = BatchSizer(config.offsets_per_trigger_max, config.bytes_per_trigger_max)
        #: Id of the topic that the last query folded; empty before the first.
        self._state_topic_id = b""
        #: None before the first query; and when the next beat is due, by the monotonic clock.
        self._presence: Presence | None = None
        self._beat_at_s = 0.0
        #: By number, the log partitions of that topic that are left out until the job is started again.
        self._damaged: dict[int, PartitionReport] = {}

    def run_query(self) -> bool:
        """Run one query on the state topic that there is; returns whether the job is done, False when another query is to follow.

        Raises:
            CompactionError: the job cannot go on.
            Exception: what a batch failed with, or one of `SPARK_ERRORS`.
        """
        topic = self._wait_topic()
        if topic is None:
            return True
        files = self._files_of(topic)
        is_first = topic.topic_id != self._state_topic_id
        if is_first:
            self._begin(topic, files)
        query = self._make_query(topic, files, self._open_history(topic, files, is_first=is_first))
        try:
            end = query.run()
        except SPARK_ERRORS as error:
            damage = find_damage(error, self._config.state_topic)
            if damage is None or damage.log_partition in self._damaged:
                raise
            self._leave_out(damage, topic.partition_count)
            # Spark has planned a batch with what is damaged, and would repeat it for ever.
            files.remove()
            files.mark_stopped()
            return self._stop.is_set()
        if end is QueryEnd.LOG_REPLACED:
            # What is held came from what was lost, and only from the log's start can it be put right.
            files.remove()
        return end in (QueryEnd.FINISHED, QueryEnd.STOPPED) or self._stop.is_set()

    def refuse_damage(self) -> None:
        """Check that every log partition was read to its end, where the job was to do that and no more.

        Raises:
            CompactionError: some were left out.
        """
        if self._once and self._damaged:
            raise CompactionError(self._damage_text())

    def end_presence(self) -> None:
        """Remove the marks by which other jobs see this one."""
        if self._presence is not None:
            with suppress(*SPARK_ERRORS):
                self._presence.end()

    def _wait_topic(self) -> DescribedTopic | None:
        """Wait until there is a state topic, and register as its reader; None: the job is stopped before there is one."""
        while not self._stop.is_set():
            topic = self._topics.describe(self._config.state_topic)
            if topic is not None:
                self._topics.register()
                return topic
            if self._once:
                raise CompactionError(f"There is no topic {self._config.state_topic}.")
            self._stop.wait(self._config.topic_check_interval_ms / 1_000)
        return None

    def _files_of(self, topic: DescribedTopic) -> QueryFiles:
        name = f"{format_topic_id(topic.topic_id)}/v{_STATE_VERSION}"
        return QueryFiles(Directory(self._spark, f"{self._config.checkpoint_dir.rstrip('/')}/{name}"))

    def _begin(self, topic: DescribedTopic, files: QueryFiles) -> None:
        """Prepare for the first query of this run on a topic."""
        self._state_topic_id = topic.topic_id
        self._damaged.clear()
        if files.is_stopped():
            # Spark has read past the record that stopped the fold, so only from the log's start can it come back to it.
            files.remove()
        for path in files.remove_empty():
            _log.warning("empty_file_removed", path=path)
        if lost := files.lost_path():
            raise CompactionError(
                f"The checkpoint in {files.directory.path} was moved: it names {lost}, where nothing is. Move it back, leave a symbolic "
                "link where it was, or remove it; without it the job reads the log again, and the history is not written twice."
            )
        kept = files.state_partitions()
        if kept not in (None, self._config.state_partitions):
            _log.warning("state_partitions_kept", kept=kept, asked=self._config.state_partitions)
        self.end_presence()
        topic_id = format_topic_id(topic.topic_id)
        places = [f"{self._config.checkpoint_dir.rstrip('/')}/{topic_id}"]
        if self._config.history_dir:
            places.append(f"{self._config.history_dir.rstrip('/')}/state_topic_id={topic_id}")
        self._presence = Presence([Directory(self._spark, place) for place in places])
        self._beat_at_s = 0.0
        self._beat()

    def _beat(self) -> None:
        """Let other jobs see that this one runs, and log which are seen; what keeps it from that ends no job by itself."""
        if self._presence is None or monotonic() < self._beat_at_s:
            return
        self._beat_at_s = monotonic() + BEAT_INTERVAL_S
        with suppress(*SPARK_ERRORS):
            for other in self._presence.beat():
                _log.warning("other_job_found", **other._asdict())

    def _open_history(self, topic: DescribedTopic, files: QueryFiles, *, is_first: bool) -> HistoryWriter | None:
        """Return what writes the history, None where none is kept.

        Before the first query of this run, a fold that is ahead of the history is put back to the log's start.
        """
        if not self._config.history_dir:
            return None
        writer = self._make_writer(topic, files)
        if not is_first:
            return writer
        starts = self._topics.starts(topic.partition_count)
        if writer.lags(files.next_offsets(self._config.state_topic), starts):
            # The history lacks what the log still holds.
            _log.warning("log_refold_started", state_topic=self._config.state_topic)
            files.remove()
            # Until the job has read the records again, none may be pruned that the history lacks.
            self._topics.commit(starts)
            writer = self._make_writer(topic, files)
        writer.begin(starts)
        return writer

    def _make_writer(self, topic: DescribedTopic, files: QueryFiles) -> HistoryWriter:
        return HistoryWriter(self._spark, self._config.history_dir, topic.topic_id, files.directory)

    def _make_query(self, topic: DescribedTopic, files: QueryFiles, writer: HistoryWriter | None) -> Query:
        config = self._config
        sink = Sink(config, self._topics, topic, history_writer=writer, on_stopped=files.mark_stopped)
        if not files.is_stopped():
            # The group's offsets of the last batch, which a job that died may have left to Spark's checkpoint alone.
            self._topics.commit(files.next_offsets(config.state_topic))
        whole = [number for number in range(topic.partition_count) if number not in self._damaged]
        records = read_log(self._spark, config, self._batch_sizer.records, whole if self._damaged else None)
        processor = FoldingProcessor(topic.topic_id, topic.partition_count, writer is not None)
        return Query(
            fold_log(records, processor),
            config,
            files,
            sink,
            self._batch_sizer,
            QueryCalls(self._report, _nothing_to_tidy if writer is None else writer.join_files, self._beat),
            EndWhen(self._once, self._stop),
        )

    def _report(self, report: BatchReport) -> None:
        if self._on_progress is not None:
            self._on_progress(replace(report, partitions=(*report.partitions, *self._damaged.values())))

    def _leave_out(self, damage: DamagedLog, partition_count: int) -> None:
        """Leave a log partition out of all queries to come.

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
        _log.error("damaged_batch_found", log_partition=number, offset=damage.offset, why=damage.why)

    def _damage_text(self) -> str:
        places = (
            f"log partition {number} ({report.stopped_reason})" for number, report in sorted(self._damaged.items())
        )
        return f"The job cannot read {', '.join(places)}; let another broker lead each one, or restore the topic, and run the job again."
