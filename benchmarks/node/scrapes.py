"""What health calls and scrapes cost a node under load, and it them: `python -m benchmarks.node.scrapes`.

One broker, one node, and beside them two processes: one writes over 64 connections in a closed loop, the other calls `/live`,
`/ready` and `/health` without a pause and scrapes `/metrics` every `_SCRAPE_PAUSE_S`. Share groups give at least `--series` series.
Writes that began while a scrape was on its way are compared with all others of the same run; scraped so often that both are many.
"""

from __future__ import annotations

import argparse
import http.client
import multiprocessing
import signal
import socket
import sys
import threading
import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from multiprocessing.connection import Connection as Pipe
from typing import Final

from benchmarks.client import Address, BenchmarkError, Client
from benchmarks.cluster import create_topic, running_kafka
from benchmarks.contenders import HoldfastNode
from benchmarks.generator import Connection, Workload, drive, measure
from benchmarks.share_state import STATE_EPOCH, ConnectionKeys, check_all, find_keys
from holdfast.api.results import InitializePartition, StateRequest
from holdfast.api.share_state import INITIALIZE
from holdfast.runtime.build import BUILD

_WORKLOAD: Final = Workload(api="write", keys=1, connections=64)
_HEALTH: Final = ("/live", "/ready", "/health")
_METRICS: Final = "/metrics"
_SCRAPE_PAUSE_S: Final = 0.5
_HEALTH_PAUSE_S: Final = 0.01
#: What each pair of a group and a topic has.
_SERIES_PER_PAIR: Final = 16
_WARM_UP_S: Final = 5.0
_WAIT_S: Final = 60.0

Times = list[tuple[float, float]]


def main(arguments: Sequence[str]) -> int:
    """Measure and print; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.node.scrapes", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--series", type=int, default=5_000, help="of share groups (default: 5,000)")
    parser.add_argument("--seconds", type=float, default=30.0)
    options = parser.parse_args(arguments)
    pairs = -(-options.series // _SERIES_PER_PAIR)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    node = HoldfastNode()
    node.settings |= {
        "http.listen": f"127.0.0.1:{port}",
        "group_metrics_pairs_max": str(pairs),
        "group_metrics_interval_ms": "2000",
    }
    with running_kafka(1) as kafka:
        topic_id = create_topic(kafka)
        try:
            node.start(kafka)
            keys = find_keys(node.address, topic_id, _WORKLOAD.connections, "scrapes", node.placement(_WORKLOAD.mix))
            _make_groups(node.address, topic_id, pairs)
            measure(keys, _WORKLOAD, _WARM_UP_S, 0)
            series = _wait_for_series(port, pairs * _SERIES_PER_PAIR)
            alone = _write(keys, options.seconds / 2)
            with _watching(port) as pipe:
                beside = _write(keys, options.seconds)
                pipe.send(None)
                watched: dict[str, Times] = pipe.recv()
            check_all(keys)
        finally:
            node.stop()
    _show(alone, beside, watched, series)
    return 0


def _make_groups(address: Address, topic_id: bytes, count: int) -> None:
    with Client(address) as client:
        for number in range(count):
            wanted = [InitializePartition(0, STATE_EPOCH, 0)]
            client.share_state(INITIALIZE, StateRequest(f"a-{number:05d}", [(topic_id, [*wanted])]))


def _wait_for_series(port: int, wanted: int) -> int:
    """Return the number of series that share groups have, once they are all there."""
    ends_s = time.monotonic() + _WAIT_S
    while True:
        lines = _get(port, "/metrics").splitlines()
        found = sum(line.startswith(b"holdfast_group_") and b"{" in line for line in lines)
        if found >= wanted:
            return found
        if time.monotonic() > ends_s:
            raise BenchmarkError(f"There are {found} series of share groups in place of {wanted}.")
        time.sleep(1)


def _get(port: int, path: str) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_WAIT_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
        if answer.status != HTTPStatus.OK:
            raise BenchmarkError(f"{path} answered {answer.status}: {body[:200]!r}")
        return body
    finally:
        connection.close()


def _write(keys: Sequence[ConnectionKeys], seconds: float) -> Times:
    """Return (when it was sent in s, ms that it took) of each write."""
    connections = [Connection(each, _WORKLOAD) for each in keys]
    try:
        latencies, sent, errors = drive(connections, seconds)
    finally:
        for connection in connections:
            connection.socket.close()
    if errors:
        raise BenchmarkError(f"{errors} writes were answered with an error.")
    return [(at / 1e9, took / 1e6) for at, took in zip(sent, latencies, strict=True)]


def _watch(port: int, pipe: Pipe) -> None:
    """Scrape and call until something comes through the pipe; send back when each began and how many ms it took, by path."""
    times: dict[str, Times] = {path: [] for path in (*_HEALTH, _METRICS)}

    def call(path: str) -> None:
        began_s = time.perf_counter()
        _get(port, path)
        times[path].append((began_s, (time.perf_counter() - began_s) * 1_000))

    def call_health() -> None:
        while not is_over.wait(_HEALTH_PAUSE_S):
            for path in _HEALTH:
                call(path)

    is_over = threading.Event()
    caller = threading.Thread(target=call_health)
    caller.start()
    while not pipe.poll(_SCRAPE_PAUSE_S):
        call(_METRICS)
    is_over.set()
    caller.join()
    pipe.send(times)


@contextmanager
def _watching(port: int) -> Iterator[Pipe]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_watch, args=(port, theirs), daemon=True)
    process.start()
    try:
        yield ours
    finally:
        process.join(_WAIT_S)
        process.kill()


def _show(alone: Times, beside: Times, watched: dict[str, Times], series: int) -> None:
    scrapes = [(began_s, began_s + took_ms / 1_000) for began_s, took_ms in watched[_METRICS]]
    first_s, last_s = scrapes[0][0], scrapes[-1][1]
    during: list[float] = []
    between: list[float] = []
    starts = [began_s for began_s, _ in scrapes]
    for at, took in beside:
        if first_s <= at <= last_s:
            is_during = at <= scrapes[bisect_right(starts, at) - 1][1]
            (during if is_during else between).append(took)
    print(f"build {BUILD}; {series:,} series of share groups; {_WORKLOAD.name}; ms")
    print("| what | count | p50 | p90 | p99 | p99.9 | longest |")
    print("| --- | --: | --: | --: | --: | --: | --: |")
    rows = {
        "writes, nobody watches": [took for _, took in alone],
        "writes, health is called": between,
        "writes that begin within a scrape": during,
    }
    for name, values in (rows | {path: [took for _, took in times] for path, times in watched.items()}).items():
        ranked = sorted(values)
        cells = " | ".join(f"{_at(ranked, share):.2f}" for share in (0.5, 0.9, 0.99, 0.999, 1))
        print(f"| {name} | {len(ranked):,} | {cells} |")
    more = [_at(sorted(during), share) - _at(sorted(between), share) for share in (0.5, 0.9, 0.99)]
    print(f"a scrape costs a write {more[0]:+.2f} ms at p50, {more[1]:+.2f} at p90, {more[2]:+.2f} at p99")


def _at(ranked: Sequence[float], share: float) -> float:
    return ranked[min(len(ranked) - 1, int(len(ranked) * share))]


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # So that servers are stopped on the way.
    sys.exit(main(sys.argv[1:]))
