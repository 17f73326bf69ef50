"""How long an installed node takes from the start of its process until it is ready: `python -m benchmarks.node.start`.

The wheel from `dist` (`make wheel`) is installed as docs/install.md says, in a fresh environment with what it needs and nothing else: a
library for tests beside it would be imported by some that it needs. One broker, the default settings, a state topic of 50 log
partitions without share partitions, and one node that is started and stopped. The first start makes topics, and is not counted.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from http.client import HTTPConnection
from itertools import chain
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from benchmarks.client import BenchmarkError, wait_until
from benchmarks.cluster import running_kafka
from benchmarks.machine import cpu_seconds
from holdfast.broker.properties import HOST, choose_ports
from tests.installed.environment import Environment, install_locked, wheel

_TIMEOUT_S: Final = 60.0
_POLL_S: Final = 0.005


class Start(NamedTuple):
    """When a node got how far, in seconds since its process was started."""

    #: When it wrote this line of its log; requests are answered from then on.
    listening_s: float
    #: As above.
    ready_line_s: float
    #: When its HTTP port said that it is ready.
    ready_s: float
    #: What the process has computed by then.
    cpu_s: float


class _Node:
    """A process of the node, and when each event of its log was read."""

    def __init__(self, command: Sequence[str], variables: Mapping[str, str]) -> None:
        self._at_s: dict[str, float] = {}
        self._began_s = time.monotonic()
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=variables
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def measure(self, http_port: int) -> Start:
        """Wait until it is ready.

        Raises:
            BenchmarkError: it ended, or took too long.
        """

        def ready_s() -> float | None:
            if self._process.poll() is not None:
                raise BenchmarkError(f"The node ended with status {self._process.returncode}.")
            if "node_listening" not in self._at_s:
                return None
            connection = HTTPConnection(HOST, http_port, timeout=_TIMEOUT_S)
            try:
                connection.request("GET", "/ready")
                return self._elapsed_s() if connection.getresponse().status == 200 else None
            finally:
                connection.close()

        seconds = wait_until("The start of the node", ready_s, _TIMEOUT_S, _POLL_S)
        cpu_s = cpu_seconds([self._process.pid])
        wait_until("The line that says so", lambda: self._at_s.get("node_ready"), _TIMEOUT_S, _POLL_S)
        return Start(self._at_s["node_listening"], self._at_s["node_ready"], seconds, cpu_s)

    def stop(self) -> None:
        """End it."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(_TIMEOUT_S)
        self._reader.join()

    def _elapsed_s(self) -> float:
        return time.monotonic() - self._began_s

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            with suppress(ValueError):  # not every line is one of its events
                self._at_s.setdefault(json.loads(line)["event"], self._elapsed_s())


def main(arguments: Sequence[str]) -> int:
    """Measure and print; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.node.start", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--starts", type=int, default=7, help="that are counted (default: 7)")
    parser.add_argument(
        "--build", choices=("compiled", "pure"), default="compiled", help="the wheel (default: compiled)"
    )
    options = parser.parse_args(arguments)
    with TemporaryDirectory(prefix="holdfast-benchmark-") as directory:
        place = Path(directory)
        environment = Environment(place, wheel(options.build), install_locked(place / "locked"))
        with running_kafka(1) as kafka:
            starts = _measure(environment.variables(), kafka.bootstrap_servers, options.starts)
    print("| until | median s | shortest | longest |")
    print("| --- | --: | --: | --: |")
    whats = ("it listens", "its log says that it is ready", "`/ready` says so", "CPU time by then")
    for what, times in zip(whats, zip(*starts, strict=True), strict=True):
        print(f"| {what} | {median(times):.2f} | {min(times):.2f} | {max(times):.2f} |")
    return 0


def _measure(variables: Mapping[str, str], bootstrap_servers: str, count: int) -> list[Start]:
    starts = []
    ports = choose_ports(2)
    settings = {
        "kafka.bootstrap.servers": bootstrap_servers,
        "listen": f"{HOST}:{ports[0].broker}",
        "http.listen": f"{HOST}:{ports[1].broker}",
        "log_format": "json",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
    }
    flags = chain.from_iterable(("--set", f"{name}={value}") for name, value in settings.items())
    command = ["holdfast", "serve", *flags]
    for _ in range(1 + count):
        node = _Node(command, variables)
        try:
            starts.append(node.measure(ports[1].broker))
        finally:
            node.stop()
    return starts[1:]


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # So that servers are stopped on the way.
    sys.exit(main(sys.argv[1:]))
