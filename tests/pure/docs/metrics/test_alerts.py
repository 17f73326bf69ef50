"""deploy/prometheus and deploy/grafana: rules, tests of rules and the dashboard name metrics that exist; the page has all alerts."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from shutil import which
from subprocess import run
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped] # it ships no types

from tests.pure.docs.metrics import full_registry
from tests.pure.docs.pages import ROOT, table

DEPLOY = ROOT / "deploy"
RULES = DEPLOY / "prometheus" / "alerts.yml"
TESTS = DEPLOY / "prometheus" / "alerts_test.yml"
#: Where `.ci/run` puts it on a machine that has none.
PROMTOOL = which("promtool") or which("promtool", path=ROOT / "build" / "prometheus" / "usr" / "bin")


@cache
def alerts() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


def metrics_in(text: str) -> set[str]:
    """Return the metrics of ours that an expression names, without the suffixes of histograms."""
    known = {family.name for family in full_registry().families()}
    found = set()
    for name in re.findall(r"\bholdfast_[a-z_]+", text):
        whole = re.sub("_(bucket|sum|count)$", "", name)
        found.add(whole if whole in known else name)
    return found


def test_every_alert_is_on_the_page_with_its_meaning_and_remedy() -> None:
    rows = {(name.strip("`"), severity, meaning) for name, severity, meaning, remedy in page() if remedy}
    assert rows == {
        (each["alert"], each["labels"]["severity"], each["annotations"]["description"]) for each in alerts()
    }


def page() -> list[list[str]]:
    return [list(row) for row in table((ROOT / "docs" / "alarms.md").read_text(), "alerts")]


@pytest.mark.parametrize("path", [RULES, TESTS, DEPLOY / "grafana" / "holdfast.json"], ids=lambda path: path.name)
def test_all_metrics_that_are_named_exist(path: Path) -> None:
    named = metrics_in(path.read_text())
    assert named
    assert named <= {family.name for family in full_registry().families()}


def test_what_says_that_an_admin_should_look_raises_an_alert() -> None:
    raised = metrics_in(RULES.read_text())
    names = {family.name for family in full_registry().families()}
    assert {
        name for name in names if re.search("_(alarm|warnings|problems|stopped)$|_log_readers_total$", name)
    } <= raised


def test_every_alert_is_raised_by_a_test_and_none_by_a_healthy_group() -> None:
    tests = yaml.safe_load(TESTS.read_text())["tests"]
    assert [test["name"] for test in tests] == ["a healthy group of two nodes", *(each["alert"] for each in alerts())]
    assert all(test["promql_expr_test"][0]["exp_samples"] for test in tests[1:])


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed; Debian has it in the package prometheus")
def test_the_rules_do_what_their_tests_say() -> None:
    assert PROMTOOL is not None
    done = run([PROMTOOL, "test", "rules", TESTS.name], cwd=TESTS.parent, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    checked = run([PROMTOOL, "check", "config", "prometheus.yml"], cwd=TESTS.parent, capture_output=True, check=False)
    assert checked.returncode == 0, checked.stdout


def test_the_dashboard_has_a_unit_and_a_place_for_each_panel() -> None:
    panels = json.loads((DEPLOY / "grafana" / "holdfast.json").read_text())["panels"]
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        assert place["x"] + place["w"] <= 24
        taken |= cells
        assert panel["type"] == "row" or (panel["fieldConfig"]["defaults"]["unit"] and panel["targets"])
