"""How late a member's heartbeats leave while it loads a long log and serves: `python -m benchmarks.node.heartbeats`.

One broker and two nodes of one group, each with half of a log of `--updates` in 50 log partitions. 64 connections write in a closed
loop to log partitions of the second node. The first node leaves, so the second one reads and folds the first one's half beside the
writes, and claims it. What is shown is the second node's own `holdfast_heartbeat_lateness_seconds`, before and within that time;
heartbeats are more frequent than by default, so that there are many; what one waits for does not grow with the interval.
"""

from __future__ import annotations

import argparse
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final
from urllib.request import urlopen

from benchmarks.client import BenchmarkError, wait_until
from benchmarks.cluster import create_topic, running_kafka
from benchmarks.contenders import STATE_PARTITIONS, HoldfastNode
from benchmarks.generator import Connection, Workload, drive
from benchmarks.history import Appender, History, write_history
from benchmarks.share_state import TOPIC_PARTITIONS, ConnectionKeys, check_all, find_keys
from holdfast.metrics.instruments import BUCKETS_MS, Histogram
from holdfast.runtime.build import BUILD

_WORKLOAD: Final = Workload(api="write", keys=1, connections=64)
_LOADED_TIMEOUT_S: Final = 300.0
_TURN_S: Final = 1.0
_BUCKET: Final = re.compile(r'^holdfast_heartbeat_lateness_seconds_bucket\{.*?le="([^"]+)"\} (\S+)$', re.MULTILINE)
_ACTIVE: Final = re.compile(r'^holdfast_log_partitions\{.*?state="active".*?\} (\S+)$', re.MULTILINE)


class Watched(HoldfastNode):
    """A node of the group, whose metrics are scraped."""

    def __init__(self, node_id: int, heartbeat_interval_ms: int) -> None:
        super().__init__()
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._http_port: int = free.getsockname()[1]
        self.settings |= {
            "node_id": str(node_id),
            "http.listen": f"127.0.0.1:{self._http_port}",
            "heartbeat.interval.ms": str(heartbeat_interval_ms),
        }

    def scrape(self) -> str:
        """Return the metrics as text."""
        with urlopen(f"http://127.0.0.1:{self._http_port}/metrics", timeout=10) as answer:
            text: str = answer.read().decode()
        return text

    def serves(self, count: int) -> bool | None:
        """Return whether it serves so many log partitions, and None where not yet."""
        found = _ACTIVE.search(self.scrape())
        return (found is not None and float(found[1]) == count) or None

    def lateness(self) -> Histogram:
        """Return how late its heartbeats have left since its start."""
        histogram = Histogram()
        before = 0
        for number, (_, value) in enumerate(_BUCKET.findall(self.scrape())):
            histogram.counts[number] = int(float(value)) - before
            before = int(float(value))
        return histogram

    def records_loaded(self) -> int:
        """Return the number of records that it has read in loads, by the lines of its log."""
        return sum(entry["records"] for entry in self.log_entries() if entry["event"] == "log_partitions_loaded")


def main(arguments: Sequence[str]) -> int:
    """Measure and print; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.node.heartbeats", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument(
        "--updates", type=int, default=2_000_000, help="of which one node loads half (default: 2,000,000)"
    )
    parser.add_argument("--interval-ms", type=int, default=100, help="heartbeat.interval.ms (default: 100)")
    parser.add_argument("--seconds", type=float, default=30.0, help="of writes before the load (default: 30)")
    options = parser.parse_args(arguments)
    first, second = (Watched(node_id, options.interval_ms) for node_id in (1, 2))
    history = History(updates=options.updates)
    with running_kafka(1) as kafka:
        topic_id = create_topic(kafka)
        try:
            first.start(kafka)
            wait_until("The making of the state topic", lambda: first.serves(STATE_PARTITIONS))
            first.halt()
            appender = Appender(kafka.bootstrap_servers, first.state_topic, STATE_PARTITIONS, first.first_checkpoint())
            shares = history.share_partitions(topic_id, TOPIC_PARTITIONS)
            write_history(history, shares, first.codec, appender, STATE_PARTITIONS)
            first.restart()
            wait_until("The load of all", lambda: first.serves(STATE_PARTITIONS), _LOADED_TIMEOUT_S)
            second.start(kafka)
            for node in (first, second):
                wait_until("The division", lambda node=node: node.serves(STATE_PARTITIONS // 2), _LOADED_TIMEOUT_S)  # type: ignore[misc]
            found = find_keys(second.address, topic_id, 2 * _WORKLOAD.connections, "heartbeats")
            keys = [each for each in found if each.address == second.address]
            if len(keys) != _WORKLOAD.connections:
                raise BenchmarkError(f"{len(keys)} connections have their share partitions at the second node.")
            _measure(first, second, keys, options.seconds)
            check_all(keys)
        finally:
            first.stop()
            second.stop()
    return 0


def _measure(first: Watched, second: Watched, keys: Sequence[ConnectionKeys], seconds: float) -> None:
    at_start, loaded_before = second.lateness(), second.records_loaded()
    ends_s = time.monotonic() + seconds
    writes = _write_until(keys, lambda: time.monotonic() >= ends_s)
    before_load = second.lateness()
    taken = threading.Event()

    def leave() -> None:
        first.halt()
        wait_until("The load", lambda: second.serves(STATE_PARTITIONS), _LOADED_TIMEOUT_S)
        taken.set()

    leaver = threading.Thread(target=leave)
    began_s = time.monotonic()
    leaver.start()
    more = _write_until(keys, lambda: not leaver.is_alive())
    took_s = time.monotonic() - began_s
    if not taken.is_set():
        raise BenchmarkError("The second node has not loaded what the first one had.")
    after_load = second.lateness()
    second.halt()  # which writes the lines of its loads
    print(f"build {BUILD}; {second.records_loaded() - loaded_before:,} records loaded within {took_s:.1f} s; ms")
    print("| while it | writes/s | heartbeats | p50 | p99 | longest, at most |")
    print("| --- | --: | --: | --: | --: | --: |")
    _show("serves", writes / seconds, _between(at_start, before_load))
    _show("serves, loads and folds", more / took_s, _between(before_load, after_load))
    second.restart()
    wait_until("The load of all", lambda: second.serves(STATE_PARTITIONS), _LOADED_TIMEOUT_S)


def _write_until(keys: Sequence[ConnectionKeys], is_over: Callable[[], bool]) -> int:
    """Return the number of writes that were answered."""
    connections = [Connection(each, _WORKLOAD) for each in keys]
    written = 0
    try:
        while not is_over():
            latencies, _, errors = drive(connections, _TURN_S)
            written += len(latencies)
            if errors:
                raise BenchmarkError(f"{errors} writes were answered with an error.")
    finally:
        for connection in connections:
            connection.socket.close()
    return written


def _between(before: Histogram, after: Histogram) -> Histogram:
    histogram = Histogram()
    histogram.counts = [late - early for early, late in zip(before.counts, after.counts, strict=True)]
    return histogram


def _show(what: str, writes_per_s: float, lateness: Histogram) -> None:
    longest = max((number for number, count in enumerate(lateness.counts) if count), default=0)
    at_most = f"{BUCKETS_MS[longest]:g}" if longest < len(BUCKETS_MS) else "more"
    quantiles = " | ".join(f"{lateness.quantile_ms(share):.1f}" for share in (0.5, 0.99))
    print(f"| {what} | {writes_per_s:,.0f} | {lateness.count:,} | {quantiles} | {at_most} |")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # So that servers are stopped on the way.
    sys.exit(main(sys.argv[1:]))
