"""The tool that runs tests beside busy loops tells what failed, and leaves no loop behind."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from tests import busy
from tests.waiting import block_until

#: Runs the tool so many times; gives its exit code and the lines that it and its runs printed.
Run: TypeAlias = Callable[[int], tuple[int, list[str]]]

#: In place of one that is busy.
WAITING_LOOP = "import os, time\nwhile os.getppid() == {parent}: time.sleep(0.01)"
#: Processor time that a loop which waits would not reach before the test gives up.
START_S = 0.2
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


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Give what runs the tool on a directory; its loops wait, so that what is tried here has the processors for itself."""
    monkeypatch.setattr(busy, "LOOP", WAITING_LOOP)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")

    def run(times: int) -> tuple[int, list[str]]:
        options = ["--times", str(times), "--rootdir", str(tmp_path), "-p", "no:cacheprovider", "-c", os.devnull]
        code = busy.main([*options, str(tmp_path)])
        return code, capfd.readouterr().out.splitlines()

    return run


def test_each_run_is_counted_and_each_failure_named(tmp_path: Path, run: Run) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)
    code, lines = run(2)
    assert code == 1
    found = [line for line in lines if line.startswith("Run ")]
    loops = len(os.sched_getaffinity(0))
    assert found[0].startswith(f"Run 1 of 2 beside {loops} busy loops: 1 passed, 2 failed, 1 skipped in ")
    assert found[1].startswith(f"Run 2 of 2 beside {loops} busy loops: 2 passed, 1 failed, 1 skipped in ")
    assert lines[-2:] == [
        "2 of 2 runs failed: test_some::test_whose_fixture_fails",
        "1 of 2 runs failed: test_some::test_that_fails_once",
    ]


def test_a_run_without_tests_is_a_failure(run: Run) -> None:
    code, lines = run(1)
    assert code == 1
    assert [line for line in lines if "0 passed, 0 failed, 0 skipped" in line]


def test_nothing_failed() -> None:
    assert busy.tally([{"a": "passed"}, {"a": "skipped"}]) == []


def processor_time_s(pid: int) -> float:
    """Return how long a process had a processor, above and below."""
    _, _, fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")
    return sum(map(int, fields.split()[11:13])) / os.sysconf("SC_CLK_TCK")


def test_loops_are_busy_and_end_with_the_block() -> None:
    with busy.busy_processors(2) as pids:
        block_until(lambda: all(processor_time_s(pid) > START_S for pid in pids), "more than Python takes to start")
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
