"""Several consumer processes of one group that begin together."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from benchmarks.client import BenchmarkError
from holdfast.broker import find_java, kafka_classpath

_START_S: Final = 60.0
_END_S: Final = 30.0


_JAVA_CONSUMERS: Final = Path(__file__).with_name("JavaConsumers.java")


def java_command() -> list[str]:
    """Return a command that runs a class, or a source file, with the classes of Kafka."""
    return [find_java(), "-Xmx512m", "-cp", kafka_classpath()]


@dataclass(frozen=True, slots=True)
class Seen:
    """The records that one consumer saw."""

    began_s: float
    cpu_s: float
    #: When, and how many records.
    polls: Sequence[tuple[float, int]]
    latencies_ms: Sequence[float]
    problems: Sequence[str]


class Crew:
    """Consumers of one group; they are stopped when the context ends.

    Args:
        count: how many.
        topic: what they take.
        group: their group, which begins at the earliest offset.
        settings: of each, the address among them.
        is_stamped: records begin with the time when they were produced.
        is_java: they are Java's, all in one process; else each is a process with confluent-kafka.
        rate: records a second that each takes at most; 0: as many as it can.
    """

    def __init__(
        self,
        count: int,
        topic: str,
        group: str,
        settings: dict[str, str],
        *,
        is_stamped: bool = False,
        is_java: bool = False,
        rate: float = 0,
    ) -> None:
        if is_java:
            pairs = [f"{name}={value}" for name, value in settings.items()]
            command = [*java_command(), str(_JAVA_CONSUMERS), str(count), topic, f"group.id={group}", *pairs]
            count = 1
        else:
            order = {"topic": topic, "group": group, "settings": settings, "is_stamped": is_stamped, "rate": rate}
            command = [sys.executable, "-m", "benchmarks.gateway.consumer", json.dumps(order)]
        self._processes = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(count)
        ]
        self._results: list[str] = [""] * count
        self._firsts = [threading.Event() for _ in range(count)]
        self._readies = [threading.Event() for _ in range(count)]
        self._threads = [threading.Thread(target=self._hear, args=(index,), daemon=True) for index in range(count)]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.kill()
            process.wait()

    def begin(self) -> None:
        """Have all of them subscribe at once.

        Raises:
            BenchmarkError: one did not come up.
        """
        if not all(ready.wait(_START_S) for ready in self._readies):
            raise BenchmarkError("A consumer did not start.")
        for process in self._processes:
            self._tell(process, "go\n")

    def wait_for_first(self, timeout_s: float) -> bool:
        """Wait until each has had a record; returns whether that came about."""
        deadline = time.monotonic() + timeout_s
        return all(first.wait(max(0.0, deadline - time.monotonic())) for first in self._firsts)

    def end(self) -> list[Seen]:
        """Stop all of them and return what they saw.

        Raises:
            BenchmarkError: one did not end, or broke.
        """
        for process in self._processes:
            self._tell(process, "stop\n")
        for thread in self._threads:
            thread.join(_END_S)
        if not all(self._results):
            raise BenchmarkError("A consumer did not say what it saw.")
        found: list[dict[str, Any]] = [each for result in self._results for each in json.loads(result)]
        return [Seen(**each) for each in found]

    def _hear(self, index: int) -> None:
        output = self._processes[index].stdout
        assert output is not None
        for line in output:
            if line == "ready\n":
                self._readies[index].set()
            elif line == "first\n":
                self._firsts[index].set()
            else:
                self._results[index] = line

    @staticmethod
    def _tell(process: subprocess.Popen[str], line: str) -> None:
        assert process.stdin is not None
        process.stdin.write(line)
        process.stdin.flush()
