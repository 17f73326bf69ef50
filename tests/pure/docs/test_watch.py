"""docs/watch.md: what it says of commands and metrics is what the code does."""

from __future__ import annotations

import re

from holdfast.console.doctor.checks import CHECKS, without_brokers
from holdfast.console.doctor.findings import Level, Line
from tests.pure.docs.metrics import full_registry
from tests.pure.docs.pages import ROOT, table

PAGE = (ROOT / "docs" / "watch.md").read_text()


def test_the_metrics_are_those_of_the_registry() -> None:
    rows = set()
    for name, sort, description, _, series in full_registry().families():
        (names,) = {tuple(label for label, _ in labels) for labels in series}
        rows.add((f"`{name}`" + f" {{{', '.join(names)}}}" * bool(names), sort.__name__.lower(), description))
    assert {tuple(row) for row in table(PAGE, "metrics")} == rows


def test_a_script_is_told_which_checks_are_absent_without_brokers() -> None:
    (said,) = re.findall(r"^With `--json`, too, (.+) are then absent", PAGE, re.MULTILINE)
    left = without_brokers([Line(name, Level.UNKNOWN.value, "could not be checked", "") for name in CHECKS])
    assert re.findall("`(.+?)`", said) == [name for name in CHECKS if name not in {line.check for line in left}]
