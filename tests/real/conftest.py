"""Fixtures of the ring that needs a real broker, and the order of its files."""

from collections.abc import Iterator
from typing import Final

import pytest

from holdfast.compaction.spark.home import use_home_without_zips
from tests.children import children_without_hypothesis
from tests.real.job.quick_spark import HOME, end_java
from tests.real.shared_kafka import kafka, new_topic, topic
from tests.waiting import PATIENCE_S

__all__ = ["children_without_hypothesis", "kafka", "new_topic", "topic"]

#: The files that take longest: whoever begins with one of them last keeps all others waiting in the end.
#: Those with Spark and those with brokers of their own in turn, so that three do not start Spark at once.
LONGEST_FIRST: Final = (
    "test_compaction",
    "test_broker_restarts",
    "test_job_failures",
    "test_compaction_kill",
    "test_leader_moves",
    "test_damaged_fold",
    "test_standalone_spark",
    "test_broker",
    "test_examples",
    "test_attacks",
    "test_supervised_job",
    "test_freeze",
    "test_damage",
    "test_node",
)
#: Files whose tests print figures, which are shown in the end.
TOLD: Final = ("test_kill", "test_freeze", "test_compaction_kill", "test_broker_restarts")


def pytest_configure() -> None:
    use_home_without_zips(HOME)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files that take longest first; `--dist loadfile` gives each worker that is done the next one."""
    places = {name: place for place, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(places)))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show what the tests print that kill and freeze: how often, and what was found."""
    for report in terminalreporter.getreports("passed"):
        file, _, name = report.nodeid.partition("::")
        if report.when == "call" and report.capstdout and file.endswith(tuple(f"/{answer}.py" for answer in TOLD)):
            terminalreporter.write_sep("-", name)
            terminalreporter.write(report.capstdout)


@pytest.fixture(scope="module", autouse=True)
def sockets_of_spark_end_with_their_module() -> Iterator[None]:
    """End Spark's Java, and collect the sockets that it leaves open: else they are collected in a later test, which fails for them."""
    yield
    end_java(PATIENCE_S)
