"""What becomes of a folded batch: entries, manifests, history, in this order; and then the group's offsets.

Every step bears repetition with the same batch: Spark does so after a crash, from the same state and with the same records.
The group's offsets come only when Spark has the batch behind it, for the log may be cut up to them.
The batch is computed once, by the first step, and kept while the others use it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from operator import attrgetter
from threading import Lock
from time import perf_counter
from typing import Final

import structlog
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from holdfast.compaction.config import CompactionConfig
from holdfast.compaction.errors import TopicMadeAgain
from holdfast.compaction.history import schema
from holdfast.compaction.history.coverage import Stretch
from holdfast.compaction.history.writer import HistoryWriter
from holdfast.compaction.report import BatchReport, PartitionReport
from holdfast.compaction.spark.fold_processor import ENTRY, MANIFEST, REPORT, STRETCHES, TOTALS
from holdfast.compaction.topics import Topics
from holdfast.kafka.java_properties import to_java
from holdfast.records.keys import format_topic_id

#: Above any record of the snapshot topic; the topic's own limit is what counts.
_REQUEST_BYTES_MAX: Final = 64 << 20

_log = structlog.get_logger(__name__)


class Sink:
    """Write what comes of each batch of one query.

    Args:
        state_topic_id: of the topic that is folded.
        partition_count: its number of partitions.
        history_writer: None: no history is kept.
        on_stopped: called with the batch's reports when the fold of a log partition stands still.
    """

    def __init__(
        self,
        config: CompactionConfig,
        topics: Topics,
        *,
        state_topic_id: bytes,
        partition_count: int,
        history_writer: HistoryWriter | None,
        on_stopped: Callable[[], None],
    ) -> None:
        self._config = config
        self._topics = topics
        self._state_topic_id = state_topic_id
        self._partition_count = partition_count
        #: End of each log partition, asked after the offset from which it is folded was the log's start. Before a fold has
        #: come so far, a share partition may be missing from it whose newest snapshot lies behind.
        self._complete_at = topics.ends(partition_count)
        #: Log partitions with updates whose base is not in the log.
        self._incomplete: set[int] = set()
        self._next_offsets: dict[int, int] = {}
        #: Number of a batch that is written, and the offsets that the group commits when Spark will not repeat it.
        self._pending: tuple[int, dict[int, int]] | None = None
        self._settling = Lock()
        self._history_writer = history_writer
        self._on_stopped = on_stopped
        self._kafka_options = {f"kafka.{name}": value for name, value in to_java(config.kafka_properties).items()} | {
            "kafka.bootstrap.servers": config.bootstrap_servers,
            "kafka.max.request.size": str(_REQUEST_BYTES_MAX),
            "topic": config.snapshot_topic,
        }

    def write(self, batch: DataFrame, batch_id: int) -> BatchReport:
        """Write one batch, and report it.

        Raises:
            TopicMadeAgain: the state topic is another one by now; nothing was written.
            CompactionError: Kafka refuses something.
        """
        began = perf_counter()
        # Spark begins a batch when it has those before behind it.
        self.settle(lambda pending: pending < batch_id)
        batch.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            rows = batch.where(f.col("kind").isin(REPORT, MANIFEST)).select("log_partition", "kind", "key", "value")
            found = sorted(rows.collect(), key=attrgetter("log_partition"))
            folded = perf_counter()
            # What was read before this was read from the topic that it still is, for ids are never used again.
            self._check_topic()
            outcomes = [json.loads(bytes(row.value)) for row in found if row.kind == REPORT]
            total = {name: sum(outcome.pop(name) for outcome in outcomes) for name in TOTALS}
            read = {
                outcome["log_partition"]: [Stretch(*each) for each in outcome.pop(STRETCHES)] for outcome in outcomes
            }
            stretches = {log_partition: found for log_partition, found in read.items() if found}
            reports = tuple(PartitionReport(**outcome) for outcome in outcomes)
            if total["entries"]:
                entries = batch.where(f.col("kind") == ENTRY)
                entries = entries.select(f.col("log_partition").alias("partition"), "key", "value")
                entries.write.format("kafka").options(**self._kafka_options).save()
            complete = self._complete(reports)
            manifests = [
                (row.log_partition, bytes(row.key), bytes(row.value))
                for row in found
                if row.kind == MANIFEST and row.log_partition in complete
            ]
            self._topics.write(manifests)
            written = perf_counter()
            if self._history_writer is not None and stretches:
                changes = batch.where(f.col("kind").isin(*schema.KINDS))
                rows = total["history_rows"]
                total["history_rows"] += self._history_writer.write(changes, batch_id, rows, stretches)
            kept = perf_counter()
        finally:
            batch.unpersist()
        if any(report.stopped_reason is not None for report in reports):
            self._on_stopped()
        with self._settling:
            self._pending = batch_id, {report.log_partition: report.next_offset for report in reports}
        ends = self._topics.ends(self._partition_count)
        for report in reports:
            self._next_offsets[report.log_partition] = report.next_offset
        return BatchReport(
            batch_id=batch_id,
            state_topic_id=format_topic_id(self._state_topic_id),
            duration_ms=(perf_counter() - began) * 1_000,
            fold_ms=(folded - began) * 1_000,
            snapshots_ms=(written - folded) * 1_000,
            history_ms=(kept - written) * 1_000,
            records=sum(report.records for report in reports),
            bytes_in=total["bytes_in"],
            bytes_out=total["bytes_out"],
            entries=total["entries"],
            manifests=len(manifests),
            history_rows=total["history_rows"] if self._history_writer is not None else 0,
            lag={
                log_partition: max(0, end - self._next_offsets[log_partition])
                for log_partition, end in ends.items()
                if log_partition in self._next_offsets
            },
            partitions=reports,
        )

    def settle(self, is_behind: Callable[[int], bool]) -> None:
        """Commit the group's offsets of the batch that was written last, if Spark has it behind it.

        Args:
            is_behind: tells by a batch's number whether Spark will not repeat it.

        Raises:
            TopicMadeAgain: the state topic is another one by now; nothing was committed.
            CompactionError: Kafka refuses.
        """
        with self._settling:
            if self._pending is None or not is_behind(self._pending[0]):
                return
            self._check_topic()
            self._topics.commit(self._pending[1])
            self._pending = None

    def _check_topic(self) -> None:
        described = self._topics.describe(self._config.state_topic)
        if described is None or described[0] != self._state_topic_id:
            raise TopicMadeAgain(f"Topic {self._config.state_topic} was deleted or made again.")

    def _complete(self, reports: Iterable[PartitionReport]) -> set[int]:
        """Return the log partitions whose fold has come so far that no live share partition can be missing."""
        begun = [report.log_partition for report in reports if report.is_new or report.cut_at is not None]
        if begun:
            ends = self._topics.ends(self._partition_count)
            self._complete_at.update((log_partition, ends[log_partition]) for log_partition in begun)
        complete = set()
        for report in reports:
            if report.next_offset >= self._complete_at[report.log_partition]:
                complete.add(report.log_partition)
                if report.waiting_count and report.log_partition not in self._incomplete:
                    self._incomplete.add(report.log_partition)
                    _log.error(
                        "log_incomplete",
                        log_partition=report.log_partition,
                        next_offset=report.next_offset,
                        share_partitions_without_base=report.waiting_count,
                    )
        return complete
