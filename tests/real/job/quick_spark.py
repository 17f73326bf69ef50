"""What makes Spark start sooner in tests, and spares it work that pays only for much data."""

from __future__ import annotations

import gc
import sys
import warnings
from pathlib import Path
from typing import Any, Final

from holdfast.broker import FAST_START

#: Where tests start Spark from, see `holdfast.compaction.spark.home`.
HOME: Final = Path(__file__).parents[3] / "build" / "spark-home"
#: The classes of a job's JVM as they are in memory, see `tests.real.quick_java`.
CLASSES: Final = HOME.with_name("spark-classes.jsa")
#: Options of a JVM of Spark's.
QUICK_JAVA: Final = " ".join(FAST_START)
#: Properties of a session or a job.
QUICK: Final = {
    "spark.driver.extraJavaOptions": " ".join(
        (QUICK_JAVA, *([f"-XX:SharedArchiveFile={CLASSES}"] if CLASSES.exists() else []))
    ),
    # Without native code, Hadoop starts a process for the rights of each file and for each link that it looks for; these are
    # the files of checkpoints, and half of them are checksums that nothing here reads.
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.streaming.minBatchesToRetain": "2",
}


def end_java(timeout_s: float) -> None:
    """End the Java that PySpark started in this process, if any, and collect the sockets that it leaves open."""
    context: Any = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    if context is None or context._gateway is None:
        return
    if context._active_spark_context is not None:
        context._active_spark_context.stop()
    gateway = context._gateway
    gateway.shutdown()
    gateway.proc.stdin.close()  # That is how PySpark's Java learns of its end.
    gateway.proc.wait(timeout_s)
    context._gateway = context._jvm = gateway = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
