"""The writer of a folded batch: entries, manifests, history, in this order; and then the group's offsets.

Every step bears repetition with the same batch: Spark does so after a crash, from the same state and with the same records.
The group's offsets are committed only when Spark has finished the batch, for the log may be pruned up to them.
The batch is computed once, by the first step, and kept while the others use it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import attrgetter
from threading import Lock
from time import perf_counter
from typing import Final, NamedTuple

import structlog
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from holdfast.compaction.config import CompactionConfig
from holdfast.compaction.errors import LogReplaced, TopicRecreated
from holdfast.compaction.history.coverage import Stretch
from holdfast.compaction.history.writer import HistoryWriter
from holdfast.compaction.report import BatchReport, PartitionReport
from holdfast.compaction.spark.fold_processor import (
    ENTRY,
    HISTORY,
    LAST_READ,
    MANIFEST,
    REPORT,
    STRETCHES,
    TOTALS,
    decode_last_read,
)
from holdfast.compaction.topics import Topics
from holdfast.kafka.java_properties import to_java
from holdfast.kafka.librdkafka import DescribedTopic
from holdfast.kafka.topic_ids import format_topic_id
from holdfast.records.share.snapshot_store.last_read import LastRead

#: Above any record of the snapshot topic; the topic's own limit is what counts.
_REQUEST_BYTES_MAX: Final = 64 << 20

_log = structlog.get_logger(__name__)


class _Folded(NamedTuple):
    """What the driver learns of a batch when it is folded; entries and history stay with Spark."""

    reports: tuple[PartitionReport, ...]
    #: Log partition, key and value of each.
    manifests: Sequence[tuple[int, bytes, bytes]]
    #: Sums over all log partitions, by the names of `TOTALS`.
    totals: Mapping[str, int]
    #: Offsets that the batch read, by log partition, without those that had none to fold.
    stretches: Mapping[int, Sequence[Stretch]]
    #: What the log must still hold, by log partition that was folded on from an earlier batch.
    last_read: Mapping[int, LastRead]


class _Timings:
    """How long the steps of a batch take, in ms."""

    def __init__(self) -> None:
        self._began = perf_counter()
        self._steps: dict[str, float] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Measure a block."""
        began = perf_counter()
        yield
        self._steps[name] = (perf_counter() - began) * 1_000

    def step_ms(self, name: str) -> float:
        """Return how long a step took."""
        return self._steps[name]

    def total_ms(self) -> float:
        """Return how long the batch takes so far."""
        return (perf_counter() - self._began) * 1_000


