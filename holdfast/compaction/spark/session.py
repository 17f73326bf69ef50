"""The Spark session that the job runs in: what it needs of Spark, and how it ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from holdfast.compaction.config import CompactionConfig
from holdfast.compaction.machine import local_places, name_user, temporary_directory
from holdfast.compaction.spark.failures import SPARK_ERRORS, JavaEnd, explain, silence_accumulators
from holdfast.compaction.spark.home import use_home_without_zips
from holdfast.compaction.spark.java_process import start_java
from holdfast.jars.cache import spark_kafka_jars
from holdfast.jars.java import java_environment

_LOG4J: Final = Path(__file__).with_name("log4j2.properties")
#: Of the JVM that this process starts. Java's second compiler takes more of the processors than what it compiles gives back.
_JAVA_OPTIONS: Final = f"-XX:TieredStopAtLevel=1 -Dlog4j2.configurationFile={_LOG4J.as_uri()}"
#: The module that forks Python workers; it is imported there alone.
_DAEMON: Final = "holdfast.compaction.spark.worker_daemon"


@contextmanager
def open_session(config: CompactionConfig) -> Iterator[SparkSession]:
    """Give a session that ends with the block.

    Raises:
        CompactionError: Spark fails; the text says why in a line.
    """
    end = JavaEnd(None, None, local_places(config.directories, config.spark_properties))
    try:
        properties = _prepare(config)
        end = replace(end, said=start_java(properties))
        spark = _build(properties)
        gateway: Any = spark.sparkContext._gateway
        end = replace(end, process=getattr(gateway, "proc", None))
        silence_accumulators(spark)
        try:
            yield spark
        finally:
            # Where Java is gone already there is nothing left to end, and the first error is the one to report.
            with suppress(*SPARK_ERRORS):
                spark.stop()
    except SPARK_ERRORS as error:
        raise explain(error, end) from error


def make_session(config: CompactionConfig) -> SparkSession:
    """Return a session with what the job needs of Spark."""
    return _build(_prepare(config))


def _build(properties: Mapping[str, str]) -> SparkSession:
    builder = SparkSession.builder
    for name, value in properties.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _prepare(config: CompactionConfig) -> dict[str, str]:
    """Return what the job needs of Spark, and set what it takes from the environment."""
    properties = session_properties(config)
    if config.master is not None:
        # The cache may be an administrator's or an image's, where this user cannot write.
        os.environ |= java_environment() | name_user(os.getuid(), Path(temporary_directory(properties)))
        if config.is_local:
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
            # No executor on another machine has to reach this driver.
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            use_home_without_zips()
        if "spark.jars.packages" not in properties:
            properties["spark.jars"] = ",".join(map(str, spark_kafka_jars()))
    return properties


def session_properties(config: CompactionConfig) -> dict[str, str]:
    """Return the properties of a session, those of the configuration over ours, without the connector to Kafka."""
    properties = {
        "spark.app.name": "holdfast-compaction",
        "spark.sql.shuffle.partitions": str(config.state_partitions),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        # All state of a Java shares one cache and its buffers, which else grow with the partitions of the state.
        "spark.sql.streaming.stateStore.rocksdb.boundedMemoryUsage": "true",
        "spark.sql.streaming.stateStore.rocksdb.maxMemoryUsageMB": "256",
        "spark.sql.streaming.minBatchesToRetain": "10",
        # A batch is kept for seconds, in which compressing it costs more than it saves.
        "spark.sql.inMemoryColumnarStorage.compressed": "false",
        # Spark warns of every state that is read and not there.
        "spark.log.level": "ERROR",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if config.master is not None:
        properties["spark.master"] = config.master
        # Spark puts these in front of `extraJavaOptions`, which a user may set, and of what the same option says the last one counts.
        properties["spark.driver.defaultJavaOptions"] = _JAVA_OPTIONS
        if config.is_local:
            properties["spark.driver.memory"] = "2g"
            # The time of a whole batch matters, pauses within it do not.
            properties["spark.driver.extraJavaOptions"] = "-XX:+UseParallelGC"
            properties["spark.python.daemon.module"] = _DAEMON
            # It imports numpy, whose linear algebra would start a thread for each processor, and a fork has none of them.
            properties["spark.executorEnv.OPENBLAS_NUM_THREADS"] = "1"
    return {**properties, **config.spark_properties}
