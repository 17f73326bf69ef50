"""Measure Holdfast and Apache Kafka's own share coordinator in alternating runs. See README.md.

Example: python -m benchmarks --quick --only rf1
"""

import argparse
import json
import shlex
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from benchmarks.contenders import Contender, HoldfastNode, KafkaCoordinator, ThroughLibrdkafka, TwoWorkers
from benchmarks.folded import FastHoldfast, PrunedHoldfast
from benchmarks.gateway.picture import growth_picture
from benchmarks.gateway.suites import GATEWAY
from benchmarks.history import History
from benchmarks.load import run_loads
from benchmarks.machine import describe
from benchmarks.report import load_table, mark_table, request_table, speed_table
from benchmarks.suites import FULL, QUICK, run_requests

#: Writes and reads, over so many brokers.
REQUESTS: Final = {"rf1": 1, "rf3": 3}
#: Loads, of so much.
LOADS: Final = {"load-1024": History(keys=1_024), "load": History()}
SUITES: Final = (*REQUESTS, *LOADS, *GATEWAY)
CONTENDERS: Final[dict[str, type[Contender]]] = {"kafka": KafkaCoordinator, "holdfast": HoldfastNode}
#: Further ones of one suite alone.
OF_SUITE: Final[dict[str, dict[str, type[Contender]]]] = {
    "rf1": {"holdfast-2": TwoWorkers},
    "load": {"holdfast-pruned": PrunedHoldfast, "holdfast-fast": FastHoldfast},
}
#: The node with either client of its log, side by side.
LOG_CLIENTS: Final[dict[str, type[Contender]]] = {"holdfast": HoldfastNode, "holdfast-librdkafka": ThroughLibrdkafka}
RESULTS: Final = Path(__file__).with_name("results")
_GROWTH: Final = "gateway-growth"
PICTURE: Final = RESULTS / f"{_GROWTH}.svg"
README: Final = Path(__file__).with_name("README.md")
FRONT_PAGE: Final = README.parents[1] / "README.md"

_QUICK_UPDATES: Final = 200_000
_BEGIN, _END = "<!-- results: written by python -m benchmarks -->", "<!-- end of results -->"


def main(arguments: Sequence[str]) -> int:
    """Run what the command line asks for; returns the exit code."""
    every = list(CONTENDERS) + [name for known in OF_SUITE.values() for name in known]
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a short run that is printed only; its numbers say little")
    parser.add_argument("--only", choices=SUITES, action="append", help="these suites (default: all)")
    parser.add_argument("--contender", choices=every, action="append", help="these (default: all)")
    parser.add_argument("--repeats", type=int, help="runs of each workload (default: 5, quick: 1)")
    parser.add_argument("--seconds", type=float, help="length of a run (default: 5, quick: 2)")
    parser.add_argument(
        "--log-client",
        action="store_true",
        help="the node with either client of its log (log.client), in place of the contenders; prints only (default suite: rf1)",
    )
    parser.add_argument("--tables", action="store_true", help="measure nothing: write the tables from results/*.json")
    options = parser.parse_args(arguments)
    if options.tables:
        write_tables()
        return 0
    effort = QUICK if options.quick else FULL
    effort = replace(effort, repeats=options.repeats or effort.repeats, seconds=options.seconds or effort.seconds)
    about = describe(shlex.join(["python", "-m", "benchmarks", *arguments]))
    for suite in options.only or (["rf1"] if options.log_client else SUITES):
        known = LOG_CLIENTS if options.log_client else CONTENDERS | OF_SUITE.get(suite, {})
        contenders = [known[name]() for name in options.contender or known if name in known]
        if not contenders:
            continue
        if suite in GATEWAY:
            runs = GATEWAY[suite].run(effort.repeats, effort.seconds, _say, is_short=options.quick)
        elif suite in LOADS:
            history = replace(LOADS[suite], updates=_QUICK_UPDATES) if options.quick else LOADS[suite]
            runs = run_loads(contenders, history, effort.repeats, _say)
        else:
            runs = run_requests(REQUESTS[suite], contenders, effort, _say)
        if options.quick or options.log_client:
            print(f"\n{_table(suite, runs)}\n{mark_table({suite: runs})}")
        else:
            RESULTS.mkdir(exist_ok=True)
            (RESULTS / f"{suite}.json").write_text(json.dumps({"about": about, "runs": runs}, indent=1) + "\n")
            write_tables()
    return 0


def _say(line: str) -> None:
    print(line, flush=True)


def _table(suite: str, runs: Sequence[dict[str, Any]]) -> str:
    if suite in GATEWAY:
        return GATEWAY[suite].table(runs)
    return load_table(runs) if suite in LOADS else request_table(runs)


def write_tables() -> None:
    """Write the tables of all results into this directory's README.md and the project's, between their markers."""
    for page, text in pages().items():
        page.write_text(text)


def pages() -> dict[Path, str]:
    """Return the pages that show results, as the results are now."""
    results = {suite: json.loads(file.read_text()) for suite in SUITES if (file := RESULTS / f"{suite}.json").exists()}
    runs = {suite: result["runs"] for suite, result in results.items()}
    parts = [mark_table(runs)]
    for suite, result in results.items():
        about = ", ".join(f"{name} {value}" for name, value in result["about"].items() if name != "command")
        command = result["about"]["command"]
        shown = f"\n![{suite}](results/{PICTURE.name})\n" if suite == _GROWTH else ""
        parts.append(f"### {suite}\n\n`{command}` ({about})\n{shown}\n{_table(suite, result['runs'])}")
    pictures = {PICTURE: growth_picture(runs[_GROWTH])} if _GROWTH in runs else {}
    return {
        README: _with_results(README, "\n".join(parts)),
        FRONT_PAGE: _with_results(FRONT_PAGE, speed_table(runs)),
        **pictures,
    }


def _with_results(page: Path, tables: str) -> str:
    before, rest = page.read_text().split(_BEGIN)
    return f"{before}{_BEGIN}\n\n{tables}\n{_END}{rest.split(_END)[1]}"


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # So that servers are stopped on the way.
    sys.exit(main(sys.argv[1:]))