class Sink:
    """The writer of all batches of one query.

    Args:
        topic: the state topic that is folded.
        history_writer: None: no history is kept.
        on_stopped: called after a batch in which the fold of a log partition has stopped.
    """

    def __init__(
        self,
        config: CompactionConfig,
        topics: Topics,
        topic: DescribedTopic,
        *,
        history_writer: HistoryWriter | None,
        on_stopped: Callable[[], None],
    ) -> None:
        self._config = config
        self._topics = topics
        self._topic = topic
        #: End of each log partition, looked up after the offset from which it is folded was the log's start. Before a fold has
        #: come so far, a share partition may be missing from it whose newest snapshot lies behind.
        self._complete_at = topics.ends(topic.partition_count)
        #: Log partitions with updates whose base snapshot is not in the log.
        self._incomplete: set[int] = set()
        self._next_offsets: dict[int, int] = {}
        #: Number of a batch that is written, and the offsets that the group commits when Spark will not repeat it.
        self._uncommitted: tuple[int, dict[int, int]] | None = None
        #: Held while these are committed, which the job's thread and the one that writes batches do.
        self._commit_lock = Lock()
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
            TopicRecreated: the state topic has another id by now; nothing was written.
            LogReplaced: the log does not hold any more what earlier batches have read; nothing was written.
            CompactionError: Kafka refuses something.
        """
        timings = _Timings()
        # Spark begins a batch when it has finished those before.
        self.commit(lambda earlier_id: earlier_id < batch_id)
        batch.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            with timings.step("fold"):
                folded = _fold(batch)
            # What was read before this check was read from the topic that it still is, for ids are never used again.
            self._check_topic()
            self._check_log(folded.last_read)
            with timings.step("snapshots"):
                manifest_count = self._write_snapshots(batch, folded)
            with timings.step("history"):
                history_rows = self._write_history(batch, batch_id, folded)
        finally:
            batch.unpersist()
        if any(report.stopped_reason is not None for report in folded.reports):
            self._on_stopped()
        next_offsets = {report.log_partition: report.next_offset for report in folded.reports}
        with self._commit_lock:
            self._uncommitted = batch_id, next_offsets
        self._next_offsets |= next_offsets
        return self._report(batch_id, folded, manifest_count, history_rows, timings)

    def commit(self, is_finished: Callable[[int], bool]) -> None:
        """Commit the group's offsets of the batch that was written last, if Spark has finished it.

        Args:
            is_finished: tells by a batch's number whether Spark will not repeat it.

        Raises:
            TopicRecreated: the state topic has another id by now; nothing was committed.
            CompactionError: Kafka refuses.
        """
        with self._commit_lock:
            if self._uncommitted is None or not is_finished(self._uncommitted[0]):
                return
            self._check_topic()
            self._topics.commit(self._uncommitted[1])
            self._uncommitted = None

    def is_same_topic(self) -> bool:
        """Tell whether the state topic still has the id that is folded.

        Raises:
            CompactionError: Kafka does not say.
        """
        described = self._topics.describe(self._config.state_topic)
        return described is not None and described.topic_id == self._topic.topic_id

    def _check_topic(self) -> None:
        if not self.is_same_topic():
            raise TopicRecreated(f"Topic {self._config.state_topic} was deleted or recreated.")

    def _check_log(self, last_read: Mapping[int, LastRead]) -> None:
        """Check that the log still holds what earlier batches have read.

        This comes after the batch was read: what the log holds now, it held then.
        """
        places = [(number, offset) for number, each in last_read.items() for offset in each.offsets()]
        if not places:
            return
        found = self._topics.read_records(places)
        starts = self._topics.starts(self._topic.partition_count)
        for number, each in last_read.items():
            if refusal := each.refusal(starts[number], found[number]):
                raise LogReplaced(number, each.offset, refusal)

    def _write_snapshots(self, batch: DataFrame, folded: _Folded) -> int:
        """Write entries and, when they are acknowledged, manifests; returns how many manifests there are."""
        if folded.totals["entries"]:
            entries = batch.where(f.col("kind") == ENTRY)
            entries = entries.select(f.col("log_partition").alias("partition"), "key", "value")
            entries.write.format("kafka").options(**self._kafka_options).save()
        complete = self._find_complete(folded.reports)
        manifests = [manifest for manifest in folded.manifests if manifest[0] in complete]
        self._topics.write(manifests)
        return len(manifests)

    def _write_history(self, batch: DataFrame, batch_id: int, folded: _Folded) -> int:
        """Write the history, if one is kept; returns how many rows were added, those of gaps included."""
        if self._history_writer is None:
            return 0
        if not folded.stretches:
            return 0
        return self._history_writer.write(_packed_rows(batch, folded), batch_id, folded.stretches)

    def _report(
        self, batch_id: int, folded: _Folded, manifest_count: int, history_rows: int, timings: _Timings
    ) -> BatchReport:
        ends = self._topics.ends(self._topic.partition_count)
        return BatchReport(
            batch_id=batch_id,
            state_topic_id=format_topic_id(self._topic.topic_id),
            duration_ms=timings.total_ms(),
            fold_ms=timings.step_ms("fold"),
            snapshots_ms=timings.step_ms("snapshots"),
            history_ms=timings.step_ms("history"),
            records=sum(report.records for report in folded.reports),
            bytes_in=folded.totals["bytes_in"],
            bytes_out=folded.totals["bytes_out"],
            entries=folded.totals["entries"],
            manifests=manifest_count,
            history_rows=history_rows,
            lag={
                log_partition: max(0, end - self._next_offsets[log_partition])
                for log_partition, end in ends.items()
                if log_partition in self._next_offsets
            },
            partitions=folded.reports,
        )

    def _find_complete(self, reports: Iterable[PartitionReport]) -> set[int]:
        """Return the log partitions whose fold has come so far that no live share partition can be missing."""
        begun = [report.log_partition for report in reports if report.is_new or report.cut_at is not None]
        if begun:
            ends = self._topics.ends(self._topic.partition_count)
            self._complete_at.update((log_partition, ends[log_partition]) for log_partition in begun)
        complete = {report.log_partition for report in reports if self._is_complete(report)}
        for report in reports:
            if report.log_partition in complete and report.waiting_count:
                self._warn_incomplete(report)
        return complete

    def _is_complete(self, report: PartitionReport) -> bool:
        return report.next_offset >= self._complete_at[report.log_partition]

    def _warn_incomplete(self, report: PartitionReport) -> None:
        """Log, once for each log partition, that share partitions have updates only, though the fold has passed all snapshots."""
        if report.log_partition in self._incomplete:
            return
        self._incomplete.add(report.log_partition)
        _log.error(
            "incomplete_log_found",
            log_partition=report.log_partition,
            next_offset=report.next_offset,
            share_partitions_without_base=report.waiting_count,
        )


def _packed_rows(batch: DataFrame, folded: _Folded) -> Iterator[tuple[int, bytes]]:
    """Yield the rows of the history of each log partition, packed, and hold those of one Spark partition at a time."""
    if folded.totals["history_rows"]:
        packed = batch.where(f.col("kind") == HISTORY).select("log_partition", "value")
        for row in packed.toLocalIterator():
            yield row.log_partition, bytes(row.value)


def _fold(batch: DataFrame) -> _Folded:
    """Make Spark fold a batch, and return what the driver needs of it."""
    rows = batch.where(f.col("kind").isin(REPORT, MANIFEST)).select("log_partition", "kind", "key", "value")
    found = sorted(rows.collect(), key=attrgetter("log_partition"))
    outcomes = [json.loads(bytes(row.value)) for row in found if row.kind == REPORT]
    totals = {name: sum(outcome.pop(name) for outcome in outcomes) for name in TOTALS}
    read = {outcome["log_partition"]: [Stretch(*each) for each in outcome.pop(STRETCHES)] for outcome in outcomes}
    last_read = {outcome["log_partition"]: outcome.pop(LAST_READ) for outcome in outcomes}
    return _Folded(
        reports=tuple(PartitionReport(**outcome) for outcome in outcomes),
        manifests=[(row.log_partition, bytes(row.key), bytes(row.value)) for row in found if row.kind == MANIFEST],
        totals=totals,
        stretches={log_partition: stretches for log_partition, stretches in read.items() if stretches},
        last_read={number: decode_last_read(each) for number, each in last_read.items() if each is not None},
    )
