"""Builds and settings of a node beside each other and Kafka's own coordinator: `python -m benchmarks.node.compare`.

Each node has a state topic of its own in one cluster. All take turns in a random order, for whoever always comes behind Kafka's
coordinator is measured too low, and in each mix a caller has what it has in the tables: with several brokers and *spread*, a connection
to each coordinator of Kafka's.
Beside each ratio is its 95 % confidence interval. It tells how far the rounds of one program differ, not how far another hour or another
start of the brokers would.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.client import BenchmarkError
from benchmarks.cluster import broker_pids, create_topic, running_kafka
from benchmarks.contenders import Contender, HoldfastNode, KafkaCoordinator
from benchmarks.generator import Measurement, Workload, measure
from benchmarks.node.ratios import INTERVAL_ROUNDS_MIN, ratio_text
from benchmarks.share_state import KEYS_PER_CONNECTION, MIXES, check_all
from benchmarks.suites import (
    CONNECTIONS,
    FULL,
    Effort,
    KeysByMix,
    find_keys_by_mix,
    in_random_order,
    say_progress,
    warm_up,
)
from holdfast.runtime.build import BUILD

_NAME: Final = re.compile(r"[a-z0-9-]+")
_DEFAULT_WORKLOADS: Final = ("write,1,64,spread", "write,1,1,steady")
#: Less than for the tables: at most a minute for each contender.
_EFFORT: Final = Effort(warm_up_rounds_max=6, warm_up_round_s=2.0)
#: What this program chooses for each node, or what one node alone does not serve.
_RESERVED: Final = frozenset({"kafka.bootstrap.servers", "listen", "http.listen", "state_topic", "workers"})
#: What of a run is shown.
_SHOWN: Final = (("requests_per_s", "requests/s", ",.0f"), ("p50_ms", "p50 ms", ".3f"), ("p99_ms", "p99 ms", ".2f"))


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOptions:
    """What sets one node apart from the others."""

    name: str
    settings: Mapping[str, str] = field(default_factory=dict)
    #: A clone in which `make compiled` was called; None: the build that runs this.
    build: Path | None = None


class ComparedNode(HoldfastNode):
    """A node with settings of its own, and perhaps of another build."""

    def __init__(self, options: NodeOptions) -> None:
        """Prepare a node with a state topic of its own."""
        super().__init__()
        self.name = options.name
        self.state_topic = f"__holdfast_share_state_{options.name}"
        self.settings |= {"state_topic": self.state_topic, **options.settings}
        if options.build is not None:
            self.environment = {"PYTHONPATH": f"{options.build / 'build/compiled'}{os.pathsep}{options.build}"}


def parse_node(text: str) -> NodeOptions:
    """Read `NAME[,SETTING=VALUE|,build=DIRECTORY]...`.

    Raises:
        argparse.ArgumentTypeError: it is something else, a setting is not to be chosen, or the directory has no compiled build.
    """
    name, *pairs = text.split(",")
    if not _NAME.fullmatch(name) or name == KafkaCoordinator.name:
        raise argparse.ArgumentTypeError(
            f"a node's name has small letters, digits and hyphens, and is not kafka: {name!r}"
        )
    settings: dict[str, str] = {}
    for pair in pairs:
        setting, equals, value = pair.partition("=")
        if not setting or not equals:
            raise argparse.ArgumentTypeError(f"behind a node's name comes SETTING=VALUE or build=DIRECTORY: {pair!r}")
        if setting in settings or setting in _RESERVED:
            raise argparse.ArgumentTypeError(f"{setting} is given twice, or is not to be chosen here: {text!r}")
        settings[setting] = value
    build = settings.pop("build", None)
    if build is None:
        return NodeOptions(name=name, settings=settings)
    directory = Path(build).resolve()
    if not (directory / "build/compiled/ready").exists():
        raise argparse.ArgumentTypeError(f"build={build} has no compiled build; call `make compiled` there")
    return NodeOptions(name=name, settings=settings, build=directory)


def parse_workload(text: str) -> Workload:
    """Read `write|read,KEYS,CONNECTIONS,MIX`.

    Raises:
        argparse.ArgumentTypeError: it is something else, or more than the callers have.
    """
    wanted = f"a workload is write|read,KEYS,CONNECTIONS,{'|'.join(MIXES)}, as in write,1,64,spread: {text!r}"
    try:
        api, keys, connections, mix = text.split(",")
        workload = Workload(api=api, keys=int(keys), connections=int(connections), mix=mix)
    except ValueError:
        raise argparse.ArgumentTypeError(wanted) from None
    if api not in ("write", "read") or mix not in MIXES:
        raise argparse.ArgumentTypeError(wanted)
    if not 1 <= workload.keys <= KEYS_PER_CONNECTION or KEYS_PER_CONNECTION % workload.keys:
        raise argparse.ArgumentTypeError(f"KEYS divides {KEYS_PER_CONNECTION}: {text!r}")
    if not 1 <= workload.connections <= max(CONNECTIONS):
        raise argparse.ArgumentTypeError(f"CONNECTIONS is 1 to {max(CONNECTIONS)}: {text!r}")
    return workload


def table(workload: Workload, runs: Mapping[str, Sequence[Measurement]]) -> list[str]:
    """Return the lines of a table: medians, their ratios to the first contender's, the intervals of these, and all errors."""
    titles = " | ".join(title for _, title, _ in _SHOWN)
    lines = [f"| {workload.name} | {titles} | errors |", "| --- | --: | --: | --: | --: |"]
    first = next(iter(runs.values()))
    for name, measured in runs.items():
        cells = []
        for what, _, form in _SHOWN:
            values, bases = ([getattr(run, what) for run in each] for each in (measured, first))
            cells.append(f"{median(values):{form}} ({ratio_text(values, bases)})")
        lines.append(f"| {name} | {' | '.join(cells)} | {sum(run.errors for run in measured)} |")
    return lines


