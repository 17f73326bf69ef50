"""The writer of the history, batch by batch, in the form that `schema` describes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final
from uuid import uuid4

from pyspark.sql import DataFrame, Observation, SparkSession, Window
from pyspark.sql import functions as f

from holdfast.compaction.errors import OTHER_JOB, CompactionError, DamagedFile, cure_of_own
from holdfast.compaction.history import coverage, schema
from holdfast.compaction.history.coverage import Coverage, CoverageGap, Interval, Stretch
from holdfast.compaction.history.covered_files import CoveredFiles
from holdfast.compaction.spark.files import Directory
from holdfast.records.keys import format_topic_id

#: Rows in a file, roughly: a batch of fewer is one file per day.
_ROWS_PER_FILE: Final = 250_000
_JOB_FILE: Final = "history.json"
_DAY: Final = "day="
_COLUMNS: Final = ", ".join(f"{name} {kind}" for name, kind in schema.COLUMNS.items())
_INTERVAL_COLUMNS: Final = "known_partition int, first_offset bigint, last_offset bigint"


class HistoryWriter:
    """The writer of the history of one query.

    Rows are never replaced, so a reader sees those of a batch and a day as soon as they are renamed, and for ever. A batch that is
    repeated leaves out what is in the history already, whichever job wrote it.

    Args:
        own: directory of the query's own files, gone when its checkpoint is.
    """

    def __init__(self, spark: SparkSession, history_dir: str, state_topic_id: bytes, own: Directory) -> None:
        self._spark = spark
        self._root = Directory(spark, f"{history_dir.rstrip('/')}/state_topic_id={format_topic_id(state_topic_id)}")
        self._own = own
        former = self._former_name()
        #: Name of the query, the same after a restart from its checkpoint.
        self._job = former or uuid4().hex
        self._is_named = former is not None
        #: Part of the names of batches that no other run of the job uses.
        self._run = uuid4().hex[:8]
        self._covered_files = CoveredFiles(self._root)
        covered = self._covered_files.read()
        beside = [name for name in self._root.directories() if name.startswith("_") and name != coverage.DIRECTORY]
        self._left = [name for name in beside if name.startswith(f"_{self._job}-")]
        if covered is None:
            covered = self._find_covered(beside)
        self._coverage = Coverage(covered, self._find_unfinished(beside, covered))

    def lags(self, folded: Mapping[int, int], starts: Mapping[int, int]) -> bool:
        """Tell whether the log still holds something that the job has folded and the history lacks.

        Args:
            folded: offset by log partition, exclusive, up to which the job has folded it.
            starts: where each log partition starts.
        """
        return self._coverage.lags(folded, starts)

    def begin(self, starts: Mapping[int, int]) -> None:
        """Write down for each log partition that the history does not cover that it begins where the log starts.

        Args:
            starts: where each log partition starts.

        Raises:
            OSError: the file system refuses.
        """
        if self._coverage.begin_at(starts):
            self._covered_files.write(f"{self._job}-begins-{self._run}", self._coverage.covered)

    def write(self, changes: DataFrame, batch_id: int, row_count: int, read: Mapping[int, Sequence[Stretch]]) -> int:
        """Write what the history does not have of a batch, and the gaps in front of it; returns how many rows were added.

        Args:
            changes: rows of `schema.COLUMNS`.
            batch_id: number of the batch.
            row_count: how many rows there are, roughly.
            read: offsets that the batch read, by log partition.

        Raises:
            CompactionError: another job writes to the directory of this query.
            OSError: the file system refuses.
        """
        if not self._is_named:
            if self._former_name() is not None:
                raise CompactionError(OTHER_JOB.format("compaction.checkpoint.dir"))
            self._own.write_text(_JOB_FILE, json.dumps({"job": self._job}))
            self._is_named = True
        name = f"{self._job}-{batch_id}-{self._run}"
        # A job that runs beside this one may have written what this one has not read.
        self._coverage.raise_to(self._covered_files.read() or {})
        gaps = self._coverage.gaps(read)
        beside = f"_{name}"
        added = Observation()
        if row_count or gaps:
            rows = self._without(changes.select(*schema.COLUMNS), self._coverage.known(read))
            if gaps:
                rows = rows.union(self._spark.createDataFrame([_gap_row(gap) for gap in gaps], _COLUMNS))
            rows = rows.withColumn("day", f.to_date(f.timestamp_millis("timestamp_ms")))
            rows = rows.observe(added, f.count(f.lit(1)).alias("rows"))
            files = max(1, row_count // _ROWS_PER_FILE)
            rows.coalesce(files).write.partitionBy("day").parquet(f"{self._root.path}/{beside}")
            for day in self._root.directories(beside):
                self._root.move(f"{beside}/{day}", f"{day}/batch_id={name}")
        self._coverage.add(read)
        self._covered_files.write(name, self._coverage.covered)
        # Until here the directory beside marks which rows belong to a batch that is not covered.
        for left in (*self._left, beside):
            self._root.remove(left)
        self._left = []
        return int(added.get["rows"]) if row_count or gaps else 0

    def _without(self, rows: DataFrame, known: Sequence[Interval]) -> DataFrame:
        if not known:
            return rows
        intervals = self._spark.createDataFrame(known, _INTERVAL_COLUMNS)
        is_known = (f.col("log_partition") == f.col("known_partition")) & f.col("offset").between(
            f.col("first_offset"), f.col("last_offset")
        )
        return rows.join(f.broadcast(intervals), is_known, "left_anti")

    def _former_name(self) -> str | None:
        """Return the name that the query had before a restart, None if it has not written yet.

        Raises:
            DamagedFile: it cannot be read.
        """
        try:
            text = self._own.read_text(_JOB_FILE)
            return None if text is None else str(json.loads(text)["job"])
        except (ValueError, TypeError, KeyError) as error:
            raise DamagedFile(f"{self._own.path}/{_JOB_FILE}", error, cure_of_own(self._own.path)) from None

    def _find_covered(self, beside: Sequence[str]) -> dict[int, int]:
        """Return what a history without such files covers, as one of an earlier version: all up to its newest row.

        Args:
            beside: directories in which batches are written; their rows in the history are left out, for some may be missing.
        """
        if not any(name.startswith(_DAY) for name in self._root.directories()):
            return {}
        unfinished = [name.removeprefix("_") for name in beside]
        rows = self._spark.read.parquet(self._root.path).where(~f.col("batch_id").isin(unfinished))
        newest = rows.groupBy("log_partition").agg(f.max("offset").alias("offset"))
        return {row.log_partition: row.offset + 1 for row in newest.collect()}

    def _find_unfinished(self, beside: Sequence[str], covered: Mapping[int, int]) -> list[Interval]:
        """Return the rows, above what is covered, of batches that died on their way into the history.

        Args:
            beside: directories in which batches are written.
            covered: what is covered.
        """
        days = [name for name in self._root.directories() if name.startswith(_DAY)] if beside else []
        placed = [
            path
            for name in beside
            for path in (f"{day}/batch_id={name.removeprefix('_')}" for day in days)
            if self._root.exists(path)
        ]
        if not placed:
            return []
        rows = self._spark.read.parquet(*(f"{self._root.path}/{path}" for path in placed))
        rows = rows.where(f.col("kind") != schema.GAP).select("log_partition", "offset").distinct()
        # In a run of offsets without a hole, all differ from their rank by the same number.
        rank = f.row_number().over(Window.partitionBy("log_partition").orderBy("offset"))
        runs = rows.withColumn("run", f.col("offset") - rank).groupBy("log_partition", "run")
        found = runs.agg(f.min("offset").alias("first_offset"), f.max("offset").alias("last_offset")).collect()
        return [
            Interval(row.log_partition, row.first_offset, row.last_offset)
            for row in found
            if row.last_offset >= covered.get(row.log_partition, 0)
        ]


def _gap_row(gap: CoverageGap) -> tuple[object, ...]:
    return gap.log_partition, gap.end, gap.timestamp_ms, -1, -1, schema.GAP, None, None, -1, None, None
