"""The process from which Spark forks its Python workers where they run beside the driver: `python -m` this, as `pyspark.daemon`.

What a worker needs is imported before it is forked: once, and not by each worker while its first records wait.
"""

from __future__ import annotations

import gc

import pandas  # noqa: F401  # for the workers
import pyarrow  # type: ignore[import-untyped]  # noqa: F401  # the same
from pyspark import daemon

import holdfast.compaction.spark.fold_processor  # noqa: F401  # the same

if __name__ == "__main__":
    # A worker looks for garbage after each task, and none is ever found in what all have imported.
    gc.freeze()
    daemon.manager()
