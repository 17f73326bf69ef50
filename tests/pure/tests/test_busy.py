"""The tool that runs tests beside busy loops tells what failed, and leaves no loop behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.busy import busy_processors, tally
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).parents[3]
TESTS = """
import os, pathlib
import pytest
HERE = pathlib.Path(__file__).parent

def test_that_passes():
    pass

@pytest.mark.skip(reason="no engine")
def test_that_is_skipped():
    pass

def test_that_fails_once():
    seen = HERE / "seen"
    is_second = seen.exists()
    seen.touch()
    assert is_second

@pytest.fixture
def broken():
    yield
    raise RuntimeError

def test_whose_fixture_fails(broken):
    pass
"""


def run(directory: Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.busy", "--times", "2", "--rootdir", str(directory), *more]
    return subprocess.run(
        [*command, "-p", "no:cacheprovider", "-c", os.devnull],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def test_each_run_is_counted_and_each_failure_named(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)
    ended = run(tmp_path, str(tmp_path / "test_some.py"))
    assert ended.returncode == 1
    told = [line for line in ended.stdout.splitlines() if line.startswith("Run ")]
    loops = len(os.sched_getaffinity(0))
    assert told[0].startswith(f"Run 1 of 2 beside {loops} busy loops: 1 passed, 2 failed, 1 skipped in ")
    assert told[1].startswith(f"Run 2 of 2 beside {loops} busy loops: 2 passed, 1 failed, 1 skipped in ")
    assert ended.stdout.splitlines()[-2:] == [
        "2 of 2 runs failed: test_some::test_whose_fixture_fails",
        "1 of 2 runs failed: test_some::test_that_fails_once",
    ]


def test_a_run_without_tests_is_a_failure(tmp_path: Path) -> None:
    ended = run(tmp_path, str(tmp_path))
    assert ended.returncode == 1
    assert "0 passed, 0 failed, 0 skipped" in ended.stdout


def test_nothing_failed() -> None:
    assert tally([{"a": "passed"}, {"a": "skipped"}]) == []


def test_loops_end_with_the_block() -> None:
    with busy_processors(2) as pids:
        for pid in pids:
            os.kill(pid, 0)
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
