"""Run lives: `python -m tests.simulated --seeds 10000 --jobs 2`, or one of them: `--kind cluster --seed 17 --trace`.

`--untested` leaves out those that `pytest tests/simulated` lives, so that `make sim` lives none twice.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from multiprocessing import Pool
from typing import NamedTuple

from tests.simulated.checks.coverage import CLUSTER, GATEWAY, GROUP, LEADERS, MEMORY, lived, missing
from tests.simulated.checks.invariants import Violation
from tests.simulated.cluster.life import run_cluster_life
from tests.simulated.gateway.life import run_gateway_life
from tests.simulated.group.life import run_group_life
from tests.simulated.life import run_leader_life, run_life
from tests.simulated.mutants import catching_lives

KINDS = {
    MEMORY: run_life,
    CLUSTER: run_cluster_life,
    GROUP: run_group_life,
    LEADERS: run_leader_life,
    GATEWAY: run_gateway_life,
}
#: Where all kinds are lived, of so many seeds of another kind one: its lives take longer, and a few show most of it.
SEEDS_PER_LIFE = {MEMORY: 1, CLUSTER: 1, GROUP: 4, LEADERS: 4, GATEWAY: 2}
CHUNK = 25
#: Failures told in full; more of them only add to the number.
TOLD_MAX = 10


class Lives(NamedTuple):
    """What came of some seeds."""

    lived: int
    counts: Counter[str]
    failures: list[tuple[int, str]]


def run_lives(kind: str, seeds: Sequence[int]) -> Lives:
    """Live every seed; a failure does not keep the others from living."""
    counts: Counter[str] = Counter()
    failures: list[tuple[int, str]] = []
    for seed in seeds:
        try:
            counts += KINDS[kind](seed)
        except Violation as violation:
            failures.append((seed, str(violation)))
        except Exception as bug:
            failures.append((seed, f"the simulation itself failed: {bug!r}"))
    return Lives(len(seeds), counts, failures)


def run_one(kind: str, seed: int, *, is_traced: bool) -> int:
    """Live one seed and tell its story; returns the exit code."""
    lines: list[str] = []
    try:
        KINDS[kind](seed, lines.append if is_traced else None)
        verdict = ""
    except Violation as violation:
        verdict = str(violation)
    print("\n".join(lines))
    print(f"seed {seed}: {verdict or 'all invariants hold'}")
    return 1 if verdict else 0


def untested(kind: str, seeds: range) -> list[int]:
    """Return the seeds that `pytest tests/simulated` does not live."""
    by_tests = lived() | catching_lives()
    return [seed for seed in seeds if (kind, seed) not in by_tests]


def run_many(kind: str, seeds: Sequence[int], jobs: int) -> int:
    """Live many seeds in parallel; returns the exit code."""
    began_s = time.monotonic()
    count = len(seeds)
    chunks = [seeds[at : at + CHUNK] for at in range(0, count, CHUNK)]
    counts: Counter[str] = Counter()
    failures: list[tuple[int, str]] = []
    done = 0
    with Pool(jobs) as pool:
        for lives in pool.imap_unordered(partial(run_lives, kind), chunks):
            done += lives.lived
            counts += lives.counts
            for seed, text in lives.failures[: max(0, TOLD_MAX - len(failures))]:
                again = f"  again: python -m tests.simulated --kind {kind} --seed {seed} --trace"
                print(f"\nseed {seed} fails: {text}\n{again}", flush=True)
            failures += lives.failures
            if sys.stderr.isatty():
                print(f"\r{done}/{count}", end="", file=sys.stderr)
    took_s = time.monotonic() - began_s
    for what, number in sorted(counts.items()):
        print(f"{number:>9}  {what}")
    print(
        f"{done} lives of the kind {kind!r}, {len(failures)} failures, {done / took_s:.0f} lives per second on {jobs} cores"
    )
    absent = missing(kind, counts, done)
    if absent:
        print(f"never happened, so nothing is known about it: {', '.join(absent)}")
    return 1 if failures or absent else 0


def main() -> int:
    """Parse the command line and run; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulated", description=__doc__)
    parser.add_argument(
        "--kind",
        choices=[*KINDS],
        help="lives of this kind alone: in memory, on a cluster, of a group, or of a gateway",
    )
    parser.add_argument(
        "--seeds",
        type=int,
        default=1_000,
        help="lives of each kind; of a group a quarter and of a gateway half, unless --kind names it",
    )
    parser.add_argument("--start", type=int, default=0, help="first seed")
    parser.add_argument("--untested", action="store_true", help="leave out the lives of `pytest tests/simulated`")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--seed", type=int, help="live this seed alone, in memory unless --kind says otherwise")
    parser.add_argument("--trace", action="store_true", help="with --seed: tell every event and what it led to")
    options = parser.parse_args()
    if options.seed is not None:
        return run_one(options.kind or MEMORY, options.seed, is_traced=options.trace)
    kinds = [options.kind] if options.kind else [*KINDS]
    lives: dict[str, Sequence[int]] = {}
    for kind in kinds:
        count = options.seeds if options.kind else options.seeds // SEEDS_PER_LIFE[kind]
        wanted = range(options.start, options.start + count)
        lives[kind] = untested(kind, wanted) if options.untested else wanted
    return max((run_many(kind, seeds, options.jobs) for kind, seeds in lives.items() if seeds), default=0)


if __name__ == "__main__":
    sys.exit(main())
