"""What becomes of a folded batch: entries, manifests, history, the group's offsets, in this order.

Every step bears repetition with the same batch: Spark does so after a crash, from the same state and with the same records.
The batch is computed once, by the first step, and kept while the others use it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from operator import attrgetter
from time import perf_counter
from typing import Final

import structlog
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from holdfast.daemon.compaction import history
from holdfast.daemon.compaction.config import CompactionConfig
from holdfast.daemon.compaction.errors import TopicMadeAgain
from holdfast.daemon.compaction.folding_processor import ENTRY, MANIFEST, REPORT, TOTALS
from holdfast.daemon.compaction.history_writer import HistoryWriter
from holdfast.daemon.compaction.java_properties import to_java
from holdfast.daemon.compaction.report import BatchReport, PartitionReport
from holdfast.daemon.compaction.topics import Topics
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
        batch.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            rows = batch.where(f.col("kind").isin(REPORT, MANIFEST)).select("log_partition", "kind", "key", "value")
            found = sorted(rows.collect(), key=attrgetter("log_partition"))
            folded = perf_counter()
            # What was read before this was read from the topic that it still is, for ids are never used again.
            described = self._topics.describe(self._config.state_topic)
            if described is None or described[0] != self._state_topic_id:
                raise TopicMadeAgain(f"Topic {self._config.state_topic} was deleted or made again.")
            outcomes = [json.loads(bytes(row.value)) for row in found if row.kind == REPORT]
            total = {name: sum(outcome.pop(name) for outcome in outcomes) for name in TOTALS}
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
            if self._history_writer is not None and total["history_rows"]:
                changes = batch.where(f.col("kind").isin(*history.KINDS))
                self._history_writer.write(changes, batch_id, total["history_rows"])
            kept = perf_counter()
        finally:
            batch.unpersist()
        if any(report.stopped_reason is not None for report in reports):
            self._on_stopped()
        self._topics.commit({report.log_partition: report.next_offset for report in reports})
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

    def _complete(self, reports: Iterable[PartitionReport]) -> set[int]:
        """Return the log partitions whose fold has come so far that no live share partition can be missing."""
        cut = [report.log_partition for report in reports if report.cut_at is not None]
        if cut:
            ends = self._topics.ends(self._partition_count)
            self._complete_at.update((log_partition, ends[log_partition]) for log_partition in cut)
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
