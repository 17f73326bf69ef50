"""The log as a stream of Spark's: read from Kafka with the columns that the fold needs, and folded by log partition."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from holdfast.compaction.config import CompactionConfig
from holdfast.compaction.spark.fold_processor import INPUT_COLUMNS, OUTPUT, FoldingProcessor
from holdfast.kafka.java_properties import to_java
from holdfast.records.log.header import HEADER_NAME

FETCH_WAIT_MS: Final = 10
POLL_RECORDS: Final = 10_000


def read_log(
    spark: SparkSession, config: CompactionConfig, records_per_batch: int, log_partitions: Sequence[int] | None = None
) -> DataFrame:
    """Return the stream of all records of the state topic, or of some log partitions, with the columns that the fold needs."""
    options = {f"kafka.{name}": value for name, value in to_java(config.kafka_properties).items()} | {
        "kafka.bootstrap.servers": config.bootstrap_servers,
        "kafka.isolation.level": "read_uncommitted",
        # Spark looks up the end of the log by a consumer that may be waiting in a fetch, for this long at most.
        "kafka.fetch.max.wait.ms": str(FETCH_WAIT_MS),
        "kafka.max.poll.records": str(POLL_RECORDS),
        "kafka.enable.metrics.push": "false",
        **(
            {"subscribe": config.state_topic}
            if log_partitions is None
            else {"assign": json.dumps({config.state_topic: list(log_partitions)})}
        ),
        "startingOffsets": "earliest",
        # The log is pruned as a matter of course; the fold notices by itself where it is.
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
    """Return what the fold gives out for the records, in rows of `fold_processor.OUTPUT`."""
    return records.groupBy("log_partition").transformWithStateInPandas(
        statefulProcessor=processor, outputStructType=OUTPUT, outputMode="Append", timeMode="None"
    )
