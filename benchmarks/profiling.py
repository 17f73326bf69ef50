"""Where the daemon spends its time under one workload: CPU per key by process, and the lines that py-spy finds busy.

Example: python -m benchmarks.profiling --keys 16 --connections 64
"""

import argparse
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from benchmarks.cluster import broker_pids, create_topic, running_kafka
from benchmarks.contenders import HoldfastNode
from benchmarks.generator import Workload, measure
from benchmarks.machine import cpu_seconds
from benchmarks.share_state import MIXES, check_all, find_keys

_WARM_UP_S: Final = 5.0
_SAMPLES_PER_S: Final = 250
_LINES_SHOWN: Final = 25


def main(arguments: Sequence[str]) -> int:
    """Run one workload against a daemon under the profiler; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.profiling", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--api", choices=["write", "read"], default="write")
    parser.add_argument("--keys", type=int, choices=[1, 16], default=16)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--mix", choices=list(MIXES), default="spread")
    parser.add_argument("--brokers", type=int, choices=[1, 3], default=1)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--without-profiler", action="store_true", help="CPU per key only; the profiler costs a little")
    options = parser.parse_args(arguments)
    workload = Workload(api=options.api, keys=options.keys, connections=options.connections, mix=options.mix)
    node = HoldfastNode()
    with running_kafka(options.brokers) as kafka, tempfile.TemporaryDirectory() as directory:
        topic_id = create_topic(kafka)
        samples = Path(directory) / "samples"
        try:
            node.start(kafka)
            placement, mix = node.placement(workload.mix), workload.mix
            keys = find_keys(node.address, topic_id, workload.connections, "profiling", placement, mix)
            measure(keys, workload, _WARM_UP_S, 0)
            brokers = broker_pids(kafka)
            before = cpu_seconds(node.process_ids), cpu_seconds(brokers)
            profiler = None if options.without_profiler else _profile(node.process_ids[0], options.seconds, samples)
            result = measure(keys, workload, options.seconds, 0)
            daemon_s, broker_s = cpu_seconds(node.process_ids) - before[0], cpu_seconds(brokers) - before[1]
            if profiler:
                profiler.wait()
            check_all(keys)
        finally:
            node.stop()
        written = result.requests * workload.keys
        print(f"{workload.name}: {result.requests_per_s:,.0f} requests/s, {result.keys_per_s:,.0f} keys/s, ", end="")
        print(f"p50 {result.p50_ms:.2f} ms, p99 {result.p99_ms:.2f} ms, errors {result.errors}")
        costs = {"daemon": daemon_s, "brokers": broker_s, "generator": result.generator_cpu * result.seconds}
        for name, seconds in costs.items():
            print(f"{name:10} {seconds / result.seconds:5.2f} cores, {seconds / written * 1e6:6.1f} µs a key")
        if profiler:
            _show(samples.read_text().splitlines())
    return 0


def _profile(process_id: int, seconds: int, samples: Path) -> "subprocess.Popen[bytes]":
    spy = str(Path(sys.executable).with_name("py-spy"))
    options = ["--duration", str(seconds), "--rate", str(_SAMPLES_PER_S), "--format", "raw", "--gil"]
    return subprocess.Popen(
        [spy, "record", *options, "--output", str(samples), "--pid", str(process_id)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _show(lines: Iterable[str]) -> None:
    """Print the busiest lines by themselves, and the busiest functions with what they call."""
    own: Counter[str] = Counter()
    whole: Counter[str] = Counter()
    for line in lines:
        stack, count = line.rsplit(" ", 1)
        frames = stack.split(";")
        own[frames[-1]] += int(count)
        for name in {frame.rsplit(":", 1)[0] + ")" for frame in frames if "holdfast/" in frame}:
            whole[name] += int(count)
    total = own.total()
    for title, counter in (("alone", own), ("with what they call", whole)):
        print(f"\n{title}, of {total} samples that held the interpreter lock:")
        for name, samples in counter.most_common(_LINES_SHOWN):
            print(f"{samples / total:6.1%} {name}")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # So that servers are stopped on the way.
    sys.exit(main(sys.argv[1:]))
