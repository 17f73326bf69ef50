"""The Python workers of the job's session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from holdfast.compaction.config import CompactionConfig
from holdfast.compaction.spark.session import open_session
from holdfast.runtime.build import BUILD
from tests.configs import compaction_config
from tests.real.job.quick_spark import QUICK

pytestmark = [
    pytest.mark.real,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"),
]


@pytest.fixture
def config(tmp_path: Path) -> CompactionConfig:
    return compaction_config(checkpoint_dir=str(tmp_path), master="local[1]", spark_properties=QUICK)


@pytest.fixture
def spark(config: CompactionConfig) -> Iterator[SparkSession]:
    with open_session(config) as session:
        yield session


def test_workers_run_the_build_of_the_driver_and_nothing_from_a_zip(spark: SparkSession) -> None:
    def look(_: int) -> tuple[bool, str, bool, list[str]]:
        import sys
        from pathlib import Path

        is_preloaded = {"pandas", "pyarrow", "holdfast.compaction.spark.fold_processor"} <= sys.modules.keys()
        from holdfast.runtime.build import BUILD

        zips = [path for path in sys.path if Path(path).name == "pyspark.zip" and Path(path).exists()]
        return is_preloaded, BUILD, "holdfast.records.native.twins" in sys.modules, zips

    found = spark.sparkContext.parallelize([0], 1).map(look).collect()
    assert found == [(True, BUILD, BUILD == "compiled", [])]
