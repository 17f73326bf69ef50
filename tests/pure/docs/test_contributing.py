"""CONTRIBUTING.md is short, and the workflow of a public forge runs what is here."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped] # it ships no types

from tests.pure.docs.pages import ROOT, code_spans

PAGE = (ROOT / "CONTRIBUTING.md").read_text()
STEPS_MAX = 10
FILES_MIN = 4
#: The verbs of the rings.
RINGS = {"pure", "vectors", "model", "sim", "interop", "browser", "installed", "real", "hotpath"}


@pytest.mark.parametrize("what", ["an RPC", "a setting", "a record version", "a metric"])
def test_what_is_added_takes_at_most_ten_steps_that_name_files(what: str) -> None:
    section = PAGE.split(f"## How to add {what}\n")[1].split("\n## ")[0]
    steps = re.findall(r"^(\d+)\. ", section, re.MULTILINE)
    assert steps == [str(number) for number in range(1, len(steps) + 1)]
    assert 0 < len(steps) <= STEPS_MAX
    assert len({span for span in code_spans(section) if "/" in span}) >= FILES_MIN


def test_the_rings_are_those_that_make_test_runs() -> None:
    verbs = set(re.findall(r"^\|[^|]+\| `make (\w+)", PAGE, re.MULTILINE))
    assert verbs == RINGS
    makefile = (ROOT / "Makefile").read_text()
    recipe = "\n".join(
        makefile.split(f"\n{part}: ")[1].split("\n\n")[0] for part in ("test", "shipped", "waiting", "beside", "after")
    )
    assert {ring for ring in RINGS - {"vectors"} if not re.search(rf"\$\(MAKE\).*\b{ring}\b", recipe)} == set()


def test_the_workflow_runs_the_suite_and_builds_the_wheels() -> None:
    workflow: dict[str, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    commands = [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]
    assert commands == [".ci/run", "make wheel PYTHON=python3 SHIPPED=compiled"]
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o100
