"""Writes the history, batch by batch; `history` says how it lies there."""

from __future__ import annotations

import json
from typing import Final
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from holdfast.daemon.compaction import history
from holdfast.daemon.compaction.files import Directory
from holdfast.records.keys import format_topic_id

#: Rows in a file, roughly: a batch of fewer is one file per day.
_ROWS_PER_FILE: Final = 250_000
_JOB_FILE: Final = "history.json"


class HistoryWriter:
    """Write the history of one query.

    Args:
        own: directory of the query's own files, gone when its checkpoint is.
    """

    def __init__(self, spark: SparkSession, history_dir: str, state_topic_id: bytes, own: Directory) -> None:
        self._root = Directory(spark, f"{history_dir.rstrip('/')}/state_topic_id={format_topic_id(state_topic_id)}")
        text = own.read_text(_JOB_FILE)
        if text is None:
            text = json.dumps({"job": uuid4().hex, "floor": self._find_floor(spark)})
            own.write_text(_JOB_FILE, text)
        told = json.loads(text)
        #: Names the query; the same after a restart from its checkpoint.
        self._job: str = told["job"]
        #: Newest offset by log partition that other jobs had written when this one began from nothing.
        self._floor: dict[int, int] = {int(log_partition): offset for log_partition, offset in told["floor"].items()}

    def write(self, changes: DataFrame, batch_id: int, row_count: int) -> None:
        """Write one batch's rows, or write them again."""
        beside = f"_{self._job}-{batch_id}"
        rows = changes.select(*history.COLUMNS, f.to_date(f.timestamp_millis("timestamp_ms")).alias("day"))
        for log_partition, offset in self._floor.items():
            rows = rows.where((f.col("log_partition") != log_partition) | (f.col("offset") > offset))
        files = max(1, row_count // _ROWS_PER_FILE)
        rows.coalesce(files).write.mode("overwrite").partitionBy("day").parquet(f"{self._root.path}/{beside}")
        # Days ascend, so at any moment the history of a log partition has no hole in front of its newest row.
        for day in self._root.directories(beside):
            self._root.move(f"{beside}/{day}", f"{day}/batch_id={self._job}-{batch_id}")
        self._root.remove(beside)

    def _find_floor(self, spark: SparkSession) -> dict[int, int]:
        if not any(name.startswith("day=") for name in self._root.directories()):
            return {}
        newest = spark.read.parquet(self._root.path).groupBy("log_partition").agg(f.max("offset").alias("offset"))
        return {row.log_partition: row.offset for row in newest.collect()}
