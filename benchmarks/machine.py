"""On what, with what and from what a result was made; and what the processes cost."""

import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Final, NamedTuple

import confluent_kafka

from benchmarks.client import BenchmarkError
from holdfast.broker import KAFKA_VERSION, find_java
from holdfast.runtime.build import BUILD

#: As Linux cuts the names of threads.
_COMPILER_THREADS: Final = ("C1 CompilerThre", "C2 CompilerThre")
_CLOCK_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class ThreadTime(NamedTuple):
    """What one thread has taken so far."""

    thread_id: int
    name: str  #: as Linux cuts it, after 15 bytes
    cpu_s: float  #: user and system together


def describe(command: str) -> dict[str, str]:
    """Name the machine, the versions, the commit and the command of a result."""
    return {
        "command": command,
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": _commit(),
        "processor": f"{os.cpu_count()} × {_processor()}",
        "memory": f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "build": BUILD,
        "python": platform.python_version() + (" of the distribution" if sys.base_prefix == "/usr" else ""),
        "java": _java_version(),
        "kafka": KAFKA_VERSION,
        "confluent-kafka": version("confluent-kafka"),
        "librdkafka": confluent_kafka.libversion()[0],
        "uvloop": version("uvloop"),
    }


def cpu_seconds(process_ids: Iterable[int]) -> float:
    """Return the CPU time that these processes have taken so far, user and system together."""
    total = 0
    for process_id in process_ids:
        fields = Path(f"/proc/{process_id}/stat").read_text().rsplit(")", 1)[1].split()
        total += int(fields[11]) + int(fields[12])
    return total / _CLOCK_TICKS_PER_S


def compiler_seconds(process_ids: Iterable[int], proc: Path = Path("/proc")) -> dict[int, float]:
    """Return the CPU time that each living thread of Java's compilers in these processes has taken so far, by thread id.

    Raises:
        BenchmarkError: there is none, so their threads have other names than this knows.
    """
    found = {
        thread.thread_id: thread.cpu_s
        for thread in thread_times(process_ids, proc)
        if thread.name.startswith(_COMPILER_THREADS)
    }
    if not found:
        raise BenchmarkError(f"No process has a thread called {' or '.join(_COMPILER_THREADS)}.")
    return found


def thread_times(process_ids: Iterable[int], proc: Path = Path("/proc")) -> Iterator[ThreadTime]:
    """Give what each living thread of these processes has taken so far."""
    for process_id in process_ids:
        for thread in (proc / str(process_id) / "task").iterdir():
            try:
                head, _, rest = (thread / "stat").read_text().rpartition(")")
            except OSError:  # it ended; Java ends compilers that have nothing to do
                continue
            user, system = rest.split()[11:13]
            yield ThreadTime(int(thread.name), head.partition("(")[2], (int(user) + int(system)) / _CLOCK_TICKS_PER_S)


def memory_mib(process_ids: Iterable[int]) -> float:
    """Return the resident memory of these processes."""
    total = 0
    for process_id in process_ids:
        total += int(Path(f"/proc/{process_id}/statm").read_text().split()[1])
    return total * os.sysconf("SC_PAGE_SIZE") / 2**20


def _commit() -> str:
    root = Path(__file__).parent
    commit = _output(["git", "-C", str(root), "rev-parse", "--short=12", "HEAD"])
    changed = _output(["git", "-C", str(root), "status", "--porcelain", "--untracked-files=no"])
    return f"{commit} with changes" if changed else commit


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def _java_version() -> str:
    found = subprocess.run([find_java(), "-version"], capture_output=True, text=True, check=True)
    return found.stderr.splitlines()[0].strip()


def _output(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
