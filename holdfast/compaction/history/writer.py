"""The writer of the history, batch by batch, in the form that `schema` describes."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final
from uuid import uuid4

import structlog
from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as f

from holdfast.compaction.errors import OTHER_JOB, CompactionError, DamagedFile, cure_of_own
from holdfast.compaction.history import rows
from holdfast.compaction.history.coverage import Coverage, CoverageGap, Interval, Stretch
from holdfast.compaction.history.covered_files import CoveredFiles
from holdfast.compaction.history.joining import JoinedDay, Joiner, JoinFailed, unfinished_batches
from holdfast.compaction.spark.failures import SPARK_ERRORS, reason
from holdfast.compaction.spark.files import Directory
from holdfast.history import schema
from holdfast.kafka.topic_ids import format_topic_id

_JOB_FILE: Final = "history.json"
_COLUMNS: Final = ", ".join(f"{name} {kind}" for name, kind in schema.COLUMNS.items())
#: Of the rows that two jobs may have written, readers take any, and so does a join.
_IDENTITY: Final = ("log_partition", "offset", "kind")
#: Changes of one share partition side by side, so that a question about it reads a part of the file, and the file is small.
_JOINED_ORDER: Final = ("log_partition", "group_id", "topic_id", "partition", "offset")
#: Of a part of a joined file that a reader takes or leaves as a whole, by the values that it holds.
_JOINED_BLOCK_BYTES: Final = 4 << 20
#: How the directories of batches began in a day, before the files of a batch lay in the day itself.
_FORMER_BATCH: Final = "batch_id="

_log = structlog.get_logger(__name__)


class HistoryWriter:
    """The writer of the history of one query.

    A reader sees the rows of a batch and a day as soon as their file is renamed, and for ever: files are joined, and rows stay in
    their day. A batch that is repeated leaves out what is in the history already, whichever job wrote it.

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
        self._joiner = Joiner(self._root, self._write_joined, self._job, self._run, _today)
        self._move_former_batches()
        self._covered_files = CoveredFiles(self._root)
        covered = self._covered_files.read()
        unfinished = unfinished_batches(self._root.directories())
        self._left = [f"_{batch}" for batch in unfinished if batch.startswith(f"{self._job}-")]
        if covered is None:
            covered = self._find_covered(unfinished)
        self._coverage = Coverage(covered, self._find_unfinished(unfinished, covered))

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

    def write(self, changes: Iterable[tuple[int, bytes]], batch_id: int, read: Mapping[int, Sequence[Stretch]]) -> int:
        """Write what the history does not have of a batch, and the gaps in front of it; returns how many rows were added.

        Args:
            changes: rows of a log partition and its number, as `rows.pack` makes them.
            batch_id: number of the batch.
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
        beside = f"_{name}"
        with rows.DayFiles(lambda day: self._root.create(f"{beside}/{day}/{name}{schema.ENDING}")) as files:
            added = self._add_rows(files, changes, read)
        for day in files.days:
            self._move_files(f"{beside}/{day}", day, name)
        self._coverage.add(read)
        self._covered_files.write(name, self._coverage.covered)
        # Until here the directory beside marks which rows belong to a batch that is not covered.
        for left in (*self._left, beside):
            self._root.remove(left)
        self._left = []
        return added

    def _add_rows(
        self, files: rows.DayFiles, changes: Iterable[tuple[int, bytes]], read: Mapping[int, Sequence[Stretch]]
    ) -> int:
        """Add the gaps in front of a batch, and what the history does not have of it; returns how many rows were added."""
        # Changes and gaps of a log partition are in one file, so that nobody sees the changes after a gap without it.
        gaps = [_gap_row(gap) for gap in self._coverage.gaps(read)]
        added = len(gaps)
        if gaps:
            files.add(rows.make_rows(dict(zip(schema.COLUMNS, zip(*gaps, strict=True), strict=True))))
        known = self._coverage.known(read)
        for log_partition, packed in changes:
            found = rows.without(rows.unpack(packed), [each for each in known if each.log_partition == log_partition])
            files.add(found)
            added += len(found)
        return added

    def join_files(self, is_end: bool) -> bool:
        """Join some small files of a day; returns whether there may be more to join.

        It takes some seconds at most, and may run while a batch is written. What cannot be joined is left as it is.

        Args:
            is_end: the job has written its last batch just now, so every day is looked at again.
        """
        if is_end:
            self._joiner.look_again()
        try:
            found = self._joiner.step()
        except JoinFailed as failure:
            _log.warning("history_join_failed", day=failure.day, why=reason(failure.why))
            return True
        except (*SPARK_ERRORS, OSError) as error:
            self._joiner.give_up()
            _log.warning("history_join_failed", day=None, why=reason(error))
            return False
        if isinstance(found, JoinedDay):
            _log.info("history_day_joined", **found._asdict())
            return True
        return found

    def _write_joined(self, paths: Sequence[str], target: str) -> None:
        """Write the rows of some files, each once, as one file in a new directory."""
        # A property of Spark's that lets it pass over a file must not lose the rows of one.
        reader = self._spark.read.option("ignoreMissingFiles", "false").option("ignoreCorruptFiles", "false")
        found = reader.schema(_COLUMNS).parquet(*paths).select(*schema.COLUMNS)
        # One task joins, so batches have the other processors.
        once = found.coalesce(1).dropDuplicates(list(_IDENTITY)).sortWithinPartitions(*_JOINED_ORDER)
        writer = once.write.option("maxRecordsPerFile", 0).option("parquet.block.size", _JOINED_BLOCK_BYTES)
        writer.parquet(target)

    def _move_files(self, source: str, day: str, batch: str) -> int:
        """Move the files of a batch into a day; returns how many there are."""
        files = [name for name in self._root.files(source) if name.endswith(schema.ENDING)]
        for number, name in enumerate(files):
            self._root.move(f"{source}/{name}", f"{day}/{schema.batch_file(batch, number)}")
        self._joiner.add(day, len(files))
        return len(files)

    def _move_former_batches(self) -> None:
        """Move the files of batches that have a directory of their own in a day into the day itself, once for a history."""
        moved = 0
        for day in self._days():
            for former in self._root.directories(day):
                if former.startswith(_FORMER_BATCH):
                    moved += self._move_files(f"{day}/{former}", day, former.removeprefix(_FORMER_BATCH))
                    self._root.remove(f"{day}/{former}")
        if moved:
            _log.info("history_files_moved", files=moved)

    def _days(self) -> list[str]:
        return [name for name in self._root.directories() if name.startswith(schema.DAY)]

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

    def _find_covered(self, unfinished: Collection[str]) -> dict[int, int]:
        """Return what a history without such files covers, as one of an earlier version: all up to its newest row.

        Args:
            unfinished: batches that are being written; their rows in the history are left out, for some may be missing.
        """
        if not self._days():
            return {}
        batch = f.regexp_extract("_metadata.file_name", f"(.*)-[0-9]+[.]{schema.ENDING.removeprefix('.')}", 1)
        changes = self._spark.read.parquet(self._root.path).where(~batch.isin(list(unfinished)))
        newest = changes.groupBy("log_partition").agg(f.max("offset").alias("offset"))
        return {row.log_partition: row.offset + 1 for row in newest.collect()}

    def _find_unfinished(self, unfinished: Collection[str], covered: Mapping[int, int]) -> list[Interval]:
        """Return the rows, above what is covered, of batches that died on their way into the history.

        Args:
            unfinished: batches that are being written.
            covered: what is covered.
        """
        days = self._days() if unfinished else []
        placed = [
            f"{day}/{name}" for day in days for name in self._root.files(day) if schema.batch_of(name) in unfinished
        ]
        if not placed:
            return []
        changes = self._spark.read.parquet(*(f"{self._root.path}/{path}" for path in placed))
        changes = changes.where(f.col("kind") != schema.GAP).select("log_partition", "offset").distinct()
        # In a run of offsets without a hole, all differ from their rank by the same number.
        rank = f.row_number().over(Window.partitionBy("log_partition").orderBy("offset"))
        runs = changes.withColumn("run", f.col("offset") - rank).groupBy("log_partition", "run")
        found = runs.agg(f.min("offset").alias("first_offset"), f.max("offset").alias("last_offset")).collect()
        return [
            Interval(row.log_partition, row.first_offset, row.last_offset)
            for row in found
            if row.last_offset >= covered.get(row.log_partition, 0)
        ]


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


def _gap_row(gap: CoverageGap) -> tuple[object, ...]:
    return gap.log_partition, gap.end, gap.timestamp_ms, -1, -1, schema.GAP, None, None, -1, None, None
