"""What access rules, TLS and logins cost: `python -m benchmarks.node.security`.

Nodes that differ by their listener alone stand over one broker, and take turns under the load of `benchmarks`: Writes of one share
partition, one in flight on each connection. A ratio is that to the node without any of it in the same round; the median of rounds.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import sys
from collections.abc import Sequence
from typing import Final

from benchmarks.cluster import create_topic, running_kafka
from benchmarks.generator import Measurement, Workload, measure
from benchmarks.machine import cpu_seconds
from benchmarks.node.secured_node import SecuredNode
from benchmarks.share_state import ConnectionKeys, anywhere, check_all, find_keys
from holdfast.runtime.build import BUILD

_CONNECTIONS: Final = (1, 64)
_WARM_UP_S: Final = 3.0
#: Before each measurement.
_RUN_UP_S: Final = 0.3


def main(arguments: Sequence[str]) -> int:
    """Measure and print; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.node.security", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.5, help="of each measurement")
    options = parser.parse_args(arguments)
    nodes = [
        SecuredNode("PLAINTEXT", has_rules=False),
        SecuredNode("PLAINTEXT"),
        SecuredNode("SSL"),
        SecuredNode("SASL_PLAINTEXT"),
        SecuredNode("SASL_SSL"),
    ]
    found: dict[tuple[int, str], list[tuple[Measurement, float]]] = {}
    with running_kafka(1) as kafka:
        topic_id = create_topic(kafka)
        try:
            keys: list[list[ConnectionKeys]] = []
            for node in nodes:
                node.start(kafka)
                keys.append(find_keys(node.address, topic_id, max(_CONNECTIONS), node.name, anywhere))
                measure(keys[-1], Workload(api="write", keys=1, connections=max(_CONNECTIONS)), _WARM_UP_S, 0)
            for number in range(options.rounds):
                for connections in _CONNECTIONS:
                    workload = Workload(api="write", keys=1, connections=connections)
                    for index in range(len(nodes)):
                        turn = (number + index) % len(nodes)
                        node = nodes[turn]
                        before_s = cpu_seconds(node.process_ids)
                        result = measure(keys[turn], workload, options.seconds, _RUN_UP_S)
                        cores = (cpu_seconds(node.process_ids) - before_s) / (options.seconds + _RUN_UP_S)
                        found.setdefault((connections, node.name), []).append((result, cores))
            for some in keys:
                check_all(some)
        finally:
            for node in nodes:
                node.stop()
    _show(found, [node.name for node in nodes])
    return 0


def _show(found: dict[tuple[int, str], list[tuple[Measurement, float]]], names: Sequence[str]) -> None:
    print(f"build {BUILD}; medians, and in parentheses the ratio to {names[0]}")
    print("| connections | listener | writes/s | p50 ms | p99 ms | µs of the node's processor a write |")
    print("| --: | --- | --: | --: | --: | --: |")
    for connections in _CONNECTIONS:
        base = found[connections, names[0]]
        for name in names:
            runs = found[connections, name]

            def cell(values: Sequence[float], plain: Sequence[float]) -> str:
                ratio = statistics.median(value / other for value, other in zip(values, plain, strict=True))
                return f"{statistics.median(values):,.2f} ({ratio:.2f})"

            cells = [
                cell([getattr(run, what) for run, _ in runs], [getattr(run, what) for run, _ in base])
                for what in ("requests_per_s", "p50_ms", "p99_ms")
            ]
            costs = [[cores * 1e6 / run.requests_per_s for run, cores in each] for each in (runs, base)]
            print(f"| {connections} | {name} | {' | '.join(cells)} | {cell(*costs)} |")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # So that servers are stopped on the way.
    sys.exit(main(sys.argv[1:]))
