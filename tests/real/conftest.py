"""Fixtures of the ring that needs a real broker."""

import gc
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from tests.real.shared_kafka import kafka, new_topic, topic
from tests.waiting import PATIENCE_S

__all__ = ["kafka", "new_topic", "topic"]


@pytest.fixture(scope="module", autouse=True)
def sockets_of_spark_end_with_their_module() -> Iterator[None]:
    """End the Java that PySpark started in this process, and collect the sockets that it leaves open.

    Else they are collected in a later test, which fails for them.
    """
    yield
    context: Any = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    if context is None or context._gateway is None:
        return
    gateway = context._gateway
    gateway.shutdown()
    gateway.proc.stdin.close()  # That is how PySpark's Java learns of its end.
    gateway.proc.wait(PATIENCE_S)
    context._gateway = context._jvm = gateway = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
