"""What is installed has a name that nobody else has, and its messages name a wheel that can be installed."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from holdfast.distribution import NAME, VERSION, how_to_install
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_name_and_the_version_are_the_projects() -> None:
    assert (PROJECT["name"], PROJECT["version"]) == (NAME, VERSION)


@pytest.mark.parametrize("extra", ["history", "broker", "spark"])
def test_an_extra_is_installed_from_a_wheel_that_is_named(extra: str) -> None:
    advice = how_to_install(extra)
    assert extra in PROJECT["optional-dependencies"]
    assert advice.startswith(
        f"install the extra [{extra}] of holdfast-kafka, from the wheel that `make wheel` builds: "
    )
    assert re.search(rf": pip install 'dist/holdfast_kafka-{re.escape(VERSION)}-\w+-\w+-\w+\.whl\[{extra}\]'$", advice)


def test_the_module_is_the_tool() -> None:
    output = subprocess.run(
        [sys.executable, "-m", "holdfast", "--version"], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    assert output.stdout.startswith(f"holdfast {VERSION} (")


def test_nothing_runs_the_module_of_the_commands_which_does_nothing_by_itself() -> None:
    places = [
        path for name in ("holdfast", "tests", "demo", "benchmarks", "deploy") for path in (ROOT / name).rglob("*.py")
    ]
    runs = re.compile(r"-m\W+holdfast\.cli\b(?!_)")
    assert [str(path) for path in [*places, ROOT / "Makefile"] if runs.search(path.read_text())] == []
