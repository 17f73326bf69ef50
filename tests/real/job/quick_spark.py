"""What makes Spark start sooner in tests, and spares it work that pays only for much data."""

from __future__ import annotations

import gc
import os
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from holdfast.broker import FAST_START

#: Links to what Spark's scripts need of PySpark, without the zip of its Python modules. Spark has every Python that it starts look
#: there first, and what comes from a zip is compiled anew in each process, for a second; the environment has the same, compiled.
HOME: Final = Path(__file__).parents[3] / "build" / "spark-home"
_LINKED: Final = ("bin", "jars", "sbin")
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


def use_quick_home() -> None:
    """Let this process and those below it start Spark from `HOME`, unless another home is named or there is no PySpark."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None or "SPARK_HOME" in os.environ:
        return
    HOME.mkdir(parents=True, exist_ok=True)
    for name in _LINKED:
        target, link = Path(spec.origin).parent / name, HOME / name
        if not link.exists() or not link.samefile(target):
            # Other processes of this run do the same.
            made = HOME / f"{name}-{os.getpid()}"
            made.symlink_to(target)
            made.replace(link)
    os.environ["SPARK_HOME"] = str(HOME)


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
