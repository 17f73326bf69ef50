"""What the job asks of Spark, and what a user may ask instead."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

pytest.importorskip("pyspark")

from holdfast.compaction.spark.session import session_properties
from tests.configs import compaction_config

FIRST_COMPILER = "-XX:TieredStopAtLevel=1"


def properties(master: str | None, **own: str) -> dict[str, str]:
    asked = {name.replace("_", "."): value for name, value in own.items()}
    return session_properties(compaction_config(master=master, spark_properties=asked))


@pytest.mark.parametrize("master", ["local[2]", "spark://host:7077"])
def test_java_that_the_job_starts_has_its_first_compiler_only(master: str) -> None:
    assert FIRST_COMPILER in properties(master)["spark.driver.defaultJavaOptions"]


def test_java_that_spark_submit_has_started_is_left_as_it_is() -> None:
    assert not [name for name in properties(None) if name.endswith("JavaOptions")]


def test_options_of_a_user_keep_the_compiler_and_come_behind_it() -> None:
    found = properties("local[2]", spark_driver_extraJavaOptions="-Dtrust=store")
    assert FIRST_COMPILER in found["spark.driver.defaultJavaOptions"]
    assert found["spark.driver.extraJavaOptions"] == "-Dtrust=store"


def test_workers_beside_the_driver_are_forked_with_what_they_need() -> None:
    name = properties("local[2]")["spark.python.daemon.module"]
    assert find_spec(name) is not None
    assert properties("local[2]")["spark.executorEnv.OPENBLAS_NUM_THREADS"] == "1", "a fork has no threads"


@pytest.mark.parametrize("master", ["spark://host:7077", None])
def test_workers_elsewhere_which_have_none_of_our_code_at_first_are_spark_s_own(master: str | None) -> None:
    assert "spark.python.daemon.module" not in properties(master)


def test_the_native_memory_of_the_state_has_a_bound() -> None:
    rocksdb = "spark.sql.streaming.stateStore.rocksdb"
    assert properties("local[2]")[f"{rocksdb}.boundedMemoryUsage"] == "true"
    assert properties("local[2]")[f"{rocksdb}.maxMemoryUsageMB"] == "256"
