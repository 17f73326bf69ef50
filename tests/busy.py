"""Tests beside a busy loop on every processor, so many times, and the tally.

What fails there depends on how fast a machine is.

Example: python -m tests.busy --times 4 --numprocesses 2 tests/real
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

#: Ends with the process that started it, however that ends.
LOOP: Final = "import os\nwhile os.getppid() == {parent}:\n    for _ in range(10_000_000): pass"
_BAD: Final = ("failure", "error")


@contextmanager
def busy_processors(count: int) -> Iterator[list[int]]:
    """Keep so many processors busy; gives the ids of the processes that do."""
    with ExitStack() as loops:
        pids = []
        for _ in range(count):
            loop = subprocess.Popen([sys.executable, "-c", LOOP.format(parent=os.getpid())])
            loops.callback(loop.wait)
            loops.callback(loop.kill)
            pids.append(loop.pid)
        yield pids


def outcomes(report: Path) -> dict[str, str]:
    """Return passed, failed or skipped for each test of a report in JUnit's form; failed also where a fixture failed."""
    found: dict[str, str] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        kinds = {child.tag for child in case}
        outcome = "failed" if kinds & set(_BAD) else "skipped" if "skipped" in kinds else "passed"
        if found.get(name) != "failed":
            found[name] = outcome
    return found


def tally(runs: list[dict[str, str]]) -> list[str]:
    """Return the tests that failed in any run, the most frequent first, each with the number of runs."""
    failed = Counter(name for run in runs for name, outcome in run.items() if outcome == "failed")
    return [f"{count} of {len(runs)} runs failed: {name}" for name, count in failed.most_common()]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, tell, and return 1 where anything failed or nothing ran; the arguments are those of the process unless given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=4, help="how many runs")
    options, pytest_arguments = parser.parse_known_args(arguments)
    processors = len(os.sched_getaffinity(0))
    runs: list[dict[str, str]] = []
    is_bad = False
    with busy_processors(processors), tempfile.TemporaryDirectory() as directory:
        for number in range(1, options.times + 1):
            report = Path(directory) / f"{number}.xml"
            began_s = time.monotonic()
            command = [sys.executable, "-m", "pytest", "--junitxml", str(report), *pytest_arguments]
            ended = subprocess.run(command, check=False)
            runs.append(outcomes(report) if report.exists() else {})
            is_bad |= ended.returncode != 0 or not runs[-1]
            counts = Counter(runs[-1].values())
            text = ", ".join(f"{counts[outcome]} {outcome}" for outcome in ("passed", "failed", "skipped"))
            took_s = time.monotonic() - began_s
            print(
                f"Run {number} of {options.times} beside {processors} busy loops: {text} in {took_s:.0f} s, exit code {ended.returncode}",
                flush=True,
            )
    print("\n".join(tally(runs) or ["No test failed."]))
    return int(is_bad)


if __name__ == "__main__":
    sys.exit(main())