def main(arguments: Sequence[str]) -> int:
    """Measure and print; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.node.compare",
        description=(__doc__ or "").splitlines()[0],
        epilog="example: python -m benchmarks.node.compare --brokers 3 --node now --node before,build=../before --node "
        "off,busy_poll_us=0 --workload write,1,64,spread. A value has no comma in it. A build is what `make compiled` made last in its "
        "directory; to compare with it, run this program on a compiled build, too: `make bench OF=benchmarks.node.compare OPTIONS=…`.",
    )
    parser.add_argument(
        "--node",
        type=parse_node,
        action="append",
        metavar="NAME[,SETTING=VALUE][,build=DIRECTORY]",
        help="a node to measure, once for each (default: now)",
    )
    parser.add_argument(
        "--workload",
        type=parse_workload,
        action="append",
        metavar="API,KEYS,CONNECTIONS,MIX",
        help=f"what to measure, once for each (default: {' and '.join(_DEFAULT_WORKLOADS)})",
    )
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=1, help="(default: 1)")
    parser.add_argument("--repeats", type=int, default=12, help="(default: 12)")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each run (default: 1)")
    parser.add_argument(
        "--warm-up",
        type=float,
        default=FULL.warm_up_s,
        help="seconds of the same load before each run; with less than 2 all nodes are measured too low beside Kafka's coordinator "
        f"(default: {FULL.warm_up_s:g})",
    )
    options = parser.parse_args(arguments)
    nodes: list[NodeOptions] = options.node or [NodeOptions(name="now")]
    if len({node.name for node in nodes}) < len(nodes):
        parser.error("each --node needs a name of its own")
    if BUILD != "compiled" and any(node.build for node in nodes):
        parser.error(f"build= names a compiled build, and the other nodes would have this one, which is {BUILD}")
    if options.repeats < 1 or not 0 < options.seconds < math.inf or not 0 <= options.warm_up < math.inf:
        parser.error("--repeats is at least 1, --seconds more than 0, and --warm-up at least 0")
    workloads: list[Workload] = options.workload or [parse_workload(text) for text in _DEFAULT_WORKLOADS]
    contenders: list[Contender] = [KafkaCoordinator(), *map(ComparedNode, nodes)]
    say_progress(
        f"build {BUILD}; medians of {options.repeats} runs of {options.seconds:g} s behind {options.warm_up:g} s of the same load; "
        f"in parentheses the ratio to kafka's and, of {INTERVAL_ROUNDS_MIN} runs or more, its 95 % confidence interval"
    )
    with running_kafka(options.brokers) as kafka:
        topic_id = create_topic(kafka)
        broker_ids = broker_pids(kafka)
        keys_of: dict[str, KeysByMix] = {}
        try:
            for contender in contenders:
                contender.start(kafka)
                keys_of[contender.name] = find_keys_by_mix(contender, topic_id)
            warm_up(broker_ids, keys_of, _EFFORT, say_progress)
            for workload in workloads:
                runs: dict[str, list[Measurement]] = {name: [] for name in keys_of}
                for repeat in range(options.repeats):
                    for name, keys in in_random_order(list(keys_of.items()), workload, repeat):
                        runs[name].append(measure(keys[workload.mix], workload, options.seconds, options.warm_up))
                for keys_by_mix in keys_of.values():
                    check_all(keys_by_mix[workload.mix][: workload.connections])
                print("\n".join(table(workload, runs)), flush=True)
        finally:
            for contender in contenders:
                contender.stop()
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # So that servers are stopped on the way.
    try:
        sys.exit(main(sys.argv[1:]))
    except BenchmarkError as error:
        sys.exit(f"Error: {error}")
