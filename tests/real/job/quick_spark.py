"""What makes Spark start sooner in tests, and spares it work that pays only for much data."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from holdfast.broker import FAST_START

#: Links to what Spark's scripts need of PySpark, without the zip of its Python modules. Spark has every Python that it starts look
#: there first, and what comes from a zip is compiled anew in each process, for a second; the environment has the same, compiled.
HOME: Final = Path(__file__).parents[3] / "build" / "spark-home"
_LINKED: Final = ("bin", "jars", "sbin")
#: Options of a JVM of Spark's.
QUICK_JAVA: Final = " ".join(FAST_START)
#: Properties of a session or a job.
QUICK: Final = {
    "spark.driver.extraJavaOptions": QUICK_JAVA,
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
