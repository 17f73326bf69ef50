"""Run files of recorded answers; which kind of case a file holds is in its name."""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.vectors.cases import (
    run_codec,
    run_codec_malformed,
    run_combiner,
    run_offsets,
    run_partition,
    run_share_key,
)
from tests.vectors.consumer_calls import run_consumer_call
from tests.vectors.fields import Fields, Mismatch
from tests.vectors.scenarios import run_scenario
from tests.vectors.share_partitions import run_share_scenario

DATA = Path(__file__).with_name("data")

#: What runs a line; scenarios return their number of steps.
Case = Callable[[Fields], int | None]

#: File name, without a suffix such as "-2", to what runs its lines.
CASES: dict[str, Case] = {
    "partition": run_partition,
    "share_key": run_share_key,
    "codec": run_codec,
    "codec_malformed": run_codec_malformed,
    "combiner": run_combiner,
    "combiner_odd": run_combiner,
    "combiner_tabled": run_combiner,
    "offsets": run_offsets,
    "consumer_calls": run_consumer_call,
    "shard": run_scenario,
    "shard_ext": run_scenario,
    "share_partition": run_share_scenario,
}


class Report(NamedTuple):
    """What came of one file."""

    path: Path
    passed: int
    #: Line number, from 1, and what is wrong there.
    failures: list[tuple[int, str]]
    #: Steps of the scenarios that passed.
    steps: int


def find_case(stem: str) -> Case | None:
    """Return what runs the lines of a file, by the longest known name that its own begins with."""
    known = max((name for name in CASES if stem.startswith(name)), key=len, default=None)
    return None if known is None else CASES[known]


def run_line(run_case: Case, line: str) -> int:
    """Run one case and return its number of steps.

    Raises:
        Mismatch: our answer differs, or the line holds something unknown.
    """
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise Mismatch(f"not JSON: {error}") from error
    with Fields("case", fields) as case:
        return run_case(case) or 0


def run_file(path: Path) -> Report:
    """Run all lines of a file; whatever a line raises is its failure, and the next one is run."""
    run_case = find_case(path.stem)
    if run_case is None:
        return Report(path, 0, [(0, f"unknown kind of file, expected one of {', '.join(CASES)}")], 0)
    passed, steps, failures = 0, 0, []
    for number, line in _lines(path):
        try:
            steps += run_line(run_case, line)
        except Exception as error:
            failures.append((number, f"{type(error).__name__}: {error}"))
        else:
            passed += 1
    return Report(path, passed, failures, steps)


def run_directory(directory: Path) -> Iterator[Report]:
    """Run every file of cases of a directory and of those in it, by name."""
    return map(run_file, find_files(directory))


def find_files(directory: Path) -> list[Path]:
    """Return the `*.jsonl` files of a directory and of those in it, packed by xz or not, by name."""
    return sorted(path for suffix in ("*.jsonl", "*.jsonl.xz") for path in directory.rglob(suffix))


def read_text(path: Path) -> str:
    """Return the lines of a file, which may be packed by xz."""
    if path.suffix == ".xz":
        return lzma.decompress(path.read_bytes()).decode()
    return path.read_text(encoding="utf-8")


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    # A line ends at a line feed only; JSON texts may hold other characters that Python also takes for line ends.
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if line.strip():
            yield number, line
