"""Compare our answers with recorded ones: `python -m tests.vectors [DIR]`.

Runs every `*.jsonl` and `*.jsonl.xz` file in DIR (by default the ones beside this module),
prints the cases of each and the first failures, and ends with
"N passed, N failed". The exit code is 1 when anything failed or nothing was found.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.vectors.runner import DATA, run_directory

_FAILURES_SHOWN_MAX = 5
_FAILURE_LENGTH_MAX = 600


def main(arguments: list[str]) -> int:
    """Run a directory and return the exit code."""
    if len(arguments) > 1:
        print("usage: python -m tests.vectors [DIR]", file=sys.stderr)
        return 2
    directory = Path(arguments[0]) if arguments else DATA
    if not directory.is_dir():
        print(f"{directory} is not a directory", file=sys.stderr)
        return 2
    passed = failed = 0
    for report in run_directory(directory):
        steps = f", {report.steps} steps" if report.steps else ""
        print(f"{report.path.relative_to(directory)}: {report.passed} passed{steps}, {len(report.failures)} failed")
        for number, failure in report.failures[:_FAILURES_SHOWN_MAX]:
            print(f"  line {number}: {failure[:_FAILURE_LENGTH_MAX]}")
        passed += report.passed
        failed += len(report.failures)
    print(f"{passed} passed, {failed} failed")
    return 0 if passed and not failed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
