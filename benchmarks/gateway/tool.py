"""Kafka's own tool, `kafka-share-consumer-perf-test.sh`, at a server."""

from __future__ import annotations

import re
import subprocess
from typing import Any, Final

from benchmarks.client import BenchmarkError
from benchmarks.gateway.crew import java_command
from benchmarks.gateway.loads import Backlog

_CLASS: Final = "org.apache.kafka.tools.ShareConsumerPerformance"
_INTERVAL_MS: Final = 100
#: A report: the end of its time, and what was read up to there; then the length of its time.
_REPORT: Final = re.compile(r"^[^,]*, [^,]*, [\d.]+, [\d.]+, [\d.]+, (\d+), (\d+) for share consumer 1$", re.MULTILINE)
#: As much as a run of a second takes, or more.
_BYTES_PER_S: Final = 40_000_000
_RECORDS_PER_S: Final = 100_000
#: The tool fails if it takes longer than this for all.
_TIMEOUT_MS: Final = 120_000


def run_tool(address: str, backlog: Backlog, group: str, seconds: float) -> dict[str, Any]:
    """Have the tool take records with one thread; its rate is that from its first report with records to its last one.

    Raises:
        BenchmarkError: it failed.
    """
    count = round(seconds * min(_RECORDS_PER_S, _BYTES_PER_S / backlog.value_bytes))
    options = {
        "bootstrap-server": address,
        "topic": backlog.topic,
        "group": group,
        "num-records": count,
        "threads": 1,
        "timeout": _TIMEOUT_MS,
        "reporting-interval": _INTERVAL_MS,
    }
    arguments = [part for name, value in options.items() for part in (f"--{name}", str(value))]
    command = [*java_command(), _CLASS, *arguments, "--show-detailed-stats"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=2 * _TIMEOUT_MS / 1_000)
    reports = [(int(read), int(took_ms)) for read, took_ms in _REPORT.findall(done.stdout)]
    if done.returncode or len(reports) < 2:
        raise BenchmarkError(f"{_CLASS} failed: {(done.stdout + done.stderr)[-1_000:]}")
    (before, _), *rest = reports
    return {
        "records_per_s": (rest[-1][0] - before) / sum(took_ms for _, took_ms in rest) * 1_000,
        "seconds": sum(took_ms for _, took_ms in rest) / 1_000,
        "taken": count,
    }
