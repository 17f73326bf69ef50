"""One streaming query over one state topic, from its start to one of its ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from enum import Enum
from threading import Event
from time import monotonic
from typing import Any, Final, NamedTuple

import structlog
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from holdfast.compaction.batch_sizer import BatchSizer
from holdfast.compaction.config import CompactionConfig
from holdfast.compaction.errors import LogReplaced, TopicRecreated
from holdfast.compaction.report import BatchReport, progress_fields
from holdfast.compaction.sink import Sink
from holdfast.compaction.spark.failures import SPARK_ERRORS
from holdfast.compaction.spark.query_files import QueryFiles

_POLL_S: Final = 1

_log = structlog.get_logger(__name__)


class QueryEnd(Enum):
    """Why a query ended that did not fail."""

    #: It has folded the log to the end that the log had when the query began.
    FINISHED = "finished"
    #: The job is to stop.
    STOPPED = "stopped"
    #: Its batches are to have another size, which Spark takes only when a query starts.
    RESIZED = "resized"
    #: The state topic has another id than the one that it folds.
    TOPIC_RECREATED = "topic recreated"
    #: The log does not hold any more what the query has read.
    LOG_REPLACED = "log replaced"


class _BatchRefused(Exception):
    """A batch that is not written because the query is to end; Spark repeats it in the next query."""


class QueryCalls(NamedTuple):
    """The calls that a query makes while it runs."""

    #: Takes the report of each batch, on a thread of Spark's.
    on_report: Callable[[BatchReport], None]
    #: Works for some seconds while Spark may write a batch, and returns whether there is more to do; it is called again and again. Its
    #: argument is whether the last batch was written just now.
    tidy: Callable[[bool], bool]
    #: Is called about once a second.
    on_poll: Callable[[], None]


class EndWhen(NamedTuple):
    """The conditions on which a query ends."""

    #: At the log's end.
    once: bool
    #: When it is set, between two batches.
    stop: Event


class Query:
    """One run of the fold, which writes what comes of it batch by batch.

    Args:
        rows: what the fold gives out.
        sink: writes it.
        batch_sizer: says how many records a batch takes in.
        calls: the calls that it makes meanwhile.
        end: when it ends.
    """

    def __init__(
        self,
        rows: DataFrame,
        config: CompactionConfig,
        files: QueryFiles,
        sink: Sink,
        batch_sizer: BatchSizer,
        calls: QueryCalls,
        end: EndWhen,
    ) -> None:
        self._rows = rows
        self._config = config
        self._files = files
        self._sink = sink
        self._batch_sizer = batch_sizer
        self._on_report, self._tidy, self._on_poll = calls
        self._once, self._stop = end
        self._is_resized = False
        #: What the batch that was begun last failed with.
        self._failure: Exception | None = None
        #: None before Spark has started it.
        self._query: StreamingQuery | None = None

    def run(self) -> QueryEnd:
        """Run the query to its end.

        Raises:
            CompactionError: a batch cannot be written.
            Exception: what a batch failed with, or one of `SPARK_ERRORS`.
        """
        query = self._query = self._start()
        try:
            end = self._await_end(query)
            self._commit()
        except TopicRecreated:
            return QueryEnd.TOPIC_RECREATED
        except LogReplaced as replaced:
            fields = {"log_partition": replaced.log_partition, "offset": replaced.offset, "why": replaced.why}
            _log.error("log_end_lost", **fields)
            return QueryEnd.LOG_REPLACED
        else:
            return end
        finally:
            with suppress(*SPARK_ERRORS):
                query.stop()

    def _start(self) -> StreamingQuery:
        interval = f"{self._config.trigger_interval_ms} milliseconds"
        return (
            self._rows.writeStream.foreachBatch(self._write)
            .option("checkpointLocation", self._files.checkpoint_path)
            .trigger(**{"availableNow": True} if self._once else {"processingTime": interval})
            .start()
        )

    def _write(self, batch: DataFrame, batch_id: int) -> None:
        """Write a batch; Spark calls it on a thread of its own, and repeats the batch later if it raises."""
        try:
            if self._requested_end() is not None:
                raise _BatchRefused
            report = replace(self._sink.write(batch, batch_id), **self._progress_fields())
            self._on_report(report)
            self._is_resized |= self._batch_sizer.adapt(report)
        except Exception as error:
            self._failure = error
            raise

    def _progress_fields(self) -> dict[str, Any]:
        """Return what Spark says of its state store and its source, which is about the batch before this one."""
        progress = None if self._query is None else self._query.lastProgress
        return {} if progress is None else progress_fields(json.loads(progress.json))

    def _commit(self) -> None:
        self._sink.commit(self._files.is_finished)

    def _await_end(self, query: StreamingQuery) -> QueryEnd:
        """Wait until the query ends by itself, or has to end and is between two batches."""
        checked_at = monotonic()
        try:
            while not query.awaitTermination(_POLL_S):
                self._commit()
                self._on_poll()
                if not query.status["isTriggerActive"] and (end := self._requested_end()) is not None:
                    return end
                if monotonic() - checked_at > self._config.topic_check_interval_ms / 1_000:
                    if self._is_topic_recreated():
                        return QueryEnd.TOPIC_RECREATED
                    checked_at = monotonic()
                self._tidy(False)
        except StreamingQueryException as error:
            return self._end_of_failed(error)
        has_more = is_end = True
        while has_more and not self._stop.is_set():
            self._on_poll()
            has_more, is_end = self._tidy(is_end), False
        return QueryEnd.FINISHED

    def _requested_end(self) -> QueryEnd | None:
        if self._stop.is_set():
            return QueryEnd.STOPPED
        return QueryEnd.RESIZED if self._is_resized else None

    def _end_of_failed(self, error: StreamingQueryException) -> QueryEnd:
        """Return how a query ended that failed because it was to end, or because its topic is gone; raise otherwise."""
        if isinstance(self._failure, _BatchRefused):
            return QueryEnd.STOPPED if self._stop.is_set() else QueryEnd.RESIZED
        if self._is_topic_recreated():
            return QueryEnd.TOPIC_RECREATED
        raise (self._failure or error) from None

    def _is_topic_recreated(self) -> bool:
        is_recreated = not self._sink.is_same_topic()
        if is_recreated:
            _log.warning("state_topic_recreated", state_topic=self._config.state_topic)
        return is_recreated
