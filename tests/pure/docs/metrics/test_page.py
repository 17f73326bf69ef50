"""docs/metrics.md: what it names exists, and a metric of Kafka's without one of ours has a reason."""

from __future__ import annotations

import re

import pytest

from tests.pure.docs.metrics import full_registry
from tests.pure.docs.pages import ROOT, table

PAGE = (ROOT / "docs" / "metrics.md").read_text()
#: How many names of Kafka's each table maps.
KAFKA_NAMES = {"share coordinator": 5, "coordinator runtime": 16, "membership": 30}


def test_every_metric_of_ours_that_is_named_exists() -> None:
    named = set(re.findall(r"holdfast_[a-z_]+", PAGE))
    assert named
    assert named <= {family.name for family in full_registry().families()}


def has_reason(difference: str) -> bool:
    """Tell whether a row without a metric of ours names one that says it, or says in so many words that there is nothing to count."""
    return (
        "holdfast_" in difference
        or "`holdfast " in difference
        or re.search(r"\b(?:no|nothing|none|not)\b", difference) is not None
    )


def test_no_expression_takes_the_time_of_a_scrape_for_that_of_a_change() -> None:
    """PromQL's `timestamp` of a series is when it was scraped last."""
    assert re.search(r"timestamp\(holdfast_\w+\)", PAGE) is None


@pytest.mark.parametrize("mark", KAFKA_NAMES)
def test_every_metric_of_kafkas_has_one_of_ours_or_a_reason(mark: str) -> None:
    names = []
    for theirs, ours, difference in table(PAGE, mark):
        names += re.findall(r"`([a-z0-9-]+)`", theirs)
        assert ours.startswith("`holdfast_") or (ours == "none" and has_reason(difference)), theirs
    assert len(names) == len(set(names)) == KAFKA_NAMES[mark]
